//! The frames from a host to whoever started it.

use super::null_as_default;
use crate::ids::{RequestId, SessionId};
use crate::outcome::{FailReason, InterruptOutcome};
use crate::raw::RawJson;
use serde::{Deserialize, Serialize};

frame_structs! {
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
    /// `event`: something of a turn that is no text. The fields of each kind are `EventBody`.
    Event {
        /// Session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sid: Option<SessionId>,
        /// The turn.
        request_id: RequestId,
        /// 0, 1, … within the turn, shared with deltas.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Which of `EventBody`'s kinds, or one of another host's.
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
        /// A word of `FailReason`; one left out, or of another host, reads `exception`.
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
