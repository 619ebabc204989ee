//! `faulty-host` does what `docs/harness.md` says: every step, seen from outside.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use turnhost_testkit::{DEADLINE, Ended, Process, Scenario, wait_until};

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap_or("?")).collect()
}

/// Runs a script that ends by itself.
fn played(scenario: &Scenario, steps: &[Value]) -> (Process, Ended) {
    let mut host = scenario.faulty(steps);
    let ended = host.wait_exit();
    (host, ended)
}

#[test]
fn hello_has_every_field_and_overrides_replace_add_and_remove() {
    let scenario = Scenario::new();
    let (host, ended) = played(
        &scenario,
        &[
            json!({"hello": {}}),
            json!({"hello": {"boot_id": "b2", "cwd": null, "host_pid": "12", "extra": [1]}}),
        ],
    );
    assert_eq!(ended, Ended::Code(0));
    let frames = host.frames();
    let first = &frames[0];
    assert_eq!(first["type"], "hello");
    assert_eq!(first["host_pid"], host.pid());
    assert_eq!(first["build_sha"], "unknown");
    assert_eq!(first["hermes_home"], scenario.home().display().to_string());
    assert_eq!(first["protocol"], 1);
    for field in ["boot_id", "cwd"] {
        assert!(first[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {first}");
    }
    assert!(
        first["capabilities"].is_array() && first["max_frame_bytes"].is_u64() && first["host_ns"].is_u64()
    );
    let second = &frames[1];
    assert_eq!(second["boot_id"], "b2");
    assert_eq!(second["host_pid"], "12");
    assert_eq!(second["extra"], json!([1]));
    assert_eq!(second.get("cwd"), None);
}

#[test]
fn a_second_hello_without_overrides_has_the_boot_id_of_the_first() {
    let scenario = Scenario::new();
    let (host, _) = played(&scenario, &[json!({"hello": {}}), json!({"hello": {}})]);
    let frames = host.frames();
    assert_eq!(frames[0]["boot_id"], frames[1]["boot_id"]);
}

#[test]
fn write_adds_nothing_and_frame_adds_a_newline() {
    let scenario = Scenario::new();
    let (host, _) = played(
        &scenario,
        &[
            json!({"write": "\\xff{\"a\""}),
            json!({"write": ":1}\n{\"type\":"}),
            json!({"write": "\"hb\"}\\x0a"}),
            json!({"frame": {"type": "rpc", "a": 1}}),
        ],
    );
    assert_eq!(host.strays(), ["\u{fffd}{\"a\":1}"]);
    assert_eq!(host.frames(), [json!({"type": "hb"}), json!({"type": "rpc", "a": 1})]);
}

#[test]
fn expect_skips_other_lines_and_binds_the_frame_for_later_steps() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[
        json!({"expect": "turn.start", "bind": "t"}),
        json!({"frame": {"type": "turn.end", "sid": "$t.sid", "request_id": "$t.request_id"}}),
        json!({"write": "{\"text\":\"$t.text\"}\n"}),
    ]);
    host.send_bytes(b"no json\n[]\n");
    host.send(&json!({"type": "interrupt", "request_id": "i"}));
    host.send(&json!({"type": "turn.start", "request_id": "r\"1", "sid": "s1", "text": "a\nb"}));
    assert_eq!(host.wait_exit(), Ended::Code(0));
    assert_eq!(
        host.frames(),
        [json!({"type": "turn.end", "sid": "s1", "request_id": "r\"1"}), json!({"text": "a\nb"})]
    );
}

#[test]
fn expect_without_its_frame_ends_with_71_at_the_end_of_stdin() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[json!({"sleep_ms": 0}), json!({"expect": "turn.start"})]);
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(71));
    assert!(
        host.stderr().contains("step 2: stdin ended before a frame of type `turn.start` came"),
        "{}",
        host.stderr()
    );
}

#[test]
fn a_field_that_the_bound_frame_lacks_ends_with_70() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[json!({"expect": "a", "bind": "t"}), json!({"write": "$t.sid"})]);
    host.send(&json!({"type": "a"}));
    assert_eq!(host.wait_exit(), Ended::Code(70));
    assert!(host.stderr().contains("step 2: `$t.sid`"), "{}", host.stderr());
}

#[test]
fn read_takes_so_many_lines_and_goes_on_at_the_end_of_stdin() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[
        json!({"read": 2}),
        json!({"frame": {"type": "read two"}}),
        json!({"expect": "third"}),
        json!({"frame": {"type": "saw third"}}),
        json!({"read": 1000}),
        json!({"exit": 9}),
    ]);
    host.send_bytes(b"{\"type\":\"first\"}\n");
    host.send_bytes(b"{\"type\":\"second\"}\n{\"type\":\"third\"}\n");
    host.wait_for("the third line", |frame| frame["type"] == "saw third");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(9));
    assert_eq!(types(&host.frames()), ["read two", "saw third"]);
}

#[test]
fn a_last_line_without_a_newline_counts() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[json!({"expect": "x"}), json!({"exit": 5})]);
    host.send_bytes(b"{\"type\":\"x\"}");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(5));
}

#[test]
fn sleep_waits_at_least_so_long() {
    let scenario = Scenario::new();
    let started = Instant::now();
    let (_, ended) = played(&scenario, &[json!({"sleep_ms": 300})]);
    assert_eq!(ended, Ended::Code(0));
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[test]
fn the_end_of_the_script_is_exit_0_and_exit_says_any_other_code() {
    let scenario = Scenario::new();
    assert_eq!(played(&scenario, &[json!({"exit": 137}), json!({"exit": 1})]).1, Ended::Code(137));
    assert_eq!(played(&scenario, &[json!({"read": 0})]).1, Ended::Code(0));
}

#[test]
fn a_signal_ends_it_with_that_signal_even_after_ignoring_it() {
    let scenario = Scenario::new();
    for (word, number) in [("KILL", 9), ("SEGV", 11), ("SIGABRT", 6), ("BUS", 7), ("TERM", 15)] {
        assert_eq!(played(&scenario, &[json!({"signal": word})]).1, Ended::Signal(number), "{word}");
    }
    let steps = [json!({"ignore": ["TERM"]}), json!({"signal": "TERM"})];
    assert_eq!(played(&scenario, &steps).1, Ended::Signal(15));
}

#[test]
fn a_stop_signal_stops_it_until_it_is_continued() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[json!({"signal": "STOP"}), json!({"exit": 4})]);
    wait_until(DEADLINE, "the host to be stopped", || {
        turnhost_os::identity::stat(host.pid()).filter(|stat| stat.state == b'T')
    });
    host.signal(Signal::SIGCONT);
    assert_eq!(host.wait_exit(), Ended::Code(4));
}

#[test]
fn ignored_signals_do_nothing() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[
        json!({"ignore": ["TERM", "INT", "HUP"]}),
        json!({"hello": {}}),
        json!({"read": 1}),
        json!({"exit": 6}),
    ]);
    host.wait_for("hello", |frame| frame["type"] == "hello");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        host.signal(signal);
    }
    host.send_bytes(b"go on\n");
    assert_eq!(host.wait_exit(), Ended::Code(6));
}

#[test]
fn stderr_gets_so_many_bytes_with_and_without_a_newline() {
    let scenario = Scenario::new();
    let (host, _) = played(
        &scenario,
        &[json!({"stderr": {"bytes": 3, "newline": false}}), json!({"stderr": {"bytes": 100_000}})],
    );
    assert_eq!(host.stderr(), format!("{}\n", "x".repeat(100_003)));
}

#[test]
fn a_flood_is_deltas_of_the_expected_turn_and_rpc_frames_without_one() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[
        json!({"flood": {"frames": 1, "bytes": 5}}),
        json!({"expect": "turn.start"}),
        json!({"flood": {"frames": 2, "bytes": 3}}),
        json!({"flood": {"frames": 1, "bytes": 0}}),
    ]);
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r"}));
    host.wait_exit();
    let frames = host.frames();
    assert_eq!(types(&frames), ["rpc", "delta", "delta", "delta"]);
    assert_eq!(frames[0]["message"]["params"]["payload"]["text"], "xxxxx");
    let deltas: Vec<_> = frames[1..]
        .iter()
        .map(|f| (f["request_id"].as_str(), f["text"].as_str(), f["seq"].as_u64()))
        .collect();
    assert_eq!(
        deltas,
        [
            (Some("r"), Some("xxx"), Some(0)),
            (Some("r"), Some("xxx"), Some(1)),
            (Some("r"), Some(""), Some(2))
        ]
    );
}

#[test]
fn heartbeats_come_from_then_on_while_the_script_does_something_else() {
    let scenario = Scenario::new();
    let host = scenario.faulty(&[json!({"heartbeat_ms": 20}), json!({"read": 1000})]);
    let mut at = 0;
    for _ in 0..3 {
        let (index, beat) = host.wait_for_after(at, "a heartbeat", |frame| frame["type"] == "hb");
        assert!(
            beat["active_turns"] == 0 && beat["progress_counter"].is_u64() && beat["rss_mb"].is_number(),
            "{beat}"
        );
        at = index + 1;
    }
}

#[test]
fn a_heartbeat_begins_as_the_wire_says() {
    let scenario = Scenario::new();
    let host =
        scenario.program("faulty-host").args(["--step", r#"{"heartbeat_ms":1000}"#, r#"{"read":1}"#]).start();
    let beat = host.wait_for("a heartbeat", |frame| frame["type"] == "hb");
    assert_eq!(beat["active_turns"], 0);
}

#[test]
fn a_grandchild_that_holds_the_pipes_keeps_stdout_open_after_the_host() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[
        json!({"hold_pipes": {"seconds": 600, "bind": "g"}}),
        json!({"frame": {"type": "grandchild", "pid": "$g.pid"}}),
        json!({"signal": "KILL"}),
    ]);
    let frame = host.wait_for("the grandchild's pid", |frame| frame["type"] == "grandchild");
    let pid: i32 = frame["pid"].as_str().unwrap().parse().unwrap();
    assert_eq!(host.wait_exit(), Ended::Signal(9));
    assert_eq!(scenario.processes(), [pid]);
    for (fd, kind) in [(0, "pipe:"), (1, "pipe:"), (2, "pipe:")] {
        let target = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
        assert!(target.display().to_string().starts_with(kind), "fd {fd} leads to {}", target.display());
    }
    // Nobody guards this host, so the test ends what it left.
    turnhost_os::ProcessIdentity::of(pid)
        .unwrap()
        .open()
        .unwrap()
        .signal(rustix::process::Signal::KILL)
        .unwrap();
    scenario.wait_nothing_left();
}

#[test]
fn a_grandchild_with_its_own_session_ignores_term_and_holds_no_pipe() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[
        json!({"setsid_child": {"seconds": 600, "bind": "g"}}),
        json!({"frame": {"type": "grandchild", "pid": "$g.pid"}}),
    ]);
    let frame = host.wait_for("the grandchild's pid", |frame| frame["type"] == "grandchild");
    let pid: i32 = frame["pid"].as_str().unwrap().parse().unwrap();
    assert_eq!(host.wait_exit(), Ended::Code(0));
    let stat = turnhost_os::identity::stat(pid).unwrap();
    assert_eq!((stat.session, stat.pgrp), (pid, pid));
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    assert_ne!(
        u64::from_str_radix(ignored, 16).unwrap() & (1 << (15 - 1)),
        0,
        "TERM is not ignored: {ignored}"
    );
    for fd in [0, 1, 2] {
        let target = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
        assert_eq!(target.display().to_string(), "/dev/null", "fd {fd}");
    }
    turnhost_os::ProcessIdentity::of(pid)
        .unwrap()
        .open()
        .unwrap()
        .signal(rustix::process::Signal::KILL)
        .unwrap();
    scenario.wait_nothing_left();
}

#[test]
fn a_grandchild_ends_by_itself_after_its_seconds() {
    let scenario = Scenario::new();
    let (_, ended) =
        played(&scenario, &[json!({"setsid_child": {"seconds": 0}}), json!({"hold_pipes": {"seconds": 0}})]);
    assert_eq!(ended, Ended::Code(0));
    scenario.wait_nothing_left();
}

#[test]
fn after_stop_reading_no_byte_is_taken_from_stdin() {
    let scenario = Scenario::new();
    let host =
        scenario.faulty(&[json!({"stop_reading": true}), json!({"hello": {}}), json!({"sleep_ms": 600_000})]);
    host.wait_for("hello", |frame| frame["type"] == "hello");
    let line = vec![b'a'; 1000];
    host.send_bytes(&line);
    // The pipe as the host holds it, opened anew: all that was written is still in it.
    let pipe = std::fs::File::open(format!("/proc/{}/fd/0", host.pid())).unwrap();
    assert_eq!(turnhost_os::fd::bytes_available(&pipe), 1000);
}

#[test]
fn without_stop_reading_stdin_is_emptied_whatever_the_script_does() {
    let scenario = Scenario::new();
    let host = scenario.faulty(&[json!({"sleep_ms": 600_000})]);
    // Far more than a pipe holds; it would fail at the deadline if nobody read.
    host.send_bytes(&b"0123456789\n".repeat(200_000));
}

#[test]
fn a_closed_stream_is_closed_for_the_other_end() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[
        json!({"hello": {}}),
        json!({"close": "stdout"}),
        json!({"frame": {"type": "lost"}}),
        json!({"stderr": {"bytes": 1}}),
        json!({"close": "stderr"}),
        json!({"stderr": {"bytes": 1}}),
        json!({"close": "stdin"}),
        json!({"sleep_ms": 600_000}),
    ]);
    host.wait_stdout_end();
    assert_eq!(types(&host.frames()), ["hello"]);
    wait_until(DEADLINE, "stdin to be closed", || {
        host.try_send_bytes(b"x\n")
            .is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
            .then_some(())
    });
    host.signal(Signal::SIGKILL);
    assert_eq!(host.wait_exit(), Ended::Signal(9));
    // Only the end of the process says that its stderr was read to the end.
    assert_eq!(host.stderr(), "x\n");
}

#[test]
fn repeat_plays_its_steps_so_many_times_and_nests() {
    let scenario = Scenario::new();
    let inner = json!({"repeat": {"times": 2, "steps": [{"frame": {"type": "b"}}]}});
    let (host, _) =
        played(&scenario, &[json!({"repeat": {"times": 2, "steps": [{"frame": {"type": "a"}}, inner]}})]);
    assert_eq!(types(&host.frames()), ["a", "b", "b", "a", "b", "b"]);
}

#[test]
fn a_reader_of_stdout_that_is_gone_ends_it_with_74() {
    let scenario = Scenario::new();
    let mut host =
        scenario.program("faulty-host").args(["--step", r#"{"read":1}"#, r#"{"hello":{}}"#]).start();
    host.close_stdout();
    host.send_bytes(b"go\n");
    assert_eq!(host.wait_exit(), Ended::Code(74));
}

#[test]
fn a_wrong_script_is_refused_before_anything_is_played() {
    let scenario = Scenario::new();
    let (host, ended) = played(&scenario, &[json!({"hello": {}}), json!({"sleep": 1})]);
    assert_eq!(ended, Ended::Code(2));
    assert_eq!(host.frames(), [] as [Value; 0]);
    assert!(host.stderr().contains("step 2, field `sleep`: there is no such step"), "{}", host.stderr());
    let mut none = scenario.program("faulty-host").start();
    assert_eq!(none.wait_exit(), Ended::Code(2));
    assert!(none.stderr().contains("give --script FILE or --step JSON"), "{}", none.stderr());
}

#[test]
fn a_script_comes_from_a_file_as_a_list_or_as_lines() {
    let scenario = Scenario::new();
    let file = scenario.home().join("script");
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut host = scenario.program("faulty-host").arg_path("--script", &file).start();
        let ended = host.wait_exit();
        (ended, host.stderr())
    };
    assert_eq!(run("[{\"read\":0},\n{\"exit\":3}]\n").0, Ended::Code(3));
    assert_eq!(run("# comment\n\n{\"read\":0}\n{\"exit\":4}\n").0, Ended::Code(4));
    let (ended, stderr) = run("{\"exit\":\"4\"}\n");
    assert_eq!(ended, Ended::Code(2));
    assert!(stderr.contains(&format!("{}: step 1, field `exit`", file.display())), "{stderr}");
}

fn serving(scenario: &Scenario) -> Process {
    scenario.faulty(&[json!({"hello": {}}), json!({"serve": true}), json!({"frame": {"type": "served"}})])
}

#[test]
fn serve_runs_turns_with_exact_deltas_and_counts_the_history() {
    let scenario = Scenario::new();
    let host = serving(&scenario);
    host.send(&json!({"type": "session.seed", "sid": "s", "request_id": "seed", "report_messages": true, "history": [{"role": "user", "content": "x"}]}));
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "text": "hi", "delta_count": 3, "delay_s": 0, "delta_bytes": 16}));
    let end = host.answer("r", "turn.end");
    assert_eq!(host.answer("seed", "session.seeded")["message_count"], 1);
    let frames = host.frames_of("r");
    assert_eq!(types(&frames), ["turn.started", "delta", "delta", "delta", "turn.end"]);
    let texts: Vec<_> = frames[1..4].iter().map(|frame| frame["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["s:hi:0000 xxxxxx", "s:hi:0001 xxxxxx", "s:hi:0002 xxxxxx"]);
    assert_eq!(
        frames[1..4].iter().map(|frame| frame["seq"].as_u64()).collect::<Vec<_>>(),
        [Some(0), Some(1), Some(2)]
    );
    assert_eq!(end["final_response"], texts.concat());
    assert_eq!(
        (&end["history_version"], &end["message_count"], &end["interrupted"]),
        (&json!(1), &json!(3), &json!(false))
    );
    assert_eq!(end["messages_appended"].as_array().map(Vec::len), Some(2));
    assert!(host.frames().iter().all(|frame| frame["host_ns"].is_u64()));
}

#[test]
fn serve_sends_rpc_frames_in_place_of_deltas_if_the_turn_asks() {
    let scenario = Scenario::new();
    let host = serving(&scenario);
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "text": "hi", "delta_count": 2, "emit": "rpc"}));
    host.answer("r", "turn.end");
    let frames = host.frames();
    assert_eq!(types(&frames), ["hello", "turn.started", "rpc", "rpc", "turn.end"]);
    assert_eq!(frames[2]["message"]["params"]["payload"]["text"], "s:hi:0000 ");
}

#[test]
fn serve_interrupts_at_once_and_knows_every_outcome() {
    let scenario = Scenario::new();
    let host = serving(&scenario);
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i0"}));
    host.send(
        &json!({"type": "turn.start", "sid": "s", "request_id": "r", "delta_count": 100, "delay_s": 600}),
    );
    host.answer("r", "delta");
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "second"}));
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i1", "turn_id": "other"}));
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i2", "turn_id": "r"}));
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i3", "turn_id": "r"}));
    let outcomes: Vec<_> = ["i0", "i1", "i2", "i3"]
        .map(|id| host.answer(id, "interrupt.ack")["outcome"].as_str().unwrap().to_owned())
        .into();
    assert_eq!(outcomes, ["not_found", "superseded", "applied", "already_ended"]);
    let end = host.answer("r", "turn.end");
    assert_eq!(end["interrupted"], true);
    assert_eq!(host.answer("second", "turn.error")["reason"], "busy");
}

#[test]
fn serve_leaves_a_hanging_turn_alone_until_shutdown() {
    let scenario = Scenario::new();
    let mut host = serving(&scenario);
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "hang": true}));
    host.send(&json!({"type": "turn.start", "sid": "s2", "request_id": "r2", "delay_s": 600}));
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i"}));
    host.send(&json!({"type": "shutdown", "request_id": "bye"}));
    assert_eq!(host.wait_exit(), Ended::Code(0));
    assert_eq!(host.answer("i", "interrupt.ack")["applied"], true);
    assert_eq!(host.answer("r", "turn.error")["reason"], "shutdown");
    assert_eq!(host.answer("r2", "turn.end")["interrupted"], true);
    assert_eq!(types(&host.frames()).last(), Some(&"shutdown.ack"));
}

#[test]
fn serve_answers_controls_seeds_responds_and_whatever_it_does_not_know() {
    let scenario = Scenario::new();
    let mut host = serving(&scenario);
    host.send(&json!({"type": "session.seed", "sid": "s", "request_id": "seed", "history": [{}, {}]}));
    for (id, route) in
        [("c1", "session.save"), ("c2", "session.reset"), ("c3", "nope"), ("c4", "prompt.submit")]
    {
        host.send(&json!({"type": "control", "sid": "s", "request_id": id, "route_name": route}));
    }
    host.send(&json!({"type": "control", "sid": "?", "request_id": "c5", "route_name": "session.save"}));
    host.send(&json!({"type": "reload_mcp", "sid": "s", "request_id": "m"}));
    host.send(&json!({"type": "respond", "sid": "s", "request_id": "p"}));
    host.send(&json!({"type": "what", "request_id": "u"}));
    host.send(&json!({"type": "session.seed", "request_id": "no-sid"}));
    host.send_bytes(b"{]\n[]\n\n");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));
    assert_eq!(host.answer("c1", "control.ack")["message_count"], 2);
    assert_eq!(host.answer("c2", "control.ack")["message_count"], 0);
    assert_eq!(host.answer("c3", "control.error")["message"], "unclassified route: nope");
    assert_eq!(host.answer("c4", "control.error")["message"], "use turn.start or interrupt");
    assert_eq!(host.answer("c5", "control.error")["message"], "session not found");
    host.answer("m", "reload_mcp.ack");
    host.answer("p", "respond.ack");
    assert_eq!(host.answer("u", "error")["message"], "unknown frame type: what");
    assert_eq!(host.answer("no-sid", "error")["message"], "sid required");
    let errors: Vec<_> = host
        .frames()
        .iter()
        .filter(|f| f["type"] == "error" && f.get("request_id").is_none())
        .map(|f| f["message"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("invalid json: "), "{errors:?}");
    assert_eq!(errors[1], "frame must be an object");
    assert_eq!(types(&host.frames()).last(), Some(&"served"));
}

#[test]
fn serve_reads_stdin_while_nobody_reads_its_stdout() {
    let scenario = Scenario::new();
    let steps = [json!({"hello": {}}), json!({"serve": true})];
    let mut host = scenario
        .program("faulty-host")
        .args(std::iter::once("--step".to_owned()).chain(steps.iter().map(Value::to_string)))
        .stdout_unread()
        .start();
    // Its answers fill the pipe long before these are read.
    for round in 0..20_000 {
        host.send(&json!({"type": "respond", "sid": "s", "request_id": format!("p{round}")}));
    }
    host.read_stdout();
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));
    assert_eq!(host.frames().len(), 20_001);
}

#[test]
fn help_shows_examples_and_exit_codes() {
    let scenario = Scenario::new();
    let mut host = scenario.program("faulty-host").args(["--help"]).start();
    assert_eq!(host.wait_exit(), Ended::Code(0));
    let help = host.strays().join("\n");
    for wanted in ["--script", "--step", "Examples:", "Exit codes:", "docs/harness.md"] {
        assert!(help.contains(wanted), "{wanted} is not in\n{help}");
    }
}
