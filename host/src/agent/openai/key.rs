//! The API key: sent to the server, and never shown to anybody else.

use reqwest::header::{HeaderValue, InvalidHeaderValue};
use std::collections::HashSet;

/// Longest excerpt of a server's words, in characters.
const EXCERPT_CHARS: usize = 300;
/// A shorter key is a placeholder for a server that asks for none (`none`, `EMPTY`), and taking it out would garble
/// what people read.
const SHORTEST_SECRET: usize = 8;
const REDACTED: &str = "[the API key]";

/// The key of the environment, if there is one.
#[derive(Clone, Default)]
pub(super) struct ApiKey(Option<String>);

impl ApiKey {
    /// White space around it is not part of it: keys are read from files with a newline at their end.
    pub(super) fn new(key: Option<String>) -> Self {
        Self(key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()))
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The value of `Authorization`.
    pub(super) fn header(&self) -> Result<Option<HeaderValue>, InvalidHeaderValue> {
        let Some(key) = &self.0 else { return Ok(None) };
        let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The text without the key, nor any eight characters of it: servers quote its beginning or its end.
    pub(super) fn redact(&self, text: &str) -> String {
        let Some(key) = self.0.as_deref().filter(|key| key.len() >= SHORTEST_SECRET && key.is_ascii()) else {
            return text.to_owned();
        };
        let (key, lower) = (key.to_ascii_lowercase(), text.to_ascii_lowercase());
        let parts: HashSet<&[u8]> = key.as_bytes().windows(SHORTEST_SECRET).collect();
        let (mut shown, mut rest) = (String::new(), 0);
        let mut secret = lower
            .as_bytes()
            .windows(SHORTEST_SECRET)
            .enumerate()
            .filter_map(|(at, window)| parts.contains(window).then_some(at))
            .peekable();
        while let Some(start) = secret.next() {
            let mut end = start + SHORTEST_SECRET;
            while let Some(next) = secret.next_if(|next| *next <= end) {
                end = next + SHORTEST_SECRET;
            }
            // The parts are ASCII, so both are between characters.
            shown.push_str(&text[rest..start]);
            shown.push_str(REDACTED);
            rest = end;
        }
        shown + &text[rest..]
    }

    /// What a server said, as one bounded line without the key.
    pub(super) fn excerpt(&self, text: &str) -> String {
        let line = self.redact(&text.replace(char::is_control, " "));
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(EXCERPT_CHARS) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_set() { "ApiKey(set)" } else { "ApiKey(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    const KEY: &str = "sk-test-0123456789";

    fn key() -> ApiKey {
        ApiKey::new(Some(format!(" {KEY}\n")))
    }

    #[test]
    fn a_key_is_in_the_header_and_in_no_debug_output() {
        let header = key().header().unwrap().unwrap();
        assert_eq!(header.to_str().unwrap(), format!("Bearer {KEY}"));
        for shown in [format!("{header:?}"), format!("{:?}", key())] {
            assert!(!shown.contains("0123"), "{shown}");
        }
        assert!(ApiKey::new(Some("two\nlines".to_owned())).header().is_err());
        for none in [None, Some(String::new()), Some(" \n".to_owned())] {
            let none = ApiKey::new(none);
            assert!(!none.is_set());
            assert_eq!(none.header().unwrap(), None);
        }
    }

    #[test]
    fn a_key_that_a_server_echoes_is_taken_out_wherever_it_stands() {
        let table = [
            (format!("bad key {KEY}, {KEY}"), "bad key [the API key], [the API key]"),
            (format!("cut {}", &KEY[..12]), "cut [the API key]"),
            (format!("cut {}", &KEY[..8]), "cut [the API key]"),
            (format!("a word as {}", &KEY[..7]), "a word as sk-test"),
            (format!("the key {}... is wrong", &KEY[..12]), "the key [the API key]... is wrong"),
            (format!("the key ****{} is wrong", &KEY[6..]), "the key ****[the API key] is wrong"),
            (format!("\u{20ac}{}\u{20ac}", KEY.to_uppercase()), "\u{20ac}[the API key]\u{20ac}"),
            ("nothing of it".to_owned(), "nothing of it"),
        ];
        for (said, shown) in table {
            assert_eq!(key().redact(&said), shown, "{said}");
        }
        assert_eq!(ApiKey::new(Some("none".to_owned())).redact("none of it"), "none of it");
    }

    #[test]
    fn an_excerpt_is_one_bounded_line() {
        assert_eq!(key().excerpt("  a\r\n\tb\u{1b}[31m  c\0d "), "a b [31m c d");
        let (start, end) = KEY.split_at(9);
        assert_eq!(key().excerpt(&format!("bad {start}\u{1}{end}")), "bad [the API key] [the API key]");
        let long = format!("{}{KEY}", "\u{20ac}".repeat(290));
        let shown = key().excerpt(&long);
        assert_eq!(shown.chars().count(), 301);
        assert!(!shown.contains("sk-"), "{shown}");
    }
}
