use super::*;
use pretty_assertions::assert_eq;

#[test]
fn the_first_answer_wins_and_the_rest_are_counted() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    let call = rig.call("c", "s");
    rig.write_all();
    assert_eq!(rig.answer("t"), [reply(turn)]);
    assert_eq!(rig.answer("t"), [Effect::Count(Counted::DuplicateTerminal)]);
    assert_eq!(rig.answer("c"), [reply(call)]);
    assert_eq!(rig.answer("c"), [Effect::Count(Counted::LateAck)]);
    assert_eq!(rig.answer("never-sent"), [Effect::Count(Counted::UnknownRequest)]);
}

#[test]
fn an_answer_to_what_was_not_sent_ends_nothing() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    assert_eq!(rig.answer("t"), [Effect::Count(Counted::UnknownRequest)]);
    assert_eq!(rig.started("t"), [Effect::Count(Counted::UnknownRequest)]);
    assert_eq!(rig.machine.turn(1, &"t".into()), Lookup::Unknown);
    rig.write_all();
    assert_eq!(rig.answer("t"), [reply(turn)]);
}

#[test]
fn frames_of_a_turn_find_its_waiter_while_it_is_open() {
    let mut rig = ready();
    let turn = rig.turn("t", "s");
    let call = rig.call("c", "s");
    let (t, c): (RequestId, RequestId) = ("t".into(), "c".into());
    rig.write_all();
    assert_eq!(rig.machine.turn(1, &t), Lookup::Open(&turn));
    assert_eq!(rig.machine.open(1, &t), Some((&RequestKind::Turn, &turn)));
    assert_eq!(rig.machine.open(1, &c), Some((&RequestKind::Call, &call)));
    assert_eq!(rig.machine.turn(1, &c), Lookup::Unknown, "a call has no deltas");
    assert_eq!(rig.machine.turn(1, &"nobody".into()), Lookup::Unknown);
    assert_eq!(rig.machine.turn(0, &t), Lookup::Late);
    rig.answer("t");
    rig.answer("c");
    assert_eq!(rig.machine.turn(1, &t), Lookup::Late);
    assert_eq!(rig.machine.open(1, &c), None);
}

#[test]
fn frames_of_the_old_incarnation_never_touch_the_same_id_on_the_next() {
    let mut rig = ready();
    rig.turn("r1", "s");
    rig.write_all();
    rig.crash_and_respawn();
    rig.hello();
    let again = rig.turn("r1", "s");
    rig.write_all();
    let stale = Input::Answer { epoch: 1, id: "r1".into(), reply: "stale" };
    assert_eq!(rig.give(stale), [Effect::Count(Counted::LateFrame)]);
    assert_eq!(rig.machine.turn(1, &"r1".into()), Lookup::Late);
    assert_eq!(rig.machine.turn(2, &"r1".into()), Lookup::Open(&again));
    assert_eq!(rig.answer("r1"), [reply(again)]);
}

#[test]
fn turn_started_is_remembered_for_an_open_turn_and_counted_for_any_other() {
    let mut rig = ready();
    rig.turn("t", "s");
    rig.call("c", "s");
    rig.write_all();
    assert_eq!(rig.started("t"), []);
    assert_eq!(rig.started("t"), [], "told twice, nothing changes");
    assert_eq!(rig.started("c"), [Effect::Count(Counted::UnknownRequest)]);
    assert_eq!(rig.started("nobody"), [Effect::Count(Counted::UnknownRequest)]);
    rig.answer("t");
    assert_eq!(rig.started("t"), [Effect::Count(Counted::LateFrame)]);
}

#[test]
fn a_terminal_frame_that_cannot_be_believed_ends_its_turn() {
    for (started, expected) in [(false, None), (true, Some(true))] {
        let mut rig = ready();
        let turn = rig.turn("t", "s");
        rig.write_all();
        if started {
            rig.started("t");
        }
        let broken =
            |reason| Input::TurnFailed { epoch: 1, id: "t".into(), reason, detail: "why".to_owned() };
        let out = rig.give(broken(FailReason::FrameTooLarge));
        let ending = Ending::TurnFailed {
            reason: FailReason::FrameTooLarge,
            turn_started: expected,
            exit: None,
            detail: "why".to_owned(),
            epoch: 1,
        };
        assert_eq!(out, [Effect::Resolve { waiter: turn, ending }]);
        assert_eq!(rig.give(broken(FailReason::Protocol)), [Effect::Count(Counted::DuplicateTerminal)]);
        assert_eq!(rig.answer("t"), [Effect::Count(Counted::DuplicateTerminal)]);
    }
}

#[test]
fn a_broken_answer_to_a_call_fails_the_call() {
    let mut rig = ready();
    let call = rig.call("c", "s");
    rig.write_all();
    let reason = FailReason::Protocol;
    let out = rig.give(Input::TurnFailed { epoch: 1, id: "c".into(), reason, detail: "why".to_owned() });
    let ending = Ending::CallFailed { kind: ErrorKind::ControlFailed, detail: "why".to_owned() };
    assert_eq!(out, [Effect::Resolve { waiter: call, ending }]);
}

#[test]
fn a_broken_terminal_frame_of_an_unsent_turn_ends_nothing() {
    let mut rig = ready();
    rig.turn("t", "s");
    let reason = FailReason::Protocol;
    let out = rig.give(Input::TurnFailed { epoch: 1, id: "t".into(), reason, detail: "why".to_owned() });
    assert_eq!(out, [Effect::Count(Counted::UnknownRequest)]);
    assert_eq!(rig.machine.pending.turns(), 1);
}

#[test]
fn what_ended_is_remembered_within_bounds() {
    let mut rig = rig_with(Policy { max_waiting_bytes: usize::MAX, ..policy() });
    rig.give(Input::Start);
    rig.hello();
    for n in 0..=ENDED_REMEMBERED {
        rig.call(&n.to_string(), "s");
        rig.write_all();
        rig.answer(&n.to_string());
    }
    assert_eq!(rig.answer("0"), [Effect::Count(Counted::UnknownRequest)]);
    assert_eq!(rig.answer("1"), [Effect::Count(Counted::LateAck)]);
}

#[test]
fn turns_that_ended_without_the_host_are_late_and_not_duplicates() {
    let mut rig = ready();
    rig.turn("interrupted", "s");
    rig.interrupt("i", "s", None);
    assert_eq!(rig.answer("interrupted"), [Effect::Count(Counted::LateFrame)]);
    assert_eq!(rig.machine.turn(1, &"interrupted".into()), Lookup::Late);
}

#[test]
fn writes_in_pieces_hand_over_one_request_after_the_other() {
    let mut rig = ready();
    rig.turn("aaa", "s1");
    rig.turn("bbb", "s2");
    rig.turn("ccc", "s3");
    let mut unsent = Vec::new();
    let mut text = String::new();
    while rig.machine.has_outgoing() {
        text.push(rig.outgoing().remove(0));
        rig.wrote(1);
        unsent.push(rig.machine.pending.unsent_count());
    }
    assert_eq!(text, "aaa\nbbb\nccc\n");
    assert_eq!(unsent, [2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn a_write_can_end_anywhere() {
    for first in 0..=8 {
        let mut rig = ready();
        rig.turn("aaa", "s1");
        rig.turn("bbb", "s2");
        rig.wrote(first);
        assert_eq!(rig.outgoing(), "aaa\nbbb\n"[first..]);
        assert_eq!(rig.machine.pending.unsent_count(), 2 - first.div_ceil(4));
        let lines: Vec<&[u8]> = rig.machine.outgoing().collect();
        assert_eq!(lines.len(), 2 - first / 4, "one slice for each line that is left");
    }
}
