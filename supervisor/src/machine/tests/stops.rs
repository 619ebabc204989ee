use super::*;
use pretty_assertions::assert_eq;

const SHUTDOWN: &str = "{\"type\":\"shutdown\",\"request_id\":\"supervisor-shutdown\"}\n";

fn shutdown(started: Option<bool>, exit: Option<Exit>) -> Short {
    Short::Turn(FailReason::Shutdown, started, exit, 1)
}

/// The child exits and its tree is gone.
fn end(rig: &mut Rig, exit: Exit) -> Effects {
    let mut out = rig.exited(exit);
    out.extend(rig.swept());
    out
}

#[test]
fn a_host_that_obeys_is_asked_once_and_ends_its_turns_itself() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    assert_eq!(rig.stop(secs(0), secs(25)), []);
    assert_eq!(rig.state(), HostState::Draining);
    assert_eq!(rig.write_all(), SHUTDOWN);
    rig.wait(300 * MS);
    assert_eq!(rig.answer("t"), [reply(turn)], "the host's own frame counts");
    assert_eq!(rig.exited(Exit::Code(0)), [Effect::Unregister { epoch: 1 }]);
    assert_eq!(rig.state(), HostState::Draining);
    rig.wait(200 * MS);
    let out = rig.give(Input::Swept { epoch: 1, survivors: vec![77] });
    let expected = StopReport {
        exit: Some(Exit::Code(0)),
        steps: [("ask", 0), ("exited", 300), ("swept", 500)]
            .map(|(step, at_ms)| StopStep { step, at_ms })
            .to_vec(),
        survivors: vec![77],
    };
    assert_eq!(out, [Effect::Stopped(expected)]);
    assert_eq!(rig.state(), HostState::Stopped);
    assert_eq!(rig.machine.next_deadline(), None);
}

#[test]
fn what_the_host_leaves_open_ends_shutdown() {
    let mut rig = ready();
    let started = rig.turn("started", "a");
    let written = rig.turn("written", "b");
    let call = rig.call("call", "a");
    rig.write_all();
    rig.started("started");
    rig.stop(secs(0), secs(25));
    let out = rig.exited(Exit::Code(0));
    let expected = [
        (started, shutdown(Some(true), Some(Exit::Code(0)))),
        (written, shutdown(None, Some(Exit::Code(0)))),
        (call, Short::Call(ErrorKind::Shutdown)),
    ];
    assert_eq!(endings(&out), expected);
    assert_eq!(details(&out), ["the host was stopped"; 3]);
}

#[test]
fn what_is_unsent_ends_at_once_when_the_stop_asks() {
    let mut rig = ready();
    rig.turn("cut", "a");
    let unsent = rig.turn("unsent", "b");
    let call = rig.call("call", "b");
    rig.wrote(1);
    let out = rig.stop(secs(0), secs(25));
    assert_eq!(
        endings(&out),
        [(unsent, shutdown(Some(false), None)), (call, Short::Call(ErrorKind::Shutdown))]
    );
    assert_eq!(details(&out), ["the host is being stopped"; 2]);
    assert_eq!(
        rig.outgoing(),
        format!("ut\n{SHUTDOWN}"),
        "a cut line is ended, and shutdown is the last one"
    );
}

#[test]
fn a_deaf_host_is_asked_termed_and_killed_each_after_its_grace() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.stop(secs(0), secs(60));
    assert_eq!(rig.wait(secs(10) - MS), []);
    assert_eq!(rig.wait(MS), [Effect::Term { epoch: 1 }]);
    assert_eq!(rig.outgoing(), "", "its stdin is closed");
    assert_eq!(rig.wait(secs(10) - MS), []);
    assert_eq!(rig.wait(MS), [Effect::Kill { epoch: 1 }]);
    let out = rig.exited(Exit::Signal(9));
    assert_eq!(endings(&out), [(turn, shutdown(None, Some(Exit::Signal(9))))]);
    let out = rig.swept();
    let expected = [("ask", 0), ("term", 10_000), ("kill", 20_000), ("exited", 20_000), ("swept", 20_000)];
    assert_eq!(steps(&out), expected);
    assert_eq!(report(&out).exit, Some(Exit::Signal(9)));
}

/// When a host that never obeys is asked, termed, killed and given up, in milliseconds.
fn schedule(drain: Duration, budget: Duration, grace: Duration) -> Vec<(&'static str, u64)> {
    let mut rig = ready_with(Policy { grace, ..policy() });
    rig.turn("t", "s");
    rig.write_all();
    let mut out = rig.stop(drain, budget);
    out.extend(rig.wait(budget));
    assert_eq!(rig.state(), HostState::Stopped, "the whole stop fits in its budget");
    assert!(out.contains(&Effect::Abandon { epoch: 1 }), "{out:?}");
    assert_eq!(rig.machine.pending.turns(), 0);
    steps(&out)
}

#[test]
fn every_wait_is_clipped_so_that_the_kill_comes_early_enough() {
    /// Drain, budget, grace; steps. All figures in milliseconds.
    type Case = (u64, u64, u64, &'static [(&'static str, u64)]);
    let cases: [Case; 10] = [
        (0, 60_000, 10_000, &[("ask", 0), ("term", 10_000), ("kill", 20_000), ("abandoned", 60_000)]),
        (0, 25_000, 10_000, &[("ask", 0), ("term", 10_000), ("kill", 20_000), ("abandoned", 25_000)]),
        (
            5_000,
            25_000,
            10_000,
            &[("drain", 0), ("ask", 5_000), ("term", 15_000), ("kill", 24_000), ("abandoned", 25_000)],
        ),
        (
            20_000,
            25_000,
            10_000,
            &[("drain", 0), ("ask", 20_000), ("term", 23_000), ("kill", 24_000), ("abandoned", 25_000)],
        ),
        (
            60_000,
            25_000,
            10_000,
            &[("drain", 0), ("ask", 21_000), ("term", 23_250), ("kill", 24_000), ("abandoned", 25_000)],
        ),
        (0, 2_000, 10_000, &[("ask", 0), ("term", 1_125), ("kill", 1_500), ("abandoned", 2_000)]),
        (
            60_000,
            2_000,
            10_000,
            &[("drain", 0), ("ask", 750), ("term", 1_313), ("kill", 1_500), ("abandoned", 2_000)],
        ),
        (0, 4_000, 10_000, &[("ask", 0), ("term", 2_250), ("kill", 3_000), ("abandoned", 4_000)]),
        (0, 60_000, 0, &[("ask", 0), ("term", 0), ("kill", 0), ("abandoned", 60_000)]),
        (0, 0, 10_000, &[("ask", 0), ("term", 0), ("kill", 0), ("abandoned", 0)]),
    ];
    for (drain, budget, grace, expected) in cases {
        let ms = Duration::from_millis;
        let got = schedule(ms(drain), ms(budget), ms(grace));
        // Shares of odd budgets are no whole milliseconds: rounding down is fine.
        let close = got.len() == expected.len()
            && got.iter().zip(expected).all(|(a, b)| a.0 == b.0 && a.1.abs_diff(b.1) <= 1);
        assert!(close, "drain {drain}, budget {budget}, grace {grace}: {got:?}, expected {expected:?}");
    }
}

#[test]
fn a_budget_beyond_every_clock_does_not_overflow() {
    let mut rig = ready_with(Policy { grace: Duration::MAX, ..policy() });
    rig.turn("t", "s");
    rig.write_all();
    rig.stop(Duration::MAX, Duration::MAX);
    rig.stop(secs(0), Duration::MAX);
    end(&mut rig, Exit::Code(0));
    assert_eq!(rig.state(), HostState::Stopped);
}

#[test]
fn a_drain_lets_open_turns_finish_and_ends_early() {
    let mut rig = ready();
    let runs = rig.turn("runs", "a");
    rig.write_all();
    let unsent = rig.turn("unsent", "b");
    let out = rig.stop(secs(5), secs(25));
    assert_eq!(out, []);
    assert_eq!(rig.write_all(), "unsent\n", "with a child ready, what waits may still run");
    rig.wait(secs(1));
    assert_eq!(rig.answer("runs"), [reply(runs)]);
    assert_eq!(rig.outgoing(), "", "one turn is still open");
    assert_eq!(rig.answer("unsent"), [reply(unsent)]);
    assert_eq!(rig.outgoing(), SHUTDOWN);
    let out = end(&mut rig, Exit::Code(0));
    assert_eq!(steps(&out), [("drain", 0), ("ask", 1000), ("exited", 1000), ("swept", 1000)]);
}

#[test]
fn a_drain_with_no_turn_open_is_none() {
    let mut rig = ready();
    rig.call("c", "s");
    rig.write_all();
    rig.stop(secs(5), secs(25));
    assert_eq!(rig.outgoing(), SHUTDOWN);
    assert_eq!(steps(&end(&mut rig, Exit::Code(0)))[0], ("ask", 0));
}

#[test]
fn a_drain_takes_interrupts_and_calls_and_refuses_turns_and_seeds() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.write_all();
    rig.stop(secs(5), secs(25));
    rig.call("approve", "s");
    let (_, out) = rig.interrupt("i", "s", Some("t"));
    assert_eq!(out, []);
    assert_eq!(rig.write_all(), "approve\ni\n");
    assert_eq!(rig.refused("u", RequestKind::Turn), ErrorKind::Shutdown);
    assert_eq!(rig.refused("v", RequestKind::Seed), ErrorKind::Shutdown);
    rig.wait(secs(5));
    assert_eq!(rig.outgoing(), SHUTDOWN);
    for kind in
        [RequestKind::Turn, RequestKind::Seed, RequestKind::Call, RequestKind::Interrupt { turn_id: None }]
    {
        assert_eq!(rig.refused("w", kind), ErrorKind::Shutdown);
    }
}

#[test]
fn an_interrupt_of_the_last_unsent_turn_ends_the_drain() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.stop(secs(5), secs(25));
    rig.interrupt("i", "s", Some("t"));
    assert_eq!(rig.outgoing(), SHUTDOWN);
}

#[test]
fn a_crash_in_a_drain_is_a_crash_and_ends_the_stop() {
    let mut rig = ready();
    let sent = rig.turn("sent", "a");
    rig.write_all();
    let unsent = rig.turn("unsent", "b");
    rig.stop(secs(5), secs(25));
    let out = rig.exited(Exit::Signal(11));
    let crash = Short::Turn(FailReason::Crash, None, Some(Exit::Signal(11)), 1);
    assert_eq!(endings(&out), [(sent, crash), (unsent, shutdown(Some(false), None))]);
    let out = rig.swept();
    assert_eq!(steps(&out), [("drain", 0), ("exited", 0), ("swept", 0)]);
    assert_eq!(rig.wait(secs(60)), []);
}

#[test]
fn a_host_that_hangs_in_a_drain_is_killed_as_hung() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.heartbeat();
    rig.stop(secs(100), secs(200));
    assert_eq!(rig.wait(secs(45)), [Effect::Kill { epoch: 1 }]);
    let out = rig.exited(Exit::Signal(9));
    assert_eq!(endings(&out), [(turn, Short::Turn(FailReason::Hung, None, Some(Exit::Signal(9)), 1))]);
    let out = rig.swept();
    assert_eq!(steps(&out), [("drain", 0), ("kill", 45_000), ("exited", 45_000), ("swept", 45_000)]);
    assert_eq!(rig.state(), HostState::Stopped);
}

#[test]
fn a_hang_in_a_drain_answers_no_start_that_waits_for_the_end_of_the_stop() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.write_all();
    rig.heartbeat();
    rig.stop(secs(100), secs(200));
    rig.give(Input::Start);
    assert_eq!(rig.wait(secs(45)), [Effect::Kill { epoch: 1 }]);
    assert_eq!(end(&mut rig, Exit::Signal(9)).last(), Some(&Effect::Spawn { epoch: 2 }));
}

#[test]
fn the_watch_is_over_when_the_host_was_asked() {
    let mut rig = ready_with(Policy { grace: secs(100), ..policy() });
    rig.turn("t", "s");
    rig.write_all();
    rig.heartbeat();
    rig.stop(secs(0), secs(200));
    assert_eq!(rig.wait(secs(100) - MS), [], "neither silence nor the unread shutdown is judged");
    assert_eq!(rig.wait(MS), [Effect::Term { epoch: 1 }]);
}

#[test]
fn a_pipe_that_breaks_in_a_drain_kills_and_one_that_breaks_after_asking_is_the_host_s_way_to_go() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.stop(secs(5), secs(25));
    assert_eq!(rig.give(Input::WriteFailed { epoch: 1 }), [Effect::Kill { epoch: 1 }]);
    let out = rig.exited(Exit::Signal(9));
    assert_eq!(endings(&out), [(turn, Short::Turn(FailReason::Crash, None, Some(Exit::Signal(9)), 1))]);

    let mut rig = ready();
    rig.stop(secs(0), secs(25));
    assert_eq!(rig.give(Input::WriteFailed { epoch: 1 }), []);
    assert_eq!(rig.outgoing(), "");
    let out = end(&mut rig, Exit::Code(0));
    assert_eq!(steps(&out), [("ask", 0), ("exited", 0), ("swept", 0)]);
}

#[test]
fn a_host_that_restarts_itself_in_a_drain_crashes_its_turns_and_is_asked() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.wrote(1);
    rig.stop(secs(5), secs(25));
    let out = rig.give(Input::HostRestarted { epoch: 1 });
    assert_eq!(out, {
        let ending = Ending::TurnFailed {
            reason: FailReason::Crash,
            turn_started: None,
            exit: None,
            detail: "the host restarted itself".to_owned(),
            epoch: 1,
        };
        [Effect::Resolve { waiter: turn, ending }]
    });
    assert_eq!((rig.epoch(), rig.outgoing()), (2, format!("\n{SHUTDOWN}")));
    assert_eq!(steps(&end(&mut rig, Exit::Code(0)))[1], ("ask", 0));
}

#[test]
fn a_host_that_restarts_itself_when_asked_ends_its_turns_with_the_stop() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.stop(secs(0), secs(25));
    let out = rig.give(Input::HostRestarted { epoch: 1 });
    assert_eq!(endings(&out), [(turn, shutdown(None, None))]);
    assert_eq!(details(&out), ["the host was stopped"]);
    assert_eq!((rig.epoch(), rig.outgoing()), (2, SHUTDOWN.to_owned()));
    rig.wrote(1);
    rig.give(Input::HostRestarted { epoch: 2 });
    assert_eq!(rig.outgoing(), format!("\n{SHUTDOWN}"));
    assert_eq!(rig.wait(secs(10)), [Effect::Term { epoch: 3 }]);
    rig.give(Input::HostRestarted { epoch: 3 });
    assert_eq!((rig.epoch(), rig.outgoing()), (4, String::new()));
}

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
