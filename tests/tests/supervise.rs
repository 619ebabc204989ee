//! The contract of `turnhost supervise`: operations, answers, errors and events, as `docs/protocol.md` has them.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use turnhost_testkit::{Ended, Scenario, Supervise};

/// A host of ours.
fn own_host() -> Vec<String> {
    vec![turnhost_testkit::binary("turnhost").display().to_string(), "host".into()]
}

fn over_own_host(scenario: &Scenario, options: &[&str]) -> Supervise {
    scenario.supervise(options, &own_host())
}

fn over_faulty(scenario: &Scenario, options: &[&str], steps: &[Value]) -> Supervise {
    scenario.supervise(options, &scenario.faulty_argv(steps))
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().into_iter().flat_map(|object| object.keys().cloned()).collect()
}

fn names(words: &str) -> BTreeSet<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

/// The index of the first line that `wanted` picks.
fn index_of(supervise: &Supervise, wanted: impl Fn(&Value) -> bool) -> Option<usize> {
    supervise.process.frames().iter().position(wanted)
}

#[test]
fn status_answers_before_a_start_with_every_field() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    let status = supervise.ok(json!({"op": "status"}));
    let wanted = names(
        "state pid incarnation boot_id build_sha uptime_ms restarts next_start_in_ms last_exit \
         last_heartbeat_ms_ago active_turns open counters stderr_tail stray_tail registry",
    );
    assert_eq!(wanted.difference(&keys(&status)).collect::<Vec<_>>(), [] as [&String; 0]);
    let counters = names(
        "frames_in frames_out bytes_in bytes_out turns_ended turns_failed stray_lines protocol_errors late_frames \
         late_acks duplicate_terminals",
    );
    assert_eq!(keys(&status["counters"]), counters);
    assert_eq!(keys(&status["open"]), names("turns controls"));
    assert_eq!((&status["state"], &status["pid"]), (&json!("stopped"), &json!(null)));
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn start_waits_for_the_hello_and_is_fine_when_ready() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    let first = supervise.ok(json!({"op": "start"}));
    assert_eq!(keys(&first), names("pid incarnation boot_id build_sha protocol reconciled"));
    assert_eq!((&first["incarnation"], &first["protocol"]), (&json!(1), &json!(1)));
    assert_eq!(supervise.ok(json!({"op": "start"})), first);
    let status = supervise.ok(json!({"op": "status"}));
    assert_eq!((&status["state"], &status["pid"]), (&json!("ready"), &first["pid"]));
    for (state, start) in [("starting", 0), ("ready", 0)] {
        let (_, event) = supervise.state_after(start, state);
        let wanted = names("event state pid incarnation boot_id restarts last_exit next_start_in_ms");
        assert_eq!(keys(&event), wanted);
    }
    assert_eq!(supervise.finish(), Ended::Code(0));
    scenario.wait_nothing_left();
}

#[test]
fn a_turn_is_accepted_first_and_then_streams_to_its_one_end() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    let turn = json!({"op": "submit_turn", "sid": "s", "request_id": "r", "text": "hi", "delta_count": 3});
    let accepted = supervise.ok(turn);
    assert_eq!(accepted["request_id"], "r");
    assert!(["waiting", "sent"].contains(&accepted["phase"].as_str().unwrap()), "{accepted}");
    let end = supervise.ending("r");
    assert_eq!(end["final_response"], "s:hi:0000 s:hi:0001 s:hi:0002 ");
    let types: Vec<Value> = supervise.turn_frames("r").iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(json!(types), json!(["turn.started", "delta", "delta", "delta", "turn.end"]));
    let answer = index_of(&supervise, |line| line["ok"] == true).unwrap();
    assert!(answer < index_of(&supervise, |line| line["event"] == "turn").unwrap());
    // Without a request_id one is made.
    let made = supervise.ok(json!({"op": "submit_turn", "sid": "s", "text": "hi", "delta_count": 0}));
    let made = made["request_id"].as_str().unwrap().to_owned();
    assert!(!made.is_empty() && made != "r");
    assert_eq!(supervise.ending(&made)["type"], "turn.end");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn submits_reach_the_host_in_the_order_of_the_input() {
    // More than the queue of the supervisor holds, and more than one turn of a runtime takes.
    let sent: Vec<String> = (0..1000).map(|n| format!("turn {n}")).collect();
    let mut steps = vec![json!({"hello": {}})];
    steps.extend((0..sent.len()).map(|n| json!({"expect": "turn.start", "bind": format!("t{n}")})));
    let heard: Vec<String> = (0..sent.len()).map(|n| format!("$t{n}.request_id")).collect();
    steps.push(json!({"frame": {"type": "rpc", "sid": "s", "message": {"heard": heard}}}));
    steps.push(json!({"serve": true}));
    // All in one write: none waits for the answer of the one before.
    let lines: String = sent
        .iter()
        .map(|id| format!("{}\n", json!({"id": id, "op": "submit_turn", "sid": "s", "request_id": id})))
        .collect();
    for host_is_ready in [false, true] {
        let scenario = Scenario::new();
        let mut supervise = over_faulty(&scenario, &[], &steps);
        if host_is_ready {
            supervise.start();
        }
        supervise.process.send_bytes(lines.as_bytes());
        let heard = supervise.event("rpc", |event| event["message"]["heard"].is_array());
        assert_eq!(heard["message"]["heard"], json!(sent), "ready: {host_is_ready}");
        assert_eq!(supervise.finish(), Ended::Code(0));
    }
}

#[test]
fn unknown_fields_reach_the_host_and_come_back() {
    let scenario = Scenario::new();
    let steps = [
        json!({"hello": {}}),
        json!({"expect": "turn.start", "bind": "t"}),
        json!({"frame": {"type": "turn.end", "request_id": "$t.request_id", "interrupted": false,
                          "final_response": "$t.novel", "echo": "$t.nested"}}),
        json!({"serve": true}),
    ];
    let mut supervise = over_faulty(&scenario, &[], &steps);
    supervise
        .ok(json!({"op": "submit_turn", "sid": "s", "request_id": "r", "novel": "new", "nested": "deep"}));
    let end = supervise.ending("r");
    assert_eq!((&end["final_response"], &end["echo"]), (&json!("new"), &json!("deep")));
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_seed_is_answered_with_its_counts_and_a_control_with_the_frame_of_its_ack() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    let history = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    let seeded = supervise.ok(json!({"op": "seed", "sid": "s", "history": history}));
    assert_eq!(seeded, json!({"history_version": 0, "message_count": 2}));
    let ack = supervise.ok(json!({"op": "control", "sid": "s", "route_name": "session.reset"}));
    assert_eq!((&ack["type"], &ack["route_name"]), (&json!("control.ack"), &json!("session.reset")));
    assert_eq!(ack["message_count"], 0);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn refused_controls_have_their_kinds() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    let control = |sid: &str, route: &str| json!({"op": "control", "sid": sid, "route_name": route});
    let kind = |operation: Value| supervise.refused(operation)["kind"].clone();
    // Refused before anything is sent, and so before anything is started.
    assert_eq!(kind(control("s", "session.dance")), "unclassified_route");
    assert_eq!(supervise.ok(json!({"op": "status"}))["state"], "stopped");
    assert_eq!(kind(control("nobody", "session.reset")), "session_not_found");
    supervise.ok(json!({"op": "seed", "sid": "s"}));
    assert_eq!(kind(control("s", "prompt.submit")), "control_failed");
    assert_eq!(kind(control("s", "slash.retry")), "control_failed");
    supervise
        .ok(json!({"op": "submit_turn", "sid": "s", "request_id": "r", "script": [{"sleep_ms": 600_000}]}));
    supervise.turn_frame("r", "turn.started");
    assert_eq!(kind(control("s", "session.reset")), "busy");
    assert_eq!(kind(json!({"op": "seed", "sid": "s"})), "busy");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn an_interrupt_tells_what_came_of_it_and_starts_nothing() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    let interrupted = supervise.ok(json!({"op": "interrupt", "sid": "s"}));
    assert_eq!(interrupted, json!({"outcome": "not_found", "turn": null}));
    assert_eq!(supervise.ok(json!({"op": "status"}))["state"], "stopped");
    supervise
        .ok(json!({"op": "submit_turn", "sid": "s", "request_id": "r", "script": [{"sleep_ms": 600_000}]}));
    supervise.turn_frame("r", "turn.started");
    let interrupted = supervise.ok(json!({"op": "interrupt", "sid": "s", "turn_id": "r"}));
    assert_eq!(interrupted, json!({"outcome": "applied", "turn": "r"}));
    assert_eq!(supervise.ending("r")["interrupted"], true);
    let interrupted = supervise.ok(json!({"op": "interrupt", "sid": "s", "turn_id": "r"}));
    assert_eq!(interrupted["outcome"], "already_ended");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn lines_that_are_no_operations_are_refused_and_reading_goes_on() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    let bad = [
        ("nonsense", json!(null)),
        ("[1,2]", json!(null)),
        (r#"{"op":"status"}"#, json!(null)),
        (r#"{"id":["x"],"op":"status"}"#, json!(null)),
        (r#"{"id":"a"}"#, json!("a")),
        (r#"{"id":"b","op":"dance"}"#, json!("b")),
        (r#"{"id":"c","op":"submit_turn","text":"no session"}"#, json!("c")),
        (r#"{"id":"d","op":"submit_turn","sid":"s","text":7}"#, json!("d")),
        (r#"{"id":"e","op":"shutdown","budget_ms":"soon"}"#, json!("e")),
        (r#"{"id":"f","op":"submit_turn","sid":"s","request_id":""}"#, json!("f")),
    ];
    for (line, _) in &bad {
        supervise.process.send_bytes(format!("{line}\n").as_bytes());
    }
    supervise.process.send_bytes(b"\xff\xfe{\n\r\n\n");
    supervise.ok(json!({"op": "status", "id": "last"}));
    let mut answers = supervise.process.frames();
    answers.retain(|line| line["ok"] == false);
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    let wanted: Vec<&Value> = bad.iter().map(|(_, id)| id).chain([&json!(null)]).collect();
    assert_eq!(ids, wanted);
    for answer in &answers {
        assert_eq!(answer["error"]["kind"], "usage", "{answer}");
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn an_open_request_id_is_not_given_out_twice_and_a_large_frame_not_sent() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &["--max-frame-bytes", "20000"]);
    let turn = json!({"op": "submit_turn", "sid": "s", "request_id": "r", "script": [{"sleep_ms": 600_000}]});
    supervise.ok(turn.clone());
    assert_eq!(supervise.refused(turn)["kind"], "duplicate_request");
    // A little too large, and so large that the line is not even kept.
    for bytes in [20_001, 30_000, 5_000_000] {
        let turn = json!({"op": "submit_turn", "sid": "t", "request_id": "x", "text": "x".repeat(bytes)});
        assert_eq!(supervise.refused(turn)["kind"], "too_large", "{bytes}");
    }
    assert_eq!(supervise.endings("x"), [] as [Value; 0]);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_host_that_cannot_be_started_is_told_with_its_kind_and_advice() {
    let scenario = Scenario::new();
    let missing = scenario.home().join("no such host").display().to_string();
    let mut supervise = scenario.supervise(&[], &[missing]);
    let error = supervise.refused(json!({"op": "start"}));
    assert_eq!((&error["kind"], &error["errno"]), (&json!("spawn_failed"), &json!(2)));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("no such host") && message.contains("ENOENT"), "{message}");
    let turn = supervise.op(json!({"op": "submit_turn", "sid": "s", "request_id": "r"}));
    if turn["ok"] == true {
        let end = supervise.ending("r");
        assert_eq!((&end["reason"], &end["turn_started"]), (&json!("unavailable"), &json!(false)));
    }
    assert_eq!(supervise.ok(json!({"op": "status"}))["state"], "stopped");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_host_that_is_not_the_one_expected_is_told_with_both_values() {
    for (options, hello, kind) in [
        (&["--expected-build-sha", "good"][..], json!({"build_sha": "bad"}), "build_mismatch"),
        (&["--expected-home", "/good"], json!({"hermes_home": "/bad"}), "home_mismatch"),
    ] {
        let scenario = Scenario::new();
        let mut supervise =
            over_faulty(&scenario, options, &[json!({"hello": hello}), json!({"serve": true})]);
        let error = supervise.refused(json!({"op": "start"}));
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["kind"], kind);
        assert!(message.contains("good") && message.contains("bad"), "{message}");
        scenario.wait_processes("the host's end", |alive| alive.len() == 1);
        assert_eq!(supervise.finish(), Ended::Code(0));
    }
}

#[test]
fn a_host_that_says_no_hello_is_told_apart_from_one_that_ends() {
    let scenario = Scenario::new();
    let options = ["--hello-timeout-ms", "200", "--respawn-max", "0"];
    let mut supervise = over_faulty(&scenario, &options, &[json!({"sleep_ms": 600_000})]);
    assert_eq!(supervise.refused(json!({"op": "start"}))["kind"], "no_hello");
    assert_eq!(supervise.finish(), Ended::Code(0));
    let options = ["--hello-timeout-ms", "600000", "--respawn-max", "0"];
    let mut supervise = over_faulty(&scenario, &options, &[json!({"exit": 3})]);
    assert_eq!(supervise.refused(json!({"op": "start"}))["kind"], "exited_before_hello");
    assert_eq!(supervise.ok(json!({"op": "status"}))["last_exit"]["code"], 3);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_start_that_waits_holds_up_nothing_and_ends_with_the_input() {
    let scenario = Scenario::new();
    let mut supervise =
        over_faulty(&scenario, &["--hello-timeout-ms", "600000"], &[json!({"sleep_ms": 600_000})]);
    let start = supervise.begin(json!({"op": "start"}));
    supervise.state_after(0, "starting");
    assert_eq!(supervise.ok(json!({"op": "status"}))["state"], "starting");
    supervise.process.close_stdin();
    assert_eq!(supervise.answer(&start)["error"]["kind"], "shutdown");
    assert_eq!(supervise.process.wait_exit(), Ended::Code(0));
    scenario.wait_nothing_left();
}

#[test]
fn a_crash_ends_what_was_open_and_too_many_end_everything_until_a_reset() {
    let scenario = Scenario::new();
    let steps = [json!({"hello": {}}), json!({"expect": "turn.start"}), json!({"signal": "KILL"})];
    let options = ["--respawn-max", "1", "--backoff-base-ms", "1", "--backoff-max-ms", "1"];
    let mut supervise = over_faulty(&scenario, &options, &steps);
    supervise.ok(json!({"op": "submit_turn", "sid": "s", "request_id": "1"}));
    let end = supervise.ending("1");
    let wanted = names(
        "type sid request_id reason message turn_started exit_code signal signal_name stderr_tail delivered incarnation",
    );
    assert_eq!(keys(&end), wanted);
    assert_eq!(
        (&end["reason"], &end["signal_name"], &end["incarnation"]),
        (&json!("crash"), &json!("SIGKILL"), &json!(1))
    );
    supervise.ok(json!({"op": "submit_turn", "sid": "s", "request_id": "2"}));
    assert_eq!(supervise.ending("2")["incarnation"], 2);
    supervise.state_after(0, "crash_looped");
    let turn = json!({"op": "submit_turn", "sid": "s", "request_id": "3"});
    assert_eq!(supervise.refused(turn.clone())["kind"], "crash_loop");
    assert_eq!(supervise.refused(json!({"op": "start"}))["kind"], "crash_loop");
    assert_eq!(supervise.ok(json!({"op": "reset"})), json!({"state": "stopped"}));
    supervise.ok(turn);
    assert_eq!(supervise.ending("3")["reason"], "crash");
    assert_eq!(supervise.endings("3").len(), 1);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn an_ack_that_does_not_come_is_a_timeout_and_is_counted_when_it_does() {
    let scenario = Scenario::new();
    let steps = [
        json!({"hello": {}}),
        json!({"expect": "control", "bind": "c"}),
        json!({"expect": "control", "bind": "d"}),
        json!({"frame": {"type": "control.ack", "request_id": "$c.request_id"}}),
        json!({"frame": {"type": "control.ack", "request_id": "$d.request_id"}}),
        json!({"serve": true}),
    ];
    let mut supervise = over_faulty(&scenario, &[], &steps);
    supervise.ok(json!({"op": "start"}));
    let control = json!({"op": "control", "sid": "s", "route_name": "session.reset", "timeout_ms": 300});
    assert_eq!(supervise.refused(control)["kind"], "timeout");
    supervise.ok(json!({"op": "control", "sid": "s", "route_name": "session.reset"}));
    assert_eq!(supervise.ok(json!({"op": "status"}))["counters"]["late_acks"], 1);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn requests_that_wait_are_bounded() {
    let scenario = Scenario::new();
    let options = ["--max-waiting", "2", "--unavailable-after-ms", "600000", "--hello-timeout-ms", "600000"];
    let mut supervise = over_faulty(&scenario, &options, &[json!({"sleep_ms": 600_000})]);
    for id in ["1", "2"] {
        let turn = json!({"op": "submit_turn", "sid": id, "request_id": id});
        assert_eq!(supervise.ok(turn)["phase"], "waiting");
    }
    let turn = json!({"op": "submit_turn", "sid": "3", "request_id": "3"});
    assert_eq!(supervise.refused(turn)["kind"], "overloaded");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn requests_do_not_wait_for_ever() {
    let scenario = Scenario::new();
    let options = ["--unavailable-after-ms", "300", "--hello-timeout-ms", "600000"];
    let mut supervise = over_faulty(&scenario, &options, &[json!({"sleep_ms": 600_000})]);
    for id in ["1", "2"] {
        supervise.submit(id, id, json!({}));
        let end = supervise.ending(id);
        assert_eq!((&end["reason"], &end["turn_started"]), (&json!("unavailable"), &json!(false)));
    }
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn shutdown_tells_its_steps_and_start_works_again() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    supervise.ok(json!({"op": "start"}));
    supervise
        .ok(json!({"op": "submit_turn", "sid": "s", "request_id": "r", "script": [{"sleep_ms": 600_000}]}));
    supervise.turn_frame("r", "turn.started");
    let stopped = supervise.ok(json!({"op": "shutdown"}));
    assert_eq!(keys(&stopped), names("exit_code signal steps survivors"));
    assert_eq!((&stopped["exit_code"], &stopped["survivors"]), (&json!(0), &json!([])));
    assert_eq!(keys(&stopped["steps"][0]), names("step at_ms"));
    assert_eq!(supervise.endings("r").len(), 1);
    // Fine when stopped.
    assert_eq!(supervise.ok(json!({"op": "shutdown"}))["survivors"], json!([]));
    let turn = json!({"op": "submit_turn", "sid": "s", "request_id": "x"});
    assert_eq!(supervise.refused(turn)["kind"], "shutdown");
    assert_eq!(supervise.ok(json!({"op": "start"}))["incarnation"], 2);
    assert_eq!(supervise.ok(json!({"op": "restart"})), json!({"incarnation": 3}));
    assert_eq!(supervise.finish(), Ended::Code(0));
    scenario.wait_nothing_left();
}

#[test]
fn lines_that_are_no_frames_are_shown_escaped_and_cut_at_most_20_a_second() {
    let scenario = Scenario::new();
    let steps = [
        json!({"hello": {}}),
        json!({"write": "\\x1b[1mstray\\xff\n"}),
        json!({"frame": {"type": "no.such.type"}}),
        json!({"repeat": {"times": 500, "steps": [{"write": "more\n"}]}}),
        json!({"expect": "turn.start", "bind": "t"}),
        json!({"frame": {"type": "turn.end", "request_id": "$t.request_id"}}),
        json!({"serve": true}),
    ];
    let mut supervise = over_faulty(&scenario, &[], &steps);
    supervise.ok(json!({"op": "submit_turn", "sid": "s", "request_id": "r"}));
    assert_eq!(supervise.ending("r")["type"], "turn.end");
    let stray = supervise.event("stray", |event| event["line"].as_str().unwrap().contains("stray"));
    assert_eq!(keys(&stray), names("event line bytes"));
    assert!(stray["line"].as_str().unwrap().chars().all(|c| !c.is_control()), "{stray}");
    assert_eq!(stray["bytes"], 10);
    let unknown = supervise.event("protocol_error", |_| true);
    assert_eq!(unknown["kind"], "unknown_type");
    assert_eq!(keys(&unknown), names("event kind detail"));
    let counters = supervise.ok(json!({"op": "status"}))["counters"].clone();
    assert_eq!((&counters["stray_lines"], &counters["protocol_errors"]), (&json!(501), &json!(1)));
    let lines = supervise.process.frames();
    let shown =
        lines.iter().filter(|line| line["event"] == "stray" || line["event"] == "protocol_error").count();
    // Every line was written before the turn ended; a slow run may spread them over more than a second.
    assert!((20..502).contains(&shown), "{shown} were shown");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn an_rpc_of_the_host_and_the_supervisors_own_error_are_events() {
    let scenario = Scenario::new();
    let message = json!({"jsonrpc": "2.0", "method": "event", "params": {"n": 9_007_199_254_740_993_u64}});
    let steps = [
        json!({"hello": {}}),
        json!({"frame": {"type": "rpc", "sid": "s", "message": message}}),
        json!({"expect": "turn.start"}),
        json!({"exit": 1}),
    ];
    let mut supervise = over_faulty(&scenario, &["--respawn-max", "0"], &steps);
    supervise.ok(json!({"op": "submit_turn", "sid": "s", "request_id": "r"}));
    assert_eq!(supervise.event("rpc", |_| true)["message"], message);
    supervise.ending("r");
    let error = supervise.event("rpc", |event| event["message"]["params"]["type"] == "error");
    assert_eq!(error["message"]["params"]["payload"]["reason"], "crash");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_session_whose_history_is_gone_is_told_once_before_its_next_turn() {
    let scenario = Scenario::new();
    // It answers a seed, and never says what its turns append.
    let steps = [
        json!({"hello": {}}),
        json!({"repeat": {"times": 100, "steps": [
            {"expect": "turn.start", "bind": "t"},
            {"frame": {"type": "turn.started", "sid": "$t.sid", "request_id": "$t.request_id"}},
            {"frame": {"type": "turn.end", "sid": "$t.sid", "request_id": "$t.request_id"}}]}}),
    ];
    let options = ["--backoff-base-ms", "1", "--backoff-max-ms", "1", "--grace-ms", "100"];
    let mut supervise = over_faulty(&scenario, &options, &steps);
    let pid = supervise.ok(json!({"op": "start"}))["pid"].as_i64().unwrap();
    for sid in ["a", "b"] {
        supervise.ok(json!({"op": "submit_turn", "sid": sid, "request_id": sid}));
        supervise.ending(sid);
    }
    let before = supervise.process.frame_count();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    supervise.state_after(before, "ready");
    for request_id in ["a2", "a3"] {
        supervise.ok(json!({"op": "submit_turn", "sid": "a", "request_id": request_id}));
        supervise.ending(request_id);
    }
    let lines = supervise.process.frames();
    let lost: Vec<usize> = (0..lines.len()).filter(|at| lines[*at]["event"] == "session_lost").collect();
    assert_eq!(lost.iter().filter(|at| lines[**at]["sid"] == "a").count(), 1);
    let started = index_of(&supervise, |line| line["event"] == "turn" && line["request_id"] == "a2").unwrap();
    assert!(lost[0] < started, "it comes before anything else of the turn");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_slow_reader_gets_merged_text_and_its_operations_still_go_through() {
    let scenario = Scenario::new();
    let (count, bytes) = (1_200, 10_000);
    let steps = [
        json!({"hello": {}}),
        json!({"expect": "turn.start", "bind": "t"}),
        json!({"frame": {"type": "turn.started", "sid": "$t.sid", "request_id": "$t.request_id"}}),
        json!({"flood": {"frames": count, "bytes": bytes}}),
        json!({"frame": {"type": "turn.end", "sid": "$t.sid", "request_id": "$t.request_id"}}),
        json!({"expect": "control"}),
    ];
    let launch = scenario.supervise_launch(&["--respawn-max", "0"], &scenario.faulty_argv(&steps));
    let mut supervise = Supervise::over(launch.stdout_unread().start());
    supervise.begin(json!({"op": "submit_turn", "sid": "s", "request_id": "r"}));
    scenario.wait_processes("guard and host", |alive| alive.len() == 3);
    supervise.begin(json!({"op": "control", "sid": "s", "route_name": "session.reset"}));
    // The host ends when all that it had to say was taken from it, though nobody has read a byte on this side.
    scenario.wait_processes("the end of host and guard", |alive| alive.len() == 1);
    supervise.process.read_stdout();
    assert_eq!(supervise.ending("r")["type"], "turn.end");
    let frames = supervise.turn_frames("r");
    assert!(frames.len() < count / 2, "{} frames: nothing was merged", frames.len());
    let text: usize = frames.iter().filter_map(|frame| frame["text"].as_str()).map(str::len).sum();
    let lines = supervise.process.frames();
    let lagged = lines.iter().filter(|line| line["event"] == "lagged" && line["request_id"] == "r");
    let lost: u64 = lagged.map(|line| line["bytes"].as_u64().unwrap()).sum();
    assert_eq!(
        text as u64 + lost,
        (count * bytes) as u64,
        "text is merged or told as lagged, never just gone"
    );
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn the_end_of_input_and_the_signals_shut_down_cleanly() {
    for signal in [None, Some(Signal::SIGINT), Some(Signal::SIGTERM)] {
        let scenario = Scenario::new();
        let mut supervise = over_own_host(&scenario, &[]);
        supervise.ok(
            json!({"op": "submit_turn", "sid": "s", "request_id": "r", "script": [{"sleep_ms": 600_000}]}),
        );
        supervise.turn_frame("r", "turn.started");
        match signal {
            Some(signal) => supervise.process.signal(signal),
            None => supervise.process.close_stdin(),
        }
        assert_eq!(supervise.process.wait_exit(), Ended::Code(0), "{signal:?}");
        assert_eq!(supervise.endings("r").len(), 1, "{signal:?}");
        supervise.state_after(0, "stopped");
        scenario.wait_nothing_left();
    }
}

#[test]
fn a_signal_after_the_end_of_input_is_the_first_one_and_open_turns_still_end() {
    let scenario = Scenario::new();
    // It lets go of its turn only at the TERM of the shutdown, so that the signal comes before the end.
    let steps = [json!({"hello": {}}), json!({"expect": "turn.start"}), json!({"read": 1_000_000})];
    let mut supervise =
        scenario.supervise(&["--no-registry", "--grace-ms", "2000"], &scenario.faulty_argv(&steps));
    supervise.ok(json!({"op": "start"}));
    supervise.ok(json!({"op": "submit_turn", "sid": "s", "request_id": "r", "text": "x"}));
    supervise.process.close_stdin();
    supervise.state_after(0, "draining");
    supervise.process.signal(Signal::SIGTERM);
    assert_eq!(supervise.process.wait_exit(), Ended::Code(0));
    assert_eq!(supervise.ending("r")["reason"], "shutdown");
    scenario.wait_nothing_left();
}

#[test]
fn a_closed_stdout_shuts_down_though_nothing_is_written() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    supervise.ok(json!({"op": "start"}));
    supervise.process.close_stdout();
    supervise.process.wait_exit();
    scenario.wait_nothing_left();
}

#[test]
fn an_operation_on_the_last_line_without_a_newline_counts() {
    let scenario = Scenario::new();
    let mut supervise = over_own_host(&scenario, &[]);
    supervise.process.send_bytes(br#"{"id":"x","op":"status"}"#);
    supervise.process.close_stdin();
    assert_eq!(supervise.process.wait_exit(), Ended::Code(0));
    assert_eq!(supervise.answer("x")["ok"], true);
}

#[test]
fn a_registry_that_another_supervisor_owns_is_told_with_its_pid() {
    let scenario = Scenario::new();
    let file = scenario.home().join("turnhost/host.json");
    let arguments = ["supervise", "--env-pass", turnhost_testkit::MARKER];
    let start = |options: &[&str]| {
        let launch = scenario.program("turnhost").args(arguments).args(options).args(["--"]).args(own_host());
        Supervise::over(launch.start())
    };
    // The default place, below the home.
    let mut first = start(&[]);
    assert_eq!(first.ok(json!({"op": "start"}))["reconciled"], "none");
    assert_eq!(first.ok(json!({"op": "status"}))["registry"], file.display().to_string());
    assert!(file.exists());
    let mut second = start(&[]);
    let error = second.refused(json!({"op": "start"}));
    assert_eq!(error["kind"], "registry_owned");
    let pid = first.process.pid();
    assert_eq!(error["pid"], json!(pid));
    assert!(error["message"].as_str().unwrap().contains(&pid.to_string()), "{error}");
    let mut third = start(&["--registry-optional"]);
    third.ok(json!({"op": "start"}));
    assert_eq!(third.ok(json!({"op": "status"}))["registry"], json!(null));
    for supervise in [&mut second, &mut third, &mut first] {
        assert_eq!(supervise.finish(), Ended::Code(0));
    }
    assert!(!file.exists(), "it is removed at the end");
}

#[test]
fn a_registry_that_cannot_be_written_is_told_before_anything_is_started() {
    let scenario = Scenario::new();
    let file = scenario.home().join("a file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("host.json").display().to_string();
    let mut supervise = over_own_host(&scenario, &["--registry", &below]);
    assert_eq!(supervise.refused(json!({"op": "start"}))["kind"], "registry_unwritable");
    let status = supervise.ok(json!({"op": "status"}));
    assert_eq!((&status["state"], &status["pid"]), (&json!("stopped"), &json!(null)));
    assert_eq!(scenario.processes(), [supervise.process.pid()], "neither a guard nor a host was started");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    let scenario = Scenario::new();
    for arguments in [&["supervise"][..], &["supervise", "--no-such", "--", "true"], &["supervise", "true"]] {
        let mut process = scenario.program("turnhost").args(arguments).start();
        assert_eq!(process.wait_exit(), Ended::Code(2), "{arguments:?}");
        assert!(process.stderr().contains("Usage"), "{}", process.stderr());
    }
}
