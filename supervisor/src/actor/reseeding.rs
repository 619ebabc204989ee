//! The seeds of a new host: from the embedder's source, else from the ledger, before anything else is sent.

use super::Actor;
use crate::command::{SeedRecord, encode_fields};
use crate::events::HostNotice;
use crate::ledger::Reseed;
use crate::machine::Input;
use crate::reseed::ReseedSource;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Sleep;
use turnhost_protocol::{RawJson, RequestId, SessionId};

/// What the embedder's source gave.
pub(super) type Histories = HashMap<SessionId, Vec<RawJson>>;

/// The source is being asked.
pub(super) struct Reseeding {
    pub epoch: u64,
    answers: mpsc::Receiver<(SessionId, Option<Vec<RawJson>>)>,
    given: Histories,
    deadline: Pin<Box<Sleep>>,
}

/// Says whether the source is still busy with an earlier host: one that hangs gets no second thread.
#[derive(Debug, Default)]
pub(super) struct Asking(Weak<()>);

impl Reseeding {
    fn ask(
        epoch: u64,
        source: ReseedSource,
        sessions: Vec<SessionId>,
        limit: Duration,
        asking: &mut Asking,
    ) -> Option<Self> {
        if asking.0.upgrade().is_some() {
            tracing::warn!(epoch, "the reseed source still hangs and is not asked");
            return None;
        }
        let (answer, answers) = mpsc::channel(16);
        let busy = Arc::new(());
        asking.0 = Arc::downgrade(&busy);
        std::thread::Builder::new()
            .name("supervisor-reseed".to_owned())
            .spawn(move || {
                let _busy = busy;
                for sid in sessions {
                    let asked = catch_unwind(AssertUnwindSafe(|| source.history(&sid)));
                    let history = asked.unwrap_or_else(|_| {
                        tracing::error!(%sid, "the reseed source panicked");
                        None
                    });
                    // Nobody listens after the deadline.
                    if answer.blocking_send((sid, history)).is_err() {
                        return;
                    }
                }
            })
            .ok()?;
        let deadline = Box::pin(tokio::time::sleep(limit));
        Some(Self { epoch, answers, given: Histories::new(), deadline })
    }

    /// Everything that was given, once all is or the time is over. `None` after that.
    pub(super) async fn wait(&mut self) -> Option<Histories> {
        loop {
            tokio::select! {
                answer = self.answers.recv() => match answer {
                    Some((sid, Some(history))) => {
                        self.given.insert(sid, history);
                    }
                    Some((_, None)) => {}
                    None => return Some(std::mem::take(&mut self.given)),
                },
                () = self.deadline.as_mut() => {
                    tracing::warn!(epoch = self.epoch, "the reseed source was too slow");
                    return Some(std::mem::take(&mut self.given));
                }
            }
        }
    }
}

impl Actor {
    pub(super) fn reseed(&mut self, epoch: u64) {
        self.reseeds.clear();
        self.reseeding = self.source.clone().and_then(|source| {
            let sessions: Vec<SessionId> = self.ledger.records().map(|(sid, _)| sid.clone()).collect();
            if sessions.is_empty() {
                return None;
            }
            Reseeding::ask(epoch, source, sessions, self.config.reseed_timeout, &mut self.asking)
        });
        if self.reseeding.is_none() {
            self.send_seeds(epoch, Histories::new());
        }
    }

    pub(super) fn on_histories(&mut self, histories: Option<Histories>) {
        let Some(reseeding) = self.reseeding.take() else { return };
        self.send_seeds(reseeding.epoch, histories.unwrap_or_default());
        self.perform();
    }

    fn send_seeds(&mut self, epoch: u64, mut given: Histories) {
        let mut lines = Vec::new();
        let mut sent = Vec::new();
        let mut lost = Vec::new();
        for (sid, record) in self.ledger.records() {
            let (record, history, whole) = match (given.remove(sid), record) {
                (Some(history), Reseed::Whole(record) | Reseed::Incomplete(record)) => {
                    (record, Some(history), true)
                }
                (None, Reseed::Whole(record)) => (record, None, true),
                // A host that knows the session by its seed is better off than one that does not know it at all.
                (None, Reseed::Incomplete(record)) => (record, None, false),
            };
            if !whole {
                lost.push(sid.clone());
            }
            let id = RequestId::from(uuid::Uuid::new_v4().to_string());
            match seed_line(record, &id, history.as_deref(), self.config.max_frame_bytes) {
                Some(line) => {
                    lines.push(line);
                    sent.push((id, sid.clone(), history));
                }
                None if whole => lost.push(sid.clone()),
                None => {}
            }
        }
        for (id, sid, history) in sent {
            self.ledger.reseeded(&sid, epoch, history);
            self.reseeds.insert(id, sid);
        }
        for sid in lost {
            if self.ledger.lost(&sid, epoch) {
                self.subscribers.send(HostNotice::SessionLost { sid });
            }
        }
        self.machine.handle(Self::now(), Input::Reseeded { epoch, lines }, &mut self.effects);
    }
}

/// `None` if it would not fit into a frame.
fn seed_line(
    record: &SeedRecord,
    id: &RequestId,
    history: Option<&[RawJson]>,
    max_frame_bytes: usize,
) -> Option<Vec<u8>> {
    let mut fields = record.fields.clone();
    fields.insert("request_id".to_owned(), RawJson::from_value(id).ok()?);
    let history = history.unwrap_or(&record.history);
    let line = encode_fields("session.seed", &fields, Some(history)).ok()?;
    (line.len() <= max_frame_bytes).then_some(line)
}
