//! What the supervisor knows of sessions, so that a new host can be given them again. Pure.
//!
//! A session that was seeded through the supervisor has a record: the seed, and what turns and controls made of it
//! since. Any other is only known to have run, to tell its next turn that the history is gone.

use crate::command::{FrameFields, SeedRecord};
use std::collections::HashMap;
use turnhost_protocol::frame::ControlAck;
use turnhost_protocol::{RawJson, Route, RouteClass, SessionId};

mod settings;
#[cfg(test)]
mod tests;

/// Bytes kept of one session: its history and the other fields of its seed.
pub(crate) const SESSION_BYTES: usize = 8 * 1024 * 1024;
/// Bytes kept of all.
pub(crate) const TOTAL_BYTES: usize = 128 * 1024 * 1024;
/// Sessions remembered.
pub(crate) const SESSIONS: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Ledger {
    sessions: HashMap<SessionId, Entry>,
    /// Of all records.
    bytes: usize,
    /// Grows with every use: the least recently used goes first.
    clock: u64,
    bounds: Bounds,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub session_bytes: usize,
    pub total_bytes: usize,
    pub sessions: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { session_bytes: SESSION_BYTES, total_bytes: TOTAL_BYTES, sessions: SESSIONS }
    }
}

#[derive(Debug)]
struct Entry {
    record: Option<Record>,
    /// The incarnation that has the session's history, as far as anybody can.
    in_host: u64,
    /// The incarnation of which it was told that it has not.
    told: u64,
    used: u64,
}

#[derive(Debug)]
struct Record {
    seed: SeedRecord,
    /// Of the history.
    bytes: usize,
    /// Of the other fields.
    field_bytes: usize,
    /// The history is whole. If not, it is what is known of its beginning, perhaps nothing.
    complete: bool,
}

/// What a new host gets of one session.
#[derive(Debug, PartialEq)]
pub(crate) enum Reseed<'a> {
    /// The record is whole.
    Whole(&'a SeedRecord),
    /// The history lacks its end at least; the seed's other fields are known.
    Incomplete(&'a SeedRecord),
}

/// What a turn begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// All that the session ever had.
    Continued,
    /// The session had a history that this host does not have: the turn must be told.
    Lost,
}

impl Ledger {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { sessions: HashMap::new(), bytes: 0, clock: 0, bounds }
    }

    /// A seed was accepted by the host of `epoch`.
    pub(crate) fn seeded(&mut self, sid: &SessionId, epoch: u64, seed: SeedRecord) {
        let record = Record {
            bytes: bytes_of(&seed.history),
            field_bytes: bytes_of_fields(&seed.fields),
            seed,
            complete: true,
        };
        let entry = self.entry(sid);
        entry.in_host = epoch;
        let bytes = record.all_bytes();
        let old = entry.record.replace(record);
        self.bytes = self.bytes + bytes - old.map_or(0, |old| old.all_bytes());
        self.bound(sid);
    }

    /// A turn ended in the host of `epoch`; `appended` = what it added to the history, `None` if nobody told.
    pub(crate) fn turn_ended(&mut self, sid: &SessionId, epoch: u64, appended: Option<&[RawJson]>) {
        let Some(record) = self.current(sid, epoch) else { return };
        match appended {
            Some(messages) if record.complete => {
                let added = bytes_of(messages);
                record.seed.history.extend_from_slice(messages);
                record.bytes += added;
                self.bytes += added;
                self.bound(sid);
            }
            Some(_) => {}
            // What was known stays: the new host gets that much, and the next turn is told of the rest.
            None => record.complete = false,
        }
    }

    /// A control was acknowledged by the host of `epoch`.
    pub(crate) fn control_acked(&mut self, sid: &SessionId, epoch: u64, ack: &ControlAck) {
        let Some(record) = self.current(sid, epoch) else { return };
        let route = ack.route_name.as_deref().and_then(Route::from_name);
        let told = settings::follow(&mut record.seed.fields, sid, route, ack);
        let bytes = bytes_of_fields(&record.seed.fields);
        let before = std::mem::replace(&mut record.field_bytes, bytes);
        self.bytes = self.bytes + bytes - before;
        self.bound(sid);
        if !told {
            // The next host would get a setting that this session no longer has.
            self.forget(sid);
        } else if let Some(messages) = &ack.messages {
            self.replace(sid, messages.clone());
        } else if route == Some(Route::SessionReset) {
            self.replace(sid, Vec::new());
        } else if let Some(messages) = ack.result.as_ref().and_then(result_messages) {
            self.replace(sid, messages);
        } else if route.is_none_or(|route| route.class() == RouteClass::IdleGated) {
            // It may have changed the history, and did not say to what.
            self.forget(sid);
        }
    }

    /// What the history of `sid` is cannot be told any more.
    pub(crate) fn forget(&mut self, sid: &SessionId) {
        if let Some(record) = self.sessions.get_mut(sid).and_then(|entry| entry.record.as_mut()) {
            record.complete = false;
            record.seed.history = Vec::new();
            self.bytes -= std::mem::take(&mut record.bytes);
        }
    }

    /// The sessions to be seeded again, in no particular order.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&SessionId, Reseed<'_>)> {
        self.sessions.iter().filter_map(|(sid, entry)| {
            let record = entry.record.as_ref()?;
            let reseed =
                if record.complete { Reseed::Whole(&record.seed) } else { Reseed::Incomplete(&record.seed) };
            Some((sid, reseed))
        })
    }

    /// The host of `epoch` was given the session again, with `history` if that is not the record's own.
    pub(crate) fn reseeded(&mut self, sid: &SessionId, epoch: u64, history: Option<Vec<RawJson>>) {
        self.entry(sid).in_host = epoch;
        if let Some(history) = history {
            self.replace(sid, history);
        }
    }

    /// The host of `epoch` does not have the session. True if nobody was told so yet.
    pub(crate) fn lost(&mut self, sid: &SessionId, epoch: u64) -> bool {
        let entry = self.entry(sid);
        if entry.in_host == epoch {
            entry.in_host = 0;
        }
        std::mem::replace(&mut entry.told, epoch) != epoch
    }

    /// A turn begins in the host of `epoch`. `fresh` = it brought a history of its own.
    pub(crate) fn turn_begins(&mut self, sid: &SessionId, epoch: u64, fresh: bool) -> Beginning {
        let known = self.sessions.contains_key(sid);
        let entry = self.entry(sid);
        if entry.in_host == epoch {
            return Beginning::Continued;
        }
        // From here on the host has a history of its own making.
        entry.in_host = epoch;
        // A host that was given the session in part knows it, and takes no history from a turn.
        let seeded = entry.record.as_mut().map(|record| record.complete = false).is_some();
        self.bound(sid);
        if known && (seeded || !fresh) { Beginning::Lost } else { Beginning::Continued }
    }

    fn current(&mut self, sid: &SessionId, epoch: u64) -> Option<&mut Record> {
        self.sessions.get_mut(sid).filter(|entry| entry.in_host == epoch)?.record.as_mut()
    }

    fn replace(&mut self, sid: &SessionId, history: Vec<RawJson>) {
        let Some(record) = self.sessions.get_mut(sid).and_then(|entry| entry.record.as_mut()) else { return };
        let bytes = bytes_of(&history);
        self.bytes = self.bytes + bytes - std::mem::replace(&mut record.bytes, bytes);
        record.seed.history = history;
        record.complete = true;
        self.bound(sid);
    }

    fn entry(&mut self, sid: &SessionId) -> &mut Entry {
        self.clock += 1;
        let used = self.clock;
        let entry =
            self.sessions.entry(sid.clone()).or_insert(Entry { record: None, in_host: 0, told: 0, used });
        entry.used = used;
        entry
    }

    fn bound(&mut self, changed: &SessionId) {
        let limit = self.bounds.session_bytes;
        if self.record(changed).is_some_and(|record| record.all_bytes() > limit) {
            self.forget(changed);
        }
        if self.record(changed).is_some_and(|record| record.all_bytes() > limit) {
            self.forget_seed(changed);
        }
        while self.bytes > self.bounds.total_bytes {
            let with_history =
                self.oldest(|entry| entry.record.as_ref().is_some_and(|record| record.bytes > 0));
            if let Some(oldest) = with_history {
                self.forget(&oldest);
            } else if let Some(oldest) = self.oldest(|entry| entry.record.is_some()) {
                self.forget_seed(&oldest);
            } else {
                break;
            }
        }
        while self.sessions.len() > self.bounds.sessions {
            let Some(oldest) = self.oldest(|_| true) else { break };
            self.forget_seed(&oldest);
            self.sessions.remove(&oldest);
        }
    }

    fn record(&self, sid: &SessionId) -> Option<&Record> {
        self.sessions.get(sid)?.record.as_ref()
    }

    /// Nothing is kept of the session but that it ran.
    fn forget_seed(&mut self, sid: &SessionId) {
        if let Some(record) = self.sessions.get_mut(sid).and_then(|entry| entry.record.take()) {
            self.bytes -= record.all_bytes();
        }
    }

    fn oldest(&self, wanted: impl Fn(&Entry) -> bool) -> Option<SessionId> {
        let candidates = self.sessions.iter().filter(|(_, entry)| wanted(entry));
        candidates.min_by_key(|(_, entry)| entry.used).map(|(sid, _)| sid.clone())
    }
}

impl Record {
    fn all_bytes(&self) -> usize {
        self.bytes + self.field_bytes
    }
}

fn bytes_of_fields(fields: &FrameFields) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.as_str().len()).sum()
}

fn bytes_of(messages: &[RawJson]) -> usize {
    messages.iter().map(|message| message.as_str().len()).sum()
}

/// `result.messages` of a compress.
fn result_messages(result: &RawJson) -> Option<Vec<RawJson>> {
    #[derive(serde::Deserialize)]
    struct WithMessages {
        messages: Vec<RawJson>,
    }
    result.read::<WithMessages>().ok().map(|result| result.messages)
}
