//! `compute-host` as a real process: its frames for turns, interrupts, refusals and controls.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use turnhost_testkit::{Ended, Process, Scenario};

/// A host that waits forever on a turn until it is told to stop.
const LONG: f64 = 600.0;

fn start(host: &Process, sid: &str, request_id: &str, more: Value) {
    let mut frame = json!({"type": "turn.start", "sid": sid, "request_id": request_id, "text": "hi"});
    if let (Value::Object(frame), Value::Object(more)) = (&mut frame, more) {
        frame.extend(more);
    }
    host.send(&frame);
}

fn long(host: &Process, sid: &str, request_id: &str) {
    start(host, sid, request_id, json!({"delta_count": 1000, "delay_s": LONG}));
}

fn quick(host: &Process, sid: &str, request_id: &str) {
    start(host, sid, request_id, json!({"delta_count": 1, "delay_s": 0}));
}

fn interrupt(host: &Process, sid: &str, request_id: &str, turn_id: Option<&str>) -> Value {
    let mut frame = json!({"type": "interrupt", "sid": sid, "request_id": request_id});
    if let Some(turn_id) = turn_id {
        frame["turn_id"] = json!(turn_id);
    }
    host.send(&frame);
    host.answer(request_id, "interrupt.ack")
}

fn control(host: &Process, sid: &str, request_id: &str, route: &str) {
    host.send(&json!({"type": "control", "sid": sid, "request_id": request_id, "route_name": route}));
}

fn closed(mut host: Process) {
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0), "{}", host.stderr());
}

#[test]
fn hello_is_the_first_line_and_says_who_it_is() {
    let scenario = Scenario::new();
    let host = scenario.program("compute-host").cwd(scenario.home()).start();
    let hello = host.wait_for("hello", |_| true);
    assert_eq!(hello["type"], "hello");
    assert_eq!(hello["host_pid"], host.pid());
    assert_eq!(hello["hermes_home"], scenario.home().display().to_string());
    let cwd = scenario.home().canonicalize().unwrap_or_default();
    assert_eq!(hello["cwd"], cwd.display().to_string());
    assert_eq!(hello["protocol"], 1);
    assert_eq!(hello["max_frame_bytes"], 16 * 1024 * 1024);
    assert!(hello["boot_id"].as_str().is_some_and(|id| !id.is_empty()), "{hello}");
    assert!(hello["build_sha"].as_str().is_some_and(|sha| !sha.is_empty()), "{hello}");
    assert!(hello["capabilities"].is_array() && hello["host_ns"].is_u64(), "{hello}");
    closed(host);
}

#[test]
fn an_unset_home_reads_as_nothing_in_hello() {
    let scenario = Scenario::new();
    let host = scenario.program("compute-host").env_remove("HERMES_HOME").start();
    assert_eq!(host.wait_for("hello", |_| true)["hermes_home"], "");
    closed(host);
}

#[test]
fn a_three_delta_turn_is_exactly_started_three_deltas_and_end() {
    let scenario = Scenario::new();
    let host = scenario.host(&["--workers", "2", "--heartbeat-secs", "0"]);
    host.send(&json!({"type": "session.seed", "sid": "alpha", "request_id": "seed", "history": []}));
    let seeded = host.answer("seed", "session.seeded");
    assert_eq!(
        (&seeded["sid"], &seeded["history_version"], &seeded["message_count"]),
        (&json!("alpha"), &json!(0), &json!(0))
    );
    host.send(&json!({"type": "turn.start", "sid": "alpha", "request_id": "turn-1", "prompt": "hello", "delta_count": 3, "delay_s": 0}));
    let end = host.answer("turn-1", "turn.end");
    assert_eq!(host.types_of("turn-1"), ["turn.started", "delta", "delta", "delta", "turn.end"]);
    assert_eq!(end["sid"], "alpha");
    assert_eq!(end["history_version"], 1);
    assert_eq!(end["message_count"], 2);
    assert_eq!(end["interrupted"], false);
    assert_eq!(end["final_response"], "alpha:hello:0000 alpha:hello:0001 alpha:hello:0002 ");
    assert!(
        end["session_key"].is_string() && end["ended_ns"].is_u64() && end["session_info"].is_object(),
        "{end}"
    );
    let frames = host.frames_of("turn-1");
    let deltas: Vec<_> = frames[1..4].iter().map(|f| (f["text"].as_str(), f["seq"].as_u64())).collect();
    assert_eq!(
        deltas,
        [
            (Some("alpha:hello:0000 "), Some(0)),
            (Some("alpha:hello:0001 "), Some(1)),
            (Some("alpha:hello:0002 "), Some(2))
        ]
    );
    assert!(frames[0]["started_ns"].is_u64() && frames[1]["emitted_ns"].is_u64());
    assert!(host.frames().iter().all(|frame| frame["host_ns"].is_u64()), "host_ns is on every frame");
    assert_eq!(host.strays(), [] as [&str; 0]);
    closed(host);
}

#[test]
fn a_turn_without_a_seed_makes_its_session_and_the_next_turn_goes_on_with_it() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    start(
        &host,
        "new",
        "r1",
        json!({"delta_count": 1, "delay_s": 0, "session_key": "k", "history": [{"role": "user", "content": "before"}]}),
    );
    let end = host.answer("r1", "turn.end");
    assert_eq!(
        (&end["history_version"], &end["message_count"], &end["session_key"]),
        (&json!(1), &json!(3), &json!("k"))
    );
    quick(&host, "new", "r2");
    let end = host.answer("r2", "turn.end");
    assert_eq!((&end["history_version"], &end["message_count"]), (&json!(2), &json!(5)));
    closed(host);
}

#[test]
fn text_wins_over_prompt_and_the_defaults_are_24_deltas() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "text": "T", "prompt": "P"}));
    let end = host.answer("r", "turn.end");
    assert_eq!(host.types_of("r").iter().filter(|word| *word == "delta").count(), 24);
    assert!(end["final_response"].as_str().is_some_and(|text| text.starts_with("s:T:0000 ")), "{end}");
    closed(host);
}

#[test]
fn a_seed_replaces_an_idle_session_and_is_refused_without_sid_and_while_a_turn_runs() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    quick(&host, "s", "r1");
    host.answer("r1", "turn.end");
    let history = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
    host.send(&json!({"type": "session.seed", "sid": "s", "request_id": "again", "history": history}));
    let seeded = host.answer("again", "session.seeded");
    assert_eq!((&seeded["history_version"], &seeded["message_count"]), (&json!(0), &json!(3)));
    host.send(&json!({"type": "session.seed", "request_id": "no-sid", "history": []}));
    assert_eq!(host.answer("no-sid", "error")["message"], "sid required");
    long(&host, "s", "r2");
    host.answer("r2", "turn.started");
    host.send(&json!({"type": "session.seed", "sid": "s", "request_id": "busy", "history": []}));
    assert_eq!(host.answer("busy", "error")["message"], "session busy");
    interrupt(&host, "s", "i", None);
    assert_eq!(host.answer("r2", "turn.end")["message_count"], 5);
    closed(host);
}

#[test]
fn messages_that_a_turn_adds_are_reported_if_the_seed_asked() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    host.send(&json!({"type": "session.seed", "sid": "s", "request_id": "seed", "history": [], "report_messages": true}));
    quick(&host, "s", "r");
    let end = host.answer("r", "turn.end");
    let messages = end["messages_appended"].as_array().cloned().unwrap_or_default();
    let pairs: Vec<_> = messages.iter().map(|m| (m["role"].as_str(), m["content"].as_str())).collect();
    assert_eq!(pairs, [(Some("user"), Some("hi")), (Some("assistant"), Some("s:hi:0000 "))]);
    quick(&host, "other", "r2");
    assert_eq!(host.answer("r2", "turn.end").get("messages_appended"), None);
    closed(host);
}

#[test]
fn an_interrupt_is_acknowledged_before_the_end_while_the_only_worker_is_busy() {
    let scenario = Scenario::new();
    let host = scenario.host(&["--workers", "1", "--heartbeat-secs", "0"]);
    long(&host, "alpha", "slow");
    host.answer("slow", "delta");
    let ack = interrupt(&host, "alpha", "stop-1", None);
    assert_eq!(
        (&ack["applied"], &ack["outcome"], &ack["turn"]),
        (&json!(true), &json!("applied"), &json!("slow"))
    );
    assert!(ack["applied_ns"].is_u64(), "{ack}");
    let end = host.answer("slow", "turn.end");
    assert_eq!(end["interrupted"], true);
    assert_eq!(end["message_count"], 2);
    assert!(end["final_response"].as_str().is_some_and(|text| text.ends_with("[interrupted]")), "{end}");
    assert!(host.position("stop-1", "interrupt.ack") < host.position("slow", "turn.end"));
    closed(host);
}

#[test]
fn an_interrupt_sent_with_its_turn_is_never_lost() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    for round in 0..200 {
        let (turn, stop) = (format!("r{round}"), format!("i{round}"));
        let start = json!({"type": "turn.start", "sid": "s", "request_id": turn, "delta_count": 1000, "delay_s": LONG});
        let interrupt = json!({"type": "interrupt", "sid": "s", "request_id": stop, "turn_id": turn});
        host.send_bytes(format!("{start}\n{interrupt}\n").as_bytes());
        assert_eq!(host.answer(&turn, "turn.end")["interrupted"], true);
        assert_eq!(host.answer(&stop, "interrupt.ack")["outcome"], "applied");
    }
    closed(host);
}

#[test]
fn a_turn_that_waits_for_a_worker_is_interrupted_without_ever_starting() {
    let scenario = Scenario::new();
    let host = scenario.host(&["--workers", "1"]);
    long(&host, "a", "running");
    host.answer("running", "turn.started");
    long(&host, "b", "waiting");
    assert_eq!(interrupt(&host, "b", "i", Some("waiting"))["outcome"], "applied");
    assert_eq!(host.answer("waiting", "turn.end")["interrupted"], true);
    assert_eq!(host.types_of("waiting"), ["turn.end"]);
    interrupt(&host, "a", "i2", None);
    assert_eq!(host.answer("running", "turn.end")["interrupted"], true);
    closed(host);
}

#[test]
fn an_interrupt_says_what_came_of_it_and_never_touches_another_turn() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    let outcome =
        |ack: Value| (ack["outcome"].as_str().unwrap_or_default().to_owned(), ack["applied"].clone());
    assert_eq!(outcome(interrupt(&host, "never", "i1", None)), ("not_found".to_owned(), json!(false)));
    quick(&host, "s", "r1");
    assert_eq!(host.answer("r1", "turn.end")["interrupted"], false);
    assert_eq!(outcome(interrupt(&host, "s", "i2", None)), ("not_found".to_owned(), json!(false)));
    assert_eq!(outcome(interrupt(&host, "s", "i3", Some("r1"))), ("already_ended".to_owned(), json!(false)));
    assert_eq!(outcome(interrupt(&host, "s", "i4", Some("r9"))), ("not_found".to_owned(), json!(false)));
    start(
        &host,
        "s",
        "r2",
        json!({"script": [{"delta": "a"}, {"ask": {"command": "go on?", "choices": ["yes"]}}]}),
    );
    let question = host.answer("r2", "event");
    assert_eq!(outcome(interrupt(&host, "s", "i5", Some("r1"))), ("already_ended".to_owned(), json!(false)));
    assert_eq!(outcome(interrupt(&host, "s", "i6", Some("r9"))), ("superseded".to_owned(), json!(false)));
    host.send(&json!({"type": "respond", "sid": "s", "request_id": "p", "approval_id": question["approval_id"], "choice": "yes"}));
    assert_eq!(host.answer("r2", "turn.end")["interrupted"], false);
    closed(host);
}

#[test]
fn a_second_turn_of_a_session_is_busy_at_once_and_changes_nothing() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    long(&host, "s", "first");
    quick(&host, "s", "second");
    let refusal = host.answer("second", "turn.error");
    assert_eq!((&refusal["reason"], &refusal["message"]), (&json!("busy"), &json!("session busy")));
    assert_eq!(host.types_of("second"), ["turn.error"]);
    interrupt(&host, "s", "i", None);
    let end = host.answer("first", "turn.end");
    assert_eq!((&end["history_version"], &end["message_count"]), (&json!(1), &json!(2)));
    closed(host);
}

#[test]
fn a_turn_sent_on_reading_the_end_of_the_last_one_is_never_busy() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    for round in 0..300 {
        let id = format!("r{round}");
        start(&host, "s", &id, json!({"delta_count": 0, "delay_s": 0}));
        assert_eq!(host.ending(&id)["type"], "turn.end");
    }
    closed(host);
}

#[test]
fn a_turn_without_sid_is_a_bad_request() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    host.send(&json!({"type": "turn.start", "request_id": "r", "text": "hi"}));
    let refusal = host.answer("r", "turn.error");
    assert_eq!((&refusal["reason"], &refusal["message"]), (&json!("bad_request"), &json!("sid required")));
    closed(host);
}

#[test]
fn refused_lines_are_answered_and_reading_goes_on() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    host.send(&json!({"type": "no.such", "request_id": "u"}));
    host.send_bytes(b"{\"type\":\n[1,2]\n\"text\"\n");
    host.send_bytes(&[b'[', 0xff, b'\n']);
    host.send(&json!({"type": "turn.start", "request_id": "bad", "sid": 7}));
    let deep = format!(
        "{{\"type\":\"turn.start\",\"request_id\":\"deep\",\"sid\":\"s\",\"history\":{}{}}}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    host.send_bytes(deep.as_bytes());
    quick(&host, "s", "r");
    host.answer("r", "turn.end");
    assert_eq!(host.answer("u", "error")["message"], "unknown frame type: no.such");
    let errors: Vec<Value> = host.frames().into_iter().filter(|frame| frame["type"] == "error").collect();
    let messages: Vec<_> = errors.iter().map(|error| error["message"].as_str().unwrap_or_default()).collect();
    assert!(messages.len() >= 5, "{messages:?}");
    assert!(messages[1].starts_with("invalid json: "), "{messages:?}");
    assert_eq!(&messages[2..4], ["frame must be an object", "frame must be an object"]);
    assert!(messages[4].starts_with("invalid json: "), "{messages:?}");
    for id in ["bad", "deep"] {
        let answered = host.frames_of(id);
        assert_eq!(answered.len(), 1, "{id}: {answered:?}");
    }
    closed(host);
}

#[test]
fn line_ends_blank_lines_and_a_byte_order_mark_are_accepted() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&[]);
    let turn =
        |id: &str| json!({"type": "turn.start", "sid": id, "request_id": id, "delta_count": 0}).to_string();
    host.send_bytes(format!("\u{feff}{}\r\n\n\r\n  \n{}\n{}", turn("a"), turn("b"), turn("c")).as_bytes());
    host.answer("a", "turn.end");
    host.answer("b", "turn.end");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));
    // The last line has no newline; it counts, and the end of stdin then ends its turn one way or the other.
    host.ending("c");
    assert_eq!(host.frames().iter().filter(|frame| frame["type"] == "error").count(), 0);
}

#[test]
fn a_line_over_the_limit_is_answered_and_skipped() {
    let scenario = Scenario::new();
    let host = scenario.program("compute-host").env("HERMES_COMPUTE_HOST_MAX_FRAME_BYTES", "20000").start();
    assert_eq!(host.wait_for("hello", |_| true)["max_frame_bytes"], 20_000);
    start(&host, "s", "big", json!({"text": "x".repeat(40_000)}));
    quick(&host, "s", "r");
    host.answer("r", "turn.end");
    let errors: Vec<Value> = host
        .frames()
        .into_iter()
        .filter(|frame| frame["type"] == "error" || frame["type"] == "turn.error")
        .collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    closed(host);
}

#[test]
fn no_frame_of_the_host_is_over_the_limit() {
    let scenario = Scenario::new();
    let host = scenario.program("compute-host").env("HERMES_COMPUTE_HOST_MAX_FRAME_BYTES", "20000").start();
    start(&host, "s", "r", json!({"script": [{"deltas": 3, "bytes": 50_000}]}));
    let end = host.answer("r", "turn.end");
    let text: usize =
        host.frames_of("r").iter().filter_map(|frame| frame["text"].as_str()).map(str::len).sum();
    assert_eq!(text, 150_000);
    assert!(host.frames().iter().all(|frame| frame.to_string().len() <= 20_000));
    assert!(end["omitted"].as_array().is_some_and(|names| names.contains(&json!("final_response"))), "{end}");
    closed(host);
}

#[test]
fn sessions_run_side_by_side_up_to_the_number_of_workers() {
    let scenario = Scenario::new();
    let host = scenario.host(&["--workers", "3"]);
    for index in 0..4 {
        long(&host, &format!("s{index}"), &format!("r{index}"));
    }
    for index in 0..3 {
        host.answer(&format!("r{index}"), "turn.started");
    }
    interrupt(&host, "s3", "i3", None);
    assert_eq!(host.ending("r3")["interrupted"], true);
    assert_eq!(host.types_of("r3"), ["turn.end"], "the fourth had no worker");
    closed(host);
}

#[test]
fn a_worker_that_is_free_takes_the_turn_that_waited_longest() {
    let scenario = Scenario::new();
    let host = scenario.host(&["--workers", "1"]);
    long(&host, "a", "ra");
    host.answer("ra", "turn.started");
    long(&host, "b", "rb");
    quick(&host, "c", "rc");
    interrupt(&host, "a", "i", None);
    host.answer("rb", "turn.started");
    interrupt(&host, "b", "i2", None);
    host.answer("rc", "turn.end");
    assert!(host.position("rb", "turn.started") < host.position("rc", "turn.started"));
    closed(host);
}

#[test]
fn the_number_of_workers_comes_from_the_pool_variable_and_is_8_without_or_with_a_malformed_one() {
    for (value, workers) in [(None, 8), (Some("not-an-int"), 8), (Some("3"), 3), (Some("1"), 2)] {
        let scenario = Scenario::new();
        let launch = scenario.program("compute-host");
        let host = match value {
            Some(value) => launch.env("HERMES_TUI_RPC_POOL_WORKERS", value).start(),
            None => launch.start(),
        };
        for index in 0..=workers {
            long(&host, &format!("s{index}"), &format!("r{index}"));
        }
        for index in 0..workers {
            host.answer(&format!("r{index}"), "turn.started");
        }
        interrupt(&host, &format!("s{workers}"), "i", None);
        let last = format!("r{workers}");
        host.ending(&last);
        assert_eq!(host.types_of(&last), ["turn.end"], "with {value:?} turn {last} had a worker");
        closed(host);
    }
}

#[test]
fn heartbeats_come_while_every_worker_is_busy() {
    let scenario = Scenario::new();
    let host = scenario.host(&["--workers", "1", "--heartbeat-secs", "1"]);
    start(&host, "s", "r", json!({"script": [{"hang": true}]}));
    start(&host, "s2", "r2", json!({"script": [{"hang": true}]}));
    let mut after = 0;
    for _ in 0..2 {
        let (at, beat) = host.wait_for_after(after, "a heartbeat with two active turns", |frame| {
            frame["type"] == "hb" && frame["active_turns"] == 2
        });
        assert!(
            beat["progress_counter"].is_u64() && beat["rss_mb"].as_f64().is_some_and(|mb| mb > 0.0),
            "{beat}"
        );
        after = at + 1;
    }
    closed(host);
}

#[test]
fn heartbeats_follow_the_variable() {
    let scenario = Scenario::new();
    let host = scenario.program("compute-host").env("HERMES_COMPUTE_HOST_HEARTBEAT_SECS", "1").start();
    host.wait_for("a heartbeat", |frame| frame["type"] == "hb");
    closed(host);
}

#[test]
fn save_writes_the_session_to_a_file_and_runs_beside_a_turn() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    host.send(&json!({"type": "session.seed", "sid": "s", "request_id": "seed", "history": [{"role": "user", "content": "kept words"}]}));
    long(&host, "s", "r");
    host.answer("r", "turn.started");
    control(&host, "s", "c", "session.save");
    let ack = host.answer("c", "control.ack");
    assert_eq!(ack["route_name"], "session.save");
    assert_eq!(ack["session_info"]["running"], true);
    assert!(
        ack["session_key"].is_string() && ack["history_version"] == 0 && ack["message_count"] == 1,
        "{ack}"
    );
    let file = std::path::PathBuf::from(ack["result"]["file"].as_str().unwrap_or_default());
    assert!(file.starts_with(scenario.home().join("sessions/saved")), "{}", file.display());
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let saved: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert!(saved.to_string().contains("kept words"), "{saved}");
    assert!(host.frames_of("r").iter().all(|frame| frame["type"] != "turn.end"), "the turn goes on");
    closed(host);
}

#[test]
fn reset_empties_the_history_and_gives_a_new_key() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    host.send(&json!({"type": "session.seed", "sid": "s", "request_id": "seed", "session_key": "old", "history": [{"role": "user", "content": "x"}]}));
    control(&host, "s", "c", "session.reset");
    let ack = host.answer("c", "control.ack");
    assert_eq!((&ack["message_count"], &ack["history_version"]), (&json!(0), &json!(1)));
    assert!(ack["session_key"].as_str().is_some_and(|key| key != "old" && !key.is_empty()), "{ack}");
    assert_eq!(ack["session_info"]["running"], false);
    quick(&host, "s", "r");
    let end = host.answer("r", "turn.end");
    assert_eq!(
        (&end["session_key"], &end["message_count"], &end["history_version"]),
        (&ack["session_key"], &json!(2), &json!(2))
    );
    closed(host);
}

#[test]
fn controls_are_refused_with_the_words_that_front_ends_know() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    let refused = |sid: &str, id: &str, route: &str| {
        control(&host, sid, id, route);
        host.answer(id, "control.error")["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(refused("never", "c1", "session.save"), "session not found");
    assert_eq!(refused("never", "c2", "no.such"), "unclassified route: no.such");
    long(&host, "s", "r");
    host.answer("r", "turn.started");
    for (index, route) in [
        "session.reset",
        "session.compress",
        "prompt.submit.truncate",
        "slash.model",
        "slash.personality",
        "slash.prompt",
        "slash.compress",
        "session.history.reload",
        "slash.retry",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(refused("s", &format!("busy{index}"), route), "session busy", "{route}");
    }
    assert_eq!(refused("s", "c3", "reload.mcp"), "not supported");
    assert_eq!(refused("s", "c4", "prompt.submit"), "use turn.start");
    assert_eq!(refused("s", "c5", "session.interrupt"), "use interrupt");
    interrupt(&host, "s", "i", None);
    host.answer("r", "turn.end");
    assert_eq!(refused("s", "c6", "reload.mcp"), "not supported");
    host.send(&json!({"type": "reload_mcp", "sid": "s", "request_id": "m"}));
    assert_eq!(host.answer("m", "control.error")["message"], "not supported");
    closed(host);
}

#[test]
fn a_question_waits_for_its_answer_and_only_one_answer_counts() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    start(
        &host,
        "s",
        "r",
        json!({"script": [{"ask": {"command": "rm -rf x", "choices": ["once", "deny"]}}, {"delta": "done"}]}),
    );
    let question = host.answer("r", "event");
    assert_eq!((&question["kind"], &question["command"]), (&json!("approval_request"), &json!("rm -rf x")));
    assert_eq!(question["choices"], json!(["once", "deny"]));
    assert!(question["timeout_ms"].is_u64() && question["seq"] == 0, "{question}");
    let answer = |id: &str, approval: &Value, choice: &str| {
        host.send(&json!({"type": "respond", "sid": "s", "request_id": id, "approval_id": approval, "choice": choice}));
        host.wait_for(&format!("the answer to {id}"), |frame| frame["request_id"] == id)
    };
    assert_eq!(answer("p1", &json!("unknown"), "once")["type"], "respond.error");
    let ack = answer("p2", &question["approval_id"], "once");
    assert_eq!((&ack["type"], &ack["resolved"]), (&json!("respond.ack"), &json!(true)));
    host.answer("r", "turn.end");
    let resolved: Vec<Value> =
        host.frames_of("r").into_iter().filter(|frame| frame["kind"] == "approval_resolved").collect();
    assert_eq!(resolved.len(), 1);
    assert_eq!((&resolved[0]["choice"], &resolved[0]["seq"]), (&json!("once"), &json!(1)));
    closed(host);
}

#[test]
fn the_peers_form_of_an_answer_counts_as_well() {
    let scenario = Scenario::new();
    let host = scenario.host(&[]);
    start(&host, "s", "r", json!({"script": [{"ask": {"command": "x", "choices": ["once", "deny"]}}]}));
    let question = host.answer("r", "event");
    let inner = json!({"approval_id": question["approval_id"], "choice": "deny"});
    host.send(&json!({"type": "respond", "sid": "s", "request_id": "p", "params": {"frame": inner}}));
    assert_eq!(host.answer("p", "respond.ack")["resolved"], true);
    host.ending("r");
    closed(host);
}

#[test]
fn rpc_events_mirror_a_turn_for_parents_that_forward_only_rpc() {
    let scenario = Scenario::new();
    let host = scenario.host(&["--rpc-events"]);
    start(&host, "s", "r", json!({"delta_count": 2, "delay_s": 0}));
    host.answer("r", "turn.end");
    let complete =
        host.wait_for("message.complete", |frame| frame["message"]["params"]["type"] == "message.complete");
    assert_eq!(complete["message"]["jsonrpc"], "2.0");
    let frames = host.frames();
    let rpc: Vec<_> = frames.iter().filter(|frame| frame["type"] == "rpc").collect();
    let words: Vec<_> = rpc.iter().filter_map(|frame| frame["message"]["params"]["type"].as_str()).collect();
    assert_eq!(words, ["message.start", "message.delta", "message.delta", "message.complete"]);
    assert!(
        rpc.iter().all(|frame| frame["sid"] == "s" && frame["message"]["params"]["session_id"] == "s"),
        "{rpc:?}"
    );
    assert_eq!(rpc[1]["message"]["params"]["payload"]["text"], "s:hi:0000 ");
    closed(host);
}

#[test]
fn nothing_waits_on_a_stdout_that_nobody_reads() {
    let scenario = Scenario::new();
    let mut host = scenario.program("compute-host").args(["--workers", "2"]).stdout_unread().start();
    start(&host, "s", "flood", json!({"script": [{"deltas": 2000, "bytes": 4096}]}));
    // Far more than stdin's pipe holds: read only if the host still reads while its stdout is full.
    for round in 0..2000 {
        host.send(&json!({"type": "interrupt", "sid": "never", "request_id": format!("i{round}"), "pad": "x".repeat(100)}));
    }
    host.read_stdout();
    host.ending("flood");
    host.answer("i1999", "interrupt.ack");
    let deltas: Vec<u64> = host
        .frames_of("flood")
        .iter()
        .filter(|f| f["type"] == "delta")
        .filter_map(|f| f["seq"].as_u64())
        .collect();
    assert_eq!(deltas, (0..2000).collect::<Vec<u64>>());
    closed(host);
}

#[test]
fn an_answer_overtakes_the_deltas_that_wait_for_the_pipe() {
    let scenario = Scenario::new();
    let mut host = scenario.program("compute-host").stdout_unread().start();
    start(&host, "s", "flood", json!({"script": [{"deltas": 4000, "bytes": 1000}]}));
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i"}));
    host.read_stdout();
    let ack = host.answer("i", "interrupt.ack");
    let end = host.ending("flood");
    if ack["applied"] == true {
        assert_eq!(end["interrupted"], true);
    }
    assert!(
        host.position("i", "interrupt.ack") < host.frame_count() - 1,
        "the acknowledgement came before the end"
    );
    closed(host);
}
