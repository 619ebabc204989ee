//! The controls: which there are is decided by the route table, what each does by the file of its matter.

mod arguments;
pub(super) mod compress;
mod history;
mod report;
mod save;
mod settings;

use super::Host;
use crate::session::Session;
use crate::session::gate::Refusal;
use serde::Serialize;
use tokio::time::Instant;
use turnhost_protocol::frame::{Control, ControlAck, ControlError, ReloadMcp};
use turnhost_protocol::{RawJson, RequestId, Route, RouteClass, SessionId};

/// A control that waits for a file.
#[derive(Debug)]
pub(super) struct OpenControl {
    sid: SessionId,
    request_id: RequestId,
    route: Route,
}

/// What a control did.
#[derive(Debug)]
struct Done {
    /// For people.
    output: String,
    /// The same for programs.
    result: Option<RawJson>,
}

impl Done {
    fn new(output: String, result: &impl Serialize) -> Self {
        Self { output, result: RawJson::from_value(result).ok() }
    }
}

impl Host {
    pub(super) fn control(&mut self, now: Instant, frame: Control) {
        if let Err(message) = self.try_control(now, &frame) {
            self.refuse_control(frame.sid, frame.request_id.unwrap_or_default(), message);
        }
    }

    pub(super) fn reload_mcp(&mut self, frame: ReloadMcp) {
        self.refuse_control(frame.sid, frame.request_id.unwrap_or_default(), "not supported".to_owned());
    }

    /// Errors are refusals by the route, the session or its gate; what a control itself cannot do is answered in here.
    fn try_control(&mut self, now: Instant, frame: &Control) -> Result<(), String> {
        let name = frame.route_name.as_deref().unwrap_or("");
        let route = Route::from_name(name).ok_or_else(|| format!("unclassified route: {name}"))?;
        let id = self.number();
        let session =
            frame.sid.as_ref().and_then(|sid| self.sessions.get_mut(sid)).ok_or("session not found")?;
        session.gate.begin_control(id, route.class()).map_err(|refusal| match (route, refusal) {
            (Route::PromptSubmit, Refusal::TurnPath) => "use turn.start".to_owned(),
            (Route::SessionInterrupt, Refusal::TurnPath) => "use interrupt".to_owned(),
            (_, refusal) => refusal.message().to_owned(),
        })?;
        let open = OpenControl {
            sid: session.sid.clone(),
            request_id: frame.request_id.clone().unwrap_or_default(),
            route,
        };
        let done = match route {
            Route::PromptSubmit | Route::SessionInterrupt | Route::ReloadMcp => {
                session.gate.finish(id);
                return Err("not supported".to_owned());
            }
            Route::SessionSave => {
                let write = save::writer(&self.options.home, session, frame.params.as_ref());
                self.open_controls.insert(id, open);
                self.pool.save(id, write);
                return Ok(());
            }
            Route::SessionCompress | Route::SlashCompress => {
                match self.start_compression(now, id, &open, frame) {
                    Ok(()) => return Ok(()),
                    Err(problem) => Err(problem),
                }
            }
            Route::SlashPrompt => match settings::prompt(session, frame) {
                Ok(None) => {
                    self.open_controls.insert(id, open);
                    self.pool.read_config(id, self.options.home.clone());
                    return Ok(());
                }
                Ok(Some(done)) => Ok(done),
                Err(problem) => Err(problem),
            },
            Route::PromptSubmitTruncate => history::truncate(session, frame),
            Route::SlashModel => settings::model(session, frame),
            Route::SlashPersonality => {
                settings::personality(session, frame, &self.options.config, &self.options.home)
            }
            Route::SessionReset => history::reset(session, frame),
            Route::SessionHistoryReload => history::reload(session, frame),
            Route::SlashRetry => history::retry(session, frame),
        };
        if let Some(session) = self.sessions.get_mut(&open.sid) {
            session.gate.finish(id);
        }
        self.answer_control(route, &open.sid, open.request_id, done);
        Ok(())
    }

    /// Answers the controls that a stop cannot wait for.
    pub(super) fn give_up_open_controls(&mut self) {
        for open in std::mem::take(&mut self.open_controls).into_values() {
            self.refuse_control(Some(open.sid), open.request_id, Refusal::Closing.message().to_owned());
        }
    }

    fn refuse_control(&mut self, sid: Option<SessionId>, request_id: RequestId, message: String) {
        self.out.answer(ControlError { sid, request_id, message });
    }

    /// Answers a control with the session as it stands now, or with what is wrong with the control.
    fn answer_control(
        &mut self,
        route: Route,
        sid: &SessionId,
        request_id: RequestId,
        done: Result<Done, String>,
    ) {
        let Done { output, result } = match done {
            Ok(done) => done,
            Err(problem) => {
                let message = format!("{}: {problem}", route.name());
                return self.refuse_control(Some(sid.clone()), request_id, message);
            }
        };
        let Some(session) = self.sessions.get(sid) else { return };
        let idle_gated = route.class() == RouteClass::IdleGated;
        if idle_gated {
            // The end of an earlier turn may still wait for the pipe; this answer must not be read before it.
            self.out.lanes.promote(session.number);
        }
        // The result of this one has them already.
        let tells_messages = idle_gated && route != Route::SessionCompress;
        let agent = self.agent_name(session);
        self.out.answer(ControlAck {
            sid: Some(sid.clone()),
            request_id,
            route_name: Some(route.name().to_owned()),
            output: Some(output),
            result,
            session_key: Some(session.history.session_key().to_owned()),
            history_version: Some(session.history.version()),
            message_count: Some(session.history.message_count()),
            session_info: session.info(&agent, &session.cwd, &self.options),
            messages: tells_messages.then(|| session.history.snapshot().to_vec()),
            omitted: None,
        });
    }

    /// The agent that the session's next turn gets if it names none.
    fn agent_name(&self, session: &Session) -> String {
        session
            .agent
            .as_ref()
            .map(|agent| agent.name.as_str())
            .or_else(|| self.agents.default_name())
            .unwrap_or_default()
            .to_owned()
    }
}

/// A durable name for a session that has none yet.
fn new_key() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}
