//! The supervisor as its embedder holds it.

use crate::actor::{self, Actor};
use crate::child::Spawn;
use crate::command::{Command, FrameFields, OutFrame, Reply, SeedRecord, checked_id, read_fields, text};
use crate::config::Config;
use crate::delivery::Delivery;
use crate::environment::{GUARD_VARIABLE, host_environment};
use crate::error::CallError;
use crate::events::{EventStream, HostNotice, Subscribers};
use crate::machine::{HostState, StopPlan, StopStep, SubmitPhase};
use crate::mailbox::{Bounds, mailbox};
use crate::reseed::ReseedSource;
use crate::status::{HostReady, HostStatus, StateSnapshot, StateWatch};
use crate::turn::{TurnEvent, TurnHandle, Wire};
use serde::Serialize;
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use turnhost_protocol::frame::{
    Control, Interrupt, ReloadMcp, Respond, SessionSeed, SessionSeeded, TurnStart,
};
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{ErrorKind, HostCommand, HostEvent, RawJson, RequestId, Route, SessionId, limits};

#[cfg(test)]
mod tests;

/// Orders that wait for the actor, which never waits for anything but them and the host.
const COMMANDS: usize = 64;
/// How long the last drop waits for the thread.
const DROP_WAIT: Duration = Duration::from_millis(100);
/// How long a seed or an interrupt waits for the host's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stop waits at most for callbacks that are due.
const CALLBACK_WAIT: Duration = Duration::from_millis(200);

/// How to stop a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopOptions {
    /// How long open turns may go on first.
    pub drain: Duration,
    /// How long everything may take, the drain included.
    pub budget: Duration,
}

impl Default for StopOptions {
    /// No drain, 25 s.
    fn default() -> Self {
        Self { drain: Duration::ZERO, budget: Duration::from_secs(25) }
    }
}

/// What a stop did. Serialises to the answer of `turnhost supervise`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StopSummary {
    /// Exit code of the host, if it exited.
    pub exit_code: Option<i32>,
    /// Signal that ended it, if one did.
    pub signal: Option<i32>,
    /// What was done, in order.
    pub steps: Vec<StopStep>,
    /// Processes of the host's tree that live on, by pid.
    pub survivors: Vec<i32>,
}

/// What came of an interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InterruptResult {
    /// The word.
    pub outcome: InterruptOutcome,
    /// The turn that was told to stop, or the one that runs instead.
    pub turn: Option<RequestId>,
}

/// Owns one host: starts it, watches it, starts it again, ends it with everything it started.
///
/// Clone it freely: every clone is the same supervisor. The last drop ends it: open turns end `dropped`, the host's
/// pipes close, and its guard ends the tree (the drop waits at most 100 ms). Stop it with
/// [`HostSupervisor::shutdown`] to see the end.
///
/// All I/O is on one named thread of its own; the async calls need no particular runtime, and cancelling one cancels
/// nothing that was accepted.
#[derive(Debug, Clone)]
pub struct HostSupervisor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` only while it is dropped.
    commands: Option<mpsc::Sender<Command>>,
    state: watch::Receiver<StateSnapshot>,
    subscribers: Arc<Subscribers>,
    delivery: Delivery,
    max_frame_bytes: usize,
    bounds: Bounds,
    /// Disconnects when the thread ends. `None` if somebody else runs the actor. A mutex only because a receiver is
    /// not `Sync`; nothing but the drop uses it.
    thread: Option<std::sync::Mutex<std_mpsc::Receiver<()>>>,
}

impl HostSupervisor {
    /// A supervisor whose host is not started yet: that is done by [`HostSupervisor::start`], or by the first submit,
    /// seed or control.
    ///
    /// # Errors
    /// `usage` for a configuration that cannot work; `spawn_failed` if the thread cannot be started, or if this process
    /// is itself meant to be a guard: its `main` must call [`crate::guard_main`] first.
    pub fn new(config: Config) -> Result<Self, CallError> {
        Self::build(config, None)
    }

    /// The same, with the embedder's own record of sessions for the time after a crash.
    ///
    /// # Errors
    /// Those of [`HostSupervisor::new`].
    pub fn with_reseed_source(config: Config, source: ReseedSource) -> Result<Self, CallError> {
        Self::build(config, Some(source))
    }

    fn build(config: Config, source: Option<ReseedSource>) -> Result<Self, CallError> {
        if std::env::var_os(GUARD_VARIABLE).is_some() {
            let text = format!(
                "{GUARD_VARIABLE} is set: this process was started as the guard of another supervisor; call \
                 turnhost_supervisor::guard_main() first thing in main, or configure another guard"
            );
            return Err(CallError::new(ErrorKind::SpawnFailed, text));
        }
        check(&config)?;
        let environment = host_environment(&config, std::env::vars_os());
        let spawn = crate::spawn::from_config(&config, environment);
        Self::start_thread(config, source, spawn)
    }

    fn start_thread(
        config: Config,
        source: Option<ReseedSource>,
        spawn: Box<dyn Spawn + Send>,
    ) -> Result<Self, CallError> {
        Self::start_on(std::thread::Builder::new(), config, source, spawn)
    }

    fn start_on(
        thread: std::thread::Builder,
        config: Config,
        source: Option<ReseedSource>,
        spawn: Box<dyn Spawn + Send>,
    ) -> Result<Self, CallError> {
        let (done, ended) = std_mpsc::sync_channel(0);
        let (mut supervisor, parts) = Self::connect(&config);
        // Made after the thread: a runtime that is dropped inside another one, for want of a thread, panics.
        let (give, take) = std_mpsc::sync_channel(1);
        thread
            .name("supervisor-io".to_owned())
            .spawn(move || {
                if let Ok(runtime) = take.recv() {
                    actor::run_thread(runtime, move || Actor::new(config, source, spawn, parts));
                }
                drop(done);
            })
            .map_err(|error| {
                let text =
                    format!("cannot start the supervisor's thread: {error}; free some threads or memory");
                CallError::new(ErrorKind::SpawnFailed, text)
            })?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
                let text = format!("cannot make the supervisor's reactor: {error}; free some descriptors");
                CallError::new(ErrorKind::SpawnFailed, text)
            })?;
        if let Err(std_mpsc::SendError(runtime)) = give.send(runtime) {
            runtime.shutdown_background();
        }
        if let Some(inner) = Arc::get_mut(&mut supervisor.inner) {
            inner.thread = Some(std::sync::Mutex::new(ended));
        }
        Ok(supervisor)
    }

    /// A handle, and the other ends of its channels for an actor that someone runs.
    pub(crate) fn connect(config: &Config) -> (Self, actor::Parts) {
        let (commands, orders) = mpsc::channel(COMMANDS);
        let (publish, state) = watch::channel(StateSnapshot::default());
        let subscribers = Arc::new(Subscribers::default());
        let parts = actor::Parts { orders, publish, subscribers: Arc::clone(&subscribers) };
        let inner = Inner {
            commands: Some(commands),
            state,
            subscribers,
            delivery: Delivery::default(),
            max_frame_bytes: config.max_frame_bytes,
            bounds: Bounds { events: config.mailbox_events, bytes: config.mailbox_bytes },
            thread: None,
        };
        (Self { inner: Arc::new(inner) }, parts)
    }

    /// Starts the host and waits for its hello. At once if it is ready; after [`HostSupervisor::shutdown`] it starts
    /// again with a fresh budget.
    ///
    /// # Errors
    /// Why the first attempt failed: `spawn_failed`, `no_hello`, `exited_before_hello`, a mismatch, the registry; or
    /// `crash_loop`, `shutdown`. After a failure that may pass the supervisor goes on trying by itself.
    pub async fn start(&self) -> Result<HostReady, CallError> {
        self.ask(|reply| Command::Start { reply }).await
    }

    /// Everything about the host now. Never waits for the host or a pipe.
    ///
    /// # Errors
    /// Only if the supervisor's thread is gone.
    pub async fn status(&self) -> Result<HostStatus, CallError> {
        self.ask(|reply| Command::Status { reply }).await
    }

    /// Follows the state.
    pub fn watch(&self) -> StateWatch {
        StateWatch { receiver: self.inner.state.clone() }
    }

    /// Events of the host from now on. Each stream is bounded: a slow reader loses `rpc`, `stray` and `protocol_error`
    /// events and is told how many, and holds up nothing.
    pub fn events(&self) -> EventStream {
        self.inner.subscribers.subscribe()
    }

    /// Hands every event of the host from now on to `callback`, on the delivery thread: it may be slow, may panic
    /// (it gets no more events then) and may call the blocking facade. A callback that owns a clone of this supervisor
    /// keeps it alive.
    ///
    /// # Errors
    /// `spawn_failed` if the delivery thread cannot be started.
    pub fn on_event(&self, mut callback: impl FnMut(HostNotice) + Send + 'static) -> Result<(), CallError> {
        let mut events = self.events();
        self.inner.delivery.spawn(async move {
            while let Some(notice) = events.next().await {
                callback(notice);
            }
        })
    }

    /// Hands every event of `turn`, its end included, to `callback` on the delivery thread, as
    /// [`HostSupervisor::on_event`] does.
    ///
    /// # Errors
    /// `spawn_failed` if the delivery thread cannot be started; the turn goes on.
    pub fn on_turn(
        &self,
        mut turn: TurnHandle,
        mut callback: impl FnMut(TurnEvent) + Send + 'static,
    ) -> Result<(), CallError> {
        self.inner.delivery.spawn(async move {
            while let Some(event) = turn.next().await {
                callback(event);
            }
        })
    }

    /// Submits a turn. Accepted, it ends exactly once, whatever dies. It starts a host that was never started.
    ///
    /// A `request_id` that is left out is made up.
    ///
    /// # Errors
    /// No turn exists then: `usage`, `too_large`, `duplicate_request`, `overloaded`, `crash_loop`, `shutdown`.
    pub async fn submit_turn(&self, mut turn: TurnStart) -> Result<TurnHandle, CallError> {
        let id = checked_id(turn.request_id.take())?;
        turn.request_id = Some(id.clone());
        let fresh_history = turn.history.is_some();
        let sid = turn.sid.clone();
        let frame = OutFrame::typed(sid, id, &HostCommand::TurnStart(turn), self.inner.max_frame_bytes)?;
        self.submit(frame, fresh_history).await
    }

    /// The same with the fields of a `turn.start` frame as the text of one JSON object: what this crate does not know
    /// reaches the host as it is written.
    ///
    /// # Errors
    /// Those of [`HostSupervisor::submit_turn`].
    pub async fn submit_turn_json(&self, fields: RawJson) -> Result<TurnHandle, CallError> {
        let fields = read_fields("turn.start", &fields)?;
        let (frame, turn) = OutFrame::fields::<TurnStart>("turn.start", fields, self.inner.max_frame_bytes)?;
        self.submit(frame, turn.history.is_some()).await
    }

    async fn submit(&self, frame: OutFrame, fresh_history: bool) -> Result<TurnHandle, CallError> {
        let (permit, receiver) = mailbox(frame.sid.clone(), frame.id.clone(), self.inner.bounds);
        let accepted: Result<SubmitPhase, CallError> =
            self.ask(|reply| Command::Submit { frame, permit, fresh_history, reply }).await;
        receiver.accepted(accepted?);
        Ok(TurnHandle::new(receiver))
    }

    /// Creates a session, or replaces a known idle one. From its answer on the supervisor keeps the session's history
    /// (up to 8 MiB), to seed the next host with it.
    ///
    /// # Errors
    /// `usage`, `too_large`, `duplicate_request`, `overloaded`, `busy`, `control_failed`, `timeout` (30 s), and those of
    /// a host that is not there: `crash`, `hung`, `shutdown`, `unavailable`, `crash_loop`.
    pub async fn seed(&self, mut seed: SessionSeed) -> Result<Wire<SessionSeeded>, CallError> {
        let id = checked_id(seed.request_id.take())?;
        seed.request_id = Some(id);
        match RawJson::from_value(&seed) {
            Ok(fields) => self.seed_json(fields).await,
            Err(error) => Err(CallError::usage(format!("session.seed: {error}"))),
        }
    }

    /// The same with the fields of a `session.seed` frame as the text of one JSON object, as
    /// [`HostSupervisor::submit_turn_json`].
    ///
    /// # Errors
    /// Those of [`HostSupervisor::seed`].
    pub async fn seed_json(&self, fields: RawJson) -> Result<Wire<SessionSeeded>, CallError> {
        let mut fields = read_fields("session.seed", &fields)?;
        // Without the report of what a turn appended, the history could not be kept.
        let report = RawJson::from_value(&true).map_err(|error| CallError::usage(error.to_string()))?;
        fields.insert("report_messages".to_owned(), report);
        let (frame, seed) =
            OutFrame::fields::<SessionSeed>("session.seed", fields.clone(), self.inner.max_frame_bytes)?;
        for name in ["type", "request_id", "history"] {
            fields.remove(name);
        }
        let record = SeedRecord { fields, history: seed.history.unwrap_or_default() };
        self.ask(|reply| Command::Seed { frame, record, timeout: ANSWER_TIMEOUT, reply }).await
    }

    /// Stops the session's turn, or only the one named. Never starts a host. A turn of which nothing was sent yet is
    /// removed, and ends interrupted, without the host.
    ///
    /// # Errors
    /// `usage`, `timeout` (30 s), and those of a host that dies meanwhile.
    pub async fn interrupt(
        &self,
        sid: SessionId,
        turn_id: Option<RequestId>,
    ) -> Result<InterruptResult, CallError> {
        let id = checked_id(None)?;
        let interrupt =
            Interrupt { sid: Some(sid.clone()), request_id: Some(id.clone()), turn_id: turn_id.clone() };
        let command = HostCommand::Interrupt(interrupt);
        let frame = OutFrame::typed(Some(sid), id, &command, self.inner.max_frame_bytes)?;
        self.ask(|reply| Command::Interrupt { frame, turn_id, timeout: ANSWER_TIMEOUT, reply }).await
    }

    /// Runs a control and waits for its ack, at most `timeout`.
    ///
    /// # Errors
    /// `unclassified_route` (nothing was sent), `usage`, `too_large`, `duplicate_request`, `overloaded`, `busy`,
    /// `session_not_found`, `control_failed`, `timeout` (the outcome is unknown), and those of a host that is not there.
    pub async fn control(
        &self,
        mut control: Control,
        timeout: Duration,
    ) -> Result<Wire<HostEvent>, CallError> {
        classified(control.route_name.as_deref())?;
        let id = checked_id(control.request_id.take())?;
        control.request_id = Some(id.clone());
        self.call_typed(control.sid.clone(), id, HostCommand::Control(control), timeout).await
    }

    /// The same with the fields of a `control` frame as the text of one JSON object.
    ///
    /// # Errors
    /// Those of [`HostSupervisor::control`].
    pub async fn control_json(
        &self,
        fields: RawJson,
        timeout: Duration,
    ) -> Result<Wire<HostEvent>, CallError> {
        let fields = read_fields("control", &fields)?;
        classified(text(&fields, "route_name").as_deref())?;
        self.call_json::<Control>("control", fields, timeout).await
    }

    /// Re-reads the tool servers and waits for the ack, at most `timeout`.
    ///
    /// # Errors
    /// Those of [`HostSupervisor::control`].
    pub async fn reload_mcp(
        &self,
        mut reload: ReloadMcp,
        timeout: Duration,
    ) -> Result<Wire<HostEvent>, CallError> {
        let id = checked_id(reload.request_id.take())?;
        reload.request_id = Some(id.clone());
        self.call_typed(reload.sid.clone(), id, HostCommand::ReloadMcp(reload), timeout).await
    }

    /// The same with the fields of a `reload_mcp` frame as the text of one JSON object.
    ///
    /// # Errors
    /// Those of [`HostSupervisor::control`].
    pub async fn reload_mcp_json(
        &self,
        fields: RawJson,
        timeout: Duration,
    ) -> Result<Wire<HostEvent>, CallError> {
        self.call_json::<ReloadMcp>("reload_mcp", read_fields("reload_mcp", &fields)?, timeout).await
    }

    /// Answers a question (`approval_request`) and waits for the ack, at most `timeout`.
    ///
    /// # Errors
    /// Those of [`HostSupervisor::control`].
    pub async fn respond(
        &self,
        mut respond: Respond,
        timeout: Duration,
    ) -> Result<Wire<HostEvent>, CallError> {
        let id = checked_id(respond.request_id.take())?;
        respond.request_id = Some(id.clone());
        self.call_typed(respond.sid.clone(), id, HostCommand::Respond(respond), timeout).await
    }

    /// The same with the fields of a `respond` frame as the text of one JSON object.
    ///
    /// # Errors
    /// Those of [`HostSupervisor::control`].
    pub async fn respond_json(
        &self,
        fields: RawJson,
        timeout: Duration,
    ) -> Result<Wire<HostEvent>, CallError> {
        self.call_json::<Respond>("respond", read_fields("respond", &fields)?, timeout).await
    }

    async fn call_typed(
        &self,
        sid: Option<SessionId>,
        id: RequestId,
        command: HostCommand,
        timeout: Duration,
    ) -> Result<Wire<HostEvent>, CallError> {
        let frame = OutFrame::typed(sid, id, &command, self.inner.max_frame_bytes)?;
        self.ask(|reply| Command::Call { frame, timeout, reply }).await
    }

    async fn call_json<T: serde::de::DeserializeOwned>(
        &self,
        type_name: &'static str,
        fields: FrameFields,
        timeout: Duration,
    ) -> Result<Wire<HostEvent>, CallError> {
        let (frame, _) = OutFrame::fields::<T>(type_name, fields, self.inner.max_frame_bytes)?;
        self.ask(|reply| Command::Call { frame, timeout, reply }).await
    }

    /// Lifts a crash loop and gives the state after it. It does not start the host.
    ///
    /// # Errors
    /// Only if the supervisor's thread is gone.
    pub async fn reset(&self) -> Result<HostState, CallError> {
        self.ask(|reply| Command::Reset { reply }).await
    }

    /// Stops the host, letting open turns go on for `drain`, and starts it again; sessions are seeded again.
    ///
    /// # Errors
    /// Those of [`HostSupervisor::start`].
    pub async fn restart(&self, drain: Duration) -> Result<HostReady, CallError> {
        let budget = StopOptions::default().budget.saturating_add(drain);
        let plan = StopPlan { drain, budget, restart: true };
        self.ask(|reply| Command::Restart { plan, reply }).await
    }

    /// Stops the host and tells how. Open turns end `shutdown` (within the budget, before this returns). Fine when it
    /// is stopped already. Only [`HostSupervisor::start`] starts it again.
    ///
    /// # Errors
    /// Only if the supervisor's thread is gone.
    pub async fn shutdown(&self, options: StopOptions) -> Result<StopSummary, CallError> {
        let plan = StopPlan { drain: options.drain, budget: options.budget, restart: false };
        let summary = self.ask(|reply| Command::Stop { plan, reply }).await;
        // Whoever called with callbacks may rely on their having run; one that hangs delays it by this much.
        if let Some(marker) = self.inner.delivery.marker() {
            let _ = self.ask(|reply| Command::Await { marker, limit: CALLBACK_WAIT, reply }).await;
        }
        summary
    }

    /// Waits until a call can be handed in at once, behind every caller that waits already. Whoever makes many calls
    /// beside one another, and polls each for the first time right after this, has them taken in that order.
    pub async fn room(&self) {
        if let Some(commands) = &self.inner.commands {
            // The place is given back: nobody else takes it before a caller that polls its call now.
            drop(commands.reserve().await);
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, CallError> {
        let (reply, answer) = oneshot::channel();
        let Some(commands) = &self.inner.commands else { return Err(CallError::gone()) };
        commands.send(command(reply)).await.map_err(|_| CallError::gone())?;
        answer.await.unwrap_or_else(|_| Err(CallError::gone()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The actor sees the end of its orders, lets go of everything and returns.
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let thread = thread.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            let _ = thread.recv_timeout(DROP_WAIT);
        }
    }
}

fn classified(route_name: Option<&str>) -> Result<(), CallError> {
    let name = route_name.unwrap_or_default();
    match Route::from_name(name) {
        Some(_) => Ok(()),
        None => {
            let text = format!("unclassified route: {name}; it is not in the route table, nothing was sent");
            Err(CallError::new(ErrorKind::UnclassifiedRoute, text))
        }
    }
}

fn check(config: &Config) -> Result<(), CallError> {
    if config.argv.is_empty() {
        return Err(CallError::usage("argv is empty: name the host's program"));
    }
    if config.max_frame_bytes < limits::MIN_FRAME_BYTES {
        return Err(CallError::usage(format!(
            "max_frame_bytes is {}; it must be at least {}",
            config.max_frame_bytes,
            limits::MIN_FRAME_BYTES
        )));
    }
    Ok(())
}
