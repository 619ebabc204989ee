//! What is done next: pure. Everything waits for what was seen, never for the clock, so that a slow machine plays the
//! same play.

use crate::demo::cast::{HostName, Part, Session, Turn};
use crate::demo::observed::{Event, Observed};

/// Words that each long turn has streamed before the kill.
const WORDS_BEFORE_THE_KILL: usize = 10;

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Submit(Turn),
    /// SIGKILL to the host's process.
    Kill(HostName),
    /// Answer the question with yes.
    Allow {
        session: Session,
        question: String,
    },
    /// The play is over, or it went wrong: stop both hosts.
    Stop,
}

/// How far the play is.
#[derive(Debug, Default)]
pub(super) struct Plot {
    seeded: usize,
    /// For each turn of [`Turn::ALL`].
    turns: [Progress; Turn::ALL.len()],
    killed: bool,
    question: Option<(Session, String)>,
    stopped: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    words: usize,
    ended: bool,
}

impl Plot {
    /// Takes what was seen; says what to do about it.
    pub(super) fn observe(&mut self, observed: &Observed) -> Vec<Act> {
        if self.stopped {
            return Vec::new();
        }
        let acts = self.next(observed);
        self.stopped = acts.contains(&Act::Stop);
        acts
    }

    fn next(&mut self, observed: &Observed) -> Vec<Act> {
        match observed {
            Observed::Seeded { .. } => {
                self.seeded += 1;
                if self.seeded == Session::ALL.len() { submit(Part::First) } else { Vec::new() }
            }
            Observed::Turn { turn, event: Event::Delta(_) } => {
                self.progress(*turn).words += 1;
                let far = Turn::of(Part::Long).all(|turn| self.words(turn) >= WORDS_BEFORE_THE_KILL);
                if far && !std::mem::replace(&mut self.killed, far) {
                    return vec![Act::Kill(HostName::North)];
                }
                Vec::new()
            }
            Observed::Turn { turn, event: Event::Question(question) } => {
                self.question = Some((turn.session, question.clone()));
                self.answer()
            }
            Observed::Turn { turn, event: Event::Ended(ending) } => {
                self.progress(*turn).ended = true;
                if !ending.is_planned(*turn) || turn.is_doomed() && !self.killed {
                    return vec![Act::Stop];
                }
                self.after(*turn)
            }
            Observed::Refused(_) => vec![Act::Stop],
            Observed::Turn { event: Event::Started | Event::SessionLost | Event::Other, .. }
            | Observed::State { .. }
            | Observed::Submitted(_)
            | Observed::Killed { .. }
            | Observed::Countdown { .. }
            | Observed::Allowed(_)
            | Observed::Stopping
            | Observed::Stopped { .. }
            | Observed::Left(_) => Vec::new(),
        }
    }

    /// A turn has ended as it should.
    fn after(&mut self, turn: Turn) -> Vec<Act> {
        let mut acts = Vec::new();
        if turn.part == Part::First && self.all_ended(|turn| turn.part == Part::First) {
            acts = submit(Part::Long);
        }
        if turn.is_doomed() {
            // The host is not back yet: the turn waits for it.
            acts.push(Act::Submit(Turn { session: turn.session, part: Part::After }));
            acts.extend(self.answer());
        }
        if self.all_ended(|_| true) {
            acts.push(Act::Stop);
        }
        acts
    }

    /// The question is answered once the dead are counted.
    fn answer(&mut self) -> Vec<Act> {
        if !self.all_ended(Turn::is_doomed) {
            return Vec::new();
        }
        self.question.take().map(|(session, question)| Act::Allow { session, question }).into_iter().collect()
    }

    fn all_ended(&self, which: impl Fn(Turn) -> bool) -> bool {
        Turn::ALL.into_iter().zip(&self.turns).filter(|(turn, _)| which(*turn)).all(|(_, seen)| seen.ended)
    }

    fn words(&self, turn: Turn) -> usize {
        Turn::ALL.into_iter().zip(&self.turns).find(|(of, _)| *of == turn).map_or(0, |(_, seen)| seen.words)
    }

    fn progress(&mut self, turn: Turn) -> &mut Progress {
        let index = Turn::ALL.into_iter().position(|of| of == turn).unwrap_or_default();
        &mut self.turns[index]
    }
}

fn submit(part: Part) -> Vec<Act> {
    Turn::of(part).map(Act::Submit).collect()
}
