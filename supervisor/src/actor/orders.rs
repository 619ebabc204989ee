//! What handles ask.

use super::{Actor, Waiter};
use crate::command::{Command, OutFrame};
use crate::error::CallError;
use crate::machine::{Input, Refused, Request, RequestKind, SubmitPhase};
use std::cell::Cell;
use std::time::Duration;
use turnhost_protocol::ErrorKind;

impl Actor {
    pub(super) fn on_order(&mut self, order: Command) {
        match order {
            Command::Start { reply } => {
                self.starts.push(reply);
                self.input(Input::Start);
            }
            Command::Status { reply } => {
                let _ = reply.send(Ok(self.status()));
            }
            Command::Submit { frame, permit, fresh_history, reply } => {
                let waiter = Waiter::Turn { permit, fresh_history, begun: Cell::new(false) };
                let accepted = self.request(frame, RequestKind::Turn, None, waiter);
                let answer = match accepted {
                    Ok(phase) => Ok(phase),
                    Err(refused) => {
                        let error = refusal(&refused);
                        if let Waiter::Turn { permit, .. } = refused.waiter {
                            permit.revoke();
                        }
                        Err(error)
                    }
                };
                // The answer is there before the turn's first event can be.
                let _ = reply.send(answer);
                self.perform();
            }
            Command::Seed { frame, record, timeout, reply } => {
                let accepted =
                    self.request(frame, RequestKind::Seed, Some(timeout), Waiter::Seed { record, reply });
                self.answer_refusal(accepted);
            }
            Command::Call { frame, timeout, reply } => {
                let waiter = Waiter::Call { sid: frame.sid.clone(), reply };
                let accepted = self.request(frame, RequestKind::Call, Some(timeout), waiter);
                self.answer_refusal(accepted);
            }
            Command::Interrupt { frame, turn_id, timeout, reply } => {
                let kind = RequestKind::Interrupt { turn_id };
                let accepted = self.request(frame, kind, Some(timeout), Waiter::Interrupt { reply });
                self.answer_refusal(accepted);
            }
            Command::Reset { reply } => {
                self.input(Input::Reset);
                let _ = reply.send(Ok(self.machine.state()));
            }
            Command::Stop { plan, reply } => {
                self.stops.push(reply);
                self.input(Input::Stop(plan));
            }
            Command::Restart { plan, reply } => {
                // Whoever waited for an earlier start has been answered when the stop was told.
                self.input(Input::Stop(plan));
                self.starts.push(reply);
                self.input(Input::Start);
            }
            Command::Await { marker, limit, reply } => {
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(limit, marker).await;
                    let _ = reply.send(Ok(()));
                });
            }
        }
    }

    /// What the machine wants done about it is not done yet.
    fn request(
        &mut self,
        frame: OutFrame,
        kind: RequestKind,
        timeout: Option<Duration>,
        waiter: Waiter,
    ) -> Result<SubmitPhase, Refused<Waiter>> {
        let now = Self::now();
        let deadline = timeout.and_then(|timeout| now.checked_add(timeout));
        let request = Request { id: frame.id, sid: frame.sid, kind, line: frame.line, deadline, waiter };
        self.machine.request(now, request, &mut self.effects)
    }

    fn answer_refusal(&mut self, accepted: Result<SubmitPhase, Refused<Waiter>>) {
        if let Err(refused) = accepted {
            let error = refusal(&refused);
            match refused.waiter {
                Waiter::Turn { permit, .. } => permit.revoke(),
                Waiter::Call { reply, .. } => drop(reply.send(Err(error))),
                Waiter::Seed { reply, .. } => drop(reply.send(Err(error))),
                Waiter::Interrupt { reply } => drop(reply.send(Err(error))),
            }
        }
        self.perform();
    }
}

fn refusal(refused: &Refused<Waiter>) -> CallError {
    debug_assert!(refused.kind != ErrorKind::Timeout, "a refusal is no ending");
    CallError::new(refused.kind, refused.detail.clone())
}
