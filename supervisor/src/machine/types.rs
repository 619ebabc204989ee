//! The words that the machine and its driver speak: requests and inputs in, effects and endings out.

use crate::restart::RestartPolicy;
use std::fmt;
use std::time::{Duration, Instant};
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{ErrorKind, FailReason, RequestId, SessionId};

/// The figures that the machine decides by.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// From spawn to hello.
    pub hello_timeout: Duration,
    /// Silence after which a host that has sent a heartbeat is hung; `None` = never.
    pub hang_after: Option<Duration>,
    /// A write without progress for this long makes the host hung.
    pub write_stall: Duration,
    /// Back-off and budget.
    pub restart: RestartPolicy,
    /// Each of the two waits of a stop.
    pub grace: Duration,
    /// How long a request waits for a child.
    pub unavailable_after: Duration,
    /// Requests that may wait unsent.
    pub max_waiting: usize,
    /// Bytes of them.
    pub max_waiting_bytes: usize,
    /// How long a respawn waits for the old tree to be gone.
    pub sweep_timeout: Duration,
}

/// What a request is, as far as endings differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// `turn.start`.
    Turn,
    /// `interrupt`, of one turn or of whichever runs.
    Interrupt {
        /// The turn meant.
        turn_id: Option<RequestId>,
    },
    /// `control`, `reload_mcp`, `respond`.
    Call,
    /// `session.seed` from the embedder.
    Seed,
}

/// A request on its way in.
#[derive(Debug)]
pub(crate) struct Request<W> {
    pub id: RequestId,
    pub sid: SessionId,
    pub kind: RequestKind,
    /// The frame with its newline.
    pub line: Vec<u8>,
    /// When a call is answered `timeout`; a turn has none.
    pub deadline: Option<Instant>,
    pub waiter: W,
}

/// Whether an accepted request is on its way to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubmitPhase {
    /// It waits for a child.
    Waiting,
    /// A child is ready and it is in the queue to its stdin.
    Sent,
}

/// A request that was not accepted; the waiter comes back unspent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused<W> {
    pub waiter: W,
    pub kind: ErrorKind,
    pub detail: String,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    /// It is gone and nobody could tell how (the guard died with it).
    Unknown,
}

impl fmt::Display for Exit {
    /// Fits "the host {exit}".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with status {code}"),
            Self::Signal(signal) => {
                write!(f, "was ended by signal {signal} ({})", crate::status::signal_name(*signal))
            }
            Self::Unknown => f.write_str("is gone, nobody knows how"),
        }
    }
}

/// Why a start failed: the kind of the closed table, and the words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartFault {
    pub kind: ErrorKind,
    pub detail: String,
    /// What the system answered, if a call of ours was refused.
    pub errno: Option<i32>,
    /// The process that stands in the way.
    pub pid: Option<i32>,
}

impl StartFault {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errno: None, pid: None }
    }
}

/// What a stop may take. `drain` lets open turns finish; `budget` bounds everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StopPlan {
    pub drain: Duration,
    pub budget: Duration,
    /// Start again afterwards (`restart`).
    pub restart: bool,
}

/// What happened in the world. Everything from a child carries its epoch; an old one changes nothing.
#[derive(Debug)]
pub(crate) enum Input<R> {
    /// Someone wants the host up.
    Start,
    /// Someone wants it down.
    Stop(StopPlan),
    /// An operator lifts a crash loop.
    Reset,
    /// No child came of it. `permanent`: trying again cannot help.
    SpawnFailed { epoch: u64, fault: StartFault, permanent: bool },
    /// The child's first hello, judged by the driver.
    Hello { epoch: u64, verdict: Result<(), StartFault> },
    /// A well-formed hello of another boot on the same pipe: the child restarted itself.
    HostRestarted { epoch: u64 },
    /// The seeds to be sent before anything else, encoded.
    Reseeded { epoch: u64, lines: Vec<Vec<u8>> },
    /// Any complete frame.
    Alive { epoch: u64 },
    /// A heartbeat (a sign of life as well).
    Heartbeat { epoch: u64 },
    /// `turn.started`.
    TurnStarted { epoch: u64, id: RequestId },
    /// A frame that ends the request `id`.
    Answer { epoch: u64, id: RequestId, reply: R },
    /// A terminal frame that cannot be believed or was too long: `protocol` or `frame_too_large`.
    TurnFailed { epoch: u64, id: RequestId, reason: FailReason, detail: String },
    /// So many bytes of [`super::Machine::outgoing`] went into the pipe.
    Wrote { epoch: u64, bytes: usize },
    /// Its stdin is broken, or its stdout ended: nothing more can be had from it.
    WriteFailed { epoch: u64 },
    /// The child is gone, and all that its stdout held has been read.
    Exited { epoch: u64, exit: Exit },
    /// The child's tree is gone, but for these.
    Swept { epoch: u64, survivors: Vec<i32> },
    /// Time has passed.
    Tick,
}

/// What the driver must do.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect<W, R> {
    Spawn {
        epoch: u64,
    },
    /// Write the registry file.
    Register {
        epoch: u64,
    },
    /// Remove it.
    Unregister {
        epoch: u64,
    },
    /// Collect the seeds, then [`Input::Reseeded`].
    Reseed {
        epoch: u64,
    },
    /// Close the child's stdin and send TERM to its session.
    Term {
        epoch: u64,
    },
    /// Kill its tree.
    Kill {
        epoch: u64,
    },
    /// It will not die: let go of its pipes; nothing of it is waited for any more.
    Abandon {
        epoch: u64,
    },
    /// Spend the waiter.
    Resolve {
        waiter: W,
        ending: Ending<R>,
    },
    /// Every waiting `start` is answered.
    Started(Result<u64, StartFault>),
    /// Every waiting `stop` and `restart` is answered.
    Stopped(StopReport),
    /// Something to be counted.
    Count(Counted),
    /// The public state changed to this. One for each change, in order: nothing is merged.
    Publish(Snapshot),
}

/// The public state of the host, as far as the machine knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub state: HostState,
    /// Number of the incarnation that lives, or of the last one; 0 before the first.
    pub epoch: u64,
    /// Children started in place of one that failed, since the supervisor began.
    pub restarts: u64,
    /// While backing off: when the next child is started at the latest.
    pub next_start_at: Option<Instant>,
}

/// An open request, for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenRequest<'a> {
    pub id: &'a RequestId,
    pub sid: &'a SessionId,
    pub kind: &'a RequestKind,
    pub phase: OpenPhase,
    /// When it was accepted.
    pub since: Instant,
}

/// How far an open request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenPhase {
    /// No byte of it was handed to a child: a crash takes nothing from it.
    Waiting,
    /// At least a byte was handed over.
    Sent,
    /// Its `turn.started` was seen.
    Started,
}

/// How a request ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Ending<R> {
    /// The host answered.
    Reply(R),
    /// A turn that was interrupted before a byte of it was sent.
    InterruptedUnsent,
    /// An interrupt answered without the host.
    Interrupt { outcome: InterruptOutcome, turn: Option<RequestId> },
    /// A turn failed. `turn_started` as in `turn.error`.
    TurnFailed {
        reason: FailReason,
        turn_started: Option<bool>,
        exit: Option<Exit>,
        detail: String,
        epoch: u64,
    },
    /// A call failed.
    CallFailed { kind: ErrorKind, detail: String },
}

/// Frames that named no open request, by what is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    /// The answer of a call that had timed out.
    LateAck,
    /// A second terminal frame of a turn.
    DuplicateTerminal,
    /// A frame of an earlier incarnation, or of a turn after its end.
    LateFrame,
    /// An id never heard of.
    UnknownRequest,
}

/// What a frame of a turn belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'a, W> {
    /// An open turn of this incarnation.
    Open(&'a W),
    /// It ended, or belongs to an earlier incarnation.
    Late,
    /// Never heard of.
    Unknown,
}

/// One step of a stop and when it was taken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct StopStep {
    /// `drain`, `ask`, `term`, `kill`, `exited`, `swept` or `abandoned`.
    pub step: &'static str,
    /// Milliseconds since the stop began.
    pub at_ms: u64,
}

/// What a stop did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StopReport {
    pub exit: Option<Exit>,
    pub steps: Vec<StopStep>,
    pub survivors: Vec<i32>,
}

/// The public word for where the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostState {
    /// No child; a start, or a submit if it was never stopped on purpose, makes one.
    Stopped,
    /// A child was spawned and has not said hello.
    Starting,
    /// Turns are accepted and sent.
    Ready,
    /// No child until the back-off is over; turns wait.
    BackingOff,
    /// Too many crashes: every call is refused until `reset`.
    CrashLooped,
    /// A stop is under way; new turns are refused.
    Draining,
}
