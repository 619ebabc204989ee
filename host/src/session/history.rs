//! The messages of one session, and the version that moves with every change.

use std::collections::VecDeque;
use std::sync::Arc;
use turnhost_protocol::limits::ENDED_TURNS_KEPT;
use turnhost_protocol::{RawJson, RequestId};

/// What a turn leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending<'a> {
    /// It came to its end: the prompt and the answer are kept, an empty one too.
    Ended(&'a str),
    /// It was stopped: the prompt is kept, and the partial answer if there is any.
    Interrupted(&'a str),
    /// Its agent failed: the prompt is kept, and what was generated if there is any.
    Failed(&'a str),
}

/// Messages, version, names, and the turns that ended lately.
#[derive(Debug)]
pub(crate) struct History {
    messages: Arc<Vec<RawJson>>,
    version: u64,
    session_key: String,
    parent_key: Option<String>,
    ended: VecDeque<RequestId>,
}

/// A history as it was before it was replaced.
#[derive(Debug)]
pub(crate) struct Before {
    messages: Arc<Vec<RawJson>>,
    version: u64,
}

impl History {
    /// A history as seeded, at version 0.
    pub(crate) fn new(session_key: String, messages: Vec<RawJson>) -> Self {
        Self {
            messages: Arc::new(messages),
            version: 0,
            session_key,
            parent_key: None,
            ended: VecDeque::with_capacity(ENDED_TURNS_KEPT),
        }
    }

    /// Appends what a turn leaves, moves the version by one, and returns the messages that were added.
    pub(crate) fn append_turn(&mut self, prompt: &str, ending: Ending<'_>) -> Vec<RawJson> {
        let answer = match ending {
            Ending::Ended(answer) => Some(answer),
            Ending::Interrupted(partial) | Ending::Failed(partial) => {
                Some(partial).filter(|partial| !partial.is_empty())
            }
        };
        let added: Vec<RawJson> = std::iter::once(("user", prompt))
            .chain(answer.map(|answer| ("assistant", answer)))
            .filter_map(|(role, content)| message(role, content))
            .collect();
        Arc::make_mut(&mut self.messages).extend(added.iter().cloned());
        self.version += 1;
        added
    }

    /// Empties the history under a new key; the old key becomes its parent.
    pub(crate) fn reset(&mut self, session_key: String) {
        self.replace(Vec::new());
        self.move_to(session_key);
    }

    /// Replaces the messages and moves the version by one. What it returns undoes that.
    pub(crate) fn replace(&mut self, messages: Vec<RawJson>) -> Before {
        let before = Before {
            messages: std::mem::replace(&mut self.messages, Arc::new(messages)),
            version: self.version,
        };
        self.version += 1;
        before
    }

    /// Undoes a [`History::replace`].
    pub(crate) fn roll_back(&mut self, before: Before) {
        self.messages = before.messages;
        self.version = before.version;
    }

    /// Keeps the first `len` messages and returns the others, if there are any; moves the version by one if there are.
    pub(crate) fn cut(&mut self, len: usize) -> Vec<RawJson> {
        if len >= self.messages.len() {
            return Vec::new();
        }
        self.version += 1;
        Arc::make_mut(&mut self.messages).split_off(len)
    }

    /// Goes on under a new key; the old key becomes its parent.
    pub(crate) fn move_to(&mut self, session_key: String) {
        self.parent_key = Some(std::mem::replace(&mut self.session_key, session_key));
    }

    /// Remembers a turn that ended; the oldest one beyond the limit is forgotten.
    pub(crate) fn remember_ended(&mut self, turn: RequestId) {
        if self.ended.len() == ENDED_TURNS_KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(turn);
    }

    /// True if the turn is among those that ended lately.
    pub(crate) fn has_ended(&self, turn: &RequestId) -> bool {
        self.ended.contains(turn)
    }

    /// The messages as they stand; later changes do not show in it.
    pub(crate) fn snapshot(&self) -> Arc<Vec<RawJson>> {
        Arc::clone(&self.messages)
    }

    /// Number of messages.
    pub(crate) fn message_count(&self) -> u64 {
        self.messages.len() as u64
    }

    /// 0 after a seed, one more with each change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Durable name of the session.
    pub(crate) fn session_key(&self) -> &str {
        &self.session_key
    }

    /// Says which key the session had in an earlier host.
    pub(crate) fn set_parent(&mut self, parent_key: Option<String>) {
        self.parent_key = parent_key;
    }

    /// The key that the session had before its last reset or compression.
    pub(crate) fn parent_key(&self) -> Option<&str> {
        self.parent_key.as_deref()
    }
}

/// One message as `{"role":…,"content":…}`; two strings always serialise.
fn message(role: &str, content: &str) -> Option<RawJson> {
    #[derive(serde::Serialize)]
    struct Message<'a> {
        role: &'a str,
        content: &'a str,
    }
    RawJson::from_value(&Message { role, content }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        History::new(
            "key".to_owned(),
            ["a", "b"].into_iter().filter_map(|text| message("user", text)).collect(),
        )
    }

    fn texts(messages: &[RawJson]) -> Vec<&str> {
        messages.iter().map(RawJson::as_str).collect()
    }

    #[test]
    fn each_ending_appends_what_it_leaves_and_moves_the_version_by_one() {
        let user = r#"{"role":"user","content":"p"}"#;
        let assistant = r#"{"role":"assistant","content":"x"}"#;
        let empty = r#"{"role":"assistant","content":""}"#;
        let table = [
            (Ending::Ended("x"), vec![user, assistant]),
            (Ending::Ended(""), vec![user, empty]),
            (Ending::Interrupted("x"), vec![user, assistant]),
            (Ending::Interrupted(""), vec![user]),
            (Ending::Failed("x"), vec![user, assistant]),
            (Ending::Failed(""), vec![user]),
        ];
        for (ending, expected) in table {
            let mut history = history();
            let added = history.append_turn("p", ending);
            assert_eq!(texts(&added), expected, "{ending:?}");
            assert_eq!(history.version(), 1, "{ending:?}");
            assert_eq!(history.message_count(), 2 + expected.len() as u64, "{ending:?}");
            assert_eq!(&texts(&history.snapshot())[2..], expected, "{ending:?}");
        }
    }

    #[test]
    fn a_snapshot_does_not_change_with_the_history() {
        let mut history = history();
        let before = history.snapshot();
        history.append_turn("p", Ending::Ended("x"));
        assert_eq!(before.len(), 2);
        assert_eq!(history.snapshot().len(), 4);
    }

    #[test]
    fn a_reset_empties_the_history_and_keeps_the_old_key_as_parent() {
        let mut history = history();
        history.append_turn("p", Ending::Ended("x"));
        history.reset("second".to_owned());
        assert_eq!((history.version(), history.message_count()), (2, 0));
        assert_eq!((history.session_key(), history.parent_key()), ("second", Some("key")));
        history.reset("third".to_owned());
        assert_eq!((history.session_key(), history.parent_key()), ("third", Some("second")));
    }

    #[test]
    fn a_replaced_history_can_be_had_back_with_its_version() {
        let mut history = history();
        let before = history.replace(vec![]);
        assert_eq!((history.version(), history.message_count()), (1, 0));
        history.roll_back(before);
        assert_eq!((history.version(), history.message_count()), (0, 2));
        assert_eq!((history.session_key(), history.parent_key()), ("key", None));
    }

    #[test]
    fn a_cut_moves_the_version_only_if_it_takes_something_away() {
        let mut history = history();
        let kept = history.snapshot();
        assert_eq!(history.cut(2), []);
        assert_eq!(history.version(), 0);
        assert_eq!(texts(&history.cut(1)), [r#"{"role":"user","content":"b"}"#]);
        assert_eq!((history.version(), history.message_count(), kept.len()), (1, 1, 2));
        assert_eq!(history.cut(0).len(), 1);
        assert_eq!((history.version(), history.message_count()), (2, 0));
    }

    #[test]
    fn the_last_64_ended_turns_are_remembered() {
        let mut history = history();
        for number in 0..=ENDED_TURNS_KEPT {
            history.remember_ended(RequestId::from(format!("t{number}")));
        }
        assert!(!history.has_ended(&"t0".into()), "the oldest one is forgotten");
        assert!(history.has_ended(&"t1".into()));
        assert!(history.has_ended(&RequestId::from(format!("t{ENDED_TURNS_KEPT}"))));
    }
}
