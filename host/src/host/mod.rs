//! What the loop owns, and what it does about each [`Event`]. Nothing in here waits: what takes time is a job of the
//! pool or a deadline.

mod approvals;
mod commands;
mod control;
mod events;
mod stops;
mod turns;

use control::OpenControl;
use control::compress::OpenCompression;

use crate::approval::Approvals;
use crate::event::Event;
use crate::io::outbox::Outbox;
use crate::memory::Memory;
use crate::options::HostOptions;
use crate::reap::OrphanReaper;
use crate::session::Sessions;
use crate::stop::Stop;
use crate::turn::Agents;
use crate::turn::context::{WAITING_BYTES, Work};
use crate::turn::pool::{Finished, Pool};
use crate::turn::table::Turns;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use turnhost_protocol::frame::Heartbeat;
use turnhost_protocol::hello::{CAPABILITIES, Hello, PROTOCOL_VERSION};
use turnhost_protocol::{BootId, HostEvent};

/// An agent that ignores an interrupt for this long loses its processes and its turn.
pub(crate) const IGNORED_INTERRUPT: Duration = Duration::from_secs(10);
/// How often dead children that nobody waits for are looked for.
const ORPHANS_EVERY: Duration = Duration::from_secs(1);

/// The state of a host. Owned by the loop's thread alone.
#[derive(Debug)]
pub(crate) struct Host {
    options: HostOptions,
    agents: Agents,
    sessions: Sessions,
    turns: Turns,
    approvals: Approvals,
    stop: Stop,
    /// Frames on their way to stdout.
    pub(crate) out: Outbox,
    /// Turns and other work beside the loop.
    pub(crate) pool: Pool,
    /// Controls that wait for a file.
    open_controls: BTreeMap<u64, OpenControl>,
    compressions: BTreeMap<u64, OpenCompression>,
    /// A place for each summary that may be written at once.
    summaries: Arc<Semaphore>,
    work: mpsc::Sender<Work>,
    waiting: Arc<Semaphore>,
    memory: Memory,
    boot_id: BootId,
    next_number: u64,
    progress: u64,
    next_heartbeat: Option<Instant>,
    /// `Some` if every child of the process is this host's to reap.
    orphans: Option<(OrphanReaper, Instant)>,
    shutdowns: Vec<Option<turnhost_protocol::RequestId>>,
    over: bool,
}

impl Host {
    /// A host that has said nothing yet. Agents run on `runtime` and send to `work`. `owns_process`: every descendant
    /// of this process belongs to the host, to be reaped and, at the end, killed.
    pub(crate) fn new(
        agents: Agents,
        options: HostOptions,
        runtime: Handle,
        work: mpsc::Sender<Work>,
        owns_process: bool,
    ) -> Self {
        let now = Instant::now();
        Self {
            turns: Turns::new(options.workers),
            stop: Stop::new(options.drain),
            out: Outbox::new(options.max_frame_bytes),
            pool: Pool::new(options.workers, runtime),
            open_controls: BTreeMap::new(),
            compressions: BTreeMap::new(),
            summaries: Arc::new(Semaphore::new(options.workers.min(Semaphore::MAX_PERMITS))),
            sessions: Sessions::new(),
            approvals: Approvals::default(),
            work,
            waiting: Arc::new(Semaphore::new(WAITING_BYTES as usize)),
            memory: Memory::new(),
            boot_id: BootId::from(uuid::Uuid::new_v4().simple().to_string()),
            next_number: 1,
            progress: 0,
            next_heartbeat: options.heartbeat.map(|period| now + period),
            orphans: owns_process.then(|| (OrphanReaper::default(), now + ORPHANS_EVERY)),
            shutdowns: Vec::new(),
            over: false,
            agents,
            options,
        }
    }

    /// Queues the first frame.
    pub(crate) fn say_hello(&mut self) {
        let hello = Hello {
            host_pid: i64::from(std::process::id()),
            boot_id: self.boot_id.clone(),
            build_sha: Some(self.options.build_sha.clone()),
            cwd: Some(self.options.cwd.to_string_lossy().into_owned()),
            hermes_home: Some(self.options.hermes_home.clone()),
            protocol: Some(PROTOCOL_VERSION),
            capabilities: Some(CAPABILITIES.iter().map(|name| (*name).to_owned()).collect()),
            max_frame_bytes: Some(self.options.max_frame_bytes as u64),
        };
        self.out.answer(HostEvent::from(hello));
    }

    /// Handles one event.
    pub(crate) fn handle(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Outside(outside) => self.on_outside(now, outside),
            Event::Line(line) => self.on_line(now, line),
            Event::InputEnded => self.on_input_ended(now),
            Event::Work(work) => self.on_work(now, work),
            Event::Finished(Finished::Turn(turn, result)) => self.on_turn_finished(turn, result),
            Event::Finished(Finished::Save(save, result)) => self.on_saved(save, result),
            Event::Finished(Finished::Config(control, result)) => self.on_config(control, result),
            Event::Finished(Finished::Compress(control, result)) => self.on_compressed(now, control, result),
            Event::Finished(Finished::Notify(control, result)) => self.on_engine_told(now, control, result),
            Event::Finished(Finished::Nothing) => {}
            Event::OutputGone => self.on_output_gone(now),
            Event::Tick => {}
        }
    }

    /// Does what is due. Call it after every batch of events and at [`Host::next_deadline`]; `written` says that no
    /// byte waits for the pipe.
    pub(crate) fn step(&mut self, now: Instant, written: bool) {
        for settled in self.approvals.expire(now) {
            self.say_settled(&settled);
        }
        if let Some(then) = now.checked_sub(IGNORED_INTERRUPT) {
            for turn in self.turns.interrupted_by(then) {
                self.end_by_force(turn);
            }
        }
        self.step_compressions(now);
        if self.next_heartbeat.is_some_and(|due| due <= now) {
            self.beat(now);
        }
        if let Some((reaper, due)) = &mut self.orphans
            && *due <= now
        {
            *due = now + ORPHANS_EVERY;
            let mut managed = self.turns.managed_pids();
            managed.extend(self.compressions.values().flat_map(OpenCompression::pids));
            reaper.look(&managed);
        }
        self.step_stop(now, written);
    }

    /// When [`Host::step`] has something to do although nothing happened.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        [
            self.approvals.next_deadline(),
            self.turns.first_interrupt().map(|at| at + IGNORED_INTERRUPT),
            self.compressions.values().filter_map(OpenCompression::deadline).min(),
            self.next_heartbeat,
            self.orphans.as_ref().map(|(_, due)| *due),
            self.stop.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// True once the loop should end.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// True if the loop should read another command now.
    pub(crate) fn takes_input(&self) -> bool {
        self.stop.takes_input() && !self.out.lanes.is_overfull()
    }

    fn beat(&mut self, now: Instant) {
        self.next_heartbeat = self.options.heartbeat.map(|period| now + period);
        let frame = Heartbeat {
            active_turns: Some(self.turns.len() as u64),
            progress_counter: Some(self.progress),
            rss_mb: Some(self.memory.resident_mib()),
        };
        self.out.heartbeat(frame);
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}
