//! Controls of a real host under `turnhost supervise`: what they set survives a crash of the host, and a compression ends
//! with whatever ends it.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use turnhost_testkit::{Ended, Scenario, Supervise};

/// Our own host; sessions that name the agent `exec` are answered by `sh`.
fn over_own_host(scenario: &Scenario) -> Supervise {
    let host = turnhost_testkit::binary("compute-host").display().to_string();
    scenario.supervise(&["--backoff-base-ms", "1"], &[host])
}

fn finished(mut supervise: Supervise) {
    assert_eq!(supervise.finish(), Ended::Code(0), "{}", supervise.process.stderr());
}

fn kill_host(supervise: &Supervise) {
    let before = supervise.process.frames().len();
    turnhost_testkit::signal(supervise.host_pid(), rustix::process::Signal::KILL);
    supervise.state_after(before, "backing_off");
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// So many turns with long answers.
fn long_history(turns: usize) -> Value {
    let of_turn = |turn: usize| {
        [
            message("user", &format!("prompt {turn}")),
            message("assistant", &format!("answer {turn} ").repeat(50)),
        ]
    };
    Value::Array((1..=turns).flat_map(of_turn).collect())
}

fn control(supervise: &Supervise, sid: &str, route: &str, more: Value) -> Value {
    let mut operation = json!({"op": "control", "sid": sid, "route_name": route});
    if let (Some(operation), Value::Object(more)) = (operation.as_object_mut(), more) {
        operation.extend(more);
    }
    supervise.ok(operation)
}

/// What the host of now has of a session, by a save.
fn saved(supervise: &Supervise, sid: &str) -> Value {
    let ack = control(supervise, sid, "session.save", json!({}));
    let file = std::fs::read(ack["result"]["file"].as_str().unwrap_or_default()).unwrap_or_default();
    match serde_json::from_slice(&file) {
        Ok(saved) => saved,
        Err(error) => panic!("no file was saved: {error}; {ack}"),
    }
}

#[test]
fn a_host_that_follows_a_crash_has_every_session_as_its_controls_left_it() {
    let scenario = Scenario::new();
    let supervise = over_own_host(&scenario);
    let routes = [
        ("compressed", "session.compress", json!({"command": "/compress doors"})),
        ("compacted", "slash.compress", json!({"command": "/compact"})),
        ("truncated", "prompt.submit.truncate", json!({"params": {"before_user_ordinal": 3}})),
        ("reset", "session.reset", json!({})),
        ("reloaded", "session.history.reload", json!({"params": {"history": [message("user", "other")]}})),
        ("retried", "slash.retry", json!({"command": "/retry"})),
    ];
    let mut before = Vec::new();
    for (sid, route, more) in routes {
        supervise.ok(json!({"op": "seed", "sid": sid, "session_key": format!("key of {sid}"), "history": long_history(5)}));
        let ack = control(&supervise, sid, route, more);
        assert_eq!(ack["history_version"], 1, "{route}: {ack}");
        let saved = saved(&supervise, sid);
        assert_eq!(saved["session_key"], ack["session_key"], "{route}");
        let is_child = ["session.compress", "slash.compress", "session.reset"].contains(&route);
        let parent = if is_child { json!(format!("key of {sid}")) } else { Value::Null };
        assert_eq!(saved["parent_session_key"], parent, "{route}");
        before.push((sid, saved));
    }
    assert_eq!(before[0].1["messages"].as_array().unwrap().len(), 6, "{}", before[0].1);
    kill_host(&supervise);
    for (sid, before) in before {
        let after = saved(&supervise, sid);
        for field in ["messages", "session_key", "parent_session_key"] {
            assert_eq!(after[field], before[field], "{sid} {field}");
        }
        let count = before["messages"].as_array().unwrap().len();
        supervise.submit(sid, &format!("turn of {sid}"), json!({"delta_count": 1}));
        let end = supervise.ending(&format!("turn of {sid}"));
        assert_eq!((&end["message_count"], &end["session_key"]), (&json!(count + 2), &before["session_key"]));
    }
    assert!(!supervise.process.frames().iter().any(|frame| frame["event"] == "session_lost"));
    finished(supervise);
}

#[test]
fn model_provider_and_prompt_survive_a_crash_too() {
    let scenario = Scenario::new();
    let supervise = over_own_host(&scenario);
    supervise.ok(json!({"op": "seed", "sid": "s", "history": long_history(1)}));
    control(&supervise, "s", "slash.model", json!({"command": "/model big --provider local"}));
    let ack = control(&supervise, "s", "slash.prompt", json!({"command": "/prompt Be kind."}));
    assert_eq!(ack["result"], json!({"system_prompt": "Be kind."}));
    kill_host(&supervise);
    supervise.submit("s", "t", json!({"delta_count": 1}));
    let end = supervise.ending("t");
    let info = &end["session_info"];
    assert_eq!((&info["model"], &info["provider"]), (&json!("big"), &json!("local")));
    assert_eq!(end["message_count"], 4);
    let after = saved(&supervise, "s");
    assert_eq!((&after["system_prompt"], &after["model"]), (&json!("Be kind."), &json!("big")));
    control(&supervise, "s", "slash.prompt", json!({"command": "/prompt"}));
    kill_host(&supervise);
    assert_eq!(saved(&supervise, "s")["system_prompt"], Value::Null, "what was taken back stays so");
    finished(supervise);
}

/// An agent that starts a child, says so in a file, and goes on for ever.
fn sleeps(scenario: &Scenario) -> Value {
    let script =
        format!("sleep 100000 & sleep 100000 & touch {}; wait", scenario.home().join("writes").display());
    json!({"name": "exec", "argv": ["sh", "-c", script], "prompt": "stdin"})
}

/// Begins a compression whose agent never ends, and waits until that runs with both its children.
fn compressing(scenario: &Scenario) -> (Supervise, String, Vec<i32>) {
    let supervise = over_own_host(scenario);
    supervise.ok(json!({"op": "seed", "sid": "s", "history": long_history(5), "agent": sleeps(scenario)}));
    let before = scenario.processes();
    let id = supervise.begin(json!({"op": "control", "sid": "s", "route_name": "session.compress"}));
    let all = scenario.wait_processes("the agent and its two children", |now| {
        now.iter().filter(|pid| !before.contains(pid)).count() >= 3 && scenario.home().join("writes").exists()
    });
    let agent = all.into_iter().filter(|pid| !before.contains(pid)).collect();
    (supervise, id, agent)
}

#[test]
fn an_interrupt_ends_a_compression_with_its_processes_and_the_session_goes_on() {
    let scenario = Scenario::new();
    let (supervise, id, agent) = compressing(&scenario);
    assert_eq!(
        supervise.refused(json!({"op": "control", "sid": "s", "route_name": "session.reset"}))["kind"],
        "busy"
    );
    assert_eq!(supervise.ok(json!({"op": "interrupt", "sid": "s"}))["outcome"], "applied");
    let ack = supervise.answer(&id);
    assert_eq!((&ack["ok"], &ack["result"]["result"]["status"]), (&json!(true), &json!("aborted")), "{ack}");
    assert_eq!((&ack["result"]["history_version"], &ack["result"]["message_count"]), (&json!(0), &json!(10)));
    scenario.wait_processes("the agent to be gone", |now| !agent.iter().any(|pid| now.contains(pid)));
    supervise.submit("s", "t", json!({"agent": "scripted", "delta_count": 1}));
    assert_eq!(supervise.ending("t")["message_count"], 12);
    finished(supervise);
}

#[test]
fn a_host_that_is_told_to_stop_leaves_nothing_of_a_compression() {
    for end in ["shutdown", "kill the host"] {
        let scenario = Scenario::new();
        let (supervise, id, agent) = compressing(&scenario);
        match end {
            "shutdown" => {
                supervise.ok(json!({"op": "shutdown"}));
                // The host's answer, or the supervisor's own if that was quicker.
                supervise.answer(&id);
            }
            _ => {
                turnhost_testkit::signal(supervise.host_pid(), rustix::process::Signal::KILL);
                let answer = supervise.answer(&id);
                assert_eq!(answer["error"]["kind"], "crash", "{answer}");
            }
        }
        scenario.wait_processes("the agent to be gone", |now| !agent.iter().any(|pid| now.contains(pid)));
        finished(supervise);
    }
}

#[test]
fn a_host_whose_stdin_ends_or_that_is_terminated_answers_and_ends_what_writes_the_summary() {
    for end in ["stdin", "signal"] {
        let scenario = Scenario::new();
        let mut host =
            scenario.launch(&turnhost_testkit::binary("compute-host")).args(["--drain-secs", "0"]).start();
        host.send(
            &json!({"type": "session.seed", "sid": "s", "request_id": "seed", "history": long_history(5),
            "agent": sleeps(&scenario)}),
        );
        host.answer("seed", "session.seeded");
        host.send(&json!({"type": "control", "sid": "s", "request_id": "c", "route_name": "slash.compress"}));
        scenario.wait_processes("the agent and its children", |now| {
            now.len() >= 4 && scenario.home().join("writes").exists()
        });
        match end {
            "stdin" => host.close_stdin(),
            _ => host.signal(Signal::SIGTERM),
        }
        assert_eq!(host.wait_exit(), Ended::Code(0), "{end}");
        let ack = host.answer("c", "control.ack");
        assert_eq!(ack["result"]["summary"]["note"], "the host is shutting down", "{end}");
        scenario.wait_nothing_left();
    }
}
