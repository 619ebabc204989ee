//! The sessions of a host. Owned by the loop; agents get snapshots and never hold a session.

pub(crate) mod compress;
pub(crate) mod gate;
pub(crate) mod history;
pub(crate) mod message;

use crate::config::Config;
use crate::options::HostOptions;
use crate::session::gate::Gate;
use crate::session::history::History;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use turnhost_protocol::frame::{AgentSpec, SessionSeed, TurnStart};
use turnhost_protocol::{RawJson, SessionId};

/// One conversation.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) sid: SessionId,
    /// Names this session among all that the host ever had, a replaced one of the same sid included.
    pub(crate) number: u64,
    pub(crate) gate: Gate,
    pub(crate) history: History,
    pub(crate) cwd: PathBuf,
    pub(crate) profile_home: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) provider: Option<String>,
    /// Set by `/prompt TEXT`; else the config's counts.
    pub(crate) own_prompt: Option<String>,
    /// Name in the config's `personalities`.
    pub(crate) personality: Option<String>,
    pub(crate) agent: Option<AgentSpec>,
    pub(crate) report_messages: bool,
    pub(crate) usage: Usage,
}

/// Tokens of a session, summed over its `usage` events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) input: u64,
    #[serde(default)]
    pub(crate) output: u64,
    #[serde(default)]
    pub(crate) total: u64,
    #[serde(default)]
    pub(crate) calls: u64,
}

impl Usage {
    /// Adds another count; stops at the largest number instead of wrapping.
    pub(crate) fn add(&mut self, other: Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.total = self.total.saturating_add(other.total);
        self.calls = self.calls.saturating_add(other.calls);
    }
}

impl Session {
    /// A session as `session.seed` describes it.
    pub(crate) fn seeded(sid: SessionId, number: u64, seed: SessionSeed, host_cwd: &Path) -> Self {
        let key = key_or_sid(seed.session_key, &sid);
        let mut history = History::new(key, seed.history.unwrap_or_default());
        history.set_parent(filled(seed.parent_session_key));
        Self {
            number,
            gate: Gate::new(),
            history,
            cwd: cwd_or_host(seed.cwd.as_deref(), host_cwd),
            profile_home: filled(seed.profile_home),
            model: filled(seed.model),
            provider: filled(seed.provider),
            own_prompt: filled(seed.system_prompt),
            personality: filled(seed.personality),
            agent: seed.agent,
            report_messages: seed.report_messages.unwrap_or(false),
            usage: Usage::default(),
            sid,
        }
    }

    /// A session made by the `turn.start` of one that was never seeded.
    pub(crate) fn from_turn(sid: SessionId, number: u64, turn: &TurnStart, host_cwd: &Path) -> Self {
        let (model, provider) = turn.model_override.as_ref().map_or((None, None), read_model);
        Self {
            number,
            gate: Gate::new(),
            history: History::new(
                key_or_sid(turn.session_key.clone(), &sid),
                turn.history.clone().unwrap_or_default(),
            ),
            cwd: cwd_or_host(turn.cwd.as_deref(), host_cwd),
            profile_home: filled(turn.profile_home.clone()),
            model,
            provider,
            own_prompt: None,
            personality: None,
            agent: turn.agent.clone(),
            report_messages: false,
            usage: Usage::default(),
            sid,
        }
    }

    /// The system prompt of the next turn: the session's own or the config's, then the personality's addition.
    pub(crate) fn system_prompt(&self, config: &Config) -> Option<String> {
        let prompt = self.own_prompt.as_ref().or(config.agent.system_prompt.as_ref());
        let personality = self.personality.as_ref().and_then(|name| config.personalities.get(name));
        let parts: Vec<&str> = prompt.into_iter().chain(personality).map(String::as_str).collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    /// The model of the next turn: the session's own or the host's.
    pub(crate) fn model<'a>(&'a self, options: &'a HostOptions) -> Option<&'a str> {
        self.model.as_deref().or(options.model.as_deref())
    }

    /// Who serves it, as far as that is said.
    pub(crate) fn provider<'a>(&'a self, options: &'a HostOptions) -> Option<&'a str> {
        self.provider.as_deref().or(options.config.model.provider.as_deref())
    }

    /// Facts for a front end. `agent` is the name of the agent of the last turn, or of the next one.
    pub(crate) fn info(&self, agent: &str, cwd: &Path, options: &HostOptions) -> Option<RawJson> {
        #[derive(Serialize)]
        struct SessionInfo<'a> {
            model: Option<&'a str>,
            provider: Option<&'a str>,
            agent: &'a str,
            cwd: std::borrow::Cow<'a, str>,
            running: bool,
            usage: Usage,
        }
        let info = SessionInfo {
            model: self.model(options),
            provider: self.provider(options),
            agent,
            cwd: cwd.to_string_lossy(),
            running: self.gate.turn().is_some(),
            usage: self.usage,
        };
        RawJson::from_value(&info).ok()
    }
}

/// Every session by its `sid`.
pub(crate) type Sessions = HashMap<SessionId, Session>;

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn key_or_sid(key: Option<String>, sid: &SessionId) -> String {
    filled(key).unwrap_or_else(|| sid.as_str().to_owned())
}

/// A relative directory counts from the host's own, as a shell would read it.
pub(crate) fn cwd_or_host(cwd: Option<&str>, host_cwd: &Path) -> PathBuf {
    cwd.filter(|cwd| !cwd.is_empty()).map_or_else(|| host_cwd.to_owned(), |cwd| host_cwd.join(cwd))
}

/// `model_override` is a name, or a front end's object with `model` and `provider`.
fn read_model(given: &RawJson) -> (Option<String>, Option<String>) {
    #[derive(Deserialize)]
    struct Override {
        #[serde(default)]
        model: Option<String>,
        #[serde(default)]
        provider: Option<String>,
    }
    if let Ok(name) = given.read::<String>() {
        return (filled(Some(name)), None);
    }
    given.read::<Override>().map_or((None, None), |given| (filled(given.model), filled(given.provider)))
}
