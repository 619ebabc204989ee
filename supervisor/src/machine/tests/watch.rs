use super::*;
use pretty_assertions::assert_eq;

fn hung(started: Option<bool>) -> Short {
    Short::Turn(FailReason::Hung, started, Some(Exit::Signal(9)), 1)
}

#[test]
fn silence_means_nothing_before_the_first_heartbeat() {
    let mut rig = ready();
    rig.alive();
    assert_eq!(rig.wait(secs(3600)), []);
    assert_eq!(rig.state(), HostState::Ready);
}

#[test]
fn a_heartbeat_before_hello_arms_nothing() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.heartbeat();
    rig.hello();
    assert_eq!(rig.machine.next_deadline(), None);
}

#[test]
fn a_silent_host_is_killed_and_what_it_had_is_hung() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    let call = rig.call("c", "s");
    rig.write_all();
    rig.started("t");
    rig.turn("unsent", "s");
    rig.heartbeat();
    assert_eq!(rig.wait(secs(30) - MS), [], "the unsent line makes the write stall the nearer limit");
    rig.write_all();
    assert_eq!(rig.wait(secs(15)), []);
    assert_eq!(rig.wait(MS), [Effect::Kill { epoch: 1 }]);
    assert_eq!(rig.state(), HostState::BackingOff);
    let out = rig.exited(Exit::Signal(9));
    let expected = [(turn, hung(Some(true))), (call, Short::Call(ErrorKind::Hung)), (turn + 2, hung(None))];
    assert_eq!(endings(&out), expected);
    assert_eq!(details(&out), ["the host sent nothing for 45.0 s and was killed"; 3]);
    assert_eq!(rig.state(), HostState::BackingOff, "it counts as a failure");
}

#[test]
fn any_frame_is_a_sign_of_life() {
    let mut rig = ready();
    rig.heartbeat();
    rig.wait(secs(45) - MS);
    rig.alive();
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(45)));
    rig.wait(secs(45) - MS);
    rig.heartbeat();
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(45)));
    assert_eq!(rig.wait(secs(45)), [Effect::Kill { epoch: 1 }]);
}

#[test]
fn a_hello_is_a_sign_of_life() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.pass(secs(9));
    rig.give(Input::Hello { epoch: 1, verdict: Ok(()) });
    assert_eq!(rig.wait(secs(100)), [], "no limit on collecting the seeds but that of the watch");
    rig.heartbeat();
    let out = rig.wait(secs(45));
    assert_eq!(out[0], Effect::Kill { epoch: 1 }, "a silent host is found while it is seeded too");
    assert_eq!(start_answers(&out), [Err(ErrorKind::Hung)]);
}

#[test]
fn a_watch_that_is_off_never_kills() {
    for hang_after in [None, Some(Duration::ZERO)] {
        let mut rig = ready_with(Policy { hang_after, ..policy() });
        rig.heartbeat();
        assert_eq!(rig.machine.next_deadline(), None);
        assert_eq!(rig.wait(secs(3600)), []);
    }
}

#[test]
fn a_tick_that_comes_a_second_too_late_gives_a_fresh_window() {
    let mut rig = ready();
    rig.heartbeat();
    rig.pass(secs(46));
    assert_eq!(rig.give(Input::Tick), [Effect::Kill { epoch: 1 }], "one second is the scheduler's");

    let mut rig = ready();
    rig.heartbeat();
    rig.pass(secs(46) + MS);
    assert_eq!(rig.give(Input::Tick), [], "the supervisor itself did not run");
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(45)));
    assert_eq!(rig.wait(secs(45)), [Effect::Kill { epoch: 1 }], "a host that is stuck is found all the same");
}

#[test]
fn the_hello_limit_and_the_write_stall_get_a_fresh_window_too() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.pass(secs(11) + MS);
    assert_eq!(rig.give(Input::Tick), []);
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(10)));
    rig.pass(secs(11));
    assert_eq!(rig.give(Input::Tick)[0], Effect::Kill { epoch: 1 });

    let mut rig = ready();
    rig.turn("t", "s");
    rig.pass(secs(31) + MS);
    assert_eq!(rig.give(Input::Tick), []);
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(30)));
    rig.pass(secs(31));
    assert_eq!(rig.give(Input::Tick), [Effect::Kill { epoch: 1 }]);
}

#[test]
fn a_hello_limit_of_zero_is_no_suspension() {
    let mut rig = rig_with(Policy { hello_timeout: Duration::ZERO, ..policy() });
    rig.give(Input::Start);
    rig.pass(secs(60));
    assert_eq!(rig.give(Input::Tick)[0], Effect::Kill { epoch: 1 });
}

#[test]
fn a_write_without_progress_kills_the_host() {
    let mut rig = ready();
    let sent = rig.turn("sent", "a");
    let unsent = rig.turn("unsent", "b");
    rig.wrote("sent\n".len());
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(30)));
    rig.alive();
    rig.heartbeat();
    assert_eq!(rig.wait(secs(30) - MS), []);
    assert_eq!(
        rig.wait(MS),
        [Effect::Kill { epoch: 1 }],
        "frames from the host are no progress of the write"
    );
    let out = rig.exited(Exit::Signal(9));
    assert_eq!(endings(&out), [(sent, hung(None))]);
    assert_eq!(details(&out), ["the host read no input for 30.0 s and was killed"]);
    rig.swept();
    rig.wait(secs(1));
    rig.hello();
    rig.write_all();
    assert_eq!(rig.answer("unsent"), [reply(unsent)]);
}

#[test]
fn progress_of_a_write_winds_its_clock_up_again() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.wait(secs(30) - MS);
    rig.wrote(1);
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(30)));
    rig.wait(secs(1));
    rig.wrote(0);
    rig.turn("u", "s2");
    assert_eq!(
        rig.machine.next_deadline(),
        Some(rig.now + secs(29)),
        "neither nothing nor more work is progress"
    );
    rig.wait(secs(1));
    rig.write_all();
    assert_eq!(rig.machine.next_deadline(), None, "nothing to write, no clock");
    rig.wait(secs(100));
    rig.turn("v", "s3");
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(30)));
}

#[test]
fn the_write_clock_stops_when_the_unsent_is_taken_back() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.interrupt("i", "s", Some("t"));
    assert_eq!(rig.machine.next_deadline(), None);
}

#[test]
fn a_write_stall_of_zero_is_off() {
    let mut rig = ready_with(Policy { write_stall: Duration::ZERO, ..policy() });
    rig.turn("t", "s");
    assert_eq!(rig.machine.next_deadline(), None);
}

#[test]
fn the_nearer_of_two_clocks_counts() {
    let mut rig = ready();
    rig.heartbeat();
    rig.wait(secs(20));
    rig.turn("t", "s");
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(25)), "silence before the stall");
    rig.heartbeat();
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(30)), "the stall before silence");
}

#[test]
fn a_late_tick_for_one_clock_does_not_hide_the_other() {
    let mut rig = ready();
    rig.heartbeat();
    rig.pass(secs(16));
    rig.turn("t", "s");
    rig.pass(secs(30) + 500 * MS);
    assert_eq!(rig.give(Input::Tick), [Effect::Kill { epoch: 1 }], "silence is 1.5 s over, the stall 0.5 s");
}

#[test]
fn a_call_is_answered_timeout_and_its_late_ack_is_counted() {
    let mut rig = ready();
    let call = rig.call_until("c", secs(3));
    rig.write_all();
    assert_eq!(rig.wait(secs(3) - MS), []);
    let out = rig.wait(MS);
    assert_eq!(endings(&out), [(call, Short::Call(ErrorKind::Timeout))]);
    assert_eq!(details(&out), ["no answer in time; outcome unknown"]);
    assert_eq!(rig.answer("c"), [Effect::Count(Counted::LateAck)]);
    assert_eq!(rig.state(), HostState::Ready);
}

#[test]
fn a_call_whose_time_is_up_before_it_was_sent_is_not_sent() {
    let mut rig = ready();
    let call = rig.call_until("c", secs(3));
    rig.turn("t", "s");
    let out = rig.wait(secs(3));
    assert_eq!(endings(&out), [(call, Short::Call(ErrorKind::Timeout))]);
    assert_eq!(details(&out), ["its time was up before it could be sent"]);
    assert_eq!(rig.outgoing(), "t\n");
}

#[test]
fn a_call_that_was_cut_when_its_time_was_up_is_still_written_to_its_end() {
    let mut rig = ready();
    rig.call_until("call", secs(3));
    rig.turn("t", "s");
    rig.wrote(2);
    rig.wait(secs(3));
    assert_eq!(rig.outgoing(), "ll\nt\n");
}

#[test]
fn requests_wait_for_a_child_as_long_as_the_policy_says() {
    let mut rig = rig_with(Policy { hello_timeout: secs(60), ..policy() });
    let turn = rig.turn("t", "s");
    rig.pass(secs(1));
    let call = rig.call("c", "s");
    assert_eq!(endings(&rig.wait(secs(9) - MS)), []);
    let out = rig.wait(MS);
    assert_eq!(endings(&out), [(turn, Short::Turn(FailReason::Unavailable, Some(false), None, 1))]);
    assert_eq!(details(&out), ["no host was ready in 10.0 s"]);
    assert_eq!(endings(&rig.wait(secs(1))), [(call, Short::Call(ErrorKind::Unavailable))]);
    assert_eq!(rig.state(), HostState::Starting, "the child may still come");
}

#[test]
fn what_waited_in_vain_is_told_why() {
    let mut rig = rig();
    rig.turn("t", "s");
    rig.exited(Exit::Code(3));
    let out = rig.wait(secs(10));
    let failure = "exited_before_hello: the host exited with status 3 before it said hello";
    assert_eq!(details(&out), [format!("no host was ready in 10.0 s; the last one failed: {failure}")]);
    rig.hello();
    rig.exited(Exit::Code(4));
    rig.turn("u", "s");
    let out = rig.wait(secs(10));
    let failure = "crash: the host exited with status 4";
    assert_eq!(details(&out), [format!("no host was ready in 10.0 s; the last one failed: {failure}")]);
}

#[test]
fn the_earlier_limit_of_a_waiting_call_names_its_end() {
    let mut rig = rig_with(Policy { hello_timeout: secs(60), ..policy() });
    let short = rig.call_until("short", secs(3));
    let long = rig.call_until("long", secs(30));
    let out = rig.wait(secs(20));
    assert_eq!(
        endings(&out),
        [(short, Short::Call(ErrorKind::Timeout)), (long, Short::Call(ErrorKind::Unavailable))]
    );
}

#[test]
fn nothing_that_a_ready_child_will_take_is_unavailable() {
    let mut rig = rig_with(Policy { write_stall: secs(1000), ..policy() });
    rig.turn("t", "s");
    rig.wait(secs(5));
    rig.hello();
    rig.turn("u", "s2");
    assert_eq!(rig.wait(secs(900)), []);
    assert_eq!(rig.outgoing(), "t\nu\n");
}
