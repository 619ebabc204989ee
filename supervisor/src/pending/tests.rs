use super::*;
use pretty_assertions::assert_eq;
use std::time::Duration;

fn request(id: &str, kind: RequestKind, line: &str, deadline: Option<Instant>) -> Request<u32> {
    Request { id: id.into(), sid: "s".into(), kind, line: line.into(), deadline, waiter: 1 }
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn lines(pending: &Pending<u32>) -> Vec<&[u8]> {
    pending.unsent_lines().collect()
}

#[test]
fn counts_follow_what_comes_and_goes() {
    let now = Instant::now();
    let mut pending = Pending::new();
    pending.insert(now, request("a", RequestKind::Turn, "aa", None), None);
    pending.insert(now, request("b", RequestKind::Call, "bbb", None), None);
    pending.insert(now, request("c", RequestKind::Turn, "c", None), None);
    assert_eq!((pending.unsent_count(), pending.unsent_bytes(), pending.turns()), (3, 6, 2));
    assert_eq!(pending.write_next().as_deref(), Some(&b"aa"[..]));
    assert_eq!((pending.unsent_count(), pending.unsent_bytes(), pending.turns()), (2, 4, 2));
    assert!(pending.remove(&"a".into()).is_some());
    assert_eq!((pending.unsent_count(), pending.unsent_bytes(), pending.turns()), (2, 4, 1));
    assert!(pending.remove(&"b".into()).is_some());
    assert_eq!((pending.unsent_count(), pending.unsent_bytes(), pending.turns()), (1, 1, 1));
    assert!(pending.remove(&"b".into()).is_none());
    assert!(pending.remove(&"c".into()).is_some());
    assert_eq!((pending.unsent_count(), pending.unsent_bytes(), pending.turns()), (0, 0, 0));
    assert_eq!(pending.write_next(), None);
}

#[test]
fn unsent_lines_stay_in_order_of_arrival_when_one_goes() {
    let now = Instant::now();
    let mut pending = Pending::new();
    for id in ["z", "y", "x", "w"] {
        pending.insert(now, request(id, RequestKind::Call, id, None), None);
    }
    pending.remove(&"y".into());
    pending.insert(now, request("y", RequestKind::Call, "y2", None), None);
    assert_eq!(lines(&pending), [&b"z"[..], b"x", b"w", b"y2"]);
    pending.write_next();
    assert_eq!(lines(&pending), [&b"x"[..], b"w", b"y2"]);
    assert_eq!(pending.ids(|_| true), ["z", "x", "w", "y"].map(RequestId::from));
    assert_eq!(pending.ids(Entry::is_unsent), ["x", "w", "y"].map(RequestId::from));
}

#[test]
fn turn_started_says_what_is_known() {
    let now = Instant::now();
    let id = RequestId::from("a");
    let mut pending = Pending::new();
    pending.insert(now, request("a", RequestKind::Turn, "a", None), None);
    let started = |pending: &Pending<u32>| pending.get(&id).and_then(Entry::turn_started);
    assert_eq!(started(&pending), Some(false));
    pending.mark_started(&id);
    assert_eq!(started(&pending), Some(false), "what was not sent cannot have started");
    assert_eq!(lines(&pending), [b"a"]);
    pending.write_next();
    assert_eq!(started(&pending), None);
    pending.mark_started(&id);
    assert_eq!(started(&pending), Some(true));
}

#[test]
fn the_limit_that_comes_first_ends_a_request() {
    let now = Instant::now();
    let cases = [
        (None, None, None),
        (Some(5), None, Some((5, Expiry::Unavailable))),
        (None, Some(5), Some((5, Expiry::Deadline))),
        (Some(4), Some(5), Some((4, Expiry::Unavailable))),
        (Some(5), Some(4), Some((4, Expiry::Deadline))),
        (Some(5), Some(5), Some((5, Expiry::Deadline))),
    ];
    for (unavailable, deadline, expected) in cases {
        let mut pending = Pending::new();
        let deadline = deadline.map(|s| now + secs(s));
        let call = request("a", RequestKind::Call, "a", deadline);
        pending.insert(now, call, unavailable.map(|s| now + secs(s)));
        assert_eq!(pending.next_expiry(), expected.map(|(s, _)| now + secs(s)));
        let Some((at, why)) = expected else {
            assert!(pending.pop_expired(now + secs(100)).is_none());
            continue;
        };
        let at = now + secs(at);
        assert!(pending.pop_expired(at - Duration::from_nanos(1)).is_none());
        let (entry, expiry) = pending.pop_expired(at).expect("its time is up");
        assert_eq!((entry.id, expiry), ("a".into(), why));
        assert_eq!(pending.next_expiry(), None);
        assert!(pending.pop_expired(at).is_none());
    }
}

#[test]
fn a_turn_keeps_no_deadline() {
    let now = Instant::now();
    let mut pending = Pending::new();
    pending.insert(now, request("a", RequestKind::Turn, "a", Some(now)), None);
    assert_eq!(pending.next_expiry(), None);
}

#[test]
fn waiting_begins_once_and_ends_with_a_child() {
    let now = Instant::now();
    let mut pending = Pending::new();
    pending.insert(now, request("a", RequestKind::Call, "a", Some(now + secs(60))), None);
    pending.insert(now, request("b", RequestKind::Turn, "b", None), Some(now + secs(9)));
    pending.wait_until(now + secs(20));
    assert_eq!(pending.next_expiry(), Some(now + secs(9)), "the one that waited already keeps its limit");
    pending.remove(&"b".into());
    assert_eq!(pending.next_expiry(), Some(now + secs(20)));
    pending.stop_waiting();
    assert_eq!(pending.next_expiry(), Some(now + secs(60)), "its own deadline stays");
    pending.write_next();
    pending.wait_until(now + secs(20));
    assert_eq!(pending.next_expiry(), Some(now + secs(60)), "what was written waits for no child");
}

#[test]
fn ended_requests_are_forgotten_oldest_first() {
    let mut ended = EndedRequests::new(2);
    for id in ["a", "b"] {
        ended.remember(id.into(), Ended::Turn);
    }
    assert_eq!(ended.get(&"a".into()), Some(Ended::Turn), "two fit");
    ended.remember("c".into(), Ended::Call);
    let known = ["a", "b", "c", "d"].map(|id| ended.get(&id.into()));
    assert_eq!(known, [None, Some(Ended::Turn), Some(Ended::Call), None]);
}

#[test]
fn an_id_that_ended_twice_is_remembered_as_it_ended_last() {
    let mut ended = EndedRequests::new(2);
    ended.remember("a".into(), Ended::Turn);
    ended.remember("a".into(), Ended::Call);
    ended.remember("b".into(), Ended::TurnByHost);
    assert_eq!(ended.get(&"a".into()), Some(Ended::Call), "only its first ending was forgotten");
    ended.remember("c".into(), Ended::Call);
    assert_eq!(ended.get(&"a".into()), None);
    assert_eq!(ended.get(&"b".into()), Some(Ended::TurnByHost));
    for n in 0..1000 {
        ended.remember(format!("{n}").into(), Ended::Call);
    }
    assert_eq!((ended.order.len(), ended.ended.len()), (2, 2), "memory stays bounded");
}
