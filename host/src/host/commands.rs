//! Lines of stdin: read, told apart, answered.

use super::Host;
use crate::session::Session;
use crate::session::compress::Why;
use crate::session::gate::Refusal;
use crate::stop::Cause;
use tokio::time::Instant;
use turnhost_protocol::frame::{Error, HostCommand, Interrupt, InterruptAck, SessionSeed, SessionSeeded};
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{Line, RequestId, decode_command, peek_ids};

/// Shutdown frames that get their acknowledgement at the end; one is enough for any parent.
const MAX_SHUTDOWNS: usize = 64;

impl Host {
    pub(super) fn on_line(&mut self, now: Instant, line: Line<'_>) {
        match line {
            Line::Complete(bytes) | Line::Unterminated(bytes) => match decode_command(bytes) {
                Ok(decoded) => self.on_command(now, decoded.frame),
                Err(error) => self.refuse(error.request_id, error.detail),
            },
            Line::Oversize { bytes, head, tail } => {
                let limit = self.options.max_frame_bytes;
                let message = format!("frame too large: {bytes} bytes, at most {limit} are read");
                self.refuse(peek_ids(head, tail).request_id, message);
            }
        }
    }

    fn on_command(&mut self, now: Instant, command: HostCommand) {
        match command {
            HostCommand::SessionSeed(frame) => self.seed(frame),
            HostCommand::TurnStart(frame) => self.start_turn(frame),
            HostCommand::Interrupt(frame) => self.interrupt(now, &frame),
            HostCommand::Control(frame) => self.control(now, frame),
            HostCommand::ReloadMcp(frame) => self.reload_mcp(frame),
            HostCommand::Respond(frame) => self.respond(frame),
            HostCommand::Shutdown(frame) => {
                if self.shutdowns.len() == MAX_SHUTDOWNS {
                    return self.refuse(frame.request_id, Refusal::Closing.message());
                }
                self.shutdowns.push(frame.request_id);
                self.stop_for(now, Cause::ShutdownFrame);
            }
        }
    }

    /// Answers a line that was refused; no turn ends by it.
    fn refuse(&mut self, request_id: Option<RequestId>, message: impl Into<String>) {
        self.out.send(0, Error { request_id, message: message.into() });
    }

    fn seed(&mut self, frame: SessionSeed) {
        let request_id = frame.request_id.clone();
        let Some(sid) = frame.sid.clone().filter(|sid| !sid.is_empty()) else {
            return self.refuse(request_id, "sid required");
        };
        if self.stop.is_stopping() {
            return self.refuse(request_id, Refusal::Closing.message());
        }
        if self.sessions.get(&sid).is_some_and(|known| !known.gate.is_idle()) {
            return self.refuse(request_id, Refusal::Busy.message());
        }
        let number = self.number();
        let session = Session::seeded(sid.clone(), number, frame, &self.options.cwd);
        let answer = SessionSeeded {
            sid: Some(sid.clone()),
            request_id: request_id.unwrap_or_default(),
            history_version: Some(session.history.version()),
            message_count: Some(session.history.message_count()),
        };
        self.sessions.insert(sid, session);
        self.out.send(number, answer);
    }

    fn interrupt(&mut self, now: Instant, frame: &Interrupt) {
        if let Some(compression) = self.compression_to_stop(frame) {
            self.out.answer(InterruptAck {
                sid: frame.sid.clone(),
                request_id: frame.request_id.clone().unwrap_or_default(),
                applied: true,
                applied_ns: Some(self.out.now_ns()),
                outcome: Some(InterruptOutcome::Applied),
                turn: None,
            });
            return self.stop_compression(now, compression, Why::Interrupted);
        }
        let session = frame.sid.as_ref().and_then(|sid| self.sessions.get_mut(sid));
        let mut to_stop = None;
        let (outcome, turn) = match session {
            None => (InterruptOutcome::NotFound, None),
            Some(session) => {
                let running = session.gate.turn();
                let name = running.and_then(|id| self.turns.get(id)).map(|turn| turn.request_id.clone());
                let wanted = frame.turn_id.as_ref().filter(|wanted| !wanted.is_empty());
                let outcome = match (wanted, &name) {
                    (None, None) => InterruptOutcome::NotFound,
                    (None, Some(_)) => InterruptOutcome::Applied,
                    (Some(wanted), Some(name)) if wanted == name => InterruptOutcome::Applied,
                    (Some(wanted), _) if session.history.has_ended(wanted) => InterruptOutcome::AlreadyEnded,
                    (Some(_), Some(_)) => InterruptOutcome::Superseded,
                    (Some(_), None) => InterruptOutcome::NotFound,
                };
                if outcome == InterruptOutcome::Applied {
                    to_stop = session.gate.interrupt();
                }
                (outcome, name)
            }
        };
        // The answer is queued before the flag is set, so it stands in front of whatever the turn does about it.
        self.out.answer(InterruptAck {
            sid: frame.sid.clone(),
            request_id: frame.request_id.clone().unwrap_or_default(),
            applied: outcome == InterruptOutcome::Applied,
            applied_ns: Some(self.out.now_ns()),
            outcome: Some(outcome),
            turn,
        });
        if let Some(turn) = to_stop {
            self.interrupt_turn(now, turn);
        }
    }
}

impl Refusal {
    /// The words of the answer.
    pub(super) fn message(self) -> &'static str {
        match self {
            Refusal::Busy => "session busy",
            Refusal::Closing => "the host is shutting down",
            Refusal::TurnPath => "use turn.start or interrupt",
        }
    }
}
