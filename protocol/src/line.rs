//! Bytes to lines, bounded: the same decoder at both ends.

/// One item of a byte stream. Refused input is an item too, never an error that ends the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its newline, and without a leading byte order mark or trailing CRs. Never blank.
    Complete(&'a [u8]),
    /// The bytes after the last newline at the end of the stream. Whole or cut: the JSON in it tells.
    Unterminated(&'a [u8]),
    /// A line over the limit, skipped without being buffered. Ends at its newline, or at the end of the stream.
    Oversize {
        /// Its length in bytes.
        bytes: u64,
        /// Its first [`crate::limits::OVERSIZE_KEPT_BYTES`].
        head: &'a [u8],
        /// Its last [`crate::limits::OVERSIZE_KEPT_BYTES`], not overlapping the head.
        tail: &'a [u8],
    },
}

/// Splits a stream at the byte 0x0A. Holds at most the limit plus one read.
///
/// Fill it with [`LineDecoder::space`] and [`LineDecoder::commit`] (no copy) or [`LineDecoder::push`], then take
/// lines until `None`. At the end of the stream call [`LineDecoder::finish`].
#[derive(Debug)]
pub struct LineDecoder {
    _private: (),
}

impl LineDecoder {
    /// A decoder that gives lines of at most `limit` bytes.
    pub fn new(_limit: usize) -> Self {
        todo!()
    }

    /// Free room of at least `min` bytes, to be read into.
    pub fn space(&mut self, _min: usize) -> &mut [u8] {
        todo!()
    }

    /// Says that `n` bytes of the last [`LineDecoder::space`] were filled.
    pub fn commit(&mut self, _n: usize) {
        todo!()
    }

    /// Appends a copy of `bytes`.
    pub fn push(&mut self, _bytes: &[u8]) {
        todo!()
    }

    /// The next line that is complete, `None` if more bytes are needed.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        todo!()
    }

    /// What is left at the end of the stream: an [`Line::Unterminated`] or [`Line::Oversize`], `None` if nothing is.
    pub fn finish(&mut self) -> Option<Line<'_>> {
        todo!()
    }

    /// Bytes of a line that has begun and not ended, the skipped ones of an oversize line included.
    pub fn pending_bytes(&self) -> u64 {
        todo!()
    }
}
