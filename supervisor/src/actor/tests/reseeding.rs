//! Sessions of a host that was replaced.

use super::*;
use pretty_assertions::assert_eq;

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

#[tokio::test(start_paused = true)]
async fn what_a_late_ack_tells_of_a_session_is_what_the_next_host_gets() {
    rig(config(), |mut rig| async move {
        let mut host = rig.started().await;
        let seeding = seed(&rig, "s", &["one", "two"]);
        answer_seed(&mut host).await;
        seeding.await.unwrap();
        let slow =
            rig.supervisor.control(control("s", "c1", "session.compress"), Duration::from_millis(100)).await;
        assert_eq!(slow.unwrap_err().kind, ErrorKind::Timeout);
        host.send(json!({"type": "control.ack", "sid": "s", "request_id": "c1", "route_name": "session.compress",
            "session_key": "child", "result": {"messages": [{"role": "assistant", "content": "short"}]}}))
            .await;
        // The next answer is read behind the late one.
        let calling = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.control(control("s", "c2", "session.save"), Duration::from_secs(30)).await }
        });
        host.expect("control").await;
        host.expect("control").await;
        host.send(json!({"type": "control.ack", "sid": "s", "request_id": "c2", "route_name": "session.save"})).await;
        calling.await.unwrap().unwrap();
        host.die(Exit::Code(3)).await;
        let mut host = rig.host().await;
        host.hello("boot-2").await;
        let again = answer_seed(&mut host).await;
        assert_eq!(again["history"], json!([{"role": "assistant", "content": "short"}]));
        assert_eq!((&again["session_key"], &again["parent_session_key"]), (&json!("child"), &json!("s")));
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
