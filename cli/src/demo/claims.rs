//! Whether what the demo promises has really happened: pure, over what was seen.
//!
//! What comes from a turn and what comes from the state of a host are two streams: between them only the order that
//! the play itself makes is asked for.

use crate::demo::cast::{HostName, Part, Session, Turn};
use crate::demo::observed::{Ending, Event, Observed, State};
use turnhost_protocol::FailReason;
use turnhost_supervisor::HostState;

/// SIGKILL.
const KILL: i32 = 9;
/// What a turn adds to the history: its prompt and its answer.
const MESSAGES_OF_A_TURN: u64 = 2;

/// Something the demo promises, and whether it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// One word for programs.
    pub name: &'static str,
    /// For people.
    pub text: &'static str,
    pub holds: bool,
}

type Check = fn(&Seen<'_>) -> bool;

const CLAIMS: [(&str, &str, Check); 8] = [
    (
        "side_by_side",
        "three sessions on two hosts were streaming side by side when north was killed",
        side_by_side,
    ),
    ("killed", "the host of north died of SIGKILL", killed),
    ("one_ending", "each of the 8 turns ended exactly once, and nothing came after its end", one_ending),
    ("crash", "the turns that ran on north ended with the reason crash", crash),
    ("went_on", "the turn on south streamed on after that and ended whole, on the same host", went_on),
    ("respawn", "the next start of north was counted down, and came", respawn),
    ("history", "the next turns on north had the whole history: 6 messages each", history),
    ("nothing_left", "both hosts were stopped and no process is left", nothing_left),
];

/// Holds every claim against what was seen.
pub(super) fn judge(seen: &[Observed]) -> Vec<Claim> {
    let seen = Seen(seen);
    CLAIMS.iter().map(|(name, text, check)| Claim { name, text, holds: check(&seen) }).collect()
}

struct Seen<'a>(&'a [Observed]);

impl<'a> Seen<'a> {
    fn enumerate(&self) -> impl Iterator<Item = (usize, &'a Observed)> {
        self.0.iter().enumerate()
    }

    fn position(&self, wanted: impl Fn(&Observed) -> bool) -> Option<usize> {
        self.0.iter().position(wanted)
    }

    /// Where north was killed: once.
    fn kill(&self) -> Option<usize> {
        let kill = |observed: &Observed| matches!(observed, Observed::Killed { .. });
        let at =
            self.position(|observed| matches!(observed, Observed::Killed { host: HostName::North, .. }))?;
        (self.0.iter().filter(|observed| kill(observed)).count() == 1).then_some(at)
    }

    /// The events of a turn, and where.
    fn events(&self, of: Turn) -> impl Iterator<Item = (usize, &'a Event)> {
        self.enumerate().filter_map(move |(at, observed)| match observed {
            Observed::Turn { turn, event } if *turn == of => Some((at, event)),
            _ => None,
        })
    }

    fn ending(&self, turn: Turn) -> Option<(usize, &'a Ending)> {
        self.events(turn).find_map(|(at, event)| match event {
            Event::Ended(ending) => Some((at, ending)),
            _ => None,
        })
    }

    /// The messages in the history after a turn that ended whole.
    fn messages(&self, turn: Turn) -> Option<u64> {
        match self.ending(turn)?.1 {
            Ending::Completed { messages } => *messages,
            Ending::Interrupted | Ending::Failed { .. } => None,
        }
    }

    /// The states of a host, and where.
    fn states(&self, of: HostName) -> impl Iterator<Item = (usize, &'a State)> {
        self.enumerate().filter_map(move |(at, observed)| match observed {
            Observed::State { host, state } if *host == of => Some((at, state)),
            _ => None,
        })
    }
}

fn side_by_side(seen: &Seen<'_>) -> bool {
    let Some(kill) = seen.kill() else { return false };
    Turn::of(Part::Long).all(|turn| {
        let before = |wanted: fn(&Event) -> bool| {
            seen.events(turn).take_while(|(at, _)| *at < kill).any(|(_, event)| wanted(event))
        };
        before(|event| matches!(event, Event::Started))
            && before(|event| matches!(event, Event::Delta(_)))
            && !before(|event| matches!(event, Event::Ended(_)))
    })
}

fn killed(seen: &Seen<'_>) -> bool {
    let Some(kill) = seen.kill() else { return false };
    seen.states(HostName::North).find(|(at, _)| *at > kill).is_some_and(|(_, s)| s.last_signal == Some(KILL))
}

fn one_ending(seen: &Seen<'_>) -> bool {
    Turn::ALL.into_iter().all(|turn| {
        let submitted = seen.0.iter().filter(|observed| **observed == Observed::Submitted(turn)).count();
        let endings = seen.events(turn).filter(|(_, event)| matches!(event, Event::Ended(_))).count();
        let last = seen.events(turn).last();
        submitted == 1 && endings == 1 && matches!(last, Some((_, Event::Ended(_))))
    })
}

fn crash(seen: &Seen<'_>) -> bool {
    let Some(kill) = seen.kill() else { return false };
    Turn::ALL.into_iter().filter(|turn| turn.is_doomed()).all(|turn| match seen.ending(turn) {
        Some((at, Ending::Failed { reason: FailReason::Crash, signal, .. })) => {
            at > kill && *signal == Some(KILL.into())
        }
        _ => false,
    })
}

fn went_on(seen: &Seen<'_>) -> bool {
    let turn = Turn { session: Session::Carol, part: Part::Long };
    let doomed = Turn::ALL.into_iter().filter(|turn| turn.is_doomed());
    let Some(ends) = doomed.map(|turn| seen.ending(turn).map(|(at, _)| at)).collect::<Option<Vec<_>>>()
    else {
        return false;
    };
    let after = ends.into_iter().max();
    let streamed = seen.events(turn).any(|(at, event)| Some(at) > after && matches!(event, Event::Delta(_)));
    let whole = matches!(seen.ending(turn), Some((at, Ending::Completed { .. })) if Some(at) > after);
    // From its first readiness to the stop.
    let end = seen.position(|observed| *observed == Observed::Stopping).unwrap_or(usize::MAX);
    let mut states = seen.states(HostName::South).take_while(|(at, _)| *at < end).map(|(_, state)| state);
    let Some(first) = states.find(|state| state.state == HostState::Ready) else { return false };
    let same = states.all(|s| s.state == HostState::Ready && s.incarnation == first.incarnation);
    streamed && whole && same
}

fn respawn(seen: &Seen<'_>) -> bool {
    let Some(kill) = seen.kill() else { return false };
    let Some((_, before)) = seen.states(HostName::North).take_while(|(at, _)| *at < kill).last() else {
        return false;
    };
    let mut after = seen.states(HostName::North).filter(|(at, _)| *at > kill);
    let Some((down, _)) = after.find(|(_, state)| state.state == HostState::BackingOff) else { return false };
    let next = |state: &State| state.state == HostState::Ready && state.incarnation == before.incarnation + 1;
    let Some((up, _)) = after.find(|(_, state)| next(state)) else { return false };
    let mut counted = seen.enumerate().filter(|(at, _)| (down..up).contains(at)).filter_map(
        |(_, observed)| match observed {
            Observed::Countdown { host: HostName::North, left } => Some(*left),
            _ => None,
        },
    );
    let Some(first) = counted.next() else { return false };
    // Counted down, not up.
    counted.try_fold(first, |last, left| (left <= last).then_some(left)).is_some()
}

fn history(seen: &Seen<'_>) -> bool {
    let Some(kill) = seen.kill() else { return false };
    HostName::North.sessions().all(|session| {
        let seeded = seen.0.iter().find_map(|observed| match observed {
            Observed::Seeded { session: of, messages } if *of == session => *messages,
            _ => None,
        });
        let before = seen.messages(Turn { session, part: Part::First });
        let next = Turn { session, part: Part::After };
        let after = seen.messages(next);
        let lost = seen.events(next).any(|(_, event)| matches!(event, Event::SessionLost));
        let late = seen.ending(next).is_some_and(|(at, _)| at > kill);
        // The turn that crashed added nothing.
        seeded.is_some()
            && before == seeded.map(|messages| messages + MESSAGES_OF_A_TURN)
            && after == before.map(|messages| messages + MESSAGES_OF_A_TURN)
            && !lost
            && late
    })
}

fn nothing_left(seen: &Seen<'_>) -> bool {
    let stopped = HostName::ALL
        .into_iter()
        .all(|host| seen.0.iter().any(|observed| *observed == Observed::Stopped { host, survivors: vec![] }));
    stopped && seen.0.contains(&Observed::Left(Vec::new()))
}
