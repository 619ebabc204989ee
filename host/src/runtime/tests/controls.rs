use super::*;
use turnhost_protocol::{Route, RouteClass};

async fn control(rig: &mut Rig, sid: &str, route: &str, params: Value) -> Value {
    rig.send(
        json!({"type": "control", "sid": sid, "request_id": "c", "route_name": route, "params": params}),
    )
    .await;
    loop {
        let frame = rig.next().await.unwrap();
        if frame["request_id"] == "c" {
            return frame;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_control_is_checked_for_route_session_class_and_support_in_that_order() {
    let mut rig = Rig::new().await;
    rig.send(json!({"type": "session.seed", "sid": "idle", "request_id": "seed"})).await;
    rig.play("busy", "t", json!([{"sleep_ms": 3_600_000}])).await;
    rig.until("turn.started").await;
    for route in Route::ALL {
        let message = |answer: Value| answer["message"].as_str().unwrap_or("ack").to_owned();
        let name = route.name();
        assert_eq!(
            message(control(&mut rig, "none", name, json!(null)).await),
            "session not found",
            "{name}"
        );
        let idle = message(control(&mut rig, "idle", name, json!(null)).await);
        let busy = message(control(&mut rig, "busy", name, json!(null)).await);
        let expected = match route {
            Route::PromptSubmit => ("use turn.start", "use turn.start"),
            Route::SessionInterrupt => ("use interrupt", "use interrupt"),
            Route::SessionSave => ("ack", "ack"),
            Route::SessionReset => ("ack", "session busy"),
            _ if route.class() == RouteClass::IdleGated => ("not supported", "session busy"),
            _ => ("not supported", "not supported"),
        };
        assert_eq!((idle.as_str(), busy.as_str()), expected, "{name}");
    }
    for name in ["slash.nope", "", "SESSION.RESET"] {
        let answer = control(&mut rig, "none", name, json!(null)).await;
        assert_eq!(answer["type"], "control.error");
        assert_eq!(answer["message"], format!("unclassified route: {name}"));
    }
    rig.send(json!({"type": "reload_mcp", "sid": "idle", "request_id": "c"})).await;
    let answer = rig.next().await.unwrap();
    assert_eq!((&answer["type"], &answer["message"]), (&json!("control.error"), &json!("not supported")));
}

#[tokio::test(start_paused = true)]
async fn a_reset_empties_the_history_under_a_new_key() {
    let mut rig = Rig::new().await;
    rig.send(
        json!({"type": "session.seed", "sid": "s", "request_id": "seed", "session_key": "old", "model": "m",
        "history": [{"role": "user", "content": "a"}]}),
    )
    .await;
    rig.until("session.seeded").await;
    let ack = control(&mut rig, "s", "session.reset", json!(null)).await;
    assert_eq!((&ack["type"], &ack["route_name"]), (&json!("control.ack"), &json!("session.reset")));
    assert_eq!((&ack["history_version"], &ack["message_count"]), (&json!(1), &json!(0)));
    let key = ack["session_key"].as_str().unwrap().to_owned();
    assert_ne!(key, "old");
    assert_eq!(ack["result"], json!({"session_key": key, "parent_session_key": "old"}));
    assert_eq!(ack["messages"], json!([]));
    let info = &ack["session_info"];
    assert_eq!(
        (&info["model"], &info["agent"], &info["running"]),
        (&json!("m"), &json!("scripted"), &json!(false))
    );
    assert!(ack["output"].as_str().unwrap().contains(&key));
    rig.play("s", "t", json!([{"delta": "x"}])).await;
    let end = rig.until("turn.end").await;
    assert_eq!((&end["history_version"], &end["message_count"]), (&json!(2), &json!(2)));
    assert_eq!(end["session_key"], key);
}

#[tokio::test(start_paused = true)]
async fn a_save_beside_a_turn_writes_the_session_as_it_stood() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut rig = Rig::new().await;
    let history = json!([{"role": "user", "content": "a\u{1F980}"}]);
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed", "session_key": "../k/ey",
        "history": history}))
        .await;
    rig.play("s", "t", json!([{"sleep_ms": 3_600_000}])).await;
    rig.until("turn.started").await;
    let ack = control(&mut rig, "s", "session.save", json!(null)).await;
    let file = std::path::PathBuf::from(ack["result"]["file"].as_str().unwrap());
    assert_eq!(file.parent().unwrap(), rig.home.path().join("sessions/saved"), "whatever the key holds");
    assert_eq!((&ack["session_info"]["running"], &ack["message_count"]), (&json!(true), &json!(1)));
    let saved: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&saved["sid"], &saved["session_key"]), (&json!("s"), &json!("../k/ey")));
    assert_eq!((&saved["messages"], &saved["history_version"]), (&history, &json!(0)));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing unfinished is left");
}

#[tokio::test(start_paused = true)]
async fn a_save_goes_where_it_is_told_and_says_why_it_cannot() {
    let mut rig = Rig::new().await;
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed"})).await;
    rig.until("session.seeded").await;
    let ack = control(&mut rig, "s", "session.save", json!({"path": "mine.json"})).await;
    let expected = rig.home.path().join("sessions/saved/mine.json");
    assert_eq!(ack["result"]["file"], expected.to_str().unwrap());
    assert!(expected.is_file());
    let again = control(&mut rig, "s", "session.save", json!({"path": expected})).await;
    assert_eq!(
        again["result"]["file"],
        expected.to_str().unwrap(),
        "the answer's path is one that may be asked for"
    );
    let below = control(&mut rig, "s", "session.save", json!({"path": "./a/b/mine.json"})).await;
    assert_eq!(below["type"], "control.ack", "{below}");
    assert!(rig.home.path().join("sessions/saved/a/b/mine.json").is_file());
}

#[tokio::test(start_paused = true)]
async fn a_save_never_leaves_the_folder_of_saved_sessions() {
    let mut rig = Rig::new().await;
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed"})).await;
    rig.until("session.seeded").await;
    let saved = rig.home.path().join("sessions/saved");
    let outside = rig.home.path().join("outside");
    std::fs::create_dir_all(saved.join("folder")).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("secret"), "untouched").unwrap();
    std::os::unix::fs::symlink(&outside, saved.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), saved.join("file-link")).unwrap();
    let refused = [
        json!("../up.json"),
        json!("a/../../up.json"),
        json!(outside.join("up.json")),
        json!(saved.join("../up.json")),
        json!(".."),
        json!("."),
        json!("/"),
        json!("/proc/no/such"),
        json!("folder"),
        json!("link/through.json"),
        json!("file-link/below.json"),
        json!("nul\u{0}.json"),
        json!("x".repeat(300)),
        json!("a/".repeat(20_000)),
        json!(7),
    ];
    for path in refused {
        let answer = control(&mut rig, "s", "session.save", json!({"path": path})).await;
        assert_eq!(answer["type"], "control.error", "{path:.60}");
        assert!(answer["message"].as_str().unwrap().starts_with("session.save: "), "{answer}");
    }
    let names = |folder: &std::path::Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&outside), ["secret"]);
    assert_eq!(names(rig.home.path()), ["outside", "sessions"]);
    assert_eq!(names(&rig.home.path().join("sessions")), ["saved"]);
    let replaced = control(&mut rig, "s", "session.save", json!({"path": "file-link"})).await;
    assert_eq!(replaced["type"], "control.ack", "{replaced}");
    assert!(
        std::fs::symlink_metadata(saved.join("file-link")).unwrap().is_file(),
        "the link, not what it names"
    );
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "untouched");
}
