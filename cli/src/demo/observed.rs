//! What was seen of the play, in order: all that the plot, the judge and the screen know. Pure.

use crate::demo::cast::{HostName, Session, Turn};
use std::time::Duration;
use turnhost_protocol::FailReason;
use turnhost_supervisor::{HostState, StateSnapshot, TurnEvent, TurnOutcome};

/// One thing that was seen, or done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Observed {
    /// The state of a host changed.
    State { host: HostName, state: State },
    /// A session was given its history, so many messages.
    Seeded { session: Session, messages: Option<u64> },
    /// A turn was accepted.
    Submitted(Turn),
    /// An event of a turn.
    Turn { turn: Turn, event: Event },
    /// A host's process was sent SIGKILL.
    Killed { host: HostName, pid: i32 },
    /// So much is left until a host is started again.
    Countdown { host: HostName, left: Duration },
    /// A question of this session was answered with yes.
    Allowed(Session),
    /// Something that had to work was refused.
    Refused(String),
    /// From here on the hosts are being stopped.
    Stopping,
    /// A host was stopped; these of its processes could not be ended.
    Stopped { host: HostName, survivors: Vec<i32> },
    /// Processes that live although both hosts were stopped.
    Left(Vec<i32>),
}

/// A host's state, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub state: HostState,
    pub incarnation: u64,
    pub pid: Option<i32>,
    /// The signal that ended the last child.
    pub last_signal: Option<i32>,
}

impl State {
    pub(super) fn of(snapshot: &StateSnapshot) -> Self {
        Self {
            state: snapshot.state,
            incarnation: snapshot.incarnation,
            pid: snapshot.pid,
            last_signal: snapshot.last_exit.as_ref().and_then(|exit| exit.signal),
        }
    }
}

/// An event of a turn, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event {
    Started,
    Delta(String),
    /// It waits for the answer to this question.
    Question(String),
    /// Its host does not have the session's history.
    SessionLost,
    /// Anything else.
    Other,
    Ended(Ending),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ending {
    /// `turn.end`; so many messages are in the history now.
    Completed {
        messages: Option<u64>,
    },
    Interrupted,
    /// `turn.error`.
    Failed {
        reason: FailReason,
        signal: Option<i64>,
        message: String,
    },
}

impl Event {
    pub(super) fn of(event: &TurnEvent) -> Self {
        match event {
            TurnEvent::Started(_) => Self::Started,
            TurnEvent::Delta(delta) => Self::Delta(delta.text.clone()),
            TurnEvent::Event(frame) if frame.kind == "approval_request" => {
                #[derive(serde::Deserialize)]
                struct Question {
                    approval_id: String,
                }
                serde_json::from_str::<Question>(frame.to_json())
                    .map_or(Self::Other, |question| Self::Question(question.approval_id))
            }
            TurnEvent::SessionLost { .. } => Self::SessionLost,
            TurnEvent::Ended(TurnOutcome::Completed(end)) => {
                Self::Ended(Ending::Completed { messages: end.message_count })
            }
            TurnEvent::Ended(TurnOutcome::Interrupted(_)) => Self::Ended(Ending::Interrupted),
            TurnEvent::Ended(TurnOutcome::Failed(error)) => Self::Ended(Ending::Failed {
                reason: error.fail_reason(),
                signal: error.signal,
                message: error.message.clone(),
            }),
            _ => Self::Other,
        }
    }
}

impl Ending {
    /// True if the turn came to the end that the play has for it.
    pub(super) fn is_planned(&self, turn: Turn) -> bool {
        match self {
            Self::Completed { .. } => !turn.is_doomed(),
            Self::Failed { reason, .. } => turn.is_doomed() && *reason == FailReason::Crash,
            Self::Interrupted => false,
        }
    }
}
