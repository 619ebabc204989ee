//! A line to a frame, in two steps: first `type`, `request_id` and `sid`, then the struct of that type. So an
//! unknown type, a known type with a bad field and a line that is no JSON are three different errors, and the
//! first two can be answered to the right request.

use crate::frame::{HostCommand, HostEvent};
use crate::ids::{RequestId, SessionId};

/// A frame and how it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded<T> {
    /// The frame.
    pub frame: T,
    /// Its JSON text as it came, repaired: unknown fields included, for whoever forwards it.
    pub text: String,
    /// Places that the safety scan replaced by U+FFFD.
    pub repaired: u32,
    /// True if escape sequences, control characters or other text stood in front of it.
    pub salvaged: bool,
}

/// Why a line is no frame. The words are those of the `protocol_error` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecodeErrorKind {
    /// Nested too deep.
    Depth,
    /// No JSON.
    Json,
    /// JSON, but no object, or an object without a string `type`.
    NotObject,
    /// A known field with a wrong JSON type, or a required one missing.
    BadField,
    /// A known field twice.
    DuplicateKey,
    /// A type that this direction does not have.
    UnknownType,
    /// A terminal frame behind other text on one line: not believed.
    TerminalBehindText,
}

/// A line that is no frame, with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// `type`, if it could be read.
    pub frame_type: Option<String>,
    /// `request_id`, if it could be read.
    pub request_id: Option<RequestId>,
    /// `sid`, if it could be read.
    pub sid: Option<SessionId>,
    /// True if the line begins like JSON (`{` or `[`): a broken frame. False: stray text.
    pub looks_like_frame: bool,
    /// For people: a lowercase fragment.
    pub detail: String,
}

/// Reads a line that came from a front end.
///
/// # Errors
/// [`DecodeError`]; reading goes on after any of them.
pub fn decode_command(_line: &[u8]) -> Result<Decoded<HostCommand>, DecodeError> {
    todo!()
}

/// Reads a line that came from a host.
///
/// # Errors
/// [`DecodeError`]; reading goes on after any of them.
pub fn decode_event(_line: &[u8]) -> Result<Decoded<HostEvent>, DecodeError> {
    todo!()
}

/// True if the line begins like a heartbeat: a sign of life even if the frame is refused.
pub fn is_heartbeat_prefix(line: &[u8]) -> bool {
    line.starts_with(br#"{"type":"hb""#)
}

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
}

/// Writes `{"type":T` + fields + `,"host_ns":N}` + newline. Serialising our own frames cannot fail.
fn encode_tagged(
    type_name: &str,
    out: &mut Vec<u8>,
    host_ns: Option<u64>,
    write_fields: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) {
    use std::io::Write as _;
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
/// `kind` is not written, the body's is.
pub fn encode_turn_event(
    header: &crate::frame::Event,
    body: &crate::RawJson,
    host_ns: u64,
    out: &mut Vec<u8>,
) {
    #[derive(serde::Serialize)]
    struct Header<'a> {
        sid: Option<&'a SessionId>,
        request_id: &'a RequestId,
        seq: Option<u64>,
    }
    let head = Header { sid: header.sid.as_ref(), request_id: &header.request_id, seq: header.seq };
    encode_tagged("event", out, Some(host_ns), |out| {
        serde_json::to_writer(&mut *out, &head)?;
        let fields = body.as_str().trim();
        let inner = fields.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).map_or("", str::trim);
        if !inner.is_empty() {
            out.pop();
            out.push(b',');
            out.extend_from_slice(inner.as_bytes());
            out.push(b'}');
        }
        Ok(())
    });
}
