//! What is accepted, which frame ends what, and what a loss ends with.

use super::incarnation::{Cause, Stage};
use super::types::{Counted, Effect, Ending, Exit, Refused, Request, RequestKind, SubmitPhase};
use super::{Down, Machine, Phase};
use crate::pending::{Ended, Entry, Expiry};
use crate::restart::later;
use std::time::Instant;
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{ErrorKind, FailReason, RequestId, SessionId};

/// What open requests are lost to.
#[derive(Debug)]
pub(super) struct Loss {
    kind: LossKind,
    exit: Option<Exit>,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossKind {
    Crash,
    Hung,
    Shutdown,
    Unavailable,
    CrashLoop,
}

impl LossKind {
    fn reason(self) -> FailReason {
        match self {
            Self::Crash => FailReason::Crash,
            Self::Hung => FailReason::Hung,
            Self::Shutdown => FailReason::Shutdown,
            Self::Unavailable => FailReason::Unavailable,
            Self::CrashLoop => FailReason::CrashLoop,
        }
    }

    fn error(self) -> ErrorKind {
        match self {
            Self::Crash => ErrorKind::Crash,
            Self::Hung => ErrorKind::Hung,
            Self::Shutdown => ErrorKind::Shutdown,
            Self::Unavailable => ErrorKind::Unavailable,
            Self::CrashLoop => ErrorKind::CrashLoop,
        }
    }
}

impl Loss {
    pub(super) fn new(kind: LossKind, detail: impl Into<String>) -> Self {
        Self { kind, exit: None, detail: detail.into() }
    }

    /// The end of a child in `stage`, which was asked to stop or not.
    pub(super) fn child_gone(stage: &Stage, exit: Option<Exit>, asked: bool) -> Self {
        let how = exit.map_or_else(|| "was not started".to_owned(), |exit| exit.to_string());
        let (kind, detail) = match stage {
            Stage::Dying { cause: Cause::Hung { detail }, .. } => {
                (LossKind::Hung, format!("{detail} and was killed"))
            }
            Stage::Dying { cause: Cause::BrokenPipe, .. } => {
                (LossKind::Crash, format!("the host closed its pipes and {how}"))
            }
            Stage::Starting { .. }
            | Stage::Reseeding
            | Stage::Ready
            | Stage::Dying { cause: Cause::NoHello | Cause::Refused(_) | Cause::Settled, .. } => {
                if asked {
                    (LossKind::Shutdown, "the host was stopped".to_owned())
                } else {
                    (LossKind::Crash, format!("the host {how}"))
                }
            }
        };
        Self { kind, exit, detail }
    }

    pub(super) fn host_restarted(stopping: bool) -> Self {
        if stopping {
            return Self::new(LossKind::Shutdown, "the host was stopped");
        }
        Self::new(LossKind::Crash, "the host restarted itself")
    }
}

impl<W, R> Machine<W, R> {
    pub(super) fn take_request(
        &mut self,
        now: Instant,
        request: Request<W>,
        out: &mut Vec<Effect<W, R>>,
    ) -> Result<SubmitPhase, Refused<W>> {
        if self.pending.contains(&request.id) {
            let detail = format!("a request with the id {} is open already", request.id);
            return Err(refuse(request, ErrorKind::DuplicateRequest, detail));
        }
        if let Some((kind, detail)) = self.refusal(&request.kind) {
            return Err(refuse(request, kind, detail));
        }
        if let RequestKind::Interrupt { turn_id } = &request.kind {
            if let Some(turn) = self.unsent_turn(&request.sid, turn_id.as_ref()) {
                return Ok(self.interrupt_unsent(request, turn, out));
            }
            if !self.takes_input() {
                return Ok(self.interrupt_nothing(request, out));
            }
        }
        if self.pending.unsent_count() >= self.policy.max_waiting {
            let detail =
                format!("{} requests wait to be sent already; try again later", self.pending.unsent_count());
            return Err(refuse(request, ErrorKind::Overloaded, detail));
        }
        if self.pending.unsent_bytes() + request.line.len() > self.policy.max_waiting_bytes {
            let detail =
                format!("{} bytes wait to be sent already; try again later", self.pending.unsent_bytes());
            return Err(refuse(request, ErrorKind::Overloaded, detail));
        }
        if self.takes_input() {
            self.pending.insert(now, request, None);
            return Ok(SubmitPhase::Sent);
        }
        self.pending.insert(now, request, Some(later(now, self.policy.unavailable_after)));
        if let Phase::Down(_) = self.phase {
            self.want_child(now, out);
        }
        Ok(SubmitPhase::Waiting)
    }

    /// Why a request of this kind is not taken as things stand.
    fn refusal(&self, kind: &RequestKind) -> Option<(ErrorKind, String)> {
        let interrupt = matches!(kind, RequestKind::Interrupt { .. });
        match &self.phase {
            Phase::Running | Phase::BackingOff { .. } | Phase::Down(Down::Idle) => None,
            Phase::Down(Down::OnPurpose) | Phase::CrashLooped if interrupt => None,
            Phase::Down(Down::OnPurpose) => {
                Some((ErrorKind::Shutdown, "the host was stopped; `start` allows requests again".to_owned()))
            }
            Phase::CrashLooped => Some((ErrorKind::CrashLoop, self.crash_loop_detail())),
            Phase::Stopping(stop) => {
                let helps_to_finish = match kind {
                    RequestKind::Interrupt { .. } | RequestKind::Call => stop.is_draining(),
                    RequestKind::Turn | RequestKind::Seed => false,
                };
                (!helps_to_finish).then(|| (ErrorKind::Shutdown, "the host is being stopped".to_owned()))
            }
        }
    }

    /// The turn that an interrupt ends here because no byte of it was handed over: the one it names, or the oldest
    /// of the session if none of the session's turns was.
    fn unsent_turn(&self, sid: &SessionId, named: Option<&RequestId>) -> Option<RequestId> {
        if let Some(id) = named {
            let entry = self.pending.get(id)?;
            let unsent = entry.kind == RequestKind::Turn && entry.sid == *sid && entry.is_unsent();
            return unsent.then(|| id.clone());
        }
        let turns = self.pending.ids(|entry| entry.kind == RequestKind::Turn && entry.sid == *sid);
        let any_written = turns.iter().any(|id| self.pending.get(id).is_some_and(|entry| !entry.is_unsent()));
        if any_written { None } else { turns.into_iter().next() }
    }

    fn interrupt_unsent(
        &mut self,
        interrupt: Request<W>,
        turn: RequestId,
        out: &mut Vec<Effect<W, R>>,
    ) -> SubmitPhase {
        let entry = self.pending.remove(&turn);
        let ending = Ending::Interrupt { outcome: InterruptOutcome::Applied, turn: Some(turn) };
        self.ended.remember(interrupt.id, Ended::Call);
        out.push(Effect::Resolve { waiter: interrupt.waiter, ending });
        if let Some(entry) = entry {
            self.end(entry, Ending::InterruptedUnsent, out);
        }
        SubmitPhase::Waiting
    }

    fn interrupt_nothing(&mut self, interrupt: Request<W>, out: &mut Vec<Effect<W, R>>) -> SubmitPhase {
        self.ended.remember(interrupt.id, Ended::Call);
        let ending = Ending::Interrupt { outcome: InterruptOutcome::NotFound, turn: None };
        out.push(Effect::Resolve { waiter: interrupt.waiter, ending });
        SubmitPhase::Waiting
    }

    pub(super) fn on_wrote(&mut self, now: Instant, bytes: usize) {
        if bytes == 0 || !self.takes_input() {
            return;
        }
        let mut left = self.outbox.advance(bytes);
        while left > 0 {
            let Some(line) = self.pending.write_next() else {
                debug_assert!(false, "{left} bytes were written that nobody gave");
                break;
            };
            self.outbox.push(line);
            left = self.outbox.advance(left);
        }
        if let Some(child) = &mut self.child {
            child.stalled_since = Some(now);
        }
    }

    pub(super) fn on_turn_started(&mut self, epoch: u64, id: &RequestId, out: &mut Vec<Effect<W, R>>) {
        match self.turn(epoch, id) {
            super::Lookup::Open(_) => self.pending.mark_started(id),
            super::Lookup::Late => out.push(Effect::Count(Counted::LateFrame)),
            super::Lookup::Unknown => out.push(Effect::Count(Counted::UnknownRequest)),
        }
    }

    /// A frame that ends the request `id`. The first one wins; the rest are counted.
    pub(super) fn on_answer(
        &mut self,
        epoch: u64,
        id: RequestId,
        ending: Ending<R>,
        out: &mut Vec<Effect<W, R>>,
    ) {
        if self.open(epoch, &id).is_some()
            && let Some(entry) = self.pending.remove(&id)
        {
            return self.end_by_host(entry, ending, out);
        }
        let counted = match self.ended.get(&id) {
            _ if !self.is_live(epoch) => Counted::LateFrame,
            Some(Ended::TurnByHost) => Counted::DuplicateTerminal,
            Some(Ended::Turn) => Counted::LateFrame,
            Some(Ended::Call) => Counted::LateAck,
            None => Counted::UnknownRequest,
        };
        out.push(Effect::Count(counted));
    }

    pub(super) fn on_turn_failed(
        &mut self,
        epoch: u64,
        id: RequestId,
        reason: FailReason,
        detail: String,
        out: &mut Vec<Effect<W, R>>,
    ) {
        let ending = match self.open(epoch, &id).and_then(|_| self.pending.get(&id)) {
            Some(entry) if entry.kind != RequestKind::Turn => {
                Ending::CallFailed { kind: ErrorKind::ControlFailed, detail }
            }
            entry => Ending::TurnFailed {
                reason,
                turn_started: entry.and_then(Entry::turn_started),
                exit: None,
                detail,
                epoch,
            },
        };
        self.on_answer(epoch, id, ending, out);
    }

    /// Ends every request whose time is up.
    pub(super) fn expire(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        while let Some((entry, expiry)) = self.pending.pop_expired(now) {
            match expiry {
                Expiry::Unavailable => {
                    let waited = self.policy.unavailable_after.as_secs_f64();
                    let mut detail = format!("no host was ready in {waited:.1} s");
                    if let Some(last) = &self.last_failure {
                        detail.push_str("; the last one failed: ");
                        detail.push_str(last);
                    }
                    let loss = Loss::new(LossKind::Unavailable, detail);
                    self.end_lost(entry, &loss, out);
                }
                Expiry::Deadline => {
                    let detail = if entry.is_unsent() {
                        "its time was up before it could be sent"
                    } else {
                        "no answer in time; outcome unknown"
                    };
                    let ending = Ending::CallFailed { kind: ErrorKind::Timeout, detail: detail.to_owned() };
                    self.end(entry, ending, out);
                }
            }
        }
    }

    /// The child that was handed these is gone. An unsent interrupt goes with them: it was meant for what ran there.
    pub(super) fn lose_sent(&mut self, loss: &Loss, out: &mut Vec<Effect<W, R>>) {
        let lost = self
            .pending
            .ids(|entry| !entry.is_unsent() || matches!(entry.kind, RequestKind::Interrupt { .. }));
        self.lose(lost, loss, out);
    }

    /// There will be no child for these.
    pub(super) fn lose_unsent(&mut self, loss: &Loss, out: &mut Vec<Effect<W, R>>) {
        let lost = self.pending.ids(Entry::is_unsent);
        self.lose(lost, loss, out);
    }

    fn lose(&mut self, lost: Vec<RequestId>, loss: &Loss, out: &mut Vec<Effect<W, R>>) {
        for id in lost {
            if let Some(entry) = self.pending.remove(&id) {
                self.end_lost(entry, loss, out);
            }
        }
    }

    fn end_lost(&mut self, entry: Entry<W>, loss: &Loss, out: &mut Vec<Effect<W, R>>) {
        let ending = match entry.kind {
            RequestKind::Turn => Ending::TurnFailed {
                reason: loss.kind.reason(),
                turn_started: entry.turn_started(),
                exit: loss.exit,
                detail: loss.detail.clone(),
                epoch: self.epoch,
            },
            RequestKind::Interrupt { .. } | RequestKind::Call | RequestKind::Seed => {
                Ending::CallFailed { kind: loss.kind.error(), detail: loss.detail.clone() }
            }
        };
        self.end(entry, ending, out);
    }

    fn end_by_host(&mut self, entry: Entry<W>, ending: Ending<R>, out: &mut Vec<Effect<W, R>>) {
        let was = if entry.kind == RequestKind::Turn { Ended::TurnByHost } else { Ended::Call };
        self.ended.remember(entry.id, was);
        out.push(Effect::Resolve { waiter: entry.waiter, ending });
    }

    fn end(&mut self, entry: Entry<W>, ending: Ending<R>, out: &mut Vec<Effect<W, R>>) {
        let was = if entry.kind == RequestKind::Turn { Ended::Turn } else { Ended::Call };
        self.ended.remember(entry.id, was);
        out.push(Effect::Resolve { waiter: entry.waiter, ending });
    }
}

fn refuse<W>(request: Request<W>, kind: ErrorKind, detail: String) -> Refused<W> {
    Refused { waiter: request.waiter, kind, detail }
}
