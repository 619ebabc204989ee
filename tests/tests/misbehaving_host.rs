//! A host that misbehaves under `turnhost supervise`: each fault is told by its name, and harms nobody else.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use turnhost_testkit::{Ended, Scenario, Supervise};

fn finished(mut supervise: Supervise) {
    assert_eq!(supervise.finish(), Ended::Code(0), "{}", supervise.process.stderr());
}

#[test]
fn a_host_that_falls_silent_after_a_heartbeat_is_hung() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"hello": {}}),
        json!({"frame": {"type": "hb", "active_turns": 0}}),
        json!({"read": 1000}),
        json!({"sleep_ms": 600_000}),
    ]);
    let supervise = scenario
        .supervise(&["--heartbeat-secs", "1", "--hang-after-heartbeats", "1", "--respawn-max", "0"], &host);
    supervise.start();
    supervise.submit("s", "r", json!({}));
    let refusal = supervise
        .refused(json!({"op": "control", "sid": "c", "route_name": "session.save", "timeout_ms": 600_000}));
    assert_eq!(refusal["kind"], "hung");
    let error = supervise.ending("r");
    assert_eq!(
        (&error["type"], &error["reason"], &error["turn_started"]),
        (&json!("turn.error"), &json!("hung"), &Value::Null)
    );
    finished(supervise);
}

#[test]
fn a_host_that_never_sent_a_heartbeat_may_be_silent() {
    let scenario = Scenario::new();
    let host =
        scenario.faulty_argv(&[json!({"hello": {}}), json!({"sleep_ms": 2500}), json!({"serve": true})]);
    let supervise = scenario
        .supervise(&["--heartbeat-secs", "1", "--hang-after-heartbeats", "1", "--respawn-max", "0"], &host);
    supervise.start();
    supervise.submit("s", "r", json!({"delta_count": 1}));
    assert_eq!(supervise.ending("r")["type"], "turn.end");
    finished(supervise);
}

#[test]
fn a_host_that_does_not_read_is_hung_after_the_write_stall_and_nothing_waits_for_it() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"stop_reading": true}),
        json!({"hello": {}}),
        json!({"sleep_ms": 600_000}),
    ]);
    let supervise = scenario.supervise(&["--write-stall-ms", "3000", "--respawn-max", "0"], &host);
    supervise.start();
    supervise.submit("s", "big", json!({"text": "x".repeat(300_000)}));
    let status = supervise.ok(json!({"op": "status"}));
    assert_eq!(status["state"], "ready", "{status}");
    supervise.submit("s2", "small", json!({}));
    let applied = supervise.ok(json!({"op": "interrupt", "sid": "s2", "turn_id": "small"}));
    assert_eq!(applied["outcome"], "applied", "a turn of which nothing was written is removed");
    assert_eq!(supervise.ending("small")["interrupted"], true);
    let error = supervise.ending("big");
    assert_eq!((&error["reason"], &error["turn_started"]), (&json!("hung"), &Value::Null));
    finished(supervise);
}

#[test]
fn an_open_control_fails_at_once_when_the_host_dies() {
    let scenario = Scenario::new();
    let host =
        scenario.faulty_argv(&[json!({"hello": {}}), json!({"expect": "control"}), json!({"exit": 3})]);
    let supervise = scenario.supervise(&["--respawn-max", "0"], &host);
    supervise.start();
    let refusal = supervise
        .refused(json!({"op": "control", "sid": "s", "route_name": "session.save", "timeout_ms": 600_000}));
    assert_eq!(refusal["kind"], "crash");
    finished(supervise);
}

#[test]
fn stray_lines_are_told_counted_and_kept() {
    let scenario = Scenario::new();
    let long = "y".repeat(10_000);
    let host = scenario.faulty_argv(&[
        json!({"write": "server running\n\n\\xff\\xfe\n"}),
        json!({"hello": {}}),
        json!({"write": format!("{long}\n")}),
        json!({"serve": true}),
    ]);
    let supervise = scenario.supervise(&[], &host);
    supervise.start();
    let long_event = supervise.event("stray", |event| event["bytes"] == 10_000);
    assert!(
        long_event["line"].as_str().is_some_and(|line| line.len() <= 4096 + 64 && line.starts_with("yyy")),
        "{long_event}"
    );
    assert_eq!(supervise.event("stray", |event| event["bytes"] == 14)["line"], "server running");
    let escaped = supervise.event("stray", |event| event["bytes"] == 2);
    assert!(
        escaped["line"].as_str().is_some_and(|line| line.is_ascii() && line.contains("xff")),
        "{escaped}"
    );
    let status = supervise.ok(json!({"op": "status"}));
    assert_eq!((&status["counters"]["stray_lines"], &status["restarts"]), (&json!(3), &json!(0)));
    assert!(
        status["stray_tail"].as_array().is_some_and(|tail| tail.contains(&json!("server running"))),
        "{status}"
    );
    finished(supervise);
}

#[test]
fn at_most_twenty_stray_events_come_in_a_second_and_the_rest_is_counted() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"hello": {}}),
        json!({"repeat": {"times": 500, "steps": [{"write": "noise\n"}]}}),
        json!({"serve": true}),
    ]);
    let supervise = scenario.supervise(&[], &host);
    supervise.start();
    supervise.submit("s", "r", json!({"delta_count": 1}));
    supervise.ending("r");
    assert_eq!(supervise.ok(json!({"op": "status"}))["counters"]["stray_lines"], 500);
    let told = supervise.process.frames().iter().filter(|frame| frame["event"] == "stray").count();
    assert!((1..400).contains(&told), "{told} of 500 lines were told one by one");
    finished(supervise);
}

#[test]
fn every_broken_rule_is_told_with_its_kind_and_the_host_lives_on() {
    let end_of_a = r#"{"type":"turn.end","sid":"s","request_id":"a"}"#;
    let cases: Vec<(&str, String)> = vec![
        ("depth", format!("{{\"type\":\"rpc\",\"message\":{}{}}}\n", "[".repeat(5000), "]".repeat(5000))),
        ("utf8", "{\"type\":\"rpc\",\"sid\":\"s\",\"message\":{\"a\":\"\\\\xff\"}}\n".replace("\\\\", "\\")),
        ("json", "{\"type\":\"delta\",\n".to_owned()),
        ("not_object", "[1,2]\n".to_owned()),
        ("bad_field", "{\"type\":\"delta\",\"request_id\":7}\n".to_owned()),
        (
            "duplicate_key",
            "{\"type\":\"delta\",\"request_id\":\"a\",\"request_id\":\"a\",\"text\":\"\"}\n".to_owned(),
        ),
        ("unknown_type", "{\"type\":\"no.such\"}\n".to_owned()),
        ("hello_again", "{\"type\":\"hello\",\"host_pid\":1,\"boot_id\":\"boot\"}\n".to_owned()),
        ("unknown_request", "{\"type\":\"turn.end\",\"request_id\":\"never\"}\n".to_owned()),
        ("duplicate_terminal", format!("{end_of_a}\n{end_of_a}\n")),
        (
            "late_frame",
            format!("{end_of_a}\n{{\"type\":\"delta\",\"request_id\":\"a\",\"text\":\"late\"}}\n"),
        ),
        ("terminal_behind_text", format!("text {end_of_a}\n")),
        ("oversize", format!("{{\"type\":\"rpc\",\"pad\":\"{}\"}}\n", "x".repeat(20_000))),
    ];
    for (kind, bytes) in cases {
        let scenario = Scenario::new();
        let host = scenario.faulty_argv(&[
            json!({"hello": {"boot_id": "boot"}}),
            json!({"expect": "turn.start"}),
            json!({"write": bytes}),
            json!({"serve": true}),
        ]);
        let supervise = scenario.supervise(&["--max-frame-bytes", "16384"], &host);
        supervise.start();
        supervise.submit("s", "a", json!({}));
        let event = supervise.event("protocol_error", |event| event["kind"] == kind);
        assert!(event["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{event}");
        let told =
            supervise.process.frames().iter().filter(|frame| frame["event"] == "protocol_error").count();
        assert_eq!(told, 1, "{kind}: one event per line");
        if kind == "terminal_behind_text" {
            assert_eq!(supervise.ending("a")["reason"], "protocol");
        }
        supervise.submit("s2", "next", json!({"delta_count": 1}));
        assert_eq!(supervise.ending("next")["type"], "turn.end", "{kind}");
        let status = supervise.ok(json!({"op": "status"}));
        assert_eq!((&status["restarts"], &status["incarnation"]), (&json!(0), &json!(1)), "{kind}");
        assert!(supervise.endings("a").len() <= 1, "{kind}");
        finished(supervise);
    }
}

#[test]
fn a_terminal_frame_over_the_limit_ends_its_turn_and_no_other() {
    let scenario = Scenario::new();
    let big = format!(
        "{{\"type\":\"turn.end\",\"sid\":\"s\",\"request_id\":\"$a.request_id\",\"final_response\":\"{}\"}}\n",
        "x".repeat(40_000)
    );
    let host = scenario.faulty_argv(&[
        json!({"hello": {}}),
        json!({"expect": "turn.start", "bind": "a"}),
        json!({"expect": "turn.start", "bind": "b"}),
        json!({"write": big}),
        json!({"frame": {"type": "turn.end", "sid": "s2", "request_id": "$b.request_id"}}),
        json!({"serve": true}),
    ]);
    let supervise = scenario.supervise(&["--max-frame-bytes", "16384"], &host);
    supervise.start();
    supervise.submit("s", "a", json!({}));
    supervise.submit("s2", "b", json!({}));
    assert_eq!(supervise.ending("a")["reason"], "frame_too_large");
    assert_eq!(supervise.ending("b")["type"], "turn.end");
    supervise.event("protocol_error", |event| event["kind"] == "oversize");
    finished(supervise);
}

#[test]
fn rpc_frames_come_as_events_unchanged() {
    let scenario = Scenario::new();
    let message = json!({"jsonrpc": "2.0", "method": "event", "params": {"type": "x", "n": 1.5, "deep": [[{"a": null}]]}});
    let host = scenario.faulty_argv(&[
        json!({"hello": {}}),
        json!({"frame": {"type": "rpc", "sid": "s", "message": message}}),
        json!({"serve": true}),
    ]);
    let supervise = scenario.supervise(&[], &host);
    supervise.start();
    assert_eq!(supervise.event("rpc", |_| true)["message"], message);
    finished(supervise);
}

#[test]
fn stderr_is_drained_and_its_tail_is_in_the_status() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"stderr": {"bytes": 10_000_000, "newline": true}}),
        json!({"repeat": {"times": 200, "steps": [{"stderr": {"bytes": 5}}]}}),
        json!({"hello": {}}),
        json!({"serve": true}),
    ]);
    let supervise = scenario.supervise(&[], &host);
    supervise.start();
    turnhost_testkit::wait_until(turnhost_testkit::DEADLINE, "the stderr tail", || {
        let status = supervise.ok(json!({"op": "status"}));
        let tail = status["stderr_tail"].as_array().cloned().unwrap_or_default();
        (tail.len() == 80 && tail.iter().all(|line| line == "xxxxx")).then_some(())
    });
    finished(supervise);
}

#[test]
fn a_host_that_ignores_everything_is_killed_within_the_budget() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"ignore": ["TERM", "INT", "HUP"]}),
        json!({"stop_reading": true}),
        json!({"hello": {}}),
        json!({"sleep_ms": 600_000}),
    ]);
    let supervise = scenario.supervise(&["--grace-ms", "100"], &host);
    supervise.start();
    supervise.submit("s", "r", json!({}));
    let stopped = supervise.ok(json!({"op": "shutdown", "budget_ms": 25_000}));
    assert_eq!((&stopped["exit_code"], &stopped["signal"]), (&Value::Null, &json!(9)));
    let error = supervise.ending("r");
    assert_eq!((&error["type"], &error["reason"]), (&json!("turn.error"), &json!("shutdown")));
    finished(supervise);
}

#[test]
fn an_interrupt_never_starts_a_host_and_ends_a_turn_that_waits() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[json!({"sleep_ms": 600_000})]);
    let supervise = scenario.supervise(
        &["--hello-timeout-ms", "600000", "--unavailable-after-ms", "600000", "--grace-ms", "200"],
        &host,
    );
    assert_eq!(supervise.ok(json!({"op": "interrupt", "sid": "s"}))["outcome"], "not_found");
    assert_eq!(supervise.ok(json!({"op": "status"}))["state"], "stopped");
    assert_eq!(supervise.submit("s", "r", json!({}))["phase"], "waiting");
    let status = supervise.ok(json!({"op": "status"}));
    assert_eq!(
        (&status["state"], &status["open"]["turns"][0]["phase"]),
        (&json!("starting"), &json!("waiting"))
    );
    let applied = supervise.ok(json!({"op": "interrupt", "sid": "s", "turn_id": "r"}));
    assert_eq!((&applied["outcome"], &applied["turn"]), (&json!("applied"), &json!("r")));
    let end = supervise.ending("r");
    assert_eq!((&end["type"], &end["interrupted"]), (&json!("turn.end"), &json!(true)));
    assert_eq!(supervise.turn_frames("r").len(), 1);
    finished(supervise);
}
