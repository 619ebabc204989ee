//! The steps of a stop: drain, ask, TERM, KILL, sweep. What each may take is decided in `stop.rs`.

use super::incarnation::Stage;
use super::lifecycle::Gone;
use super::requests::{Loss, LossKind};
use super::stop::{Step, Stop};
use super::types::{Effect, StartFault, StopPlan};
use super::{Down, Machine, Phase};
use std::time::Instant;
use turnhost_protocol::{ErrorKind, HostCommand, frame};

/// `request_id` of the `shutdown` frame; its answer is the exit.
const SHUTDOWN_ID: &str = "supervisor-shutdown";

impl<W, R> Machine<W, R> {
    /// Begins a stop, or joins the one under way.
    ///
    /// Turns that wait may run in a drain if a child is ready; with no child they end at once.
    pub(super) fn on_stop(&mut self, now: Instant, plan: StopPlan, out: &mut Vec<Effect<W, R>>) {
        if let Phase::Stopping(stop) = &mut self.phase {
            stop.join(now, plan);
            return self.advance_stop(now, out);
        }
        let mut stop = Stop::new(now, plan);
        let ready = self.takes_input();
        let drains = ready && self.pending.turns() > 0 && stop.step.until() > now;
        if drains {
            stop.note(now, "drain");
        }
        self.phase = Phase::Stopping(stop);
        if self.child.is_some() {
            self.publish(out);
        }
        if !plan.restart {
            self.answer_start(Err(stopped()), out);
        }
        if drains {
            return;
        }
        match self.child.as_ref().map(|child| &child.stage) {
            Some(Stage::Ready | Stage::Reseeding) => self.ask(now, out),
            Some(Stage::Starting { .. }) => self.term(now, out),
            Some(Stage::Dying { .. }) => self.kill(now, out),
            None => self.sweep_or_finish(now, out),
        }
        self.advance_stop(now, out);
    }

    /// Asks the host to end: `shutdown` is the last line of all, so nothing unsent stays in front of it.
    pub(super) fn ask(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        self.end_waiting(out);
        let grace = self.policy.grace;
        let Phase::Stopping(stop) = &mut self.phase else { return };
        stop.ask(now, grace);
        self.push_shutdown();
    }

    pub(super) fn push_shutdown(&mut self) {
        let mut line = Vec::new();
        HostCommand::from(frame::Shutdown { request_id: Some(SHUTDOWN_ID.into()) }).encode(&mut line);
        self.outbox.push(line);
    }

    fn term(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        self.end_waiting(out);
        let grace = self.policy.grace;
        let Phase::Stopping(stop) = &mut self.phase else { return };
        stop.term(now, grace);
        self.outbox.clear();
        out.push(Effect::Term { epoch: self.epoch });
    }

    fn kill(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        self.end_waiting(out);
        let Phase::Stopping(stop) = &mut self.phase else { return };
        stop.kill(now);
        self.outbox.clear();
        out.push(Effect::Kill { epoch: self.epoch });
    }

    fn end_waiting(&mut self, out: &mut Vec<Effect<W, R>>) {
        self.lose_unsent(&Loss::new(LossKind::Shutdown, "the host is being stopped"), out);
    }

    /// A drain ends early when no turn is open.
    pub(super) fn end_idle_drain(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        if self.pending.turns() > 0 {
            return;
        }
        if let Phase::Stopping(stop) = &self.phase
            && stop.is_draining()
        {
            self.ask(now, out);
        }
    }

    /// The child is gone, in whatever step.
    pub(super) fn stop_goes_on_without_child(
        &mut self,
        now: Instant,
        gone: Gone,
        out: &mut Vec<Effect<W, R>>,
    ) {
        self.end_waiting(out);
        let Phase::Stopping(stop) = &mut self.phase else { return };
        match gone {
            Gone::Exited(_) => {
                stop.gone(now, gone.exit(), false);
                self.sweep_or_finish(now, out);
            }
            Gone::Abandoned => {
                stop.gone(now, gone.exit(), true);
                self.finish_stop(now, out);
            }
            Gone::NeverWas => self.sweep_or_finish(now, out),
        }
    }

    fn sweep_or_finish(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        self.end_waiting(out);
        match (self.sweep_until, &mut self.phase) {
            (Some(until), Phase::Stopping(stop)) if until > now => stop.sweep(until),
            _ => self.finish_stop(now, out),
        }
    }

    pub(super) fn stop_swept(&mut self, now: Instant, survivors: Vec<i32>, out: &mut Vec<Effect<W, R>>) {
        let Phase::Stopping(stop) = &mut self.phase else { return };
        stop.swept(now, survivors);
        self.finish_stop(now, out);
    }

    fn finish_stop(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        let Phase::Stopping(stop) = std::mem::replace(&mut self.phase, Phase::Down(Down::OnPurpose)) else {
            return;
        };
        self.publish(out);
        self.budget.reset();
        let restart = stop.restart;
        out.push(Effect::Stopped(stop.into_report()));
        if restart {
            self.start_wanted = true;
            self.want_child(now, out);
        } else {
            self.answer_start(Err(stopped()), out);
        }
    }

    /// Takes every step of the stop whose time has come.
    pub(super) fn advance_stop(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        self.end_idle_drain(now, out);
        while let Phase::Stopping(stop) = &self.phase
            && stop.step.until() <= now
        {
            match stop.step {
                Step::Drain { .. } => self.ask(now, out),
                Step::Ask { .. } => self.term(now, out),
                Step::Term { .. } => self.kill(now, out),
                Step::Kill { .. } if self.child.is_none() => self.finish_stop(now, out),
                Step::Kill { .. } => {
                    out.push(Effect::Abandon { epoch: self.epoch });
                    self.child_gone(now, Gone::Abandoned, out);
                }
                Step::Sweep { .. } => self.finish_stop(now, out),
            }
        }
    }
}

fn stopped() -> StartFault {
    StartFault::new(ErrorKind::Shutdown, "a stop came before the host was ready; `start` starts it again")
}
