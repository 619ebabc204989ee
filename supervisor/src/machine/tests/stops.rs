mod joined;
mod untimely;

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
