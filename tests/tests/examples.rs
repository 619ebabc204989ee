//! The example programs do what their comments say.

use pretty_assertions::assert_eq;
use serde_json::json;
use turnhost_testkit::{Ended, Process, Scenario, binary, example};

fn embedder(scenario: &Scenario, name: &str) -> Process {
    scenario.launch(&example(name)).args([binary("compute-host")]).start()
}

/// What `compute-host` streams by default.
fn answer(sid: &str) -> String {
    (0..24).map(|index| format!("{sid}:hello:{index:04} ")).collect()
}

#[test]
fn embed_async_streams_a_turn_and_stops_the_host() {
    let scenario = Scenario::new();
    let mut process = embedder(&scenario, "embed_async");
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    assert_eq!(process.strays(), [answer("session-1")]);
    let stderr = process.stderr();
    assert!(stderr.contains("speaks protocol 1"), "{stderr}");
    assert!(stderr.contains("ended with Some(0); left behind: []"), "{stderr}");
    scenario.wait_nothing_left();
}

#[test]
fn embed_blocking_runs_two_sessions_at_once_and_follows_the_state() {
    let scenario = Scenario::new();
    let mut process = embedder(&scenario, "embed_blocking");
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    let lines = process.strays();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, sid) in lines.iter().zip(["left", "right"]) {
        assert!(line.starts_with(&answer(sid)) && line.contains("turn.end"), "{line}");
    }
    assert!(process.stderr().contains("host is Ready, incarnation 1"), "{}", process.stderr());
    scenario.wait_nothing_left();
}

#[test]
fn an_embedder_without_a_host_is_told_how_to_name_one() {
    let scenario = Scenario::new();
    for name in ["embed_async", "embed_blocking"] {
        let mut process = scenario.launch(&example(name)).start();
        assert_eq!(process.wait_exit(), Ended::Code(1));
        assert!(process.stderr().contains("usage:"), "{}", process.stderr());
    }
}

#[test]
fn an_agent_of_ones_own_is_driven_as_any_host() {
    let scenario = Scenario::new();
    let host = example("own_agent").display().to_string();
    let mut supervise = scenario.supervise(&[], &[host]);
    supervise.ok(json!({"op": "submit_turn", "sid": "s", "request_id": "r", "text": "one two three"}));
    assert_eq!(supervise.ending("r")["final_response"], "three two one ");
    supervise.ok(json!({"op": "submit_turn", "sid": "s", "request_id": "empty", "text": " "}));
    let end = supervise.ending("empty");
    assert_eq!((&end["type"], &end["reason"]), (&json!("turn.error"), &json!("exception")));
    assert_eq!(supervise.finish(), Ended::Code(0));
    scenario.wait_nothing_left();
}

#[test]
fn the_ten_lines_of_python_in_the_readme_stream_a_turn() {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("```python\n").expect("a Python program");
    let (program, _) = rest.split_once("```").expect("its end");
    let scenario = Scenario::new();
    let binaries = binary("turnhost").parent().map(std::path::Path::to_path_buf).expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut python = scenario
        .launch(std::path::Path::new("python3"))
        .args(["-c", program])
        .env("PATH", format!("{}:{path}", binaries.display()))
        .start();
    python.wait_stdout_end();
    assert_eq!(python.wait_exit(), Ended::Code(0), "{}", python.stderr());
    assert_eq!(python.strays(), [answer("s")]);
    scenario.wait_nothing_left();
}
