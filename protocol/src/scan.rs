//! The safety scan: one linear pass over a line before it is parsed.

use std::borrow::Cow;

/// What the scan found in a line that may be parsed.
#[derive(Debug)]
pub struct Scanned<'a> {
    /// The line as valid UTF-8, lone surrogate escapes and bad bytes replaced by U+FFFD.
    pub text: Cow<'a, str>,
    /// How many places were repaired.
    pub repaired: u32,
}

/// Why a line must not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanError {
    /// Nested deeper than [`crate::limits::MAX_DEPTH`].
    Depth,
    /// A raw control character inside a string.
    ControlCharacter,
}

/// Scans one line: refuses depth and raw control characters in strings, repairs what a strict reader would refuse.
///
/// # Errors
/// [`ScanError`] names what was refused.
pub fn scan(_line: &[u8]) -> Result<Scanned<'_>, ScanError> {
    todo!()
}
