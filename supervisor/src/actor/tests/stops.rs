//! Stops, drops and hosts that do not read.

use super::*;
use pretty_assertions::assert_eq;

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
async fn the_pipe_of_the_tests_is_bounded() {
    use tokio::io::AsyncWriteExt as _;
    let (mut writer, reader) = pipe(3);
    assert_eq!(writer.write(b"abcdef").await.unwrap(), 3);
    let full = tokio::time::timeout(Duration::from_secs(1), writer.write(b"d")).await;
    assert!(full.is_err());
    drop(reader);
    assert!(writer.write(b"d").await.is_err());
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
