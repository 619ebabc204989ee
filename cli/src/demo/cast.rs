//! Who plays: two hosts, three sessions, and what each says in which turn. Pure.

use serde_json::{Map, Value, json};
use std::fmt;

/// The host that will be killed, and the one that will not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostName {
    North,
    South,
}

impl HostName {
    pub(super) const ALL: [Self; 2] = [Self::North, Self::South];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::North => "north",
            Self::South => "south",
        }
    }

    /// Its sessions.
    pub(super) fn sessions(self) -> impl Iterator<Item = Session> {
        Session::ALL.into_iter().filter(move |session| session.host() == self)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A session, and who runs its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Session {
    Alice,
    Bob,
    Carol,
}

impl Session {
    pub(super) const ALL: [Self; 3] = [Self::Alice, Self::Bob, Self::Carol];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Alice => "alice",
            Self::Bob => "bob",
            Self::Carol => "carol",
        }
    }

    pub(super) fn host(self) -> HostName {
        match self {
            Self::Alice | Self::Bob => HostName::North,
            Self::Carol => HostName::South,
        }
    }

    /// What was said before the demo, for the seed.
    pub(super) fn history(self) -> [Value; 2] {
        [
            json!({"role": "user", "content": format!("I am {self}.")}),
            json!({"role": "assistant", "content": format!("Good to see you, {self}.")}),
        ]
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which of its session's turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A short one, which adds to the history.
    First,
    /// The long one, in which the host of the north is killed. There it never ends by itself.
    Long,
    /// The one after the crash.
    After,
}

/// A turn of the play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub session: Session,
    pub part: Part,
}

impl Turn {
    /// Every turn there is.
    pub(super) const ALL: [Self; 8] = [
        Self { session: Session::Alice, part: Part::First },
        Self { session: Session::Bob, part: Part::First },
        Self { session: Session::Carol, part: Part::First },
        Self { session: Session::Alice, part: Part::Long },
        Self { session: Session::Bob, part: Part::Long },
        Self { session: Session::Carol, part: Part::Long },
        Self { session: Session::Alice, part: Part::After },
        Self { session: Session::Bob, part: Part::After },
    ];

    /// Those of one part.
    pub(super) fn of(part: Part) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |turn| turn.part == part)
    }

    /// Counted from 1 in its session.
    pub(super) fn number(self) -> u8 {
        match self.part {
            Part::First => 1,
            Part::Long => 2,
            Part::After => 3,
        }
    }

    /// Its `request_id`.
    pub(super) fn id(self) -> String {
        format!("{}-{}", self.session, self.number())
    }

    /// True if the kill is to end it.
    pub(super) fn is_doomed(self) -> bool {
        self.session.host() == HostName::North && self.part == Part::Long
    }

    fn prompt(self) -> &'static str {
        match self.part {
            Part::First => "How are you?",
            Part::Long => "Tell me a story.",
            Part::After => "Where were we?",
        }
    }

    fn answer(self) -> &'static str {
        match (self.part, self.session) {
            (Part::First, Session::Alice) => "Well, and glad of the company today.",
            (Part::First, Session::Bob) => "Busy, but never too busy for you.",
            (Part::First, Session::Carol) => "Fine, the south is quiet this morning.",
            (Part::Long, Session::Alice) => {
                "Once there was a lighthouse that had no sea. Its keeper lit the lamp all the same, every evening, \
                 and wrote in his book who had come. Nobody had, until one night a ship"
            }
            (Part::Long, Session::Bob) => {
                "A baker sold bread to the whole street, but nobody ever saw him sleep. So one child stayed awake to \
                 watch, and at four in the morning there came down the chimney a very small"
            }
            (Part::Long, Session::Carol) => {
                "Two rivers quarrelled about which of them was longer. They asked the mountain, who was older than \
                 both. The mountain thought for a thousand years and said: you have both been rain."
            }
            (Part::After, Session::Alice) => "You asked for a story, and the light had just gone out.",
            (Part::After, Session::Bob) => "In the chimney. Do you want to hear the rest of it?",
            (Part::After, Session::Carol) => "At the mountain.",
        }
    }

    /// The pieces in which its answer is streamed: words.
    pub(super) fn words(self) -> impl Iterator<Item = &'static str> {
        self.answer().split_inclusive(' ')
    }

    /// How many.
    pub(super) fn word_count(self) -> usize {
        self.words().count()
    }

    /// Milliseconds between them: not the same, so that nobody marches in step.
    fn pace_ms(self) -> u64 {
        match self.session {
            Session::Alice => 70,
            Session::Bob => 85,
            Session::Carol => 100,
        }
    }

    /// The fields of its `turn.start`, with a script for the scripted agent.
    pub(super) fn frame(self) -> Map<String, Value> {
        let mut steps = Vec::new();
        let half = self.word_count() / 2;
        for (index, word) in self.words().enumerate() {
            if index == half && self.asks() {
                // What keeps this turn open until the other host is dead, however slow the machine is.
                steps.push(json!({"ask": {"command": "tell the end", "choices": ["once", "deny"]}}));
            }
            steps.push(json!({"delta": word}));
            steps.push(json!({"sleep_ms": self.pace_ms()}));
        }
        if self.is_doomed() {
            // Nothing but the kill ends it.
            steps.push(json!({"sleep_ms": 600_000}));
        }
        let mut frame = Map::new();
        frame.insert("sid".into(), self.session.as_str().into());
        frame.insert("request_id".into(), self.id().into());
        frame.insert("text".into(), self.prompt().into());
        frame.insert("agent".into(), "scripted".into());
        frame.insert("script".into(), steps.into());
        frame.insert("source".into(), "turnhost demo".into());
        frame
    }

    /// True if it asks a question in its middle.
    fn asks(self) -> bool {
        self.part == Part::Long && !self.is_doomed()
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnhost_host::agent::scripted::parse_script;

    #[test]
    fn every_turn_has_a_name_of_its_own_and_a_script_that_the_host_understands() {
        let ids: std::collections::BTreeSet<String> = Turn::ALL.into_iter().map(Turn::id).collect();
        assert_eq!(ids.len(), Turn::ALL.len());
        for turn in Turn::ALL {
            let script = turn.frame()["script"].to_string();
            assert!(parse_script(&script).is_ok(), "{turn}: {script}");
        }
    }

    #[test]
    fn the_long_turns_cannot_end_before_the_kill() {
        for turn in Turn::of(Part::Long) {
            let frame = turn.frame();
            let steps = frame["script"].as_array().expect("steps");
            let waits = |step: &Value| step["sleep_ms"].as_u64() > Some(60_000) || step["ask"].is_object();
            assert!(steps.iter().any(waits), "{turn}");
        }
    }
}
