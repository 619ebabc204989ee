use super::*;

#[tokio::test(start_paused = true)]
async fn every_refused_line_is_answered_and_reading_goes_on() {
    let mut rig = Rig::new().await;
    // The line, the request that its answer names, and the message or how it begins.
    let table: [(&[u8], Value, &str); 13] = [
        (b"not json", json!(null), "invalid json: "),
        (b"{\"type\":\"turn.start\",", json!(null), "invalid json: "),
        (b"[1,2]", json!(null), "frame must be an object"),
        (b"\"text\"", json!(null), "frame must be an object"),
        (b"null", json!(null), "frame must be an object"),
        (b"{\"type\":\"nope\",\"request_id\":\"r\"}", json!("r"), "unknown frame type: nope"),
        (b"{\"type\":\"turn.end\",\"request_id\":\"r\"}", json!("r"), "unknown frame type: turn.end"),
        (b"{\"request_id\":\"r\"}", json!("r"), "bad field `type`"),
        (b"{\"type\":\"session.seed\",\"request_id\":\"r\"}", json!("r"), "sid required"),
        (b"{\"type\":\"session.seed\",\"sid\":\"\",\"request_id\":\"r\"}", json!("r"), "sid required"),
        (b"{\"type\":\"turn.start\",\"sid\":7,\"request_id\":\"r\"}", json!("r"), "bad field `sid`"),
        (
            b"{\"type\":\"turn.start\",\"sid\":\"a\",\"sid\":\"b\",\"request_id\":\"r\"}",
            json!("r"),
            "duplicate field",
        ),
        (b"\xff\xfe", json!(null), "invalid json: "),
    ];
    for (line, request_id, message) in table {
        rig.send_raw(line).await;
        rig.send_raw(b"\n").await;
        let error = rig.next().await.unwrap();
        let shown = String::from_utf8_lossy(line);
        assert_eq!(error["type"], "error", "{shown}: {error}");
        assert_eq!(error["request_id"], request_id, "{shown}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{shown}: {error}");
    }
    let deep = format!("{{\"type\":\"control\",\"request_id\":\"r\",\"params\":{}", "[".repeat(100_000));
    rig.send_raw(format!("{deep}\n").as_bytes()).await;
    assert_eq!(rig.next().await.unwrap()["type"], "error");
    rig.play("s", "t", json!([{"delta": "still here"}])).await;
    assert_eq!(rig.until("turn.end").await["final_response"], "still here");
}

#[tokio::test(start_paused = true)]
async fn blank_lines_carriage_returns_and_a_byte_order_mark_are_accepted() {
    let mut rig = Rig::new().await;
    rig.send_raw(b"\xef\xbb\xbf{\"type\":\"session.seed\",\"sid\":\"s\",\"request_id\":\"a\"}\r\n\n\r\n")
        .await;
    rig.send_raw(b"{\"type\":\"session.seed\",\"sid\":\"s\",\"request_id\":\"b\"}").await;
    rig.close_stdin();
    let frames = rig.rest().await;
    assert_eq!(
        types(&frames),
        ["session.seeded", "session.seeded"],
        "a whole last line counts without a newline"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cut_last_line_is_not_read_as_if_whole() {
    let mut rig = Rig::new().await;
    rig.send_raw(b"{\"type\":\"turn.start\",\"sid\":\"s\",\"request_id\":\"t\"").await;
    rig.close_stdin();
    let frames = rig.rest().await;
    assert_eq!(types(&frames), ["error"]);
}

#[tokio::test(start_paused = true)]
async fn a_line_over_the_limit_is_skipped_and_answered() {
    let mut rig = Setup { max_frame_bytes: 64 * 1024, ..Setup::default() }.start().await;
    rig.until("hello").await;
    rig.send_raw(b"{\"type\":\"turn.start\",\"sid\":\"s\",\"request_id\":\"big\",\"text\":\"").await;
    for _ in 0..300 {
        rig.send_raw(&[b'x'; 1000]).await;
    }
    rig.send_raw(b"\"}\n").await;
    let error = rig.next().await.unwrap();
    assert_eq!((&error["type"], &error["request_id"]), (&json!("error"), &json!("big")));
    assert!(error["message"].as_str().unwrap().starts_with("frame too large: 3000"), "{error}");
    rig.play("s", "t", json!([{"delta": "x"}])).await;
    assert_eq!(rig.until("turn.end").await["history_version"], 1, "no session was made of it");
}

#[tokio::test(start_paused = true)]
async fn a_refused_turn_changes_nothing() {
    let mut rig = Rig::new().await;
    rig.play("s", "runs", json!([{"sleep_ms": 1000}, {"delta": "x"}])).await;
    rig.until("turn.started").await;
    let table = [
        (json!({"sid": "s"}), "busy", "session busy"),
        (json!({}), "bad_request", "sid required"),
        (json!({"sid": ""}), "bad_request", "sid required"),
        (json!({"sid": "new", "agent": "nobody"}), "bad_request", "unknown agent: nobody; this host has: "),
        (json!({"sid": "s", "agent": {"name": "nobody"}}), "bad_request", "unknown agent: nobody"),
    ];
    for (mut frame, reason, message) in table {
        frame["type"] = json!("turn.start");
        frame["request_id"] = json!("refused");
        rig.send(frame.clone()).await;
        let error = rig.next().await.unwrap();
        assert_eq!(
            (&error["type"], &error["request_id"]),
            (&json!("turn.error"), &json!("refused")),
            "{frame}"
        );
        assert_eq!(error["reason"], reason, "{frame}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{error}");
        assert_eq!(error.get("history_version"), None, "{frame}");
    }
    let end = rig.until("turn.end").await;
    assert_eq!((&end["history_version"], &end["message_count"]), (&json!(1), &json!(2)));
    rig.send(json!({"type": "interrupt", "sid": "new", "request_id": "i"})).await;
    assert_eq!(rig.until("interrupt.ack").await["outcome"], "not_found", "no session was made");
}

#[tokio::test(start_paused = true)]
async fn wrong_options_of_an_agent_are_a_bad_request_and_change_nothing() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", json!([{"no such step": 1}])).await;
    let frames = rig.through("turn.error").await;
    let error = frames.last().unwrap();
    assert_eq!((&error["reason"], &error["history_version"]), (&json!("bad_request"), &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn a_seed_replaces_an_idle_session_and_is_refused_by_a_running_one() {
    let mut rig = Rig::new().await;
    let seed = json!({"type": "session.seed", "sid": "s", "request_id": "seed", "history": [{"role": "user",
        "content": "a"}]});
    rig.play("s", "t", json!([{"sleep_ms": 10}])).await;
    rig.send(seed.clone()).await;
    let error = rig.until("error").await;
    assert_eq!((&error["request_id"], &error["message"]), (&json!("seed"), &json!("session busy")));
    rig.until("turn.end").await;
    rig.send(seed).await;
    let seeded = rig.until("session.seeded").await;
    assert_eq!((&seeded["history_version"], &seeded["message_count"]), (&json!(0), &json!(1)));
}
