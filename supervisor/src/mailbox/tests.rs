use super::*;
use crate::turn::Wire;
use pretty_assertions::assert_eq;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use turnhost_protocol::FailReason;
use turnhost_protocol::frame::{Event, TurnEnd, TurnStarted};

fn of(events: usize, bytes: usize) -> (Permit, Receiver) {
    mailbox("s".into(), "r".into(), Bounds { events, bytes })
}

fn delta(text: &str, seq: u64) -> Delta {
    Delta { request_id: "r".into(), text: text.to_owned(), seq: Some(seq), ..Delta::default() }
}

fn push(permit: &Permit, text: &str, seq: u64) {
    permit.push_delta(delta(text, seq), Cow::Owned(format!("{{\"text\":{text:?}}}")));
}

fn event(kind: &str) -> TurnEvent {
    let frame = Event { request_id: "r".into(), kind: kind.to_owned(), ..Event::default() };
    TurnEvent::Event(Wire::new(frame, format!("{{\"kind\":{kind:?}}}")))
}

fn started() -> TurnEvent {
    TurnEvent::Started(Wire::new(
        TurnStarted { request_id: "r".into(), ..TurnStarted::default() },
        "{}".to_owned(),
    ))
}

fn end() -> TurnOutcome {
    TurnOutcome::ended(TurnEnd { request_id: "r".into(), ..TurnEnd::default() }, "{\"end\":1}".to_owned())
}

fn words(receiver: &mut Receiver) -> Vec<String> {
    let mut words = Vec::new();
    while let Some(event) = receiver.try_next() {
        words.push(match event {
            TurnEvent::Started(_) => "started".to_owned(),
            TurnEvent::Delta(delta) => format!("{}×{}@{:?}", delta.text, delta.pieces, delta.seq.unwrap()),
            TurnEvent::Event(event) => event.kind.clone(),
            TurnEvent::Lagged { deltas, bytes } => format!("lagged {deltas} of {bytes}"),
            TurnEvent::SessionLost { .. } => "lost".to_owned(),
            TurnEvent::Ended(outcome) => outcome.fail_reason().map_or("ended", FailReason::as_str).to_owned(),
        });
    }
    words
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_reader_that_keeps_up_gets_every_event_as_it_came() {
    let (permit, mut receiver) = of(4, 10_000);
    permit.push(started());
    push(&permit, "a", 0);
    permit.push(event("status"));
    push(&permit, "b", 2);
    assert_eq!(words(&mut receiver), ["started", "a×1@0", "status", "b×1@2"]);
    permit.finish(end());
    assert_eq!(words(&mut receiver), ["ended"]);
    assert_eq!(receiver.try_next(), None);
}

#[test]
fn one_piece_keeps_the_hosts_own_text_and_a_merged_one_is_a_frame_again() {
    let (permit, mut receiver) = of(1, 10_000);
    push(&permit, "a", 0);
    let TurnEvent::Delta(alone) = receiver.try_next().unwrap() else { panic!("no delta") };
    assert_eq!(alone.to_json(), "{\"text\":\"a\"}");
    push(&permit, "a", 1);
    push(&permit, "b", 2);
    let TurnEvent::Delta(merged) = receiver.try_next().unwrap() else { panic!("no delta") };
    assert_eq!(merged.to_json(), r#"{"type":"delta","sid":"s","request_id":"r","text":"ab","seq":2}"#);
}

#[test]
fn beyond_the_bound_neighbouring_deltas_merge_and_events_keep_their_place() {
    let (permit, mut receiver) = of(2, 10_000);
    for (seq, text) in ["a", "b", "c", "d"].into_iter().enumerate() {
        push(&permit, text, seq as u64);
    }
    permit.push(event("tool_call"));
    push(&permit, "e", 5);
    push(&permit, "f", 6);
    assert_eq!(words(&mut receiver), ["a×1@0", "bcd×3@3", "tool_call", "ef×2@6"]);
}

#[test]
fn beyond_the_bytes_it_lags_once_and_goes_on_when_there_is_room() {
    let (permit, mut receiver) = of(100, 1000);
    let text = "x".repeat(300);
    for seq in 0..10 {
        push(&permit, &text, seq);
    }
    let seen = words(&mut receiver);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].contains("×3@2"), "{seen:?}");
    assert_eq!(seen[1], "lagged 7 of 2100");
    push(&permit, "y", 10);
    assert_eq!(words(&mut receiver), ["y×1@10"]);
    assert_eq!(permit.delivered(), Delivered { deltas: 11, last_seq: Some(10) });
}

#[test]
fn text_yields_before_events_do_but_they_are_bounded_too() {
    let (permit, mut receiver) = of(100, 1000);
    let text = "x".repeat(400);
    push(&permit, &text, 0);
    push(&permit, &text, 1);
    push(&permit, &text, 2);
    permit.push(event("approval_request"));
    let seen = words(&mut receiver);
    assert_eq!(seen[seen.len() - 2..], ["lagged 1 of 400".to_owned(), "approval_request".to_owned()]);
    for _ in 0..1000 {
        permit.push(event("status"));
    }
    assert!(words(&mut receiver).len() < 200);
}

#[test]
fn the_end_has_a_place_however_full_it_is() {
    let (permit, mut receiver) = of(1, 1);
    for seq in 0..100 {
        push(&permit, "text", seq);
    }
    permit.finish(end());
    assert_eq!(words(&mut receiver), ["lagged 100 of 400", "ended"]);
}

#[test]
fn a_permit_that_is_lost_ends_the_turn_as_dropped_and_says_how_far_it_was() {
    let lost = |prepare: &dyn Fn(&Permit)| {
        let (permit, mut receiver) = of(4, 1000);
        prepare(&permit);
        drop(permit);
        loop {
            match receiver.try_next() {
                Some(TurnEvent::Ended(TurnOutcome::Failed(error))) => {
                    assert_eq!(error.fail_reason(), FailReason::Dropped);
                    return error.turn_started;
                }
                Some(_) => {}
                None => panic!("no end"),
            }
        }
    };
    assert_eq!(lost(&|_| {}), Some(false));
    assert_eq!(lost(&|permit| permit.handed_over()), None);
    assert_eq!(
        lost(&|permit| {
            permit.handed_over();
            permit.push(started());
        }),
        Some(true)
    );
}

#[test]
fn a_turn_that_was_refused_never_was() {
    let (permit, mut receiver) = of(4, 1000);
    permit.revoke();
    assert_eq!(receiver.try_next(), None);
}

#[test]
fn the_phase_never_goes_back() {
    let (permit, receiver) = of(4, 1000);
    assert_eq!(receiver.phase(), TurnPhase::Waiting);
    permit.push(started());
    receiver.accepted(SubmitPhase::Sent);
    assert_eq!(receiver.phase(), TurnPhase::Started);
    permit.finish(end());
    receiver.accepted(SubmitPhase::Sent);
    assert_eq!(receiver.phase(), TurnPhase::Ended);
}

#[test]
fn whoever_wants_the_end_only_holds_nothing_else_and_gets_it_even_after_it_was_taken() {
    let (permit, mut receiver) = of(4, 1000);
    push(&permit, "a", 0);
    receiver.discard_events();
    push(&permit, "b", 1);
    assert_eq!(permit.delivered().deltas, 2);
    permit.finish(end());
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(words(&mut receiver), ["ended"]);
    assert_eq!(receiver.poll_outcome(&mut context), Poll::Ready(end()));
}

#[test]
fn a_reader_that_waits_is_woken_by_an_event_and_by_the_end() {
    let (permit, mut receiver) = of(4, 1000);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    assert_eq!(receiver.poll_next(&mut context), Poll::Pending);
    push(&permit, "a", 0);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(receiver.poll_next(&mut context).is_ready());
    assert_eq!(receiver.poll_next(&mut context), Poll::Pending);
    drop(permit);
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
    assert!(matches!(receiver.poll_next(&mut context), Poll::Ready(Some(TurnEvent::Ended(_)))));
    assert_eq!(receiver.poll_next(&mut context), Poll::Ready(None));
}

#[test]
fn pushes_to_a_reader_that_is_gone_do_nothing() {
    let (permit, receiver) = of(4, 1000);
    let shared = Arc::downgrade(&receiver.shared);
    drop(receiver);
    push(&permit, "a", 0);
    assert!(shared.upgrade().unwrap().lock().events.is_empty());
    permit.finish(end());
    assert!(shared.upgrade().is_none(), "nothing keeps it");
}

/// A writer and a reader at random speeds: whatever happens, the text arrives in order, what is missing is told in its
/// place and in full, the bounds hold, and the end comes last.
#[test]
fn a_random_walk_loses_nothing_without_telling() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for _ in 0..300 {
        let bounds = Bounds { events: next(6) as usize + 1, bytes: next(2000) as usize + 1 };
        let (permit, mut receiver) = mailbox("s".into(), "r".into(), bounds);
        let (mut written, mut read) = (0_u64, 0_u64);
        let (mut events, mut seen_events) = (0_u64, 0_u64);
        let check = |event: TurnEvent, read: &mut u64, seen_events: &mut u64| match event {
            TurnEvent::Delta(delta) => {
                let numbers: Vec<u64> =
                    delta.text.split_terminator(' ').map(|word| word.parse().unwrap()).collect();
                let expected: Vec<u64> = (*read..*read + delta.pieces).collect();
                assert_eq!(numbers, expected, "in order, nothing twice");
                assert_eq!(delta.seq, Some(*read + delta.pieces - 1));
                *read += delta.pieces;
            }
            TurnEvent::Lagged { deltas, .. } => {
                assert!(deltas > 0);
                *read += deltas;
            }
            TurnEvent::Event(_) => *seen_events += 1,
            other => panic!("{other:?}"),
        };
        for _ in 0..next(400) {
            match next(10) {
                0..=6 => {
                    push(&permit, &format!("{written} "), written);
                    written += 1;
                }
                7 if next(4) == 0 => {
                    // An event that may be lost would be counted as a delta: only where there is room.
                    if receiver.shared.lock().events.len() < bounds.events && bounds.bytes > 1500 {
                        permit.push(event("x"));
                        events += 1;
                    }
                }
                _ => {
                    for _ in 0..next(8) {
                        if let Some(event) = receiver.try_next() {
                            check(event, &mut read, &mut seen_events);
                        }
                    }
                }
            }
            let queue = receiver.shared.lock();
            assert!(queue.events.len() <= 2 * bounds.events + 1, "{} events", queue.events.len());
            assert!(queue.bytes <= 2 * bounds.bytes + ENTRY_BYTES, "{} bytes", queue.bytes);
            assert_eq!(queue.bytes, queue.events.iter().map(size_of).sum::<usize>());
        }
        permit.finish(end());
        let mut ended = false;
        while let Some(event) = receiver.try_next() {
            assert!(!ended, "the end is the last");
            match event {
                TurnEvent::Ended(_) => ended = true,
                other => check(other, &mut read, &mut seen_events),
            }
        }
        assert!(ended);
        assert_eq!((read, seen_events), (written, events));
    }
}
