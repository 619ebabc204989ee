use super::*;
use crate::turn::context::{Sink, WorkItem};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

fn frame(name: &str, len: usize) -> Vec<u8> {
    let mut frame = format!("{name:.<len$}").into_bytes();
    frame.truncate(len);
    frame.push(b'\n');
    frame
}

/// Everything that the lanes hold, one entry for each write.
fn writes(lanes: &mut Lanes) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut batch = InFlight::default();
    loop {
        lanes.fill(&mut batch);
        if batch.rest().is_empty() {
            return all;
        }
        all.push(batch.rest().to_vec());
        batch.advance(batch.rest().len());
    }
}

/// The first letters of the frames in the order in which they leave.
fn order(lanes: &mut Lanes) -> String {
    let all = writes(lanes).concat();
    all.split(|byte| *byte == b'\n').filter_map(|frame| frame.first()).map(|byte| char::from(*byte)).collect()
}

#[test]
fn answers_overtake_data_and_the_heartbeat_stands_between() {
    let mut lanes = Lanes::default();
    lanes.data(1, &frame("d", 10), None);
    lanes.data(2, &frame("e", 10), None);
    lanes.heartbeat(frame("h", 10));
    lanes.answer(&frame("a", 10));
    lanes.answer(&frame("b", 10));
    assert_eq!(order(&mut lanes), "abhde");
    assert!(lanes.is_empty());
}

#[test]
fn only_the_newest_heartbeat_waits() {
    let mut lanes = Lanes::default();
    lanes.heartbeat(frame("old", 10));
    lanes.heartbeat(frame("new", 10));
    assert_eq!(order(&mut lanes), "n");
}

#[test]
fn small_frames_leave_together_and_large_ones_alone() {
    let mut lanes = Lanes::default();
    for name in ["a", "b", "c", "d", "e", "f"] {
        lanes.data(u64::from(name.as_bytes()[0]), &frame(name, 3000), None);
    }
    lanes.data(1, &frame("L", 20_000), None);
    lanes.data(1, &frame("z", 10), None);
    let sizes: Vec<usize> = writes(&mut lanes).iter().map(Vec::len).collect();
    assert_eq!(sizes, [6002, 6002, 6002, 20_001, 11]);
}

#[test]
fn an_answer_waits_for_no_more_than_the_batch_that_is_being_written() {
    let mut lanes = Lanes::default();
    for _ in 0..100 {
        lanes.data(1, &frame("d", 1000), None);
    }
    let mut batch = InFlight::default();
    lanes.fill(&mut batch);
    batch.advance(10);
    lanes.answer(&frame("a", 10));
    assert!(batch.rest().len() <= WRITE_BYTES);
    batch.advance(batch.rest().len());
    lanes.fill(&mut batch);
    assert_eq!(batch.rest().first(), Some(&b'a'));
}

#[test]
fn what_waits_of_one_session_can_be_put_in_front_of_an_answer_about_it() {
    let mut lanes = Lanes::default();
    for (group, name) in [(1, "a"), (2, "x"), (1, "b"), (2, "y"), (1, "c")] {
        lanes.data(group, &frame(name, 10), None);
    }
    lanes.promote(1);
    lanes.answer(&frame("!", 10));
    assert_eq!(order(&mut lanes), "abc!xy");
}

#[test]
fn the_order_within_a_session_holds_whatever_is_promoted() {
    let mut lanes = Lanes::default();
    let mut expected = String::new();
    for step in 0..40_u8 {
        let name = char::from(b'A' + step % 26).to_string();
        lanes.data(1, &frame(&name, 10 + usize::from(step) * 200), None);
        lanes.data(2, &frame("-", 10), None);
        expected.push_str(&name);
        if step % 7 == 0 {
            lanes.promote(1);
        }
    }
    let order = order(&mut lanes).replace('-', "");
    assert_eq!(order, expected);
}

#[tokio::test]
async fn reserved_bytes_come_back_when_the_last_byte_is_written() {
    let (work, mut working) = mpsc::channel(8);
    let budget = Arc::new(Semaphore::new(1000));
    let sink = Sink::sharing(1, work, Arc::clone(&budget), Arc::default());
    sink.send(WorkItem::Delta("x".repeat(600))).await.unwrap();
    let room = working.recv().await.unwrap().room;
    assert_eq!(budget.available_permits(), 400);

    let mut lanes = Lanes::default();
    lanes.data(1, &frame("x", 600), Some(room));
    let mut batch = InFlight::default();
    lanes.fill(&mut batch);
    batch.advance(600);
    assert_eq!(budget.available_permits(), 400, "one byte is not written");
    batch.advance(1);
    assert_eq!(budget.available_permits(), 1000);
}

#[tokio::test]
async fn a_flush_is_told_after_the_frames_before_it_and_not_earlier() {
    let mut lanes = Lanes::default();
    lanes.data(1, &frame("a", 5000), None);
    let (flushed, mut told) = oneshot::channel();
    lanes.flush(1, flushed);
    lanes.data(1, &frame("b", 10), None);
    let mut batch = InFlight::default();
    lanes.fill(&mut batch);
    batch.advance(5000);
    assert!(told.try_recv().is_err(), "its last byte is not written");
    batch.advance(batch.rest().len());
    while !lanes.is_empty() {
        lanes.fill(&mut batch);
        batch.advance(batch.rest().len());
    }
    assert_eq!(told.try_recv(), Ok(()));
}

#[tokio::test]
async fn a_flush_of_nothing_is_told_at_the_next_turn_of_the_writer() {
    let mut lanes = Lanes::default();
    let (flushed, mut told) = oneshot::channel();
    lanes.flush(1, flushed);
    let mut batch = InFlight::default();
    lanes.fill(&mut batch);
    assert_eq!(told.try_recv(), Ok(()));
    assert!(lanes.is_empty());
}

#[test]
fn unread_answers_fill_the_lanes_and_room_opens_them_again() {
    let mut lanes = Lanes::default();
    for _ in 0..UNRESERVED_FRAMES - 1 {
        lanes.answer(b"{}\n");
    }
    assert!(!lanes.is_overfull());
    lanes.data(1, b"{}\n", None);
    assert!(lanes.is_overfull(), "ends of turns count as well");
    let mut batch = InFlight::default();
    lanes.fill(&mut batch);
    assert!(!lanes.is_overfull());
    batch.advance(batch.rest().len());
    writes(&mut lanes);
    assert_eq!((lanes.unreserved_frames, lanes.unreserved_bytes), (0, 0));
}
