//! Who a line belongs to, when the line cannot be parsed: too long, too deep, cut or broken.

use crate::ids::{RequestId, SessionId};
use crate::salvage::strip_front;
use crate::scan::scan;

/// What a cheap search found at the top level of a line that is no frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeekedIds {
    /// `type`.
    pub frame_type: Option<String>,
    /// `request_id`.
    pub request_id: Option<RequestId>,
    /// `sid`.
    pub sid: Option<SessionId>,
}

/// Looks for `type`, `request_id` and `sid` in the first and last bytes of a line, as [`crate::Line::Oversize`] keeps
/// them; a whole line is a head with an empty tail.
///
/// Only strings of the outermost object count, and of two the first. In the tail, which may begin anywhere, a field
/// counts if exactly one bracket, the frame's own, is open between it and the end. The pass is linear.
pub fn peek_ids(head: &[u8], tail: &[u8]) -> PeekedIds {
    let mut ids = PeekedIds::default();
    let (head, _) = strip_front(head);
    if let Some(body) = head.strip_prefix(b"{") {
        for_each_field(body, |key, value| {
            ids.take(key, value);
            !ids.complete()
        });
    }
    if !ids.complete() {
        ids.take_from_tail(tail);
    }
    ids
}

impl PeekedIds {
    fn complete(&self) -> bool {
        self.frame_type.is_some() && self.request_id.is_some() && self.sid.is_some()
    }

    fn take(&mut self, key: &[u8], value: &[u8]) {
        match key {
            br#""type""# if self.frame_type.is_none() => self.frame_type = read_string(value),
            br#""request_id""# if self.request_id.is_none() => {
                self.request_id = read_string(value).map(RequestId::from);
            }
            br#""sid""# if self.sid.is_none() => self.sid = read_string(value).map(SessionId::from),
            _ => {}
        }
    }

    fn take_from_tail(&mut self, tail: &[u8]) {
        for key in [&br#""type""#[..], br#""request_id""#, br#""sid""#] {
            // A quote inside a string has a backslash before it, so this is the beginning of a real string.
            let places = memchr::memmem::find_iter(tail, key)
                .filter(|at| at.checked_sub(1).and_then(|before| tail.get(before)) != Some(&b'\\'));
            for at in places {
                let mut first = None;
                let closed = for_each_field(&tail[at..], |key, value| {
                    first.get_or_insert((key, value));
                    true
                });
                if let Some((found, value)) = first
                    && closed == Closed::AtEnd
                    && found == key
                {
                    self.take(found, value);
                    break;
                }
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Closed {
    /// The object ended, and the bytes with it.
    AtEnd,
    /// More bytes follow, or the object goes on, or the walk was stopped.
    No,
}

/// Walks the fields of an object from behind its brace and calls `field` with key and value, quotes included, of each
/// whose value is a string, as long as it answers true.
fn for_each_field<'a>(body: &'a [u8], mut field: impl FnMut(&'a [u8], &'a [u8]) -> bool) -> Closed {
    let mut depth = 1_usize;
    let mut last_string = None;
    let mut key = None;
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        match byte {
            b'"' => {
                let Some(end) = string_end(body, at) else { return Closed::No };
                let string = &body[at..end];
                at = end;
                if depth == 1 {
                    match key.take() {
                        Some(key) => {
                            if !field(key, string) {
                                return Closed::No;
                            }
                        }
                        None => last_string = Some(string),
                    }
                }
                continue;
            }
            // Inside a value both are always `None`.
            b':' => key = last_string.take(),
            b',' => key = None,
            b'{' | b'[' => {
                (key, last_string) = (None, None);
                depth += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    let rest = &body[at + 1..];
                    return if rest.trim_ascii().is_empty() { Closed::AtEnd } else { Closed::No };
                }
            }
            _ => {}
        }
        at += 1;
    }
    Closed::No
}

/// The place behind the closing quote of the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut from = at + 1;
    loop {
        let stop = from + memchr::memchr2(b'"', b'\\', bytes.get(from..)?)?;
        if bytes[stop] == b'"' {
            return Some(stop + 1);
        }
        from = stop + 2;
    }
}

fn read_string(quoted: &[u8]) -> Option<String> {
    serde_json::from_str(&scan(quoted).ok()?.text).ok()
}

#[cfg(test)]
mod tests;
