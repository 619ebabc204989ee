//! What stands around a frame on its line: terminal escape sequences, control characters, other text. Each function
//! looks at every byte a bounded number of times.

/// The line from its first byte that is no escape sequence, control character, byte order mark or white space, and
/// whether more than white space was passed over.
pub(crate) fn strip_front(line: &[u8]) -> (&[u8], bool) {
    let mut rest = line;
    let mut stripped = false;
    loop {
        rest = match rest {
            [b' ' | b'\t' | b'\r' | b'\n', after @ ..] => after,
            [0x1b, after @ ..] => {
                stripped = true;
                skip_escape_sequence(after)
            }
            [0x00..=0x1f | 0x7f, after @ ..] | [0xef, 0xbb, 0xbf, after @ ..] => {
                stripped = true;
                after
            }
            _ => return (rest, stripped),
        };
    }
}

/// The line up to its last brace, if nothing but escape sequences, control characters and white space stands behind it.
pub(crate) fn strip_back(line: &[u8]) -> Option<&[u8]> {
    let line = line.trim_ascii_end();
    if line.ends_with(b"}") {
        return None;
    }
    let (frame, behind) = line.split_at(memchr::memrchr(b'}', line)? + 1);
    strip_front(behind).0.is_empty().then_some(frame)
}

/// What follows an escape sequence, given what follows its ESC (ECMA-48). A brace never belongs to one: it is rather
/// the frame behind a cut sequence.
fn skip_escape_sequence(after_esc: &[u8]) -> &[u8] {
    match after_esc {
        // CSI: parameters, intermediates, one final byte.
        [b'[', body @ ..] => skip_final(skip_while(body, |byte| matches!(byte, 0x20..=0x3f))),
        // OSC, DCS, SOS, PM, APC: any text up to BEL or ST; another ESC breaks it off. Without an end, only the
        // introducer is passed over.
        [b']' | b'P' | b'X' | b'^' | b'_', body @ ..] => match memchr::memchr2(0x07, 0x1b, body) {
            Some(at) => match &body[at..] {
                [0x07, after @ ..] | [0x1b, b'\\', after @ ..] => after,
                broken_off => broken_off,
            },
            None => body,
        },
        other => skip_final(skip_while(other, |byte| matches!(byte, 0x20..=0x2f))),
    }
}

fn skip_final(rest: &[u8]) -> &[u8] {
    match rest {
        [b'{', ..] => rest,
        [0x30..=0x7e, after @ ..] => after,
        _ => rest,
    }
}

fn skip_while(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> &[u8] {
    let len = bytes.iter().position(|byte| !belongs(*byte)).unwrap_or(bytes.len());
    &bytes[len..]
}

const FRAME_START: &[u8] = br#"{"type":"#;

/// The rest of the line from the first place, not the very first byte, where a frame seems to begin.
pub(crate) fn first_frame_start(line: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(line.get(1..)?, FRAME_START)?;
    Some(&line[at + 1..])
}

/// The rest of the line from the last such place.
pub(crate) fn last_frame_start(line: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::rfind(line.get(1..)?, FRAME_START)?;
    Some(&line[at + 1..])
}

#[cfg(test)]
mod tests;
