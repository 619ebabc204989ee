//! How a host ends: which path, how long for what. Pure: time is passed in, effects are returned.
//!
//! ```text
//!  Running ──signal──▶ Draining ──its end, or a second signal──▶ Obeying ──no turn left──▶ Flushing ──▶ Over
//!     └── shutdown frame, end of stdin, parent gone ───────────────▲
//! ```

use std::time::Duration;
use tokio::time::Instant;

/// Why the host stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The `shutdown` frame.
    ShutdownFrame,
    /// SIGTERM or SIGINT.
    Signal,
    /// End of stdin.
    InputEnded,
    /// The parent is gone, or SIGHUP says so.
    ParentGone,
    /// Stdout takes nothing any more.
    OutputGone,
}

/// The reason word of finalize records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// `compute_host_shutdown`
    Shutdown,
    /// `compute_host_sigterm`
    Sigterm,
    /// `compute_host_stdin_closed`
    StdinClosed,
    /// `compute_host_orphan`
    Orphan,
}

impl Reason {
    /// The word in the record.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Reason::Shutdown => "compute_host_shutdown",
            Reason::Sigterm => "compute_host_sigterm",
            Reason::StdinClosed => "compute_host_stdin_closed",
            Reason::Orphan => "compute_host_orphan",
        }
    }
}

/// What the loop has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Let nothing begin any more, and end the turns that wait for a worker.
    Close,
    /// Tell every running turn to stop.
    InterruptAll,
    /// End every turn that is left without its agent, and answer every control that is still open.
    ForceAll,
    /// Write the records of the sessions, then the last frames.
    Finalize(Reason),
    /// Leave; nothing more is written.
    Exit,
}

/// A shutdown frame leaves a turn this long to end by itself, and its last frames as long again.
pub(crate) const OBEY: Duration = Duration::from_secs(1);
/// Where nobody waits for an answer, turns and last frames share one second; this much of it is the turns'.
pub(crate) const OBEY_ALONE: Duration = Duration::from_millis(800);
/// The whole of such an end.
pub(crate) const ALONE: Duration = Duration::from_secs(1);
/// After the end of stdin the parent's own end may be seen a moment later; it decides the reason.
pub(crate) const REASON_GRACE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Draining { until: Instant },
    Obeying { until: Instant, exit_by: Instant, forced: bool },
    Flushing { until: Instant },
    Over,
}

/// The machine of the host's end.
#[derive(Debug)]
pub(crate) struct Stop {
    phase: Phase,
    drain: Duration,
    reason: Reason,
    /// Until then `reason` may still become another.
    reason_open_until: Option<Instant>,
}

impl Stop {
    /// A host that runs; a signal lets its turns go on for `drain`.
    pub(crate) fn new(drain: Duration) -> Self {
        Self { phase: Phase::Running, drain, reason: Reason::Shutdown, reason_open_until: None }
    }

    /// True once any stop has begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.phase != Phase::Running
    }

    /// True if frames that come now are still looked at: after the last frame was queued nothing may follow it.
    pub(crate) fn takes_input(&self) -> bool {
        match self.phase {
            Phase::Running | Phase::Draining { .. } | Phase::Obeying { .. } => true,
            Phase::Flushing { .. } | Phase::Over => false,
        }
    }

    /// A cause has come.
    pub(crate) fn on_cause(&mut self, now: Instant, cause: Cause, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Running => {
                out.push(Action::Close);
                self.reason = match cause {
                    Cause::ShutdownFrame => Reason::Shutdown,
                    Cause::Signal => Reason::Sigterm,
                    Cause::InputEnded => Reason::StdinClosed,
                    Cause::ParentGone | Cause::OutputGone => Reason::Orphan,
                };
                if cause == Cause::Signal {
                    self.phase = Phase::Draining { until: now + self.drain };
                } else {
                    if cause == Cause::InputEnded {
                        self.reason_open_until = Some(now + REASON_GRACE);
                    }
                    self.obey(now, cause, out);
                }
            }
            Phase::Draining { .. } => self.obey(now, cause, out),
            Phase::Obeying { until, exit_by, forced } => match cause {
                Cause::ParentGone | Cause::OutputGone => {
                    if self.reason_open_until.take().is_some() {
                        self.reason = Reason::Orphan;
                    }
                    let (until, exit_by) = (until.min(now + OBEY_ALONE), exit_by.min(now + ALONE));
                    self.phase = Phase::Obeying { until, exit_by, forced };
                }
                Cause::ShutdownFrame | Cause::Signal | Cause::InputEnded => {}
            },
            Phase::Flushing { until } => match cause {
                Cause::OutputGone => self.phase = Phase::Flushing { until: now },
                Cause::ParentGone => self.phase = Phase::Flushing { until: until.min(now + ALONE) },
                Cause::ShutdownFrame | Cause::Signal | Cause::InputEnded => {}
            },
            Phase::Over => {}
        }
    }

    fn obey(&mut self, now: Instant, cause: Cause, out: &mut Vec<Action>) {
        let (obey, exit) = match cause {
            Cause::ShutdownFrame => (OBEY, OBEY * 2),
            Cause::Signal | Cause::InputEnded | Cause::ParentGone | Cause::OutputGone => (OBEY_ALONE, ALONE),
        };
        self.phase = Phase::Obeying { until: now + obey, exit_by: now + exit, forced: false };
        out.push(Action::InterruptAll);
    }

    /// Moves on if it is time, or if nothing is left to wait for. Call it after every event and at
    /// [`Stop::next_deadline`]; `turns` is the number of turns and controls not ended, `flushed` whether every frame was written.
    pub(crate) fn step(&mut self, now: Instant, turns: usize, flushed: bool, out: &mut Vec<Action>) {
        if self.reason_open_until.is_some_and(|until| until <= now) {
            self.reason_open_until = None;
        }
        match self.phase {
            Phase::Running | Phase::Over => {}
            Phase::Draining { until } => {
                if turns == 0 {
                    self.finalize(now + OBEY, out);
                } else if until <= now {
                    self.obey(now, Cause::Signal, out);
                }
            }
            Phase::Obeying { until, exit_by, forced } => {
                if turns > 0 && until <= now && !forced {
                    self.phase = Phase::Obeying { until, exit_by, forced: true };
                    out.push(Action::ForceAll);
                } else if (turns == 0 && self.reason_open_until.is_none()) || exit_by <= now {
                    self.finalize(exit_by, out);
                }
            }
            Phase::Flushing { until } => {
                if flushed || until <= now {
                    self.phase = Phase::Over;
                    out.push(Action::Exit);
                }
            }
        }
    }

    fn finalize(&mut self, exit_by: Instant, out: &mut Vec<Action>) {
        self.phase = Phase::Flushing { until: exit_by };
        out.push(Action::Finalize(self.reason));
    }

    /// When [`Stop::step`] wants to be called although nothing happened.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running | Phase::Over => None,
            Phase::Obeying { forced: true, exit_by, .. } => Some(exit_by),
            Phase::Draining { until } | Phase::Obeying { until, .. } | Phase::Flushing { until } => {
                Some(until)
            }
        };
        phase.into_iter().chain(self.reason_open_until).min()
    }
}

#[cfg(test)]
mod tests;
