//! Questions of agents, answers of people.

use super::Host;
use crate::approval::{Response, Settled};
use crate::turn::context::{ApprovalAnswer, Question, Room};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::Instant;
use turnhost_protocol::RawJson;
use turnhost_protocol::frame::{EventBody, Respond, RespondAck, RespondError};

impl Host {
    pub(super) fn ask(
        &mut self,
        now: Instant,
        turn: u64,
        question: &Question,
        reply: oneshot::Sender<ApprovalAnswer>,
        room: Room,
    ) {
        let Some(asking) = self.turns.get(turn) else { return };
        // An interrupt that came first denies the question without asking anybody.
        if asking.interrupted_at.is_some() {
            let _ = reply.send(ApprovalAnswer::Denied);
            return;
        }
        let approval_id = format!("approval-{}", uuid::Uuid::new_v4().simple());
        let to = asking.address();
        let sid = to.sid.clone();
        let asked = self.approvals.ask(now, approval_id.clone(), turn, sid, question, reply);
        let Some(asked) = asked else { return };
        let body = EventBody::ApprovalRequest {
            approval_id: asked.approval_id,
            command: question.command.clone(),
            description: question.description.clone(),
            choices: asked.choices,
            allow_permanent: question.allow_permanent,
            timeout_ms: asked.timeout_ms,
        };
        let mirror = self.options.rpc_events.then_some("approval.request");
        if self.out.fits_event(&to, &body, mirror) {
            return self.say_event(turn, &body, Some(room));
        }
        // Nobody can judge what nobody can see whole.
        let limit = self.options.max_frame_bytes;
        let text = format!("a question was denied: it does not fit into a frame of {limit} bytes");
        self.say_event(turn, &EventBody::Status { text }, Some(room));
        self.approvals.deny(&approval_id);
    }

    pub(super) fn say_settled(&mut self, settled: &Settled) {
        let body = EventBody::ApprovalResolved {
            approval_id: settled.approval_id.clone(),
            choice: settled.choice.clone(),
        };
        self.say_event(settled.turn, &body, None);
    }

    pub(super) fn deny_questions(&mut self, turn: u64) {
        for settled in self.approvals.deny_turn(turn) {
            self.say_settled(&settled);
        }
    }

    pub(super) fn respond(&mut self, frame: Respond) {
        let request_id = frame.request_id.unwrap_or_default();
        let (approval_id, choice) = answer_of(frame.approval_id, frame.choice, frame.params.as_ref());
        let refusal = match (approval_id, choice) {
            (None, _) => "approval_id required".to_owned(),
            (Some(_), None) => "choice required".to_owned(),
            (Some(id), Some(choice)) => match self.approvals.respond(&id, frame.sid.as_ref(), &choice) {
                Response::Resolved(settled) => {
                    self.out.answer(RespondAck {
                        sid: frame.sid,
                        request_id,
                        resolved: Some(true),
                        approval_id: Some(id),
                        choice: Some(choice),
                    });
                    return self.say_settled(&settled);
                }
                Response::Late { choice } => {
                    return self.out.answer(RespondAck {
                        sid: frame.sid,
                        request_id,
                        resolved: Some(false),
                        approval_id: Some(id),
                        choice: Some(choice),
                    });
                }
                Response::Unknown => format!("no open question: {id}"),
                Response::NotAChoice { choices } => {
                    format!("not a choice: {choice}; choices: {}", choices.join(", "))
                }
            },
        };
        self.out.answer(RespondError { sid: frame.sid, request_id, message: refusal });
    }
}

/// The answer's two fields, or those of the peer's `{"frame":{…}}`.
fn answer_of(
    approval_id: Option<String>,
    choice: Option<String>,
    params: Option<&RawJson>,
) -> (Option<String>, Option<String>) {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Inner {
        approval_id: Option<String>,
        choice: Option<String>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Params {
        frame: Option<Inner>,
        approval_id: Option<String>,
        choice: Option<String>,
    }
    let params: Params = params.and_then(|params| params.read().ok()).unwrap_or_default();
    let inner = params.frame.unwrap_or_default();
    (
        approval_id.or(inner.approval_id).or(params.approval_id).filter(|id| !id.is_empty()),
        choice.or(inner.choice).or(params.choice).filter(|choice| !choice.is_empty()),
    )
}
