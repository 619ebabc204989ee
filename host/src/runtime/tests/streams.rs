use super::*;
use crate::turn::context::WAITING_BYTES;
use turnhost_protocol::limits::MIN_FRAME_BYTES;

#[tokio::test(start_paused = true)]
async fn a_full_stdout_does_not_stop_the_reading_of_stdin() {
    let mut rig = Setup { stdout_bytes: 512, ..Setup::default() }.start().await;
    rig.until("hello").await;
    rig.play("flood", "t", json!([{"deltas": 100_000, "bytes": 1000}])).await;
    settle().await;
    rig.send(json!({"type": "interrupt", "sid": "flood", "request_id": "i"})).await;
    settle().await;
    let frames = rig.through("turn.end").await;
    let ack = frames.iter().position(|frame| frame["type"] == "interrupt.ack").unwrap();
    assert!(ack <= 12, "the answer overtook what waited: it came as frame {ack} of {}", frames.len());
    assert_eq!(frames.last().unwrap()["interrupted"], true);
    let deltas = frames.iter().filter(|frame| frame["type"] == "delta").count();
    let most = WAITING_BYTES as usize / 1000 + 20;
    assert!(deltas <= most, "{deltas} deltas of 1000 bytes were on their way to a full pipe");
    let numbers: Vec<_> = frames
        .iter()
        .filter(|frame| frame["type"] == "delta")
        .map(|frame| frame["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..deltas as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_answered_behind_the_end_of_the_turn_before_it() {
    let mut rig = Setup { stdout_bytes: 512, ..Setup::default() }.start().await;
    rig.until("hello").await;
    rig.play("other", "flood", json!([{"deltas": 50, "bytes": 1000}, {"sleep_ms": 3_600_000}])).await;
    settle().await;
    rig.play("s", "t", json!([{"delta": "x"}])).await;
    settle().await;
    rig.send(json!({"type": "control", "sid": "s", "request_id": "c", "route_name": "session.reset"})).await;
    settle().await;
    let frames = rig.through("control.ack").await;
    assert_eq!(frames.last().unwrap()["history_version"], 2);
    let of_session: Vec<_> = frames
        .iter()
        .filter(|frame| frame["sid"] == "s")
        .map(|frame| frame["type"].as_str().unwrap())
        .collect();
    assert_eq!(of_session, ["turn.started", "delta", "turn.end", "control.ack"]);
    let overtaken = frames.iter().filter(|frame| frame["request_id"] == "flood").count();
    assert!(overtaken < 20, "the data of others was overtaken: {overtaken} frames of it came first");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_come_with_live_figures_while_every_worker_is_busy() {
    let mut rig = Setup { workers: 1, heartbeat: Some(SECOND * 2), ..Setup::default() }.start().await;
    rig.until("hello").await;
    rig.play("a", "runs", json!([{"deltas": 3, "bytes": 10}, {"sleep_ms": 60_000}])).await;
    rig.play("b", "waits", json!([])).await;
    let started = Instant::now();
    let first = rig.until("hb").await;
    assert_eq!(started.elapsed().as_secs(), 2);
    assert_eq!((&first["active_turns"], &first["progress_counter"]), (&json!(2), &json!(3)));
    assert!(first["rss_mb"].as_f64().unwrap() > 0.0);
    rig.send(json!({"type": "interrupt", "sid": "b", "request_id": "i"})).await;
    let second = rig.until("hb").await;
    assert_eq!(started.elapsed().as_secs(), 4);
    assert_eq!((&second["active_turns"], &second["progress_counter"]), (&json!(1), &json!(4)));
}

#[tokio::test(start_paused = true)]
async fn a_host_without_a_heartbeat_is_silent() {
    let mut rig = Rig::new().await;
    tokio::time::sleep(SECOND * 3600).await;
    rig.send(json!({"type": "shutdown"})).await;
    assert_eq!(types(&rig.rest().await), ["shutdown.ack"]);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_of_a_full_pipe_do_not_pile_up() {
    let mut rig = Setup { heartbeat: Some(SECOND), stdout_bytes: 512, ..Setup::default() }.start().await;
    rig.until("hello").await;
    rig.play("s", "t", json!([{"deltas": 1000, "bytes": 1000}])).await;
    tokio::time::sleep(SECOND * 100).await;
    let frames = rig.through("turn.end").await;
    let beats = types(&frames).iter().filter(|name| **name == "hb").count();
    assert!(beats <= 3, "{beats} heartbeats");
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_reads_no_answers_is_not_read_from_for_ever() {
    let mut rig = Setup { stdout_bytes: 512, ..Setup::default() }.start().await;
    rig.until("hello").await;
    let commands = "{\"type\":\"nope\"}\n".repeat(40_000);
    let stdin = rig.stdin.as_mut().unwrap();
    let written = tokio::time::timeout(SECOND, stdin.write_all(commands.as_bytes())).await;
    assert!(written.is_err(), "40,000 unread answers are not kept");
    rig.close_stdin();
    let frames = rig.rest().await;
    assert!(types(&frames).iter().all(|name| *name == "error"));
    assert!(frames.len() > 16_000, "those that were read are answered: {}", frames.len());
}

#[tokio::test(start_paused = true)]
async fn an_answer_longer_than_a_frame_may_be_is_kept_and_told() {
    let mut rig = Setup { max_frame_bytes: MIN_FRAME_BYTES, ..Setup::default() }.start().await;
    rig.play("s", "t", json!([{"deltas": 20, "bytes": 1000}])).await;
    let end = rig.until("turn.end").await;
    assert_eq!(end["omitted"], json!(["final_response"]));
    assert_eq!(end["message_count"], 2);
}
