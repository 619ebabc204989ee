//! What concerns the host and no turn of it: a stream for each subscriber, bounded, fed without ever waiting.

use crate::status::StateSnapshot;
use serde::{Serialize, Serializer};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use turnhost_protocol::{RawJson, SessionId};

/// Bytes of `rpc`, `stray` and `protocol_error` events that one stream holds; more is dropped and told as `lagged`.
const HELD_BYTES: usize = 64 * 1024 * 1024;
/// Events of those kinds that one stream holds.
const HELD_EVENTS: usize = 16 * 1024;
/// State and session events that one stream holds beyond that: more than a day of a reader that never reads.
const HELD_STATES: usize = 64 * 1024;

/// Something that happened to the host. Serialises to the event lines of `turnhost supervise`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum HostNotice {
    /// The state changed. Never merged, never dropped for a slow reader.
    State(StateSnapshot),
    /// A JSON-RPC object for the front end: from the host as it came, or the supervisor's `error` event beside a
    /// `turn.error` of its own.
    Rpc {
        /// The object.
        message: RawJson,
    },
    /// A line on the host's stdout that is no frame. At most 20 a second with `ProtocolError` together.
    Stray {
        /// The line, escaped, cut at 4 KiB.
        line: String,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The host broke a rule.
    ProtocolError {
        /// Which.
        kind: ProtocolErrorKind,
        /// For people.
        detail: String,
    },
    /// A session that was seeded could not be given to the new host: its history was too big to keep or not known, or
    /// the host refused it. Its next turn is told as well ([`crate::TurnEvent::SessionLost`]); seeding it before that
    /// makes it whole.
    SessionLost {
        /// The session.
        sid: SessionId,
    },
    /// The reader of this stream was too slow; so many `rpc`, `stray` and `protocol_error` events were dropped here.
    Lagged {
        /// How many.
        events: u64,
        /// Their bytes.
        bytes: u64,
    },
}

/// Which rule of the protocol a host broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProtocolErrorKind {
    /// A line over the frame limit.
    Oversize,
    /// Nested too deep.
    Depth,
    /// Bad UTF-8 or a lone surrogate, repaired.
    Utf8,
    /// No JSON.
    Json,
    /// JSON, but no frame.
    NotObject,
    /// A known field with a wrong type, or a required one missing.
    BadField,
    /// A known field twice.
    DuplicateKey,
    /// A type that nobody knows; told once per type.
    UnknownType,
    /// A terminal frame behind other text: not believed.
    TerminalBehindText,
    /// A second hello of the same run, a malformed one, or frames before the first.
    HelloAgain,
    /// A request that was never open.
    UnknownRequest,
    /// A second terminal frame of a turn.
    DuplicateTerminal,
    /// A frame of a turn after its end, or of an earlier incarnation.
    LateFrame,
}

impl Serialize for HostNotice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(tag = "event", rename_all = "snake_case")]
        enum Line<'a> {
            State(&'a StateSnapshot),
            Stray { line: &'a str, bytes: u64 },
            ProtocolError { kind: ProtocolErrorKind, detail: &'a str },
            SessionLost { sid: &'a SessionId },
            Lagged { request_id: Option<()>, deltas: u64, events: u64, bytes: u64 },
        }
        #[derive(Serialize)]
        struct RpcLine<'a> {
            event: &'static str,
            message: &'a RawJson,
        }
        let line = match self {
            // A raw JSON value cannot stand in a tagged enum.
            Self::Rpc { message } => return RpcLine { event: "rpc", message }.serialize(serializer),
            Self::State(state) => Line::State(state),
            Self::Stray { line, bytes } => Line::Stray { line, bytes: *bytes },
            Self::ProtocolError { kind, detail } => Line::ProtocolError { kind: *kind, detail },
            Self::SessionLost { sid } => Line::SessionLost { sid },
            Self::Lagged { events, bytes } => {
                Line::Lagged { request_id: None, deltas: 0, events: *events, bytes: *bytes }
            }
        };
        line.serialize(serializer)
    }
}

impl HostNotice {
    /// The bytes it counts for; `None` for what is never dropped.
    fn droppable_bytes(&self) -> Option<usize> {
        match self {
            Self::State(_) | Self::SessionLost { .. } | Self::Lagged { .. } => None,
            Self::Rpc { message } => Some(message.as_str().len()),
            Self::Stray { line, .. } => Some(line.len()),
            Self::ProtocolError { detail, .. } => Some(detail.len()),
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    notices: VecDeque<HostNotice>,
    droppable: usize,
    bytes: usize,
    closed: bool,
    waker: Option<Waker>,
}

/// A mutex and not a channel: the sender looks at what is queued (to tell `lagged` in its place) and never waits.
type Shared = Mutex<Queue>;

fn lock(shared: &Shared) -> MutexGuard<'_, Queue> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events of one subscriber, from the moment it subscribed. Needs no particular runtime; does not keep the
/// supervisor alive.
#[derive(Debug)]
pub struct EventStream {
    shared: Arc<Shared>,
}

impl EventStream {
    /// The next event; `None` once the supervisor has ended and all was read.
    pub async fn next(&mut self) -> Option<HostNotice> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`EventStream::next`], for those who poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<HostNotice>> {
        let mut queue = lock(&self.shared);
        match queue.pop() {
            Some(notice) => Poll::Ready(Some(notice)),
            None if queue.closed => Poll::Ready(None),
            None => {
                queue.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The next event if there is one now.
    pub fn try_next(&mut self) -> Option<HostNotice> {
        lock(&self.shared).pop()
    }
}

impl Queue {
    fn pop(&mut self) -> Option<HostNotice> {
        let notice = self.notices.pop_front()?;
        if let Some(bytes) = notice.droppable_bytes() {
            self.droppable -= 1;
            self.bytes -= bytes;
        }
        Some(notice)
    }

    fn push(&mut self, notice: HostNotice) {
        match notice.droppable_bytes() {
            Some(bytes) if self.droppable >= HELD_EVENTS || self.bytes + bytes > HELD_BYTES => {
                return self.drop_one(bytes);
            }
            Some(bytes) => {
                self.droppable += 1;
                self.bytes += bytes;
            }
            None if self.notices.len() >= HELD_EVENTS + HELD_STATES => return self.drop_one(0),
            None => {}
        }
        self.notices.push_back(notice);
    }

    fn drop_one(&mut self, size: usize) {
        let size = size as u64;
        if let Some(HostNotice::Lagged { events, bytes }) = self.notices.back_mut() {
            *events += 1;
            *bytes += size;
        } else {
            self.notices.push_back(HostNotice::Lagged { events: 1, bytes: size });
        }
    }
}

/// The subscribers. Shared between the handle, which adds, and the actor, which sends: a mutex, so that subscribing
/// needs no answer from the actor and misses nothing after it returned.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    open: Vec<Weak<Shared>>,
    closed: bool,
}

impl Subscribers {
    pub(crate) fn subscribe(&self) -> EventStream {
        let mut streams = self.streams();
        let shared = Arc::new(Mutex::new(Queue { closed: streams.closed, ..Queue::default() }));
        streams.open.push(Arc::downgrade(&shared));
        EventStream { shared }
    }

    pub(crate) fn send(&self, notice: HostNotice) {
        self.each(|queue| queue.push(notice.clone()));
    }

    /// No more will come.
    pub(crate) fn close(&self) {
        self.streams().closed = true;
        self.each(|queue| queue.closed = true);
    }

    fn each(&self, mut act: impl FnMut(&mut Queue)) {
        let mut wakers = Vec::new();
        self.streams().open.retain(|stream| {
            let Some(shared) = stream.upgrade() else { return false };
            let mut queue = lock(&shared);
            act(&mut queue);
            wakers.extend(queue.waker.take());
            true
        });
        // Outside the locks: a waker is foreign code.
        wakers.into_iter().for_each(Waker::wake);
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn rpc(bytes: usize) -> HostNotice {
        HostNotice::Rpc { message: RawJson::from_value(&"x".repeat(bytes - 2)).unwrap() }
    }

    fn state() -> HostNotice {
        HostNotice::State(StateSnapshot::default())
    }

    #[test]
    fn every_subscriber_gets_every_event_from_its_subscription_on() {
        let subscribers = Subscribers::default();
        let mut early = subscribers.subscribe();
        subscribers.send(state());
        let mut late = subscribers.subscribe();
        subscribers.send(rpc(10));
        subscribers.close();
        assert_eq!(block_on(early.next()), Some(state()));
        for stream in [&mut early, &mut late] {
            assert_eq!(block_on(stream.next()), Some(rpc(10)));
            assert_eq!(block_on(stream.next()), None);
        }
        assert_eq!(block_on(subscribers.subscribe().next()), None, "nothing will come");
    }

    #[test]
    fn a_slow_reader_loses_rpc_events_in_their_place_and_no_state() {
        let subscribers = Subscribers::default();
        let mut stream = subscribers.subscribe();
        let half = HELD_BYTES / 2;
        for _ in 0..4 {
            subscribers.send(rpc(half));
        }
        subscribers.send(state());
        subscribers.send(rpc(half));
        let lagged = |events, bytes| Some(HostNotice::Lagged { events, bytes });
        assert!(matches!(stream.try_next(), Some(HostNotice::Rpc { .. })));
        assert!(matches!(stream.try_next(), Some(HostNotice::Rpc { .. })));
        assert_eq!(stream.try_next(), lagged(2, HELD_BYTES as u64));
        assert_eq!(stream.try_next(), Some(state()));
        assert_eq!(stream.try_next(), lagged(1, half as u64));
        subscribers.send(rpc(half));
        assert!(matches!(stream.try_next(), Some(HostNotice::Rpc { .. })), "there is room again");
        assert_eq!(stream.try_next(), None);
    }

    #[test]
    fn the_number_of_events_is_bounded_too() {
        let subscribers = Subscribers::default();
        let mut stream = subscribers.subscribe();
        for _ in 0..HELD_EVENTS + 5 {
            subscribers.send(HostNotice::Stray { line: String::new(), bytes: 0 });
            subscribers.send(state());
        }
        let mut seen = (0, 0, 0);
        while let Some(notice) = stream.try_next() {
            match notice {
                HostNotice::Stray { .. } => seen.0 += 1,
                HostNotice::State(_) => seen.1 += 1,
                HostNotice::Lagged { events, .. } => seen.2 += events,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, (HELD_EVENTS, HELD_EVENTS + 5, 5));
    }

    #[test]
    fn a_stream_that_is_gone_is_forgotten() {
        let subscribers = Subscribers::default();
        drop(subscribers.subscribe());
        subscribers.send(state());
        assert!(subscribers.streams().open.is_empty());
    }

    #[test]
    fn each_serialises_to_its_line_of_supervise() {
        let line = |notice: &HostNotice| serde_json::to_value(notice).unwrap();
        assert_eq!(
            line(&state()),
            json!({
                "event": "state", "state": "stopped", "pid": null, "incarnation": 0, "boot_id": null,
                "restarts": 0, "last_exit": null, "next_start_in_ms": null
            })
        );
        let message = RawJson::parse(r#"{"b":1.0,"a":2}"#).unwrap();
        let rpc = serde_json::to_string(&HostNotice::Rpc { message }).unwrap();
        assert_eq!(rpc, r#"{"event":"rpc","message":{"b":1.0,"a":2}}"#);
        assert_eq!(
            line(&HostNotice::Stray { line: "x".to_owned(), bytes: 1 }),
            json!({"event": "stray", "line": "x", "bytes": 1})
        );
        assert_eq!(
            line(&HostNotice::SessionLost { sid: "s".into() }),
            json!({"event": "session_lost", "sid": "s"})
        );
        for (kind, word) in [
            (ProtocolErrorKind::Oversize, "oversize"),
            (ProtocolErrorKind::Depth, "depth"),
            (ProtocolErrorKind::Utf8, "utf8"),
            (ProtocolErrorKind::Json, "json"),
            (ProtocolErrorKind::NotObject, "not_object"),
            (ProtocolErrorKind::BadField, "bad_field"),
            (ProtocolErrorKind::DuplicateKey, "duplicate_key"),
            (ProtocolErrorKind::UnknownType, "unknown_type"),
            (ProtocolErrorKind::TerminalBehindText, "terminal_behind_text"),
            (ProtocolErrorKind::HelloAgain, "hello_again"),
            (ProtocolErrorKind::UnknownRequest, "unknown_request"),
            (ProtocolErrorKind::DuplicateTerminal, "duplicate_terminal"),
            (ProtocolErrorKind::LateFrame, "late_frame"),
        ] {
            let notice = HostNotice::ProtocolError { kind, detail: "d".to_owned() };
            assert_eq!(line(&notice), json!({"event": "protocol_error", "kind": word, "detail": "d"}));
        }
    }
}
