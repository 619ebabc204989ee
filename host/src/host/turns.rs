//! One turn from its frame to its end.

use super::Host;
use crate::io::outbox::Address;
use crate::session::gate::Refusal;
use crate::session::history::Ending;
use crate::session::{Session, cwd_or_host};
use crate::turn::context::{Interrupt, Purpose, Sink, TurnContext, TurnProcesses, Work, WorkItem};
use crate::turn::table::{Generated, Launch, Phase, Turn};
use crate::turn::{Agent, AgentError, AgentResult, Answer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tokio::time::Instant;
use turnhost_protocol::frame::{TurnEnd, TurnError, TurnStart, TurnStarted};
use turnhost_protocol::{FailReason, RequestId, SessionId};

/// Names a turn in the environment of its processes, so that those which detach themselves are found.
pub(super) const TURN_MARKER: &str = "TURNHOST_TURN";

/// How a turn came to its end.
enum How {
    /// The agent gave an answer.
    Answered(Answer),
    /// The agent failed.
    Failed(AgentError),
    /// It was told to stop and ended without its agent: it waited still, or the agent did not listen.
    Interrupted,
    /// The host stops and could not wait.
    Stopped,
}

/// What of a failed turn goes into its `turn.error`.
struct Failure {
    reason: FailReason,
    message: String,
    exit_code: Option<i32>,
    signal: Option<i32>,
    stderr_tail: Vec<String>,
}

impl Host {
    pub(super) fn start_turn(&mut self, frame: TurnStart) {
        let sid = frame.sid.clone().unwrap_or_default();
        let request_id = frame
            .request_id
            .clone()
            .filter(|id| !id.is_empty())
            .unwrap_or_else(|| RequestId::from(uuid::Uuid::new_v4().simple().to_string()));
        if let Err((reason, message)) = self.try_start_turn(sid.clone(), request_id.clone(), frame) {
            let group = self.sessions.get(&sid).map_or(0, |session| session.number);
            self.out.send(
                group,
                TurnError {
                    sid: Some(sid),
                    request_id,
                    reason: Some(reason.as_str().to_owned()),
                    message,
                    ..TurnError::default()
                },
            );
        }
    }

    /// Nothing is changed unless the turn is accepted.
    fn try_start_turn(
        &mut self,
        sid: SessionId,
        request_id: RequestId,
        frame: TurnStart,
    ) -> Result<(), (FailReason, String)> {
        if sid.is_empty() {
            return Err((FailReason::BadRequest, "sid required".to_owned()));
        }
        let closing = || (FailReason::Shutdown, Refusal::Closing.message().to_owned());
        if self.stop.is_stopping() {
            return Err(closing());
        }
        if self.turns.is_full() {
            let message = format!("host busy: {} turns wait for a worker", crate::turn::table::MAX_WAITING);
            return Err((FailReason::Busy, message));
        }
        let known = self.sessions.get(&sid);
        let spec = frame.agent.as_ref().or_else(|| known.and_then(|session| session.agent.as_ref()));
        let agent_name =
            spec.map(|spec| spec.name.as_str()).or_else(|| self.agents.default_name()).unwrap_or("");
        let agent = self.find_agent(agent_name)?;
        let agent_name = agent_name.to_owned();
        let agent_options = spec.and_then(|spec| spec.options.clone());

        let id = self.number();
        let number = self.number();
        let session = self
            .sessions
            .entry(sid)
            .or_insert_with_key(|sid| Session::from_turn(sid.clone(), number, &frame, &self.options.cwd));
        session.gate.begin_turn(id).map_err(|refusal| match refusal {
            Refusal::Busy | Refusal::TurnPath => (FailReason::Busy, Refusal::Busy.message().to_owned()),
            Refusal::Closing => closing(),
        })?;

        let cwd = frame.cwd.as_deref().filter(|cwd| !cwd.is_empty());
        let cwd = cwd.map_or_else(|| session.cwd.clone(), |cwd| cwd_or_host(Some(cwd), &self.options.cwd));
        let (interrupt, flag) = watch::channel(false);
        let over = Arc::new(AtomicBool::new(false));
        let processes = TurnProcesses::default();
        let prompt = frame.prompt_text().to_owned();
        let context = TurnContext {
            sid: session.sid.clone(),
            request_id: request_id.clone(),
            prompt: prompt.clone(),
            purpose: Purpose::Turn,
            history: session.history.snapshot(),
            cwd: cwd.clone(),
            env: environment(&marker(self.boot_id.as_str(), id), session.profile_home.as_deref()),
            model: session.model(&self.options).map(str::to_owned),
            provider: session.provider(&self.options).map(str::to_owned),
            system_prompt: session.system_prompt(&self.options.config),
            base_url: self.options.base_url.clone(),
            agent_options,
            sink: Sink::sharing(id, self.work.clone(), Arc::clone(&self.waiting), Arc::clone(&over)),
            interrupt: Interrupt::new(flag),
            processes: processes.clone(),
            frame: Arc::new(frame),
        };
        let turn = Turn {
            sid: session.sid.clone(),
            request_id,
            session: session.number,
            agent_name,
            prompt,
            cwd,
            phase: Phase::Waiting(Box::new(Launch { agent, context })),
            seq: 0,
            generated: Generated::new(self.options.max_frame_bytes),
            interrupt,
            interrupted_at: None,
            over,
            processes,
            tools: BTreeMap::new(),
        };
        self.turns.insert(id, turn);
        self.start_waiting_turns();
        Ok(())
    }

    pub(super) fn find_agent(&self, name: &str) -> Result<Agent, (FailReason, String)> {
        self.agents.find(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.agents.names().collect();
            let message = format!("unknown agent: {name}; this host has: {}", known.join(", "));
            (FailReason::BadRequest, message)
        })
    }

    fn start_waiting_turns(&mut self) {
        while let Some((id, launch)) = self.turns.next_to_start() {
            let Some(turn) = self.turns.get_mut(id) else { continue };
            let to = turn.address();
            self.out.send(
                to.group,
                TurnStarted {
                    sid: Some(to.sid.clone()),
                    request_id: to.request_id.clone(),
                    started_ns: Some(self.out.now_ns()),
                },
            );
            if self.options.rpc_events {
                self.out.rpc(&to, "message.start", serde_json::json!({}));
            }
            turn.phase = Phase::Running(self.pool.start(id, launch.agent, launch.context));
        }
    }

    pub(super) fn on_work(&mut self, now: Instant, work: Work) {
        let Work { turn: id, item, room } = work;
        match item {
            WorkItem::Delta(text) => {
                let Some(turn) = self.turns.get_mut(id) else { return };
                self.progress += 1;
                turn.generated.push(&text);
                let to = turn.address();
                let mirror = self.options.rpc_events;
                self.out.delta(&to, &text, &room, &mut || turn.next_seq(), mirror);
            }
            WorkItem::Event(body) => {
                self.progress += 1;
                if self.is_compression(id) {
                    return self.count_usage_of_summary(id, &body);
                }
                self.on_event(id, &body, room);
            }
            WorkItem::RawBytes(bytes) => {
                if let Some(turn) = self.turns.get(id) {
                    self.out.raw(turn.session, &bytes, room);
                }
            }
            WorkItem::Ask(question, reply) => self.ask(now, id, &question, reply, room),
            WorkItem::Flush(written) => {
                if let Some(turn) = self.turns.get(id) {
                    self.out.lanes.flush(turn.session, written);
                }
            }
        }
    }

    /// Tells a turn to stop; one that waits for a worker ends at once.
    pub(super) fn interrupt_turn(&mut self, now: Instant, id: u64) {
        let Some(turn) = self.turns.get_mut(id) else { return };
        if !turn.has_started() {
            return self.end_turn(id, How::Interrupted);
        }
        turn.interrupt.send_replace(true);
        self.turns.mark_interrupted(id, now);
        self.deny_questions(id);
    }

    pub(super) fn on_turn_finished(&mut self, id: u64, result: Result<AgentResult, String>) {
        let how = match result {
            Ok(Ok(answer)) => How::Answered(answer),
            Ok(Err(error)) => How::Failed(error),
            Err(panic) => How::Failed(AgentError::exception(panic)),
        };
        self.end_turn(id, how);
    }

    /// Ends a turn whose agent ignored its interrupt.
    pub(super) fn end_by_force(&mut self, id: u64) {
        self.leave_agent(id);
        self.end_turn(id, How::Interrupted);
    }

    /// Ends a turn because the host cannot wait for it any longer.
    pub(super) fn end_for_stop(&mut self, id: u64) {
        self.leave_agent(id);
        self.end_turn(id, How::Stopped);
    }

    /// Ends the agent's task where that is possible, and its processes.
    fn leave_agent(&mut self, id: u64) {
        let Some(turn) = self.turns.get_mut(id) else { return };
        turn.interrupt.send_replace(true);
        if let Phase::Running(task) = &turn.phase {
            task.abort();
            let pids = turn.processes.pids();
            self.kill_processes(id, pids);
        }
    }

    /// Kills what was started for the turn or compression `id`: these processes, and all that carry its marker.
    pub(super) fn kill_processes(&mut self, id: u64, pids: Vec<i32>) {
        let value = marker(self.boot_id.as_str(), id);
        self.pool.kill(move || {
            let survivors = crate::reap::end_turn(&pids, (TURN_MARKER, &value));
            if !survivors.is_empty() {
                tracing::warn!(?survivors, "processes of an ended turn are left");
            }
        });
    }

    /// The one place where a turn ends: history, gate, then its last frames. A turn that ended already is not there.
    fn end_turn(&mut self, id: u64, how: How) {
        self.deny_questions(id);
        let Some(mut turn) = self.turns.remove(id) else { return };
        turn.over.store(true, Ordering::Release);
        self.progress += 1;
        let Some(session) = self.sessions.get_mut(&turn.sid) else { return };
        let started = turn.has_started();
        let generated = turn.generated.take();
        let (answer, failure) = match how {
            How::Answered(answer) => {
                let interrupted = answer.interrupted || turn.interrupted_at.is_some();
                (Some((answer.text.unwrap_or(generated), interrupted)), None)
            }
            How::Interrupted => (Some((generated, true)), None),
            How::Failed(error) => (None, Some((generated, Failure::from(error)))),
            How::Stopped => (None, Some((generated, Failure::stopped()))),
        };
        let ending = match (&answer, &failure) {
            // Nothing was run.
            _ if !started => None,
            (Some((text, true)), _) => Some(Ending::Interrupted(text)),
            (Some((text, false)), _) => Some(Ending::Ended(text)),
            (None, Some((_, failure))) if failure.reason == FailReason::BadRequest => None,
            (None, Some((text, _))) => Some(Ending::Failed(text)),
            (None, None) => None,
        };
        let appended =
            ending.map(|ending| session.history.append_turn(&turn.prompt, ending)).unwrap_or_default();
        session.history.remember_ended(turn.request_id.clone());
        session.gate.finish(id);

        let to = turn.address();
        let messages_appended = session.report_messages.then_some(appended);
        if self.options.rpc_events && started {
            let (text, status) = match (&answer, &failure) {
                (Some((text, true)), _) => (text, "interrupted"),
                (Some((text, false)), _) => (text, "complete"),
                (None, Some((text, _))) => (text, "error"),
                (None, None) => (&turn.prompt, "error"),
            };
            let message = failure.as_ref().map(|(_, failure)| failure.message.as_str());
            let payload = crate::rpc::message_complete(text, status, message, session.usage);
            self.out.rpc(&to, "message.complete", payload);
        }
        if let Some((text, interrupted)) = answer {
            let frame = TurnEnd {
                sid: Some(turn.sid),
                request_id: turn.request_id,
                history_version: Some(session.history.version()),
                session_key: Some(session.history.session_key().to_owned()),
                message_count: Some(session.history.message_count()),
                interrupted,
                ended_ns: Some(self.out.now_ns()),
                final_response: Some(text),
                session_info: session.info(&turn.agent_name, &turn.cwd, &self.options),
                messages_appended,
                omitted: None,
            };
            self.out.send(to.group, frame);
        } else if let Some((_, failure)) = failure {
            let frame = TurnError {
                sid: Some(turn.sid),
                request_id: turn.request_id,
                reason: Some(failure.reason.as_str().to_owned()),
                message: failure.message,
                exit_code: failure.exit_code.map(i64::from),
                signal: failure.signal.map(i64::from),
                signal_name: failure.signal.and_then(signal_name),
                stderr_tail: Some(failure.stderr_tail).filter(|_| failure.reason == FailReason::AgentExit),
                history_version: Some(session.history.version()),
                messages_appended,
                ..TurnError::default()
            };
            self.out.send(to.group, frame);
        }
        self.start_waiting_turns();
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        Self {
            reason: error.reason,
            message: error.message,
            exit_code: error.exit_code,
            signal: error.signal,
            stderr_tail: error.stderr_tail,
        }
    }
}

impl Failure {
    fn stopped() -> Self {
        Self {
            reason: FailReason::Shutdown,
            message: Refusal::Closing.message().to_owned(),
            exit_code: None,
            signal: None,
            stderr_tail: Vec::new(),
        }
    }
}

impl Turn {
    pub(super) fn address(&self) -> Address {
        Address { sid: self.sid.clone(), request_id: self.request_id.clone(), group: self.session }
    }
}

pub(super) fn marker(boot_id: &str, turn: u64) -> String {
    format!("{boot_id}-{turn}")
}

/// What the turn's processes get beside the host's own environment.
pub(super) fn environment(marker: &str, profile_home: Option<&str>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([
        ("HERMES_COMPUTE_HOST_CHILD".to_owned(), "1".to_owned()),
        (TURN_MARKER.to_owned(), marker.to_owned()),
    ]);
    if let Some(home) = profile_home {
        env.insert("HERMES_HOME".to_owned(), home.to_owned());
    }
    env
}

/// `SIGKILL` for 9.
fn signal_name(number: i32) -> Option<String> {
    nix::sys::signal::Signal::try_from(number).ok().map(|signal| signal.as_str().to_owned())
}
