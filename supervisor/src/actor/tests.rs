//! The driver over hosts in memory, on a clock that only moves when everybody waits.

use super::fake::{FakeHost, Fate, Plan, Rig, config, pipe, rig};
use crate::config::{Config, Registry};
use crate::events::{HostNotice, ProtocolErrorKind};
use crate::handle::StopOptions;
use crate::machine::{Exit, HostState, StartFault};
use crate::reseed::ReseedSource;
use crate::restart::RestartPolicy;
use crate::status::TurnPhase;
use crate::turn::{TurnEvent, TurnHandle, TurnOutcome};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::{LocalSet, spawn_local};
use turnhost_protocol::frame::{Control, SessionSeed, TurnStart};
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{ErrorKind, FailReason, RawJson};

fn turn(sid: &str, id: &str) -> TurnStart {
    TurnStart {
        sid: Some(sid.into()),
        request_id: Some(id.into()),
        text: Some("hello".to_owned()),
        ..TurnStart::default()
    }
}

fn fields(value: Value) -> RawJson {
    RawJson::from_value(&value).unwrap()
}

fn control(sid: &str, id: &str, route: &str) -> Control {
    Control {
        sid: Some(sid.into()),
        request_id: Some(id.into()),
        route_name: Some(route.to_owned()),
        ..Control::default()
    }
}

/// Every event of a turn as its frame or a word.
async fn all(mut turn: TurnHandle) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(event) = turn.next().await {
        seen.push(word(&event));
    }
    seen
}

fn word(event: &TurnEvent) -> String {
    match event {
        TurnEvent::Started(_) => "started".to_owned(),
        TurnEvent::Delta(delta) => format!("delta {}", delta.text.trim()),
        TurnEvent::Event(event) => format!("event {}", event.kind),
        TurnEvent::Lagged { .. } => "lagged".to_owned(),
        TurnEvent::SessionLost { .. } => "session_lost".to_owned(),
        TurnEvent::Ended(TurnOutcome::Completed(_)) => "completed".to_owned(),
        TurnEvent::Ended(TurnOutcome::Interrupted(_)) => "interrupted".to_owned(),
        TurnEvent::Ended(TurnOutcome::Failed(error)) => format!("failed {}", error.fail_reason()),
    }
}

async fn error_of(turn: TurnHandle) -> Value {
    match turn.outcome().await {
        TurnOutcome::Failed(error) => serde_json::from_str(error.to_json()).unwrap(),
        TurnOutcome::Completed(end) | TurnOutcome::Interrupted(end) => panic!("it ended: {}", end.to_json()),
    }
}

async fn reason_of(turn: TurnHandle) -> FailReason {
    turn.outcome().await.fail_reason().expect("the turn failed")
}

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
async fn a_turn_end_in_the_pipe_wins_over_the_crash() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let first = rig.supervisor.submit_turn(turn("a", "r1")).await.unwrap();
        let second = rig.supervisor.submit_turn(turn("b", "r2")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.expect("turn.start").await;
        host.begin_turn(&start, 2).await;
        host.end_turn(&start).await;
        host.die(Exit::Signal(9)).await;
        assert_eq!(all(first).await, ["started", "delta 0", "delta 1", "completed"]);
        assert_eq!(reason_of(second).await, FailReason::Crash);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_last_line_without_its_end_counts_if_it_is_whole() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        host.expect("turn.start").await;
        host.raw(r#"{"type":"turn.end","request_id":"r"}"#).await;
        host.die(Exit::Code(0)).await;
        assert_eq!(all(turn).await, ["completed"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_last_line_is_a_crash_that_says_so() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        host.expect("turn.start").await;
        let cut = r#"{"type":"turn.end","request_id":"#;
        host.raw(cut).await;
        host.die(Exit::Code(0)).await;
        let error = error_of(turn).await;
        assert_eq!(error["reason"], "crash");
        assert_eq!(error["exit_code"], 0);
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("exited 0 with {} bytes of an unfinished frame", cut.len())),
            "{message}"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_error_has_every_field_and_the_front_end_is_told() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let mut events = rig.supervisor.events();
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.begin_turn(&start, 3).await;
        use tokio::io::AsyncWriteExt as _;
        host.stderr.write_all(b"one\ntwo\n").await.unwrap();
        host.die(Exit::Signal(11)).await;
        let mut error = error_of(turn).await;
        let message = error["message"].take();
        assert_eq!(
            error,
            json!({
                "type": "turn.error", "sid": "s", "request_id": "r", "reason": "crash", "message": null,
                "turn_started": true, "exit_code": null, "signal": 11, "signal_name": "SIGSEGV",
                "stderr_tail": ["one", "two"], "delivered": {"deltas": 3, "last_seq": 2}, "incarnation": 1
            })
        );
        loop {
            if let HostNotice::Rpc { message: rpc } = events.next().await.unwrap() {
                let rpc: Value = rpc.read().unwrap();
                let payload = json!({"message": message, "reason": "crash"});
                let params = json!({"type": "error", "session_id": "s", "payload": payload});
                assert_eq!(rpc, json!({"jsonrpc": "2.0", "method": "event", "params": params}));
                break;
            }
        }
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
async fn a_host_that_never_reads_holds_up_nobody_but_is_ended_as_hung() {
    LocalSet::new()
        .run_until(async {
            let mut rig = Rig::with(config(), None, 4096);
            let host = rig.started().await;
            let big = TurnStart { text: Some("x".repeat(300_000)), ..turn("s", "big") };
            let big = rig.supervisor.submit_turn(big).await.unwrap();
            let waiting = rig.supervisor.submit_turn(turn("t", "waiting")).await.unwrap();
            let began = tokio::time::Instant::now();
            let status = rig.supervisor.status().await.unwrap();
            assert_eq!(status.open.turns.len(), 2);
            // A turn of which nothing was sent is removed without the host.
            let result = rig.supervisor.interrupt("t".into(), Some("waiting".into())).await.unwrap();
            assert_eq!(result.outcome, InterruptOutcome::Applied);
            assert_eq!(all(waiting).await, ["interrupted"]);
            assert_eq!(began.elapsed(), Duration::ZERO);
            assert_eq!(host.die_when_told().await, Fate::Kill);
            assert_eq!(reason_of(big).await, FailReason::Hung);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_a_host_that_never_reads_keeps_its_budget() {
    LocalSet::new()
        .run_until(async {
            let mut rig = Rig::with(config(), None, 4096);
            let mut host = rig.started().await;
            let turns: Vec<TurnHandle> = {
                let mut turns = Vec::new();
                for n in 0..20 {
                    let id = format!("r{n}");
                    let start = TurnStart { text: Some("x".repeat(3000)), ..turn(&id, &id) };
                    turns.push(rig.supervisor.submit_turn(start).await.unwrap());
                }
                turns
            };
            let killed = spawn_local(async move {
                assert_eq!(host.fates.recv().await, Some(Fate::Term));
                host.die_when_told().await
            });
            let began = tokio::time::Instant::now();
            let options = StopOptions { drain: Duration::ZERO, budget: Duration::from_secs(2) };
            let summary = rig.supervisor.shutdown(options).await.unwrap();
            assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
            assert_eq!(killed.await.unwrap(), Fate::Kill);
            assert_eq!(summary.signal, Some(9));
            for mut turn in turns {
                // Ended before the stop returned.
                let mut last = None;
                while let Some(event) = turn.try_next() {
                    last = Some(word(&event));
                }
                assert_eq!(last.as_deref(), Some("failed shutdown"));
            }
            let refused = rig.supervisor.submit_turn(turn("s", "late")).await.unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Shutdown);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_right_host_stops_when_it_is_asked() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let stopping = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.shutdown(StopOptions::default()).await.unwrap() }
        });
        let ask = host.expect("shutdown").await;
        host.send(json!({"type": "shutdown.ack", "request_id": ask["request_id"]})).await;
        host.die(Exit::Code(0)).await;
        let summary = stopping.await.unwrap();
        assert_eq!((summary.exit_code, summary.signal), (Some(0), None));
        let steps: Vec<&str> = summary.steps.iter().map(|step| step.step).collect();
        assert_eq!(steps, ["ask", "exited", "swept"]);
        assert_eq!(rig.supervisor.watch().current().state, HostState::Stopped);
        // Stopping a stopped one is fine, and a start makes a new host.
        rig.supervisor.shutdown(StopOptions::default()).await.unwrap();
        assert_eq!(rig.started().await.epoch, 2);
    })
    .await;
}

/// Both pipes are full at once unless reading never waits for writing.
#[tokio::test(start_paused = true)]
async fn a_host_that_answers_each_line_with_more_than_a_pipe_holds_does_not_deadlock() {
    for (pipe_bytes, noise, command) in [(1, 40, 20), (100, 1000, 500), (65_536, 200_000, 5000)] {
        LocalSet::new()
            .run_until(async {
                let mut rig = Rig::with(config(), None, pipe_bytes);
                let mut host = rig.started().await;
                let echo = spawn_local(async move {
                    for _ in 0..50 {
                        let frame = host.expect("control").await;
                        let noise = "n".repeat(noise);
                        host.send(json!({"type": "rpc", "message": {"noise": noise}})).await;
                        host.send(json!({"type": "control.ack", "request_id": frame["request_id"]})).await;
                    }
                    host
                });
                let calls: Vec<_> = (0..50)
                    .map(|n| {
                        let supervisor = rig.supervisor.clone();
                        let mut call = control("s", &format!("c{n}"), "session.save");
                        call.command = Some("x".repeat(command));
                        spawn_local(async move { supervisor.control(call, Duration::from_secs(30)).await })
                    })
                    .collect();
                for call in calls {
                    call.await.unwrap().unwrap();
                }
                echo.await.unwrap();
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn open_calls_fail_at_once_when_the_host_dies() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let calling = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.control(control("s", "c", "session.save"), Duration::from_secs(30)).await }
        });
        host.expect("control").await;
        let began = tokio::time::Instant::now();
        host.die(Exit::Code(1)).await;
        assert_eq!(calling.await.unwrap().unwrap_err().kind, ErrorKind::Crash);
        assert!(began.elapsed() < Duration::from_secs(1));
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

async fn reaches(rig: &Rig, state: HostState) {
    let mut watch = rig.supervisor.watch();
    while watch.current().state != state {
        let waited = tokio::time::timeout(Duration::from_secs(10), watch.changed()).await;
        assert!(waited.is_ok(), "{:?}", watch.current());
    }
}

/// Asks until the counters are as wanted: what the host wrote is read in its own time.
async fn after(rig: &Rig, wanted: impl Fn(&crate::Counters) -> bool) -> crate::Counters {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let counters = rig.supervisor.status().await.unwrap().counters;
        if wanted(&counters) {
            return counters;
        }
        assert!(tokio::time::Instant::now() < deadline, "{counters:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn text_that_is_no_frame_is_counted_shown_and_never_fatal() {
    rig(config(), |mut rig| async move {
        let mut events = rig.supervisor.events();
        let starting = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.start().await }
        });
        let mut host = rig.host().await;
        host.raw("server running\n\n✓ ready\n").await;
        host.hello("b").await;
        starting.await.unwrap().unwrap();
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.raw(b"\xa6\xa8 PID\n{\"type\":\"delta\",\"request_id\":\"r\",\"te\nxt\":1}\n").await;
        host.raw("{\"type\":\"delta\",\"request_id\":\"r\",\"text\":\"\\ud800x\"}\n").await;
        host.raw(format!("{}\n", "[".repeat(200_000))).await;
        host.raw("{\"type\":\"news\"}\n{\"type\":\"news\"}\n").await;
        host.end_turn(&start).await;
        assert_eq!(all(turn).await, ["delta \u{fffd}x", "completed"]);
        let status = rig.supervisor.status().await.unwrap();
        assert_eq!(status.stray_tail[..3], ["server running", "✓ ready", "\\xa6\\xa8 PID"]);
        assert_eq!(status.restarts, 0);
        let mut kinds = Vec::new();
        while let Some(notice) = events.try_next() {
            if let HostNotice::ProtocolError { kind, .. } = notice {
                kinds.push(kind);
            }
        }
        use ProtocolErrorKind as Kind;
        assert_eq!(kinds, [Kind::Json, Kind::Utf8, Kind::Depth, Kind::UnknownType]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn at_most_twenty_stray_and_protocol_events_a_second_are_told() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let mut events = rig.supervisor.events();
        for _ in 0..500 {
            host.raw("noise\n").await;
        }
        after(&rig, |counters| counters.stray_lines == 500).await;
        let mut told = 0;
        while let Some(notice) = events.try_next() {
            told += u32::from(matches!(notice, HostNotice::Stray { .. }));
        }
        assert_eq!(told, 20);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_frame_over_the_limit_ends_its_turn_and_the_next_line_is_read() {
    rig(Config { max_frame_bytes: 8192, ..config() }, |mut rig| async move {
        let mut host = rig.started().await;
        let first = rig.supervisor.submit_turn(turn("a", "r1")).await.unwrap();
        let second = rig.supervisor.submit_turn(turn("b", "r2")).await.unwrap();
        let third = rig.supervisor.submit_turn(turn("c", "r3")).await.unwrap();
        for _ in 0..3 {
            host.expect("turn.start").await;
        }
        let long = "a".repeat(20_000);
        host.raw(format!("{{\"type\":\"turn.end\",\"request_id\":\"r1\"}}\n{long}\n")).await;
        host.send(json!({"type": "turn.end", "request_id": "r2", "final_response": long})).await;
        host.send(json!({"type": "delta", "request_id": "r3", "text": long})).await;
        host.send(json!({"type": "turn.end", "request_id": "r3"})).await;
        assert_eq!(all(first).await, ["completed"]);
        assert_eq!(reason_of(second).await, FailReason::FrameTooLarge);
        assert_eq!(all(third).await, ["completed"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_frame_that_cannot_be_believed_ends_its_turn_as_protocol() {
    for line in [
        "log line {\"type\":\"turn.end\",\"request_id\":\"r\"}",
        "{\"type\":\"turn.end\",\"request_id\":\"r\",\"interrupted\":\"yes\"}",
        "{\"type\":\"turn.end\",\"request_id\":\"r\"",
        "{\"type\":\"error\",\"request_id\":\"r\",\"message\":\"no\"}",
    ] {
        rig(config(), |mut rig| async move {
            let mut host = rig.started().await;
            let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
            host.expect("turn.start").await;
            host.raw(format!("{line}\n")).await;
            assert_eq!(reason_of(turn).await, FailReason::Protocol, "{line}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn frames_before_hello_and_a_second_hello_are_counted() {
    rig(config(), |mut rig| async move {
        let mut events = rig.supervisor.events();
        let starting = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.start().await }
        });
        let mut host = rig.host().await;
        host.send(json!({"type": "hb"})).await;
        host.hello("b").await;
        host.hello("b").await;
        host.send(json!({"type": "hello", "boot_id": "c"})).await;
        starting.await.unwrap().unwrap();
        let counters = after(&rig, |counters| counters.protocol_errors == 3).await;
        assert_eq!(counters.stray_lines, 0);
        while let Some(notice) = events.try_next() {
            if let HostNotice::ProtocolError { kind, .. } = notice {
                assert_eq!(kind, ProtocolErrorKind::HelloAgain);
            }
        }
        assert_eq!(rig.supervisor.watch().current().state, HostState::Ready);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_restarts_itself_is_a_new_incarnation_on_the_same_pipes() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let seeding = seed(&rig, "s", &["hi"]);
        answer_seed(&mut host).await;
        seeding.await.unwrap();
        let lost = rig.supervisor.submit_turn(turn("s", "r1")).await.unwrap();
        host.expect("turn.start").await;
        host.hello("another").await;
        assert_eq!(reason_of(lost).await, FailReason::Crash);
        let seeded = host.expect("session.seed").await;
        assert_eq!(seeded["history"], json!([{"role": "user", "content": "hi"}]));
        host.send(json!({"type": "session.seeded", "request_id": seeded["request_id"]})).await;
        let turn = rig.supervisor.submit_turn(turn("s", "r2")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.begin_turn(&start, 1).await;
        host.end_turn(&start).await;
        assert_eq!(all(turn).await, ["started", "delta 0", "completed"]);
        let status = rig.supervisor.status().await.unwrap();
        assert_eq!((status.incarnation, status.boot_id.as_deref()), (2, Some("another")));
        assert_eq!(status.counters.protocol_errors, 0);
        assert!(rig.hosts.try_recv().is_err(), "nothing was spawned");
    })
    .await;
}

/// Seeds in the background, for the host to answer.
fn seed(rig: &Rig, sid: &str, contents: &[&str]) -> tokio::task::JoinHandle<()> {
    let history: Vec<RawJson> = contents
        .iter()
        .map(|content| RawJson::from_value(&json!({"role": "user", "content": content})).unwrap())
        .collect();
    let seed = SessionSeed { sid: Some(sid.into()), history: Some(history), ..SessionSeed::default() };
    let supervisor = rig.supervisor.clone();
    spawn_local(async move {
        supervisor.seed(seed).await.unwrap();
    })
}

async fn answer_seed(host: &mut FakeHost) -> Value {
    let frame = host.expect("session.seed").await;
    assert_eq!(frame["report_messages"], true);
    let (sid, id) = (&frame["sid"], &frame["request_id"]);
    host.send(json!({"type": "session.seeded", "sid": sid, "request_id": id})).await;
    frame
}

#[tokio::test(start_paused = true)]
async fn a_new_host_gets_the_sessions_as_they_stand_before_anything_else() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let seeding = seed(&rig, "s", &["one"]);
        answer_seed(&mut host).await;
        seeding.await.unwrap();
        let first = rig.supervisor.submit_turn(turn("s", "r1")).await.unwrap();
        host.expect("turn.start").await;
        let appended = json!([{"role": "user", "content": "two"}, {"role": "assistant", "content": "three"}]);
        host.send(json!({"type": "turn.end", "request_id": "r1", "messages_appended": appended})).await;
        assert_eq!(all(first).await, ["completed"]);
        host.die(Exit::Signal(9)).await;
        reaches(&rig, HostState::BackingOff).await;
        let waiting = rig.supervisor.submit_turn(turn("s", "r2")).await.unwrap();
        assert_eq!(waiting.phase(), TurnPhase::Waiting);
        let mut host = rig.host().await;
        assert_eq!(host.epoch, 2);
        host.hello("boot-2").await;
        let again = answer_seed(&mut host).await;
        let contents: Vec<&str> = again["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["content"].as_str().unwrap())
            .collect();
        assert_eq!(contents, ["one", "two", "three"]);
        let start = host.expect("turn.start").await;
        host.end_turn(&start).await;
        assert_eq!(all(waiting).await, ["completed"]);
        assert_eq!(rig.supervisor.status().await.unwrap().counters.protocol_errors, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_history_is_gone_is_told_so_first_and_once() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        // Never seeded through us.
        let first = rig.supervisor.submit_turn(turn("s", "r1")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.end_turn(&start).await;
        assert_eq!(all(first).await, ["completed"]);
        host.die(Exit::Signal(9)).await;
        let mut host = rig.host().await;
        host.hello("boot-2").await;
        for (id, expected) in
            [("r2", vec!["session_lost", "started", "completed"]), ("r3", vec!["started", "completed"])]
        {
            let turn = rig.supervisor.submit_turn(turn("s", id)).await.unwrap();
            let start = host.expect("turn.start").await;
            host.begin_turn(&start, 0).await;
            host.end_turn(&start).await;
            assert_eq!(all(turn).await, expected);
        }
        // One that brings its history has lost nothing; one that is new neither.
        host.die(Exit::Signal(9)).await;
        let mut host = rig.host().await;
        host.hello("boot-3").await;
        let fresh = TurnStart { history: Some(Vec::new()), ..turn("s", "r4") };
        for start in [fresh, turn("new", "r5")] {
            let turn = rig.supervisor.submit_turn(start).await.unwrap();
            let start = host.expect("turn.start").await;
            host.end_turn(&start).await;
            assert_eq!(all(turn).await, ["completed"]);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_that_the_new_host_refuses_is_a_lost_session() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let seeding = seed(&rig, "s", &["one"]);
        answer_seed(&mut host).await;
        seeding.await.unwrap();
        host.die(Exit::Code(3)).await;
        let mut events = rig.supervisor.events();
        let mut host = rig.host().await;
        host.hello("boot-2").await;
        let again = host.expect("session.seed").await;
        host.send(json!({"type": "error", "request_id": again["request_id"], "message": "no"})).await;
        let told = async {
            loop {
                if let Some(HostNotice::SessionLost { sid }) = events.next().await {
                    return sid;
                }
            }
        };
        assert_eq!(told.await.as_str(), "s");
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.end_turn(&start).await;
        assert_eq!(all(turn).await, ["session_lost", "completed"]);
    })
    .await;
}

#[tokio::test]
async fn the_embedders_source_wins_over_the_ledger_and_may_be_async() {
    LocalSet::new()
        .run_until(async {
            let source = ReseedSource::future(|sid| async move {
                let message = json!({"role": "user", "content": format!("from the source: {sid}")});
                Some(vec![RawJson::from_value(&message).unwrap()])
            });
            let mut rig = Rig::with(config(), Some(source), 65_536);
            let mut host = rig.started().await;
            let seeding = seed(&rig, "s", &["one"]);
            answer_seed(&mut host).await;
            seeding.await.unwrap();
            host.die(Exit::Code(3)).await;
            let mut host = rig.host().await;
            host.hello("boot-2").await;
            let again = answer_seed(&mut host).await;
            assert_eq!(again["history"][0]["content"], "from the source: s");
        })
        .await;
}

#[tokio::test]
async fn a_source_that_hangs_or_panics_gives_way_to_the_ledger() {
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let hangs = ReseedSource::blocking(move |_| {
        let _ = gate.lock().unwrap().recv();
        None
    });
    let panics = ReseedSource::blocking(|_| panic!("a source may panic"));
    for source in [hangs, panics] {
        LocalSet::new()
            .run_until(async {
                let config = Config { reseed_timeout: Duration::from_millis(50), ..config() };
                let mut rig = Rig::with(config, Some(source), 65_536);
                let mut host = rig.started().await;
                let seeding = seed(&rig, "s", &["one"]);
                answer_seed(&mut host).await;
                seeding.await.unwrap();
                host.die(Exit::Code(3)).await;
                let mut host = rig.host().await;
                host.hello("boot-2").await;
                let again = answer_seed(&mut host).await;
                assert_eq!(again["history"][0]["content"], "one");
            })
            .await;
    }
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn the_last_drop_ends_open_turns_as_dropped_and_lets_the_host_go() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let sent = rig.supervisor.submit_turn(turn("s", "r1")).await.unwrap();
        host.expect("turn.start").await;
        let mut events = rig.supervisor.events();
        drop(rig.supervisor);
        rig.actor.await.unwrap();
        let error = error_of(sent).await;
        assert_eq!((&error["reason"], &error["turn_started"]), (&json!("dropped"), &Value::Null));
        assert_eq!(host.fates.recv().await, Some(Fate::LetGo));
        assert_eq!(host.read().await, None);
        assert_eq!(events.next().await, None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_start_without_hello_says_what_came_instead() {
    for (output, words) in [
        ("", "0 bytes on stdout"),
        ("{\"type\":\"hello\"", "15 bytes on stdout, no line end"),
        ("banner\n", "1 lines, none of them a hello (the last: banner)"),
    ] {
        rig(config(), |mut rig| async move {
            use tokio::io::AsyncWriteExt as _;
            let starting = spawn_local({
                let supervisor = rig.supervisor.clone();
                async move { supervisor.start().await }
            });
            let mut host = rig.host().await;
            host.raw(output).await;
            host.stderr.write_all(b"cannot import x").await.unwrap();
            assert_eq!(host.die_when_told().await, Fate::Kill);
            let error = starting.await.unwrap().unwrap_err();
            assert_eq!(error.kind, ErrorKind::NoHello);
            assert!(
                error.message.contains(words) && error.message.contains("cannot import x"),
                "{}",
                error.message
            );
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_exit_before_hello_is_told_at_once_with_the_stderr() {
    rig(Config { hello_timeout: Duration::from_secs(60), ..config() }, |mut rig| async move {
        use tokio::io::AsyncWriteExt as _;
        let starting = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.start().await }
        });
        let mut host = rig.host().await;
        host.stderr.write_all(b"no module named x\n").await.unwrap();
        let began = tokio::time::Instant::now();
        host.die(Exit::Code(1)).await;
        let error = starting.await.unwrap().unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(error.kind, ErrorKind::ExitedBeforeHello);
        assert!(
            error.message.contains('1') && error.message.contains("no module named x"),
            "{}",
            error.message
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_killed_before_the_error_comes_and_is_not_tried_again() {
    rig(Config { expected_build_sha: Some("other".to_owned()), ..config() }, |mut rig| async move {
        let starting = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.start().await }
        });
        let waiting = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let mut host = rig.host().await;
        host.hello("b").await;
        assert_eq!(host.die_when_told().await, Fate::Kill);
        let error = starting.await.unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::BuildMismatch);
        assert!(error.message.contains("other") && error.message.contains("good"), "{}", error.message);
        let error = error_of(waiting).await;
        assert_eq!((&error["reason"], &error["turn_started"]), (&json!("unavailable"), &json!(false)));
        assert!(error["message"].as_str().unwrap().contains("build_mismatch"));
        assert_eq!(rig.supervisor.watch().current().state, HostState::Stopped);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_spawn_that_cannot_work_answers_its_kind() {
    rig(config(), |rig| async move {
        let fault = StartFault::new(ErrorKind::SpawnFailed, "ENOENT".to_owned());
        rig.plans.lock().unwrap().push_back(Plan::Fail { permanent: true, fault });
        let error = rig.supervisor.start().await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::SpawnFailed, "ENOENT"));
        assert_eq!(rig.supervisor.watch().current().state, HostState::Stopped);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_spawn_hangs_cancels_it() {
    rig(config(), |rig| async move {
        rig.plans.lock().unwrap().push_back(Plan::Never);
        let starting = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.start().await }
        });
        let mut watch = rig.supervisor.watch();
        while watch.current().state != HostState::Starting {
            watch.changed().await.unwrap();
        }
        let options = StopOptions { drain: Duration::ZERO, budget: Duration::from_secs(2) };
        rig.supervisor.shutdown(options).await.unwrap();
        assert_eq!(starting.await.unwrap().unwrap_err().kind, ErrorKind::Shutdown);
        assert_eq!(watch.current().state, HostState::Stopped);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_refuses_until_reset_and_every_state_is_seen() {
    let restart = RestartPolicy { max: 1, ..RestartPolicy::default() };
    rig(Config { restart, ..config() }, |mut rig| async move {
        let mut events = rig.supervisor.events();
        let host = rig.started().await;
        host.die(Exit::Code(1)).await;
        let mut host = rig.host().await;
        host.hello("boot-2").await;
        let waiting = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        host.expect("turn.start").await;
        host.die(Exit::Code(1)).await;
        assert_eq!(reason_of(waiting).await, FailReason::Crash);
        let refused = rig.supervisor.submit_turn(turn("s", "r2")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::CrashLoop);
        assert_eq!(rig.supervisor.start().await.unwrap_err().kind, ErrorKind::CrashLoop);
        assert_eq!(rig.supervisor.reset().await.unwrap(), HostState::Stopped);
        let mut states = Vec::new();
        while let Some(notice) = events.try_next() {
            if let HostNotice::State(state) = notice {
                states.push((state.state, state.incarnation, state.restarts));
            }
        }
        // A back-off is told again when the old tree is gone and its end is known.
        states.dedup();
        use HostState as State;
        assert_eq!(
            states,
            [
                (State::Starting, 1, 0),
                (State::Ready, 1, 0),
                (State::BackingOff, 1, 0),
                (State::Starting, 2, 1),
                (State::Ready, 2, 1),
                (State::CrashLooped, 2, 1),
                (State::Stopped, 2, 1),
            ]
        );
        assert_eq!(rig.started().await.epoch, 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_drains_seeds_again_and_answers_with_the_new_host() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let seeding = seed(&rig, "s", &["one"]);
        answer_seed(&mut host).await;
        seeding.await.unwrap();
        let running = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let start = host.expect("turn.start").await;
        let restarting = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.restart(Duration::from_secs(5)).await }
        });
        let appended = json!([{"role": "user", "content": "two"}]);
        host.send(
            json!({"type": "turn.end", "request_id": start["request_id"], "messages_appended": appended}),
        )
        .await;
        assert_eq!(all(running).await, ["completed"]);
        host.expect("shutdown").await;
        host.die(Exit::Code(0)).await;
        let mut host = rig.host().await;
        host.hello("boot-2").await;
        let again = answer_seed(&mut host).await;
        assert_eq!(again["history"].as_array().unwrap().len(), 2);
        assert_eq!(restarting.await.unwrap().unwrap().incarnation, 2);
    })
    .await;
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
async fn silence_after_a_heartbeat_is_a_hang_and_a_refused_heartbeat_is_no_silence() {
    let config = Config { heartbeat: Duration::from_secs(1), hang_after_heartbeats: 3, ..config() };
    rig(config, |mut rig| async move {
        let mut host = rig.started().await;
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        host.expect("turn.start").await;
        for _ in 0..10 {
            host.raw("{\"type\":\"hb\",\"progress_counter\":NaN}\n").await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        host.send(json!({"type": "hb", "active_turns": 1})).await;
        let status = rig.supervisor.status().await.unwrap();
        assert_eq!((status.state, status.restarts), (HostState::Ready, 0));
        assert_eq!(host.die_when_told().await, Fate::Kill);
        assert_eq!(reason_of(turn).await, FailReason::Hung);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_exit_is_noticed_although_a_grandchild_holds_the_pipe() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let start = host.expect("turn.start").await;
        host.begin_turn(&start, 1).await;
        host.exit(Exit::Signal(9)).await;
        assert_eq!(all(turn).await, ["started", "delta 0", "failed crash"]);
        // What the grandchild writes is nobody's.
        host.end_turn(&start).await;
        after(&rig, |counters| counters.late_frames == 1).await;
        let mut next = rig.host().await;
        next.hello("boot-2").await;
        drop(host);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_closes_its_stdout_is_ended() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let turn = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        host.expect("turn.start").await;
        host.stdout = None;
        assert_eq!(host.die_when_told().await, Fate::Kill);
        assert_eq!(reason_of(turn).await, FailReason::Crash);
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
async fn a_thousand_turns_on_a_dying_host_end_once_each() {
    rig(Config { max_waiting: 2000, ..config() }, |mut rig| async move {
        let mut host = rig.started().await;
        let mut turns = Vec::new();
        for n in 0..1000 {
            let id = format!("r{n}");
            turns.push(rig.supervisor.submit_turn(turn(&id, &id)).await.unwrap());
        }
        // Half of them are read, one has its end in the pipe.
        for n in 0..500 {
            let start = host.expect("turn.start").await;
            if n == 250 {
                host.end_turn(&start).await;
            }
        }
        host.die(Exit::Signal(9)).await;
        let mut host = rig.host().await;
        host.hello("boot-2").await;
        let serve = spawn_local(async move {
            while let Some(frame) = host.read().await {
                host.end_turn(&frame).await;
            }
        });
        let mut endings = std::collections::BTreeMap::new();
        for turn in turns {
            let seen = all(turn).await;
            assert_eq!(seen.len(), 1, "{seen:?}");
            *endings.entry(seen[0].clone()).or_insert(0) += 1;
        }
        let completed = endings["completed"];
        let crashed = endings["failed crash"];
        assert_eq!(completed + crashed, 1000);
        // What was read and not answered crashed; what was handed to the pipe and not read as well.
        assert!(crashed >= 499, "{endings:?}");
        assert!(completed > 1, "{endings:?}");
        drop(rig.supervisor);
        serve.await.unwrap();
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
async fn the_pipe_of_the_tests_is_bounded() {
    use tokio::io::AsyncWriteExt as _;
    let (mut writer, reader) = pipe(3);
    assert_eq!(writer.write(b"abcdef").await.unwrap(), 3);
    let full = tokio::time::timeout(Duration::from_secs(1), writer.write(b"d")).await;
    assert!(full.is_err());
    drop(reader);
    assert!(writer.write(b"d").await.is_err());
}

// On the real clock: the registry is looked at on a thread that the paused one would not wait for.

fn registry_config(wanted: impl FnOnce(std::path::PathBuf) -> Registry, folder: &std::path::Path) -> Config {
    Config { registry: wanted(folder.join("turnhost/host.json")), ..config() }
}

#[tokio::test]
async fn a_host_is_registered_from_hello_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("turnhost/host.json");
    rig(registry_config(Registry::Required, folder.path()), |mut rig| async move {
        let mut host = rig.started().await;
        let ready = rig.supervisor.start().await.unwrap();
        assert_eq!(ready.reconciled.as_deref(), Some("none"));
        let entry: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!((&entry["host_pid"], &entry["boot_id"]), (&json!(1001), &json!("boot-1")));
        let status = rig.supervisor.status().await.unwrap();
        assert_eq!(status.registry, Some(file.display().to_string()));
        let stopping = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.shutdown(StopOptions::default()).await }
        });
        host.expect("shutdown").await;
        host.die(Exit::Code(0)).await;
        stopping.await.unwrap().unwrap();
        assert!(!file.exists());
    })
    .await;
}

#[tokio::test]
async fn a_registry_that_cannot_be_had_is_an_error_before_anything_is_spawned_or_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_owned();
    rig(registry_config(Registry::Required, &folder), |mut owner| async move {
        let _host = owner.started().await;
        rig(registry_config(Registry::Required, &folder), |mut other| async move {
            let error = other.supervisor.start().await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::RegistryOwned);
            assert!(other.hosts.try_recv().is_err(), "nothing was spawned");
            assert_eq!(other.supervisor.watch().current().state, HostState::Stopped);
        })
        .await;
        rig(registry_config(Registry::Optional, &folder), |mut other| async move {
            let _host = other.started().await;
            let ready = other.supervisor.start().await.unwrap();
            assert_eq!(ready.reconciled, None);
            assert_eq!(other.supervisor.status().await.unwrap().registry, None);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn the_registry_is_tried_again_when_it_could_not_be_had() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_owned();
    LocalSet::new()
        .run_until(async {
            let mut owner = Rig::new(registry_config(Registry::Required, &folder));
            let _host = owner.started().await;
            let mut other = Rig::new(registry_config(Registry::Required, &folder));
            assert_eq!(other.supervisor.start().await.unwrap_err().kind, ErrorKind::RegistryOwned);
            drop(owner.supervisor);
            owner.actor.await.unwrap();
            other.started().await;
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

#[tokio::test(start_paused = true)]
async fn a_broken_end_that_names_no_turn_ends_the_only_one_and_no_other() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let first = rig.supervisor.submit_turn(turn("a", "r1")).await.unwrap();
        let second = rig.supervisor.submit_turn(turn("b", "r2")).await.unwrap();
        host.expect("turn.start").await;
        let start = host.expect("turn.start").await;
        let broken = "{\"type\":\"turn.end\",\"request_id\":5}\n";
        host.raw(broken).await;
        host.end_turn(&start).await;
        assert_eq!(all(second).await, ["completed"]);
        assert_eq!(first.phase(), TurnPhase::Sent);
        host.raw(broken).await;
        assert_eq!(reason_of(first).await, FailReason::Protocol);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_told_to_end_sees_its_stdin_close() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let stopping = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.shutdown(StopOptions::default()).await }
        });
        host.expect("shutdown").await;
        assert_eq!(host.read().await, None);
        assert_eq!(host.fates.try_recv(), Ok(Fate::Term));
        assert!(host.fates.try_recv().is_err(), "it is not killed yet");
        host.die(Exit::Signal(15)).await;
        assert_eq!(stopping.await.unwrap().unwrap().signal, Some(15));
    })
    .await;
}
