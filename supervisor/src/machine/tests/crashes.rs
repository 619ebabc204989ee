use super::*;
use pretty_assertions::assert_eq;

fn crash(started: Option<bool>, exit: Exit) -> Short {
    Short::Turn(FailReason::Crash, started, Some(exit), 1)
}

#[test]
fn a_crash_ends_what_was_handed_over_and_keeps_what_was_not() {
    let mut rig = ready();
    let running = rig.turn("running", "a");
    let written = rig.turn("written", "b");
    let call = rig.call("call", "a");
    let seed = rig.accepted("seed", "c", RequestKind::Seed);
    rig.write_all();
    let (interrupt, _) = rig.interrupt("interrupt", "a", Some("running"));
    rig.write_all();
    rig.started("running");
    rig.turn("unsent-turn", "d");
    rig.call("unsent-call", "d");
    rig.accepted("unsent-seed", "d", RequestKind::Seed);
    let out = rig.exited(Exit::Signal(9));
    let expected = [
        (running, crash(Some(true), Exit::Signal(9))),
        (written, crash(None, Exit::Signal(9))),
        (call, Short::Call(ErrorKind::Crash)),
        (seed, Short::Call(ErrorKind::Crash)),
        (interrupt, Short::Call(ErrorKind::Crash)),
    ];
    assert_eq!(endings(&out), expected);
    assert_eq!(details(&out), ["the host was ended by signal 9 (SIGKILL)"; 5]);
    assert_eq!(orders(out), [Effect::Unregister { epoch: 1 }]);
    assert_eq!(rig.state(), HostState::BackingOff);
    assert_eq!(rig.outgoing(), "");
    let waiting = ["unsent-turn", "unsent-call", "unsent-seed"].map(|id| (id.to_owned(), OpenPhase::Waiting));
    assert_eq!(rig.open(), waiting);
    rig.swept();
    rig.wait(secs(1));
    rig.hello();
    assert_eq!(rig.write_all(), "unsent-turn\nunsent-call\nunsent-seed\n");
}

#[test]
fn one_byte_is_the_border_between_lost_and_waiting() {
    let mut rig = ready();
    let first = rig.turn("first", "a");
    rig.turn("second", "b");
    rig.wrote("first\n".len());
    assert_eq!(endings(&rig.exited(Exit::Code(1))), [(first, crash(None, Exit::Code(1)))]);

    let mut rig = ready();
    rig.turn("first", "a");
    rig.turn("second", "b");
    rig.wrote("first\n".len() + 1);
    assert_eq!(endings(&rig.exited(Exit::Code(1))).len(), 2);
}

#[test]
fn nothing_is_ever_sent_twice() {
    let mut rig = ready();
    rig.turn("cut", "a");
    rig.turn("whole", "b");
    rig.wrote(2);
    assert_eq!(rig.outgoing(), "t\nwhole\n");
    rig.crash_and_respawn();
    rig.hello();
    assert_eq!(rig.write_all(), "whole\n", "the rest of the line that was cut belongs to nobody");
    rig.crash_and_respawn();
    rig.hello();
    assert_eq!(rig.outgoing(), "");
}

#[test]
fn a_clean_exit_with_open_turns_is_a_crash_and_so_is_an_idle_one() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    let out = rig.exited(Exit::Code(0));
    assert_eq!(endings(&out), [(turn, crash(None, Exit::Code(0)))]);
    assert_eq!(details(&out), ["the host exited with status 0"]);
    assert_eq!(rig.state(), HostState::BackingOff);

    let mut rig = ready();
    assert_eq!(rig.exited(Exit::Unknown), [Effect::Unregister { epoch: 1 }]);
    assert_eq!(rig.state(), HostState::BackingOff);
}

#[test]
fn an_answer_that_was_in_the_pipe_wins_over_the_crash() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    assert_eq!(rig.answer("t"), [reply(turn)]);
    assert_eq!(rig.exited(Exit::Code(1)), [Effect::Unregister { epoch: 1 }]);
}

#[test]
fn an_unsent_interrupt_never_reaches_the_next_child() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    let (interrupt, _) = rig.interrupt("i", "s", None);
    assert_eq!(rig.outgoing(), "i\n");
    let out = rig.exited(Exit::Code(1));
    assert_eq!(endings(&out)[0].0, turn);
    assert_eq!(endings(&out)[1], (interrupt, Short::Call(ErrorKind::Crash)));
}

#[test]
fn no_child_is_spawned_before_the_old_tree_is_gone_or_two_seconds() {
    let mut rig = ready();
    rig.exited(Exit::Code(1));
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(2)));
    assert_eq!(rig.machine.snapshot().next_start_at, Some(rig.now + secs(2)));
    assert_eq!(rig.wait(secs(2) - MS), []);
    assert_eq!(rig.wait(MS), [Effect::Spawn { epoch: 2 }]);

    let mut rig = ready();
    rig.exited(Exit::Code(1));
    let died = rig.now;
    assert_eq!(rig.swept(), [], "the back-off is not over");
    let at = rig.machine.next_deadline().expect("a next try");
    assert!((125 * MS..=250 * MS).contains(&(at - died)), "{:?}", at - died);
    assert_eq!(rig.wait(at - rig.now), [Effect::Spawn { epoch: 2 }]);

    let mut rig = ready();
    rig.exited(Exit::Code(1));
    rig.wait(secs(1));
    assert_eq!(
        rig.swept(),
        [Effect::Spawn { epoch: 2 }],
        "the back-off is over, only the tree was waited for"
    );
    assert_eq!(rig.machine.snapshot().restarts, 1);
}

#[test]
fn a_sweep_of_another_epoch_opens_no_gate() {
    let mut rig = ready();
    rig.exited(Exit::Code(1));
    rig.wait(secs(1));
    assert_eq!(rig.give(Input::Swept { epoch: 2, survivors: Vec::new() }), []);
    assert_eq!(rig.give(Input::Swept { epoch: 0, survivors: Vec::new() }), []);
    assert_eq!(rig.state(), HostState::BackingOff);
}

#[test]
fn a_sweep_before_the_exit_is_not_believed() {
    let mut rig = ready();
    rig.swept();
    rig.exited(Exit::Code(1));
    assert_eq!(rig.machine.next_deadline(), Some(rig.now + secs(2)));
}

#[test]
fn the_fourth_failure_in_the_window_is_a_crash_loop() {
    let mut rig = ready();
    for _ in 0..3 {
        rig.crash_and_respawn();
        rig.hello();
    }
    assert_eq!(rig.machine.snapshot().restarts, 3);
    let sent = rig.turn("sent", "a");
    rig.write_all();
    let waiting = rig.turn("waiting", "b");
    let call = rig.call("call", "b");
    let out = rig.exited(Exit::Code(7));
    let expected = [
        (sent, Short::Turn(FailReason::Crash, None, Some(Exit::Code(7)), 4)),
        (waiting, Short::Turn(FailReason::CrashLoop, Some(false), None, 4)),
        (call, Short::Call(ErrorKind::CrashLoop)),
    ];
    assert_eq!(endings(&out), expected);
    assert_eq!(rig.state(), HostState::CrashLooped);
    assert_eq!(rig.machine.next_deadline(), None);
    for kind in [RequestKind::Turn, RequestKind::Call, RequestKind::Seed] {
        assert_eq!(rig.refused("later", kind), ErrorKind::CrashLoop);
    }
    assert_eq!(start_answers(&rig.give(Input::Start)), [Err(ErrorKind::CrashLoop)]);
    assert_eq!(rig.swept(), []);
    assert_eq!(rig.wait(secs(3600)), []);
}

#[test]
fn a_crash_loop_names_its_last_failure() {
    let mut rig =
        ready_with(Policy { restart: RestartPolicy { max: 0, ..RestartPolicy::default() }, ..policy() });
    rig.turn("t", "s");
    let out = rig.exited(Exit::Signal(11));
    let expected = "the host failed too often; `reset` allows it again (last failure: crash: the host was ended by signal 11 (SIGSEGV))";
    assert_eq!(details(&out), [expected]);
    let fault = StartFault::new(ErrorKind::CrashLoop, expected.to_owned());
    assert_eq!(rig.give(Input::Start), [Effect::Started(Err(fault))]);
    let request = rig.request("u", "s", RequestKind::Turn);
    assert_eq!(rig.submit(request).0.expect_err("refused").detail, expected);

    let mut rig =
        ready_with(Policy { restart: RestartPolicy { max: 0, ..RestartPolicy::default() }, ..policy() });
    rig.turn("t", "s");
    let out = rig.give(Input::HostRestarted { epoch: 1 });
    assert!(details(&out)[0].ends_with("(last failure: the host restarted itself)"), "{out:?}");
}

#[test]
fn a_start_while_a_child_is_dying_waits_for_the_next_one() {
    let dooms: [fn(&mut Rig); 3] = [
        |rig| {
            rig.hello();
            rig.give(Input::WriteFailed { epoch: 1 });
        },
        |rig| {
            rig.hello();
            rig.heartbeat();
            rig.wait(secs(45));
        },
        |rig| {
            rig.wait(secs(10));
        },
    ];
    for doom in dooms {
        let mut rig = rig();
        rig.give(Input::Start);
        doom(&mut rig);
        assert_eq!(rig.state(), HostState::BackingOff);
        assert_eq!(rig.give(Input::Start), []);
        assert_eq!(start_answers(&rig.crash_and_respawn()), []);
        rig.give(Input::Hello { epoch: 2, verdict: Ok(()) });
        assert_eq!(rig.give(Input::Reseeded { epoch: 2, lines: Vec::new() }), [Effect::Started(Ok(2))]);
    }
}

#[test]
fn a_pipe_that_breaks_while_the_child_is_seeded_answers_the_start() {
    let mut rig = rig_with(policy());
    rig.give(Input::Start);
    rig.give(Input::Hello { epoch: 1, verdict: Ok(()) });
    let out = rig.give(Input::WriteFailed { epoch: 1 });
    let fault = StartFault::new(ErrorKind::Crash, "the host closed its pipes".to_owned());
    assert_eq!(out, [Effect::Started(Err(fault))]);
}

#[test]
fn a_start_that_ends_in_a_crash_loop_is_answered_with_its_own_fault() {
    let mut rig =
        rig_with(Policy { restart: RestartPolicy { max: 0, ..RestartPolicy::default() }, ..policy() });
    rig.give(Input::Start);
    assert_eq!(start_answers(&rig.exited(Exit::Code(3))), [Err(ErrorKind::ExitedBeforeHello)]);
    assert_eq!(rig.state(), HostState::CrashLooped, "a budget of zero allows no respawn");
}

#[test]
fn a_reset_allows_requests_again_with_a_fresh_budget_and_starts_nothing() {
    let mut rig = ready();
    for _ in 0..3 {
        rig.crash_and_respawn();
        rig.hello();
    }
    rig.exited(Exit::Code(1));
    rig.swept();
    assert_eq!(rig.give(Input::Reset), []);
    assert_eq!(rig.state(), HostState::Stopped);
    assert_eq!(rig.wait(secs(60)), []);
    rig.turn("t", "s");
    assert_eq!(rig.state(), HostState::Starting);
    rig.hello();
    for _ in 0..3 {
        rig.crash_and_respawn();
        rig.hello();
    }
    rig.exited(Exit::Code(1));
    assert_eq!(rig.state(), HostState::CrashLooped, "the second count is as long as the first");
}

#[test]
fn a_reset_lifts_nothing_but_a_crash_loop() {
    let mut rig = ready();
    assert_eq!(rig.give_all(Input::Reset), []);
    rig.exited(Exit::Code(1));
    assert_eq!(rig.give_all(Input::Reset), []);
    assert_eq!(rig.state(), HostState::BackingOff);
    for _ in 0..2 {
        rig.swept();
        rig.wait(secs(5));
        rig.exited(Exit::Code(1));
        rig.give(Input::Reset);
    }
    rig.swept();
    rig.wait(secs(5));
    rig.exited(Exit::Code(1));
    assert_eq!(rig.state(), HostState::CrashLooped, "resets in between gave nothing back");
    rig.stop(secs(0), secs(0));
    assert_eq!(rig.give_all(Input::Reset), []);
    assert_eq!(rig.refused("t", RequestKind::Turn), ErrorKind::Shutdown, "a stop on purpose stays");
}

#[test]
fn a_start_after_a_reset_waits_for_the_old_tree() {
    let mut rig =
        ready_with(Policy { restart: RestartPolicy { max: 0, ..RestartPolicy::default() }, ..policy() });
    rig.exited(Exit::Code(1));
    rig.give(Input::Reset);
    assert_eq!(rig.give(Input::Start), []);
    assert_eq!(rig.wait(secs(2) - MS), []);
    assert_eq!(rig.wait(MS), [Effect::Spawn { epoch: 2 }]);
}

#[test]
fn health_brings_the_delay_back_to_the_base() {
    let mut rig = ready_with(Policy { sweep_timeout: secs(0), ..policy() });
    rig.crash_and_respawn();
    rig.hello();
    rig.wait(secs(60));
    rig.exited(Exit::Code(1));
    let delay = rig.machine.next_deadline().expect("a next try") - rig.now;
    assert!(delay <= 250 * MS, "{delay:?}");

    let mut rig = ready_with(Policy { sweep_timeout: secs(0), ..policy() });
    rig.crash_and_respawn();
    rig.hello();
    rig.wait(secs(60) - MS);
    rig.exited(Exit::Code(1));
    let delay = rig.machine.next_deadline().expect("a next try") - rig.now;
    assert!((250 * MS..=500 * MS).contains(&delay), "{delay:?}");
}

#[test]
fn delays_differ_by_seed_and_not_by_run() {
    let delay = |seed| {
        let t0 = Instant::now();
        let mut machine: Machine<u32, &'static str> =
            Machine::new(Policy { sweep_timeout: secs(0), ..policy() }, seed);
        machine.handle(t0, Input::Start, &mut Vec::new());
        machine.handle(t0, Input::Exited { epoch: 1, exit: Exit::Unknown }, &mut Vec::new());
        machine.next_deadline().expect("a next try") - t0
    };
    assert_eq!(delay(1), delay(1));
    assert_ne!(delay(1), delay(2));
}

#[test]
fn what_was_queued_waits_from_the_crash_on_and_what_waited_keeps_its_limit() {
    let mut rig = ready();
    let queued = rig.turn("queued", "a");
    rig.pass(secs(25));
    rig.exited(Exit::Code(1));
    rig.pass(secs(1));
    let waiting = rig.turn("waiting", "b");
    rig.pass(secs(1));
    rig.give(Input::Tick);
    assert_eq!(rig.state(), HostState::Starting);
    rig.exited(Exit::Code(1));
    assert_eq!(endings(&rig.wait(secs(8) - MS)), [], "ten seconds since the first crash");
    let unavailable = |epoch| Short::Turn(FailReason::Unavailable, Some(false), None, epoch);
    let epoch = rig.epoch();
    assert_eq!(endings(&rig.wait(MS)), [(queued, unavailable(epoch))]);
    assert_eq!(endings(&rig.wait(secs(1))), [(waiting, unavailable(epoch))]);
}

#[test]
fn a_broken_pipe_gives_the_child_a_second_to_say_how_it_ends() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.turn("unsent", "s2");
    assert_eq!(rig.give(Input::WriteFailed { epoch: 1 }), []);
    assert_eq!(rig.state(), HostState::BackingOff);
    assert_eq!(rig.outgoing(), "", "nothing more is written to it");
    let out = rig.exited(Exit::Code(7));
    assert_eq!(endings(&out), [(turn, crash(None, Exit::Code(7)))]);
    assert_eq!(details(&out), ["the host closed its pipes and exited with status 7"]);
    assert_eq!(rig.open(), [("unsent".to_owned(), OpenPhase::Waiting)]);
}

#[test]
fn a_child_that_only_closed_its_stdin_is_killed() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.give(Input::WriteFailed { epoch: 1 });
    rig.wrote(0);
    assert_eq!(rig.wait(secs(1) - MS), []);
    assert_eq!(rig.give(Input::WriteFailed { epoch: 1 }), [], "told twice, it gets no second second");
    assert_eq!(rig.wait(MS), [Effect::Kill { epoch: 1 }]);
    assert_eq!(endings(&rig.exited(Exit::Signal(9))), [(turn, crash(None, Exit::Signal(9)))]);
    assert_eq!(rig.state(), HostState::BackingOff);
}

#[test]
fn a_pipe_that_breaks_before_hello_shortens_the_hello_limit_to_a_second() {
    let mut rig = rig_with(policy());
    rig.give(Input::Start);
    rig.wait(secs(1));
    assert_eq!(rig.give(Input::WriteFailed { epoch: 1 }), []);
    assert_eq!(rig.state(), HostState::Starting);
    assert_eq!(rig.wait(secs(1) - MS), []);
    let detail = "the host closed its pipes before it said hello".to_owned();
    let fault = StartFault::new(ErrorKind::NoHello, detail);
    assert_eq!(rig.wait(MS), [Effect::Kill { epoch: 1 }, Effect::Started(Err(fault))]);

    let mut rig = rig_with(policy());
    rig.give(Input::Start);
    rig.wait(secs(10) - MS);
    rig.give(Input::WriteFailed { epoch: 1 });
    assert_eq!(rig.wait(MS)[0], Effect::Kill { epoch: 1 }, "it never makes the limit longer");
}

#[test]
fn answers_still_count_while_the_child_is_dying() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.give(Input::WriteFailed { epoch: 1 });
    assert_eq!(rig.answer("t"), [reply(turn)]);
}

#[test]
fn requests_that_come_while_the_child_is_dying_wait_for_the_next_one() {
    let mut rig = ready();
    rig.turn("queued", "s");
    rig.give(Input::WriteFailed { epoch: 1 });
    rig.turn("t", "s");
    assert_eq!(rig.open(), ["queued", "t"].map(|id| (id.to_owned(), OpenPhase::Waiting)));
    rig.wait(secs(1));
    rig.crash_and_respawn();
    rig.hello();
    assert_eq!(rig.write_all(), "queued\nt\n");
}

#[test]
fn a_child_that_cannot_be_killed_is_abandoned() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    rig.write_all();
    rig.give(Input::WriteFailed { epoch: 1 });
    rig.wait(secs(1));
    assert_eq!(rig.wait(secs(10) - MS), []);
    let out = rig.wait(MS);
    assert_eq!(endings(&out), [(turn, crash(None, Exit::Unknown))]);
    assert_eq!(orders(out), [Effect::Abandon { epoch: 1 }], "its record stays for the next supervisor");
    assert_eq!(rig.exited(Exit::Signal(9)), [], "its exit is no news any more");
    assert_eq!(rig.wait(secs(2)), [Effect::Spawn { epoch: 2 }]);
}

#[test]
fn a_host_that_restarts_itself_crashes_the_old_one_without_a_spawn() {
    let mut rig = ready();
    let running = rig.turn("running", "a");
    let call = rig.call("call", "a");
    rig.write_all();
    rig.started("running");
    rig.heartbeat();
    let unsent = rig.turn("unsent", "b");
    let out = rig.give(Input::HostRestarted { epoch: 1 });
    let crashed = Short::Turn(FailReason::Crash, Some(true), None, 1);
    assert_eq!(endings(&out), [(running, crashed), (call, Short::Call(ErrorKind::Crash))]);
    assert_eq!(details(&out), ["the host restarted itself"; 2]);
    assert_eq!(orders(out), [Effect::Register { epoch: 2 }, Effect::Reseed { epoch: 2 }]);
    assert_eq!((rig.state(), rig.epoch(), rig.machine.snapshot().restarts), (HostState::Starting, 2, 1));
    assert_eq!(rig.outgoing(), "", "not before the seeds");
    rig.give(Input::Reseeded { epoch: 2, lines: vec![b"seed\n".to_vec()] });
    assert_eq!(rig.write_all(), "seed\nunsent\n");
    assert_eq!(rig.answer("unsent"), [reply(unsent)]);
    assert_eq!(rig.wait(secs(600)), [], "its heartbeats are not those of the old one");
    assert_eq!(rig.exited(Exit::Code(0)), [Effect::Unregister { epoch: 2 }]);
}

#[test]
fn a_line_that_a_restarting_host_read_half_of_is_ended_before_the_seeds() {
    let mut rig = ready();
    rig.turn("cut", "a");
    rig.turn("whole", "b");
    rig.wrote(1);
    rig.give(Input::HostRestarted { epoch: 1 });
    rig.give(Input::Reseeded { epoch: 2, lines: vec![b"seed\n".to_vec()] });
    assert_eq!(rig.write_all(), "\nseed\nwhole\n");
}

#[test]
fn seeds_for_the_old_incarnation_are_not_sent_to_the_new_one() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.give(Input::Hello { epoch: 1, verdict: Ok(()) });
    let out = rig.give(Input::HostRestarted { epoch: 1 });
    assert_eq!(out, [Effect::Register { epoch: 2 }, Effect::Reseed { epoch: 2 }]);
    assert_eq!(rig.give(Input::Reseeded { epoch: 1, lines: vec![b"old\n".to_vec()] }), []);
    let out = rig.give(Input::Reseeded { epoch: 2, lines: vec![b"new\n".to_vec()] });
    assert_eq!(out, [Effect::Started(Ok(2))]);
    rig.wrote(1);
    rig.give(Input::HostRestarted { epoch: 2 });
    rig.give(Input::Reseeded { epoch: 3, lines: vec![b"newer\n".to_vec()] });
    assert_eq!(rig.write_all(), "\nnewer\n");
}

#[test]
fn a_restart_of_its_own_counts_and_the_last_one_is_a_crash_loop() {
    let mut rig =
        ready_with(Policy { restart: RestartPolicy { max: 1, ..RestartPolicy::default() }, ..policy() });
    rig.give(Input::HostRestarted { epoch: 1 });
    let waiting = rig.turn("waiting", "s");
    let epoch = rig.epoch();
    rig.give(Input::Start);
    let out = rig.give(Input::HostRestarted { epoch });
    assert_eq!(endings(&out), [(waiting, Short::Turn(FailReason::CrashLoop, Some(false), None, 2))]);
    assert_eq!(start_answers(&out), [Err(ErrorKind::CrashLoop)]);
    assert!(out.contains(&Effect::Kill { epoch: 2 }), "{out:?}");
    assert_eq!(rig.state(), HostState::CrashLooped);
    assert_eq!(rig.give(Input::HostRestarted { epoch }), [], "a dying child restarts nothing");
    assert_eq!(rig.give(Input::Reset), []);
    assert_eq!(rig.give(Input::Start), [], "not beside the old child");
    assert_eq!(rig.state(), HostState::BackingOff);
    assert_eq!(rig.wait(secs(5)), []);
    assert_eq!(rig.exited(Exit::Signal(9)), [Effect::Unregister { epoch: 2 }]);
    assert_eq!(rig.state(), HostState::BackingOff, "this end counts no second time");
    assert_eq!(rig.swept(), [Effect::Spawn { epoch: 3 }]);
}

#[test]
fn the_end_of_a_child_killed_in_a_crash_loop_changes_nothing() {
    let mut rig =
        ready_with(Policy { restart: RestartPolicy { max: 0, ..RestartPolicy::default() }, ..policy() });
    rig.give(Input::HostRestarted { epoch: 1 });
    assert_eq!(rig.state(), HostState::CrashLooped);
    let out = rig.wait(secs(10));
    assert_eq!(out, [Effect::Abandon { epoch: 1 }]);
    assert_eq!(rig.state(), HostState::CrashLooped);
}
