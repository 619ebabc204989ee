//! Bytes to pieces of text: whole lines if they come whole, never a character cut in two, never more held than
//! [`MAX_PIECE_BYTES`].

/// Longest piece. A line without an end is passed on in pieces of this length, so that it is neither held without bound
/// nor so long that it crowds out the deltas of other turns.
pub(super) const MAX_PIECE_BYTES: usize = 16 * 1024;

/// Splits a stream of bytes. Feed it, then take pieces until there are none.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    held: Vec<u8>,
    /// Where the next piece begins in `held`.
    start: usize,
    /// Up to where `held` was searched for a newline.
    searched: usize,
}

impl Pieces {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.held.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next line with its newline, or the next full piece of a longer one.
    pub(super) fn next(&mut self) -> Option<String> {
        let end = self.start + MAX_PIECE_BYTES;
        let limit = end.min(self.held.len());
        match self.held[self.searched..limit].iter().position(|byte| *byte == b'\n') {
            Some(newline) => Some(self.take(self.searched + newline + 1)),
            None if limit == end => Some(self.take(end - unfinished(&self.held[self.start..end]))),
            None => {
                self.searched = limit;
                None
            }
        }
    }

    /// True if something other than the beginning of a character waits for the rest of its line.
    pub(super) fn holds_text(&self) -> bool {
        let rest = &self.held[self.start..];
        unfinished(rest) < rest.len()
    }

    /// What is held of a line that has not ended; the beginning of a character stays.
    pub(super) fn flush(&mut self) -> Option<String> {
        self.holds_text().then(|| self.take(self.held.len() - unfinished(&self.held[self.start..])))
    }

    /// All that is left.
    pub(super) fn finish(mut self) -> Option<String> {
        (self.start < self.held.len()).then(|| self.take(self.held.len()))
    }

    fn take(&mut self, end: usize) -> String {
        let text = String::from_utf8_lossy(&self.held[self.start..end]).into_owned();
        self.start = end;
        self.searched = end;
        text
    }
}

/// Bytes at the end of `bytes` that may be the beginning of a character: 0 to 3.
fn unfinished(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    (from..bytes.len())
        .find(|start| {
            std::str::from_utf8(&bytes[*start..])
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .map_or(0, |start| bytes.len() - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]]) -> Vec<String> {
        let mut pieces = Pieces::default();
        let mut found = Vec::new();
        for chunk in chunks {
            pieces.feed(chunk);
            found.extend(std::iter::from_fn(|| pieces.next()));
        }
        found.extend(pieces.finish());
        found
    }

    #[test]
    fn lines_keep_their_newline_and_the_last_needs_none() {
        assert_eq!(split(&[b"one\ntwo\r\n\nthree"]), ["one\n", "two\r\n", "\n", "three"]);
        assert_eq!(split(&[b"o", b"ne", b"\ntw", b"o\n"]), ["one\n", "two\n"]);
        assert_eq!(split(&[]), [""; 0]);
    }

    #[test]
    fn a_character_that_comes_in_halves_is_not_broken_by_a_flush() {
        let mut pieces = Pieces::default();
        pieces.feed("wait: \u{20ac}".as_bytes().split_at(8).0);
        assert_eq!(pieces.next(), None);
        assert_eq!(pieces.flush().as_deref(), Some("wait: "));
        assert!(!pieces.holds_text());
        assert_eq!(pieces.flush(), None);
        pieces.feed(b"\xac!");
        assert_eq!(pieces.flush().as_deref(), Some("\u{20ac}!"));
        assert_eq!(pieces.finish(), None);
    }

    #[test]
    fn a_character_that_never_ends_becomes_a_replacement() {
        assert_eq!(split(&[b"a\xe2\x82"]), ["a\u{fffd}"]);
        assert_eq!(split(&[b"a\xe2\x82\n\xff\n"]), ["a\u{fffd}\n", "\u{fffd}\n"]);
    }

    #[test]
    fn a_line_without_end_comes_in_pieces_and_is_never_held_whole() {
        let mut pieces = Pieces::default();
        let chunk = "\u{20ac}".repeat(1000);
        let mut text = String::new();
        for _ in 0..200 {
            pieces.feed(chunk.as_bytes());
            while let Some(piece) = pieces.next() {
                assert!(
                    piece.len() <= MAX_PIECE_BYTES && piece.len() > MAX_PIECE_BYTES - 4,
                    "{}",
                    piece.len()
                );
                text.push_str(&piece);
            }
            assert!(pieces.held.len() < MAX_PIECE_BYTES + chunk.len());
        }
        text.extend(pieces.finish());
        assert_eq!(text.len(), 200 * chunk.len());
        assert!(text.chars().all(|char| char == '\u{20ac}'));
    }

    #[test]
    fn a_line_just_over_the_longest_piece_is_two() {
        let line = [vec![b'x'; MAX_PIECE_BYTES], b"\n".to_vec()].concat();
        assert_eq!(split(&[&line]).iter().map(String::len).collect::<Vec<_>>(), [MAX_PIECE_BYTES, 1]);
        assert_eq!(split(&[&line[1..]]).iter().map(String::len).collect::<Vec<_>>(), [MAX_PIECE_BYTES]);
    }

    proptest! {
        #[test]
        fn any_split_and_any_flush_give_the_text_of_the_whole(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(0xe2), Just(0x82), Just(0xac), Just(0xf0), any::<u8>()], 0..200),
            chunk in 1usize..20,
            flush in any::<bool>(),
        ) {
            let mut pieces = Pieces::default();
            let mut text = String::new();
            for part in bytes.chunks(chunk) {
                pieces.feed(part);
                text.extend(std::iter::from_fn(|| pieces.next()));
                if flush {
                    text.extend(pieces.flush());
                }
            }
            text.extend(pieces.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
