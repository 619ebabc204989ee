//! What is told of the play in lines, for people: pure.

use crate::demo::cast::{HostName, Part, Session, Turn};
use crate::demo::observed::{Ending, Event, Observed, State};
use turnhost_supervisor::HostState;

/// Words of a turn that are shown in one line.
const WORDS_A_LINE: usize = 6;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Something happened.
    News(String),
    /// A piece of an answer.
    Text(String),
}

/// Gathers words to lines.
#[derive(Debug, Default)]
pub(super) struct Teller {
    held: [Held; Session::ALL.len()],
    /// The last state told of each host: a state may come again with other details.
    states: [Option<(HostState, u64)>; HostName::ALL.len()],
}

#[derive(Debug, Default)]
struct Held {
    text: String,
    words: usize,
}

impl Teller {
    /// The lines about it.
    pub(super) fn tell(&mut self, observed: &Observed) -> Vec<Line> {
        match observed {
            Observed::Turn { turn, event: Event::Delta(text) } => self.words(*turn, text),
            Observed::Turn { turn, event } => {
                let mut lines: Vec<Line> = self.rest(*turn).into_iter().collect();
                lines.extend(of_turn(*turn, event).map(Line::News));
                lines
            }
            Observed::State { host, state } if !self.is_new(*host, state) => Vec::new(),
            other => news(other).map(Line::News).into_iter().collect(),
        }
    }

    fn is_new(&mut self, host: HostName, state: &State) -> bool {
        let index = HostName::ALL.into_iter().position(|name| name == host).unwrap_or_default();
        let now = Some((state.state, state.incarnation));
        std::mem::replace(&mut self.states[index], now) != now
    }

    fn words(&mut self, turn: Turn, text: &str) -> Vec<Line> {
        let Some(held) = self.held(turn) else { return Vec::new() };
        held.text.push_str(text);
        held.words += 1;
        if held.words < WORDS_A_LINE { Vec::new() } else { self.rest(turn).into_iter().collect() }
    }

    fn rest(&mut self, turn: Turn) -> Option<Line> {
        let held = std::mem::take(self.held(turn)?);
        (held.words > 0).then(|| Line::Text(format!("{turn}  | {}", held.text.trim_end())))
    }

    fn held(&mut self, turn: Turn) -> Option<&mut Held> {
        let index = Session::ALL.into_iter().position(|session| session == turn.session)?;
        self.held.get_mut(index)
    }
}

fn of_turn(turn: Turn, event: &Event) -> Option<String> {
    Some(match event {
        Event::Started => format!("{turn} started"),
        Event::Question(_) => format!("{turn} asks whether it may go on"),
        Event::SessionLost => format!("{turn}: its history is lost"),
        Event::Ended(Ending::Completed { messages: Some(messages) }) => {
            format!("{turn} ended: turn.end, {messages} messages in its history")
        }
        Event::Ended(Ending::Completed { messages: None }) => format!("{turn} ended: turn.end"),
        Event::Ended(Ending::Interrupted) => format!("{turn} ended: interrupted"),
        Event::Ended(Ending::Failed { reason, message, .. }) => {
            format!("{turn} ended: turn.error, {reason}: {message}")
        }
        Event::Delta(_) | Event::Other => return None,
    })
}

fn news(observed: &Observed) -> Option<String> {
    Some(match observed {
        Observed::State { host, state } => format!("{host}: {}", of_state(state)?),
        Observed::Seeded { session, messages } => {
            format!("{session} is seeded with {} messages", messages.unwrap_or_default())
        }
        Observed::Submitted(turn) if turn.part == Part::After => {
            format!("{turn} submitted; it waits for a host")
        }
        Observed::Killed { host, pid } => format!("kill -9 {pid}: the host of {host}, in mid-turn"),
        Observed::Countdown { host, left } => format!("{host}: a new host in {:.1} s", left.as_secs_f64()),
        Observed::Allowed(session) => format!("{session} may go on"),
        Observed::Refused(what) => format!("refused: {what}"),
        Observed::Stopping => "stopping both hosts".to_owned(),
        Observed::Stopped { host, survivors } if survivors.is_empty() => format!("{host} is stopped"),
        Observed::Stopped { host, survivors } => format!("{host} is stopped, but these live: {survivors:?}"),
        Observed::Left(pids) if !pids.is_empty() => format!("left behind: {pids:?}"),
        Observed::Left(_) | Observed::Submitted(_) | Observed::Turn { .. } => return None,
    })
}

fn of_state(state: &State) -> Option<String> {
    let pid = state.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    match state.state {
        HostState::Ready if state.incarnation > 1 => Some(format!("a new host is ready{pid}")),
        HostState::Ready => Some(format!("its host is ready{pid}")),
        HostState::BackingOff => {
            let signal = state.last_signal.map(|signal| format!(" by signal {signal}")).unwrap_or_default();
            Some(format!("its host was ended{signal}"))
        }
        HostState::CrashLooped => Some("its host crashed too often".to_owned()),
        HostState::Stopped | HostState::Starting | HostState::Draining => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn delta(turn: Turn, text: &str) -> Observed {
        Observed::Turn { turn, event: Event::Delta(text.to_owned()) }
    }

    #[test]
    fn words_are_gathered_to_lines_and_the_rest_comes_before_the_end() {
        let [alice, bob] = [Session::Alice, Session::Bob].map(|session| Turn { session, part: Part::First });
        let mut teller = Teller::default();
        for _ in 1..WORDS_A_LINE {
            assert_eq!(teller.tell(&delta(alice, "a ")), []);
        }
        assert_eq!(teller.tell(&delta(bob, "b ")), []);
        let line = "alice-1  | a a a a a a".to_owned();
        assert_eq!(teller.tell(&delta(alice, "a ")), [Line::Text(line)]);
        let end = Observed::Turn { turn: bob, event: Event::Ended(Ending::Completed { messages: Some(4) }) };
        let told = teller.tell(&end);
        assert_eq!(
            told,
            [
                Line::Text("bob-1  | b".to_owned()),
                Line::News("bob-1 ended: turn.end, 4 messages in its history".to_owned())
            ]
        );
    }
}
