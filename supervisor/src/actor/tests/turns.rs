//! One turn and one call: events, endings, refusals, bounds.

use super::*;
use pretty_assertions::assert_eq;

#[tokio::test(start_paused = true)]
async fn a_turn_brings_its_events_in_order_and_ends_once() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        assert_eq!(turn.phase(), TurnPhase::Sent);
        let start = host.expect("turn.start").await;
        assert_eq!(start["text"], "hello");
        host.begin_turn(&start, 3).await;
        host.send(
            json!({"type":"event","request_id":"r","sid":"s","seq":3,"kind":"status","text":"x","new":1}),
        )
        .await;
        host.end_turn(&start).await;
        assert_eq!(
            all(turn).await,
            ["started", "delta 0", "delta 1", "delta 2", "event status", "completed"]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn frames_keep_fields_that_nobody_knows_both_ways() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let frame = fields(json!({"sid":"s","request_id":"r","text":"t","future":{"a":[1]}}));
        let mut turn = rig.supervisor.submit_turn_json(frame).await.unwrap();
        let start = host.expect("turn.start").await;
        assert_eq!(start["future"], json!({"a":[1]}));
        let line = r#"{"type":"turn.end","request_id":"r","zz":{"b":1.0},"aa":null}"#;
        host.raw(format!("{line}\n")).await;
        assert_eq!(turn.next().await.unwrap().to_json().unwrap(), line);
        assert_eq!(turn.next().await, None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn turn_started_tells_unsent_from_handed_over_from_started() {
    let config = Config { write_stall: Duration::from_secs(5), ..config() };
    LocalSet::new()
        .run_until(async {
            let mut rig = Rig::with(config, None, 256);
            let host = rig.started().await;
            let long = |id: &str| TurnStart { text: Some("x".repeat(1000)), ..turn(id, id) };
            let handed_over = rig.supervisor.submit_turn(long("a")).await.unwrap();
            let unsent = rig.supervisor.submit_turn(long("b")).await.unwrap();
            // The pipe holds the beginning of the first, and nobody reads.
            assert_eq!(host.die_when_told().await, Fate::Kill);
            let error = error_of(handed_over).await;
            assert_eq!((&error["reason"], &error["turn_started"]), (&json!("hung"), &Value::Null));
            let mut host = rig.host().await;
            host.hello("boot-2").await;
            assert_eq!(host.expect("turn.start").await["request_id"], "b");
            drop(host);
            drop(unsent);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_hosts_words_say_how_a_call_failed() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        for (frame_type, message, kind) in [
            ("control.error", "session busy", ErrorKind::Busy),
            ("error", "session not found", ErrorKind::SessionNotFound),
            ("respond.error", "no", ErrorKind::ControlFailed),
        ] {
            let calling = spawn_local({
                let supervisor = rig.supervisor.clone();
                async move { supervisor.control(control("s", "c", "session.save"), Duration::from_secs(30)).await }
            });
            host.expect("control").await;
            host.send(json!({"type": frame_type, "request_id": "c", "message": message})).await;
            assert_eq!(calling.await.unwrap().unwrap_err().kind, kind);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_late_ack_is_dropped_and_counted_and_the_next_call_gets_its_own() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let slow = rig.supervisor.control(control("s", "c1", "session.save"), Duration::from_millis(100)).await;
        assert_eq!(slow.unwrap_err().kind, ErrorKind::Timeout);
        let calling = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.control(control("s", "c2", "session.save"), Duration::from_secs(30)).await }
        });
        host.expect("control").await;
        host.expect("control").await;
        host.send(json!({"type": "control.ack", "request_id": "c1", "output": "late"})).await;
        host.send(json!({"type": "control.ack", "request_id": "c2", "output": "own"})).await;
        let ack = calling.await.unwrap().unwrap();
        assert!(ack.to_json().contains("own"));
        let status = rig.supervisor.status().await.unwrap();
        assert_eq!((status.counters.late_acks, status.open.controls), (1, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_number_that_no_type_holds_reaches_every_host_as_it_is_written() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let sent = |id: &str| {
            let text = format!(r#"{{"sid":"s","request_id":"{id}","x":[1e999,1.50,123456789012345678901]}}"#);
            RawJson::parse(text).unwrap()
        };
        let numbers = r#""x":[1e999,1.50,123456789012345678901]"#;
        let supervisor = rig.supervisor.clone();
        let seed = spawn_local(async move { supervisor.seed_json(sent("seed")).await });
        let line = host.read_line().await.unwrap();
        assert!(line.contains(numbers) && line.contains(r#""type":"session.seed""#), "{line}");
        host.raw("{\"type\":\"session.seeded\",\"sid\":\"s\",\"request_id\":\"seed\"}\n".to_owned()).await;
        seed.await.unwrap().unwrap();
        let _turn = rig.supervisor.submit_turn_json(sent("turn")).await.unwrap();
        let line = host.read_line().await.unwrap();
        assert!(line.contains(numbers) && line.contains(r#""type":"turn.start""#), "{line}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_refused_and_nothing_is_started() {
    rig(Config { max_frame_bytes: 5000, ..config() }, |mut rig| async move {
        let supervisor = rig.supervisor.clone();
        let kind = |result: Result<TurnHandle, crate::CallError>| result.unwrap_err().kind;
        assert_eq!(kind(supervisor.submit_turn(turn("s", "")).await), ErrorKind::Usage);
        assert_eq!(kind(supervisor.submit_turn(turn("", "r")).await), ErrorKind::Usage);
        assert_eq!(kind(supervisor.submit_turn(turn("s", &"r".repeat(1025))).await), ErrorKind::Usage);
        assert_eq!(kind(supervisor.submit_turn(TurnStart::default()).await), ErrorKind::Usage);
        assert_eq!(
            kind(supervisor.submit_turn_json(fields(json!({"sid": "s", "text": 5}))).await),
            ErrorKind::Usage
        );
        let big = TurnStart { text: Some("x".repeat(5000)), ..turn("s", "r") };
        assert_eq!(kind(supervisor.submit_turn(big).await), ErrorKind::TooLarge);
        let route = supervisor.control(control("s", "c", "no.such"), Duration::from_secs(1)).await;
        assert_eq!(route.unwrap_err().kind, ErrorKind::UnclassifiedRoute);
        assert_eq!(supervisor.status().await.unwrap().incarnation, 0);

        let mut host = rig.started().await;
        let first = supervisor.submit_turn(turn("s", "r")).await.unwrap();
        assert_eq!(kind(supervisor.submit_turn(turn("t", "r")).await), ErrorKind::DuplicateRequest);
        let duplicate = supervisor.control(control("s", "r", "session.save"), Duration::from_secs(1)).await;
        assert_eq!(duplicate.unwrap_err().kind, ErrorKind::DuplicateRequest);
        let start = host.expect("turn.start").await;
        host.end_turn(&start).await;
        assert_eq!(all(first).await, ["completed"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_id_gets_one() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let turn = rig
            .supervisor
            .submit_turn(TurnStart { sid: Some("s".into()), ..TurnStart::default() })
            .await
            .unwrap();
        let start = host.expect("turn.start").await;
        assert_eq!(start["request_id"], turn.request_id().as_str());
        assert_eq!(turn.request_id().as_str().len(), 36);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_the_first_terminal_frame_counts() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.begin_turn(&start, 1).await;
        host.send(json!({"type": "turn.started", "request_id": "r"})).await;
        host.end_turn(&start).await;
        host.end_turn(&start).await;
        host.send(json!({"type": "turn.error", "request_id": "r", "reason": "exception", "message": "x"}))
            .await;
        host.send(json!({"type": "delta", "request_id": "r", "text": "late"})).await;
        host.send(json!({"type": "turn.end", "request_id": "never"})).await;
        assert_eq!(all(turn).await, ["started", "delta 0", "completed"]);
        let status = after(&rig, |counters| counters.protocol_errors == 5).await;
        assert_eq!((status.duplicate_terminals, status.late_frames, status.turns_ended), (2, 1, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hosts_error_without_a_reason_reads_exception_in_its_text_too_and_is_else_unchanged() {
    for reason in ["", r#","reason":null"#] {
        rig(config(), async move |mut rig| {
            let mut host = rig.started().await;
            let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
            host.expect("turn.start").await;
            let frame = format!(r#"{{"type":"turn.error","request_id":"r","message":"m","n":1.50{reason}}}"#);
            host.raw(format!("{frame}\n")).await;
            let outcome = turn.outcome().await;
            assert_eq!(outcome.fail_reason(), Some(FailReason::Exception));
            assert!(outcome.to_json().contains(r#""n":1.50"#), "{}", outcome.to_json());
            let expected = json!({
                "type": "turn.error", "request_id": "r", "message": "m", "n": 1.5, "reason": "exception"
            });
            assert_eq!(serde_json::from_str::<Value>(outcome.to_json()).unwrap(), expected);
            assert_eq!(rig.supervisor.status().await.unwrap().counters.protocol_errors, 1);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_never_starts_a_host_and_a_hosts_answer_without_outcome_is_read() {
    rig(config(), |mut rig| async move {
        let result = rig.supervisor.interrupt("s".into(), None).await.unwrap();
        assert_eq!((result.outcome, result.turn), (InterruptOutcome::NotFound, None));
        assert_eq!(rig.supervisor.status().await.unwrap().incarnation, 0);
        let mut host = rig.started().await;
        for (applied, outcome) in [(true, InterruptOutcome::Applied), (false, InterruptOutcome::NotFound)] {
            let asking = spawn_local({
                let supervisor = rig.supervisor.clone();
                async move { supervisor.interrupt("s".into(), None).await }
            });
            let frame = host.expect("interrupt").await;
            host.send(
                json!({"type": "interrupt.ack", "request_id": frame["request_id"], "applied": applied}),
            )
            .await;
            assert_eq!(asking.await.unwrap().unwrap().outcome, outcome);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_up_nobody_and_misses_nothing_but_what_it_is_told() {
    let config = Config { mailbox_events: 8, mailbox_bytes: 4096, ..config() };
    rig(config, |mut rig| async move {
        let mut host = rig.started().await;
        let slow = rig.supervisor.submit_turn(turn("s", "slow")).await.unwrap();
        let fast = rig.supervisor.submit_turn(turn("t", "fast")).await.unwrap();
        let slow_start = host.expect("turn.start").await;
        let fast_start = host.expect("turn.start").await;
        host.begin_turn(&slow_start, 10_000).await;
        host.begin_turn(&fast_start, 2).await;
        host.end_turn(&fast_start).await;
        host.end_turn(&slow_start).await;
        assert_eq!(all(fast).await, ["started", "delta 0", "delta 1", "completed"]);
        let mut slow = slow;
        let (mut pieces, mut missing) = (0, 0);
        let mut last = None;
        while let Some(event) = slow.next().await {
            match &event {
                TurnEvent::Delta(delta) => pieces += delta.pieces,
                TurnEvent::Lagged { deltas, .. } => missing += deltas,
                _ => {}
            }
            last = Some(word(&event));
        }
        assert_eq!(pieces + missing, 10_000);
        assert!(pieces > 8 && missing > 0);
        assert_eq!(last.as_deref(), Some("completed"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn waiting_turns_are_bounded_and_end_unavailable() {
    let config = Config { max_waiting: 2, unavailable_after: Duration::from_secs(3), ..config() };
    rig(config, |rig| async move {
        rig.plans.lock().unwrap().push_back(Plan::Never);
        let first = rig.supervisor.submit_turn(turn("a", "a")).await.unwrap();
        let second = rig.supervisor.submit_turn(turn("b", "b")).await.unwrap();
        let refused = rig.supervisor.submit_turn(turn("c", "c")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Overloaded);
        let error = error_of(first).await;
        assert_eq!((&error["reason"], &error["turn_started"]), (&json!("unavailable"), &json!(false)));
        assert_eq!(reason_of(second).await, FailReason::Unavailable);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_status_has_every_field_of_its_row() {
    rig(config(), |mut rig| async move {
        let before = serde_json::to_value(rig.supervisor.status().await.unwrap()).unwrap();
        let mut host = rig.started().await;
        let _turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.begin_turn(&start, 1).await;
        // What the host says of itself may be old; the count is the supervisor's own.
        host.send(json!({"type": "hb", "active_turns": 7})).await;
        after(&rig, |counters| counters.frames_in == 4).await;
        let mut now = serde_json::to_value(rig.supervisor.status().await.unwrap()).unwrap();
        let sent = start.to_string().len() + 1;
        assert_eq!(now["counters"]["bytes_out"], sent);
        now["counters"]["bytes_out"].take();
        now["counters"]["bytes_in"].take();
        for time in ["uptime_ms", "last_heartbeat_ms_ago"] {
            assert!(now[time].take().is_u64(), "{time}");
        }
        assert!(now["open"]["turns"][0]["since_ms"].take().is_u64());
        let counters = json!({
            "frames_in": 4, "frames_out": 1, "bytes_in": null, "bytes_out": null, "turns_ended": 0, "turns_failed": {},
            "stray_lines": 0, "protocol_errors": 0, "late_frames": 0, "late_acks": 0, "duplicate_terminals": 0
        });
        let open = json!({
            "turns": [{"request_id": "r", "sid": "s", "phase": "started", "since_ms": null}], "controls": 0
        });
        let expected = json!({
            "state": "ready", "pid": 1001, "guard_pid": null, "incarnation": 1, "boot_id": "boot-1",
            "build_sha": "good", "uptime_ms": null, "restarts": 0, "next_start_in_ms": null, "last_exit": null,
            "last_heartbeat_ms_ago": null, "active_turns": 1, "open": open, "counters": counters,
            "stderr_tail": [], "stray_tail": [], "registry": null
        });
        assert_eq!(now, expected);
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&before), names(&expected));
        assert_eq!((&before["state"], &before["incarnation"]), (&json!("stopped"), &json!(0)));
    })
    .await;
}
