//! Frames to lines: stamps them, keeps every one under the limit, and puts each into its lane.

use crate::io::lanes::Lanes;
use crate::turn::context::Room;
use tokio::time::Instant;
use turnhost_protocol::frame::{ControlAck, Delta, Event, Heartbeat, HostEvent, Rpc, TurnEnd, TurnError};
use turnhost_protocol::{RawJson, RequestId, SessionId, encode_turn_event};

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

    /// A piece of the answer, in several frames if it is too large for one. `seq` gives each its number; `mirror`
    /// gets the text of each.
    pub(crate) fn delta(
        &mut self,
        to: &Address,
        text: String,
        mut room: Option<Room>,
        seq: &mut dyn FnMut() -> u64,
        mirror: bool,
    ) {
        let pieces = if text.len() < self.limit / 8 { vec![text] } else { split(&text, self.limit / 8) };
        for text in pieces {
            let rpc = mirror.then(|| text.clone());
            let frame = Delta {
                sid: Some(to.sid.clone()),
                request_id: to.request_id.clone(),
                text,
                emitted_ns: Some(self.now_ns()),
                seq: Some(seq()),
            };
            if self.encode(&frame.into()) {
                self.lanes.data(to.group, &self.line, room.take());
            }
            if let Some(text) = rpc {
                self.rpc(to, "message.delta", &serde_json::json!({ "text": text }));
            }
        }
    }

    /// An event's fields, already checked to be an object with `kind`. False if it was too large and left out.
    pub(crate) fn event(&mut self, to: &Address, seq: u64, body: &RawJson, room: Option<Room>) -> bool {
        if self.closed {
            return true;
        }
        let header = Event {
            sid: Some(to.sid.clone()),
            request_id: to.request_id.clone(),
            seq: Some(seq),
            kind: String::new(),
        };
        self.line.clear();
        encode_turn_event(&header, body, self.now_ns(), &mut self.line);
        let fits = self.line.len() - 1 <= self.limit;
        if fits {
            self.lanes.data(to.group, &self.line, room);
        }
        fits
    }

    /// A front end's event, as an object of JSON-RPC.
    pub(crate) fn rpc(&mut self, to: &Address, kind: &str, payload: &serde_json::Value) {
        let message = serde_json::json!({
            "jsonrpc": "2.0",
            "method": "event",
            "params": { "type": kind, "session_id": to.sid, "payload": payload },
        });
        let message = RawJson::from_value(&message).ok();
        let frame: HostEvent = Rpc { sid: Some(to.sid.clone()), message }.into();
        if self.encode(&frame) {
            self.lanes.data(to.group, &self.line, None);
        }
    }

    /// A control's answer; without its big fields if it would be too large, and then it says so.
    pub(crate) fn control_ack(&mut self, mut frame: ControlAck) {
        let mut omitted = Vec::new();
        while !self.encode(&frame.clone().into()) && !self.closed {
            let name = if frame.messages.take().is_some() {
                "messages"
            } else if frame.result.take().is_some() {
                "result"
            } else if frame.session_info.take().is_some() {
                "session_info"
            } else {
                return;
            };
            omitted.push(name.to_owned());
            frame.omitted = Some(omitted.clone());
        }
        if !self.closed {
            self.lanes.answer(&self.line);
        }
    }

    /// The end of a turn; without its big fields if it would be too large, and then it says so.
    pub(crate) fn turn_end(&mut self, group: u64, mut frame: TurnEnd) {
        let mut omitted = Vec::new();
        while !self.encode(&frame.clone().into()) && !self.closed {
            let name = if frame.messages_appended.take().is_some() {
                "messages_appended"
            } else if frame.final_response.take().is_some() {
                "final_response"
            } else if frame.session_info.take().is_some() {
                "session_info"
            } else {
                return;
            };
            omitted.push(name.to_owned());
            frame.omitted = Some(omitted.clone());
        }
        if !self.closed {
            self.lanes.data(group, &self.line, None);
        }
    }

    /// The failed end of a turn; likewise.
    pub(crate) fn turn_error(&mut self, group: u64, mut frame: TurnError) {
        let mut omitted = Vec::new();
        while !self.encode(&frame.clone().into()) && !self.closed {
            let most = self.limit / 16;
            let name = if frame.messages_appended.take().is_some() {
                "messages_appended"
            } else if frame.stderr_tail.take().is_some() {
                "stderr_tail"
            } else if frame.message.len() > most {
                frame.message.truncate(frame.message.floor_char_boundary(most));
                "message"
            } else {
                return;
            };
            omitted.push(name.to_owned());
            frame.omitted = Some(omitted.clone());
        }
        if !self.closed {
            self.lanes.data(group, &self.line, None);
        }
    }

    /// Encodes into `self.line`. False if the outbox is closed or the frame is over the limit.
    fn encode(&mut self, frame: &HostEvent) -> bool {
        if self.closed {
            return false;
        }
        self.line.clear();
        frame.encode(self.now_ns(), &mut self.line);
        let fits = self.line.len() - 1 <= self.limit;
        if !fits
            && !matches!(frame, HostEvent::TurnEnd(_) | HostEvent::TurnError(_) | HostEvent::ControlAck(_))
        {
            let (kind, bytes) = (frame.type_name(), self.line.len());
            tracing::warn!(kind, bytes, limit = self.limit, "a frame over the limit was left out");
        }
        // One large frame must not keep its memory.
        if self.line.capacity() > 256 * 1024 && self.line.len() < 64 * 1024 {
            self.line.shrink_to(64 * 1024);
        }
        fits
    }
}

/// Pieces of at most `most` bytes, cut between characters. JSON makes a byte six at worst, so a piece of an eighth of
/// the frame limit always fits.
fn split(text: &str, most: usize) -> Vec<String> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let at = rest.floor_char_boundary(most.max(4));
        pieces.push(rest[..at].to_owned());
        rest = &rest[at..];
    }
    pieces
}

#[cfg(test)]
mod tests;
