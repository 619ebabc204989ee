//! What can be seen of a supervisor: the whole status, and the watch of its state.

use crate::machine::{Exit, HostState};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Instant;
use tokio::sync::watch;
use turnhost_protocol::{FailReason, RequestId, SessionId};

/// A host that is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HostReady {
    /// The process that the guard started.
    pub pid: i32,
    /// Which child, counted from 1 over the life of the supervisor.
    pub incarnation: u64,
    /// Names this run of the host.
    pub boot_id: String,
    /// Build of the host, if it names one.
    pub build_sha: Option<String>,
    /// Protocol version; 0 for a host that names none.
    pub protocol: u32,
    /// What the start-up reconcile of the registry found; `None` without a registry.
    pub reconciled: Option<String>,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LastExit {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Number of the signal that ended it, if one did.
    pub signal: Option<i32>,
    /// The name of that signal, as `SIGKILL`.
    pub signal_name: Option<String>,
}

impl LastExit {
    pub(crate) fn of(exit: Exit) -> Self {
        let (code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
            Exit::Unknown => (None, None),
        };
        Self { code, signal, signal_name: signal.map(signal_name) }
    }
}

/// `SIGKILL` for 9; `SIG<n>` for one without a name (real-time signals).
pub(crate) fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("SIG{signal}"), |signal| signal.as_str().to_owned())
}

/// Where the supervisor is now. A value: it does not change after it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateSnapshot {
    /// The word.
    pub state: HostState,
    /// The host's process, while there is one.
    pub pid: Option<i32>,
    /// The child that lives, or the last that did; 0 before the first.
    pub incarnation: u64,
    /// Names the run of the host, after its hello and until it ends.
    pub boot_id: Option<String>,
    /// Starts after the first that answered a failure, over the life of the supervisor.
    pub restarts: u64,
    /// How the last child ended.
    pub last_exit: Option<LastExit>,
    /// When the next start is due, while backing off.
    pub next_start_at: Option<Instant>,
    /// When the last heartbeat came.
    pub last_heartbeat: Option<Instant>,
}

impl Default for StateSnapshot {
    fn default() -> Self {
        Self {
            state: HostState::Stopped,
            pid: None,
            incarnation: 0,
            boot_id: None,
            restarts: 0,
            last_exit: None,
            next_start_at: None,
            last_heartbeat: None,
        }
    }
}

impl Serialize for StateSnapshot {
    /// The fields of a `state` event; times become milliseconds from now.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = serializer.serialize_struct("StateSnapshot", 7)?;
        fields.serialize_field("state", &self.state)?;
        fields.serialize_field("pid", &self.pid)?;
        fields.serialize_field("incarnation", &self.incarnation)?;
        fields.serialize_field("boot_id", &self.boot_id)?;
        fields.serialize_field("restarts", &self.restarts)?;
        fields.serialize_field("last_exit", &self.last_exit)?;
        let next = self.next_start_at.map(|at| millis(at.saturating_duration_since(Instant::now())));
        fields.serialize_field("next_start_in_ms", &next)?;
        fields.end()
    }
}

/// Follows the state. Cheap to clone; needs no particular runtime; does not keep the supervisor alive.
#[derive(Debug, Clone)]
pub struct StateWatch {
    pub(crate) receiver: watch::Receiver<StateSnapshot>,
}

impl StateWatch {
    /// The state now. Heartbeats are in it, but do not wake [`StateWatch::changed`].
    pub fn current(&self) -> StateSnapshot {
        self.receiver.borrow().clone()
    }

    /// Waits until the state differs from the one seen last, and gives it. States in between may be missed; the
    /// `State` events of [`crate::EventStream`] miss none. `None` once the supervisor has ended.
    pub async fn changed(&mut self) -> Option<StateSnapshot> {
        self.receiver.changed().await.ok()?;
        Some(self.receiver.borrow_and_update().clone())
    }
}

/// How far an open turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnPhase {
    /// It waits: in a status, no byte of it was handed to a child; in the answer to a submit, no child is ready.
    Waiting,
    /// In a status, at least a byte was handed over; in the answer to a submit, a child is ready and it is next in line.
    Sent,
    /// The host said `turn.started`.
    Started,
    /// It is over. Never in a status.
    Ended,
}

/// An open turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenTurn {
    /// Names the turn.
    pub request_id: RequestId,
    /// Its session.
    pub sid: SessionId,
    /// How far it is.
    pub phase: TurnPhase,
    /// Milliseconds since it was accepted.
    pub since_ms: u64,
}

/// What is open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenRequests {
    /// Turns, oldest first.
    pub turns: Vec<OpenTurn>,
    /// Controls, reloads, responds, interrupts and seeds.
    pub controls: usize,
}

/// Counted since the supervisor was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Frames read from hosts.
    pub frames_in: u64,
    /// Frames written whole to hosts.
    pub frames_out: u64,
    /// Bytes read from stdout of hosts.
    pub bytes_in: u64,
    /// Bytes written to stdin of hosts.
    pub bytes_out: u64,
    /// Turns that ended with `turn.end`, interrupted ones included.
    pub turns_ended: u64,
    /// Turns that ended with `turn.error`, by reason.
    pub turns_failed: BTreeMap<FailReason, u64>,
    /// Lines on stdout that were no frames, and frames behind other text.
    pub stray_lines: u64,
    /// Broken rules, by whatever kind.
    pub protocol_errors: u64,
    /// Frames of an earlier incarnation, or of a turn after its end.
    pub late_frames: u64,
    /// Answers to calls that had timed out.
    pub late_acks: u64,
    /// Second terminal frames of turns.
    pub duplicate_terminals: u64,
}

/// Everything about a supervisor at one moment. Serialises to the `status` row of `turnhost supervise`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HostStatus {
    /// The word.
    pub state: HostState,
    /// The host's process, while there is one.
    pub pid: Option<i32>,
    /// The guard's process, while there is one.
    pub guard_pid: Option<i32>,
    /// The child that lives, or the last that did; 0 before the first.
    pub incarnation: u64,
    /// Names the run of the host.
    pub boot_id: Option<String>,
    /// Build of the host, if it names one.
    pub build_sha: Option<String>,
    /// Milliseconds since the child was started.
    pub uptime_ms: Option<u64>,
    /// Starts after the first that answered a failure.
    pub restarts: u64,
    /// Milliseconds until the next start, while backing off.
    pub next_start_in_ms: Option<u64>,
    /// How the last child ended.
    pub last_exit: Option<LastExit>,
    /// Milliseconds since the last heartbeat.
    pub last_heartbeat_ms_ago: Option<u64>,
    /// Open turns of which the host was handed at least a byte.
    pub active_turns: usize,
    /// What is open.
    pub open: OpenRequests,
    /// Counted since the supervisor was made.
    pub counters: Counters,
    /// Last lines of the host's stderr, each bounded; of the last child if none lives.
    pub stderr_tail: Vec<String>,
    /// Last lines of stdout that were no frames, escaped, each bounded.
    pub stray_tail: Vec<String>,
    /// The registry file; `None` if the host runs unregistered.
    pub registry: Option<String>,
}

/// A number of milliseconds that fits every reader of JSON.
pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
