//! The driver of one host: owns machine, child, timers, ledger and registry, on a thread of its own.
//!
//! It waits for whatever happens first, tells the machine, and does what the machine says. It decides nothing.
//!
//! | file | does |
//! |---|---|
//! | `orders.rs` | what handles ask |
//! | `inbound.rs` | lines from the host to inputs of the machine and events of a mailbox |
//! | `refused.rs` | lines that are no frames, or cannot be believed |
//! | `effects.rs` | what the machine wants done to the world |
//! | `answers.rs` | endings to those who wait for them |
//! | `reseeding.rs` | the seeds of a new host |
//! | `view.rs` | status, state and counters |

mod answers;
mod effects;
#[cfg(test)]
pub(crate) mod fake;
mod inbound;
mod orders;
mod refused;
mod reseeding;
#[cfg(test)]
mod tests;
mod view;

use crate::child::{Child, ChildEvent, Spawn, SpawnError};
use crate::command::{Command, Reply, SeedRecord};
use crate::config::Config;
use crate::environment::host_environment;
use crate::events::Subscribers;
use crate::handle::{InterruptResult, StopSummary};
use crate::hello::Expectations;
use crate::io::{IoEvent, Running, Wrote};
use crate::ledger::Ledger;
use crate::machine::{Effect, Exit, Input, Machine, Policy};
use crate::mailbox::Permit;
use crate::reseed::ReseedSource;
use crate::status::{Counters, HostReady, StateSnapshot};
use crate::tail::LineTail;
use crate::turn::Wire;
use effects::RegistryState;
use reseeding::{Asking, Histories, Reseeding};
use std::cell::Cell;
use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::time::Sleep;
use turnhost_protocol::frame::SessionSeeded;
use turnhost_protocol::{HostEvent, RequestId, SessionId, limits};
use view::{LastHello, NoticeBudget};

/// Bytes of unsent frames that may wait for a child, over all requests.
const MAX_WAITING_BYTES: usize = 256 * 1024 * 1024;
/// How long a respawn waits for the old tree to be gone.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Orders that are taken before the pipes are looked at again.
const ORDERS_AT_ONCE: usize = 64;
/// Lines of stray text that are kept.
const STRAY_TAIL_LINES: usize = 40;

/// The actor's ends of a handle's channels.
pub(crate) struct Parts {
    pub orders: mpsc::Receiver<Command>,
    pub publish: watch::Sender<StateSnapshot>,
    pub subscribers: Arc<Subscribers>,
}

/// Who waits for a request.
#[derive(Debug)]
pub(crate) enum Waiter {
    Turn {
        permit: Permit,
        /// The turn brought a history of its own.
        fresh_history: bool,
        /// A frame of it has come.
        begun: Cell<bool>,
    },
    Call {
        sid: SessionId,
        reply: Reply<Wire<HostEvent>>,
    },
    Seed {
        record: SeedRecord,
        reply: Reply<Wire<SessionSeeded>>,
    },
    Interrupt {
        reply: Reply<InterruptResult>,
    },
}

/// A frame that answers a request, with its text.
#[derive(Debug)]
pub(crate) struct HostReply {
    pub frame: HostEvent,
    pub text: String,
}

/// What ends a spawn: a registry that was opened on the way, and the child.
struct Spawned {
    registry: Option<RegistryState>,
    child: Result<Child, SpawnError>,
}

type SpawnJob = Pin<Box<dyn Future<Output = Spawned>>>;

pub(crate) struct Actor {
    config: Config,
    expectations: Expectations,
    orders: mpsc::Receiver<Command>,
    publish: watch::Sender<StateSnapshot>,
    subscribers: Arc<Subscribers>,

    machine: Machine<Waiter, HostReply>,
    effects: Vec<Effect<Waiter, HostReply>>,
    /// The machine's deadline, never later than it; rearmed when it is reached.
    timer: Pin<Box<Sleep>>,
    armed_at: Option<Instant>,

    /// An async mutex, so that a spawn that is cancelled does not take the spawner with it.
    spawner: Rc<AsyncMutex<Box<dyn Spawn>>>,
    spawning: Option<(u64, SpawnJob)>,
    running: Option<Running>,
    registry: RegistryState,

    ledger: Ledger,
    source: Option<ReseedSource>,
    reseeding: Option<Reseeding>,
    asking: Asking,
    /// Seeds that the host has not answered yet.
    reseeds: HashMap<RequestId, SessionId>,

    starts: Vec<Reply<HostReady>>,
    stops: Vec<Reply<StopSummary>>,

    counters: Counters,
    notices: NoticeBudget,
    stderr: LineTail,
    stray: LineTail,
    last_exit: Option<Exit>,
    last_hello: LastHello,
    /// Bytes and last part of a frame that the last child did not finish, and which child.
    unfinished: Option<(u64, u64, String)>,
}

/// What happened first.
enum Wake {
    Order(Option<Command>),
    Io(IoEvent),
    Spawned(u64, Box<Spawned>),
    Histories(Option<Histories>),
    Timer,
}

/// Runs an actor on this thread until its orders end.
pub(crate) fn run_thread(runtime: tokio::runtime::Runtime, make: impl FnOnce() -> Actor) {
    runtime.block_on(async move { make().run().await });
}

impl Actor {
    /// Must be called inside a runtime with time.
    pub(crate) fn new(
        config: Config,
        source: Option<ReseedSource>,
        spawn: Box<dyn Spawn>,
        parts: Parts,
    ) -> Self {
        let environment = host_environment(&config, std::env::vars_os());
        let now = Instant::now();
        Self {
            expectations: Expectations::new(&config, &environment),
            orders: parts.orders,
            publish: parts.publish,
            subscribers: parts.subscribers,
            machine: Machine::new(policy(&config), jitter_seed()),
            effects: Vec::new(),
            timer: Box::pin(tokio::time::sleep_until(now.into())),
            armed_at: None,
            spawner: Rc::new(AsyncMutex::new(spawn)),
            spawning: None,
            running: None,
            registry: RegistryState::default(),
            ledger: Ledger::new(crate::ledger::Bounds::default()),
            source,
            reseeding: None,
            asking: Asking::default(),
            reseeds: HashMap::new(),
            starts: Vec::new(),
            stops: Vec::new(),
            counters: Counters::default(),
            notices: NoticeBudget::default(),
            stderr: LineTail::new(limits::STDERR_TAIL_LINES, limits::STDERR_LINE_BYTES),
            stray: LineTail::new(STRAY_TAIL_LINES, limits::STRAY_SHOWN_BYTES),
            last_exit: None,
            last_hello: LastHello::default(),
            unfinished: None,
            config,
        }
    }

    /// Ends when the last handle is gone. What is open then ends `dropped`, and the child's pipes close.
    pub(crate) async fn run(mut self) {
        loop {
            self.arm();
            match self.next().await {
                Wake::Order(Some(order)) => self.on_orders(order),
                Wake::Order(None) => break,
                Wake::Io(event) => self.on_io(event).await,
                Wake::Spawned(epoch, spawned) => self.on_spawned(epoch, *spawned),
                Wake::Histories(histories) => self.on_histories(histories),
                Wake::Timer => {
                    self.armed_at = None;
                    self.input(Input::Tick);
                }
            }
        }
    }

    /// A burst of orders becomes one write, and is on its way before anything else is looked at.
    fn on_orders(&mut self, first: Command) {
        self.on_order(first);
        for _ in 1..ORDERS_AT_ONCE {
            match self.orders.try_recv() {
                Ok(order) => self.on_order(order),
                Err(_) => break,
            }
        }
        if let Some(running) = &mut self.running
            && let Some(wrote) = running.write_now(&self.machine)
        {
            self.on_wrote(wrote);
        }
    }

    fn on_wrote(&mut self, wrote: std::io::Result<Wrote>) {
        let Some(running) = &mut self.running else { return };
        let epoch = running.epoch;
        match wrote {
            Ok(wrote) => {
                self.counters.bytes_out += wrote.bytes as u64;
                self.counters.frames_out += wrote.frames;
                self.input(Input::Wrote { epoch, bytes: wrote.bytes });
            }
            Err(error) => {
                tracing::debug!(epoch, %error, "the host's stdin is broken");
                running.stdin = None;
                self.input(Input::WriteFailed { epoch });
            }
        }
    }

    /// Every branch may be cancelled when another is first: nothing is lost by it.
    async fn next(&mut self) -> Wake {
        let Self { orders, running, machine, spawning, reseeding, timer, armed_at, .. } = self;
        tokio::select! {
            order = orders.recv() => Wake::Order(order),
            event = poll_fn(|context| match running.as_mut() {
                Some(running) => running.poll_io(context, machine),
                None => std::task::Poll::Pending,
            }) => Wake::Io(event),
            (epoch, spawned) = async {
                match spawning.as_mut() {
                    Some((epoch, job)) => (*epoch, job.await),
                    None => pending().await,
                }
            } => Wake::Spawned(epoch, Box::new(spawned)),
            histories = async {
                match reseeding.as_mut() {
                    Some(reseeding) => reseeding.wait().await,
                    None => pending().await,
                }
            } => Wake::Histories(histories),
            () = timer.as_mut(), if armed_at.is_some() => Wake::Timer,
        }
    }

    /// The timer is moved only if it would be late: a deadline that moves away with every frame costs nothing.
    fn arm(&mut self) {
        let Some(deadline) = self.machine.next_deadline() else { return };
        if self.armed_at.is_none_or(|at| deadline < at) {
            self.armed_at = Some(deadline);
            self.timer.as_mut().reset(deadline.into());
        }
    }

    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// Tells the machine and does what it says.
    fn input(&mut self, input: Input<HostReply>) {
        self.machine.handle(Self::now(), input, &mut self.effects);
        self.perform();
    }

    /// Does everything that is to be done, in order; what that leads to as well.
    fn perform(&mut self) {
        while !self.effects.is_empty() {
            for effect in std::mem::take(&mut self.effects) {
                self.perform_one(effect);
            }
        }
    }

    async fn on_io(&mut self, event: IoEvent) {
        let Some(running) = &mut self.running else { return };
        let epoch = running.epoch;
        match event {
            IoEvent::Stdout(Ok(0) | Err(_)) => running.stdout_ended(),
            IoEvent::StdoutClosed => {
                // Nothing can come from it any more, not even an answer, as if its stdin were broken.
                tracing::debug!(epoch, "the host has closed its stdout");
                self.input(Input::WriteFailed { epoch });
            }
            IoEvent::Stdout(Ok(bytes)) => {
                self.counters.bytes_in += bytes as u64;
                self.on_lines(false);
            }
            IoEvent::Stderr(Ok(0) | Err(_)) => running.stderr_open = false,
            IoEvent::Stderr(Ok(bytes)) => self.stderr.push(running.stderr_bytes(bytes)),
            IoEvent::Wrote(wrote) => self.on_wrote(wrote),
            IoEvent::Child(Some(ChildEvent::Exited(exit))) => self.on_exited(exit).await,
            IoEvent::Child(Some(ChildEvent::Swept(survivors))) => self.on_swept(survivors),
            IoEvent::Child(None) => {
                // Whoever watched the child is gone without a word.
                if !running.exited {
                    self.on_exited(Exit::Unknown).await;
                }
                self.on_swept(Vec::new());
            }
        }
    }

    /// The last words of a dead child are taken before its end is told, and not one byte more is waited for: a
    /// grandchild may hold the pipe open for ever.
    async fn on_exited(&mut self, exit: Exit) {
        let Some(running) = &mut self.running else { return };
        if std::mem::replace(&mut running.exited, true) {
            return;
        }
        running.stdin = None;
        self.counters.bytes_in += running.take_last_words(&mut self.stderr).await;
        self.on_lines(true);
        self.last_exit = Some(exit);
        let Some(running) = &self.running else { return };
        let epoch = running.epoch;
        tracing::debug!(epoch, %exit, "the host has ended");
        self.input(Input::Exited { epoch, exit });
    }

    fn on_swept(&mut self, survivors: Vec<i32>) {
        let Some(running) = self.running.take() else { return };
        self.input(Input::Swept { epoch: running.epoch, survivors });
    }
}

impl Drop for Actor {
    /// Also if it panicked: nobody waits for ever. What is open ends `dropped` with the machine.
    fn drop(&mut self) {
        self.mark_handed_over();
        self.subscribers.close();
        self.registry.release();
    }
}

fn policy(config: &Config) -> Policy {
    let hang = config.heartbeat.saturating_mul(config.hang_after_heartbeats);
    Policy {
        hello_timeout: config.hello_timeout,
        hang_after: (!hang.is_zero()).then_some(hang),
        write_stall: config.write_stall,
        restart: config.restart,
        grace: config.grace,
        unavailable_after: config.unavailable_after,
        max_waiting: config.max_waiting,
        max_waiting_bytes: MAX_WAITING_BYTES,
        sweep_timeout: SWEEP_TIMEOUT,
    }
}

/// Different in every supervisor, so that many that fail together do not come back together.
fn jitter_seed() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    high ^ low
}
