use super::*;
use pretty_assertions::assert_eq;

fn applied(turn: &str) -> Short {
    Short::Interrupt(InterruptOutcome::Applied, Some(turn.to_owned()))
}

fn not_found() -> Short {
    Short::Interrupt(InterruptOutcome::NotFound, None)
}

#[test]
fn a_turn_a_call_and_a_seed_start_a_stopped_host() {
    for kind in [RequestKind::Turn, RequestKind::Call, RequestKind::Seed] {
        let mut rig = rig();
        let request = rig.request("r", "s", kind);
        assert_eq!(rig.submit(request), (Ok(SubmitPhase::Waiting), vec![Effect::Spawn { epoch: 1 }]));
        let request = rig.request("r2", "s", RequestKind::Turn);
        assert_eq!(rig.submit(request), (Ok(SubmitPhase::Waiting), vec![]), "one child is enough");
    }
}

#[test]
fn a_request_to_a_ready_host_is_sent_and_one_to_any_other_waits() {
    let mut rig = ready();
    let request = rig.request("sent", "s", RequestKind::Turn);
    assert_eq!(rig.submit(request).0, Ok(SubmitPhase::Sent));
    rig.exited(Exit::Code(1));
    let request = rig.request("waits", "s", RequestKind::Turn);
    assert_eq!(rig.submit(request).0, Ok(SubmitPhase::Waiting));
}

#[test]
fn an_id_that_is_open_is_refused_whatever_it_is_open_for() {
    let kinds = [
        RequestKind::Turn,
        RequestKind::Call,
        RequestKind::Seed,
        RequestKind::Interrupt { turn_id: None },
        RequestKind::Interrupt { turn_id: Some("x".into()) },
    ];
    for open in &kinds {
        for second in &kinds {
            let mut rig = ready();
            rig.accepted("x", "s", open.clone());
            assert_eq!(rig.refused("x", second.clone()), ErrorKind::DuplicateRequest, "{open:?}, {second:?}");
            rig.write_all();
            assert_eq!(rig.refused("x", second.clone()), ErrorKind::DuplicateRequest, "{open:?}, {second:?}");
        }
    }
}

#[test]
fn an_id_is_free_again_when_its_request_has_ended() {
    let mut rig = ready();
    rig.turn("x", "s");
    rig.write_all();
    rig.answer("x");
    let second = rig.call("x", "s");
    rig.write_all();
    assert_eq!(rig.answer("x"), [reply(second)]);
}

#[test]
fn as_many_requests_wait_as_the_policy_says() {
    let mut rig = rig_with(Policy { max_waiting: 2, ..policy() });
    rig.turn("a", "s");
    rig.call("b", "s");
    for kind in [RequestKind::Turn, RequestKind::Call, RequestKind::Seed] {
        assert_eq!(rig.refused("c", kind), ErrorKind::Overloaded);
    }
    assert_eq!(rig.machine.pending.unsent_count(), 2);
    rig.hello();
    assert_eq!(rig.refused("c", RequestKind::Turn), ErrorKind::Overloaded, "nothing was written yet");
    rig.wrote(1);
    assert_eq!(rig.machine.pending.unsent_count(), 1);
    rig.turn("c", "s");
    assert_eq!(rig.refused("d", RequestKind::Interrupt { turn_id: Some("a".into()) }), ErrorKind::Overloaded);
}

#[test]
fn as_many_bytes_wait_as_the_policy_says() {
    let mut rig = rig_with(Policy { max_waiting_bytes: 6, ..policy() });
    rig.turn("aa", "s");
    rig.turn("bb", "s");
    assert_eq!(rig.refused("c", RequestKind::Turn), ErrorKind::Overloaded);
    rig.interrupt("i", "s", Some("aa"));
    rig.turn("cc", "s");
    rig.hello();
    rig.write_all();
    rig.turn("ddddd", "s");
    assert_eq!(rig.refused("e", RequestKind::Turn), ErrorKind::Overloaded);
}

#[test]
fn a_refusal_says_what_to_do() {
    let mut rig = rig_with(Policy { max_waiting: 1, max_waiting_bytes: 3, ..policy() });
    rig.turn("a", "s");
    let mut detail = |id: &str| {
        let request = rig.request(id, "s", RequestKind::Turn);
        rig.submit(request).0.expect_err("refused").detail
    };
    assert_eq!(detail("a"), "a request with the id a is open already");
    assert_eq!(detail("b"), "1 requests wait to be sent already; try again later");
    let mut rig = rig_with(Policy { max_waiting_bytes: 3, ..policy() });
    rig.turn("a", "s");
    let request = rig.request("b", "s", RequestKind::Turn);
    let detail = rig.submit(request).0.expect_err("refused").detail;
    assert_eq!(detail, "2 bytes wait to be sent already; try again later");
}

#[test]
fn an_interrupt_of_a_full_queue_still_takes_a_turn_out_of_it() {
    let mut rig = rig_with(Policy { max_waiting: 1, ..policy() });
    let turn = rig.turn("t", "s");
    let (interrupt, out) = rig.interrupt("i", "s", None);
    assert_eq!(endings(&out), [(interrupt, applied("t")), (turn, Short::InterruptedUnsent)]);
}

#[test]
fn an_interrupt_never_starts_a_host() {
    let mut rig = rig();
    let (interrupt, out) = rig.interrupt("i", "never-seen", None);
    assert_eq!(endings(&out), [(interrupt, not_found())]);
    assert_eq!((orders(out), rig.state(), rig.epoch()), (vec![], HostState::Stopped, 0));
}

#[test]
fn an_interrupt_without_a_ready_child_is_answered_not_found_in_every_state() {
    type Bring = fn() -> Rig;
    let states: [(HostState, Bring); 5] = [
        (HostState::Stopped, rig),
        (HostState::Stopped, || {
            let mut rig = rig();
            rig.stop(secs(0), secs(1));
            rig
        }),
        (HostState::Starting, || {
            let mut rig = rig();
            rig.give(Input::Start);
            rig
        }),
        (HostState::BackingOff, || {
            let mut rig = ready();
            rig.exited(Exit::Code(1));
            rig
        }),
        (HostState::CrashLooped, || {
            let restart = RestartPolicy { max: 0, ..RestartPolicy::default() };
            let mut rig = ready_with(Policy { restart, ..policy() });
            rig.exited(Exit::Code(1));
            rig
        }),
    ];
    for (state, bring) in states {
        for turn in [None, Some("t")] {
            let mut rig = bring();
            assert_eq!(rig.state(), state);
            let (interrupt, out) = rig.interrupt("i", "s", turn);
            assert_eq!(endings(&out), [(interrupt, not_found())], "{state:?}, {turn:?}");
            assert_eq!(rig.state(), state);
            assert_eq!(rig.open(), []);
        }
    }
}

#[test]
fn an_interrupt_of_a_waiting_turn_ends_it_and_nothing_is_sent() {
    for named in [None, Some("t")] {
        let mut rig = rig();
        let turn = rig.turn("t", "s");
        rig.turn("other", "s2");
        let (interrupt, out) = rig.interrupt("i", "s", named);
        assert_eq!(endings(&out), [(interrupt, applied("t")), (turn, Short::InterruptedUnsent)]);
        rig.hello();
        assert_eq!(rig.write_all(), "other\n");
        assert_eq!(rig.answer("t"), [Effect::Count(Counted::LateFrame)]);
        assert_eq!(rig.answer("i"), [Effect::Count(Counted::LateAck)]);
    }
}

#[test]
fn an_interrupt_takes_an_unsent_turn_out_of_the_queue_to_a_ready_child() {
    let mut rig = ready();
    rig.turn("first", "s1");
    let turn = rig.turn("t", "s2");
    rig.turn("last", "s3");
    rig.wrote(2);
    let (interrupt, out) = rig.interrupt("i", "s2", None);
    assert_eq!(endings(&out), [(interrupt, applied("t")), (turn, Short::InterruptedUnsent)]);
    assert_eq!(rig.outgoing(), "rst\nlast\n");
}

#[test]
fn an_interrupt_of_a_written_turn_goes_to_the_host_behind_what_is_before_it() {
    for named in [None, Some("t")] {
        let mut rig = ready();
        rig.turn("t", "s");
        rig.wrote(1);
        rig.turn("other", "s2");
        let (interrupt, out) = rig.interrupt("i", "s", named);
        assert_eq!(out, []);
        assert_eq!(rig.write_all(), "\nother\ni\n");
        assert_eq!(rig.answer("i"), [reply(interrupt)]);
    }
}

#[test]
fn an_interrupt_without_a_name_takes_the_oldest_turn_of_a_session_that_has_none_written() {
    let mut rig = rig();
    rig.call("c", "s");
    let old = rig.turn("old", "s");
    rig.turn("new", "s");
    let (interrupt, out) = rig.interrupt("i", "s", None);
    assert_eq!(endings(&out), [(interrupt, applied("old")), (old, Short::InterruptedUnsent)]);
    assert_eq!(rig.open().len(), 2);
}

#[test]
fn an_interrupt_without_a_name_means_the_turn_that_runs_not_the_one_behind_it() {
    let mut rig = ready();
    rig.turn("runs", "s");
    rig.write_all();
    rig.turn("behind", "s");
    let (_, out) = rig.interrupt("i", "s", None);
    assert_eq!(out, []);
    assert_eq!(rig.outgoing(), "behind\ni\n");
    let (_, out) = rig.interrupt("j", "s", Some("behind"));
    assert_eq!(endings(&out).len(), 2, "named, the one behind it is taken out");
    assert_eq!(rig.outgoing(), "i\n");
}

#[test]
fn an_interrupt_for_a_turn_of_another_session_or_for_no_turn_is_left_to_the_host() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.call("c", "s");
    for (id, sid, named) in [("i1", "s2", "t"), ("i2", "s", "c"), ("i3", "s", "ended")] {
        let (_, out) = rig.interrupt(id, sid, Some(named));
        assert_eq!(out, []);
    }
    assert_eq!(rig.outgoing(), "t\nc\ni1\ni2\ni3\n");
}

#[test]
fn an_interrupt_for_a_turn_of_another_session_does_not_end_one_that_waits() {
    let mut rig = rig();
    rig.turn("t", "s");
    let (interrupt, out) = rig.interrupt("i", "s2", Some("t"));
    assert_eq!(endings(&out), [(interrupt, not_found())]);
    let (interrupt, out) = rig.interrupt("j", "s2", None);
    assert_eq!(endings(&out), [(interrupt, not_found())]);
    assert_eq!(rig.open().len(), 1);
}

#[test]
fn an_interrupt_can_time_out_like_a_call() {
    let mut rig = ready();
    let kind = RequestKind::Interrupt { turn_id: None };
    let request = Request { deadline: Some(rig.now + secs(2)), ..rig.request("i", "s", kind) };
    let waiter = request.waiter;
    assert_eq!(rig.submit(request).0, Ok(SubmitPhase::Sent));
    rig.write_all();
    assert_eq!(endings(&rig.wait(secs(2))), [(waiter, Short::Call(ErrorKind::Timeout))]);
}

#[test]
fn open_requests_are_shown_in_order_of_arrival_with_their_phase() {
    let mut rig = rig();
    rig.turn("b", "s1");
    rig.pass(secs(1));
    rig.call("a", "s2");
    let open = rig.machine.open_requests();
    let (b, a): (RequestId, RequestId) = ("b".into(), "a".into());
    let (s1, s2): (SessionId, SessionId) = ("s1".into(), "s2".into());
    let expected = [
        OpenRequest { id: &b, sid: &s1, kind: &RequestKind::Turn, phase: OpenPhase::Waiting, since: rig.t0 },
        OpenRequest { id: &a, sid: &s2, kind: &RequestKind::Call, phase: OpenPhase::Waiting, since: rig.now },
    ];
    assert_eq!(open, expected);
    assert_eq!((rig.machine.pending.turns(), rig.machine.pending.unsent_count()), (1, 2));
    rig.hello();
    assert_eq!(rig.open(), [("b".to_owned(), OpenPhase::Waiting), ("a".to_owned(), OpenPhase::Waiting)]);
    rig.write_all();
    assert_eq!(rig.open(), [("b".to_owned(), OpenPhase::Sent), ("a".to_owned(), OpenPhase::Sent)]);
    rig.started("b");
    assert_eq!(rig.open(), [("b".to_owned(), OpenPhase::Started), ("a".to_owned(), OpenPhase::Sent)]);
    assert_eq!((rig.machine.pending.turns(), rig.machine.pending.unsent_count()), (1, 0));
}

#[test]
fn waiters_of_a_dropped_machine_are_dropped() {
    let waiter = std::rc::Rc::new(());
    let mut machine: Machine<std::rc::Rc<()>, ()> = Machine::new(policy(), 0);
    let request = Request {
        id: "t".into(),
        sid: "s".into(),
        kind: RequestKind::Turn,
        line: b"t\n".to_vec(),
        deadline: None,
        waiter: waiter.clone(),
    };
    assert!(machine.request(Instant::now(), request, &mut Vec::new()).is_ok());
    assert_eq!(std::rc::Rc::strong_count(&waiter), 2);
    drop(machine);
    assert_eq!(std::rc::Rc::strong_count(&waiter), 1);
}
