//! The last lines of a program's stderr, as a terminal would show them.

use super::plain::plain;
use std::collections::VecDeque;
use turnhost_protocol::limits::{STDERR_LINE_BYTES, STDERR_TAIL_LINES};

/// Keeps the last [`STDERR_TAIL_LINES`] lines, the first [`STDERR_LINE_BYTES`] of each. A carriage return begins the
/// line anew, so that of a progress bar the last state is kept.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<Vec<u8>>,
    /// The line that has not ended; `None` between lines, so that a final newline makes no empty line.
    current: Option<Vec<u8>>,
    /// True after a carriage return: the next text replaces the line, a newline ends it.
    returned: bool,
}

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let end = part.last().filter(|byte| matches!(byte, b'\n' | b'\r'));
            let text = &part[..part.len() - usize::from(end.is_some())];
            let line = self.current.get_or_insert_default();
            if self.returned && !text.is_empty() {
                line.clear();
                self.returned = false;
            }
            let room = STDERR_LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&text[..text.len().min(room)]);
            match end {
                Some(b'\n') => self.end_line(),
                Some(_) => self.returned = true,
                None => {}
            }
        }
    }

    fn end_line(&mut self) {
        self.returned = false;
        if let Some(line) = self.current.take() {
            if self.lines.len() == STDERR_TAIL_LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line);
        }
    }

    /// The lines, oldest first, without line ends and escape sequences; each is at most [`STDERR_LINE_BYTES`] of text.
    pub(super) fn into_lines(mut self) -> Vec<String> {
        self.end_line();
        self.lines
            .iter()
            .map(|line| {
                let mut text = plain(&String::from_utf8_lossy(line));
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
    fn of_a_line_that_is_written_over_the_last_state_is_kept() {
        let bar = "\r 10 %".repeat(STDERR_LINE_BYTES);
        assert_eq!(tail(&[bar.as_bytes(), b"\r100 %\nnext\r\r\n"]), ["100 %", "next"]);
        assert_eq!(tail(&[b"one\r", b"\ntwo\r", b"three"]), ["one", "three"]);
        assert_eq!(tail(&[b"one\r"]), ["one"]);
    }

    #[test]
    fn colours_are_no_part_of_a_line() {
        assert_eq!(
            tail(&[b"\x1b[9", b"1mError:\x1b[0m the key is not known\n"]),
            ["Error: the key is not known"]
        );
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
