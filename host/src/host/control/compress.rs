//! `session.compress` and `slash.compress`: what the [`Compress`] machine decides, done.

use super::arguments::{command, no_message};
use super::report::Report;
use super::{OpenControl, new_key};
use crate::context_engine::{
    Compressed, Compression, CompressionError, CompressionRequest, SessionAgent, SessionBoundary,
};
use crate::host::Host;
use crate::host::turns::{environment, marker};
use crate::session::Usage;
use crate::session::compress::{Compress, Effect, Gave, Input, Verdict, Why};
use crate::session::history::Before;
use crate::turn::context::{Interrupt, TurnProcesses};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use turnhost_protocol::frame::{Control, Interrupt as InterruptFrame};
use turnhost_protocol::limits::MAX_ID_BYTES;
use turnhost_protocol::{RawJson, RequestId, Route, SessionId};

/// A compression that was not answered.
#[derive(Debug)]
pub(in crate::host) struct OpenCompression {
    sid: SessionId,
    request_id: RequestId,
    route: Route,
    machine: Compress,
    /// What is compressed, and its version.
    history: Arc<Vec<RawJson>>,
    version: u64,
    interrupt: watch::Sender<bool>,
    /// The engine at work, or being told.
    task: AbortHandle,
    processes: TurnProcesses,
    /// From the engine, until it is committed.
    given: Option<Compressed>,
    /// The history before the commit, until it is complete.
    before: Option<Before>,
    summary: Option<String>,
}

impl OpenCompression {
    /// When [`Host::step_compressions`] has something to do about it.
    pub(in crate::host) fn deadline(&self) -> Option<Instant> {
        self.machine.deadline()
    }

    /// Processes that its agent looks after.
    pub(in crate::host) fn pids(&self) -> Vec<i32> {
        self.processes.pids()
    }
}

impl Host {
    /// Gives the session to the engine; the answer comes with its end.
    pub(super) fn start_compression(
        &mut self,
        now: Instant,
        id: u64,
        open: &OpenControl,
        frame: &Control,
    ) -> Result<(), String> {
        let usage = "/compress [TOPIC] or /compact [TOPIC]";
        let focus = command(frame.command.as_deref(), &["compress", "compact"], usage)?;
        let session = self.sessions.get(&open.sid).ok_or("session not found")?;
        let name = self.agent_name(session);
        let (interrupt, flag) = watch::channel(false);
        let processes = TurnProcesses::default();
        let agent = self.agents.find(&name).cloned().map(|agent| SessionAgent {
            id,
            agent,
            threads: self.pool.threads(),
            at_once: Arc::clone(&self.summaries),
            request_id: open.request_id.clone(),
            cwd: session.cwd.clone(),
            env: environment(&marker(self.boot_id.as_str(), id), session.profile_home.as_deref()),
            provider: session.provider(&self.options).map(str::to_owned),
            base_url: self.options.base_url.clone(),
            options: session.agent.as_ref().and_then(|spec| spec.options.clone()),
            processes: processes.clone(),
            work: self.work.clone(),
        });
        let history = session.history.snapshot();
        let request = CompressionRequest {
            sid: open.sid.clone(),
            session_key: session.history.session_key().to_owned(),
            history: Arc::clone(&history),
            focus: focus.filter(|focus| !focus.is_empty()).map(str::to_owned),
            model: session.model(&self.options).map(str::to_owned),
            interrupt: Interrupt::new(flag),
            agent,
        };
        let version = session.history.version();
        let task = self.pool.compress(id, self.agents.context_engine(), request);
        let compression = OpenCompression {
            sid: open.sid.clone(),
            request_id: open.request_id.clone(),
            route: open.route,
            machine: Compress::new(now),
            history,
            version,
            interrupt,
            task,
            processes,
            given: None,
            before: None,
            summary: None,
        };
        self.compressions.insert(id, compression);
        Ok(())
    }

    pub(in crate::host) fn on_compressed(
        &mut self,
        now: Instant,
        id: u64,
        result: Result<Compression, CompressionError>,
    ) {
        let Some(open) = self.compressions.get_mut(&id) else { return };
        let gave = match result {
            Ok(Compression::Compressed(compressed)) => {
                open.given = Some(compressed);
                Gave::Compressed
            }
            Ok(Compression::Unchanged { reason }) => Gave::Unchanged(reason),
            Err(error) => Gave::Failed(error.to_string()),
        };
        self.drive(now, id, Input::Engine(gave));
    }

    pub(in crate::host) fn on_engine_told(&mut self, now: Instant, id: u64, told: Result<(), String>) {
        self.drive(now, id, Input::Notified(told));
    }

    /// True if `id` is a compression that was not answered.
    pub(in crate::host) fn is_compression(&self, id: u64) -> bool {
        self.compressions.contains_key(&id)
    }

    /// Tokens that the writing of a summary took are the session's.
    pub(in crate::host) fn count_usage_of_summary(&mut self, id: u64, body: &RawJson) {
        #[derive(serde::Deserialize)]
        struct Kind {
            kind: String,
        }
        let is_usage = body.read::<Kind>().is_ok_and(|event| event.kind == "usage");
        let Some(open) = self.compressions.get(&id).filter(|_| is_usage) else { return };
        if let (Ok(usage), Some(session)) = (body.read::<Usage>(), self.sessions.get_mut(&open.sid)) {
            session.usage.add(usage);
        }
    }

    /// The compression that an interrupt means, if it can still be stopped.
    pub(in crate::host) fn compression_to_stop(&self, frame: &InterruptFrame) -> Option<u64> {
        let session = self.sessions.get(frame.sid.as_ref()?)?;
        let id = session.gate.mutation()?;
        let open = self.compressions.get(&id).filter(|open| open.machine.can_be_stopped())?;
        let wanted = frame.turn_id.as_ref().filter(|wanted| !wanted.is_empty());
        wanted.is_none_or(|wanted| *wanted == open.request_id).then_some(id)
    }

    pub(in crate::host) fn stop_compression(&mut self, now: Instant, id: u64, why: Why) {
        self.drive(now, id, Input::Stop(why));
    }

    /// The host stops: the history of every session stays as it is.
    pub(in crate::host) fn stop_compressions(&mut self, now: Instant) {
        for id in self.compressions.keys().copied().collect::<Vec<_>>() {
            self.drive(now, id, Input::Stop(Why::HostStops));
        }
    }

    /// The host cannot wait any longer.
    pub(in crate::host) fn force_compressions(&mut self, now: Instant) {
        for id in self.compressions.keys().copied().collect::<Vec<_>>() {
            self.drive(now, id, Input::Force);
        }
    }

    /// Does what is due.
    pub(in crate::host) fn step_compressions(&mut self, now: Instant) {
        let due = |open: &OpenCompression| open.deadline().is_some_and(|deadline| deadline <= now);
        let ids: Vec<u64> =
            self.compressions.iter().filter(|(_, open)| due(open)).map(|(id, _)| *id).collect();
        for id in ids {
            self.drive(now, id, Input::Tick);
        }
    }

    fn drive(&mut self, now: Instant, id: u64, input: Input) {
        let mut input = Some(input);
        while let Some(given) = input.take() {
            let Some(open) = self.compressions.get_mut(&id) else { return };
            let Some(effect) = open.machine.on(now, given) else { return };
            input = match effect {
                Effect::Interrupt => {
                    open.interrupt.send_replace(true);
                    None
                }
                Effect::Commit => Some(Input::Committed(self.commit(id))),
                Effect::SyncKey => Some(Input::Synced(self.sync_key(id))),
                Effect::RollBack => {
                    self.roll_back(id);
                    Some(Input::RolledBack)
                }
                Effect::Notify => {
                    self.notify(id);
                    None
                }
                Effect::Answer(verdict) => {
                    self.end_compression(id, verdict);
                    None
                }
            };
        }
    }

    fn commit(&mut self, id: u64) -> Result<(), String> {
        let open = self.compressions.get_mut(&id).ok_or("the compression is gone")?;
        let session = self.sessions.get_mut(&open.sid).ok_or("the session is gone")?;
        let given = open.given.as_mut().ok_or("the context engine gave no history")?;
        if session.history.version() != open.version {
            return Err("the history changed meanwhile".to_owned());
        }
        if let Some(at) = no_message(&given.messages) {
            return Err(format!("message {at} of the context engine is no object with role, a string"));
        }
        open.before = Some(session.history.replace(std::mem::take(&mut given.messages)));
        Ok(())
    }

    fn sync_key(&mut self, id: u64) -> Result<(), String> {
        let open = self.compressions.get_mut(&id).ok_or("the compression is gone")?;
        let given = open.given.take();
        let (summary, key) = given.map_or((None, None), |given| (Some(given.summary), given.session_key));
        let key = key.unwrap_or_else(new_key);
        if key.is_empty() || key.len() > MAX_ID_BYTES {
            return Err(format!(
                "the context engine's session key has {} bytes; 1 to {MAX_ID_BYTES} are right",
                key.len()
            ));
        }
        if self.sessions.values().any(|session| session.history.session_key() == key) {
            return Err("the context engine's session key is in use".to_owned());
        }
        let session = self.sessions.get_mut(&open.sid).ok_or("the session is gone")?;
        session.history.move_to(key);
        open.before = None;
        open.summary = summary;
        Ok(())
    }

    fn roll_back(&mut self, id: u64) {
        let Some(open) = self.compressions.get_mut(&id) else { return };
        if let (Some(before), Some(session)) = (open.before.take(), self.sessions.get_mut(&open.sid)) {
            session.history.roll_back(before);
        }
    }

    fn notify(&mut self, id: u64) {
        let Some(open) = self.compressions.get_mut(&id) else { return };
        let Some(session) = self.sessions.get(&open.sid) else { return };
        let boundary = SessionBoundary {
            sid: open.sid.clone(),
            session_key: session.history.session_key().to_owned(),
            parent_session_key: session.history.parent_key().unwrap_or_default().to_owned(),
            history: session.history.snapshot(),
        };
        open.task = self.pool.notify(id, self.agents.context_engine(), boundary);
    }

    /// The one place where a compression ends.
    fn end_compression(&mut self, id: u64, verdict: Verdict) {
        let Some(open) = self.compressions.remove(&id) else { return };
        open.interrupt.send_replace(true);
        open.task.abort();
        // What a summary started has nothing more to do, however it ended.
        self.kill_processes(id, open.processes.pids());
        let Some(session) = self.sessions.get_mut(&open.sid) else { return };
        session.gate.finish(id);
        let after = session.history.snapshot();
        let report =
            Report { before: &open.history, after: &after, verdict: &verdict, summary: open.summary };
        let done = report.done(open.route);
        self.answer_control(open.route, &open.sid, open.request_id, Ok(done));
    }
}
