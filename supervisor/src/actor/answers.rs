//! Endings, to those who wait for them.

use super::{Actor, HostReply, Waiter};
use crate::command::FrameFields;
use crate::endings::{Failure, interrupted_unsent};
use crate::error::CallError;
use crate::events::{HostNotice, ProtocolErrorKind};
use crate::handle::{InterruptResult, StopSummary};
use crate::machine::{Ending, Exit, StopReport};
use crate::mailbox::Permit;
use crate::status::LastExit;
use crate::turn::{TurnOutcome, Wire};
use turnhost_protocol::frame::{SessionSeeded, TurnError};
use turnhost_protocol::{ErrorKind, FailReason, HostEvent, RawJson, SessionId};

impl Actor {
    pub(super) fn resolve(&mut self, waiter: Waiter, ending: Ending<HostReply>) {
        match waiter {
            Waiter::Turn { permit, .. } => self.end_turn(permit, ending),
            Waiter::Call { sid, reply } => {
                let _ = reply.send(self.call_answer(&sid, ending));
            }
            Waiter::Seed { record, reply } => {
                let answer = seed_answer(ending);
                if let (Ok(_), Some(sid)) = (&answer, record.sid()) {
                    let epoch = self.machine.epoch();
                    self.ledger.seeded(&sid, epoch, record);
                }
                let _ = reply.send(answer);
            }
            Waiter::Interrupt { reply } => {
                let _ = reply.send(interrupt_answer(ending));
            }
        }
    }

    fn end_turn(&mut self, permit: Permit, ending: Ending<HostReply>) {
        let (Some(sid), Some(request_id)) = (permit.sid().cloned(), permit.request_id().cloned()) else {
            return;
        };
        let epoch = self.machine.epoch();
        let outcome = match ending {
            Ending::Reply(HostReply { frame: HostEvent::TurnEnd(end), text }) => {
                self.ledger.turn_ended(&sid, epoch, end.messages_appended.as_deref());
                TurnOutcome::ended(end, text)
            }
            Ending::Reply(HostReply { frame: HostEvent::TurnError(error), text }) => {
                self.note_host_error(&sid, epoch, &error);
                if error.reason.is_some() {
                    TurnOutcome::failed(error, text)
                } else {
                    with_reason(error, text)
                }
            }
            Ending::InterruptedUnsent => interrupted_unsent(&sid, &request_id),
            Ending::TurnFailed { reason, turn_started, exit, detail, epoch: failed_in } => {
                if matches!(reason, FailReason::Protocol | FailReason::FrameTooLarge) {
                    // It ended in the host, which knows what it added; nobody else ever will.
                    self.ledger.turn_ended(&sid, epoch, None);
                }
                let message = self.failure_message(reason, exit, failed_in, detail);
                let failure = Failure {
                    sid: &sid,
                    request_id: &request_id,
                    reason,
                    message,
                    turn_started,
                    exit,
                    stderr_tail: self.stderr.lines(),
                    delivered: permit.delivered(),
                    incarnation: (failed_in > 0).then_some(failed_in),
                };
                if let Some(message) = failure.rpc_error() {
                    self.subscribers.send(HostNotice::Rpc { message });
                }
                failure.into_outcome()
            }
            // What the machine never gives a turn. Losing the permit would end it as dropped; this says more.
            Ending::Reply(_) | Ending::Interrupt { .. } | Ending::CallFailed { .. } => {
                debug_assert!(false, "no ending of a turn");
                Failure {
                    sid: &sid,
                    request_id: &request_id,
                    reason: FailReason::Protocol,
                    message: "the turn got the answer of another request; report this as a bug".to_owned(),
                    turn_started: None,
                    exit: None,
                    stderr_tail: Vec::new(),
                    delivered: permit.delivered(),
                    incarnation: Some(epoch),
                }
                .into_outcome()
            }
        };
        match outcome.fail_reason() {
            None => self.counters.turns_ended += 1,
            Some(reason) => *self.counters.turns_failed.entry(reason).or_insert(0) += 1,
        }
        permit.finish(outcome);
    }

    fn note_host_error(&mut self, sid: &SessionId, epoch: u64, error: &TurnError) {
        if error.reason.is_none() {
            self.protocol_error(ProtocolErrorKind::BadField, "turn.error without a reason".to_owned());
        }
        match error.fail_reason() {
            // Refused: nothing changed.
            FailReason::Busy | FailReason::BadRequest => {}
            FailReason::Exception
            | FailReason::AgentExit
            | FailReason::Shutdown
            | FailReason::Crash
            | FailReason::Hung
            | FailReason::Protocol
            | FailReason::FrameTooLarge
            | FailReason::Unavailable
            | FailReason::CrashLoop
            | FailReason::Dropped => {
                self.ledger.turn_ended(sid, epoch, error.messages_appended.as_deref());
            }
        }
    }

    /// The words of a `turn.error`, with what the crash left behind.
    fn failure_message(
        &self,
        reason: FailReason,
        exit: Option<Exit>,
        failed_in: u64,
        detail: String,
    ) -> String {
        let mut message = detail;
        if reason == FailReason::CrashLoop
            && let Some(exit) = self.last_exit
        {
            message.push_str(&format!("; the last one {exit}"));
            if let Some(line) = self.stderr.last() {
                message.push_str(&format!(", its stderr ends: {line}"));
            }
        }
        if reason == FailReason::Hung
            && let Some(diagnosis) = self.running.as_ref().and_then(|running| running.diagnosis)
        {
            message.push_str(&format!("; {diagnosis}"));
        }
        if reason != FailReason::Crash {
            return message;
        }
        if let Some((epoch, bytes, tail)) = &self.unfinished
            && *epoch == failed_in
        {
            let how = match exit {
                Some(Exit::Code(code)) => format!("exited {code}"),
                // Which signal was said already.
                Some(Exit::Signal(_) | Exit::Unknown) | None => "ended".to_owned(),
            };
            message.push_str(&format!("; it {how} with {bytes} bytes of an unfinished frame: {tail}"));
        }
        let count = self.running.as_ref().map_or(0, |running| running.stray_lines);
        if count > 0
            && let Some(line) = self.stray.last()
        {
            let line: String = line.chars().take(200).collect();
            message.push_str(&format!("; stray lines on its stdout: {count}, the last: {line}"));
        }
        message
    }

    fn call_answer(
        &mut self,
        sid: &SessionId,
        ending: Ending<HostReply>,
    ) -> Result<Wire<HostEvent>, CallError> {
        let HostReply { frame, text } = reply_of(ending)?;
        match &frame {
            HostEvent::ControlAck(ack) => {
                let epoch = self.machine.epoch();
                self.ledger.control_acked(sid, epoch, ack);
                Ok(Wire::new(frame, text))
            }
            HostEvent::ReloadMcpAck(_) | HostEvent::RespondAck(_) => Ok(Wire::new(frame, text)),
            HostEvent::ControlError(error) => Err(refused_by_host(&error.message)),
            HostEvent::RespondError(error) => Err(refused_by_host(&error.message)),
            HostEvent::Error(error) => Err(refused_by_host(&error.message)),
            other => Err(wrong_answer(other)),
        }
    }

    pub(super) fn answer_stops(&mut self, report: &StopReport) {
        let exit = report.exit.map(LastExit::of);
        let summary = StopSummary {
            exit_code: exit.as_ref().and_then(|exit| exit.code),
            signal: exit.as_ref().and_then(|exit| exit.signal),
            steps: report.steps.clone(),
            survivors: report.survivors.clone(),
        };
        for reply in std::mem::take(&mut self.stops) {
            let _ = reply.send(Ok(summary.clone()));
        }
    }
}

fn reply_of(ending: Ending<HostReply>) -> Result<HostReply, CallError> {
    match ending {
        Ending::Reply(reply) => Ok(reply),
        Ending::CallFailed { kind, detail } => Err(CallError::new(kind, detail)),
        Ending::InterruptedUnsent | Ending::Interrupt { .. } | Ending::TurnFailed { .. } => {
            debug_assert!(false, "no ending of a call");
            Err(CallError::new(
                ErrorKind::ControlFailed,
                "another request's ending came; report this as a bug",
            ))
        }
    }
}

fn seed_answer(ending: Ending<HostReply>) -> Result<Wire<SessionSeeded>, CallError> {
    let HostReply { frame, text } = reply_of(ending)?;
    match frame {
        HostEvent::SessionSeeded(seeded) => Ok(Wire::new(seeded, text)),
        HostEvent::Error(error) => Err(refused_by_host(&error.message)),
        other => Err(wrong_answer(&other)),
    }
}

fn interrupt_answer(ending: Ending<HostReply>) -> Result<InterruptResult, CallError> {
    if let Ending::Interrupt { outcome, turn } = ending {
        return Ok(InterruptResult { outcome, turn });
    }
    match reply_of(ending)?.frame {
        HostEvent::InterruptAck(ack) => {
            Ok(InterruptResult { outcome: ack.interrupt_outcome(), turn: ack.turn })
        }
        HostEvent::Error(error) => Err(refused_by_host(&error.message)),
        other => Err(wrong_answer(&other)),
    }
}

/// The host's words say which kind: two of them are fixed by the protocol.
fn refused_by_host(message: &str) -> CallError {
    let kind = match message {
        "session busy" => ErrorKind::Busy,
        "session not found" => ErrorKind::SessionNotFound,
        _ => ErrorKind::ControlFailed,
    };
    CallError::new(kind, message)
}

fn wrong_answer(frame: &HostEvent) -> CallError {
    let text = format!("the host answered with {}, which does not answer this", frame.type_name());
    CallError::new(ErrorKind::ControlFailed, text)
}

/// A host's `turn.error` without a reason reads `exception` for everyone, those who see only its text included.
fn with_reason(mut error: TurnError, text: String) -> TurnOutcome {
    let reason = FailReason::Exception.as_str();
    error.reason = Some(reason.to_owned());
    let named = serde_json::from_str::<FrameFields>(&text).ok().and_then(|mut fields| {
        fields.insert("reason".to_owned(), RawJson::from_value(reason).ok()?);
        serde_json::to_string(&fields).ok()
    });
    TurnOutcome::failed(error, named.unwrap_or(text))
}
