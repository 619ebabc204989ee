//! One child from its spawn to its end, and the clocks by which it is judged.

use super::types::{Policy, StartFault};
use crate::restart::later;
use std::time::{Duration, Instant};

/// How much later than due a tick must come to show that the supervisor itself did not run (suspended, stopped).
/// The time in between says nothing about the child, which most likely did not run either.
const SUSPENDED_AFTER: Duration = Duration::from_secs(1);

/// How long a child with a broken pipe may take to exit by itself, so that its own status is what is reported.
const BROKEN_PIPE_PATIENCE: Duration = Duration::from_secs(1);

/// How long the exit of a killed child is waited for: a process in the kernel's hands may never come back.
pub(super) const KILL_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Incarnation {
    pub stage: Stage,
    /// It is in the registry.
    pub registered: bool,
    /// The last sign of life.
    pub last_alive: Instant,
    /// It has sent a heartbeat: silence means something.
    pub armed: bool,
    /// A pipe of it is closed.
    broken: bool,
    /// Since when its stdin has taken nothing although something is there for it.
    pub stalled_since: Option<Instant>,
}

/// How far a child has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Spawned; its hello is waited for.
    Starting { deadline: Instant },
    /// Its hello was accepted; the seeds are being collected.
    Reseeding,
    /// It takes input.
    Ready,
    /// It will be killed at the deadline, or was and is given up then.
    Dying { cause: Cause, killed: bool, deadline: Instant },
}

/// Why a child must die; what its exit will mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// The watchdog bit.
    Hung { detail: String },
    /// Its stdin is broken.
    BrokenPipe,
    /// It said no hello in time: a failure like a crash, answered already.
    NoHello,
    /// Its hello cannot be accepted: trying again cannot help.
    Refused(StartFault),
    /// Everything that follows from its end was done already.
    Settled,
}

/// What a clock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    Fine,
    NoHello { detail: String },
    Hung { detail: String },
}

impl Incarnation {
    pub(super) fn new(now: Instant, policy: &Policy) -> Self {
        Self {
            stage: Stage::Starting { deadline: later(now, policy.hello_timeout) },
            registered: false,
            last_alive: now,
            armed: false,
            broken: false,
            stalled_since: None,
        }
    }

    /// One that followed another on the same pipes: its hello is here already.
    pub(super) fn restarted(now: Instant, policy: &Policy) -> Self {
        Self { stage: Stage::Reseeding, registered: true, ..Self::new(now, policy) }
    }

    /// One of its pipes is broken: it is about to exit, or it closed the pipe and lives. It gets a moment to say which.
    /// True if it takes input no more and might have until now.
    pub(super) fn break_pipe(&mut self, now: Instant) -> bool {
        let moment = later(now, BROKEN_PIPE_PATIENCE);
        match &mut self.stage {
            Stage::Starting { deadline } => {
                self.broken = true;
                *deadline = moment.min(*deadline);
                false
            }
            Stage::Reseeding | Stage::Ready => {
                self.stage = Stage::Dying { cause: Cause::BrokenPipe, killed: false, deadline: moment };
                true
            }
            Stage::Dying { .. } => false,
        }
    }

    /// When the child is judged next; only while it is not dying.
    pub(super) fn judged_at(&self, policy: &Policy) -> Option<Instant> {
        match self.stage {
            Stage::Starting { deadline } => Some(deadline),
            Stage::Reseeding | Stage::Ready => match (self.silent_at(policy), self.stalled_at(policy)) {
                (Some(silent), Some(stalled)) => Some(silent.min(stalled)),
                (silent, stalled) => silent.or(stalled),
            },
            Stage::Dying { .. } => None,
        }
    }

    /// Judges the child. If the tick is so late that the supervisor did not run in between, every clock that has
    /// run out gets a fresh window instead: a child that is really stuck is found one window later.
    pub(super) fn judge(&mut self, now: Instant, policy: &Policy) -> Judgement {
        match &mut self.stage {
            Stage::Starting { deadline } => {
                if now < *deadline {
                    return Judgement::Fine;
                }
                if suspended(*deadline, now) && !policy.hello_timeout.is_zero() {
                    *deadline = later(now, policy.hello_timeout);
                    return Judgement::Fine;
                }
                let detail = if self.broken {
                    "the host closed its pipes before it said hello".to_owned()
                } else {
                    format!("no hello in {:.1} s", policy.hello_timeout.as_secs_f64())
                };
                Judgement::NoHello { detail }
            }
            Stage::Reseeding | Stage::Ready => {
                if let Some(at) = self.silent_at(policy)
                    && now >= at
                {
                    if !suspended(at, now) {
                        let silent = now.saturating_duration_since(self.last_alive);
                        return Judgement::Hung {
                            detail: format!("the host sent nothing for {:.1} s", silent.as_secs_f64()),
                        };
                    }
                    self.last_alive = now;
                }
                if let Some(at) = self.stalled_at(policy)
                    && now >= at
                {
                    if !suspended(at, now) {
                        return Judgement::Hung {
                            detail: format!(
                                "the host read no input for {:.1} s",
                                policy.write_stall.as_secs_f64()
                            ),
                        };
                    }
                    self.stalled_since = Some(now);
                }
                Judgement::Fine
            }
            Stage::Dying { .. } => Judgement::Fine,
        }
    }

    fn silent_at(&self, policy: &Policy) -> Option<Instant> {
        let limit = policy.hang_after.filter(|limit| !limit.is_zero())?;
        self.armed.then(|| later(self.last_alive, limit))
    }

    fn stalled_at(&self, policy: &Policy) -> Option<Instant> {
        let since = self.stalled_since.filter(|_| !policy.write_stall.is_zero())?;
        Some(later(since, policy.write_stall))
    }
}

fn suspended(due: Instant, now: Instant) -> bool {
    now.saturating_duration_since(due) > SUSPENDED_AFTER
}
