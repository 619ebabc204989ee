//! When a child is spawned, accepted and killed, and what its end means.

use super::incarnation::{Cause, Incarnation, Judgement, KILL_PATIENCE, Stage};
use super::requests::{Loss, LossKind};
use super::types::{Effect, Exit, StartFault};
use super::{Down, Machine, Phase, Step};
use crate::restart::{Decision, later};
use std::time::Instant;
use turnhost_protocol::ErrorKind;

impl<W, R> Machine<W, R> {
    pub(super) fn on_start(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        match &mut self.phase {
            Phase::Down(_) => {
                self.start_wanted = true;
                self.want_child(now, out);
            }
            Phase::Running => {
                self.start_wanted = true;
                if self.child.as_ref().is_some_and(|child| child.stage == Stage::Ready) {
                    self.answer_start(Ok(self.epoch), out);
                }
            }
            Phase::BackingOff { .. } => self.start_wanted = true,
            Phase::CrashLooped => {
                let fault = StartFault::new(ErrorKind::CrashLoop, self.crash_loop_detail());
                out.push(Effect::Started(Err(fault)));
            }
            Phase::Stopping(stop) => {
                stop.restart = true;
                self.start_wanted = true;
            }
        }
    }

    /// Lifts a crash loop; anywhere else there is nothing to lift.
    pub(super) fn on_reset(&mut self, out: &mut Vec<Effect<W, R>>) {
        match self.phase {
            Phase::CrashLooped => {
                self.budget.reset();
                self.enter(Phase::Down(Down::Idle), out);
            }
            Phase::Down(_) | Phase::Running | Phase::BackingOff { .. } | Phase::Stopping(_) => {}
        }
    }

    /// A child is wanted now: spawns it, or waits until the last one and its tree are gone.
    pub(super) fn want_child(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        self.phase = Phase::BackingOff { until: now, failed: false };
        self.spawn_if_due(now, out);
        self.publish(out);
    }

    fn spawn_if_due(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        let Phase::BackingOff { failed, .. } = self.phase else { return };
        if self.child.is_some() || self.next_start_at().is_none_or(|at| now < at) {
            return;
        }
        self.sweep_until = None;
        self.epoch += 1;
        self.restarts += u64::from(failed);
        self.child = Some(Incarnation::new(now, &self.policy));
        self.enter(Phase::Running, out);
        out.push(Effect::Spawn { epoch: self.epoch });
    }

    pub(super) fn next_start_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::BackingOff { until, .. } => Some(self.sweep_until.map_or(until, |gate| gate.max(until))),
            Phase::Down(_) | Phase::Running | Phase::CrashLooped | Phase::Stopping(_) => None,
        }
    }

    pub(super) fn on_spawn_failed(
        &mut self,
        now: Instant,
        fault: StartFault,
        permanent: bool,
        out: &mut Vec<Effect<W, R>>,
    ) {
        let Some(child) = &self.child else { return };
        match &child.stage {
            Stage::Starting { .. } => {}
            // It was killed while it was being spawned.
            Stage::Dying { .. } => return self.child_gone(now, Gone::NeverWas, out),
            Stage::Reseeding | Stage::Ready => {
                debug_assert!(false, "a child that said hello was spawned");
                return;
            }
        }
        match self.phase {
            Phase::Running => {
                self.child = None;
                if permanent {
                    self.start_failed_for_good(fault, out);
                } else {
                    self.start_fails(fault, out);
                    self.failed(now, out);
                }
            }
            Phase::Down(_) | Phase::BackingOff { .. } | Phase::CrashLooped | Phase::Stopping(_) => {
                self.child_gone(now, Gone::NeverWas, out);
            }
        }
    }

    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        verdict: Result<(), StartFault>,
        out: &mut Vec<Effect<W, R>>,
    ) {
        let Phase::Running = self.phase else { return };
        let epoch = self.epoch;
        let Some(child) = self.child.as_mut() else { return };
        match child.stage {
            Stage::Starting { .. } => {}
            Stage::Reseeding | Stage::Ready | Stage::Dying { .. } => return,
        }
        match verdict {
            Ok(()) => {
                child.stage = Stage::Reseeding;
                child.last_alive = now;
                child.registered = true;
                out.push(Effect::Register { epoch });
                out.push(Effect::Reseed { epoch });
            }
            Err(fault) => self.kill_child(now, Cause::Refused(fault), out),
        }
    }

    /// The seeds go first, then what has waited; only now the host is ready.
    pub(super) fn on_reseeded(&mut self, now: Instant, lines: Vec<Vec<u8>>, out: &mut Vec<Effect<W, R>>) {
        let Phase::Running = self.phase else { return };
        let Some(child) = self.child.as_mut().filter(|child| child.stage == Stage::Reseeding) else { return };
        child.stage = Stage::Ready;
        for line in lines {
            self.outbox.push(line);
        }
        self.pending.stop_waiting();
        self.budget.on_ready(now);
        self.last_failure = None;
        self.publish(out);
        self.answer_start(Ok(self.epoch), out);
    }

    /// The child is another one now, on the same pipes: the old one crashed, but nothing is spawned.
    pub(super) fn on_host_restarted(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        match self.child.as_ref().map(|child| &child.stage) {
            Some(Stage::Reseeding | Stage::Ready) => {}
            Some(Stage::Starting { .. } | Stage::Dying { .. }) | None => return,
        }
        let stopping = matches!(&self.phase, Phase::Stopping(stop) if !stop.is_draining());
        self.lose_sent(&Loss::host_restarted(stopping), out);
        self.outbox.clear_to_line_end();
        if let Phase::Stopping(stop) = &self.phase {
            self.epoch += 1;
            match stop.step {
                Step::Drain { .. } => self.ask(now, out),
                // The old one may have taken the question with it.
                Step::Ask { .. } => self.push_shutdown(),
                Step::Term { .. } | Step::Kill { .. } | Step::Sweep { .. } => {}
            }
            return;
        }
        self.pending.wait_until(later(now, self.policy.unavailable_after));
        match self.budget.on_failure(now, self.jitter.uniform()) {
            Decision::RetryAt(_) => {
                self.epoch += 1;
                self.restarts += 1;
                self.child = Some(Incarnation::restarted(now, &self.policy));
                self.publish(out);
                out.push(Effect::Register { epoch: self.epoch });
                out.push(Effect::Reseed { epoch: self.epoch });
            }
            Decision::GiveUp => {
                self.last_failure = Some("the host restarted itself".to_owned());
                self.kill_child(now, Cause::Settled, out);
                self.crash_loop(out);
            }
        }
    }

    pub(super) fn on_write_failed(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        self.outbox.clear();
        match (&mut self.phase, self.child.as_mut()) {
            (Phase::Running, Some(child)) => {
                if child.break_pipe(now) {
                    let detail = "the host closed its pipes".to_owned();
                    self.start_fails(StartFault::new(ErrorKind::Crash, detail), out);
                    self.pending.wait_until(later(now, self.policy.unavailable_after));
                }
            }
            (Phase::Stopping(stop), Some(_)) if stop.is_draining() => {
                self.kill_child(now, Cause::BrokenPipe, out);
            }
            // A host that was asked to stop closes its stdin.
            (Phase::Stopping(_), _)
            | (Phase::Running, None)
            | (Phase::Down(_) | Phase::BackingOff { .. } | Phase::CrashLooped, _) => {}
        }
    }

    /// Kills the child for `cause`; what that means for everybody follows when it is gone.
    pub(super) fn kill_child(&mut self, now: Instant, cause: Cause, out: &mut Vec<Effect<W, R>>) {
        let Some(child) = self.child.as_mut() else { return };
        child.stage = Stage::Dying { cause, killed: true, deadline: later(now, KILL_PATIENCE) };
        out.push(Effect::Kill { epoch: self.epoch });
        self.pending.wait_until(later(now, self.policy.unavailable_after));
        if let Phase::Stopping(stop) = &mut self.phase {
            stop.kill(now);
        }
        self.publish(out);
    }

    pub(super) fn on_exited(&mut self, now: Instant, exit: Exit, out: &mut Vec<Effect<W, R>>) {
        self.child_gone(now, Gone::Exited(exit), out);
    }

    /// The child is gone: what was handed to it is lost, what was not waits for the next one.
    pub(super) fn child_gone(&mut self, now: Instant, gone: Gone, out: &mut Vec<Effect<W, R>>) {
        let Some(child) = self.child.take() else { return };
        if child.registered && gone != Gone::Abandoned {
            out.push(Effect::Unregister { epoch: self.epoch });
        }
        self.outbox.clear();
        if gone != Gone::NeverWas {
            self.sweep_until = Some(later(now, self.policy.sweep_timeout));
        }
        let asked = matches!(&self.phase, Phase::Stopping(stop) if !stop.is_draining());
        self.lose_sent(&Loss::child_gone(&child.stage, gone.exit(), asked), out);
        match self.phase {
            Phase::Running => self.after_end_of(child.stage, now, gone, out),
            Phase::Stopping(_) => self.stop_goes_on_without_child(now, gone, out),
            // What follows was decided before it was gone.
            Phase::Down(_) | Phase::CrashLooped => {}
            Phase::BackingOff { .. } => self.spawn_if_due(now, out),
        }
    }

    fn after_end_of(&mut self, stage: Stage, now: Instant, gone: Gone, out: &mut Vec<Effect<W, R>>) {
        self.pending.wait_until(later(now, self.policy.unavailable_after));
        let words = gone.words();
        let (kind, detail) = match stage {
            Stage::Dying { cause: Cause::Refused(fault), .. } => {
                return self.start_failed_for_good(fault, out);
            }
            // Starts were answered when it had to die; who came later waits for the next child.
            Stage::Dying { .. } => return self.failed(now, out),
            Stage::Starting { .. } => {
                (ErrorKind::ExitedBeforeHello, format!("the host {words} before it said hello"))
            }
            Stage::Reseeding => (ErrorKind::Crash, format!("the host {words} while it was being seeded")),
            Stage::Ready => (ErrorKind::Crash, format!("the host {words}")),
        };
        self.start_fails(StartFault::new(kind, detail), out);
        self.failed(now, out);
    }

    /// Answers the starts that wait, and remembers what went wrong for those who ask later.
    fn start_fails(&mut self, fault: StartFault, out: &mut Vec<Effect<W, R>>) {
        self.last_failure = Some(format!("{}: {}", fault.kind, fault.detail));
        self.answer_start(Err(fault), out);
    }

    /// A failure that counts: the next child comes after the back-off, or none does.
    fn failed(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        match self.budget.on_failure(now, self.jitter.uniform()) {
            Decision::RetryAt(until) => self.enter(Phase::BackingOff { until, failed: true }, out),
            Decision::GiveUp => self.crash_loop(out),
        }
    }

    fn crash_loop(&mut self, out: &mut Vec<Effect<W, R>>) {
        self.enter(Phase::CrashLooped, out);
        let detail = self.crash_loop_detail();
        self.answer_start(Err(StartFault::new(ErrorKind::CrashLoop, detail.clone())), out);
        self.lose_unsent(&Loss::new(LossKind::CrashLoop, detail), out);
    }

    pub(super) fn crash_loop_detail(&self) -> String {
        let last = self.last_failure.as_deref().unwrap_or("unknown");
        format!("the host failed too often; `reset` allows it again (last failure: {last})")
    }

    fn start_failed_for_good(&mut self, fault: StartFault, out: &mut Vec<Effect<W, R>>) {
        self.enter(Phase::Down(Down::Idle), out);
        let detail = format!("{}: {}", fault.kind, fault.detail);
        self.start_fails(fault, out);
        self.lose_unsent(&Loss::new(LossKind::Unavailable, detail), out);
    }

    pub(super) fn answer_start(&mut self, result: Result<u64, StartFault>, out: &mut Vec<Effect<W, R>>) {
        if std::mem::take(&mut self.start_wanted) {
            out.push(Effect::Started(result));
        }
    }

    pub(super) fn on_swept(
        &mut self,
        now: Instant,
        epoch: u64,
        survivors: Vec<i32>,
        out: &mut Vec<Effect<W, R>>,
    ) {
        if epoch != self.epoch || self.child.is_some() {
            return;
        }
        self.sweep_until = None;
        match self.phase {
            Phase::Stopping(_) => self.stop_swept(now, survivors, out),
            Phase::BackingOff { .. } => self.spawn_if_due(now, out),
            Phase::Down(_) | Phase::Running | Phase::CrashLooped => {}
        }
    }

    pub(super) fn on_tick(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        // One step can make the next one due. A handful is the most; if ever it were more, the next tick goes on.
        for _ in 0..8 {
            if self.next_deadline().is_none_or(|at| now < at) {
                break;
            }
            self.expire(now, out);
            self.judge_child(now, out);
            self.spawn_if_due(now, out);
            self.advance_stop(now, out);
        }
    }

    /// When something of the child is due. A stop that no longer drains has its own limits for it.
    pub(super) fn child_deadline(&self) -> Option<Instant> {
        let child = self.child.as_ref()?;
        if let Phase::Stopping(stop) = &self.phase
            && !stop.is_draining()
        {
            return None;
        }
        match child.stage {
            Stage::Dying { deadline, .. } => Some(deadline),
            Stage::Starting { .. } | Stage::Reseeding | Stage::Ready => child.judged_at(&self.policy),
        }
    }

    pub(super) fn phase_deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::BackingOff { .. } => self.next_start_at().filter(|_| self.child.is_none()),
            Phase::Stopping(stop) => Some(stop.step.until()),
            Phase::Down(_) | Phase::Running | Phase::CrashLooped => None,
        }
    }

    fn judge_child(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        if self.child_deadline().is_none_or(|at| now < at) {
            return;
        }
        let Some(child) = self.child.as_mut() else { return };
        if let Stage::Dying { cause, killed, .. } = &child.stage {
            if *killed {
                out.push(Effect::Abandon { epoch: self.epoch });
                return self.child_gone(now, Gone::Abandoned, out);
            }
            let cause = cause.clone();
            return self.kill_child(now, cause, out);
        }
        match child.judge(now, &self.policy) {
            Judgement::Fine => {}
            Judgement::NoHello { detail } => {
                self.kill_child(now, Cause::NoHello, out);
                self.start_fails(StartFault::new(ErrorKind::NoHello, detail), out);
            }
            Judgement::Hung { detail } => {
                self.kill_child(now, Cause::Hung { detail: detail.clone() }, out);
                if let Phase::Running = self.phase {
                    self.start_fails(StartFault::new(ErrorKind::Hung, detail), out);
                }
            }
        }
    }
}

/// How a child went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    Exited(Exit),
    /// It would not die and is not waited for any more.
    Abandoned,
    /// It was never there: the spawn failed.
    NeverWas,
}

impl Gone {
    pub(super) fn exit(self) -> Option<Exit> {
        match self {
            Self::Exited(exit) => Some(exit),
            Self::Abandoned => Some(Exit::Unknown),
            Self::NeverWas => None,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Exited(exit) => exit.to_string(),
            Self::Abandoned => "could not be killed".to_owned(),
            Self::NeverWas => "was not started".to_owned(),
        }
    }
}
