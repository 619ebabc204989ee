//! Every frame, one struct each. [`HostCommand`] goes to the host, [`HostEvent`] comes from it.
//!
//! On what is received only `type`, and `request_id` where the frame answers one, are required; every other
//! field may be absent or null. Unknown fields are ignored here and kept in [`crate::Decoded::text`].

use crate::hello::Hello;
use crate::ids::{RequestId, SessionId};
use crate::outcome::{FailReason, InterruptOutcome};
use crate::raw::RawJson;
use serde::{Deserialize, Serialize};

macro_rules! frame_structs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $ty:ty,)* })+) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $ty,)*
        })+
    };
}

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
        /// Working directory of the session's turns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Profile home of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile_home: Option<String>,
        /// Model of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
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
        /// A name of [`crate::Route`].
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
    /// `session.seeded`.
    SessionSeeded {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The seed's.
        request_id: RequestId,
        /// Version of the history, 0 after a seed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history_version: Option<u64>,
        /// Messages in the history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_count: Option<u64>,
    }
    /// `turn.started`: the agent runs.
    TurnStarted {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The turn.
        request_id: RequestId,
        /// Nanoseconds since the host started, monotonic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_ns: Option<u64>,
    }
    /// `delta`: a piece of the answer.
    Delta {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The turn.
        request_id: RequestId,
        /// The text.
        #[serde(default, deserialize_with = "null_as_default")]
        text: String,
        /// Nanoseconds since the host started, monotonic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emitted_ns: Option<u64>,
        /// 0, 1, … within the turn, shared with events.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    }
    /// `event`: something of a turn that is no text. The fields of each kind are [`EventBody`].
    Event {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The turn.
        request_id: RequestId,
        /// 0, 1, … within the turn, shared with deltas.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Which of [`EventBody`]'s kinds, or one of another host's.
        #[serde(default, deserialize_with = "null_as_default")]
        kind: String,
    }
    /// `turn.end`: the turn is over and the history has it.
    TurnEnd {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The turn.
        request_id: RequestId,
        /// Version of the history after the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history_version: Option<u64>,
        /// Durable name of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
        /// Messages in the history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_count: Option<u64>,
        /// True if it was stopped before its end.
        #[serde(default, deserialize_with = "null_as_default")]
        interrupted: bool,
        /// Nanoseconds since the host started, monotonic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_ns: Option<u64>,
        /// The whole answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        final_response: Option<String>,
        /// Facts for a front end: model, provider, agent, cwd, running, usage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_info: Option<RawJson>,
        /// What the turn added to the history, if the seed asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages_appended: Option<Vec<RawJson>>,
        /// Names of fields that were cut or left out because the frame would have been over the limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        omitted: Option<Vec<String>>,
    }
    /// `turn.error`: the turn is over and failed. A host gives `reason` and `message`, and for `agent_exit` the
    /// exit; the supervisor gives every field, null where it does not know.
    TurnError {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The turn.
        request_id: RequestId,
        /// A word of [`FailReason`]; one left out, or of another host, reads `exception`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// For people.
        #[serde(default, deserialize_with = "null_as_default")]
        message: String,
        /// False: no byte of the turn was handed to the pipe; null: handed over, start not seen; true: started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_started: Option<bool>,
        /// Exit code of the program that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i64>,
        /// Signal that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i64>,
        /// Its name, as SIGKILL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal_name: Option<String>,
        /// Last lines of stderr, each bounded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stderr_tail: Option<Vec<String>>,
        /// What reached the owner of the turn before it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delivered: Option<Delivered>,
        /// Which child, counted from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        incarnation: Option<u64>,
        /// Version of the history after the failed turn (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history_version: Option<u64>,
        /// What the failed turn added to the history, if the seed asked for it (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages_appended: Option<Vec<RawJson>>,
        /// Names of fields that were cut or left out because the frame would have been over the limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        omitted: Option<Vec<String>>,
    }
    /// What of a turn reached its owner.
    Delivered {
        /// Deltas counted as the host sent them.
        deltas: u64,
        /// The last `seq` seen, null if none.
        last_seq: Option<u64>,
    }
    /// `interrupt.ack`.
    InterruptAck {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The interrupt's.
        request_id: RequestId,
        /// True if a turn was told to stop.
        #[serde(default, deserialize_with = "null_as_default")]
        applied: bool,
        /// Nanoseconds since the host started, monotonic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        applied_ns: Option<u64>,
        /// What came of it; absent: read from `applied`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<InterruptOutcome>,
        /// The turn that runs, or that was stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<RequestId>,
    }
    /// `control.ack`.
    ControlAck {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The control's.
        request_id: RequestId,
        /// The route.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route_name: Option<String>,
        /// A line for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<String>,
        /// The same for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<RawJson>,
        /// Durable name of the session, after the control.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
        /// Version of the history, after the control.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history_version: Option<u64>,
        /// Messages in the history, after the control.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_count: Option<u64>,
        /// Facts for a front end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_info: Option<RawJson>,
        /// The whole history, for routes that change it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages: Option<Vec<RawJson>>,
        /// Names of fields that were cut or left out because the frame would have been over the limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        omitted: Option<Vec<String>>,
    }
    /// `control.error`.
    ControlError {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The control's.
        request_id: RequestId,
        /// What was wrong.
        #[serde(default, deserialize_with = "null_as_default")]
        message: String,
    }
    /// `reload_mcp.ack`.
    ReloadMcpAck {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The request's.
        request_id: RequestId,
        /// The host's answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response: Option<RawJson>,
    }
    /// `respond.ack`.
    RespondAck {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The respond's.
        request_id: RequestId,
        /// True if the question was open and this answer settled it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resolved: Option<bool>,
        /// The question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval_id: Option<String>,
        /// The choice that holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<String>,
    }
    /// `respond.error`.
    RespondError {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The respond's.
        request_id: RequestId,
        /// What was wrong.
        #[serde(default, deserialize_with = "null_as_default")]
        message: String,
    }
    /// `shutdown.ack`: the last frame of a host.
    ShutdownAck {
        /// The shutdown's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
    }
    /// `rpc`: a JSON-RPC 2.0 object for the front end, forwarded as it is.
    Rpc {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<RawJson>,
    }
    /// `hb`: the host lives.
    Heartbeat {
        /// Turns accepted and not ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        active_turns: Option<u64>,
        /// Grows with every delta and every end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        progress_counter: Option<u64>,
        /// Resident memory in MiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rss_mb: Option<f64>,
    }
    /// `orphan`: the parent is gone; the host ends.
    Orphan {
        /// The parent at start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        old_ppid: Option<i64>,
        /// The parent now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ppid: Option<i64>,
    }
    /// `error`: a line that the host refused.
    Error {
        /// The request that the line named, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
        /// What was wrong.
        #[serde(default, deserialize_with = "null_as_default")]
        message: String,
    }
}

/// Reads a field that may be null as well as absent.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The agent of a session or turn: `"exec"`, or `{"name":"exec", …options}`.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// Which agent.
    pub name: String,
    /// The whole object as given; `None` if only a name was.
    pub options: Option<RawJson>,
}

/// The fields of an `event` frame, by kind. Shaped after the session updates of the Agent Client Protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind")]
pub enum EventBody {
    /// Reasoning that is no answer.
    #[serde(rename = "thought")]
    Thought {
        /// The text.
        text: String,
    },
    /// A tool is called.
    #[serde(rename = "tool_call")]
    ToolCall {
        /// Names the call.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// For people.
        title: String,
        /// Arguments.
        args: serde_json::Value,
        /// `running`, `completed` or `failed`.
        status: ToolStatus,
    },
    /// News of a call.
    #[serde(rename = "tool_call_update")]
    ToolCallUpdate {
        /// The call.
        tool_call_id: String,
        /// `running`, `completed` or `failed`.
        status: ToolStatus,
        /// What it gave.
        content: serde_json::Value,
        /// Exit code of a program, null if none.
        exit_code: Option<i64>,
    },
    /// The agent's plan.
    #[serde(rename = "plan")]
    Plan {
        /// Its entries.
        entries: Vec<serde_json::Value>,
    },
    /// Tokens.
    #[serde(rename = "usage")]
    Usage {
        /// In.
        input: u64,
        /// Out.
        output: u64,
        /// Both.
        total: u64,
        /// Calls of the model.
        calls: u64,
    },
    /// A question to a person, answered by `respond`.
    #[serde(rename = "approval_request")]
    ApprovalRequest {
        /// Names the question.
        approval_id: String,
        /// What would be run.
        command: String,
        /// Why it is asked.
        description: String,
        /// The answers allowed.
        choices: Vec<String>,
        /// Whether "always" may be chosen.
        allow_permanent: bool,
        /// Milliseconds until it is denied.
        timeout_ms: u64,
    },
    /// A question is settled.
    #[serde(rename = "approval_resolved")]
    ApprovalResolved {
        /// The question.
        approval_id: String,
        /// The choice that holds.
        choice: String,
    },
    /// A line for people.
    #[serde(rename = "status")]
    Status {
        /// The text.
        text: String,
    },
    /// The turn will be silent for this long, on purpose.
    #[serde(rename = "busy_until")]
    BusyUntil {
        /// Milliseconds from now.
        ms: u64,
    },
}

/// How a tool call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    /// Not over.
    Running,
    /// Over and right.
    Completed,
    /// Over and wrong.
    Failed,
}

macro_rules! frame_enum {
    ($(#[$doc:meta])* $name:ident { $($wire:literal => $variant:ident($ty:ty),)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $(#[doc = concat!("`", $wire, "`")] $variant($ty),)+
        }
        impl $name {
            /// Every wire name of this direction.
            pub const TYPES: &'static [&'static str] = &[$($wire),+];
            /// The wire name (`type`).
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $wire,)+ }
            }
            /// Reads `text`, one JSON object, as the frame named `type_name`; `None` for an unknown name.
            pub(crate) fn read(type_name: &str, text: &str) -> Option<Result<Self, serde_json::Error>> {
                match type_name {
                    $($wire => Some(serde_json::from_str::<$ty>(text).map(Self::$variant)),)+
                    _ => None,
                }
            }
            /// Appends the frame's fields as a JSON object without `type`.
            pub(crate) fn write_fields(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
                match self { $(Self::$variant(frame) => serde_json::to_writer(out, frame),)+ }
            }
            /// The JSON Schema of every frame's fields, by wire name.
            #[cfg(feature = "schema")]
            pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
                vec![$(($wire, schemars::schema_for!($ty)),)+]
            }
        }
        $(impl From<$ty> for $name {
            fn from(frame: $ty) -> Self {
                Self::$variant(frame)
            }
        })+
    };
}

frame_enum!(
    /// A frame to the host.
    HostCommand {
        "session.seed" => SessionSeed(SessionSeed),
        "turn.start" => TurnStart(TurnStart),
        "interrupt" => Interrupt(Interrupt),
        "control" => Control(Control),
        "reload_mcp" => ReloadMcp(ReloadMcp),
        "respond" => Respond(Respond),
        "shutdown" => Shutdown(Shutdown),
    }
);

frame_enum!(
    /// A frame from the host.
    HostEvent {
        "hello" => Hello(Hello),
        "turn.started" => TurnStarted(TurnStarted),
        "delta" => Delta(Delta),
        "event" => Event(Event),
        "turn.end" => TurnEnd(TurnEnd),
        "turn.error" => TurnError(TurnError),
        "session.seeded" => SessionSeeded(SessionSeeded),
        "interrupt.ack" => InterruptAck(InterruptAck),
        "control.ack" => ControlAck(ControlAck),
        "control.error" => ControlError(ControlError),
        "reload_mcp.ack" => ReloadMcpAck(ReloadMcpAck),
        "respond.ack" => RespondAck(RespondAck),
        "respond.error" => RespondError(RespondError),
        "shutdown.ack" => ShutdownAck(ShutdownAck),
        "rpc" => Rpc(Rpc),
        "hb" => Heartbeat(Heartbeat),
        "orphan" => Orphan(Orphan),
        "error" => Error(Error),
    }
);

impl TurnStart {
    /// The prompt: `text`, else `prompt`, else nothing.
    pub fn prompt_text(&self) -> &str {
        self.text.as_deref().or(self.prompt.as_deref()).unwrap_or("")
    }
}

impl TurnError {
    /// The reason from the closed table; a word left out or unknown reads `exception`.
    pub fn fail_reason(&self) -> FailReason {
        self.reason.as_deref().and_then(FailReason::from_word).unwrap_or(FailReason::Exception)
    }
}

impl InterruptAck {
    /// The outcome; one left out reads `applied` or `not_found`.
    pub fn interrupt_outcome(&self) -> InterruptOutcome {
        self.outcome.unwrap_or(if self.applied {
            InterruptOutcome::Applied
        } else {
            InterruptOutcome::NotFound
        })
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
        let options = RawJson::deserialize(deserializer)?;
        if options.as_str().starts_with('"') {
            let name = options.read::<String>().map_err(D::Error::custom)?;
            return Ok(Self { name, options: None });
        }
        let named = options.read::<Named>().map_err(|error| {
            D::Error::custom(format!("agent: expected a name or an object with `name`: {error}"))
        })?;
        Ok(Self { name: named.name, options: Some(options) })
    }
}

#[cfg(feature = "schema")]
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
