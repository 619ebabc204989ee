//! The terminal frames that the supervisor makes itself, with every field of the specification.

use crate::machine::Exit;
use crate::status::LastExit;
use crate::turn::{TurnOutcome, json};
use serde::Serialize;
use turnhost_protocol::frame::{Delivered, TurnEnd, TurnError};
use turnhost_protocol::{FailReason, RawJson, RequestId, SessionId};

/// All that is known of a failed turn.
pub(crate) struct Failure<'a> {
    pub sid: &'a SessionId,
    pub request_id: &'a RequestId,
    pub reason: FailReason,
    pub message: String,
    pub turn_started: Option<bool>,
    pub exit: Option<Exit>,
    pub stderr_tail: Vec<String>,
    pub delivered: Delivered,
    pub incarnation: Option<u64>,
}

impl Failure<'_> {
    /// The `turn.error`: nulls are written out, so that a reader finds every field.
    pub(crate) fn into_outcome(self) -> TurnOutcome {
        #[derive(Serialize)]
        struct Line<'a> {
            r#type: &'static str,
            sid: &'a SessionId,
            request_id: &'a RequestId,
            reason: &'static str,
            message: &'a str,
            turn_started: Option<bool>,
            exit_code: Option<i32>,
            signal: Option<i32>,
            signal_name: Option<&'a str>,
            stderr_tail: &'a [String],
            delivered: &'a Delivered,
            incarnation: Option<u64>,
        }
        let exit = self.exit.map(LastExit::of);
        let exit_code = exit.as_ref().and_then(|exit| exit.code);
        let signal = exit.as_ref().and_then(|exit| exit.signal);
        let signal_name = exit.and_then(|exit| exit.signal_name);
        let text = json(&Line {
            r#type: "turn.error",
            sid: self.sid,
            request_id: self.request_id,
            reason: self.reason.as_str(),
            message: &self.message,
            turn_started: self.turn_started,
            exit_code,
            signal,
            signal_name: signal_name.as_deref(),
            stderr_tail: &self.stderr_tail,
            delivered: &self.delivered,
            incarnation: self.incarnation,
        });
        let frame = TurnError {
            sid: Some(self.sid.clone()),
            request_id: self.request_id.clone(),
            reason: Some(self.reason.as_str().to_owned()),
            message: self.message,
            turn_started: self.turn_started,
            exit_code: exit_code.map(i64::from),
            signal: signal.map(i64::from),
            signal_name,
            stderr_tail: Some(self.stderr_tail),
            delivered: Some(self.delivered),
            incarnation: self.incarnation,
            history_version: None,
            messages_appended: None,
            omitted: None,
        };
        TurnOutcome::failed(frame, text)
    }

    /// The event for the front end that stands beside it.
    pub(crate) fn rpc_error(&self) -> Option<RawJson> {
        rpc_error(self.sid, self.reason, &self.message)
    }
}

/// The JSON-RPC `error` event that tells a front end of a failed turn.
pub(crate) fn rpc_error(sid: &SessionId, reason: FailReason, message: &str) -> Option<RawJson> {
    #[derive(Serialize)]
    struct Payload<'a> {
        message: &'a str,
        reason: &'static str,
    }
    #[derive(Serialize)]
    struct Params<'a> {
        r#type: &'static str,
        session_id: &'a SessionId,
        payload: Payload<'a>,
    }
    #[derive(Serialize)]
    struct Notification<'a> {
        jsonrpc: &'static str,
        method: &'static str,
        params: Params<'a>,
    }
    RawJson::from_value(&Notification {
        jsonrpc: "2.0",
        method: "event",
        params: Params {
            r#type: "error",
            session_id: sid,
            payload: Payload { message, reason: reason.as_str() },
        },
    })
    .ok()
}

/// The permit of a turn was lost: the supervisor went away with the turn open.
pub(crate) fn dropped(
    sid: &SessionId,
    request_id: &RequestId,
    turn_started: Option<bool>,
    delivered: Delivered,
) -> TurnOutcome {
    Failure {
        sid,
        request_id,
        reason: FailReason::Dropped,
        message: "the last handle of the supervisor was dropped while the turn was open".to_owned(),
        turn_started,
        exit: None,
        stderr_tail: Vec::new(),
        delivered,
        incarnation: None,
    }
    .into_outcome()
}

/// A turn that was interrupted before a byte of it was sent: the host never heard of it.
pub(crate) fn interrupted_unsent(sid: &SessionId, request_id: &RequestId) -> TurnOutcome {
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        sid: &'a SessionId,
        request_id: &'a RequestId,
        history_version: Option<u64>,
        session_key: Option<&'a str>,
        message_count: Option<u64>,
        interrupted: bool,
        ended_ns: Option<u64>,
        final_response: &'a str,
        session_info: Option<&'a str>,
    }
    let text = json(&Line {
        r#type: "turn.end",
        sid,
        request_id,
        history_version: None,
        session_key: None,
        message_count: None,
        interrupted: true,
        ended_ns: None,
        final_response: "",
        session_info: None,
    });
    let frame = TurnEnd {
        sid: Some(sid.clone()),
        request_id: request_id.clone(),
        interrupted: true,
        final_response: Some(String::new()),
        ..TurnEnd::default()
    };
    TurnOutcome::ended(frame, text)
}
