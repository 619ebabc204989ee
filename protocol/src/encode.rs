//! A frame to a line.

use crate::RawJson;
use crate::frame::{Event, HostCommand, HostEvent};
use crate::ids::{RequestId, SessionId};

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
pub fn encode_turn_event(header: &Event, body: &RawJson, host_ns: u64, out: &mut Vec<u8>) {
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
