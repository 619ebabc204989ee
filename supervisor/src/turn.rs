//! A turn as its owner sees it: the handle, what comes out of it, and how it ends.

use crate::mailbox::Receiver;
use crate::status::TurnPhase;
use serde::Serialize;
use std::borrow::Cow;
use std::ops::Deref;
use std::task::{Context, Poll};
use turnhost_protocol::frame::{Delivered, Event, TurnEnd, TurnError, TurnStarted};
use turnhost_protocol::{FailReason, RequestId, SessionId};

/// A frame, and the JSON text in which it came: unknown fields are in the text only.
#[derive(Debug, Clone, PartialEq)]
pub struct Wire<T> {
    frame: T,
    text: String,
}

impl<T> Wire<T> {
    pub(crate) fn new(frame: T, text: String) -> Self {
        Self { frame, text }
    }

    /// The frame as one JSON object, without a newline.
    pub fn to_json(&self) -> &str {
        &self.text
    }

    /// The frame alone.
    pub fn into_frame(self) -> T {
        self.frame
    }
}

impl<T> Deref for Wire<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.frame
    }
}

/// A piece of the answer; several pieces in one if the reader was slow.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TurnDelta {
    /// The text.
    pub text: String,
    /// `seq` of the last piece in it, if the host counts.
    pub seq: Option<u64>,
    /// Pieces in it, 1 if nothing was merged.
    pub pieces: u64,
    pub(crate) sid: SessionId,
    pub(crate) request_id: RequestId,
    /// The host's own text, while it is one piece.
    pub(crate) raw: Option<String>,
}

impl TurnDelta {
    /// A `delta` frame as one JSON object: the host's own if it is one piece, else with the merged text.
    pub fn to_json(&self) -> Cow<'_, str> {
        #[derive(Serialize)]
        struct Merged<'a> {
            r#type: &'static str,
            sid: &'a SessionId,
            request_id: &'a RequestId,
            text: &'a str,
            seq: Option<u64>,
        }
        match &self.raw {
            Some(raw) => Cow::Borrowed(raw),
            None => Cow::Owned(json(&Merged {
                r#type: "delta",
                sid: &self.sid,
                request_id: &self.request_id,
                text: &self.text,
                seq: self.seq,
            })),
        }
    }
}

/// What comes out of a turn, in the order in which it happened. `Ended` is the last, always comes, and comes once.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TurnEvent {
    /// `turn.started`: the agent runs.
    Started(Wire<TurnStarted>),
    /// A piece of the answer.
    Delta(TurnDelta),
    /// Something of the turn that is no text: a tool call, a question, usage.
    Event(Wire<Event>),
    /// The reader was so slow that so many deltas (and events) are missing here.
    Lagged {
        /// How many.
        deltas: u64,
        /// Bytes of their text.
        bytes: u64,
    },
    /// The host that runs this turn does not have the session's earlier history. Comes before anything else of the turn.
    SessionLost {
        /// The session.
        sid: SessionId,
    },
    /// The turn is over.
    Ended(TurnOutcome),
}

impl TurnEvent {
    /// The frame as one JSON object as the wire has it; `None` for what is no frame (`Lagged`, `SessionLost`).
    pub fn to_json(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Started(frame) => Some(frame.to_json().into()),
            Self::Delta(delta) => Some(delta.to_json()),
            Self::Event(frame) => Some(frame.to_json().into()),
            Self::Ended(outcome) => Some(outcome.to_json().into()),
            Self::Lagged { .. } | Self::SessionLost { .. } => None,
        }
    }
}

/// How a turn ended. Not an error: an ending is a value.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnOutcome {
    /// It ran to its end.
    Completed(Wire<TurnEnd>),
    /// It was interrupted.
    Interrupted(Wire<TurnEnd>),
    /// It failed: by the host's word, or by the supervisor's with every field of the specification.
    Failed(Wire<TurnError>),
}

impl TurnOutcome {
    pub(crate) fn ended(frame: TurnEnd, text: String) -> Self {
        if frame.interrupted {
            Self::Interrupted(Wire::new(frame, text))
        } else {
            Self::Completed(Wire::new(frame, text))
        }
    }

    pub(crate) fn failed(frame: TurnError, text: String) -> Self {
        Self::Failed(Wire::new(frame, text))
    }

    /// The terminal frame as one JSON object: the host's own, or the supervisor's.
    pub fn to_json(&self) -> &str {
        match self {
            Self::Completed(frame) | Self::Interrupted(frame) => frame.to_json(),
            Self::Failed(frame) => frame.to_json(),
        }
    }

    /// Why it failed; `None` if it did not.
    pub fn fail_reason(&self) -> Option<FailReason> {
        match self {
            Self::Completed(_) | Self::Interrupted(_) => None,
            Self::Failed(error) => Some(error.fail_reason()),
        }
    }
}

/// An accepted turn. Dropping it neither stops the turn nor loses anything but its events; to stop it, interrupt it.
///
/// Needs no particular runtime, and does not keep the supervisor alive: when that goes, the turn ends `dropped`.
#[derive(Debug)]
pub struct TurnHandle {
    mailbox: Receiver,
}

impl TurnHandle {
    pub(crate) fn new(mailbox: Receiver) -> Self {
        Self { mailbox }
    }

    /// Names the turn.
    pub fn request_id(&self) -> &RequestId {
        self.mailbox.request_id()
    }

    /// Its session.
    pub fn sid(&self) -> &SessionId {
        self.mailbox.sid()
    }

    /// How far it is: as it was when it was accepted, until `turn.started` comes. The status tells waiting turns from
    /// sent ones at any time.
    pub fn phase(&self) -> TurnPhase {
        self.mailbox.phase()
    }

    /// What of it was put in the mailbox so far.
    pub fn delivered(&self) -> Delivered {
        self.mailbox.delivered()
    }

    /// The next event; `None` after `Ended` was taken.
    pub async fn next(&mut self) -> Option<TurnEvent> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`TurnHandle::next`], for those who poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        self.mailbox.poll_next(context)
    }

    /// The next event if there is one now.
    pub fn try_next(&mut self) -> Option<TurnEvent> {
        self.mailbox.try_next()
    }

    /// Waits for the end and lets every event before it go.
    pub async fn outcome(mut self) -> TurnOutcome {
        self.mailbox.discard_events();
        std::future::poll_fn(|context| self.mailbox.poll_outcome(context)).await
    }
}

/// The JSON text of a value of ours, which always serialises.
pub(crate) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value);
    debug_assert!(text.is_ok(), "our own frames serialise");
    text.unwrap_or_default()
}
