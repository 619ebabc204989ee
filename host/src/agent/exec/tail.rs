//! The last lines of a program's stderr.

use std::collections::VecDeque;
use turnhost_protocol::limits::{STDERR_LINE_BYTES, STDERR_TAIL_LINES};

/// Keeps the last [`STDERR_TAIL_LINES`] lines, the first [`STDERR_LINE_BYTES`] of each.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<Vec<u8>>,
    /// The line that has not ended; `None` between lines, so that a final newline makes no empty line.
    current: Option<Vec<u8>>,
}

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let line = self.current.get_or_insert_default();
            let room = STDERR_LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&text[..text.len().min(room)]);
            if ended {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if let Some(line) = self.current.take() {
            if self.lines.len() == STDERR_TAIL_LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line);
        }
    }

    /// The lines, oldest first, without line ends; each is at most [`STDERR_LINE_BYTES`] of text.
    pub(super) fn into_lines(mut self) -> Vec<String> {
        self.end_line();
        self.lines
            .iter()
            .map(|line| {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                let mut text = String::from_utf8_lossy(line).into_owned();
                // A replacement is longer than the byte that it stands for.
                text.truncate(text.floor_char_boundary(STDERR_LINE_BYTES));
                text
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn tail(chunks: &[&[u8]]) -> Vec<String> {
        let mut tail = Tail::default();
        for chunk in chunks {
            tail.push(chunk);
        }
        tail.into_lines()
    }

    #[test]
    fn lines_come_out_as_they_went_in_however_they_were_cut() {
        assert_eq!(tail(&[b"one\ntw", b"o\r\n", b"\nlast"]), ["one", "two", "", "last"]);
        assert_eq!(tail(&[b"one\n"]), ["one"]);
        assert_eq!(tail(&[]), [""; 0]);
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let all: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let text = all.join("\n");
        assert_eq!(tail(&[text.as_bytes()]), all[1000 - STDERR_TAIL_LINES..]);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_whole() {
        let long = vec![b'x'; 10 * STDERR_LINE_BYTES];
        let lines = tail(&[&long, &long, b"\nnext\n", &[0xff; STDERR_LINE_BYTES]]);
        assert_eq!(lines[0], "x".repeat(STDERR_LINE_BYTES));
        assert_eq!(lines[1], "next");
        assert!(lines[2].len() <= STDERR_LINE_BYTES && lines[2].chars().all(|char| char == '\u{fffd}'));
    }

    #[test]
    fn memory_stays_bounded_without_a_single_newline() {
        let mut tail = Tail::default();
        for _ in 0..100 {
            tail.push(&[b'x'; STDERR_LINE_BYTES]);
        }
        assert!(tail.current.is_some_and(|line| line.capacity() <= 2 * STDERR_LINE_BYTES));
    }
}
