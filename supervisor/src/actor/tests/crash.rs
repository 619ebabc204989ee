//! A host that dies: what its turns and calls are told, and what was still in the pipe.

use super::*;
use pretty_assertions::assert_eq;

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
