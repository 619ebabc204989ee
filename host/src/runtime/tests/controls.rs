use super::*;
use pretty_assertions::assert_eq;
use turnhost_protocol::Route;

/// A control with params and no command.
async fn control(rig: &mut Rig, sid: &str, route: &str, params: Value) -> Value {
    rig.control(sid, route, json!({"params": params})).await
}

/// A control with a command and no params.
async fn command(rig: &mut Rig, route: &str, command: &str) -> Value {
    rig.control("s", route, json!({"command": command})).await
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// Two turns.
fn two_turns() -> Value {
    json!([
        message("system", "be brief"),
        message("user", "one"),
        message("assistant", "1"),
        message("user", "two"),
        message("assistant", "2")
    ])
}

/// Answers with what a turn was given beside its prompt.
struct Surroundings;

impl crate::AsyncAgent for Surroundings {
    fn run(&self, turn: crate::turn::context::TurnContext) -> crate::TurnFuture<'_> {
        Box::pin(async move {
            let given = json!([turn.model, turn.provider, turn.system_prompt, turn.history.len()]);
            Ok(crate::Answer { text: Some(given.to_string()), interrupted: false })
        })
    }
}

/// What the next turn of `s` is given: model, provider, system prompt, messages.
async fn given(rig: &mut Rig) -> Value {
    rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t", "text": "p"})).await;
    let end = rig.until("turn.end").await;
    serde_json::from_str(end["final_response"].as_str().unwrap()).unwrap()
}

async fn rig_with_surroundings() -> Rig {
    let personalities = [("judge", "Be strict."), ("pirate", "Say arr.")];
    let mut config = Config::default();
    config.model.provider = Some("host's provider".to_owned());
    config.agent.system_prompt = Some("Be good.".to_owned());
    config.personalities = personalities.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let agents = Agents::new().with_async("surroundings", Surroundings);
    let model = Some("host's model".to_owned());
    let mut rig = Setup { agents, model, config, ..Setup::default() }.start().await;
    rig.until("hello").await;
    rig
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
            Route::ReloadMcp => ("not supported", "not supported"),
            Route::SessionCompress | Route::SlashCompress | Route::SessionReset => ("ack", "session busy"),
            Route::PromptSubmitTruncate => {
                ("params.before_user_ordinal is missing: an integer from 1", "session busy")
            }
            Route::SlashModel => ("command is missing: /model NAME [--provider P]", "session busy"),
            Route::SlashPersonality => ("name one: /personality NAME, or none", "session busy"),
            Route::SlashPrompt => ("command is missing: /prompt, or /prompt TEXT", "session busy"),
            Route::SessionHistoryReload => (
                "params.history is missing, and this host has no store to read the history from",
                "session busy",
            ),
            Route::SlashRetry => ("there is no prompt in the history to try again", "session busy"),
        };
        let idle = idle.strip_prefix(&format!("{name}: ")).unwrap_or(&idle);
        assert_eq!((idle, busy.as_str()), expected, "{name}");
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

#[tokio::test(start_paused = true)]
async fn every_ack_has_the_whole_session_and_slash_routes_its_messages() {
    let mut rig = rig_with_surroundings().await;
    rig.seed("s", json!({"session_key": "key", "history": two_turns()})).await;
    for (route, more) in [
        ("session.save", json!({})),
        ("session.compress", json!({"command": "/compress"})),
        ("slash.compress", json!({"command": "/compress"})),
        ("slash.model", json!({"command": "/model m"})),
        ("slash.personality", json!({"command": "/personality judge"})),
        ("slash.prompt", json!({"command": "/prompt Be kind."})),
        ("slash.prompt", json!({"command": "/prompt"})),
        ("session.history.reload", json!({"params": {"history": two_turns()}})),
    ] {
        let ack = rig.control("s", route, more).await;
        assert_eq!((&ack["type"], &ack["route_name"]), (&json!("control.ack"), &json!(route)), "{ack}");
        assert!(ack["output"].is_string() && ack["result"].is_object(), "{ack}");
        assert_eq!((&ack["session_key"], &ack["message_count"]), (&json!("key"), &json!(5)), "{route}");
        assert_eq!(ack["history_version"], 0, "{route} changed no message");
        let info = &ack["session_info"];
        let mut names: Vec<_> = info.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["agent", "cwd", "model", "provider", "running", "usage"], "{route}");
        assert_eq!(
            (&info["provider"], &info["agent"], &info["cwd"], &info["running"]),
            (&json!("host's provider"), &json!("surroundings"), &json!("/project"), &json!(false)),
            "{route}"
        );
        let messages =
            if route == "session.compress" { &ack["result"]["messages"] } else { &ack["messages"] };
        let tells = route != "session.save";
        assert_eq!(*messages, if tells { two_turns() } else { Value::Null }, "{route}");
    }
    for (route, more, count) in [
        ("slash.retry", json!({"command": "/retry"}), 3),
        ("prompt.submit.truncate", json!({"params": {"before_user_ordinal": 1}}), 1),
    ] {
        let ack = rig.control("s", route, more).await;
        assert_eq!((&ack["message_count"], &ack["session_info"]["model"]), (&json!(count), &json!("m")));
        assert_eq!(ack["messages"].as_array().unwrap().len(), count, "{route}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_truncate_cuts_before_the_nth_prompt() {
    let mut rig = Rig::new().await;
    for (ordinal, left, removed) in [(1, 1, 4), (2, 3, 2)] {
        rig.seed("s", json!({"history": two_turns()})).await;
        let ack =
            control(&mut rig, "s", "prompt.submit.truncate", json!({"before_user_ordinal": ordinal})).await;
        assert_eq!((&ack["message_count"], &ack["history_version"]), (&json!(left), &json!(1)));
        assert_eq!(ack["result"], json!({"removed": removed}));
        assert_eq!(ack["messages"].as_array().unwrap()[..], two_turns().as_array().unwrap()[..left]);
    }
    let answer = control(&mut rig, "s", "prompt.submit.truncate", json!({"before_user_ordinal": 2})).await;
    assert_eq!(
        answer["message"],
        "prompt.submit.truncate: params.before_user_ordinal is 2, but the history has 1 user message"
    );
    let info = control(&mut rig, "s", "session.save", json!(null)).await;
    assert_eq!((&info["message_count"], &info["history_version"]), (&json!(3), &json!(1)), "unchanged");
}

#[tokio::test(start_paused = true)]
async fn a_retry_takes_the_last_prompt_out_and_gives_its_text() {
    let mut rig = Rig::new().await;
    let parts =
        json!([{"type": "text", "text": "look at"}, {"type": "image_url"}, {"type": "text", "text": "this"}]);
    let mut history = two_turns();
    history.as_array_mut().unwrap().push(json!({"role": "user", "content": parts}));
    rig.seed("s", json!({"history": history})).await;
    let ack = command(&mut rig, "slash.retry", "/retry").await;
    assert_eq!((&ack["output"], &ack["message_count"]), (&json!("look at\nthis"), &json!(5)));
    assert_eq!(ack["result"], json!({"prompt": parts, "removed": 1}));
    let ack = rig.control("s", "slash.retry", json!({})).await;
    assert_eq!((&ack["output"], &ack["message_count"]), (&json!("two"), &json!(3)));
    assert_eq!((&ack["result"]["removed"], &ack["history_version"]), (&json!(2), &json!(2)));
    // What the caller submits again stands where it stood.
    rig.play("s", "t", json!([{"delta": "2"}])).await;
    assert_eq!(rig.until("turn.end").await["message_count"], 5);
    let answer = command(&mut rig, "slash.retry", "/retry please").await;
    assert_eq!(answer["message"], "slash.retry: unexpected `please` behind the command; expected /retry");
}

#[tokio::test(start_paused = true)]
async fn a_reload_replaces_the_history_and_counts_only_as_a_change_if_it_is_one() {
    let mut rig = Rig::new().await;
    rig.seed("s", json!({"session_key": "key", "history": two_turns()})).await;
    let same = control(&mut rig, "s", "session.history.reload", json!({"history": two_turns()})).await;
    assert_eq!((&same["history_version"], &same["result"]), (&json!(0), &json!({"changed": false})));
    let one = json!([{"role": "user", "content": "a", "extra": 1}]);
    let ack = control(&mut rig, "s", "session.history.reload", json!({"history": one})).await;
    assert_eq!((&ack["messages"], &ack["history_version"]), (&one, &json!(1)));
    assert_eq!((&ack["session_key"], &ack["result"]), (&json!("key"), &json!({"changed": true})));
    let answer = control(&mut rig, "s", "session.history.reload", json!({"history": ["a"]})).await;
    assert_eq!(
        answer["message"],
        "session.history.reload: params.history[0] must be an object with role, a string"
    );
}

#[tokio::test(start_paused = true)]
async fn a_model_holds_from_the_next_turn_on() {
    let mut rig = rig_with_surroundings().await;
    rig.seed("s", json!({})).await;
    assert_eq!(given(&mut rig).await, json!(["host's model", "host's provider", "Be good.", 0]));
    let ack = command(&mut rig, "slash.model", "/model big --provider local").await;
    assert_eq!((&ack["output"], &ack["history_version"]), (&json!("model: big from local"), &json!(1)));
    assert_eq!(ack["result"], json!({"model": "big", "provider": "local"}));
    assert_eq!(
        (&ack["session_info"]["model"], &ack["session_info"]["provider"]),
        (&json!("big"), &json!("local"))
    );
    assert_eq!(given(&mut rig).await, json!(["big", "local", "Be good.", 2]));
    command(&mut rig, "slash.model", "/model small").await;
    assert_eq!(given(&mut rig).await, json!(["small", "local", "Be good.", 4]), "the provider stays");
    let answer = command(&mut rig, "slash.model", "/model a b").await;
    assert_eq!(answer["message"], "slash.model: unexpected `b` behind the model's name");
    let answer = command(&mut rig, "slash.model", "/personality a").await;
    assert_eq!(
        answer["message"],
        "slash.model: unknown command `/personality a`; expected /model NAME [--provider P]"
    );
    assert_eq!(
        given(&mut rig).await,
        json!(["small", "local", "Be good.", 6]),
        "a wrong one changes nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_personality_is_added_to_the_system_prompt() {
    let mut rig = rig_with_surroundings().await;
    rig.seed("s", json!({})).await;
    let ack = command(&mut rig, "slash.personality", "/personality pirate").await;
    assert_eq!(
        (&ack["output"], &ack["result"]),
        (&json!("personality: pirate"), &json!({"personality": "pirate"}))
    );
    assert_eq!(given(&mut rig).await[2], "Be good.\n\nSay arr.");
    let answer = command(&mut rig, "slash.personality", "/personality pirat").await;
    assert_eq!(
        answer["message"],
        "slash.personality: no personality `pirat`; the nearest is pirate; there are: judge, pirate"
    );
    assert_eq!(given(&mut rig).await[2], "Be good.\n\nSay arr.");
    let ack = command(&mut rig, "slash.personality", "/personality none").await;
    assert_eq!(ack["result"], json!({"personality": null}));
    assert_eq!(given(&mut rig).await[2], "Be good.");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_of_its_own_holds_until_the_config_is_read_again() {
    let mut rig = rig_with_surroundings().await;
    rig.seed("s", json!({})).await;
    let ack = command(&mut rig, "slash.prompt", "/prompt  Be\nkind. ").await;
    assert_eq!(ack["result"], json!({"system_prompt": "Be\nkind."}));
    assert_eq!(given(&mut rig).await[2], "Be\nkind.");
    let ack = command(&mut rig, "slash.prompt", "/prompt").await;
    assert_eq!(ack["result"], json!({"system_prompt": null}));
    // There is no file, so it says nothing any more.
    assert_eq!(ack["output"], "the config has no system prompt");
    assert_eq!(given(&mut rig).await[2], Value::Null);
    let answer = command(&mut rig, "slash.personality", "/personality judge").await;
    assert!(answer["message"].as_str().unwrap().contains("there is none at all"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_without_text_takes_what_the_file_says_by_now() {
    let mut rig = rig_with_surroundings().await;
    rig.seed("s", json!({})).await;
    let file = rig.home.path().join("config.yaml");
    std::fs::write(
        &file,
        "agent:\n  system_prompt: Be quick.\npersonalities:\n  poet: Rhyme.\nmodel:\n  name: other\n",
    )
    .unwrap();
    let ack = command(&mut rig, "slash.prompt", "/prompt").await;
    assert_eq!(ack["output"], "system prompt of the config: 9 characters");
    command(&mut rig, "slash.personality", "/personality poet").await;
    let found = given(&mut rig).await;
    assert_eq!((&found[0], &found[2]), (&json!("host's model"), &json!("Be quick.\n\nRhyme.")));
    std::fs::write(&file, "agent: [").unwrap();
    let answer = command(&mut rig, "slash.prompt", "/prompt").await;
    assert_eq!(answer["type"], "control.error");
    let message = answer["message"].as_str().unwrap();
    assert!(message.starts_with("slash.prompt: ") && message.contains("config.yaml"), "{message}");
    assert_eq!(given(&mut rig).await[2], "Be quick.\n\nRhyme.", "what was read holds");
}

#[tokio::test(start_paused = true)]
async fn a_seed_may_bring_all_that_controls_can_set() {
    let mut rig = rig_with_surroundings().await;
    rig.seed(
        "s",
        json!({"session_key": "new", "parent_session_key": "old", "model": "m", "provider": "p",
            "system_prompt": "Be kind.", "personality": "judge"}),
    )
    .await;
    assert_eq!(given(&mut rig).await, json!(["m", "p", "Be kind.\n\nBe strict.", 0]));
    rig.close_stdin();
    rig.rest().await;
    assert_eq!(rig.records()[0]["parent_session_key"], "old");
}
