//! Lines from the host: to inputs of the machine, events of a turn's mailbox, notices and counts.

use super::{Actor, HostReply, Waiter};
use crate::events::{HostNotice, ProtocolErrorKind};
use crate::ledger::Beginning;
use crate::machine::{Input, Lookup, RequestKind};
use crate::tail::{escape, escape_cut};
use crate::turn::{TurnEvent, Wire};
use std::borrow::Cow;
use turnhost_protocol::frame::{Delta, Event, TurnStarted};
use turnhost_protocol::hello::Hello;
use turnhost_protocol::{
    Decoded, FailReason, HostEvent, Line, LineDecoder, RequestId, SessionId, decode_event,
};

impl Actor {
    /// Takes every complete line out of the decoder; at the end of the child also what is left.
    pub(super) fn on_lines(&mut self, finished: bool) {
        let Some(running) = &mut self.running else { return };
        let epoch = running.epoch;
        let span = running.span.clone();
        let _in_span = span.enter();
        let mut decoder =
            std::mem::replace(&mut running.decoder, LineDecoder::new(self.config.max_frame_bytes));
        let mut alive = false;
        while let Some(line) = decoder.next_line() {
            alive |= self.on_line(&line);
        }
        if finished {
            let left = decoder.pending_bytes();
            while let Some(line) = decoder.finish() {
                self.on_last_line(epoch, left, &line);
            }
        } else if let Some(running) = &mut self.running {
            running.decoder = decoder;
        }
        if alive && let Some(running) = &self.running {
            self.input(Input::Alive { epoch: running.epoch });
        }
    }

    /// True if it was a sign of life.
    fn on_line(&mut self, line: &Line<'_>) -> bool {
        if let Some(running) = &mut self.running {
            running.lines_read += 1;
        }
        match line {
            Line::Complete(bytes) | Line::Unterminated(bytes) => match decode_event(bytes) {
                Ok(decoded) => {
                    self.on_decoded(decoded, bytes);
                    true
                }
                Err(error) => self.on_undecodable(bytes, error),
            },
            Line::Oversize { bytes, head, tail } => {
                self.on_oversize(*bytes, head, tail);
                false
            }
        }
    }

    /// A last line counts if it is a complete frame; a cut one is kept for the report.
    fn on_last_line(&mut self, epoch: u64, bytes: u64, line: &Line<'_>) {
        let cut = match line {
            Line::Complete(_) => None,
            Line::Unterminated(bytes) => {
                decode_event(bytes).is_err_and(|error| error.looks_like_frame).then_some(*bytes)
            }
            Line::Oversize { tail, .. } => Some(*tail),
        };
        let Some(end) = cut else {
            self.on_line(line);
            return;
        };
        let shown = &end[end.len().saturating_sub(200)..];
        self.unfinished = Some((epoch, bytes, escape(shown)));
        tracing::debug!(epoch, bytes, "the host ended in the middle of a frame");
    }

    fn on_decoded(&mut self, decoded: Decoded<'_, HostEvent>, line: &[u8]) {
        self.counters.frames_in += 1;
        if decoded.repaired > 0 {
            let detail =
                format!("{} place(s) of a {} frame repaired", decoded.repaired, decoded.frame.type_name());
            self.protocol_error(ProtocolErrorKind::Utf8, detail);
        }
        if decoded.salvaged {
            self.stray_line(line);
        }
        let Some(running) = &self.running else { return };
        if let HostEvent::Hello(hello) = decoded.frame {
            return self.on_hello(hello);
        }
        if running.hello.is_none() {
            let detail = format!("{} came before hello", decoded.frame.type_name());
            return self.protocol_error(ProtocolErrorKind::HelloAgain, detail);
        }
        self.on_frame(decoded.frame, decoded.text);
    }

    fn on_hello(&mut self, hello: Hello) {
        let Some(running) = &mut self.running else { return };
        let epoch = running.epoch;
        let Some(known) = &running.hello else {
            let verdict = self.expectations.judge(&hello);
            running.hello = Some(hello.clone());
            if verdict.is_ok() {
                self.note_hello(&hello);
            }
            return self.input(Input::Hello { epoch, verdict });
        };
        if known.boot_id == hello.boot_id {
            let detail = format!("hello again, of the same run {}", hello.boot_id);
            return self.protocol_error(ProtocolErrorKind::HelloAgain, detail);
        }
        if running.exited {
            return self.late("hello");
        }
        // The child replaced itself on the same pipes: what was open is lost with the old one.
        tracing::warn!(epoch, old = %known.boot_id, new = %hello.boot_id, "the host restarted itself");
        running.hello = Some(hello.clone());
        self.note_hello(&hello);
        self.machine.handle(Self::now(), Input::HostRestarted { epoch }, &mut self.effects);
        if let Some(running) = &mut self.running {
            running.epoch = self.machine.epoch();
            running.started_at = Self::now();
        }
        self.perform();
    }

    fn on_frame(&mut self, frame: HostEvent, text: Cow<'_, str>) {
        match frame {
            HostEvent::Delta(delta) => self.on_delta(delta, text),
            HostEvent::Event(event) => self.on_turn_event(event, text),
            HostEvent::TurnStarted(started) => self.on_turn_started(started, text),
            HostEvent::Heartbeat(_) => self.on_heartbeat(),
            HostEvent::Rpc(rpc) => {
                if let Some(message) = rpc.message {
                    self.subscribers.send(HostNotice::Rpc { message });
                }
            }
            HostEvent::Error(error) => self.on_error_frame(error, text),
            HostEvent::TurnEnd(_)
            | HostEvent::TurnError(_)
            | HostEvent::SessionSeeded(_)
            | HostEvent::InterruptAck(_)
            | HostEvent::ControlAck(_)
            | HostEvent::ControlError(_)
            | HostEvent::ReloadMcpAck(_)
            | HostEvent::RespondAck(_)
            | HostEvent::RespondError(_) => self.on_answer(frame, text),
            // The machine knows what it asked for; the exit that follows is what counts.
            HostEvent::ShutdownAck(_) => {}
            HostEvent::Orphan(_) => tracing::warn!("the host says that it is an orphan"),
            HostEvent::Hello(hello) => self.on_hello(hello),
        }
    }

    fn on_delta(&mut self, delta: Delta, text: Cow<'_, str>) {
        let epoch = self.epoch();
        match self.machine.turn(epoch, &delta.request_id) {
            Lookup::Open(Waiter::Turn { permit, begun, .. }) => {
                if begun.get() {
                    permit.push_delta(delta, text);
                } else {
                    let id = delta.request_id.clone();
                    self.begin(&id);
                    if let Lookup::Open(Waiter::Turn { permit, .. }) = self.machine.turn(epoch, &id) {
                        permit.push_delta(delta, text);
                    }
                }
            }
            Lookup::Late => self.late("delta"),
            Lookup::Open(_) | Lookup::Unknown => self.unknown("delta", &delta.request_id),
        }
    }

    fn on_turn_event(&mut self, event: Event, text: Cow<'_, str>) {
        let epoch = self.epoch();
        let id = event.request_id.clone();
        self.begin(&id);
        match self.machine.turn(epoch, &id) {
            Lookup::Open(Waiter::Turn { permit, .. }) => {
                permit.push(TurnEvent::Event(Wire::new(event, text.into_owned())));
            }
            Lookup::Late => self.late("event"),
            Lookup::Open(_) | Lookup::Unknown => self.unknown("event", &id),
        }
    }

    fn on_turn_started(&mut self, started: TurnStarted, text: Cow<'_, str>) {
        let epoch = self.epoch();
        let id = started.request_id.clone();
        self.begin(&id);
        match self.machine.turn(epoch, &id) {
            Lookup::Open(Waiter::Turn { permit, .. }) if permit.has_started() => {
                self.protocol_error(ProtocolErrorKind::LateFrame, "turn.started again".to_owned());
            }
            Lookup::Open(Waiter::Turn { permit, .. }) => {
                permit.push(TurnEvent::Started(Wire::new(started, text.into_owned())));
                self.input(Input::TurnStarted { epoch, id });
            }
            Lookup::Late => self.late("turn.started"),
            Lookup::Open(_) | Lookup::Unknown => self.unknown("turn.started", &id),
        }
    }

    /// The first frame of a turn tells its owner first if the session's history is gone.
    pub(super) fn begin(&mut self, id: &RequestId) {
        let epoch = self.epoch();
        let Lookup::Open(Waiter::Turn { permit, fresh_history, begun }) = self.machine.turn(epoch, id) else {
            return;
        };
        if begun.replace(true) {
            return;
        }
        let Some(sid) = permit.sid() else { return };
        match self.ledger.turn_begins(sid, epoch, *fresh_history) {
            Beginning::Continued => {}
            Beginning::Lost => permit.push(TurnEvent::SessionLost { sid: sid.clone() }),
        }
    }

    fn on_error_frame(&mut self, error: turnhost_protocol::frame::Error, text: Cow<'_, str>) {
        let epoch = self.epoch();
        let Some(id) = error.request_id.clone() else {
            let detail = format!("the host refused a line: {}", escape_cut(error.message.as_bytes(), 1024));
            return self.protocol_error(ProtocolErrorKind::UnknownRequest, detail);
        };
        if let Some(sid) = self.reseeds.remove(&id) {
            return self.reseed_refused(&sid, &error.message);
        }
        match self.machine.open(epoch, &id) {
            Some((RequestKind::Turn, _)) => {
                let detail =
                    format!("the host refused the turn: {}", escape_cut(error.message.as_bytes(), 1024));
                self.input(Input::TurnFailed { epoch, id, reason: FailReason::Protocol, detail });
            }
            _ => self.on_answer(HostEvent::Error(error), text),
        }
    }

    fn on_answer(&mut self, frame: HostEvent, text: Cow<'_, str>) {
        let epoch = self.epoch();
        let Some(id) = answered(&frame) else { return };
        if matches!(frame, HostEvent::SessionSeeded(_)) && self.reseeds.remove(&id).is_some() {
            return;
        }
        if let Some((kind, _)) = self.machine.open(epoch, &id)
            && !fits(kind, &frame)
        {
            return self.unknown(frame.type_name(), &id);
        }
        if let HostEvent::ControlAck(ack) = &frame
            && let Some(sid) = &ack.sid
            && self.machine.is_late_call(epoch, &id)
        {
            // Nobody waits for it any more, but the next host must get the session as this one has it.
            self.ledger.control_acked(sid, epoch, ack);
        }
        self.begin(&id);
        let reply = HostReply { frame, text: text.into_owned() };
        self.input(Input::Answer { epoch, id, reply });
    }

    pub(super) fn on_heartbeat(&mut self) {
        let epoch = self.epoch();
        self.note_heartbeat();
        self.input(Input::Heartbeat { epoch });
    }

    fn reseed_refused(&mut self, sid: &SessionId, message: &str) {
        tracing::warn!(%sid, message, "the new host refused the session's history");
        self.ledger.forget(sid);
        if self.ledger.lost(sid, self.epoch()) {
            self.subscribers.send(HostNotice::SessionLost { sid: sid.clone() });
        }
    }

    /// The incarnation whose line is being handled.
    pub(super) fn epoch(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.epoch)
    }
}

/// The request that a frame answers.
fn answered(frame: &HostEvent) -> Option<RequestId> {
    match frame {
        HostEvent::TurnEnd(frame) => Some(frame.request_id.clone()),
        HostEvent::TurnError(frame) => Some(frame.request_id.clone()),
        HostEvent::SessionSeeded(frame) => Some(frame.request_id.clone()),
        HostEvent::InterruptAck(frame) => Some(frame.request_id.clone()),
        HostEvent::ControlAck(frame) => Some(frame.request_id.clone()),
        HostEvent::ControlError(frame) => Some(frame.request_id.clone()),
        HostEvent::ReloadMcpAck(frame) => Some(frame.request_id.clone()),
        HostEvent::RespondAck(frame) => Some(frame.request_id.clone()),
        HostEvent::RespondError(frame) => Some(frame.request_id.clone()),
        HostEvent::Error(frame) => frame.request_id.clone(),
        HostEvent::Hello(_)
        | HostEvent::TurnStarted(_)
        | HostEvent::Delta(_)
        | HostEvent::Event(_)
        | HostEvent::ShutdownAck(_)
        | HostEvent::Rpc(_)
        | HostEvent::Heartbeat(_)
        | HostEvent::Orphan(_) => None,
    }
}

/// Whether a frame can be the answer to a request of this kind.
fn fits(kind: &RequestKind, frame: &HostEvent) -> bool {
    match kind {
        RequestKind::Turn => matches!(frame, HostEvent::TurnEnd(_) | HostEvent::TurnError(_)),
        RequestKind::Interrupt { .. } => matches!(frame, HostEvent::InterruptAck(_) | HostEvent::Error(_)),
        RequestKind::Seed => matches!(frame, HostEvent::SessionSeeded(_) | HostEvent::Error(_)),
        RequestKind::Call => matches!(
            frame,
            HostEvent::ControlAck(_)
                | HostEvent::ControlError(_)
                | HostEvent::ReloadMcpAck(_)
                | HostEvent::RespondAck(_)
                | HostEvent::RespondError(_)
                | HostEvent::Error(_)
        ),
    }
}
