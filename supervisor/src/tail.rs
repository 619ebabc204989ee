//! The last lines of something endless, printable and bounded.

use std::collections::VecDeque;

/// Keeps the last lines of a stream of bytes.
#[derive(Debug)]
pub(crate) struct LineTail {
    lines: VecDeque<String>,
    partial: Vec<u8>,
    max_lines: usize,
    line_bytes: usize,
}

impl LineTail {
    /// At most `max_lines` lines; of a longer line its last `line_bytes` bytes.
    pub(crate) fn new(max_lines: usize, line_bytes: usize) -> Self {
        Self { lines: VecDeque::new(), partial: Vec::new(), max_lines, line_bytes }
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            self.extend(piece);
            if pieces.peek().is_some() {
                let line = std::mem::take(&mut self.partial);
                self.push_line(escape(line.strip_suffix(b"\r").unwrap_or(&line)));
            }
        }
    }

    /// Takes a whole line that is printable already.
    pub(crate) fn push_line(&mut self, line: String) {
        if self.lines.len() == self.max_lines {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    fn extend(&mut self, piece: &[u8]) {
        let kept = &piece[piece.len().saturating_sub(self.line_bytes)..];
        let over = (self.partial.len() + kept.len()).saturating_sub(self.line_bytes);
        self.partial.drain(..over.min(self.partial.len()));
        self.partial.extend_from_slice(kept);
    }

    /// The lines, oldest first, one that has not ended included.
    pub(crate) fn lines(&self) -> Vec<String> {
        let partial = (!self.partial.is_empty()).then(|| escape(&self.partial));
        let lines: Vec<String> = self.lines.iter().cloned().chain(partial).collect();
        let over = lines.len().saturating_sub(self.max_lines);
        lines.into_iter().skip(over).collect()
    }

    /// The last line.
    pub(crate) fn last(&self) -> Option<String> {
        if self.partial.is_empty() { self.lines.back().cloned() } else { Some(escape(&self.partial)) }
    }

    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.partial.clear();
    }
}

/// Printable text: control characters and bytes that are no UTF-8 become `\xNN`, a backslash stays one.
pub(crate) fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            // Text direction marks and line separators would rearrange whatever it is printed in.
            let harmful =
                matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
            if letter == '\t' || !(letter.is_control() || harmful) {
                text.push(letter);
            } else if letter.is_ascii() {
                let _ = write!(text, "\\x{:02x}", u32::from(letter));
            } else {
                let _ = write!(text, "\\u{{{:x}}}", u32::from(letter));
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// [`escape`] of the first `limit` bytes, with a mark if there were more.
pub(crate) fn escape_cut(bytes: &[u8], limit: usize) -> String {
    if bytes.len() <= limit { escape(bytes) } else { escape(&bytes[..limit]) + "…" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut tail = LineTail::new(3, 100);
        tail.push(b"one\ntwo\nthr");
        tail.push(b"ee\r\nfour\n");
        assert_eq!(tail.lines(), ["two", "three", "four"]);
        tail.push(b"cut");
        assert_eq!(tail.lines(), ["three", "four", "cut"]);
        assert_eq!(tail.last().as_deref(), Some("cut"));
    }

    #[test]
    fn of_an_endless_line_the_last_bytes_are_kept() {
        let mut tail = LineTail::new(3, 4);
        for _ in 0..1000 {
            tail.push(&[b'a'; 1000]);
        }
        tail.push(b"bcd");
        assert_eq!(tail.lines(), ["abcd"]);
        assert!(tail.partial.capacity() < 4096);
    }

    #[test]
    fn what_is_no_printable_text_is_escaped() {
        assert_eq!(escape(b"a\xffb\x1b[0m\tc\xe2\x80\xa8"), "a\\xffb\\x1b[0m\tc\\u{2028}");
        assert_eq!(escape_cut(b"abcdef", 3), "abc…");
        assert_eq!(escape_cut("é".as_bytes(), 1), "\\xc3…");
    }
}
