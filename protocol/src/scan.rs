//! The safety scan: one linear pass over a line before it is parsed.

use crate::limits::MAX_DEPTH;
use std::borrow::Cow;

/// What the scan found in a line that may be parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct Scanned<'a> {
    /// The line as valid UTF-8, lone surrogate escapes and bad bytes replaced by U+FFFD.
    pub text: Cow<'a, str>,
    /// How many places were repaired.
    pub repaired: u32,
}

/// Why a line must not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH}")]
    Depth,
    /// A raw control character inside a string.
    #[error("raw control character inside a string")]
    ControlCharacter,
}

/// Scans one line: refuses depth and raw control characters in strings, repairs what a strict reader would refuse.
///
/// It neither recurses nor allocates unless something is repaired. It is no parser: that the brackets match and that
/// the tokens are JSON is left to whoever parses the text.
///
/// # Errors
/// [`ScanError`] names what was refused.
pub fn scan(line: &[u8]) -> Result<Scanned<'_>, ScanError> {
    match std::str::from_utf8(line) {
        Ok(text) => scan_text(text),
        Err(_) => {
            let (text, bad) = replace_bad_bytes(line);
            let scanned = scan_text(&text)?;
            let repaired = scanned.repaired.saturating_add(bad);
            Ok(Scanned { text: Cow::Owned(scanned.text.into_owned()), repaired })
        }
    }
}

/// The bytes as text, each maximal run that is no UTF-8 replaced by one U+FFFD; and how many there were.
pub(crate) fn replace_bad_bytes(bytes: &[u8]) -> (String, u32) {
    let mut text = String::with_capacity(bytes.len() + 8);
    let mut bad = 0_u32;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            bad = bad.saturating_add(1);
        }
    }
    (text, bad)
}

fn scan_text(text: &str) -> Result<Scanned<'_>, ScanError> {
    let bytes = text.as_bytes();
    let mut repairs = Repairs { text, out: String::new(), copied: 0, count: 0 };
    let mut depth = 0_u32;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = scan_string(bytes, at, &mut repairs)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(ScanError::Depth);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(repairs.finish())
}

/// Walks a string from behind its opening quote; gives the place behind the closing one, or the end of the line.
fn scan_string(bytes: &[u8], mut at: usize, repairs: &mut Repairs<'_>) -> Result<usize, ScanError> {
    loop {
        at = skip_plain(bytes, at);
        let Some(&byte) = bytes.get(at) else { return Ok(at) };
        match byte {
            b'"' => return Ok(at + 1),
            b'\\' => match bytes.get(at + 1) {
                Some(b'"' | b'\\') => at += 2,
                Some(b'u') => at = scan_unicode_escape(bytes, at, repairs),
                // Whatever follows is looked at on its own: a control character may stand there.
                Some(_) | None => at += 1,
            },
            // Nothing else ends what is plain.
            _ => return Err(ScanError::ControlCharacter),
        }
    }
}

/// Walks the escape `\uXXXX` at `at`, or a pair of them; a half of a pair alone is repaired.
fn scan_unicode_escape(bytes: &[u8], at: usize, repairs: &mut Repairs<'_>) -> usize {
    match unicode_escape(bytes, at) {
        Some(0xd800..=0xdbff) => {
            let second = at + ESCAPE_LEN;
            match unicode_escape(bytes, second) {
                Some(0xdc00..=0xdfff) => return second + ESCAPE_LEN,
                Some(_) | None => repairs.replace(at, second),
            }
        }
        Some(0xdc00..=0xdfff) => repairs.replace(at, at + ESCAPE_LEN),
        Some(_) => {}
        // Malformed: left for the parser to refuse.
        None => return at + 2,
    }
    at + ESCAPE_LEN
}

const ESCAPE_LEN: usize = r"\uXXXX".len();

/// The code unit of the escape at `at`, if a well-formed one stands there.
fn unicode_escape(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + ESCAPE_LEN)?;
    let hex = escape.strip_prefix(br"\u")?;
    hex.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}

/// The first place from `at` on that holds a quote, a backslash or a control character; eight bytes at a time.
fn skip_plain(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_ne_bytes(*word);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        // The classic "has a zero byte" and "has a byte less than n" tests: exact as to whether there is one.
        let special = (word.wrapping_sub(ONES * 0x20) & !word)
            | (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash);
        if special & HIGHS != 0 {
            break;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0x00..=0x1f)) {
        at += 1;
    }
    at
}

/// The copy of the text in which places are replaced; empty as long as none is.
struct Repairs<'a> {
    text: &'a str,
    out: String,
    copied: usize,
    count: u32,
}

impl<'a> Repairs<'a> {
    fn replace(&mut self, from: usize, to: usize) {
        self.out.push_str(&self.text[self.copied..from]);
        self.out.push(char::REPLACEMENT_CHARACTER);
        self.copied = to;
        self.count = self.count.saturating_add(1);
    }

    fn finish(mut self) -> Scanned<'a> {
        if self.count == 0 {
            return Scanned { text: Cow::Borrowed(self.text), repaired: 0 };
        }
        self.out.push_str(&self.text[self.copied..]);
        Scanned { text: Cow::Owned(self.out), repaired: self.count }
    }
}

#[cfg(test)]
mod tests;
