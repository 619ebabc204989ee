//! A frame to a line, of any size or of at most the frame limit.

use crate::RawJson;
use crate::decode::for_each_field;
use crate::frame::{Delta, Event, HostCommand, HostEvent};
use crate::ids::{RequestId, SessionId};
use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write as _;

impl HostCommand {
    /// Appends the frame as one line with its newline: `{"type":"…",…}`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_tagged(self.type_name(), out, None, |out| self.write_fields(out));
    }
}

impl HostEvent {
    /// Appends the frame as one line with its newline; `host_ns` (nanoseconds since host start) comes last.
    pub fn encode(&self, host_ns: u64, out: &mut Vec<u8>) {
        encode_tagged(self.type_name(), out, Some(host_ns), |out| self.write_fields(out));
    }

    /// [`HostEvent::encode`] for a reader that refuses a line over `limit` bytes (newline not counted, at least
    /// [`crate::limits::MIN_FRAME_BYTES`]): the frame's biggest fields are left out until it fits, a `message` for
    /// people is cut, and `omitted` names them. A delta loses its text this way: give it by [`delta_pieces`].
    pub fn encode_bounded(&self, host_ns: u64, limit: usize, out: &mut Vec<u8>) -> Encoded {
        let at = out.len();
        self.encode(host_ns, out);
        shorten(out, at, limit)
    }
}

/// What a bounded encode appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Encoded {
    /// The whole frame.
    Whole,
    /// The frame without the fields that its `omitted` names.
    Shortened,
    /// Nothing: even its identifiers are over the limit. Not possible with identifiers and a limit as
    /// [`crate::limits`] has them.
    TooLarge,
}

/// Writes `{"type":T` + fields + `,"host_ns":N}` + newline. Serialising our own frames cannot fail.
fn encode_tagged(
    type_name: &str,
    out: &mut Vec<u8>,
    host_ns: Option<u64>,
    write_fields: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(type_name.as_bytes());
    out.push(b'"');
    let at = out.len();
    let written = write_fields(out);
    debug_assert!(written.is_ok() && out.get(at) == Some(&b'{'), "frames serialise to objects");
    // `{"a":1}` behind the type becomes `,"a":1}`, and `{}` becomes `}`.
    if out[at..] == *b"{}" {
        out.remove(at);
    } else {
        out[at] = b',';
    }
    if let Some(ns) = host_ns {
        out.pop();
        let _ = write!(out, r#","host_ns":{ns}}}"#);
    }
    out.push(b'\n');
}

/// Appends an `event` frame: the header, then the fields of `body`, a JSON object with `kind`. The header's own
/// `kind` is not written, the body's is. A field of the body that has a name of the header, or is there twice, is left
/// out: a reader refuses a frame with a known field twice.
pub fn encode_turn_event(header: &Event, body: &RawJson, host_ns: u64, out: &mut Vec<u8>) {
    #[derive(serde::Serialize)]
    struct Header<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        sid: Option<&'a SessionId>,
        request_id: &'a RequestId,
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    }
    let head = Header { sid: header.sid.as_ref(), request_id: &header.request_id, seq: header.seq };
    encode_tagged("event", out, Some(host_ns), |out| {
        serde_json::to_writer(&mut *out, &head)?;
        if !body.as_str().trim_start().starts_with('{') {
            return Ok(());
        }
        out.pop();
        let mut written = HashSet::from(["type", "sid", "request_id", "seq", "host_ns"].map(Cow::Borrowed));
        for_each_field(body.as_str(), |key, value| {
            if written.insert(key.clone()) {
                out.push(b',');
                // Writing a string to a vector cannot fail.
                let _ = serde_json::to_writer(&mut *out, &key);
                out.push(b':');
                out.extend_from_slice(value.as_bytes());
            }
        })?;
        out.push(b'}');
        Ok(())
    });
}

/// [`encode_turn_event`] for a reader that refuses a line over `limit` bytes, as [`HostEvent::encode_bounded`].
pub fn encode_turn_event_bounded(
    header: &Event,
    body: &RawJson,
    host_ns: u64,
    limit: usize,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = out.len();
    encode_turn_event(header, body, host_ns, out);
    shorten(out, at, limit)
}

/// The text in pieces whose `delta` frames have at most `limit` bytes each, whatever `seq` and times they get. An
/// empty text is one empty piece. `limit` is at least [`crate::limits::MIN_FRAME_BYTES`].
///
/// ```
/// use turnhost_protocol::{delta_pieces, limits};
///
/// let text = "x".repeat(20_000);
/// let pieces: Vec<&str> = delta_pieces(None, &"r1".into(), &text, limits::MIN_FRAME_BYTES).collect();
/// assert_eq!(pieces.len(), 2);
/// assert_eq!(pieces.concat(), text);
/// ```
pub fn delta_pieces<'a>(
    sid: Option<&SessionId>,
    request_id: &RequestId,
    text: &'a str,
    limit: usize,
) -> TextPieces<'a> {
    let longest_header = Delta {
        sid: sid.cloned(),
        request_id: request_id.clone(),
        emitted_ns: Some(u64::MAX),
        seq: Some(u64::MAX),
        text: String::new(),
    };
    let mut header = Vec::new();
    HostEvent::Delta(longest_header).encode(u64::MAX, &mut header);
    text_pieces(text, limit.saturating_add(1).saturating_sub(header.len()))
}

/// The text in pieces that take at most `max` bytes each inside a JSON string, cut between characters; a piece has at
/// least one character, however small `max` is. An empty text is one empty piece.
pub fn text_pieces(text: &str, max: usize) -> TextPieces<'_> {
    TextPieces { rest: Some(text), max }
}

/// The pieces of [`text_pieces`].
#[derive(Debug, Clone)]
pub struct TextPieces<'a> {
    rest: Option<&'a str>,
    max: usize,
}

impl<'a> Iterator for TextPieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.take()?;
        if rest.len() <= self.max / LONGEST_ESCAPE {
            return Some(rest);
        }
        let mut room = self.max;
        for (at, char) in rest.char_indices() {
            match room.checked_sub(encoded_len(char)) {
                Some(left) => room = left,
                None => {
                    let (piece, rest) = rest.split_at(at.max(rest.ceil_char_boundary(1)));
                    self.rest = (!rest.is_empty()).then_some(rest);
                    return Some(piece);
                }
            }
        }
        Some(rest)
    }
}

const LONGEST_ESCAPE: usize = r"\u0000".len();

/// Bytes of a character inside a JSON string as this crate writes it.
fn encoded_len(char: char) -> usize {
    match char {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..='\u{1f}' => LONGEST_ESCAPE,
        _ => char.len_utf8(),
    }
}

/// What is left of a `message` that had to be cut, in bytes inside the JSON string.
const CUT_MESSAGE_BYTES: usize = 1024;
/// Names that `omitted` holds at most; a `…` stands for the others.
const OMITTED_NAMES: usize = 16;
/// Bytes of a name in `omitted`: an event's field may be called anything.
const OMITTED_NAME_BYTES: usize = 64;

/// Makes the frame at `out[at..]`, newline included, fit into `limit` bytes.
fn shorten(out: &mut Vec<u8>, at: usize, limit: usize) -> Encoded {
    if out.len() - at <= limit.saturating_add(1) {
        return Encoded::Whole;
    }
    let frame = out.split_off(at);
    let shortened = std::str::from_utf8(&frame).ok().and_then(|frame| Shortened::of(frame, limit));
    match shortened {
        Some(shortened) => {
            shortened.write(out);
            Encoded::Shortened
        }
        None => Encoded::TooLarge,
    }
}

/// A frame without its big fields.
struct Shortened<'a> {
    /// Key and value, as JSON; `None` for one that is left out.
    fields: Vec<Option<(Cow<'a, str>, Cow<'a, str>)>>,
    /// Bytes of `fields`, a colon and a comma for each.
    fields_len: usize,
    omitted: Vec<String>,
    /// The same as JSON.
    omitted_json: String,
}

impl<'a> Shortened<'a> {
    /// Leaves the biggest fields out first; `None` if those that tell whose frame it is are too big themselves.
    fn of(frame: &'a str, limit: usize) -> Option<Self> {
        let mut shortened =
            Self { fields: Vec::new(), fields_len: 0, omitted: Vec::new(), omitted_json: String::new() };
        // Places and sizes of the fields that may go.
        let mut candidates = Vec::new();
        for_each_field(frame, |key, value| {
            if key == "omitted" {
                shortened.omitted = serde_json::from_str(value).unwrap_or_default();
            } else if let Ok(quoted) = serde_json::to_string(&key) {
                let len = quoted.len() + value.len() + 2;
                if !matches!(&*key, "type" | "request_id" | "sid" | "host_ns") {
                    candidates.push((len, shortened.fields.len()));
                }
                shortened.fields_len += len;
                shortened.fields.push(Some((quoted.into(), value.into())));
            }
        })
        .ok()?;
        shortened.omitted_json = json_of(&shortened.omitted);
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        let mut cut_message = None;
        for (_, place) in candidates {
            if shortened.len() <= limit {
                break;
            }
            if shortened.leave_out(place, true) {
                cut_message = Some(place);
            }
        }
        if let Some(place) = cut_message.filter(|_| shortened.len() > limit) {
            shortened.leave_out(place, false);
        }
        (shortened.len() <= limit).then_some(shortened)
    }

    /// Takes a field out, or cuts it if it is a `message` and may be cut; true if it was cut.
    fn leave_out(&mut self, place: usize, may_cut: bool) -> bool {
        let Some((key, value)) = self.fields[place].take() else { return false };
        self.fields_len -= key.len() + value.len() + 2;
        let name: String = serde_json::from_str(&key).unwrap_or_default();
        self.name_omitted(&name[..name.floor_char_boundary(OMITTED_NAME_BYTES)]);
        if !may_cut || name != "message" {
            return false;
        }
        let Some(cut) = cut_message(&value) else { return false };
        self.fields_len += key.len() + cut.len() + 2;
        self.fields[place] = Some((key, cut.into()));
        true
    }

    fn name_omitted(&mut self, name: &str) {
        match self.omitted.len() {
            _ if self.omitted.iter().any(|known| known == name) => return,
            0..OMITTED_NAMES => self.omitted.push(name.to_owned()),
            OMITTED_NAMES => self.omitted.push("…".to_owned()),
            _ => return,
        }
        self.omitted_json = json_of(&self.omitted);
    }

    fn len(&self) -> usize {
        "{".len() + self.fields_len + OMITTED_KEY.len() + self.omitted_json.len() + "}".len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (key, value) in self.fields.iter().flatten() {
            if key == r#""host_ns""# {
                out.extend_from_slice(OMITTED_KEY.as_bytes());
                out.extend_from_slice(self.omitted_json.as_bytes());
                out.push(b',');
            }
            out.extend_from_slice(key.as_bytes());
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
            out.push(b',');
        }
        out.pop();
        out.extend_from_slice(b"}\n");
    }
}

fn json_of(names: &[String]) -> String {
    serde_json::to_string(names).unwrap_or_else(|_| "[]".to_owned())
}

const OMITTED_KEY: &str = r#""omitted":"#;

/// The start of a message; `None` if it is no string.
fn cut_message(quoted: &str) -> Option<String> {
    let message: String = serde_json::from_str(quoted).ok()?;
    let start = text_pieces(&message, CUT_MESSAGE_BYTES - "…".len()).next()?;
    serde_json::to_string(&format!("{start}…")).ok()
}

#[cfg(test)]
mod tests;
