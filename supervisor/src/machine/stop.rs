//! The steps of a stop and how its budget is shared out: pure arithmetic on instants.

use super::types::{Exit, StopPlan, StopReport, StopStep};
use crate::restart::later;
use std::time::{Duration, Instant};

/// What a kill and the sweep behind it get at the end of the budget, at most; of a small budget a quarter.
const KILL_RESERVE: Duration = Duration::from_secs(1);

/// What a drain leaves for asking and for TERM, at most; of a small budget half.
const STOP_RESERVE: Duration = Duration::from_secs(3);

/// A stop under way.
#[derive(Debug)]
pub(super) struct Stop {
    began: Instant,
    /// The end of the budget.
    end: Instant,
    /// The latest time for the kill.
    kill_by: Instant,
    pub step: Step,
    /// Start again afterwards.
    pub restart: bool,
    report: StopReport,
}

/// Where a stop is, and until when it stays there at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Open turns may finish.
    Drain { until: Instant },
    /// The `shutdown` frame is on its way, or was read.
    Ask { until: Instant },
    /// stdin is closed and TERM was sent.
    Term { until: Instant },
    /// KILL was sent.
    Kill { until: Instant },
    /// The child is gone; its tree is waited for.
    Sweep { until: Instant },
}

impl Step {
    pub(super) fn until(self) -> Instant {
        match self {
            Self::Drain { until }
            | Self::Ask { until }
            | Self::Term { until }
            | Self::Kill { until }
            | Self::Sweep { until } => until,
        }
    }
}

impl Stop {
    /// Begins to drain; the caller goes on to another step at once if there is nothing to drain.
    pub(super) fn new(now: Instant, plan: StopPlan) -> Self {
        let end = later(now, plan.budget);
        let kill_by = later(now, plan.budget - KILL_RESERVE.min(plan.budget / 4));
        let mut stop = Self {
            began: now,
            end,
            kill_by,
            step: Step::Drain { until: now },
            restart: plan.restart,
            report: StopReport::default(),
        };
        stop.step = Step::Drain { until: stop.drain_until(now, plan.drain) };
        stop
    }

    /// Another stop joins: the smaller of each limit holds, and the last wish about starting again.
    pub(super) fn join(&mut self, now: Instant, plan: StopPlan) {
        let other = Self::new(now, plan);
        self.end = self.end.min(other.end);
        self.kill_by = self.kill_by.min(other.kill_by);
        self.restart = plan.restart;
        self.step = match self.step {
            Step::Drain { until } => Step::Drain { until: until.min(self.drain_until(now, plan.drain)) },
            Step::Ask { until } => Step::Ask { until: until.min(self.ask_until(now, Duration::MAX)) },
            Step::Term { until } => Step::Term { until: until.min(self.kill_by) },
            Step::Kill { until } => Step::Kill { until: until.min(self.end) },
            Step::Sweep { until } => Step::Sweep { until: until.min(self.end) },
        };
    }

    fn drain_until(&self, now: Instant, drain: Duration) -> Instant {
        let left = self.kill_by.saturating_duration_since(now);
        later(now, drain.min(left - STOP_RESERVE.min(left / 2)))
    }

    /// Asking gets most of what is left, because only a host that ends by itself ends its turns itself.
    fn ask_until(&self, now: Instant, grace: Duration) -> Instant {
        let left = self.kill_by.saturating_duration_since(now);
        later(now, grace.min(left - left / 4))
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.step, Step::Drain { .. })
    }

    pub(super) fn note(&mut self, now: Instant, step: &'static str) {
        let at_ms = u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX);
        self.report.steps.push(StopStep { step, at_ms });
    }

    pub(super) fn ask(&mut self, now: Instant, grace: Duration) {
        self.note(now, "ask");
        self.step = Step::Ask { until: self.ask_until(now, grace) };
    }

    pub(super) fn term(&mut self, now: Instant, grace: Duration) {
        self.note(now, "term");
        self.step = Step::Term { until: later(now, grace).min(self.kill_by).max(now) };
    }

    pub(super) fn kill(&mut self, now: Instant) {
        self.note(now, "kill");
        self.step = Step::Kill { until: self.end };
    }

    /// The child is gone, or given up.
    pub(super) fn gone(&mut self, now: Instant, exit: Option<Exit>, abandoned: bool) {
        self.report.exit = exit;
        self.note(now, if abandoned { "abandoned" } else { "exited" });
    }

    pub(super) fn sweep(&mut self, until: Instant) {
        self.step = Step::Sweep { until: until.min(self.end) };
    }

    pub(super) fn swept(&mut self, now: Instant, survivors: Vec<i32>) {
        self.report.survivors = survivors;
        self.note(now, "swept");
    }

    pub(super) fn into_report(self) -> StopReport {
        self.report
    }
}
