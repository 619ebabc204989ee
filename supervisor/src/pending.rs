//! The one table of open requests. A waiter is moved in with its request and moved out with its ending, whatever
//! the ending is: an answer, a crash, a stop, a deadline.

use crate::machine::{OpenPhase, OpenRequest, Request, RequestKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Instant;
use turnhost_protocol::{RequestId, SessionId};

/// An open request.
#[derive(Debug)]
pub(crate) struct Entry<W> {
    pub id: RequestId,
    pub sid: SessionId,
    pub kind: RequestKind,
    pub waiter: W,
    pub since: Instant,
    pub progress: Progress,
    /// The caller's own limit, for calls.
    pub deadline: Option<Instant>,
    /// Order of arrival.
    arrival: u64,
    /// Until when it waits for a child; `None` while one takes input or once it was written.
    unavailable_at: Option<Instant>,
    /// The key in `Pending::expiries`.
    expires: Option<Instant>,
}

/// How much of a request the world has seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No byte was handed to a pipe; here is the line.
    Unsent(Vec<u8>),
    /// At least one byte was.
    Written,
    /// `turn.started` was seen.
    Started,
}

/// Why a request's time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// No child was ready in time.
    Unavailable,
    /// The caller's deadline came.
    Deadline,
}

/// Every open request, each found by its id, by its age and by its deadline.
#[derive(Debug)]
pub(crate) struct Pending<W> {
    entries: HashMap<RequestId, Entry<W>>,
    /// The unsent ones in order of arrival.
    unsent: BTreeMap<u64, RequestId>,
    unsent_bytes: usize,
    expiries: BTreeSet<(Instant, u64, RequestId)>,
    turns: usize,
    arrivals: u64,
}

impl<W> Entry<W> {
    /// True if no byte of it was handed to a pipe.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self.progress, Progress::Unsent(_))
    }

    /// `turn_started` of a `turn.error`: whether the agent ran, as far as is known.
    pub(crate) fn turn_started(&self) -> Option<bool> {
        match self.progress {
            Progress::Unsent(_) => Some(false),
            Progress::Written => None,
            Progress::Started => Some(true),
        }
    }

    fn next_expiry(&self) -> Option<Instant> {
        match (self.unavailable_at, self.deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl<W> Pending<W> {
    pub(crate) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            unsent: BTreeMap::new(),
            unsent_bytes: 0,
            expiries: BTreeSet::new(),
            turns: 0,
            arrivals: 0,
        }
    }

    /// Takes a request whose id is not open. A turn's deadline is not kept: a turn may run for as long as it wants.
    pub(crate) fn insert(&mut self, now: Instant, request: Request<W>, unavailable_at: Option<Instant>) {
        let Request { id, sid, kind, line, deadline, waiter } = request;
        debug_assert!(!self.contains(&id), "the id of an open request is refused before");
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.unsent.insert(arrival, id.clone());
        self.unsent_bytes += line.len();
        let deadline = match kind {
            RequestKind::Turn => {
                self.turns += 1;
                None
            }
            RequestKind::Interrupt { .. } | RequestKind::Call | RequestKind::Seed => deadline,
        };
        let entry = Entry {
            id: id.clone(),
            sid,
            kind,
            waiter,
            since: now,
            progress: Progress::Unsent(line),
            deadline,
            arrival,
            unavailable_at,
            expires: None,
        };
        self.entries.insert(id.clone(), entry);
        self.reschedule(&id);
    }

    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.entries.contains_key(id)
    }

    pub(crate) fn get(&self, id: &RequestId) -> Option<&Entry<W>> {
        self.entries.get(id)
    }

    /// Ends the request: the only way out of the table.
    pub(crate) fn remove(&mut self, id: &RequestId) -> Option<Entry<W>> {
        let entry = self.entries.remove(id)?;
        if let Progress::Unsent(line) = &entry.progress {
            self.unsent_bytes -= line.len();
            self.unsent.remove(&entry.arrival);
        }
        if let Some(at) = entry.expires {
            self.expiries.remove(&(at, entry.arrival, entry.id.clone()));
        }
        if entry.kind == RequestKind::Turn {
            self.turns -= 1;
        }
        Some(entry)
    }

    /// The oldest unsent request is now handed to the pipe; its line.
    pub(crate) fn write_next(&mut self) -> Option<Vec<u8>> {
        let (_, id) = self.unsent.pop_first()?;
        let entry = self.entries.get_mut(&id)?;
        let Progress::Unsent(line) = std::mem::replace(&mut entry.progress, Progress::Written) else {
            return None;
        };
        self.unsent_bytes -= line.len();
        Some(line)
    }

    /// `turn.started` came for a turn that was written.
    pub(crate) fn mark_started(&mut self, id: &RequestId) {
        if let Some(entry) = self.entries.get_mut(id)
            && !entry.is_unsent()
        {
            entry.progress = Progress::Started;
        }
    }

    /// No child takes input any more: what is unsent and did not wait yet waits until `at`.
    pub(crate) fn wait_until(&mut self, at: Instant) {
        self.limit_unsent(|limit| limit.or(Some(at)));
    }

    /// A child takes input: nothing waits for one any more.
    pub(crate) fn stop_waiting(&mut self) {
        self.limit_unsent(|_| None);
    }

    fn limit_unsent(&mut self, limit: impl Fn(Option<Instant>) -> Option<Instant>) {
        let unsent: Vec<RequestId> = self.unsent.values().cloned().collect();
        for id in unsent {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.unavailable_at = limit(entry.unavailable_at);
            }
            self.reschedule(&id);
        }
    }

    /// The lines of the unsent requests in order of arrival.
    pub(crate) fn unsent_lines(&self) -> impl Iterator<Item = &[u8]> {
        self.unsent.values().filter_map(|id| match &self.entries.get(id)?.progress {
            Progress::Unsent(line) => Some(line.as_slice()),
            Progress::Written | Progress::Started => None,
        })
    }

    /// The open requests that `wanted` picks, oldest first.
    pub(crate) fn ids(&self, wanted: impl Fn(&Entry<W>) -> bool) -> Vec<RequestId> {
        let mut picked: Vec<&Entry<W>> = self.entries.values().filter(|entry| wanted(entry)).collect();
        picked.sort_unstable_by_key(|entry| entry.arrival);
        picked.into_iter().map(|entry| entry.id.clone()).collect()
    }

    /// When the next request's time is up.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _, _)| *at)
    }

    /// Ends a request whose time is up, the earliest first. If both its limits have come, the earlier one is named,
    /// and its own deadline if they are the same.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<(Entry<W>, Expiry)> {
        let (at, _, id) = self.expiries.first()?;
        if *at > now {
            return None;
        }
        let (at, id) = (*at, id.clone());
        let entry = self.remove(&id)?;
        let expiry = if entry.deadline == Some(at) { Expiry::Deadline } else { Expiry::Unavailable };
        Some((entry, expiry))
    }

    /// Open requests of which no byte was handed to a pipe.
    pub(crate) fn unsent_count(&self) -> usize {
        self.unsent.len()
    }

    /// The bytes of their lines.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Open turns.
    pub(crate) fn turns(&self) -> usize {
        self.turns
    }

    /// All of them for people, oldest first.
    pub(crate) fn describe(&self) -> Vec<OpenRequest<'_>> {
        let mut all: Vec<&Entry<W>> = self.entries.values().collect();
        all.sort_unstable_by_key(|entry| entry.arrival);
        let phase = |entry: &Entry<W>| match entry.progress {
            Progress::Unsent(_) => OpenPhase::Waiting,
            Progress::Written => OpenPhase::Sent,
            Progress::Started => OpenPhase::Started,
        };
        all.into_iter()
            .map(|entry| OpenRequest {
                id: &entry.id,
                sid: &entry.sid,
                kind: &entry.kind,
                phase: phase(entry),
                since: entry.since,
            })
            .collect()
    }

    /// Files the request under the limit that comes first.
    fn reschedule(&mut self, id: &RequestId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let next = entry.next_expiry();
        if next == entry.expires {
            return;
        }
        if let Some(old) = entry.expires {
            self.expiries.remove(&(old, entry.arrival, entry.id.clone()));
        }
        entry.expires = next;
        if let Some(new) = next {
            self.expiries.insert((new, entry.arrival, entry.id.clone()));
        }
    }
}

/// What an ended request was, for the frames that still come for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A turn that a frame of the host ended.
    TurnByHost,
    /// A turn that was ended without the host.
    Turn,
    /// Anything else.
    Call,
}

/// The requests that ended lately: bounded, the oldest is forgotten.
#[derive(Debug)]
pub(crate) struct EndedRequests {
    limit: usize,
    order: VecDeque<(RequestId, u64)>,
    ended: HashMap<RequestId, (Ended, u64)>,
    count: u64,
}

impl EndedRequests {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, order: VecDeque::new(), ended: HashMap::new(), count: 0 }
    }

    /// Remembers how the request ended; if the id was used before, the last use counts.
    pub(crate) fn remember(&mut self, id: RequestId, ended: Ended) {
        self.count += 1;
        self.order.push_back((id.clone(), self.count));
        self.ended.insert(id, (ended, self.count));
        if self.order.len() > self.limit
            && let Some((oldest, count)) = self.order.pop_front()
            && self.ended.get(&oldest).is_some_and(|(_, last)| *last == count)
        {
            self.ended.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, id: &RequestId) -> Option<Ended> {
        self.ended.get(id).map(|(ended, _)| *ended)
    }
}

#[cfg(test)]
mod tests;
