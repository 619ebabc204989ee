//! Which turns wait for a worker, which run, and how many may. Owned by the loop; does no I/O.

use crate::turn::Agent;
use crate::turn::context::{TurnContext, TurnProcesses};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use turnhost_protocol::{RequestId, SessionId};

/// Turns that may wait for a worker; each holds its frame.
pub(crate) const MAX_WAITING: usize = 4096;

/// What a turn needs to begin.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) agent: Agent,
    pub(crate) context: TurnContext,
}

/// Where a turn stands.
#[derive(Debug)]
pub(crate) enum Phase {
    /// For a worker.
    Waiting(Box<Launch>),
    /// With an agent; the handle ends an agent that awaits.
    Running(AbortHandle),
    /// Between the two, while its task is made.
    Starting,
}

/// An accepted turn that has not ended.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) sid: SessionId,
    pub(crate) request_id: RequestId,
    /// The session's number, which groups its frames.
    pub(crate) session: u64,
    pub(crate) agent_name: String,
    pub(crate) prompt: String,
    pub(crate) cwd: PathBuf,
    pub(crate) phase: Phase,
    /// The next delta's or event's number.
    pub(crate) seq: u64,
    pub(crate) generated: Generated,
    pub(crate) interrupt: watch::Sender<bool>,
    pub(crate) interrupted_at: Option<Instant>,
    pub(crate) over: Arc<AtomicBool>,
    pub(crate) processes: TurnProcesses,
    /// Names of the tools whose calls are open, for front ends that want the name again at the end.
    pub(crate) tools: BTreeMap<String, String>,
}

/// The text of an answer as it grows, bounded: an agent that streams for ever must not fill the memory.
#[derive(Debug)]
pub(crate) struct Generated {
    text: String,
    limit: usize,
    lost: u64,
}

impl Generated {
    /// Keeps at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { text: String::new(), limit, lost: 0 }
    }

    /// Appends a delta, or what of it fits.
    pub(crate) fn push(&mut self, delta: &str) {
        let room = if self.lost > 0 { 0 } else { self.limit - self.text.len() };
        let fits = delta.floor_char_boundary(room);
        self.text.push_str(&delta[..fits]);
        self.lost += (delta.len() - fits) as u64;
    }

    /// The text; one that was cut says so at its end.
    pub(crate) fn take(&mut self) -> String {
        let mut text = std::mem::take(&mut self.text);
        if self.lost > 0 {
            text.push_str(&format!("\n[{} more bytes were streamed and not kept]", self.lost));
        }
        text
    }
}

/// Every turn that was accepted and has not ended.
#[derive(Debug)]
pub(crate) struct Turns {
    table: HashMap<u64, Turn>,
    waiting: VecDeque<u64>,
    /// Those that were told to stop, by the time at which they were.
    interrupted: BTreeSet<(Instant, u64)>,
    running: usize,
    workers: usize,
}

impl Turns {
    /// No turns; `workers` of them may run at once.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            table: HashMap::new(),
            waiting: VecDeque::new(),
            interrupted: BTreeSet::new(),
            running: 0,
            workers,
        }
    }

    /// True if no further turn may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING
    }

    /// Adds a turn that waits.
    pub(crate) fn insert(&mut self, id: u64, turn: Turn) {
        self.table.insert(id, turn);
        self.waiting.push_back(id);
    }

    /// Takes the turn that has waited longest, if a worker is free.
    pub(crate) fn next_to_start(&mut self) -> Option<(u64, Box<Launch>)> {
        while self.running < self.workers {
            let id = self.waiting.pop_front()?;
            if let Some(turn) = self.table.get_mut(&id)
                && let Phase::Waiting(launch) = std::mem::replace(&mut turn.phase, Phase::Starting)
            {
                self.running += 1;
                return Some((id, launch));
            }
        }
        None
    }

    /// Takes a turn out; its worker is free again.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Turn> {
        let turn = self.table.remove(&id)?;
        if let Some(at) = turn.interrupted_at {
            self.interrupted.remove(&(at, id));
        }
        match turn.phase {
            Phase::Waiting(_) => self.waiting.retain(|waiting| *waiting != id),
            Phase::Running(_) | Phase::Starting => self.running -= 1,
        }
        Some(turn)
    }

    /// A turn.
    pub(crate) fn get(&self, id: u64) -> Option<&Turn> {
        self.table.get(&id)
    }

    /// A turn, to be changed.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Turn> {
        self.table.get_mut(&id)
    }

    /// Turns that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Those that wait for a worker, the oldest first.
    pub(crate) fn waiting(&self) -> Vec<u64> {
        self.waiting.iter().copied().collect()
    }

    /// Every turn, in the order in which they were accepted.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.table.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Notes that a turn was told to stop; the first time counts.
    pub(crate) fn mark_interrupted(&mut self, id: u64, now: Instant) {
        if let Some(turn) = self.table.get_mut(&id)
            && turn.interrupted_at.is_none()
        {
            turn.interrupted_at = Some(now);
            self.interrupted.insert((now, id));
        }
    }

    /// Turns that were told to stop at or before `then` and run still.
    pub(crate) fn interrupted_by(&self, then: Instant) -> Vec<u64> {
        self.interrupted.range(..=(then, u64::MAX)).map(|(_, id)| *id).collect()
    }

    /// When the turn that was told to stop first was told.
    pub(crate) fn first_interrupt(&self) -> Option<Instant> {
        self.interrupted.first().map(|(at, _)| *at)
    }

    /// Pids that agents look after themselves.
    pub(crate) fn managed_pids(&self) -> Vec<i32> {
        self.table.values().flat_map(|turn| turn.processes.pids()).collect()
    }
}

impl Turn {
    /// The next number of a delta or event.
    pub(crate) fn next_seq(&mut self) -> u64 {
        let seq = self.seq;
        self.seq += 1;
        seq
    }

    /// True once an agent has the turn.
    pub(crate) fn has_started(&self) -> bool {
        match self.phase {
            Phase::Waiting(_) => false,
            Phase::Running(_) | Phase::Starting => true,
        }
    }
}
