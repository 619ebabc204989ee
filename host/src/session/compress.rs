//! One compression from its request to its answer. Pure: time is passed in, one effect at a time is returned.
//!
//! ```text
//!              engine: compressed       history committed      key synced       engine told, or 5 s
//! Compressing ───────────────────▶ Committing ─────────▶ Syncing ────────▶ Notifying ──────▶ Over: compressed
//!   │ engine: unchanged, failed        │ refused            │ refused: rolled back
//!   │ stopped: interrupt, time, host   ▼                    ▼
//!   └───────▶ Over              Over: sync failed    Over: sync failed
//! ```
//! The engine is told of the new session only on the way from `Syncing` to `Notifying`: what fails before has no
//! notification that could fire later.

use std::time::Duration;
use tokio::time::Instant;

/// A compression that takes longer is interrupted.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// One that ignores its interrupt for this long is ended without its engine.
pub(crate) const IGNORED: Duration = Duration::from_secs(10);
/// The answer waits this long for the engine to be told.
pub(crate) const NOTIFY: Duration = Duration::from_secs(5);

/// Why a compression is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// A person wanted it.
    Interrupted,
    /// Its time is up.
    TooSlow,
    /// The host stops.
    HostStops,
}

/// What the engine gave; what it replaces the history by stays with the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gave {
    /// A shorter history.
    Compressed,
    /// Nothing to gain, and why.
    Unchanged(String),
    /// Nothing, and why.
    Failed(String),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// The engine is done.
    Engine(Gave),
    /// The history was replaced, or why not.
    Committed(Result<(), String>),
    /// The key was moved, or why not.
    Synced(Result<(), String>),
    /// The history is as it was before the commit.
    RolledBack,
    /// The engine was told, or why not.
    Notified(Result<(), String>),
    /// It should stop.
    Stop(Why),
    /// It must be over now.
    Force,
    /// Time passed.
    Tick,
}

/// What the driver has to do. The answer to `Commit`, `SyncKey` and `RollBack` is the next input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Tell the engine to stop.
    Interrupt,
    /// Replace the history, if it is still the one that was compressed.
    Commit,
    /// Move the session to its new key.
    SyncKey,
    /// Undo the commit.
    RollBack,
    /// Tell the engine of the new session.
    Notify,
    /// Let the session go on and answer. What of the engine or its agent still runs is ended.
    Answer(Verdict),
}

/// How a compression ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The session has a shorter history and a new key. `note`: what went wrong after that.
    Compressed {
        note: Option<String>,
    },
    Unchanged {
        reason: String,
    },
    Aborted {
        reason: String,
    },
    /// The engine was done, but its history could not become the session's.
    SyncFailed {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Compressing {
        until: Instant,
    },
    /// Told to stop; ended without the engine at `force_at`.
    Stopping {
        why: Why,
        force_at: Instant,
    },
    Committing,
    Syncing,
    RollingBack {
        reason: String,
    },
    Notifying {
        until: Instant,
    },
    Over,
}

/// The machine of one compression.
#[derive(Debug)]
pub(crate) struct Compress {
    state: State,
}

impl Compress {
    /// The engine has begun.
    pub(crate) fn new(now: Instant) -> Self {
        Self { state: State::Compressing { until: now + LIMIT } }
    }

    /// Takes what happened. An input that does not fit the state (late, or twice) changes nothing.
    pub(crate) fn on(&mut self, now: Instant, input: Input) -> Option<Effect> {
        match (&self.state, input) {
            (State::Compressing { .. }, Input::Engine(Gave::Compressed)) => {
                self.go(State::Committing, Effect::Commit)
            }
            (State::Compressing { .. }, Input::Engine(Gave::Unchanged(reason))) => {
                self.end(Verdict::Unchanged { reason })
            }
            (State::Compressing { .. }, Input::Engine(Gave::Failed(reason))) => {
                self.end(Verdict::Aborted { reason })
            }
            (State::Compressing { .. }, Input::Stop(why)) => self.stop(now, why),
            (State::Compressing { until }, Input::Tick) if *until <= now => self.stop(now, Why::TooSlow),
            (State::Compressing { .. }, Input::Force) => self.aborted(Why::HostStops),

            // Whatever it gives now came too late for whoever wanted it stopped.
            (State::Stopping { why, .. }, Input::Engine(_)) => self.aborted(*why),
            (State::Stopping { force_at, why }, Input::Tick) if *force_at <= now => self.aborted(*why),
            (State::Stopping { why, .. }, Input::Force) => self.aborted(*why),

            (State::Committing, Input::Committed(Ok(()))) => self.go(State::Syncing, Effect::SyncKey),
            (State::Committing, Input::Committed(Err(reason))) => self.end(Verdict::SyncFailed { reason }),
            (State::Syncing, Input::Synced(Ok(()))) => {
                self.go(State::Notifying { until: now + NOTIFY }, Effect::Notify)
            }
            (State::Syncing, Input::Synced(Err(reason))) => {
                self.go(State::RollingBack { reason }, Effect::RollBack)
            }
            (State::RollingBack { reason }, Input::RolledBack) => {
                self.end(Verdict::SyncFailed { reason: reason.clone() })
            }

            (State::Notifying { .. }, Input::Notified(Ok(()))) => {
                self.end(Verdict::Compressed { note: None })
            }
            (State::Notifying { .. }, Input::Notified(Err(note))) => self.noted(note),
            (State::Notifying { until }, Input::Tick) if *until <= now => {
                self.noted(format!("the context engine did not take the news within {} s", NOTIFY.as_secs()))
            }
            (State::Notifying { .. }, Input::Force) => {
                self.noted("the host stopped before the context engine had taken the news".to_owned())
            }

            (
                State::Compressing { .. }
                | State::Stopping { .. }
                | State::Committing
                | State::Syncing
                | State::RollingBack { .. }
                | State::Notifying { .. }
                | State::Over,
                Input::Engine(_)
                | Input::Committed(_)
                | Input::Synced(_)
                | Input::RolledBack
                | Input::Notified(_)
                | Input::Stop(_)
                | Input::Force
                | Input::Tick,
            ) => None,
        }
    }

    /// When [`Input::Tick`] does something.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Compressing { until } | State::Notifying { until } => Some(until),
            State::Stopping { force_at, .. } => Some(force_at),
            State::Committing | State::Syncing | State::RollingBack { .. } | State::Over => None,
        }
    }

    /// True while an interrupt can still keep the history as it is.
    pub(crate) fn can_be_stopped(&self) -> bool {
        match self.state {
            State::Compressing { .. } | State::Stopping { .. } => true,
            State::Committing
            | State::Syncing
            | State::RollingBack { .. }
            | State::Notifying { .. }
            | State::Over => false,
        }
    }

    fn stop(&mut self, now: Instant, why: Why) -> Option<Effect> {
        self.go(State::Stopping { why, force_at: now + IGNORED }, Effect::Interrupt)
    }

    fn aborted(&mut self, why: Why) -> Option<Effect> {
        let reason = match why {
            Why::Interrupted => "interrupted".to_owned(),
            Why::TooSlow => format!("it took longer than {} s", LIMIT.as_secs()),
            Why::HostStops => "the host is shutting down".to_owned(),
        };
        self.end(Verdict::Aborted { reason })
    }

    fn noted(&mut self, note: String) -> Option<Effect> {
        self.end(Verdict::Compressed { note: Some(note) })
    }

    fn end(&mut self, verdict: Verdict) -> Option<Effect> {
        self.go(State::Over, Effect::Answer(verdict))
    }

    #[expect(clippy::unnecessary_wraps, reason = "every way out of `on` is an effect or none")]
    fn go(&mut self, state: State, effect: Effect) -> Option<Effect> {
        self.state = state;
        Some(effect)
    }
}

#[cfg(test)]
mod tests;
