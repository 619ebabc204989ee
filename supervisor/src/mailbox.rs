//! One mailbox per turn: the only way by which anything of a turn reaches its owner.
//!
//! Bounded, with a place kept for the end, which therefore always arrives and never overtakes. The sending side is the
//! permit for that end: spending it takes it, and losing it unspent spends it as `dropped`, so that exactly one ending
//! is a matter of ownership.

use crate::endings;
use crate::machine::SubmitPhase;
use crate::status::TurnPhase;
use crate::turn::{TurnDelta, TurnEvent, TurnOutcome};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use turnhost_protocol::frame::{Delivered, Delta};
use turnhost_protocol::{RequestId, SessionId};

#[cfg(test)]
mod tests;

/// What an entry costs beside its text.
const ENTRY_BYTES: usize = 64;

/// How much a mailbox holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Events before neighbouring deltas merge; twice as many are the most.
    pub events: usize,
    /// Bytes; from half of them on neighbouring deltas merge.
    pub bytes: usize,
}

#[derive(Debug)]
struct Queue {
    events: VecDeque<TurnEvent>,
    bytes: usize,
    outcome: Option<TurnOutcome>,
    phase: TurnPhase,
    handed_over: bool,
    delivered: Delivered,
    waker: Option<Waker>,
    /// Nobody will read events: the receiver is gone or wants the end only.
    discard: bool,
    /// The end was given as an event.
    finished: bool,
}

#[derive(Debug)]
struct Shared {
    sid: SessionId,
    request_id: RequestId,
    bounds: Bounds,
    /// A mutex and not a channel: the sender merges into what is queued, and never waits.
    queue: Mutex<Queue>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mailbox for one turn.
pub(crate) fn mailbox(sid: SessionId, request_id: RequestId, bounds: Bounds) -> (Permit, Receiver) {
    let queue = Queue {
        events: VecDeque::new(),
        bytes: 0,
        outcome: None,
        phase: TurnPhase::Waiting,
        handed_over: false,
        delivered: Delivered { deltas: 0, last_seq: None },
        waker: None,
        discard: false,
        finished: false,
    };
    let shared = Arc::new(Shared { sid, request_id, bounds, queue: Mutex::new(queue) });
    (Permit { shared: Some(Arc::clone(&shared)) }, Receiver { shared })
}

/// The sending side, and the right to end the turn once.
#[derive(Debug)]
pub(crate) struct Permit {
    /// Taken by the ending.
    shared: Option<Arc<Shared>>,
}

impl Permit {
    /// Adds an event. Merges it, or counts it as lagged, if the reader is behind.
    pub(crate) fn push(&self, event: TurnEvent) {
        let Some(shared) = &self.shared else { return };
        let mut queue = shared.lock();
        queue.count(&event);
        if !queue.discard {
            queue.push(event, shared.bounds);
        }
        wake(queue);
    }

    /// Adds a delta. Its text is copied only if somebody may read it.
    pub(crate) fn push_delta(&self, delta: Delta, text: Cow<'_, str>) {
        let Some(shared) = &self.shared else { return };
        let mut queue = shared.lock();
        let raw = (!queue.discard).then(|| text.into_owned());
        let event = TurnEvent::Delta(TurnDelta {
            text: delta.text,
            seq: delta.seq,
            pieces: 1,
            sid: shared.sid.clone(),
            request_id: shared.request_id.clone(),
            raw,
        });
        queue.count(&event);
        if !queue.discard {
            queue.push(event, shared.bounds);
        }
        wake(queue);
    }

    /// A byte of the turn is in a pipe: if the permit is lost, nobody can say what the host made of it.
    pub(crate) fn handed_over(&self) {
        if let Some(shared) = &self.shared {
            shared.lock().handed_over = true;
        }
    }

    /// `turn.started` has come.
    pub(crate) fn has_started(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.lock().phase == TurnPhase::Started)
    }

    /// Ends the turn.
    pub(crate) fn finish(mut self, outcome: TurnOutcome) {
        self.end(outcome);
    }

    /// Takes the mailbox back without an ending: the turn was refused and never was.
    pub(crate) fn revoke(mut self) {
        self.shared = None;
    }

    pub(crate) fn sid(&self) -> Option<&SessionId> {
        self.shared.as_ref().map(|shared| &shared.sid)
    }

    pub(crate) fn request_id(&self) -> Option<&RequestId> {
        self.shared.as_ref().map(|shared| &shared.request_id)
    }

    pub(crate) fn delivered(&self) -> Delivered {
        self.shared
            .as_ref()
            .map_or(Delivered { deltas: 0, last_seq: None }, |shared| shared.lock().delivered.clone())
    }

    fn end(&mut self, outcome: TurnOutcome) {
        let Some(shared) = self.shared.take() else { return };
        let mut queue = shared.lock();
        queue.phase = TurnPhase::Ended;
        queue.outcome = Some(outcome);
        wake(queue);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(shared) = &self.shared else { return };
        let queue = shared.lock();
        let turn_started = match queue.phase {
            TurnPhase::Started => Some(true),
            TurnPhase::Waiting | TurnPhase::Sent | TurnPhase::Ended => (!queue.handed_over).then_some(false),
        };
        let delivered = queue.delivered.clone();
        drop(queue);
        let outcome = endings::dropped(&shared.sid, &shared.request_id, turn_started, delivered);
        self.end(outcome);
    }
}

/// The waker is foreign code: it runs outside the lock.
fn wake(mut queue: MutexGuard<'_, Queue>) {
    let waker = queue.waker.take();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Queue {
    fn count(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::Started(_) => self.phase = TurnPhase::Started,
            TurnEvent::Delta(delta) => {
                self.delivered.deltas += delta.pieces;
                self.delivered.last_seq = delta.seq.or(self.delivered.last_seq);
            }
            TurnEvent::Event(frame) => self.delivered.last_seq = frame.seq.or(self.delivered.last_seq),
            TurnEvent::Lagged { .. } | TurnEvent::SessionLost { .. } | TurnEvent::Ended(_) => {}
        }
    }

    fn push(&mut self, event: TurnEvent, bounds: Bounds) {
        let size = size_of(&event);
        let behind = self.events.len() >= bounds.events || self.bytes + size > bounds.bytes / 2;
        if behind {
            if let (Some(TurnEvent::Delta(last)), TurnEvent::Delta(delta)) = (self.events.back_mut(), &event)
            {
                let freed = last.raw.take().map_or(0, |raw| raw.len());
                self.bytes -= freed;
                if self.bytes + delta.text.len() <= bounds.bytes {
                    last.text.push_str(&delta.text);
                    last.seq = delta.seq.or(last.seq);
                    last.pieces += delta.pieces;
                    self.bytes += delta.text.len();
                    return;
                }
            }
            let full = self.events.len() >= bounds.events.saturating_mul(2).max(1)
                || self.bytes + size > hard_bytes(&event, bounds);
            if full {
                return self.lag(&event);
            }
        }
        self.bytes += size;
        self.events.push_back(event);
    }

    fn lag(&mut self, event: &TurnEvent) {
        let (pieces, size) = match event {
            TurnEvent::Delta(delta) => (delta.pieces, delta.text.len()),
            TurnEvent::Event(frame) => (1, frame.to_json().len()),
            TurnEvent::Started(_) | TurnEvent::SessionLost { .. } => (1, 0),
            TurnEvent::Lagged { .. } | TurnEvent::Ended(_) => (0, 0),
        };
        if let Some(TurnEvent::Lagged { deltas, bytes }) = self.events.back_mut() {
            *deltas += pieces;
            *bytes += size as u64;
        } else {
            self.bytes += ENTRY_BYTES;
            self.events.push_back(TurnEvent::Lagged { deltas: pieces, bytes: size as u64 });
        }
    }

    fn pop(&mut self) -> Option<TurnEvent> {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= size_of(&event);
            return Some(event);
        }
        if self.finished {
            return None;
        }
        let outcome = self.outcome.clone()?;
        self.finished = true;
        Some(TurnEvent::Ended(outcome))
    }
}

/// Text yields before events do: a question that is lost would leave the turn waiting for its answer.
fn hard_bytes(event: &TurnEvent, bounds: Bounds) -> usize {
    match event {
        TurnEvent::Delta(_) => bounds.bytes,
        TurnEvent::Started(_)
        | TurnEvent::Event(_)
        | TurnEvent::Lagged { .. }
        | TurnEvent::SessionLost { .. }
        | TurnEvent::Ended(_) => bounds.bytes.saturating_mul(2),
    }
}

fn size_of(event: &TurnEvent) -> usize {
    ENTRY_BYTES
        + match event {
            TurnEvent::Delta(delta) => delta.text.len() + delta.raw.as_ref().map_or(0, String::len),
            TurnEvent::Started(frame) => frame.to_json().len(),
            TurnEvent::Event(frame) => frame.to_json().len(),
            TurnEvent::Lagged { .. } | TurnEvent::SessionLost { .. } | TurnEvent::Ended(_) => 0,
        }
}

/// The reading side.
#[derive(Debug)]
pub(crate) struct Receiver {
    shared: Arc<Shared>,
}

impl Receiver {
    pub(crate) fn request_id(&self) -> &RequestId {
        &self.shared.request_id
    }

    pub(crate) fn sid(&self) -> &SessionId {
        &self.shared.sid
    }

    pub(crate) fn phase(&self) -> TurnPhase {
        self.shared.lock().phase
    }

    /// The turn was accepted; its first frames may have come already.
    pub(crate) fn accepted(&self, phase: SubmitPhase) {
        let mut queue = self.shared.lock();
        if queue.phase == TurnPhase::Waiting && phase == SubmitPhase::Sent {
            queue.phase = TurnPhase::Sent;
        }
    }

    pub(crate) fn delivered(&self) -> Delivered {
        self.shared.lock().delivered.clone()
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        let mut queue = self.shared.lock();
        match queue.pop() {
            Some(event) => Poll::Ready(Some(event)),
            None if queue.finished => Poll::Ready(None),
            None => {
                queue.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(crate) fn try_next(&mut self) -> Option<TurnEvent> {
        self.shared.lock().pop()
    }

    /// From now on only the end is kept.
    pub(crate) fn discard_events(&mut self) {
        let mut queue = self.shared.lock();
        queue.discard = true;
        queue.bytes = 0;
        let dropped = std::mem::take(&mut queue.events);
        drop(queue);
        drop(dropped);
    }

    /// The end, also if it was taken as an event before.
    pub(crate) fn poll_outcome(&mut self, context: &mut Context<'_>) -> Poll<TurnOutcome> {
        let mut queue = self.shared.lock();
        match queue.outcome.clone() {
            Some(outcome) => {
                queue.finished = true;
                Poll::Ready(outcome)
            }
            None => {
                queue.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.discard_events();
    }
}
