//! A play that went well holds every claim; each thing that is taken from it breaks the claims that it was for.

use super::cast::{HostName, Part, Session, Turn};
use super::claims::judge;
use super::observed::{Ending, Event, Observed, State};
use super::plot::{Act, Plot};
use pretty_assertions::assert_eq;
use std::time::Duration;
use turnhost_protocol::FailReason;
use turnhost_supervisor::HostState;

const NORTH_PID: i32 = 4711;

fn state(host: HostName, state: HostState, incarnation: u64, last_signal: Option<i32>) -> Observed {
    Observed::State { host, state: State { state, incarnation, pid: None, last_signal } }
}

fn turn(session: Session, part: Part) -> Turn {
    Turn { session, part }
}

fn event(turn: Turn, event: Event) -> Observed {
    Observed::Turn { turn, event }
}

fn delta(turn: Turn) -> Observed {
    event(turn, Event::Delta("word ".to_owned()))
}

fn completed(turn: Turn, messages: u64) -> Observed {
    event(turn, Event::Ended(Ending::Completed { messages: Some(messages) }))
}

fn failed(turn: Turn, reason: FailReason, signal: Option<i64>) -> Observed {
    event(turn, Event::Ended(Ending::Failed { reason, signal, message: "m".to_owned() }))
}

fn countdown(ms: u64) -> Observed {
    Observed::Countdown { host: HostName::North, left: Duration::from_millis(ms) }
}

/// A play as it should be.
fn good() -> Vec<Observed> {
    use HostState::{BackingOff, Draining, Ready, Starting, Stopped};
    use Session::{Alice, Bob, Carol};
    let mut seen = Vec::new();
    for host in HostName::ALL {
        seen.extend([state(host, Starting, 1, None), state(host, Ready, 1, None)]);
    }
    for session in Session::ALL {
        seen.push(Observed::Seeded { session, messages: Some(2) });
    }
    for part in [Part::First, Part::Long] {
        seen.extend(Turn::of(part).map(Observed::Submitted));
        seen.extend(Turn::of(part).map(|turn| event(turn, Event::Started)));
        for _ in 0..12 {
            seen.extend(Turn::of(part).map(delta));
        }
        if part == Part::First {
            seen.extend(Turn::of(part).map(|turn| completed(turn, 4)));
        }
    }
    seen.push(Observed::Killed { host: HostName::North, pid: NORTH_PID });
    for session in [Alice, Bob] {
        seen.push(failed(turn(session, Part::Long), FailReason::Crash, Some(9)));
        seen.push(Observed::Submitted(turn(session, Part::After)));
    }
    seen.extend([state(HostName::North, BackingOff, 1, Some(9)), countdown(1800), countdown(1500)]);
    let carol = turn(Carol, Part::Long);
    seen.extend([event(carol, Event::Question("a1".to_owned())), Observed::Allowed(Carol), delta(carol)]);
    seen.extend([countdown(20), state(HostName::North, Starting, 2, Some(9))]);
    seen.push(state(HostName::North, Ready, 2, Some(9)));
    seen.push(completed(carol, 6));
    for session in [Alice, Bob] {
        let turn = turn(session, Part::After);
        seen.extend([event(turn, Event::Started), delta(turn), completed(turn, 6)]);
    }
    seen.push(Observed::Stopping);
    for host in HostName::ALL {
        seen.extend([state(host, Draining, 2, Some(9)), state(host, Stopped, 2, None)]);
    }
    seen.extend(HostName::ALL.map(|host| Observed::Stopped { host, survivors: vec![] }));
    seen.push(Observed::Left(vec![]));
    seen
}

fn missing(seen: &[Observed]) -> Vec<&'static str> {
    judge(seen).iter().filter(|claim| !claim.holds).map(|claim| claim.name).collect()
}

/// The good play without what `which` picks.
fn without(which: impl Fn(&Observed) -> bool) -> Vec<Observed> {
    let rest: Vec<Observed> = good().into_iter().filter(|observed| !which(observed)).collect();
    assert!(rest.len() < good().len(), "nothing was taken");
    rest
}

/// The good play with `other` in the place of each `one`.
fn with(one: &Observed, other: Observed) -> Vec<Observed> {
    let changed: Vec<Observed> =
        good().into_iter().map(|seen| if seen == *one { other.clone() } else { seen }).collect();
    assert_ne!(changed, good(), "nothing was changed");
    changed
}

/// The good play with `more` right behind the last `place`.
fn with_behind(place: &Observed, more: Observed) -> Vec<Observed> {
    let mut seen = good();
    let at = seen.iter().rposition(|observed| observed == place).expect("the place");
    seen.insert(at + 1, more);
    seen
}

#[test]
fn a_play_that_went_well_holds_every_claim() {
    let claims = judge(&good());
    assert_eq!(claims.len(), 8);
    assert_eq!(missing(&good()), [] as [&str; 0]);
}

#[test]
fn a_play_of_which_nothing_was_seen_holds_none() {
    assert!(judge(&[]).iter().all(|claim| !claim.holds));
}

#[test]
fn a_play_that_breaks_off_anywhere_does_not_hold_them_all() {
    let good = good();
    for end in 0..good.len() {
        assert_ne!(missing(&good[..end]), [] as [&str; 0], "cut before {:?}", good[end]);
    }
}

#[test]
fn side_by_side_wants_each_long_turn_in_its_middle_at_the_kill() {
    for session in Session::ALL {
        let long = turn(session, Part::Long);
        assert!(
            missing(&without(|seen| *seen == event(long, Event::Started))).contains(&"side_by_side"),
            "{long}"
        );
        let silent = without(|seen| *seen == delta(long));
        assert!(missing(&silent).contains(&"side_by_side"), "{long}");
    }
    // A turn that was over before the other host was killed: only then.
    let carol = turn(Session::Carol, Part::Long);
    let mut early = without(|seen| *seen == completed(carol, 6));
    let kill = early.iter().position(|seen| matches!(seen, Observed::Killed { .. })).expect("the kill");
    early.insert(kill, completed(carol, 6));
    assert!(missing(&early).contains(&"side_by_side"));
}

#[test]
fn killed_wants_a_host_that_died_of_the_kill() {
    let down = state(HostName::North, HostState::BackingOff, 1, Some(9));
    for signal in [None, Some(15)] {
        let other = state(HostName::North, HostState::BackingOff, 1, signal);
        assert_eq!(missing(&with(&down, other)), ["killed"]);
    }
}

#[test]
fn without_the_one_kill_of_north_nothing_that_hangs_on_it_holds() {
    let hangs = ["side_by_side", "killed", "crash", "respawn", "history"];
    let kill = Observed::Killed { host: HostName::North, pid: NORTH_PID };
    assert_eq!(missing(&without(|seen| *seen == kill)), hangs);
    let south = Observed::Killed { host: HostName::South, pid: 1 };
    assert_eq!(missing(&with(&kill, south)), hangs);
    assert_eq!(missing(&with_behind(&kill, kill.clone())), hangs);
}

#[test]
fn one_ending_wants_neither_two_nor_none_nor_anything_behind_it() {
    let after = turn(Session::Bob, Part::After);
    let end = completed(after, 6);
    assert_eq!(missing(&with_behind(&end, end.clone())), ["one_ending"]);
    assert_eq!(missing(&with_behind(&end, delta(after))), ["one_ending"]);
    let first = turn(Session::Carol, Part::First);
    assert_eq!(missing(&without(|seen| *seen == completed(first, 4))), ["one_ending"]);
    assert_eq!(missing(&without(|seen| *seen == Observed::Submitted(first))), ["one_ending"]);
    let twice = Observed::Submitted(first);
    assert_eq!(missing(&with_behind(&twice, twice.clone())), ["one_ending"]);
}

#[test]
fn crash_wants_the_reason_and_the_signal_of_each_turn_that_ran_there() {
    for session in [Session::Alice, Session::Bob] {
        let long = turn(session, Part::Long);
        let end = failed(long, FailReason::Crash, Some(9));
        for other in [
            failed(long, FailReason::Exception, Some(9)),
            failed(long, FailReason::Crash, None),
            failed(long, FailReason::Crash, Some(15)),
            completed(long, 6),
            event(long, Event::Ended(Ending::Interrupted)),
        ] {
            assert_eq!(missing(&with(&end, other)), ["crash"]);
        }
    }
    // An ending that the kill cannot have made.
    let alice = failed(turn(Session::Alice, Part::Long), FailReason::Crash, Some(9));
    let mut early = without(|seen| *seen == alice);
    let kill = early.iter().position(|seen| matches!(seen, Observed::Killed { .. })).expect("the kill");
    early.insert(kill, alice);
    assert_eq!(missing(&early), ["side_by_side", "crash"]);
}

#[test]
fn went_on_wants_words_after_the_crash_a_whole_end_and_the_same_host() {
    let carol = turn(Session::Carol, Part::Long);
    let mut silent = good();
    let last = silent.iter().rposition(|seen| *seen == delta(carol)).expect("a word");
    silent.remove(last);
    assert_eq!(missing(&silent), ["went_on"]);
    let end = completed(carol, 6);
    assert_eq!(missing(&with(&end, event(carol, Event::Ended(Ending::Interrupted)))), ["went_on"]);
    assert_eq!(missing(&with(&end, failed(carol, FailReason::Crash, Some(9)))), ["went_on"]);
    for other in [
        state(HostName::South, HostState::BackingOff, 1, Some(9)),
        state(HostName::South, HostState::Ready, 2, None),
    ] {
        assert_eq!(missing(&with_behind(&Observed::Allowed(Session::Carol), other)), ["went_on"]);
    }
}

#[test]
fn respawn_wants_a_countdown_between_the_crash_and_the_next_host() {
    let uncounted = without(|seen| matches!(seen, Observed::Countdown { .. }));
    assert_eq!(missing(&uncounted), ["respawn"]);
    assert_eq!(missing(&with(&countdown(20), countdown(1900))), ["respawn"], "counted up");
    let down = state(HostName::North, HostState::BackingOff, 1, Some(9));
    assert_eq!(
        missing(&with(&down, state(HostName::North, HostState::Stopped, 1, Some(9)))),
        ["respawn"],
        "nobody waited"
    );
    let up = state(HostName::North, HostState::Ready, 2, Some(9));
    assert_eq!(missing(&without(|seen| *seen == up)), ["respawn"]);
    let again = state(HostName::North, HostState::Ready, 3, Some(9));
    assert_eq!(missing(&with(&up, again)), ["respawn"], "it was not the next one");
}

#[test]
fn history_wants_every_message_and_no_loss() {
    for session in [Session::Alice, Session::Bob] {
        let after = turn(session, Part::After);
        let end = completed(after, 6);
        // 2: a new session; 4: what the first turn added is gone; 8: what crashed was added.
        for messages in [0, 2, 4, 8] {
            assert_eq!(missing(&with(&end, completed(after, messages))), ["history"]);
        }
        let lost = event(after, Event::SessionLost);
        assert_eq!(missing(&with_behind(&event(after, Event::Started), lost)), ["history"]);
        let seeded = Observed::Seeded { session, messages: Some(2) };
        assert_eq!(missing(&with(&seeded, Observed::Seeded { session, messages: None })), ["history"]);
        let first = turn(session, Part::First);
        assert_eq!(missing(&with(&completed(first, 4), completed(first, 2))), ["history"]);
    }
}

#[test]
fn nothing_left_wants_both_stops_and_no_process() {
    for host in HostName::ALL {
        let stopped = Observed::Stopped { host, survivors: vec![] };
        assert_eq!(missing(&without(|seen| *seen == stopped)), ["nothing_left"]);
        let survivors = Observed::Stopped { host, survivors: vec![NORTH_PID] };
        assert_eq!(missing(&with(&stopped, survivors)), ["nothing_left"]);
    }
    assert_eq!(missing(&with(&Observed::Left(vec![]), Observed::Left(vec![1]))), ["nothing_left"]);
    assert_eq!(missing(&without(|seen| *seen == Observed::Left(vec![]))), ["nothing_left"]);
}

/// What the plot does at each step of the good play.
fn acts(seen: &[Observed]) -> Vec<Act> {
    let mut plot = Plot::default();
    seen.iter().flat_map(|observed| plot.observe(observed)).collect()
}

#[test]
fn the_plot_does_in_the_good_play_what_the_good_play_shows() {
    let allow = Act::Allow { session: Session::Carol, question: "a1".to_owned() };
    let wanted = [
        Turn::of(Part::First).map(Act::Submit).collect::<Vec<_>>(),
        Turn::of(Part::Long).map(Act::Submit).collect(),
        vec![Act::Kill(HostName::North)],
        Turn::of(Part::After).map(Act::Submit).collect(),
        vec![allow, Act::Stop],
    ];
    assert_eq!(acts(&good()), wanted.concat());
}

#[test]
fn the_question_waits_for_the_dead_if_it_comes_first() {
    let question = event(turn(Session::Carol, Part::Long), Event::Question("a1".to_owned()));
    let mut early = without(|seen| *seen == question);
    let kill = early.iter().position(|seen| matches!(seen, Observed::Killed { .. })).expect("the kill");
    early.insert(kill, question);
    let acts = acts(&early);
    let allow = acts.iter().position(|act| matches!(act, Act::Allow { .. })).expect("an answer");
    assert_eq!(acts.get(allow - 1), Some(&Act::Submit(turn(Session::Bob, Part::After))));
}

#[test]
fn the_plot_stops_once_at_the_first_thing_that_goes_wrong() {
    let alice = turn(Session::Alice, Part::First);
    let long = turn(Session::Alice, Part::Long);
    let refused = Observed::Refused("no".to_owned());
    for (place, wrong) in [
        (completed(alice, 4), failed(alice, FailReason::Exception, None)),
        (completed(alice, 4), event(alice, Event::Ended(Ending::Interrupted))),
        (failed(long, FailReason::Crash, Some(9)), completed(long, 6)),
        (Observed::Allowed(Session::Carol), refused),
    ] {
        let acts = acts(&with(&place, wrong));
        assert_eq!(acts.last(), Some(&Act::Stop));
        assert_eq!(acts.iter().filter(|act| **act == Act::Stop).count(), 1);
    }
    // A crash that nobody made.
    let mut early = good();
    let kill = early.iter().position(|seen| matches!(seen, Observed::Killed { .. })).expect("the kill");
    early.truncate(kill - 12);
    early.push(failed(long, FailReason::Crash, Some(9)));
    assert_eq!(acts(&early).last(), Some(&Act::Stop));
}
