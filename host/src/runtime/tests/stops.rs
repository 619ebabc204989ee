use super::*;
use crate::parent::ParentGuard;

const DEAF: fn() -> Value = || json!([{"hang": true}]);
const LISTENS: fn() -> Value = || json!([{"delta": "x"}, {"sleep_ms": 3_600_000}]);

fn reasons(rig: &Rig) -> Vec<String> {
    rig.records().iter().map(|record| record["reason"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_frame_ends_every_turn_and_its_ack_is_the_last_frame() {
    let mut rig = Setup { workers: 2, ..Setup::default() }.start().await;
    rig.play("a", "obeys", LISTENS()).await;
    rig.play("b", "deaf", DEAF()).await;
    rig.play("c", "waits", LISTENS()).await;
    rig.until("delta").await;
    rig.send(json!({"type": "shutdown", "request_id": "bye"})).await;
    rig.send(json!({"type": "turn.start", "sid": "d", "request_id": "arrives"})).await;
    let told = Instant::now();
    let frames = rig.rest().await;
    assert_eq!(told.elapsed(), SECOND);
    let ends: Vec<_> = ["obeys", "deaf", "waits", "arrives"]
        .iter()
        .map(|turn| {
            let of_turn = of(&frames, turn);
            assert_eq!(of_turn.len(), 1, "{turn}: {of_turn:?}");
            let end = of_turn[0];
            (end["type"].as_str().unwrap(), end["reason"].as_str(), end["interrupted"].as_bool())
        })
        .collect();
    let error = ("turn.error", Some("shutdown"), None);
    assert_eq!(ends, [("turn.end", None, Some(true)), error, error, error]);
    let last = frames.last().unwrap();
    assert_eq!((&last["type"], &last["request_id"]), (&json!("shutdown.ack"), &json!("bye")));
    assert_eq!(reasons(&rig), ["compute_host_shutdown"; 3]);
    let records = rig.records();
    assert_eq!((&records[0]["sid"], &records[0]["history_version"]), (&json!("a"), &json!(1)));
    assert_eq!((&records[0]["message_count"], &records[0]["session_key"]), (&json!(2), &json!("a")));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_of_an_idle_host_takes_no_time() {
    let mut rig = Rig::new().await;
    let told = Instant::now();
    rig.send(json!({"type": "shutdown"})).await;
    assert_eq!(types(&rig.rest().await), ["shutdown.ack"]);
    assert_eq!(told.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_frame_at_the_end_of_stdin_is_still_a_shutdown() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", LISTENS()).await;
    rig.until("delta").await;
    rig.send(json!({"type": "shutdown", "request_id": "bye"})).await;
    rig.close_stdin();
    assert_eq!(types(&rig.rest().await), ["turn.end", "shutdown.ack"]);
    assert_eq!(reasons(&rig), ["compute_host_shutdown"]);
}

#[tokio::test(start_paused = true)]
async fn after_sigterm_turns_may_finish_and_no_new_ones_begin() {
    let mut rig = Setup { workers: 1, ..Setup::default() }.start().await;
    rig.play("a", "runs", json!([{"sleep_ms": 8000}, {"delta": "done"}])).await;
    rig.play("b", "waits", LISTENS()).await;
    rig.until("turn.started").await;
    let told = Instant::now();
    rig.tell(Outside::Terminate).await;
    let error = rig.until("turn.error").await;
    assert_eq!((&error["request_id"], &error["reason"]), (&json!("waits"), &json!("shutdown")));
    rig.send(json!({"type": "turn.start", "sid": "c", "request_id": "late"})).await;
    assert_eq!(rig.until("turn.error").await["request_id"], "late");
    let end = rig.until("turn.end").await;
    assert_eq!((&end["final_response"], &end["interrupted"]), (&json!("done"), &json!(false)));
    rig.rest().await;
    assert_eq!(told.elapsed().as_secs(), 8);
    assert_eq!(reasons(&rig), ["compute_host_sigterm"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_over_interrupts_and_leaves_within_one_more_second() {
    let mut rig = Rig::new().await;
    rig.play("a", "obeys", LISTENS()).await;
    rig.play("b", "deaf", DEAF()).await;
    rig.until("delta").await;
    let told = Instant::now();
    rig.tell(Outside::Terminate).await;
    let end = rig.until("turn.end").await;
    assert_eq!((told.elapsed().as_secs(), &end["interrupted"]), (9, &json!(true)));
    let error = rig.until("turn.error").await;
    assert_eq!((&error["request_id"], &error["reason"]), (&json!("deaf"), &json!("shutdown")));
    rig.rest().await;
    assert!(told.elapsed() <= SECOND * 10, "{:?}", told.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_stdin_interrupts_at_once_and_leaves_within_one_second() {
    let mut rig = Rig::new().await;
    rig.play("a", "obeys", LISTENS()).await;
    rig.play("b", "deaf", DEAF()).await;
    rig.until("delta").await;
    let told = Instant::now();
    rig.close_stdin();
    let end = rig.until("turn.end").await;
    assert_eq!((told.elapsed(), &end["interrupted"]), (Duration::ZERO, &json!(true)));
    assert_eq!(rig.until("turn.error").await["reason"], "shutdown");
    rig.rest().await;
    assert!(told.elapsed() <= SECOND, "{:?}", told.elapsed());
    assert_eq!(reasons(&rig), ["compute_host_stdin_closed"; 2]);
}

#[tokio::test(start_paused = true)]
async fn sessions_are_finalized_as_orphans_when_the_parent_is_gone() {
    for stdin_first in [true, false] {
        let mut rig = Rig::new().await;
        rig.send(
            json!({"type": "session.seed", "sid": "flush-sid", "request_id": "seed", "session_key": "key"}),
        )
        .await;
        rig.until("session.seeded").await;
        if stdin_first {
            rig.close_stdin();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        rig.tell(Outside::ParentGone { old: 111, new: 1 }).await;
        let frames = rig.rest().await;
        assert_eq!(types(&frames), ["orphan"]);
        assert_eq!((&frames[0]["old_ppid"], &frames[0]["ppid"]), (&json!(111), &json!(1)));
        let records = rig.records();
        assert_eq!(records.len(), 1);
        assert_eq!((&records[0]["sid"], &records[0]["session_key"]), (&json!("flush-sid"), &json!("key")));
        assert_eq!(records[0]["reason"], "compute_host_orphan", "stdin first: {stdin_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_parent_guard_reports_the_old_and_new_parent_and_exits_0() {
    let mut rig = Rig::new().await;
    let guard = tokio::spawn(ParentGuard::comparing(111, || 222).forward(rig.outside.clone()));
    let frames = rig.rest().await;
    let [orphan] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!(
        (&orphan["type"], &orphan["old_ppid"], &orphan["ppid"]),
        (&json!("orphan"), &json!(111), &json!(222))
    );
    assert!(orphan["host_ns"].is_u64());
    guard.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_stays_is_no_reason_to_stop_even_if_it_is_init() {
    let mut rig = Rig::new().await;
    let guard = tokio::spawn(ParentGuard::comparing(1, || 1).forward(rig.outside.clone()));
    tokio::time::sleep(SECOND * 600).await;
    rig.play("s", "t", json!([{"delta": "x"}])).await;
    rig.until("turn.end").await;
    guard.abort();
}

#[tokio::test(start_paused = true)]
async fn a_hangup_counts_as_a_parent_that_is_gone() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", LISTENS()).await;
    rig.until("delta").await;
    rig.tell(Outside::Hangup).await;
    assert_eq!(types(&rig.rest().await), ["turn.end"], "no orphan frame: the parent may live");
    assert_eq!(reasons(&rig), ["compute_host_orphan"]);
}

#[tokio::test(start_paused = true)]
async fn a_closed_stdout_ends_the_host_as_an_orphan() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", json!([{"deltas": 1_000_000, "bytes": 100, "delay_ms": 1}])).await;
    rig.until("delta").await;
    rig.stdout = None;
    rig.ended().await;
    assert_eq!(reasons(&rig), ["compute_host_orphan"]);
}

#[tokio::test(start_paused = true)]
async fn no_stop_waits_for_a_full_pipe() {
    for event in [None, Some(Outside::Hangup), Some(Outside::Terminate)] {
        let mut rig = Setup { stdout_bytes: 512, ..Setup::default() }.start().await;
        rig.until("hello").await;
        rig.play("s", "t", json!([{"deltas": 1_000_000, "bytes": 1000}])).await;
        settle().await;
        let told = Instant::now();
        match event {
            None => rig.send(json!({"type": "shutdown"})).await,
            Some(event) => rig.tell(event).await,
        }
        rig.ended().await;
        let most = if event == Some(Outside::Terminate) { SECOND * 10 } else { SECOND * 2 };
        assert!(told.elapsed() <= most, "{event:?}: {:?}", told.elapsed());
        assert_eq!(rig.records().len(), 1, "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_that_is_under_way_is_answered_before_the_host_ends() {
    let mut rig = Rig::new().await;
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed"})).await;
    let save = json!({"type": "control", "sid": "s", "request_id": "c", "route_name": "session.save"});
    rig.send_raw(format!("{save}\n{}\n", json!({"type": "shutdown"})).as_bytes()).await;
    assert_eq!(types(&rig.rest().await), ["session.seeded", "control.ack", "shutdown.ack"]);
}

#[tokio::test(start_paused = true)]
async fn turns_that_wait_end_at_the_very_moment_of_any_stop() {
    for stop in [None, Some(Outside::Hangup), Some(Outside::Terminate)] {
        let mut rig = Setup { workers: 1, ..Setup::default() }.start().await;
        rig.play("a", "deaf", DEAF()).await;
        for waiting in ["w1", "w2", "w3"] {
            rig.play(waiting, waiting, LISTENS()).await;
        }
        rig.until("turn.started").await;
        let told = Instant::now();
        match stop {
            None => rig.send(json!({"type": "shutdown"})).await,
            Some(event) => rig.tell(event).await,
        }
        for waiting in ["w1", "w2", "w3"] {
            let error = rig.next().await.unwrap();
            let expected = (&json!("turn.error"), &json!(waiting), &json!("shutdown"));
            assert_eq!((&error["type"], &error["request_id"], &error["reason"]), expected, "{stop:?}");
        }
        assert_eq!(told.elapsed(), Duration::ZERO, "{stop:?}: before the one that runs");
        let frames = rig.rest().await;
        assert!(types(&frames).iter().all(|name| *name != "turn.started"), "{stop:?}: {frames:?}");
    }
}
