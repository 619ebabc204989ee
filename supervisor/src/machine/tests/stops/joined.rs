//! A stop that meets another stop, a start or a restart.

use super::*;
use pretty_assertions::assert_eq;

#[test]
fn a_stop_of_a_stopped_host_is_answered_at_once() {
    let mut rig = rig();
    let out = rig.give_all(Input::Stop(StopPlan { drain: secs(9), budget: secs(9), restart: false }));
    assert_eq!(out, [Effect::Stopped(StopReport::default())]);
    assert_eq!(rig.refused("t", RequestKind::Turn), ErrorKind::Shutdown, "it is stopped on purpose now");
    assert_eq!(rig.refused("c", RequestKind::Call), ErrorKind::Shutdown);
    assert_eq!(rig.stop(secs(0), secs(0)), [Effect::Stopped(StopReport::default())]);
    assert_eq!(rig.give(Input::Start), [Effect::Spawn { epoch: 1 }]);
    rig.turn("t", "s");
}

#[test]
fn a_stop_lifts_a_crash_loop_and_a_start_after_it_has_a_fresh_budget() {
    let restart = RestartPolicy { max: 1, ..RestartPolicy::default() };
    let mut rig = ready_with(Policy { restart, ..policy() });
    rig.crash_and_respawn();
    rig.exited(Exit::Code(1));
    rig.swept();
    assert_eq!(rig.state(), HostState::CrashLooped);
    assert_eq!(rig.stop(secs(0), secs(5)), [Effect::Stopped(StopReport::default())]);
    rig.give(Input::Start);
    rig.hello();
    rig.crash_and_respawn();
    assert_eq!(rig.state(), HostState::Starting);
}

#[test]
fn stops_on_purpose_never_add_up_to_a_crash_loop() {
    let mut rig = ready();
    for _ in 0..10 {
        rig.stop(secs(0), secs(5));
        end(&mut rig, Exit::Code(0));
        assert_eq!(rig.state(), HostState::Stopped);
        rig.give(Input::Start);
        rig.hello();
        assert_eq!(rig.state(), HostState::Ready);
    }
    assert_eq!(rig.machine.snapshot().restarts, 0);
}

#[test]
fn a_second_stop_joins_and_the_smaller_limits_hold() {
    // Draining for a minute, then somebody has only two seconds.
    let mut rig = ready();
    rig.turn("t", "s");
    rig.write_all();
    rig.stop(secs(60), secs(100));
    rig.wait(secs(1));
    assert_eq!(rig.stop(secs(60), secs(2)), []);
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + 750 * MS), "the new drain");
    let out = rig.wait(secs(2));
    let expected = [("drain", 0), ("ask", 1750), ("term", 2312), ("kill", 2500), ("abandoned", 3000)];
    assert_eq!(steps(&out), expected);
}

#[test]
fn a_second_stop_with_more_time_changes_nothing() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.write_all();
    rig.stop(secs(0), secs(4));
    rig.wait(secs(1));
    rig.stop(secs(60), secs(100));
    let out = rig.wait(secs(3));
    assert_eq!(steps(&out), [("ask", 0), ("term", 2250), ("kill", 3000), ("abandoned", 4000)]);
}

#[test]
fn a_second_stop_without_a_drain_ends_the_drain() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.write_all();
    rig.stop(secs(60), secs(100));
    rig.wait(secs(1));
    rig.stop(secs(0), secs(100));
    assert_eq!(rig.outgoing(), SHUTDOWN);
}

#[test]
fn a_second_stop_shortens_whatever_step_the_first_is_in() {
    let begin = |grace: Duration| {
        let mut rig = ready_with(Policy { grace, ..policy() });
        rig.turn("t", "s");
        rig.write_all();
        rig.stop(secs(0), secs(100));
        rig
    };
    let mut asked = begin(secs(10));
    asked.stop(secs(0), secs(4));
    let out = asked.wait(secs(4));
    assert_eq!(steps(&out), [("ask", 0), ("term", 2250), ("kill", 3000), ("abandoned", 4000)]);

    let mut termed = begin(secs(10));
    termed.wait(secs(10));
    termed.stop(secs(0), secs(4));
    let out = termed.wait(secs(4));
    assert_eq!(steps(&out), [("ask", 0), ("term", 10_000), ("kill", 13_000), ("abandoned", 14_000)]);

    let mut killed = begin(secs(0));
    killed.stop(secs(0), secs(4));
    let out = killed.wait(secs(4));
    assert_eq!(steps(&out).last(), Some(&("abandoned", 4000)));

    let mut gone = begin(secs(10));
    gone.exited(Exit::Code(0));
    gone.stop(secs(0), secs(1));
    let out = gone.wait(secs(1));
    assert_eq!(steps(&out), [("ask", 0), ("exited", 0)]);
}

#[test]
fn a_second_stop_with_no_time_at_all_goes_through_every_step_at_once() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.stop(secs(60), secs(100));
    let out = rig.stop(secs(0), secs(0));
    assert_eq!(endings(&out), [(turn, shutdown(None, Some(Exit::Unknown)))]);
    let expected = [("drain", 0), ("ask", 0), ("term", 0), ("kill", 0), ("abandoned", 0)];
    assert_eq!(steps(&out), expected);
    let expected = [Effect::Term { epoch: 1 }, Effect::Kill { epoch: 1 }, Effect::Abandon { epoch: 1 }];
    assert_eq!(orders(out)[..3], expected);
    assert_eq!(report(&rig.stop(secs(0), secs(0))), StopReport::default(), "and it is stopped");
}

#[test]
fn an_abandoned_child_stays_in_the_registry_and_delays_the_next_one() {
    let mut rig = ready();
    let out = rig.stop(secs(0), secs(0));
    assert!(!out.contains(&Effect::Unregister { epoch: 1 }), "{out:?}");
    assert_eq!(rig.give(Input::Start), []);
    assert_eq!(rig.wait(secs(2)), [Effect::Spawn { epoch: 2 }]);
}

#[test]
fn the_end_of_the_sweep_is_waited_for_two_seconds() {
    let mut rig = ready();
    rig.stop(secs(0), secs(25));
    rig.exited(Exit::Code(0));
    assert_eq!(rig.wait(secs(2) - MS), []);
    assert_eq!(steps(&rig.wait(MS)), [("ask", 0), ("exited", 0)]);
}

#[test]
fn a_stop_that_waits_for_no_sweep_ends_with_the_exit() {
    let mut rig = ready_with(Policy { sweep_timeout: secs(0), ..policy() });
    rig.stop(secs(0), secs(25));
    assert_eq!(steps(&rig.exited(Exit::Code(0))), [("ask", 0), ("exited", 0)]);
}

#[test]
fn a_restart_stops_and_starts_with_a_fresh_budget() {
    let restart = RestartPolicy { max: 1, ..RestartPolicy::default() };
    let mut rig = ready_with(Policy { restart, ..policy() });
    rig.crash_and_respawn();
    rig.hello();
    rig.give(Input::Stop(StopPlan { drain: secs(0), budget: secs(5), restart: true }));
    let out = end(&mut rig, Exit::Code(0));
    assert_eq!(steps(&out), [("ask", 0), ("exited", 0), ("swept", 0)]);
    assert_eq!(out.last(), Some(&Effect::Spawn { epoch: 3 }));
    rig.give(Input::Hello { epoch: 3, verdict: Ok(()) });
    assert_eq!(rig.give(Input::Reseeded { epoch: 3, lines: Vec::new() }), [Effect::Started(Ok(3))]);
    rig.exited(Exit::Code(1));
    assert_eq!(rig.state(), HostState::BackingOff);
}

#[test]
fn a_restart_of_a_stopped_host_starts_it() {
    let mut rig = rig();
    let out = rig.give(Input::Stop(StopPlan { drain: secs(0), budget: secs(5), restart: true }));
    assert_eq!(out, [Effect::Stopped(StopReport::default()), Effect::Spawn { epoch: 1 }]);
    assert_eq!(start_answers(&rig.exited(Exit::Code(1))), [Err(ErrorKind::ExitedBeforeHello)]);
}

#[test]
fn a_restart_keeps_the_starts_that_wait() {
    let mut rig = rig();
    rig.give(Input::Start);
    let out = rig.give(Input::Stop(StopPlan { drain: secs(0), budget: secs(5), restart: true }));
    assert_eq!(start_answers(&out), []);
    end(&mut rig, Exit::Code(0));
    rig.give(Input::Hello { epoch: 2, verdict: Ok(()) });
    assert_eq!(rig.give(Input::Reseeded { epoch: 2, lines: Vec::new() }), [Effect::Started(Ok(2))]);
}

#[test]
fn a_start_during_a_stop_starts_again_behind_it() {
    let mut rig = ready();
    rig.stop(secs(0), secs(5));
    assert_eq!(rig.give(Input::Start), []);
    let out = end(&mut rig, Exit::Code(0));
    assert_eq!(out.last(), Some(&Effect::Spawn { epoch: 2 }));
    rig.give(Input::Hello { epoch: 2, verdict: Ok(()) });
    assert_eq!(rig.give(Input::Reseeded { epoch: 2, lines: Vec::new() }), [Effect::Started(Ok(2))]);
}

#[test]
fn the_last_wish_decides_whether_it_starts_again() {
    let mut rig = ready();
    rig.stop(secs(0), secs(5));
    rig.give(Input::Start);
    rig.stop(secs(0), secs(5));
    let out = end(&mut rig, Exit::Code(0));
    assert_eq!(start_answers(&out), [Err(ErrorKind::Shutdown)]);
    assert!(matches!(out.last(), Some(Effect::Started(_))), "the stop is answered before the start: {out:?}");
    assert_eq!(rig.state(), HostState::Stopped);

    let mut rig = ready();
    rig.stop(secs(0), secs(5));
    rig.give(Input::Stop(StopPlan { drain: secs(0), budget: secs(5), restart: true }));
    assert_eq!(end(&mut rig, Exit::Code(0)).last(), Some(&Effect::Spawn { epoch: 2 }));
}

#[test]
fn a_call_can_time_out_while_the_host_is_stopped() {
    let mut rig = ready();
    let call = rig.call_until("c", secs(1));
    rig.write_all();
    rig.stop(secs(0), secs(25));
    assert_eq!(endings(&rig.wait(secs(1))), [(call, Short::Call(ErrorKind::Timeout))]);
}
