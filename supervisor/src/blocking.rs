//! The same supervisor for programs without an async runtime.
//!
//! Every call parks the calling thread until the answer is there. It may be used on any thread, also on one that
//! belongs to a runtime: that runtime's other tasks on that thread wait meanwhile, the supervisor does not.

use crate::config::Config;
use crate::error::CallError;
use crate::events::{EventStream, HostNotice};
use crate::handle::{InterruptResult, StopOptions, StopSummary};
use crate::machine::HostState;
use crate::reseed::ReseedSource;
use crate::restart::later;
use crate::status::{HostReady, HostStatus, StateSnapshot, StateWatch, TurnPhase};
use crate::turn::{TurnEvent, TurnOutcome, Wire};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::task::unconstrained;
use turnhost_protocol::frame::{
    Control, Delivered, ReloadMcp, Respond, SessionSeed, SessionSeeded, TurnStart,
};
use turnhost_protocol::{HostEvent, RawJson, RequestId, SessionId};

/// [`crate::HostSupervisor`] without `async`. Clone it freely; the last drop ends the host.
#[derive(Debug, Clone)]
pub struct HostSupervisor {
    inner: crate::HostSupervisor,
}

macro_rules! blocking_calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)+) => {
        impl HostSupervisor {
            $($(#[$doc])*
            ///
            /// # Errors
            /// Those of the async call of the same name.
            pub fn $name(&self, $($arg: $ty),*) -> Result<$out, CallError> {
                block_on(self.inner.$name($($arg),*))
            })+
        }
    };
}

blocking_calls! {
    /// Starts the host and waits for its hello. See [`crate::HostSupervisor::start`].
    start() -> HostReady;
    /// Everything about the host now. See [`crate::HostSupervisor::status`].
    status() -> HostStatus;
    /// Creates or replaces a session. See [`crate::HostSupervisor::seed`].
    seed(seed: SessionSeed) -> Wire<SessionSeeded>;
    /// The same with fields that this crate does not know. See [`crate::HostSupervisor::seed_json`].
    seed_json(fields: RawJson) -> Wire<SessionSeeded>;
    /// Stops a turn. See [`crate::HostSupervisor::interrupt`].
    interrupt(sid: SessionId, turn_id: Option<RequestId>) -> InterruptResult;
    /// Runs a control. See [`crate::HostSupervisor::control`].
    control(control: Control, timeout: Duration) -> Wire<HostEvent>;
    /// The same with fields that this crate does not know. See [`crate::HostSupervisor::control_json`].
    control_json(fields: RawJson, timeout: Duration) -> Wire<HostEvent>;
    /// Re-reads the tool servers. See [`crate::HostSupervisor::reload_mcp`].
    reload_mcp(reload: ReloadMcp, timeout: Duration) -> Wire<HostEvent>;
    /// The same with fields that this crate does not know. See [`crate::HostSupervisor::reload_mcp_json`].
    reload_mcp_json(fields: RawJson, timeout: Duration) -> Wire<HostEvent>;
    /// Answers a question. See [`crate::HostSupervisor::respond`].
    respond(respond: Respond, timeout: Duration) -> Wire<HostEvent>;
    /// The same with fields that this crate does not know. See [`crate::HostSupervisor::respond_json`].
    respond_json(fields: RawJson, timeout: Duration) -> Wire<HostEvent>;
    /// Lifts a crash loop. See [`crate::HostSupervisor::reset`].
    reset() -> HostState;
    /// Stops the host and starts it again. See [`crate::HostSupervisor::restart`].
    restart(drain: Duration) -> HostReady;
    /// Stops the host. See [`crate::HostSupervisor::shutdown`].
    shutdown(options: StopOptions) -> StopSummary;
}

impl HostSupervisor {
    /// A supervisor whose host is not started yet. See [`crate::HostSupervisor::new`].
    ///
    /// # Errors
    /// Those of [`crate::HostSupervisor::new`].
    pub fn new(config: Config) -> Result<Self, CallError> {
        crate::HostSupervisor::new(config).map(Self::from)
    }

    /// The same with a source of histories. See [`crate::HostSupervisor::with_reseed_source`].
    ///
    /// # Errors
    /// Those of [`crate::HostSupervisor::new`].
    pub fn with_reseed_source(config: Config, source: ReseedSource) -> Result<Self, CallError> {
        crate::HostSupervisor::with_reseed_source(config, source).map(Self::from)
    }

    /// Submits a turn. See [`crate::HostSupervisor::submit_turn`].
    ///
    /// # Errors
    /// Those of [`crate::HostSupervisor::submit_turn`].
    pub fn submit_turn(&self, turn: TurnStart) -> Result<TurnHandle, CallError> {
        block_on(self.inner.submit_turn(turn)).map(TurnHandle::from)
    }

    /// The same with fields that this crate does not know. See [`crate::HostSupervisor::submit_turn_json`].
    ///
    /// # Errors
    /// Those of [`crate::HostSupervisor::submit_turn`].
    pub fn submit_turn_json(&self, fields: RawJson) -> Result<TurnHandle, CallError> {
        block_on(self.inner.submit_turn_json(fields)).map(TurnHandle::from)
    }

    /// Follows the state.
    pub fn watch(&self) -> StateWatch {
        self.inner.watch()
    }

    /// The state now, as the watch has it: this asks nobody.
    pub fn state(&self) -> StateSnapshot {
        self.inner.watch().current()
    }

    /// Waits until `wanted` is true of the state, at most `limit`; `None` if it never was, or the supervisor ended.
    pub fn wait_for_state(
        &self,
        limit: Duration,
        mut wanted: impl FnMut(&StateSnapshot) -> bool,
    ) -> Option<StateSnapshot> {
        let mut watch = self.inner.watch();
        let first = watch.current();
        if wanted(&first) {
            return Some(first);
        }
        block_on_until(later(Instant::now(), limit), async {
            loop {
                let state = watch.changed().await?;
                if wanted(&state) {
                    return Some(state);
                }
            }
        })
        .flatten()
    }

    /// Events of the host from now on.
    pub fn events(&self) -> Events {
        Events { inner: self.inner.events() }
    }

    /// Hands every event of the host to `callback`. See [`crate::HostSupervisor::on_event`].
    ///
    /// # Errors
    /// Those of [`crate::HostSupervisor::on_event`].
    pub fn on_event(&self, callback: impl FnMut(HostNotice) + Send + 'static) -> Result<(), CallError> {
        self.inner.on_event(callback)
    }

    /// Hands every event of `turn` to `callback`. See [`crate::HostSupervisor::on_turn`].
    ///
    /// # Errors
    /// Those of [`crate::HostSupervisor::on_turn`].
    pub fn on_turn(
        &self,
        turn: TurnHandle,
        callback: impl FnMut(TurnEvent) + Send + 'static,
    ) -> Result<(), CallError> {
        self.inner.on_turn(turn.inner, callback)
    }

    /// The async supervisor: the same one, not another.
    pub fn as_async(&self) -> &crate::HostSupervisor {
        &self.inner
    }
}

impl From<crate::HostSupervisor> for HostSupervisor {
    fn from(inner: crate::HostSupervisor) -> Self {
        Self { inner }
    }
}

/// [`crate::TurnHandle`] without `async`.
#[derive(Debug)]
pub struct TurnHandle {
    inner: crate::TurnHandle,
}

impl From<crate::TurnHandle> for TurnHandle {
    fn from(inner: crate::TurnHandle) -> Self {
        Self { inner }
    }
}

impl TurnHandle {
    /// Names the turn.
    pub fn request_id(&self) -> &RequestId {
        self.inner.request_id()
    }

    /// Its session.
    pub fn sid(&self) -> &SessionId {
        self.inner.sid()
    }

    /// How far it is.
    pub fn phase(&self) -> TurnPhase {
        self.inner.phase()
    }

    /// What of it was put in the mailbox so far.
    pub fn delivered(&self) -> Delivered {
        self.inner.delivered()
    }

    /// Waits for the next event, at most `limit`; `None` as well if none came in time.
    pub fn next_within(&mut self, limit: Duration) -> Option<TurnEvent> {
        block_on_until(later(Instant::now(), limit), self.inner.next()).flatten()
    }

    /// The next event if there is one now.
    pub fn try_next(&mut self) -> Option<TurnEvent> {
        self.inner.try_next()
    }

    /// Waits for the end and lets every event before it go.
    pub fn outcome(self) -> TurnOutcome {
        block_on(self.inner.outcome())
    }
}

impl Iterator for TurnHandle {
    type Item = TurnEvent;
    fn next(&mut self) -> Option<TurnEvent> {
        block_on(self.inner.next())
    }
}

/// [`EventStream`] without `async`.
#[derive(Debug)]
pub struct Events {
    inner: EventStream,
}

impl Events {
    /// Waits for the next event, at most `limit`; `None` if none came in time or the supervisor ended.
    pub fn next_within(&mut self, limit: Duration) -> Option<HostNotice> {
        block_on_until(later(Instant::now(), limit), self.inner.next()).flatten()
    }
}

impl Iterator for Events {
    type Item = HostNotice;
    fn next(&mut self) -> Option<HostNotice> {
        block_on(self.inner.next())
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks this thread until `future` is done. Needs no runtime and minds none: inside a task the future would otherwise
/// use up that task's budget, and then wait for a scheduler that runs on the thread parked here.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The same until `deadline`.
pub(crate) fn block_on_until<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}
