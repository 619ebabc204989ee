//! A stop of a host that is not ready.

use super::*;
use pretty_assertions::assert_eq;

#[test]
fn a_stop_of_a_starting_host_terms_it_at_once() {
    let mut rig = rig();
    rig.give(Input::Start);
    let turn = rig.turn("t", "s");
    let out = rig.stop(secs(5), secs(25));
    assert_eq!(start_answers(&out), [Err(ErrorKind::Shutdown)]);
    assert_eq!(endings(&out), [(turn, shutdown(Some(false), None))], "no child is ready, nothing to drain");
    assert_eq!(out.last(), Some(&Effect::Term { epoch: 1 }));
    assert_eq!(rig.give(Input::Hello { epoch: 1, verdict: Ok(()) }), []);
    assert_eq!(rig.give(Input::Hello { epoch: 1, verdict: Err(fault(ErrorKind::BuildMismatch)) }), []);
    assert_eq!(rig.wait(secs(10)), [Effect::Kill { epoch: 1 }]);
    let out = end(&mut rig, Exit::Signal(9));
    assert_eq!(steps(&out), [("term", 0), ("kill", 10_000), ("exited", 10_000), ("swept", 10_000)]);
    assert_eq!(rig.wait(secs(60)), [], "no later spawn");
}

#[test]
fn a_stop_of_a_host_that_is_still_being_spawned_needs_no_sweep() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.stop(secs(0), secs(25));
    let out = rig.give(Input::SpawnFailed { epoch: 1, fault: fault(ErrorKind::Shutdown), permanent: false });
    assert_eq!(steps(&out), [("term", 0)]);
    assert_eq!(report(&out).exit, None);
    assert_eq!(rig.state(), HostState::Stopped);
}

#[test]
fn a_stop_of_a_host_that_is_being_seeded_asks_it() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.give(Input::Hello { epoch: 1, verdict: Ok(()) });
    rig.turn("t", "s");
    rig.stop(secs(5), secs(25));
    assert_eq!(rig.give(Input::Reseeded { epoch: 1, lines: vec![b"seed\n".to_vec()] }), []);
    assert_eq!(rig.write_all(), SHUTDOWN);
    assert_eq!(rig.give(Input::WriteFailed { epoch: 1 }), []);
    assert_eq!(steps(&end(&mut rig, Exit::Code(0))), [("ask", 0), ("exited", 0), ("swept", 0)]);
}

#[test]
fn a_stop_of_a_dying_host_kills_it_at_once() {
    let mut rig = ready();
    let sent = rig.turn("sent", "a");
    rig.write_all();
    rig.give(Input::WriteFailed { epoch: 1 });
    let waiting = rig.turn("waiting", "b");
    let out = rig.stop(secs(5), secs(25));
    assert_eq!(endings(&out), [(waiting, shutdown(Some(false), None))]);
    assert_eq!(orders(out), [Effect::Kill { epoch: 1 }]);
    let out = end(&mut rig, Exit::Signal(9));
    assert_eq!(endings(&out), [(sent, Short::Turn(FailReason::Crash, None, Some(Exit::Signal(9)), 1))]);
    assert_eq!(steps(&out), [("kill", 0), ("exited", 0), ("swept", 0)]);
}

#[test]
fn a_stop_in_the_back_off_returns_without_waiting_for_it() {
    let mut rig = ready();
    rig.exited(Exit::Code(1));
    rig.swept();
    let turn = rig.turn("t", "s");
    let out = rig.stop(secs(5), secs(25));
    assert_eq!(endings(&out), [(turn, shutdown(Some(false), None))]);
    assert_eq!(report(&out), StopReport::default());
    assert_eq!(rig.state(), HostState::Stopped);
    assert_eq!(rig.wait(secs(3600)), [], "the old timer starts nothing");
}

#[test]
fn a_stop_in_the_back_off_waits_for_the_old_tree_alone() {
    let mut rig = ready();
    rig.exited(Exit::Code(1));
    rig.pass(secs(1) / 2);
    assert_eq!(rig.stop(secs(0), secs(25)), []);
    assert_eq!(rig.state(), HostState::Draining);
    rig.pass(secs(1));
    let out = rig.give(Input::Swept { epoch: 1, survivors: vec![5] });
    assert_eq!(steps(&out), [("swept", 1000)]);
    assert_eq!(report(&out).survivors, [5]);

    let mut rig = ready();
    rig.exited(Exit::Code(1));
    rig.stop(secs(0), secs(25));
    assert_eq!(rig.wait(secs(2) - MS), []);
    assert_eq!(steps(&rig.wait(MS)), [], "nobody said that it is gone");

    let mut rig = ready();
    rig.exited(Exit::Code(1));
    rig.stop(secs(0), secs(1));
    assert_eq!(rig.wait(secs(1) - MS), []);
    assert_eq!(steps(&rig.wait(MS)), [], "nor longer than the budget");

    let mut rig = ready();
    rig.exited(Exit::Code(1));
    rig.give(Input::Tick);
    rig.pass(secs(2));
    assert_eq!(steps(&rig.stop(secs(0), secs(25))), [], "two seconds are over");
}

#[test]
fn a_start_after_a_stop_in_the_back_off_makes_exactly_one_host() {
    let mut rig = ready();
    rig.exited(Exit::Code(1));
    rig.swept();
    rig.stop(secs(0), secs(25));
    assert_eq!(rig.give(Input::Start), [Effect::Spawn { epoch: 2 }]);
    rig.hello();
    assert_eq!(rig.wait(secs(3600)), []);
    assert_eq!(rig.epoch(), 2);
}
