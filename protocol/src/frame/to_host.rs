//! The frames from a front end to a host.

use crate::ids::{RequestId, SessionId};
use crate::raw::RawJson;
use serde::{Deserialize, Serialize};

frame_structs! {
    /// `session.seed`: creates a session, or replaces a known idle one.
    SessionSeed {
        /// Session; required, its absence is answered by `error "sid required"`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// Answered by `session.seeded` or `error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
        /// Messages, oldest first: objects with `role` and `content`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history: Option<Vec<RawJson>>,
        /// Durable name of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
        /// The key that the session had before; it came from a reset or a compression of that one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_session_key: Option<String>,
        /// Working directory of the session's turns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Profile home of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile_home: Option<String>,
        /// Model of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Who serves the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The session's own system prompt; absent: the config's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system_prompt: Option<String>,
        /// Name of an addition to the system prompt in the config.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        personality: Option<String>,
        /// Agent of the session: a name, or an object with `name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentSpec>,
        /// Asks for `messages_appended` in every `turn.end`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report_messages: Option<bool>,
    }
    /// `turn.start`: runs one turn. A session that was never seeded is created from it.
    TurnStart {
        /// Session; required, its absence is answered by `turn.error{bad_request}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// Names the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
        /// The prompt; wins over `prompt`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The prompt under its older name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<String>,
        /// Durable name of the session, for a session made by this frame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
        /// History of a session made by this frame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history: Option<Vec<RawJson>>,
        /// Working directory of this turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Width of the front end in columns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cols: Option<i64>,
        /// Profile home of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile_home: Option<String>,
        /// Model for the session made by this frame: a name or an object of the front end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model_override: Option<RawJson>,
        /// Agent of this turn: a name, or an object with `name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentSpec>,
        /// Which front end asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Images that belong to the prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attached_images: Option<Vec<RawJson>>,
        /// Scripted agent: number of deltas (24; a negative one counts as 0).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delta_count: Option<i64>,
        /// Scripted agent: seconds between deltas (0.001).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_s: Option<f64>,
        /// Scripted agent: a list of steps that replaces the two fields above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        script: Option<RawJson>,
    }
    /// `interrupt`: stops the session's turn, or only the one named.
    Interrupt {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// Answered by `interrupt.ack`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
        /// Only this turn; absent: whichever runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<RequestId>,
    }
    /// `control`: a row of the route table.
    Control {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// Answered by `control.ack` or `control.error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
        /// A name of `Route`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route_name: Option<String>,
        /// A slash command as the person typed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// Arguments of the route.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        params: Option<RawJson>,
    }
    /// `reload_mcp`: re-reads the tool servers.
    ReloadMcp {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// Answered by `reload_mcp.ack` or `control.error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
    }
    /// `respond`: a person's answer to an `approval_request`.
    Respond {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// Answered by `respond.ack` or `respond.error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
        /// The question, as in its `approval_request`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval_id: Option<String>,
        /// One of the question's choices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<String>,
        /// The peer's form: `{"frame": {…}}` with `approval_id` and `choice` inside.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        params: Option<RawJson>,
    }
    /// `shutdown`: ends every turn and the host.
    Shutdown {
        /// Answered by `shutdown.ack`, the last frame of the host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
    }
}

/// The agent of a session or turn: `"exec"`, or `{"name":"exec", …options}`.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// Which agent.
    pub name: String,
    /// The whole object as given; `None` if only a name was.
    pub options: Option<RawJson>,
}

impl TurnStart {
    /// The prompt: `text`, else `prompt`, else nothing.
    pub fn prompt_text(&self) -> &str {
        self.text.as_deref().or(self.prompt.as_deref()).unwrap_or("")
    }
}

impl Serialize for AgentSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.options {
            Some(options) => options.serialize(serializer),
            None => serializer.serialize_str(&self.name),
        }
    }
}

impl<'de> Deserialize<'de> for AgentSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        // The parser's own words are left out: serde_json would take the place in them for a place in the frame.
        let refused = || D::Error::custom("expected a name or an object with `name`, a string");
        let options = RawJson::deserialize(deserializer)?;
        if options.as_str().starts_with('"') {
            return Ok(Self { name: options.read().map_err(|_| refused())?, options: None });
        }
        if !options.as_str().starts_with('{') {
            return Err(refused());
        }
        let named: Named = options.read().map_err(|_| refused())?;
        Ok(Self { name: named.name, options: Some(options) })
    }
}

#[cfg(any(test, feature = "schema"))]
impl schemars::JsonSchema for AgentSpec {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AgentSpec".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "oneOf": [
                {"type": "string"},
                {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            ]
        })
    }
}
