//! What a hostile or broken parent may try. Whatever it is, it is answered, and the host works on.

use super::*;
use turnhost_protocol::limits::{MAX_ID_BYTES, MIN_FRAME_BYTES};

/// Still answers, and still runs a turn.
async fn works(rig: &mut Rig) {
    rig.play("fine", "fine", json!([{"delta": "fine"}])).await;
    loop {
        let end = rig.until("turn.end").await;
        if end["request_id"] == "fine" {
            return assert_eq!(end["final_response"], "fine");
        }
    }
}

fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

#[tokio::test(start_paused = true)]
async fn deep_json_in_any_field_is_carried_or_refused() {
    let mut rig = Rig::new().await;
    for depth in [1, 100, 126, 127, 128, 1000, 200_000] {
        let deep = nested(depth);
        let frames = [
            format!(
                r#"{{"type":"control","sid":"s","request_id":"r","route_name":"session.save","params":{deep}}}"#
            ),
            format!(
                r#"{{"type":"session.seed","sid":"s","request_id":"r","history":{deep},"report_messages":true}}"#
            ),
            format!(r#"{{"type":"turn.start","sid":"s","request_id":"r","script":{deep}}}"#),
            format!(
                r#"{{"type":"turn.start","sid":"s","request_id":"r","agent":{{"name":"exec","argv":{deep}}}}}"#
            ),
            format!(
                r#"{{"type":"turn.start","sid":"d{depth}","request_id":"r","delta_count":0,"model_override":{deep}}}"#
            ),
            format!(
                r#"{{"type":"turn.start","sid":"s","request_id":"r","delta_count":0,"attached_images":{deep}}}"#
            ),
            format!(r#"{{"type":"respond","sid":"s","request_id":"r","params":{deep}}}"#),
            format!(r#"{{"type":"shutdow","request_id":"r","x":{deep}}}"#),
        ];
        for frame in frames {
            rig.send_raw(format!("{frame}\n").as_bytes()).await;
            loop {
                let answer = rig.next().await.unwrap();
                assert_eq!(answer["request_id"], "r", "{frame:.80}: {answer}");
                if answer["type"] != "turn.started" {
                    break;
                }
            }
        }
    }
    works(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn identifiers_of_the_longest_kind_are_answered_under_a_small_frame_limit() {
    let mut rig =
        Setup { max_frame_bytes: 2 * MIN_FRAME_BYTES, rpc_events: true, ..Setup::default() }.start().await;
    rig.until("hello").await;
    let id = "\u{1}".repeat(MAX_ID_BYTES);
    rig.send(json!({"type": "session.seed", "sid": id, "request_id": id, "report_messages": true})).await;
    assert_eq!(rig.until("session.seeded").await["request_id"], id.as_str());
    rig.play(&id, &id, json!([{"deltas": 5, "bytes": 40_000}, {"error": "x".repeat(10_000)}])).await;
    let frames = rig.through("turn.error").await;
    let text: String = of(&frames, &id).iter().filter_map(|frame| frame["text"].as_str()).collect();
    assert_eq!(text.len(), 5 * 40_000);
    let error = frames.last().unwrap();
    assert_eq!(error["omitted"], json!(["messages_appended"]), "{error:.300}");
    for kind in ["interrupt", "control", "respond", "reload_mcp"] {
        rig.send(
            json!({"type": kind, "sid": id, "request_id": id, "turn_id": id, "route_name": "session.reset"}),
        )
        .await;
        assert_eq!(rig.next().await.unwrap()["request_id"], id.as_str(), "{kind}");
    }
    let long = "x".repeat(MAX_ID_BYTES + 1);
    for (sid, request_id) in [(long.as_str(), "r"), ("s", long.as_str())] {
        rig.send(json!({"type": "turn.start", "sid": sid, "request_id": request_id})).await;
        assert_eq!(rig.next().await.unwrap()["type"], "error");
    }
    works(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_repeats_what_it_refuses_still_fits_and_is_still_sent() {
    let mut rig = Setup { max_frame_bytes: MIN_FRAME_BYTES, ..Setup::default() }.start().await;
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed"})).await;
    rig.until("session.seeded").await;
    let frames = [
        (r#"{"request_id":"r","type":"control","sid":"s","route_name":"LONG"}"#, "control.error"),
        (
            r#"{"request_id":"r","type":"control","sid":"s","route_name":"session.save","params":{"path":"LONG"}}"#,
            "control.error",
        ),
        (r#"{"request_id":"r","type":"turn.start","sid":"s","agent":"LONG"}"#, "turn.error"),
        (
            r#"{"request_id":"r","type":"respond","sid":"s","choice":"c","approval_id":"LONG"}"#,
            "respond.error",
        ),
        (r#"{"request_id":"r","type":"LONG"}"#, "error"),
    ];
    for (frame, answer) in frames {
        // A line of exactly the limit, whose answer would be longer than it.
        let long = "x".repeat(MIN_FRAME_BYTES + "LONG".len() - frame.len());
        rig.send_raw(format!("{}\n", frame.replace("LONG", &long)).as_bytes()).await;
        let error = rig.next().await.unwrap();
        assert_eq!((&error["type"], &error["request_id"]), (&json!(answer), &json!("r")), "{error:.300}");
        // The name of an unknown type is cut before it gets here.
        if answer != "error" {
            assert_eq!(error["omitted"], json!(["message"]), "{answer}");
            assert!(error["message"].as_str().unwrap().ends_with("x…"), "{error:.300}");
        }
    }
    works(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn no_number_is_too_large_or_too_small() {
    let mut rig = Rig::new().await;
    let times = ["1e308", "-1e308", "-1", "0", "1e-308", "18446744073709551615"];
    for time in times {
        let turn =
            format!(r#"{{"type":"turn.start","sid":"s","request_id":"t","delta_count":1,"delay_s":{time}}}"#);
        rig.send_raw(format!("{turn}\n").as_bytes()).await;
        rig.until("turn.started").await;
        rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
        rig.until("turn.end").await;
    }
    for field in ["delta_count", "delay_s", "cols"] {
        let turn = format!(r#"{{"type":"turn.start","sid":"s","request_id":"t","{field}":1e400}}"#);
        rig.send_raw(format!("{turn}\n").as_bytes()).await;
        assert_eq!(rig.until("error").await["request_id"], "t", "{field}");
    }
    let most = u64::MAX;
    let steps = [
        json!([{"sleep_ms": most}]),
        json!([{"deltas": most, "bytes": 1, "delay_ms": most}]),
        json!([{"ask": {"command": "c", "timeout_ms": most}}]),
        json!([{"deltas": most, "bytes": 1}]),
    ];
    for script in steps {
        rig.play("s", "t", script).await;
        rig.until("turn.started").await;
        rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
        let end = rig.until("turn.end").await;
        assert_eq!(end["interrupted"], true);
    }
    for script in [json!([{"deltas": 1, "bytes": most}]), json!([{"alloc_mb": most}]), json!([{"exit": -1}])]
    {
        rig.play("s", "t", script).await;
        assert_eq!(rig.until("turn.error").await["reason"], "bad_request");
    }
    works(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn options_beyond_all_reason_start_a_host_that_works() {
    for heartbeat in [Duration::from_nanos(1), Duration::MAX] {
        let mut rig = Setup {
            workers: usize::MAX,
            heartbeat: Some(heartbeat),
            drain: Duration::MAX,
            max_frame_bytes: usize::MAX,
            ..Setup::default()
        }
        .start()
        .await;
        works(&mut rig).await;
        rig.tell(Outside::Terminate).await;
        rig.rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_id_in_two_sessions_names_two_turns() {
    let mut rig = Rig::new().await;
    rig.play("a", "same", json!([{"ask": {"command": "c", "timeout_ms": 1000}}])).await;
    let asked = rig.until("event").await;
    rig.play("b", "same", json!([{"sleep_ms": 3_600_000}])).await;
    rig.until("turn.started").await;
    let answer = json!({"type": "respond", "sid": "b", "request_id": "r", "approval_id": asked["approval_id"], "choice": "once"});
    rig.send(answer).await;
    rig.until("respond.error").await;
    rig.send(json!({"type": "interrupt", "sid": "b", "request_id": "i", "turn_id": "same"})).await;
    let end = rig.until("turn.end").await;
    assert_eq!((&end["sid"], &end["interrupted"]), (&json!("b"), &json!(true)));
    let end = rig.until("turn.end").await;
    assert_eq!((&end["sid"], &end["interrupted"]), (&json!("a"), &json!(false)));
    assert_eq!(end["final_response"], "[approval: denied]");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_sessions_are_seeded_and_finalized() {
    let mut rig = Rig::new().await;
    for batch in 0..100 {
        for number in 0..100 {
            rig.send(json!({"type": "session.seed", "sid": format!("s{batch}-{number}"), "request_id": "r"}))
                .await;
        }
        for _ in 0..100 {
            assert_eq!(rig.next().await.unwrap()["type"], "session.seeded");
        }
    }
    works(&mut rig).await;
    rig.send(json!({"type": "shutdown"})).await;
    assert_eq!(types(&rig.rest().await), ["shutdown.ack"]);
    assert_eq!(rig.records().len(), 10_001);
}

#[tokio::test(start_paused = true)]
async fn a_home_that_cannot_be_written_costs_the_files_and_nothing_else() {
    let mut rig = Rig::new().await;
    // Whoever runs the tests, nobody makes a folder below a file.
    for folder in ["sessions", "logs"] {
        std::fs::write(rig.home.path().join(folder), "in the way").unwrap();
    }
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed"})).await;
    rig.until("session.seeded").await;
    rig.send(json!({"type": "control", "sid": "s", "request_id": "c", "route_name": "session.save"})).await;
    let error = rig.until("control.error").await;
    assert!(error["message"].as_str().unwrap().contains("sessions/saved/s-"), "{error}");
    works(&mut rig).await;
    rig.send(json!({"type": "shutdown", "request_id": "bye"})).await;
    assert_eq!(rig.rest().await.last().unwrap()["request_id"], "bye");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_shutdowns_is_answered_within_bounds() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", json!([{"hang": true}])).await;
    rig.until("turn.started").await;
    for number in 0..200 {
        rig.send(json!({"type": "shutdown", "request_id": number.to_string()})).await;
    }
    let frames = rig.rest().await;
    let count = |name: &str| types(&frames).iter().filter(|found| **found == name).count();
    assert_eq!((count("shutdown.ack"), count("error")), (64, 136));
    assert_eq!(frames.last().unwrap()["type"], "shutdown.ack");
}
