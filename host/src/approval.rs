//! Open questions to a person. Pure: time is passed in, answers go out through the channel that came with a question.
//!
//! The first answer wins; a late one is told which choice holds. No answer in time, an interrupt and a stop deny.

use crate::turn::context::{ApprovalAnswer, Question};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use turnhost_protocol::SessionId;

/// Questions that one turn may have open; a further one is denied at once.
const OPEN_PER_TURN: usize = 64;
/// Settled questions that are remembered, to tell a late answer from one to a question that never was.
const SETTLED_KEPT: usize = 64;
/// Longest time that a question may stand.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// The choice that refuses.
pub(crate) const DENY: &str = "deny";

/// A question that waits for its answer.
#[derive(Debug)]
struct Open {
    turn: u64,
    sid: SessionId,
    choices: Vec<String>,
    until: Instant,
    reply: oneshot::Sender<ApprovalAnswer>,
}

/// A question that has its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) approval_id: String,
    pub(crate) turn: u64,
    pub(crate) choice: String,
}

/// A question as it goes out to the front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) approval_id: String,
    pub(crate) choices: Vec<String>,
    pub(crate) timeout_ms: u64,
}

/// What came of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Response {
    /// It settled the question.
    Resolved(Settled),
    /// Another answer, the time limit or the interrupt was first; this choice holds.
    Late { choice: String },
    /// No question has this id, or not in this session.
    Unknown,
    /// The question stays open: this is none of its choices.
    NotAChoice { choices: Vec<String> },
}

/// Every question that is open, and the last ones that were.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    open: BTreeMap<String, Open>,
    settled: VecDeque<(Settled, SessionId)>,
}

impl Approvals {
    /// Opens a question under `approval_id`. `None`: the turn has too many open ones, it was denied.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        approval_id: String,
        turn: u64,
        sid: SessionId,
        question: &Question,
        reply: oneshot::Sender<ApprovalAnswer>,
    ) -> Option<Asked> {
        if self.open.values().filter(|open| open.turn == turn).count() >= OPEN_PER_TURN {
            let _ = reply.send(ApprovalAnswer::Denied);
            return None;
        }
        let mut choices = question.choices.clone();
        if choices.is_empty() {
            choices = ["once", "session"].map(str::to_owned).to_vec();
            if question.allow_permanent {
                choices.push("always".to_owned());
            }
            choices.push(DENY.to_owned());
        }
        let timeout = Duration::from_millis(question.timeout_ms).min(LONGEST);
        let open = Open { turn, sid, choices: choices.clone(), until: now + timeout, reply };
        self.open.insert(approval_id.clone(), open);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Some(Asked { approval_id, choices, timeout_ms })
    }

    /// An answer from outside. `sid` is compared if the answer names one.
    pub(crate) fn respond(&mut self, approval_id: &str, sid: Option<&SessionId>, choice: &str) -> Response {
        let is_of = |of: &SessionId| sid.is_none_or(|sid| sid.is_empty() || sid == of);
        let Some(open) = self.open.get(approval_id).filter(|open| is_of(&open.sid)) else {
            let settled =
                self.settled.iter().find(|(settled, of)| settled.approval_id == approval_id && is_of(of));
            return settled
                .map_or(Response::Unknown, |(settled, _)| Response::Late { choice: settled.choice.clone() });
        };
        if !open.choices.iter().any(|known| known == choice) {
            return Response::NotAChoice { choices: open.choices.clone() };
        }
        self.settle(approval_id, ApprovalAnswer::Choice(choice.to_owned()))
            .map_or(Response::Unknown, Response::Resolved)
    }

    /// Denies what has stood too long.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Settled> {
        self.deny_where(|open| open.until <= now)
    }

    /// Denies one question that nobody was asked.
    pub(crate) fn deny(&mut self, approval_id: &str) {
        // Nobody heard of it, so nobody is told that it is settled.
        let _ = self.settle(approval_id, ApprovalAnswer::Denied);
    }

    /// Denies every question of a turn: it was interrupted, or it is over.
    pub(crate) fn deny_turn(&mut self, turn: u64) -> Vec<Settled> {
        self.deny_where(|open| open.turn == turn)
    }

    /// When [`Approvals::expire`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|open| open.until).min()
    }

    fn deny_where(&mut self, mut filter: impl FnMut(&Open) -> bool) -> Vec<Settled> {
        let ids: Vec<String> =
            self.open.iter().filter(|(_, open)| filter(open)).map(|(id, _)| id.clone()).collect();
        ids.iter().filter_map(|id| self.settle(id, ApprovalAnswer::Denied)).collect()
    }

    fn settle(&mut self, approval_id: &str, answer: ApprovalAnswer) -> Option<Settled> {
        let (approval_id, open) = self.open.remove_entry(approval_id)?;
        let choice = match &answer {
            ApprovalAnswer::Choice(choice) => choice.clone(),
            ApprovalAnswer::Denied => DENY.to_owned(),
        };
        // The agent may have stopped waiting; the question is settled all the same.
        let _ = open.reply.send(answer);
        let settled = Settled { approval_id, turn: open.turn, choice };
        if self.settled.len() == SETTLED_KEPT {
            self.settled.pop_front();
        }
        self.settled.push_back((settled.clone(), open.sid));
        Some(settled)
    }
}

#[cfg(test)]
mod tests;
