//! Lines that no right host writes.

use super::*;
use pretty_assertions::assert_eq;

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
