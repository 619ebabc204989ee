//! Text that comes in pieces which may be cut anywhere, inside a character too.

use serde::Deserializer;
use serde::de::{Deserialize, Error, SeqAccess, Visitor};

/// Puts together what was cut: a character whose bytes come in two pieces, and a pair of surrogates of which each
/// piece has one. What can never become a character becomes U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    held: Vec<u8>,
}

const REPLACEMENT: char = '\u{fffd}';

impl Joiner {
    /// The text that is complete with this piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> String {
        if self.held.is_empty()
            && let Ok(text) = std::str::from_utf8(piece)
        {
            return text.to_owned();
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        let mut text = String::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while let Err(error) = std::str::from_utf8(rest) {
            let (good, bad) = rest.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(good));
            let skip = match (surrogate(bad), error.error_len()) {
                (Some(high @ 0xd800..=0xdbff), _) => match surrogate(&bad[3..]) {
                    Some(low @ 0xdc00..=0xdfff) => {
                        let point = 0x10000 + (high - 0xd800) * 0x400 + (low - 0xdc00);
                        text.push(char::from_u32(point).unwrap_or(REPLACEMENT));
                        6
                    }
                    None if bad.len() == 3 => {
                        self.held = bad.to_vec();
                        return text;
                    }
                    Some(_) | None => {
                        text.push(REPLACEMENT);
                        3
                    }
                },
                (Some(_), _) => {
                    text.push(REPLACEMENT);
                    3
                }
                (None, None) => {
                    self.held = bad.to_vec();
                    return text;
                }
                (None, Some(length)) => {
                    text.push(REPLACEMENT);
                    length
                }
            };
            rest = &bad[skip..];
        }
        text.push_str(&String::from_utf8_lossy(rest));
        text
    }

    /// The end: what was held can no longer be completed.
    pub(super) fn finish(&mut self) -> Option<String> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then(|| REPLACEMENT.to_string())
    }
}

/// The surrogate that `bytes` begins with, in the three bytes that UTF-8 would have for it.
fn surrogate(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [0xed, second @ 0xa0..=0xbf, third @ 0x80..=0xbf, ..] => {
            Some(0xd000 | (u32::from(*second) & 0x3f) << 6 | u32::from(*third) & 0x3f)
        }
        _ => None,
    }
}

/// A JSON string as its bytes, which need not be UTF-8: a lone surrogate escape stands in it as three bytes. A list of
/// parts, as some servers give it, is the text of its parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Text(pub(super) Vec<u8>);

impl Text {
    /// For what is no part of a longer text.
    pub(super) fn to_text(&self) -> String {
        let mut joiner = Joiner::default();
        let text = joiner.push(&self.0);
        text + &joiner.finish().unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As bytes: only so serde_json leaves in what a `String` refuses.
        deserializer.deserialize_bytes(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text, or a list of parts with text")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text, E> {
        Ok(Text(bytes.to_vec()))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Text, E> {
        Ok(Text(bytes))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.as_bytes().to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Text, A::Error> {
        #[derive(serde::Deserialize)]
        struct Part {
            #[serde(default)]
            text: Option<Text>,
        }
        let mut whole = Vec::new();
        while let Some(part) = parts.next_element::<Part>()? {
            whole.extend(part.text.unwrap_or_default().0);
        }
        Ok(Text(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn joined(pieces: &[&[u8]]) -> String {
        let mut joiner = Joiner::default();
        let mut text: String = pieces.iter().map(|piece| joiner.push(piece)).collect();
        text.extend(joiner.finish());
        text
    }

    /// A JSON string's bytes.
    fn bytes(json: &str) -> Vec<u8> {
        serde_json::from_str::<Text>(json).unwrap().0
    }

    #[test]
    fn a_character_in_pieces_is_whole_again() {
        assert_eq!(joined(&[b"a\xe2", b"\x82", b"\xacb"]), "a\u{20ac}b");
        assert_eq!(joined(&[b"\xf0\x9f", b"\x98\x80"]), "\u{1f600}");
        assert_eq!(joined(&[b"a\xe2\x82", b"b"]), "a\u{fffd}b");
        assert_eq!(joined(&[b"a\xe2\x82"]), "a\u{fffd}");
        assert_eq!(joined(&[b"\xff", b"a"]), "\u{fffd}a");
    }

    #[test]
    fn a_pair_of_surrogates_in_two_pieces_is_one_character() {
        let (high, low) = (bytes(r#""\ud83d""#), bytes(r#""\ude00""#));
        assert_eq!(joined(&[&high, &low]), "\u{1f600}");
        assert_eq!(joined(&[b"a", &[&high[..], &low[..]].concat(), b"b"]), "a\u{1f600}b");
        assert_eq!(joined(&[&high, b"a"]), "\u{fffd}a");
        assert_eq!(joined(&[&low, b"a"]), "\u{fffd}a");
        assert_eq!(joined(&[&high, &high, &low]), "\u{fffd}\u{1f600}");
        assert_eq!(joined(&[&high]), "\u{fffd}");
        assert_eq!(bytes(r#""\ud83d\ude00\u00e9""#), "\u{1f600}\u{e9}".as_bytes());
    }

    #[test]
    fn text_is_held_back_only_while_a_character_is_open() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.push(b"ab\xe2"), "ab");
        assert_eq!(joiner.push(b"\x82\xaccd"), "\u{20ac}cd");
        assert_eq!(joiner.finish(), None);
    }

    #[test]
    fn a_list_of_parts_is_the_text_of_its_parts() {
        let json =
            r#"[{"type":"text","text":"a"},{"type":"image_url","image_url":{}},{"type":"text","text":"b"}]"#;
        assert_eq!(bytes(json), b"ab");
        assert_eq!(bytes("[]"), b"");
        assert!(serde_json::from_str::<Text>("7").is_err());
        assert!(serde_json::from_str::<Text>(r#"{"text":"a"}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_split_of_a_text_gives_the_text(text in "[a\u{e9}\u{20ac}\u{1f600}]{0,20}", size in 1usize..5) {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(joined(&pieces), text);
        }

        #[test]
        fn any_split_of_any_bytes_gives_what_the_whole_gives(
            bytes in proptest::collection::vec(prop_oneof![Just(0xe2), Just(0x82), Just(0xac), Just(b'a'), any::<u8>()], 0..40),
            size in 1usize..5,
        ) {
            // A surrogate comes from one escape, so it is never cut itself.
            prop_assume!(!bytes.contains(&0xed));
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(joined(&pieces), String::from_utf8_lossy(&bytes));
        }
    }
}
