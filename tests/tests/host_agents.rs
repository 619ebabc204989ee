//! `compute-host` as a real process: what its agents may do to it, and what they may not.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use turnhost_testkit::{Ended, Process, Scenario};

fn script(host: &Process, sid: &str, request_id: &str, steps: Value) {
    host.send(
        &json!({"type": "turn.start", "sid": sid, "request_id": request_id, "text": "hi", "script": steps}),
    );
}

fn exec(host: &Process, sid: &str, request_id: &str, text: &str, agent: Value) {
    host.send(
        &json!({"type": "turn.start", "sid": sid, "request_id": request_id, "text": text, "agent": agent}),
    );
}

fn sh(command: &str) -> Value {
    json!({"name": "exec", "argv": ["sh", "-c", command], "prompt": "none"})
}

fn text(host: &Process, request_id: &str) -> String {
    host.frames_of(request_id)
        .iter()
        .filter(|frame| frame["type"] == "delta")
        .filter_map(|frame| frame["text"].as_str())
        .collect()
}

fn closed(mut host: Process) {
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0), "{}", host.stderr());
}

#[test]
fn a_stray_print_of_an_agent_goes_to_stderr_and_never_between_frames() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    script(
        &host,
        "s",
        "r",
        json!([{"delta": "a"}, {"stdout": "stray print\n"}, {"stderr": "a complaint\n"}, {"delta": "b"}]),
    );
    host.answer("r", "turn.end");
    host.wait_stderr("stray print");
    host.wait_stderr("a complaint");
    assert_eq!(host.strays(), [] as [&str; 0]);
    assert_eq!(text(&host, "r"), "ab");
    closed(host);
}

#[test]
fn a_raw_frame_goes_past_the_protection_for_harnesses() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    script(&host, "s", "r", json!([{"raw_frame": "not json\n"}]));
    host.answer("r", "turn.end");
    assert_eq!(host.strays(), ["not json"]);
    closed(host);
}

#[test]
fn an_error_and_a_panic_end_one_turn_and_leave_the_others_alone() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    script(
        &host,
        "other",
        "alive",
        json!([{"delta": "a"}, {"ask": {"command": "?", "choices": ["go"]}}, {"delta": "b"}]),
    );
    let question = host.answer("alive", "event");
    script(&host, "s", "r1", json!([{"delta": "part"}, {"error": "it broke"}]));
    let error = host.answer("r1", "turn.error");
    assert_eq!(error["reason"], "exception");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("it broke")), "{error}");
    script(&host, "s", "r2", json!([{"panic": "it panicked"}]));
    let error = host.answer("r2", "turn.error");
    assert_eq!(error["reason"], "exception");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("it panicked")), "{error}");
    script(&host, "s", "r3", json!([{"delta": "fine"}]));
    assert_eq!(host.answer("r3", "turn.end")["final_response"], "fine");
    host.send(&json!({"type": "respond", "sid": "other", "request_id": "p", "approval_id": question["approval_id"], "choice": "go"}));
    let end = host.answer("alive", "turn.end");
    assert!(
        end["final_response"].as_str().is_some_and(|text| text.starts_with('a') && text.ends_with('b')),
        "{end}"
    );
    closed(host);
}

#[test]
fn exit_and_signal_steps_end_the_host_as_they_say() {
    for (step, ended) in [
        (json!({"exit": 7}), Ended::Code(7)),
        (json!({"signal": "SEGV"}), Ended::Signal(11)),
        (json!({"signal": "KILL"}), Ended::Signal(9)),
    ] {
        let scenario = Scenario::new();
        let mut host = scenario.host(&[]);
        script(&host, "s", "r", json!([{"delta": "a"}, step]));
        assert_eq!(host.wait_exit(), ended, "{step}");
        assert_eq!(host.frames_of("r").iter().filter(|frame| frame["type"] == "turn.end").count(), 0);
    }
}

#[test]
fn events_share_the_sequence_of_the_deltas() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    script(
        &host,
        "s",
        "r",
        json!([
            {"delta": "a"},
            {"event": {"kind": "tool_call", "tool_call_id": "t1", "name": "ls", "title": "list", "args": {}, "status": "running"}},
            {"event": {"kind": "status", "text": "working"}},
            {"deltas": 2, "bytes": 3}
        ]),
    );
    host.answer("r", "turn.end");
    let frames = host.frames_of("r");
    let seqs: Vec<_> =
        frames.iter().filter_map(|frame| Some((frame["type"].as_str()?, frame["seq"].as_u64()?))).collect();
    assert_eq!(seqs, [("delta", 0), ("event", 1), ("event", 2), ("delta", 3), ("delta", 4)]);
    assert_eq!(frames[2]["tool_call_id"], "t1");
    closed(host);
}

#[test]
fn a_script_file_is_the_default_of_every_turn() {
    let scenario = Scenario::new();
    let file = scenario.home().join("script.jsonl");
    assert!(std::fs::write(&file, "{\"delta\":\"from a file\"}\n").is_ok());
    let host = scenario.program("compute-host").arg_path("--script", &file).start();
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "text": "hi"}));
    assert_eq!(host.answer("r", "turn.end")["final_response"], "from a file");
    closed(host);
}

#[test]
fn a_wrong_script_fails_its_turn_and_names_the_step() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    script(&host, "s", "r", json!([{"delta": "a"}, {"no_such": 1}]));
    let error = host.ending("r");
    assert_eq!(error["type"], "turn.error");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("step 2")), "{error}");
    assert_eq!(text(&host, "r"), "");
    closed(host);
}

#[test]
fn an_agent_that_nobody_knows_fails_the_turn() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    exec(&host, "s", "r", "hi", json!("no-such-agent"));
    let error = host.ending("r");
    assert_eq!(error["type"], "turn.error");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("no-such-agent")), "{error}");
    closed(host);
}

#[test]
fn a_program_gets_the_prompt_and_its_lines_come_as_deltas() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    exec(&host, "s", "stdin", "one\ntwo", json!({"name": "exec", "argv": ["cat"], "prompt": "stdin"}));
    host.answer("stdin", "turn.end");
    assert_eq!(text(&host, "stdin").trim_end(), "one\ntwo");
    exec(&host, "s", "arg", "three", json!({"name": "exec", "argv": ["printf", "<%s>\n"], "prompt": "arg"}));
    host.answer("arg", "turn.end");
    assert_eq!(text(&host, "arg"), "<three>\n");
    exec(&host, "s", "none", "unseen", json!({"name": "exec", "argv": ["cat"], "prompt": "none"}));
    host.answer("none", "turn.end");
    assert_eq!(text(&host, "none"), "");
    closed(host);
}

#[test]
fn lines_of_a_program_come_while_it_runs() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    exec(&host, "s", "r", "", sh("echo first; read line"));
    // Its stdin is /dev/null or closed, so it would end by itself; hold it with a fifo instead.
    host.ending("r");
    let fifo = scenario.home().join("fifo");
    exec(&host, "s", "r2", "", sh(&format!("mkfifo {0}; echo before; cat {0}; echo after", fifo.display())));
    host.wait_for("the first line", |frame| {
        frame["request_id"] == "r2" && frame["text"].as_str().is_some_and(|text| text.contains("before"))
    });
    assert!(host.frames_of("r2").iter().all(|frame| frame["type"] != "turn.end"));
    assert!(std::fs::write(&fifo, "through\n").is_ok());
    assert_eq!(host.answer("r2", "turn.end")["type"], "turn.end");
    assert_eq!(text(&host, "r2"), "before\nthrough\nafter\n");
    closed(host);
}

#[test]
fn a_program_that_fails_ends_the_turn_with_its_status_and_stderr() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    exec(&host, "s", "code", "", sh("echo out; echo wrong >&2; exit 3"));
    let error = host.answer("code", "turn.error");
    assert_eq!((&error["reason"], &error["exit_code"]), (&json!("agent_exit"), &json!(3)));
    assert!(error["stderr_tail"].as_array().is_some_and(|lines| lines.contains(&json!("wrong"))), "{error}");
    assert_eq!(text(&host, "code"), "out\n");
    exec(&host, "s", "signal", "", sh("kill -9 $$"));
    let error = host.answer("signal", "turn.error");
    assert_eq!((&error["reason"], &error["signal"]), (&json!("agent_exit"), &json!(9)));
    exec(&host, "s", "missing", "", json!({"name": "exec", "argv": ["/no/such/program"], "prompt": "none"}));
    let error = host.answer("missing", "turn.error");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("/no/such/program")), "{error}");
    closed(host);
}

#[test]
fn an_interrupt_ends_a_program_and_what_it_started() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    exec(&host, "s", "r", "", sh("sleep 600 & echo ready; wait"));
    host.answer("r", "delta");
    assert!(scenario.processes().len() >= 3, "host, sh and sleep");
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i"}));
    assert_eq!(host.answer("i", "interrupt.ack")["applied"], true);
    assert_eq!(host.ending("r")["interrupted"], true);
    let pid = host.pid();
    scenario.wait_processes("the end of the program", |alive| alive == [pid]);
    closed(host);
}

#[test]
fn a_program_that_ignores_int_is_ended_in_the_end() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    exec(&host, "s", "r", "", sh("trap '' INT TERM; echo ready; while :; do sleep 1; done"));
    host.answer("r", "delta");
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i"}));
    assert_eq!(host.ending("r")["interrupted"], true);
    let pid = host.pid();
    scenario.wait_processes("the end of the program", |alive| alive == [pid]);
    closed(host);
}

#[test]
fn programs_know_that_they_run_in_a_host_and_get_the_environment_of_the_turn() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    let agent = json!({"name": "exec", "argv": ["sh", "-c", "echo $HERMES_COMPUTE_HOST_CHILD $MINE; pwd"], "prompt": "none", "env": {"MINE": "yes"}});
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "text": "", "cwd": scenario.home(), "agent": agent}));
    host.answer("r", "turn.end");
    let cwd = scenario.home().canonicalize().unwrap_or_default();
    assert_eq!(text(&host, "r"), format!("1 yes\n{}\n", cwd.display()));
    closed(host);
}

#[test]
fn a_program_has_no_descriptor_of_the_host_beyond_the_three() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    exec(&host, "s", "r", "", sh("ls /proc/self/fd"));
    host.answer("r", "turn.end");
    // `ls` itself holds 3: the folder that it reads.
    assert_eq!(text(&host, "r"), "0\n1\n2\n3\n");
    closed(host);
}
