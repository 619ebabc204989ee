//! `compute-host` as a real process: every way in which it can be stopped, and that nothing is left of it.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use turnhost_testkit::{Ended, Launch, Process, Scenario};

fn script(host: &Process, sid: &str, request_id: &str, steps: Value) {
    host.send(
        &json!({"type": "turn.start", "sid": sid, "request_id": request_id, "text": "hi", "script": steps}),
    );
}

/// Starts a turn that streams once and then obeys an interrupt whenever it comes.
fn obedient(host: &Process, sid: &str, request_id: &str) {
    script(host, sid, request_id, json!([{"delta": "a"}, {"sleep_ms": 600_000}]));
    host.answer(request_id, "delta");
}

/// Starts a turn whose program ignores every polite way to end it.
fn stuck(host: &Process, sid: &str, request_id: &str) {
    let command = "trap '' INT TERM HUP; echo ready; while :; do sleep 1; done";
    let agent = json!({"name": "exec", "argv": ["sh", "-c", command], "prompt": "none"});
    host.send(
        &json!({"type": "turn.start", "sid": sid, "request_id": request_id, "text": "hi", "agent": agent}),
    );
    host.answer(request_id, "delta");
}

/// Two processes that only a sweep of the tree finds: one in its own session that ignores TERM, and its child.
fn detached(host: &Process, sid: &str, request_id: &str) {
    let command = "trap '' TERM HUP INT; sleep 600 & echo up >&2; wait";
    script(
        host,
        sid,
        request_id,
        json!([{"spawn": ["sh", "-c", command], "detach": true}, {"delta": "spawned"}]),
    );
    host.ending(request_id);
}

/// The lines of the host's log that name this session.
fn finalized(scenario: &Scenario, sid: &str) -> String {
    let log = scenario.home().join("logs/compute-host.log");
    let text = std::fs::read_to_string(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
    let mut lines = Vec::new();
    for line in text.lines() {
        let record: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON: {line}: {error}"));
        if record.to_string().contains(&format!("\"{sid}\"")) {
            lines.push(line.to_owned());
        }
    }
    assert_eq!(lines.len(), 1, "one record for session {sid}: {lines:?}");
    lines.concat()
}

#[test]
fn a_shutdown_frame_interrupts_running_turns_and_is_acknowledged_last() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&["--workers", "2"]);
    obedient(&host, "a", "obeys");
    stuck(&host, "b", "stuck");
    script(&host, "c", "waiting", json!([{"delta": "never"}]));
    host.send(&json!({"type": "shutdown", "request_id": "bye"}));
    host.send(&json!({"type": "turn.start", "sid": "d", "request_id": "late", "text": "hi"}));
    assert_eq!(host.wait_exit(), Ended::Code(0));
    assert_eq!(host.answer("obeys", "turn.end")["interrupted"], true);
    for id in ["stuck", "waiting"] {
        assert_eq!(host.answer(id, "turn.error")["reason"], "shutdown", "{id}");
    }
    assert_eq!(host.types_of("waiting"), ["turn.error"]);
    assert_eq!(host.types_of("late"), ["turn.error"]);
    assert_eq!(host.answer("late", "turn.error")["reason"], "shutdown");
    let frames = host.frames();
    let last = frames.last().cloned().unwrap_or_default();
    assert_eq!((&last["type"], &last["request_id"]), (&json!("shutdown.ack"), &json!("bye")));
    assert!(finalized(&scenario, "a").contains("compute_host_shutdown"));
}

#[test]
fn an_idle_host_shuts_down_with_nothing_but_the_acknowledgement() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&[]);
    host.send(&json!({"type": "shutdown", "request_id": "bye"}));
    assert_eq!(host.wait_exit(), Ended::Code(0));
    let words: Vec<_> = host.frames().iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(words, ["hello", "shutdown.ack"]);
}

#[test]
fn term_and_int_let_a_running_turn_finish_and_take_no_new_one() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let scenario = Scenario::new();
        let mut host = scenario.host(&[]);
        script(&host, "s", "r", json!([{"ask": {"command": "?", "choices": ["go"]}}, {"delta": "done"}]));
        let question = host.answer("r", "event");
        host.signal(signal);
        // The signal has been seen once a new turn is refused; before that the turn is taken and ends by itself.
        let mut round = 0;
        loop {
            let id = format!("late{round}");
            host.send(
                &json!({"type": "turn.start", "sid": id, "request_id": id, "text": "x", "delta_count": 0}),
            );
            if host.ending(&id)["reason"] == "shutdown" {
                break;
            }
            round += 1;
        }
        host.send(&json!({"type": "respond", "sid": "s", "request_id": "p", "approval_id": question["approval_id"], "choice": "go"}));
        assert_eq!(host.wait_exit(), Ended::Code(0), "{signal}");
        let end = host.answer("r", "turn.end");
        assert_eq!(end["interrupted"], false, "{signal}");
        assert!(end["final_response"].as_str().is_some_and(|text| text.ends_with("done")), "{signal}: {end}");
        assert!(finalized(&scenario, "s").contains("compute_host_sigterm"), "{signal}");
    }
}

#[test]
fn after_the_drain_a_running_turn_is_interrupted() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&["--drain-secs", "0"]);
    obedient(&host, "a", "obeys");
    stuck(&host, "b", "stuck");
    host.signal(Signal::SIGTERM);
    assert_eq!(host.wait_exit(), Ended::Code(0));
    assert_eq!(host.answer("obeys", "turn.end")["interrupted"], true);
    assert_eq!(host.answer("stuck", "turn.error")["reason"], "shutdown");
    assert!(finalized(&scenario, "a").contains("compute_host_sigterm"));
    assert!(finalized(&scenario, "b").contains("compute_host_sigterm"));
}

#[test]
fn the_end_of_stdin_ends_every_turn_at_once() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&[]);
    obedient(&host, "a", "obeys");
    stuck(&host, "b", "stuck");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));
    assert_eq!(host.answer("obeys", "turn.end")["interrupted"], true);
    assert_eq!(host.answer("stuck", "turn.error")["reason"], "shutdown");
    assert!(finalized(&scenario, "a").contains("compute_host_stdin_closed"));
}

#[test]
fn a_hangup_ends_every_turn_at_once() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&[]);
    obedient(&host, "a", "obeys");
    host.signal(Signal::SIGHUP);
    assert_eq!(host.wait_exit(), Ended::Code(0));
    assert_eq!(host.answer("obeys", "turn.end")["interrupted"], true);
}

/// A shell that starts the host with the test's own pipes and waits for it.
fn under_a_shell(scenario: &Scenario) -> Launch {
    let host = turnhost_testkit::binary("compute-host").display().to_string();
    let command = "exec 3<&0; \"$0\" <&3 & wait";
    scenario.launch(std::path::Path::new("/bin/sh")).args(["-c", command, &host])
}

#[test]
fn a_host_whose_parent_is_gone_says_so_and_ends() {
    let scenario = Scenario::new();
    let mut shell = under_a_shell(&scenario).start();
    let hello = shell.wait_for("hello", |frame| frame["type"] == "hello");
    obedient(&shell, "a", "obeys");
    let parent = shell.pid();
    shell.signal(Signal::SIGKILL);
    let orphan = shell.wait_for("the orphan frame", |frame| frame["type"] == "orphan");
    assert_eq!(orphan["old_ppid"], parent);
    assert!(orphan["ppid"].as_i64().is_some_and(|ppid| ppid != i64::from(parent)), "{orphan}");
    assert!(orphan["host_ns"].is_u64(), "{orphan}");
    assert_ne!(hello["host_pid"], parent);
    assert_eq!(shell.answer("obeys", "turn.end")["interrupted"], true);
    scenario.wait_nothing_left();
    assert_eq!(shell.wait_exit(), Ended::Signal(9));
    assert!(finalized(&scenario, "a").contains("compute_host_orphan"));
}

#[test]
fn a_stdout_that_nobody_reads_any_more_ends_the_host() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&[]);
    host.wait_for("hello", |frame| frame["type"] == "hello");
    host.close_stdout();
    script(&host, "s", "r", json!([{"deltas": 100, "bytes": 100, "delay_ms": 1}]));
    assert_eq!(host.wait_exit(), Ended::Code(0));
}

#[test]
fn no_stop_waits_for_a_full_pipe() {
    for stop in ["shutdown", "eof", "term"] {
        let scenario = Scenario::new();
        let mut host = scenario.program("compute-host").args(["--drain-secs", "0"]).stdout_unread().start();
        script(&host, "s", "r", json!([{"stderr": "begun\n"}, {"deltas": 10_000, "bytes": 10_000}]));
        host.wait_stderr("begun");
        match stop {
            "shutdown" => host.send(&json!({"type": "shutdown", "request_id": "bye"})),
            "term" => host.signal(Signal::SIGTERM),
            _ => host.close_stdin(),
        }
        assert_eq!(host.wait_exit(), Ended::Code(0), "{stop}");
    }
}

#[test]
fn every_stop_ends_what_turns_left_behind() {
    for stop in ["shutdown", "eof", "term", "hup"] {
        let scenario = Scenario::new();
        let mut host = scenario.host(&["--drain-secs", "0"]);
        detached(&host, "s", "r");
        let before = scenario.wait_processes("the detached processes", |alive| alive.len() >= 3);
        assert!(before.contains(&host.pid()));
        match stop {
            "shutdown" => host.send(&json!({"type": "shutdown", "request_id": "bye"})),
            "term" => host.signal(Signal::SIGTERM),
            "hup" => host.signal(Signal::SIGHUP),
            _ => host.close_stdin(),
        }
        assert_eq!(host.wait_exit(), Ended::Code(0), "{stop}");
        assert_eq!(scenario.processes(), [] as [i32; 0], "{stop}: the host's own end comes last");
    }
}

#[test]
fn an_orphan_ends_what_turns_left_behind() {
    let scenario = Scenario::new();
    let mut shell = under_a_shell(&scenario).start();
    detached(&shell, "s", "r");
    scenario.wait_processes("the detached processes", |alive| alive.len() >= 4);
    shell.signal(Signal::SIGKILL);
    scenario.wait_nothing_left();
    assert_eq!(shell.wait_exit(), Ended::Signal(9));
}

#[test]
fn every_session_that_a_stop_ends_is_in_the_log_once() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&[]);
    for index in 0..20 {
        host.send(&json!({"type": "session.seed", "sid": format!("session-{index:02}"), "request_id": format!("seed{index}"), "history": []}));
    }
    host.answer("seed19", "session.seeded");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));
    for index in 0..20 {
        assert!(finalized(&scenario, &format!("session-{index:02}")).contains("compute_host_stdin_closed"));
    }
}
