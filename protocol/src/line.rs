//! Bytes to lines, bounded: the same decoder at both ends.

use crate::limits::OVERSIZE_KEPT_BYTES;
use std::collections::VecDeque;
use std::ops::Range;

/// One item of a byte stream. Refused input is an item too, never an error that ends the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its newline, and without leading byte order marks or trailing CRs. Never blank.
    Complete(&'a [u8]),
    /// The bytes after the last newline at the end of the stream. Whole or cut: the JSON in it tells.
    Unterminated(&'a [u8]),
    /// A line over the limit, skipped without being buffered. Ends at its newline, or at the end of the stream.
    Oversize {
        /// Its length in bytes, newline not counted.
        bytes: u64,
        /// Its first [`OVERSIZE_KEPT_BYTES`].
        head: &'a [u8],
        /// Its last [`OVERSIZE_KEPT_BYTES`], not overlapping the head.
        tail: &'a [u8],
    },
}

/// Splits a stream at the byte 0x0A. Holds at most the limit plus one read.
///
/// Fill it with [`LineDecoder::space`] and [`LineDecoder::commit`] (no copy) or [`LineDecoder::push`], then take
/// lines until `None`, then fill again. At the end of the stream call [`LineDecoder::finish`] until `None`.
///
/// Each byte is looked at once, however the stream is cut into reads.
///
/// ```
/// use turnhost_protocol::{Line, LineDecoder};
///
/// let mut decoder = LineDecoder::new(16);
/// decoder.push(b"{\"type\":\"hb\"}\r\n\n{\"cut");
/// assert_eq!(decoder.next_line(), Some(Line::Complete(br#"{"type":"hb"}"#)));
/// assert_eq!(decoder.next_line(), None);
/// assert_eq!(decoder.finish(), Some(Line::Unterminated(br#"{"cut"#)));
/// assert_eq!(decoder.finish(), None);
/// ```
#[derive(Debug)]
pub struct LineDecoder {
    limit: usize,
    /// `buf[start..end]` holds what came and was not given yet; what lies behind `end` is room.
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// There is no newline in `buf[start..searched]`.
    searched: usize,
    oversize: Oversize,
}

/// A line over the limit that is being skipped.
#[derive(Debug, Default)]
struct Oversize {
    state: Skip,
    bytes: u64,
    head: Vec<u8>,
    /// A ring, so that cutting its front off does not move the rest.
    tail: VecDeque<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Skip {
    #[default]
    No,
    /// Its end has not been seen.
    Inside,
    /// It was given; what was kept of it goes at the next call.
    Given,
}

/// An item by its place, so that it can be passed on before it is borrowed.
enum Found {
    Complete(Range<usize>),
    Oversize(Range<usize>),
    SkippedOversize,
}

const BOM: &[u8] = b"\xef\xbb\xbf";
/// A buffer that grew beyond this for one long line is given back when it is not needed any more.
const KEPT_CAPACITY: usize = 1024 * 1024;

impl LineDecoder {
    /// A decoder that gives lines of at most `limit` bytes: every byte between two newlines counts.
    pub fn new(limit: usize) -> Self {
        Self { limit, buf: Vec::new(), start: 0, end: 0, searched: 0, oversize: Oversize::default() }
    }

    /// Free room of at least `min` bytes, to be read into.
    pub fn space(&mut self, min: usize) -> &mut [u8] {
        if self.buf.len() - self.end < min {
            self.make_room(min);
        }
        &mut self.buf[self.end..]
    }

    /// Says that `n` bytes of the last [`LineDecoder::space`] were filled. More than it held counts as all of it.
    pub fn commit(&mut self, n: usize) {
        debug_assert!(n <= self.buf.len() - self.end, "no more can be filled than there is room");
        self.end = self.end.saturating_add(n).min(self.buf.len());
    }

    /// Appends a copy of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// The next line that is complete, `None` if more bytes are needed.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        let found = self.find()?;
        Some(self.give(found))
    }

    /// What is left at the end of the stream: complete lines that were not taken, then an [`Line::Unterminated`] or
    /// [`Line::Oversize`] if there is one, then `None`.
    pub fn finish(&mut self) -> Option<Line<'_>> {
        if let Some(found) = self.find() {
            return Some(self.give(found));
        }
        if self.oversize.state == Skip::Inside {
            return Some(self.give(Found::SkippedOversize));
        }
        let rest = self.trim(self.start..self.end);
        self.start = self.end;
        self.searched = self.end;
        rest.map(|range| Line::Unterminated(&self.buf[range]))
    }

    /// Bytes of a line that has begun and not ended, the skipped ones of an oversize line included.
    pub fn pending_bytes(&self) -> u64 {
        let unsearched = &self.buf[self.searched..self.end];
        match memchr::memrchr(b'\n', unsearched) {
            Some(newline) => (unsearched.len() - newline - 1) as u64,
            None if self.oversize.state == Skip::Inside => {
                self.oversize.bytes + (self.end - self.start) as u64
            }
            None => (self.end - self.start) as u64,
        }
    }

    fn make_room(&mut self, min: usize) {
        let held = self.end - self.start;
        let needed = held + min;
        if self.buf.len() > KEPT_CAPACITY && needed < KEPT_CAPACITY {
            self.buf = self.buf[self.start..self.end].to_vec();
        } else {
            // Only the begun line is moved, and it then stays at the front until it ends: once per line.
            self.buf.copy_within(self.start..self.end, 0);
        }
        self.searched -= self.start;
        self.start = 0;
        self.end = held;
        if self.buf.len() < needed {
            let doubled = (self.buf.len() * 2).min(self.limit.saturating_add(min));
            let capacity = needed.max(doubled);
            self.buf.reserve_exact(capacity - self.buf.len());
            self.buf.resize(capacity, 0);
        }
    }

    /// Passes over blank lines to the next item, and over all of a line without end that is too long.
    fn find(&mut self) -> Option<Found> {
        if self.oversize.state == Skip::Given {
            self.oversize = Oversize::default();
        }
        loop {
            let newline = memchr::memchr(b'\n', &self.buf[self.searched..self.end]);
            let line = self.start..newline.map_or(self.end, |found| self.searched + found);
            self.searched = line.end;
            let too_long = self.oversize.state == Skip::Inside || line.len() > self.limit;
            if newline.is_none() {
                if too_long {
                    self.oversize.state = Skip::Inside;
                    self.oversize.absorb(&self.buf[line]);
                    self.start = self.end;
                }
                return None;
            }
            self.start = line.end + 1;
            self.searched = self.start;
            if self.oversize.state == Skip::Inside {
                self.oversize.absorb(&self.buf[line]);
                return Some(Found::SkippedOversize);
            }
            if too_long {
                return Some(Found::Oversize(line));
            }
            if let Some(line) = self.trim(line) {
                return Some(Found::Complete(line));
            }
        }
    }

    /// Cuts byte order marks and CRs off; `None` if nothing but white space is left.
    fn trim(&self, line: Range<usize>) -> Option<Range<usize>> {
        let Range { mut start, mut end } = line;
        while self.buf[start..end].ends_with(b"\r") {
            end -= 1;
        }
        while self.buf[start..end].starts_with(BOM) {
            start += BOM.len();
        }
        (!self.buf[start..end].trim_ascii_start().is_empty()).then_some(start..end)
    }

    fn give(&mut self, found: Found) -> Line<'_> {
        match found {
            Found::Complete(line) => Line::Complete(&self.buf[line]),
            Found::Oversize(line) => {
                let bytes = line.len() as u64;
                let (head, rest) = self.buf[line.clone()].split_at(line.len().min(OVERSIZE_KEPT_BYTES));
                Line::Oversize { bytes, head, tail: last(rest) }
            }
            Found::SkippedOversize => {
                self.oversize.state = Skip::Given;
                let Oversize { bytes, head, tail, state: _ } = &mut self.oversize;
                Line::Oversize { bytes: *bytes, head, tail: tail.make_contiguous() }
            }
        }
    }
}

impl Oversize {
    fn absorb(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let head_room = OVERSIZE_KEPT_BYTES - self.head.len();
        let (head, rest) = bytes.split_at(head_room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = last(rest);
        let excess = (self.tail.len() + rest.len()).saturating_sub(OVERSIZE_KEPT_BYTES);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }
}

/// The last bytes, as many as are kept of an oversize line.
fn last(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(OVERSIZE_KEPT_BYTES)..]
}

#[cfg(test)]
mod tests;
