//! What a handle asks of the actor, and frames on their way to it.

use crate::error::CallError;
use crate::handle::{InterruptResult, StopSummary};
use crate::machine::{HostState, StopPlan, SubmitPhase};
use crate::mailbox::Permit;
use crate::status::{HostReady, HostStatus};
use crate::turn::Wire;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use turnhost_protocol::frame::SessionSeeded;
use turnhost_protocol::{ErrorKind, HostCommand, HostEvent, RawJson, RequestId, SessionId, limits};

/// Where an answer goes. The asker may be gone; nobody minds.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, CallError>>;

/// One order from a handle.
#[derive(Debug)]
pub(crate) enum Command {
    Start {
        reply: Reply<HostReady>,
    },
    Status {
        reply: Reply<HostStatus>,
    },
    Submit {
        frame: OutFrame,
        permit: Permit,
        fresh_history: bool,
        reply: Reply<SubmitPhase>,
    },
    Seed {
        frame: OutFrame,
        record: SeedRecord,
        timeout: Duration,
        reply: Reply<Wire<SessionSeeded>>,
    },
    Call {
        frame: OutFrame,
        timeout: Duration,
        reply: Reply<Wire<HostEvent>>,
    },
    Interrupt {
        frame: OutFrame,
        turn_id: Option<RequestId>,
        timeout: Duration,
        reply: Reply<InterruptResult>,
    },
    Reset {
        reply: Reply<HostState>,
    },
    Stop {
        plan: StopPlan,
        reply: Reply<StopSummary>,
    },
    Restart {
        plan: StopPlan,
        reply: Reply<HostReady>,
    },
    /// Answers when the marker resolves, or after the limit: the callers have no timer.
    Await {
        marker: oneshot::Receiver<()>,
        limit: Duration,
        reply: Reply<()>,
    },
}

/// A frame to the host: checked, named and encoded.
#[derive(Debug)]
pub(crate) struct OutFrame {
    pub id: RequestId,
    pub sid: SessionId,
    /// With its newline.
    pub line: Vec<u8>,
}

/// The fields of a frame, each with its text: a number that no Rust type holds, or its spelling, gets through.
pub(crate) type FrameFields = BTreeMap<String, RawJson>;

/// What the ledger keeps of a seed: its fields but `history` and `request_id`, and its messages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeedRecord {
    pub fields: FrameFields,
    pub history: Vec<RawJson>,
}

impl SeedRecord {
    pub(crate) fn sid(&self) -> Option<SessionId> {
        text(&self.fields, "sid").map(SessionId::from)
    }
}

impl OutFrame {
    /// Encodes a typed frame, which has its ids already.
    pub(crate) fn typed(
        sid: Option<SessionId>,
        id: RequestId,
        command: &HostCommand,
        max_frame_bytes: usize,
    ) -> Result<Self, CallError> {
        let sid = checked_sid(sid)?;
        let mut line = Vec::with_capacity(256);
        command.encode(&mut line);
        Self { id, sid, line }.fitting(max_frame_bytes)
    }

    /// Encodes the fields as they are, unknown ones included; `T` says what the known ones must look like.
    pub(crate) fn fields<T: DeserializeOwned>(
        type_name: &'static str,
        mut fields: FrameFields,
        max_frame_bytes: usize,
    ) -> Result<(Self, T), CallError> {
        let wrong = |error| CallError::usage(format!("{type_name}: {error}"));
        let known = RawJson::from_value(&fields).and_then(|text| text.read()).map_err(wrong)?;
        let sid = checked_sid(text(&fields, "sid").map(SessionId::from))?;
        let id = checked_id(text(&fields, "request_id").map(RequestId::from))?;
        fields.remove("type");
        fields.insert("request_id".to_owned(), RawJson::from_value(&id).map_err(wrong)?);
        let line = encode_fields(type_name, &fields, None).map_err(wrong)?;
        Ok((Self { id, sid, line }.fitting(max_frame_bytes)?, known))
    }

    fn fitting(self, max_frame_bytes: usize) -> Result<Self, CallError> {
        let bytes = self.line.len().saturating_sub(1);
        if bytes > max_frame_bytes {
            let message = format!(
                "the frame has {bytes} bytes, the limit is {max_frame_bytes}; nothing was sent; send less or raise max_frame_bytes"
            );
            return Err(CallError::new(ErrorKind::TooLarge, message).of_request(&self.id));
        }
        Ok(self)
    }
}

/// `{"type":T` + the fields + `"history":[…]}` + newline.
pub(crate) fn encode_fields(
    type_name: &str,
    fields: &FrameFields,
    history: Option<&[RawJson]>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = format!(r#"{{"type":"{type_name}""#).into_bytes();
    for (name, value) in fields {
        line.push(b',');
        serde_json::to_writer(&mut line, name)?;
        line.push(b':');
        line.extend_from_slice(value.as_str().as_bytes());
    }
    if let Some(history) = history {
        line.extend_from_slice(br#","history":["#);
        for (index, message) in history.iter().enumerate() {
            if index > 0 {
                line.push(b',');
            }
            line.extend_from_slice(message.as_str().as_bytes());
        }
        line.push(b']');
    }
    line.extend_from_slice(b"}\n");
    Ok(line)
}

/// The fields of the object that `text` is.
///
/// # Errors
/// `usage` if it is none.
pub(crate) fn read_fields(type_name: &str, text: &RawJson) -> Result<FrameFields, CallError> {
    text.read().map_err(|error| CallError::usage(format!("{type_name}: {error}")))
}

/// A field that is a string.
pub(crate) fn text(fields: &FrameFields, name: &str) -> Option<String> {
    fields.get(name)?.read().ok()
}

/// The id given, or a new one.
pub(crate) fn checked_id(id: Option<RequestId>) -> Result<RequestId, CallError> {
    let Some(id) = id else { return Ok(RequestId::from(uuid::Uuid::new_v4().to_string())) };
    checked("request_id", id.as_str())?;
    Ok(id)
}

fn checked_sid(sid: Option<SessionId>) -> Result<SessionId, CallError> {
    let sid = sid.ok_or_else(|| CallError::usage("sid required: name the session"))?;
    checked("sid", sid.as_str())?;
    Ok(sid)
}

fn checked(name: &str, id: &str) -> Result<(), CallError> {
    if id.is_empty() {
        return Err(CallError::usage(format!(
            "{name} is empty; give one of 1 to {} bytes",
            limits::MAX_ID_BYTES
        )));
    }
    if id.len() > limits::MAX_ID_BYTES {
        let bytes = id.len();
        let text = format!("{name} has {bytes} bytes; give one of at most {}", limits::MAX_ID_BYTES);
        return Err(CallError::usage(text));
    }
    Ok(())
}
