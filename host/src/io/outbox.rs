//! Frames to lines: stamps them, keeps every one under the limit, and puts each into its lane.

use crate::io::lanes::Lanes;
use crate::turn::context::Room;
use tokio::time::Instant;
use turnhost_protocol::frame::{Delta, Event, EventBody, Heartbeat, HostEvent, Rpc};
use turnhost_protocol::{
    Encoded, RawJson, RequestId, SessionId, delta_pieces, encode_turn_event, encode_turn_event_bounded,
    text_pieces,
};

/// Where the frames of one turn go.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) sid: SessionId,
    pub(crate) request_id: RequestId,
    /// The session's number: see [`Lanes::data`].
    pub(crate) group: u64,
}

/// The only way to a line on stdout.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) lanes: Lanes,
    started: Instant,
    limit: usize,
    line: Vec<u8>,
    closed: bool,
}

impl Outbox {
    /// An outbox whose frames have at most `limit` bytes, the newline not counted.
    pub(crate) fn new(limit: usize) -> Self {
        Self { lanes: Lanes::default(), started: Instant::now(), limit, line: Vec::new(), closed: false }
    }

    /// Nanoseconds since the host started.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes no frame any more: what was queued last is the last one.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// An answer that overtakes the data of other requests.
    pub(crate) fn answer(&mut self, frame: impl Into<HostEvent>) {
        if self.encode(&frame.into()) {
            self.lanes.answer(&self.line);
        }
    }

    /// A frame behind everything of its group.
    pub(crate) fn send(&mut self, group: u64, frame: impl Into<HostEvent>) {
        if self.encode(&frame.into()) {
            self.lanes.data(group, &self.line, None);
        }
    }

    /// The heartbeat.
    pub(crate) fn heartbeat(&mut self, frame: Heartbeat) {
        if self.encode(&frame.into()) {
            self.lanes.heartbeat(self.line.clone());
        }
    }

    /// Bytes as they are, past every check.
    pub(crate) fn raw(&mut self, group: u64, bytes: &[u8], room: Room) {
        if !self.closed {
            self.lanes.data(group, bytes, Some(room));
        }
    }

    /// A piece of the answer, in several frames if it is too large for one. `seq` gives each its number; `mirror`:
    /// front ends get it too.
    pub(crate) fn delta(
        &mut self,
        to: &Address,
        text: &str,
        room: &Room,
        seq: &mut dyn FnMut() -> u64,
        mirror: bool,
    ) {
        for piece in delta_pieces(Some(&to.sid), &to.request_id, text, self.limit) {
            let frame = Delta {
                sid: Some(to.sid.clone()),
                request_id: to.request_id.clone(),
                text: piece.to_owned(),
                emitted_ns: Some(self.now_ns()),
                seq: Some(seq()),
            };
            if self.encode(&frame.into()) {
                self.lanes.data(to.group, &self.line, Some(room.clone()));
            }
            if mirror {
                self.mirror_delta(to, piece, room);
            }
        }
    }

    /// The session is in an `rpc` frame twice and the turn not at all, so what fits a delta need not fit here.
    fn mirror_delta(&mut self, to: &Address, text: &str, room: &Room) {
        let payload = |text: &str| serde_json::json!({ "text": text });
        let pieces = if self.encode_rpc(to, "message.delta", &payload(text)) {
            text_pieces(text, usize::MAX)
        } else {
            self.encode_rpc(to, "message.delta", &payload(""));
            text_pieces(text, self.limit.saturating_sub(self.line.len() + LONGEST_NS))
        };
        for piece in pieces {
            if self.encode_rpc(to, "message.delta", &payload(piece)) {
                self.lanes.data(to.group, &self.line, Some(room.clone()));
            }
        }
    }

    /// An event's fields, already checked to be an object with `kind`.
    pub(crate) fn event(&mut self, to: &Address, seq: u64, body: &RawJson, room: Option<Room>) {
        if self.closed {
            return;
        }
        self.line.clear();
        let encoded =
            encode_turn_event_bounded(&header(to, seq), body, self.now_ns(), self.limit, &mut self.line);
        if self.is_frame(encoded, "event") {
            self.lanes.data(to.group, &self.line, room);
        }
    }

    /// True if an event with these fields leaves whole, whatever its number and time; `mirror`: its `rpc` too.
    pub(crate) fn fits_event(&mut self, to: &Address, body: &EventBody, mirror: Option<&str>) -> bool {
        let Ok(raw) = RawJson::from_value(body) else { return false };
        self.line.clear();
        encode_turn_event(&header(to, u64::MAX), &raw, u64::MAX, &mut self.line);
        let fits = self.line.len() <= self.limit.saturating_add(1);
        fits && mirror.is_none_or(|kind| {
            raw.read().is_ok_and(|payload| {
                self.encode_rpc(to, kind, &payload) && self.line.len() + LONGEST_NS <= self.limit
            })
        })
    }

    /// A front end's event, as an object of JSON-RPC. One that is too large loses the big fields of its payload, and
    /// the payload's `omitted` names them: a front end that waits for the end of a message must get it.
    pub(crate) fn rpc(&mut self, to: &Address, kind: &str, mut payload: serde_json::Value) {
        if self.closed {
            return;
        }
        let mut fits = self.encode_rpc(to, kind, &payload);
        if !fits && let Some(fields) = payload.as_object_mut() {
            leave_out_big(fields);
            fits = self.encode_rpc(to, kind, &payload);
        }
        if fits {
            self.lanes.data(to.group, &self.line, None);
        } else {
            tracing::warn!(kind, sid = %to.sid, limit = self.limit, "an rpc event over the frame limit was left out");
        }
    }

    /// Encodes into `self.line`, whole. True if that is a frame to be sent.
    fn encode_rpc(&mut self, to: &Address, kind: &str, payload: &serde_json::Value) -> bool {
        let message = serde_json::json!({
            "jsonrpc": "2.0",
            "method": "event",
            "params": { "type": kind, "session_id": to.sid, "payload": payload },
        });
        let frame: HostEvent =
            Rpc { sid: Some(to.sid.clone()), message: RawJson::from_value(&message).ok() }.into();
        self.line.clear();
        frame.encode(self.now_ns(), &mut self.line);
        !self.closed && self.line.len() <= self.limit.saturating_add(1)
    }

    /// Encodes into `self.line`, without its big fields if it would be too large. False if the outbox is closed.
    fn encode(&mut self, frame: &HostEvent) -> bool {
        if self.closed {
            return false;
        }
        self.line.clear();
        let encoded = frame.encode_bounded(self.now_ns(), self.limit, &mut self.line);
        self.is_frame(encoded, frame.type_name())
    }

    fn is_frame(&mut self, encoded: Encoded, kind: &str) -> bool {
        let is_frame = match encoded {
            Encoded::Whole => true,
            Encoded::Shortened => {
                tracing::debug!(
                    kind,
                    limit = self.limit,
                    "a frame over the limit leaves without its big fields"
                );
                true
            }
            Encoded::TooLarge => {
                tracing::warn!(
                    kind,
                    limit = self.limit,
                    "a frame whose identifiers alone are over the limit was left out"
                );
                false
            }
        };
        // One large frame must not keep its memory.
        if self.line.capacity() > 256 * 1024 && self.line.len() < 64 * 1024 {
            self.line.shrink_to(64 * 1024);
        }
        is_frame
    }
}

fn header(to: &Address, seq: u64) -> Event {
    Event {
        sid: Some(to.sid.clone()),
        request_id: to.request_id.clone(),
        seq: Some(seq),
        kind: String::new(),
    }
}

/// Bytes by which a later `host_ns` may be longer than one of now.
const LONGEST_NS: usize = 20;
/// Bytes of a field that a front end's event keeps when it is too large as a whole.
const SMALL_FIELD_BYTES: usize = 256;

fn leave_out_big(fields: &mut serde_json::Map<String, serde_json::Value>) {
    let mut omitted = Vec::new();
    fields.retain(|name, value| {
        let small = name.len() + value.to_string().len() <= SMALL_FIELD_BYTES;
        if !small && name.len() <= SMALL_FIELD_BYTES {
            omitted.push(serde_json::Value::from(name.clone()));
        }
        small
    });
    fields.insert("omitted".to_owned(), omitted.into());
}

#[cfg(test)]
mod tests;
