use super::*;
use pretty_assertions::assert_eq;

#[test]
fn a_start_spawns_registers_seeds_and_is_answered_when_the_child_takes_input() {
    let mut rig = rig();
    assert_eq!(rig.give(Input::Start), [Effect::Spawn { epoch: 1 }]);
    assert_eq!(rig.state(), HostState::Starting);
    let hello = Input::Hello { epoch: 1, verdict: Ok(()) };
    assert_eq!(rig.give(hello), [Effect::Register { epoch: 1 }, Effect::Reseed { epoch: 1 }]);
    assert_eq!(rig.state(), HostState::Starting, "not ready before it is seeded");
    let seeded = Input::Reseeded { epoch: 1, lines: Vec::new() };
    assert_eq!(rig.give(seeded), [Effect::Started(Ok(1))]);
    assert_eq!(rig.state(), HostState::Ready);
    assert_eq!(rig.machine.next_deadline(), None, "a healthy host without heartbeats has no deadline");
}

#[test]
fn a_start_of_a_ready_host_is_answered_at_once() {
    let mut rig = ready();
    assert_eq!(rig.give(Input::Start), [Effect::Started(Ok(1))]);
}

#[test]
fn starts_of_a_starting_host_are_answered_together() {
    let mut rig = rig();
    rig.give(Input::Start);
    assert_eq!(rig.give(Input::Start), []);
    rig.give(Input::Hello { epoch: 1, verdict: Ok(()) });
    assert_eq!(rig.give(Input::Start), []);
    assert_eq!(rig.give(Input::Reseeded { epoch: 1, lines: Vec::new() }), [Effect::Started(Ok(1))]);
}

#[test]
fn every_change_of_state_is_published_once_and_in_order() {
    let mut rig = rig();
    let mut states = Vec::new();
    let mut collect = |effects: Effects| {
        for effect in effects {
            if let Effect::Publish(snapshot) = effect {
                states.push((
                    snapshot.state,
                    snapshot.epoch,
                    snapshot.restarts,
                    snapshot.next_start_at.is_some(),
                ));
            }
        }
    };
    collect(rig.give_all(Input::Tick));
    collect(rig.give_all(Input::Start));
    collect(rig.give_all(Input::Hello { epoch: 1, verdict: Ok(()) }));
    collect(rig.give_all(Input::Reseeded { epoch: 1, lines: Vec::new() }));
    collect(rig.give_all(Input::Alive { epoch: 1 }));
    collect(rig.give_all(Input::Exited { epoch: 1, exit: Exit::Code(1) }));
    rig.pass(secs(2));
    collect(rig.give_all(Input::Tick));
    let stop = StopPlan { drain: secs(0), budget: secs(5), restart: false };
    collect(rig.give_all(Input::Stop(stop)));
    collect(rig.give_all(Input::SpawnFailed {
        epoch: 2,
        fault: fault(ErrorKind::Shutdown),
        permanent: false,
    }));
    collect(rig.give_all(Input::Stop(stop)));
    collect(rig.give_all(Input::Stop(StopPlan { restart: true, ..stop })));
    let expected = [
        (HostState::Starting, 1, 0, false),
        (HostState::Ready, 1, 0, false),
        (HostState::BackingOff, 1, 0, true),
        (HostState::Starting, 2, 1, false),
        (HostState::Draining, 2, 1, false),
        (HostState::Stopped, 2, 1, false),
        (HostState::Starting, 3, 1, false),
    ];
    assert_eq!(states, expected);
}

#[test]
fn a_publication_carries_the_snapshot_of_its_moment() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.stop(secs(0), secs(4));
    let out = rig.give_all(Input::Stop(StopPlan { drain: secs(0), budget: secs(4), restart: true }));
    assert_eq!(out, []);
    rig.give_all(Input::Exited { epoch: 1, exit: Exit::Code(0) });
    let out = rig.give_all(Input::Swept { epoch: 1, survivors: Vec::new() });
    let states: Vec<HostState> = out
        .iter()
        .filter_map(|effect| match effect {
            Effect::Publish(snapshot) => Some(snapshot.state),
            _ => None,
        })
        .collect();
    assert_eq!(states, [HostState::Stopped, HostState::Starting], "a restart passes through stopped");
}

#[test]
fn a_permanent_spawn_failure_stops_and_names_its_kind_everywhere() {
    let mut rig = rig();
    rig.give(Input::Start);
    let turn = rig.turn("t", "s");
    let call = rig.call("c", "s");
    let out =
        rig.give(Input::SpawnFailed { epoch: 1, fault: fault(ErrorKind::SpawnFailed), permanent: true });
    assert_eq!(start_answers(&out), [Err(ErrorKind::SpawnFailed)]);
    let expected = [
        (turn, Short::Turn(FailReason::Unavailable, Some(false), None, 1)),
        (call, Short::Call(ErrorKind::Unavailable)),
    ];
    assert_eq!(endings(&out), expected);
    assert_eq!(details(&out), ["spawn_failed: because"; 2]);
    assert_eq!(rig.state(), HostState::Stopped);
    assert_eq!(rig.machine.next_deadline(), None, "nothing is tried again by itself");
}

#[test]
fn the_next_request_after_a_permanent_failure_tries_again() {
    for kind in [RequestKind::Turn, RequestKind::Call, RequestKind::Seed] {
        let mut rig = rig();
        rig.give(Input::Start);
        rig.give(Input::SpawnFailed { epoch: 1, fault: fault(ErrorKind::SpawnFailed), permanent: true });
        let request = rig.request("again", "s", kind);
        assert_eq!(rig.submit(request), (Ok(SubmitPhase::Waiting), vec![Effect::Spawn { epoch: 2 }]));
    }
}

#[test]
fn permanent_failures_never_add_up_to_a_crash_loop() {
    let mut rig = rig();
    for epoch in 1..20 {
        assert_eq!(rig.give(Input::Start), [Effect::Spawn { epoch }]);
        rig.give(Input::SpawnFailed { epoch, fault: fault(ErrorKind::SpawnFailed), permanent: true });
        assert_eq!(rig.state(), HostState::Stopped);
    }
}

#[test]
fn a_retryable_spawn_failure_answers_the_start_and_backs_off() {
    let mut rig = rig();
    rig.give(Input::Start);
    let turn = rig.turn("t", "s");
    let out =
        rig.give(Input::SpawnFailed { epoch: 1, fault: fault(ErrorKind::SpawnFailed), permanent: false });
    assert_eq!(out, [Effect::Started(Err(fault(ErrorKind::SpawnFailed)))]);
    assert_eq!(rig.state(), HostState::BackingOff);
    let delay = rig.machine.next_deadline().expect("a next try") - rig.now;
    assert!((125 * MS..=250 * MS).contains(&delay), "{delay:?}; no tree is waited for");
    assert_eq!(rig.wait(delay - MS), []);
    assert_eq!(rig.wait(MS), [Effect::Spawn { epoch: 2 }]);
    rig.hello();
    assert_eq!(rig.outgoing(), "t\n");
    rig.write_all();
    assert_eq!(rig.answer("t"), [reply(turn)]);
}

#[test]
fn every_kind_of_failed_start_counts_in_the_budget_from_a_request_too() {
    type Fail = fn(&mut Rig);
    let fails: [(&str, Fail); 4] = [
        ("spawn", |rig| {
            let epoch = rig.epoch();
            rig.give(Input::SpawnFailed { epoch, fault: fault(ErrorKind::SpawnFailed), permanent: false });
        }),
        ("exit before hello", |rig| {
            rig.exited(Exit::Code(3));
        }),
        ("no hello", |rig| {
            rig.wait(secs(10));
            rig.exited(Exit::Signal(9));
        }),
        ("exit after hello", |rig| {
            let epoch = rig.epoch();
            rig.give(Input::Hello { epoch, verdict: Ok(()) });
            rig.exited(Exit::Code(3));
        }),
    ];
    for (name, fail) in fails {
        let mut rig = rig_with(Policy { unavailable_after: secs(1000), ..policy() });
        rig.turn("t", "s");
        for n in 0..3 {
            fail(&mut rig);
            assert_eq!(rig.state(), HostState::BackingOff, "{name}, failure {n}");
            rig.swept();
            rig.wait(secs(5));
            assert_eq!(rig.state(), HostState::Starting, "{name}, failure {n}");
        }
        fail(&mut rig);
        assert_eq!(rig.state(), HostState::CrashLooped, "{name}");
        assert_eq!(rig.machine.pending.turns(), 0, "{name}");
    }
}

#[test]
fn an_exit_before_hello_is_answered_at_once_with_its_status() {
    let mut rig = rig();
    rig.give(Input::Start);
    let out = rig.exited(Exit::Code(3));
    let expected = StartFault::new(
        ErrorKind::ExitedBeforeHello,
        "the host exited with status 3 before it said hello".to_owned(),
    );
    assert_eq!(out, [Effect::Started(Err(expected))], "it was never registered");
    assert_eq!(rig.state(), HostState::BackingOff);
}

#[test]
fn no_hello_in_time_kills_answers_and_backs_off_once_the_child_is_dead() {
    let mut rig = rig();
    rig.give(Input::Start);
    assert_eq!(rig.wait(secs(10) - MS), []);
    let out = rig.wait(MS);
    let expected = StartFault::new(ErrorKind::NoHello, "no hello in 10.0 s".to_owned());
    assert_eq!(out, [Effect::Kill { epoch: 1 }, Effect::Started(Err(expected))]);
    assert_eq!(rig.state(), HostState::BackingOff);
    let late = Input::Hello { epoch: 1, verdict: Ok(()) };
    assert_eq!(rig.give(late), [], "a late hello is ignored");
    assert_eq!(rig.wait(secs(5)), [], "no second child while the first one lives");
    assert_eq!(rig.exited(Exit::Signal(9)), []);
    rig.swept();
    let out = rig.wait(250 * MS);
    assert_eq!(out, [Effect::Spawn { epoch: 2 }]);
}

#[test]
fn a_start_that_fails_does_not_answer_the_starts_of_the_next_try() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.exited(Exit::Code(3));
    assert_eq!(rig.give(Input::Start), [], "it waits for the next try, and does not skip the back-off");
    rig.swept();
    rig.wait(secs(1));
    assert_eq!(rig.epoch(), 2);
    rig.give(Input::Hello { epoch: 2, verdict: Ok(()) });
    assert_eq!(rig.give(Input::Reseeded { epoch: 2, lines: Vec::new() }), [Effect::Started(Ok(2))]);
}

#[test]
fn a_child_that_dies_while_it_is_seeded_answers_the_start() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.give(Input::Hello { epoch: 1, verdict: Ok(()) });
    let out = rig.exited(Exit::Signal(11));
    assert_eq!(out[0], Effect::Unregister { epoch: 1 });
    let expected = StartFault::new(
        ErrorKind::Crash,
        "the host was ended by signal 11 (SIGSEGV) while it was being seeded",
    );
    assert_eq!(out[1..], [Effect::Started(Err(expected))]);
}

#[test]
fn a_refused_hello_is_answered_when_the_child_is_dead() {
    let mut rig = rig();
    rig.give(Input::Start);
    let turn = rig.turn("t", "s");
    let refused = Input::Hello { epoch: 1, verdict: Err(fault(ErrorKind::BuildMismatch)) };
    assert_eq!(rig.give(refused), [Effect::Kill { epoch: 1 }]);
    assert_eq!(rig.state(), HostState::Starting);
    assert_eq!(rig.outgoing(), "", "no turn ever reaches it");
    let late = rig.turn("u", "s");
    let out = rig.exited(Exit::Signal(9));
    assert_eq!(start_answers(&out), [Err(ErrorKind::BuildMismatch)]);
    let unavailable = || Short::Turn(FailReason::Unavailable, Some(false), None, 1);
    assert_eq!(endings(&out), [(turn, unavailable()), (late, unavailable())]);
    assert_eq!(details(&out), ["build_mismatch: because"; 2]);
    assert_eq!(rig.state(), HostState::Stopped);
    assert_eq!(rig.wait(secs(60)), [], "nothing is tried again by itself");
}

#[test]
fn a_start_after_a_refused_hello_waits_for_the_old_tree() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.give(Input::Hello { epoch: 1, verdict: Err(fault(ErrorKind::HomeMismatch)) });
    rig.exited(Exit::Signal(9));
    assert_eq!(rig.give(Input::Start), []);
    assert_eq!(rig.state(), HostState::BackingOff);
    assert_eq!(rig.machine.snapshot().next_start_at, Some(rig.now + secs(2)));
    assert_eq!(rig.swept(), [Effect::Spawn { epoch: 2 }]);
    assert_eq!(rig.machine.snapshot().restarts, 0, "a start that was asked for is no restart");
}

#[test]
fn a_killed_start_that_was_never_a_process_counts_as_gone() {
    let mut rig = rig();
    rig.give(Input::Start);
    rig.wait(secs(10));
    let out =
        rig.give(Input::SpawnFailed { epoch: 1, fault: fault(ErrorKind::SpawnFailed), permanent: true });
    assert_eq!(out, [], "the start was answered when its time was up");
    assert_eq!(rig.state(), HostState::BackingOff, "the time-out was the failure, whatever the spawn says");
    let delay = rig.machine.next_deadline().expect("a next try") - rig.now;
    assert!(delay <= 250 * MS, "{delay:?}: there is no tree to wait for");
}

#[test]
fn seeds_go_before_what_has_waited_and_what_has_waited_keeps_its_order() {
    let mut rig = rig();
    rig.turn("t1", "a");
    rig.call("c1", "b");
    rig.give(Input::Hello { epoch: 1, verdict: Ok(()) });
    rig.turn("t2", "b");
    assert_eq!(rig.outgoing(), "", "nothing before the seeds");
    let lines = vec![b"seed1\n".to_vec(), Vec::new(), b"seed2\n".to_vec()];
    assert_eq!(rig.give(Input::Reseeded { epoch: 1, lines }), []);
    rig.turn("t3", "c");
    assert_eq!(rig.outgoing(), "seed1\nseed2\nt1\nc1\nt2\nt3\n");
    assert_eq!(rig.give(Input::Reseeded { epoch: 1, lines: vec![b"again\n".to_vec()] }), []);
    assert_eq!(rig.write_all(), "seed1\nseed2\nt1\nc1\nt2\nt3\n", "seeds are taken once");
}

#[test]
fn inputs_of_another_epoch_change_nothing() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.heartbeat();
    let before = (rig.machine.snapshot(), rig.machine.next_deadline(), rig.outgoing(), rig.open());
    for epoch in [0, 2, u64::MAX] {
        let inputs = [
            Input::SpawnFailed { epoch, fault: fault(ErrorKind::SpawnFailed), permanent: true },
            Input::Hello { epoch, verdict: Err(fault(ErrorKind::BuildMismatch)) },
            Input::HostRestarted { epoch },
            Input::Reseeded { epoch, lines: vec![b"x\n".to_vec()] },
            Input::Alive { epoch },
            Input::Heartbeat { epoch },
            Input::Wrote { epoch, bytes: 1 },
            Input::WriteFailed { epoch },
            Input::Exited { epoch, exit: Exit::Code(0) },
            Input::Swept { epoch, survivors: vec![5] },
        ];
        rig.pass(secs(1));
        for input in inputs {
            let name = format!("{input:?}");
            assert_eq!(rig.give_all(input), [], "{name}");
        }
        let counted = [
            Input::TurnStarted { epoch, id: "t".into() },
            Input::Answer { epoch, id: "t".into(), reply: "stale" },
            Input::Answer { epoch, id: "unknown".into(), reply: "stale" },
            Input::TurnFailed { epoch, id: "t".into(), reason: FailReason::Protocol, detail: String::new() },
        ];
        for input in counted {
            let name = format!("{input:?}");
            assert_eq!(rig.give_all(input), [Effect::Count(Counted::LateFrame)], "{name}");
        }
        assert_eq!(rig.machine.turn(epoch, &"t".into()), Lookup::Late);
        assert_eq!(rig.machine.open(epoch, &"t".into()), None);
    }
    let after = (rig.machine.snapshot(), rig.machine.next_deadline(), rig.outgoing(), rig.open());
    assert_eq!(after, before);
}

#[test]
fn inputs_of_a_child_that_is_gone_change_nothing() {
    let mut rig = ready();
    rig.exited(Exit::Code(1));
    let before = rig.machine.snapshot();
    assert_eq!(rig.exited(Exit::Code(1)), [], "it exits once");
    assert_eq!(rig.give(Input::HostRestarted { epoch: 1 }), []);
    assert_eq!(rig.give(Input::Hello { epoch: 1, verdict: Ok(()) }), []);
    rig.alive();
    rig.heartbeat();
    assert_eq!(rig.machine.snapshot(), before);
    assert_eq!(rig.answer("nobody"), [Effect::Count(Counted::LateFrame)]);
}

#[test]
fn a_second_hello_is_no_news_to_the_machine() {
    let mut rig = ready();
    assert_eq!(rig.give(Input::Hello { epoch: 1, verdict: Err(fault(ErrorKind::BuildMismatch)) }), []);
    assert_eq!(rig.state(), HostState::Ready);
}
