//! The life of a host under `turnhost supervise`: its states, its crashes and restarts, and what they make of turns.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use turnhost_testkit::{Ended, Scenario, Supervise, turn};

const LONG: f64 = 600.0;

/// A `faulty-host` that behaves.
fn serving(scenario: &Scenario) -> Vec<String> {
    scenario
        .faulty_argv(&[json!({"hello": {"boot_id": "boot", "build_sha": "good"}}), json!({"serve": true})])
}

fn compute_host() -> Vec<String> {
    vec![turnhost_testkit::binary("compute-host").display().to_string()]
}

fn finished(mut supervise: Supervise) {
    assert_eq!(supervise.finish(), Ended::Code(0), "{}", supervise.process.stderr());
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn every_change_of_state_is_told_in_order() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &serving(&scenario));
    supervise.start();
    supervise.ok(json!({"op": "shutdown"}));
    let (_, stopped) = supervise.state_after(
        supervise.process.frames().iter().position(|f| f["state"] == "ready").unwrap_or(0),
        "stopped",
    );
    let frames = supervise.process.frames();
    let states: Vec<&Value> = frames.iter().filter(|frame| frame["event"] == "state").collect();
    let words: Vec<_> = states.iter().filter_map(|event| event["state"].as_str()).collect();
    assert_eq!(words, ["starting", "ready", "draining", "stopped"]);
    assert_eq!(
        keys(states[1]),
        ["boot_id", "event", "incarnation", "last_exit", "next_start_in_ms", "pid", "restarts", "state"]
    );
    assert_eq!((&states[1]["boot_id"], &states[1]["incarnation"]), (&json!("boot"), &json!(1)));
    assert_eq!(stopped["last_exit"], json!({"code": 0, "signal": null, "signal_name": null}));
    finished(supervise);
}

#[test]
fn restart_gives_the_next_incarnation_and_ends_open_turns() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &serving(&scenario));
    let first = supervise.start();
    supervise.submit("s", "r", json!({"delay_s": LONG}));
    supervise.turn_frame("r", "turn.started");
    assert_eq!(supervise.ok(json!({"op": "restart"})), json!({"incarnation": 2}));
    supervise.ending("r");
    assert_eq!(supervise.endings("r").len(), 1);
    assert_ne!(supervise.start()["pid"], first["pid"]);
    supervise.submit("s", "r2", json!({"delta_count": 1}));
    assert_eq!(supervise.ending("r2")["type"], "turn.end");
    finished(supervise);
}

#[test]
fn a_restart_with_a_drain_lets_open_turns_finish() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &serving(&scenario));
    supervise.start();
    supervise.submit("s", "r", json!({"delta_count": 5, "delay_s": 0.1}));
    supervise.turn_frame("r", "delta");
    assert_eq!(supervise.ok(json!({"op": "restart", "drain_ms": 600_000})), json!({"incarnation": 2}));
    let end = supervise.ending("r");
    assert_eq!((&end["type"], &end["interrupted"]), (&json!("turn.end"), &json!(false)));
    finished(supervise);
}

#[test]
fn while_a_stop_drains_new_turns_are_refused_and_open_ones_finish() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &compute_host());
    supervise.start();
    supervise.submit(
        "s",
        "r",
        json!({"script": [{"ask": {"command": "x", "choices": ["go"]}}, {"delta": "done"}]}),
    );
    let question = supervise.turn_frame("r", "event");
    let stop = supervise.begin(json!({"op": "shutdown", "drain_ms": 600_000, "budget_ms": 700_000}));
    supervise.event("state", |event| event["state"] == "draining");
    assert_eq!(supervise.refused(turn("s2", "late", json!({})))["kind"], "shutdown");
    supervise
        .ok(json!({"op": "respond", "sid": "s", "approval_id": question["approval_id"], "choice": "go"}));
    let end = supervise.ending("r");
    assert_eq!(end["interrupted"], false);
    assert!(end["final_response"].as_str().is_some_and(|text| text.ends_with("done")), "{end}");
    assert_eq!(supervise.answer(&stop)["ok"], true);
    finished(supervise);
}

#[test]
fn a_question_of_the_agent_comes_as_an_event_and_respond_answers_it() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &compute_host());
    supervise.submit(
        "s",
        "r",
        json!({"script": [{"ask": {"command": "x", "choices": ["go", "deny"]}}, {"delta": "done"}]}),
    );
    let question = supervise.turn_frame("r", "event");
    assert_eq!(question["kind"], "approval_request");
    let ack = supervise
        .ok(json!({"op": "respond", "sid": "s", "approval_id": question["approval_id"], "choice": "go"}));
    assert_eq!(ack["resolved"], true);
    let end = supervise.ending("r");
    assert!(end["final_response"].as_str().is_some_and(|text| text.ends_with("done")), "{end}");
    finished(supervise);
}

#[test]
fn what_the_host_refuses_has_its_kind() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &compute_host());
    supervise.start();
    let control = |sid: &str, route: &str| json!({"op": "control", "sid": sid, "route_name": route});
    assert_eq!(supervise.refused(control("never", "session.save"))["kind"], "session_not_found");
    supervise.submit("s", "r", json!({"delay_s": LONG}));
    supervise.turn_frame("r", "turn.started");
    assert_eq!(supervise.refused(control("s", "session.reset"))["kind"], "busy");
    assert_eq!(supervise.refused(json!({"op": "seed", "sid": "s", "history": []}))["kind"], "busy");
    assert_eq!(supervise.refused(json!({"op": "reload_mcp", "sid": "s"}))["kind"], "control_failed");
    let before = supervise.ok(json!({"op": "status"}))["counters"]["frames_out"].clone();
    let refusal = supervise.refused(control("s", "no.such"));
    assert_eq!(refusal["kind"], "unclassified_route");
    assert!(refusal["message"].as_str().is_some_and(|text| text.contains("no.such")), "{refusal}");
    assert_eq!(supervise.ok(json!({"op": "status"}))["counters"]["frames_out"], before, "nothing was sent");
    supervise.submit("s", "second", json!({}));
    assert_eq!(supervise.ending("second")["reason"], "busy");
    finished(supervise);
}

#[test]
fn a_request_id_that_is_open_is_refused_and_free_again_after_the_end() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &serving(&scenario));
    supervise.start();
    supervise.submit("s", "r", json!({"delay_s": LONG}));
    assert_eq!(supervise.refused(turn("s2", "r", json!({})))["kind"], "duplicate_request");
    assert_eq!(
        supervise
            .refused(json!({"op": "control", "sid": "s", "request_id": "r", "route_name": "session.save"}))["kind"],
        "duplicate_request"
    );
    supervise.ok(json!({"op": "interrupt", "sid": "s"}));
    supervise.ending("r");
    assert_eq!(supervise.endings("r").len(), 1);
    supervise.submit("s", "r", json!({"delta_count": 1}));
    supervise.process.wait_for("the second life of the id", |frame| {
        frame["frame"]["type"] == "turn.end" && frame["frame"]["interrupted"] == false
    });
    finished(supervise);
}

#[test]
fn reset_gives_the_state_and_does_not_start() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &serving(&scenario));
    assert_eq!(supervise.ok(json!({"op": "reset"})), json!({"state": "stopped"}));
    supervise.start();
    assert_eq!(supervise.ok(json!({"op": "reset"})), json!({"state": "ready"}));
    finished(supervise);
}

#[test]
fn a_slow_reader_gets_merged_deltas_and_one_gap_and_holds_up_nobody() {
    let scenario = Scenario::new();
    let mut supervise =
        Supervise::over(scenario.supervise_launch(&[], &serving(&scenario)).stdout_unread().start());
    supervise.process.send(&json!({"id": "s", "op": "start"}));
    supervise
        .process
        .send(&json!({"id": "t", "op": "submit_turn", "sid": "s", "request_id": "r", "text": "hi",
        "delta_count": 20_000, "delay_s": 0, "delta_bytes": 1000}));
    // More than any buffer on the way; the host would never end the turn if it were held up.
    supervise.process.send(&json!({"id": "u", "op": "submit_turn", "sid": "s2", "request_id": "r2", "text": "hi", "delta_count": 1}));
    supervise.process.read_stdout();
    let end = supervise.ending("r");
    assert_eq!(end["type"], "turn.end");
    assert_eq!(supervise.ending("r2")["type"], "turn.end");
    let frames = supervise.turn_frames("r");
    let deltas: Vec<&Value> = frames.iter().filter(|frame| frame["type"] == "delta").collect();
    let told: usize = deltas.iter().filter_map(|delta| delta["text"].as_str()).map(str::len).sum();
    let all = supervise.process.frames();
    let lagged: Vec<&Value> =
        all.iter().filter(|frame| frame["event"] == "lagged" && frame["request_id"] == "r").collect();
    let lost: u64 = lagged.iter().filter_map(|event| event["bytes"].as_u64()).sum();
    assert_eq!(told as u64 + lost, 20_000 * 1000, "every byte was told or counted as lost");
    assert_eq!(supervise.endings("r").len(), 1);
    finished(supervise);
}

#[test]
fn the_end_of_stdin_term_int_and_a_closed_stdout_shut_down_cleanly() {
    for how in ["eof", "term", "int", "stdout"] {
        let scenario = Scenario::new();
        let mut supervise = scenario.supervise(&[], &compute_host());
        supervise.start();
        supervise.submit("s", "r", json!({"delay_s": LONG}));
        supervise.turn_frame("r", "delta");
        match how {
            "eof" => supervise.process.close_stdin(),
            "term" => supervise.process.signal(Signal::SIGTERM),
            "int" => supervise.process.signal(Signal::SIGINT),
            _ => supervise.process.close_stdout(),
        }
        assert_eq!(supervise.process.wait_exit(), Ended::Code(0), "{how}: {}", supervise.process.stderr());
        // The guard goes last, and of itself.
        scenario.wait_nothing_left();
        if how != "stdout" {
            assert_eq!(supervise.endings("r").len(), 1, "{how}");
        }
    }
}

/// Waits until the host is known to have ended and the next start is planned; gives that event and its index.
fn backing_off(supervise: &Supervise) -> (usize, Value) {
    supervise.process.wait_for_after(0, "the back-off", |event| {
        event["state"] == "backing_off" && !event["last_exit"].is_null()
    })
}

/// Writes the script, which may be written anew before the next start, and gives the host that plays it.
fn scripted(script: &std::path::Path, steps: &[Value]) -> Vec<String> {
    let text: String = steps.iter().map(|step| format!("{step}\n")).collect();
    if let Err(error) = std::fs::write(script, text) {
        panic!("{}: {error}", script.display());
    }
    let program = turnhost_testkit::binary("faulty-host").display().to_string();
    vec![program, "--script".to_owned(), script.display().to_string()]
}

/// A stop reaches the threads one after the other, and one that still runs could read on.
fn wait_every_thread_stopped(pid: i32) {
    turnhost_testkit::wait_until(turnhost_testkit::DEADLINE, "every thread to stop", || {
        let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let stopped = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        threads.all(|thread| thread.is_ok_and(stopped)).then_some(())
    });
}

fn kill_host(supervise: &Supervise) {
    turnhost_testkit::signal(supervise.host_pid(), rustix::process::Signal::KILL);
}

#[test]
fn a_crash_ends_the_turn_with_its_reason_and_the_host_comes_back() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&["--backoff-base-ms", "1"], &compute_host());
    let first = supervise.start();
    supervise.submit(
        "s",
        "r",
        json!({"script": [{"stderr": "last words\n"}, {"deltas": 3, "bytes": 4}, {"sleep_ms": 600_000}]}),
    );
    supervise.process.wait_for("the third delta", |frame| frame["frame"]["seq"] == 2);
    kill_host(&supervise);
    let error = supervise.ending("r");
    assert_eq!(
        (&error["type"], &error["sid"], &error["request_id"]),
        (&json!("turn.error"), &json!("s"), &json!("r"))
    );
    assert_eq!(error["reason"], "crash");
    assert_eq!(
        (&error["exit_code"], &error["signal"], &error["signal_name"]),
        (&Value::Null, &json!(9), &json!("SIGKILL"))
    );
    assert_eq!((&error["turn_started"], &error["incarnation"]), (&json!(true), &json!(1)));
    assert_eq!(error["delivered"], json!({"deltas": 3, "last_seq": 2}));
    assert!(
        error["stderr_tail"].as_array().is_some_and(|tail| tail.contains(&json!("last words"))),
        "{error}"
    );
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
    let rpc = supervise.event("rpc", |event| event["message"]["params"]["type"] == "error");
    assert_eq!(
        (&rpc["message"]["params"]["session_id"], &rpc["message"]["params"]["payload"]["reason"]),
        (&json!("s"), &json!("crash"))
    );

    let (_, ready) = supervise.state_after(0, "ready");
    assert_eq!(ready["incarnation"], 1);
    let (backing_off_at, backing_off) = backing_off(&supervise);
    assert_eq!(backing_off["last_exit"], json!({"code": null, "signal": 9, "signal_name": "SIGKILL"}));
    let (_, ready) = supervise.state_after(backing_off_at, "ready");
    assert_eq!((&ready["incarnation"], &ready["restarts"]), (&json!(2), &json!(1)));
    assert_ne!((&ready["boot_id"], &ready["pid"]), (&first["boot_id"], &first["pid"]));
    supervise.submit("s", "r2", json!({"delta_count": 2}));
    assert_eq!(supervise.ending("r2")["type"], "turn.end");
    assert_eq!(supervise.endings("r").len(), 1);
    let counters = supervise.ok(json!({"op": "status"}))["counters"].clone();
    assert_eq!((&counters["turns_ended"], &counters["turns_failed"]), (&json!(1), &json!({"crash": 1})));
    finished(supervise);
}

#[test]
fn every_way_to_die_is_told_as_it_was() {
    for (step, code, signal, name) in [
        (json!({"exit": 0}), json!(0), Value::Null, Value::Null),
        (json!({"exit": 137}), json!(137), Value::Null, Value::Null),
        (json!({"signal": "SEGV"}), Value::Null, json!(11), json!("SIGSEGV")),
        (json!({"signal": "ABRT"}), Value::Null, json!(6), json!("SIGABRT")),
    ] {
        let scenario = Scenario::new();
        let host =
            scenario.faulty_argv(&[json!({"hello": {}}), json!({"expect": "turn.start"}), step.clone()]);
        let supervise = scenario.supervise(&["--respawn-max", "0"], &host);
        supervise.submit("s", "r", json!({}));
        let error = supervise.ending("r");
        assert_eq!((&error["reason"], &error["turn_started"]), (&json!("crash"), &Value::Null), "{step}");
        assert_eq!(
            (&error["exit_code"], &error["signal"], &error["signal_name"]),
            (&code, &signal, &name),
            "{step}"
        );
        assert_eq!(error["delivered"], json!({"deltas": 0, "last_seq": null}), "{step}");
        finished(supervise);
    }
}

#[test]
fn an_ending_that_is_in_the_pipe_when_the_host_dies_wins_over_the_crash() {
    for last_newline in ["\n", ""] {
        let scenario = Scenario::new();
        let end = format!(
            "{{\"type\":\"turn.end\",\"sid\":\"s\",\"request_id\":\"$t.request_id\",\"interrupted\":false}}{last_newline}"
        );
        let host = scenario.faulty_argv(&[
            json!({"hello": {}}),
            json!({"expect": "turn.start", "bind": "t"}),
            json!({"write": end}),
            json!({"signal": "KILL"}),
        ]);
        let supervise = scenario.supervise(&["--respawn-max", "0"], &host);
        let mut after = 0;
        for round in 0..20 {
            let id = format!("r{round}");
            supervise.start();
            supervise.submit("s", &id, json!({}));
            assert_eq!(supervise.ending(&id)["type"], "turn.end");
            after = supervise.state_after(after, "crash_looped").0 + 1;
            assert_eq!(supervise.endings(&id).len(), 1);
            supervise.ok(json!({"op": "reset"}));
        }
        finished(supervise);
    }
}

#[test]
fn an_ending_that_is_cut_off_by_the_crash_is_a_crash() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"hello": {}}),
        json!({"expect": "turn.start", "bind": "t"}),
        json!({"write": "{\"type\":\"turn.end\",\"sid\":\"s\",\"request_id\":\"$t.request_id\",\"interr"}),
        json!({"exit": 0}),
    ]);
    let supervise = scenario.supervise(&["--respawn-max", "0"], &host);
    supervise.submit("s", "r", json!({}));
    assert_eq!(supervise.ending("r")["reason"], "crash");
    finished(supervise);
}

#[test]
fn a_grandchild_that_keeps_the_pipes_does_not_hold_up_the_crash() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"hold_pipes": {"seconds": 600}}),
        json!({"hello": {}}),
        json!({"expect": "turn.start"}),
        json!({"signal": "KILL"}),
    ]);
    let supervise = scenario.supervise(&["--respawn-max", "0"], &host);
    supervise.submit("s", "r", json!({}));
    assert_eq!(supervise.ending("r")["reason"], "crash");
    finished(supervise);
}

/// A thousand turns over a host that dies: the first has ended already, though nobody has read it; the next 499 were
/// read by the host; of the last 500 a few are in the pipe and the rest was never written.
#[test]
fn of_a_thousand_open_turns_each_has_exactly_one_ending_when_the_host_is_killed() {
    let scenario = Scenario::new();
    let script = scenario.home().join("script");
    let first = [
        json!({"hello": {}}),
        json!({"expect": "turn.start", "bind": "t"}),
        json!({"read": 499}),
        json!({"stop_reading": true}),
        json!({"frame": {"type": "rpc", "sid": "", "message": {"read": 500}}}),
        json!({"signal": "STOP"}),
        json!({"frame": {"type": "turn.end", "sid": "s0", "request_id": "$t.request_id", "interrupted": false}}),
        json!({"signal": "STOP"}),
    ];
    let host = scripted(&script, &first);
    let options = [
        "--unavailable-after-ms",
        "600000",
        "--write-stall-ms",
        "600000",
        "--backoff-base-ms",
        "1",
        "--max-waiting",
        "1024",
    ];
    let supervise = scenario.supervise(&options, &host);
    supervise.start();
    let pid = supervise.host_pid();
    let id = |index: usize| format!("r{index}");
    let submit = |index: usize, text: &str| {
        supervise.begin(json!({"id": format!("op{index}"), "op": "submit_turn", "sid": format!("s{index}"), "request_id": id(index), "text": text, "delta_count": 0}))
    };
    for index in 0..500 {
        submit(index, "small");
    }
    let stopped = |what: &str| {
        turnhost_testkit::wait_until(turnhost_testkit::DEADLINE, what, || {
            turnhost_os::identity::stat(pid).filter(|stat| stat.state == b'T')
        });
    };
    supervise.event("rpc", |event| event["message"]["read"] == 500);
    stopped("the host to stop after 500 turns");
    // Each takes a good part of the pipe, so most of them cannot be written.
    let text = "x".repeat(4096);
    for index in 500..1000 {
        submit(index, &text);
    }
    for index in 0..1000 {
        let answer = supervise.answer(&format!("op{index}"));
        assert_eq!(answer["ok"], true, "{answer}");
    }
    assert_eq!(supervise.ok(json!({"op": "status"}))["open"]["turns"].as_array().map(Vec::len), Some(1000));
    scripted(&script, &[json!({"hello": {}}), json!({"serve": true})]);
    // While the supervisor sleeps the first turn's end goes into the pipe, and the host is killed.
    supervise.process.signal(Signal::SIGSTOP);
    wait_every_thread_stopped(supervise.process.pid());
    turnhost_testkit::signal(pid, rustix::process::Signal::CONT);
    turnhost_testkit::wait_until(turnhost_testkit::DEADLINE, "the end in the pipe", || {
        let pipe = std::fs::File::open(format!("/proc/{pid}/fd/1")).ok()?;
        (turnhost_os::fd::bytes_available(&pipe) > 0).then_some(())
    });
    stopped("the host to stop after its end");
    turnhost_testkit::signal(pid, rustix::process::Signal::KILL);
    turnhost_testkit::wait_until(turnhost_testkit::DEADLINE, "the end of the host", || {
        turnhost_os::identity::stat(pid).is_none_or(|stat| stat.is_dead()).then_some(())
    });
    supervise.process.signal(Signal::SIGCONT);

    assert_eq!(supervise.ending(&id(0))["type"], "turn.end");
    for index in 1..500 {
        let error = supervise.ending(&id(index));
        assert_eq!(
            (&error["reason"], &error["turn_started"], &error["signal"]),
            (&json!("crash"), &Value::Null, &json!(9)),
            "{index}"
        );
    }
    let rest: Vec<Value> = (500..1000).map(|index| supervise.ending(&id(index))).collect();
    let written = rest.iter().take_while(|ending| ending["type"] == "turn.error").count();
    // A pipe holds 64 KiB: 16 of these, and one that is cut.
    assert!((1..=20).contains(&written), "{written} of the last 500 were in the pipe");
    for (index, ending) in rest.iter().enumerate() {
        if index < written {
            assert_eq!(
                (&ending["reason"], &ending["turn_started"]),
                (&json!("crash"), &Value::Null),
                "{index}"
            );
        } else {
            assert_eq!(
                ending["type"], "turn.end",
                "turn {index} was never written and waits for the next host: {ending}"
            );
        }
    }
    assert_eq!(supervise.ok(json!({"op": "status"}))["open"]["turns"], json!([]));
    let mut endings = std::collections::BTreeMap::<String, u32>::new();
    for frame in supervise.process.frames() {
        if frame["frame"]["type"] == "turn.end" || frame["frame"]["type"] == "turn.error" {
            *endings.entry(frame["request_id"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    assert_eq!(endings.len(), 1000);
    assert!(endings.values().all(|count| *count == 1), "each has exactly one: {endings:?}");
    finished(supervise);
}

#[test]
fn sessions_are_seeded_again_with_their_history_as_it_stood() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&["--backoff-base-ms", "1"], &compute_host());
    supervise.ok(json!({"op": "seed", "sid": "s", "history": [{"role": "user", "content": "before"}], "session_key": "key"}));
    supervise.submit("s", "r1", json!({"delta_count": 1}));
    assert_eq!(supervise.ending("r1")["message_count"], 3);
    kill_host(&supervise);
    let (at, _) = backing_off(&supervise);
    supervise.state_after(at, "ready");
    supervise.submit("s", "r2", json!({"delta_count": 1}));
    let end = supervise.ending("r2");
    assert_eq!((&end["message_count"], &end["session_key"]), (&json!(5), &json!("key")));
    assert_eq!(supervise.process.frames().iter().filter(|frame| frame["event"] == "session_lost").count(), 0);
    finished(supervise);
}

#[test]
fn a_reseed_comes_before_anything_else_and_a_reset_is_remembered() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&["--backoff-base-ms", "1"], &compute_host());
    supervise.ok(json!({"op": "seed", "sid": "s", "history": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}));
    supervise.ok(json!({"op": "control", "sid": "s", "route_name": "session.reset"}));
    kill_host(&supervise);
    backing_off(&supervise);
    // Submitted while no host is there: the seed must overtake it.
    supervise.submit("s", "r", json!({"delta_count": 1}));
    assert_eq!(supervise.ending("r")["message_count"], 2);
    finished(supervise);
}

#[test]
fn a_session_that_cannot_be_seeded_again_is_told_as_lost_before_its_next_turn() {
    let scenario = Scenario::new();
    let script = scenario.home().join("script");
    // The turn's messages are not reported by this host, so the history as it stands is not known.
    let steps = [
        json!({"hello": {}}),
        json!({"expect": "session.seed", "bind": "seed"}),
        json!({"frame": {"type": "session.seeded", "sid": "s", "request_id": "$seed.request_id"}}),
        json!({"expect": "turn.start", "bind": "t"}),
        json!({"frame": {"type": "turn.end", "sid": "s", "request_id": "$t.request_id"}}),
        json!({"read": 100_000}),
    ];
    let host = scripted(&script, &steps);
    let supervise = scenario.supervise(&["--backoff-base-ms", "1"], &host);
    supervise.ok(json!({"op": "seed", "sid": "s", "history": [{"role": "user", "content": "a"}]}));
    supervise.submit("s", "r1", json!({}));
    supervise.ending("r1");
    scripted(&script, &[json!({"hello": {}}), json!({"serve": true})]);
    kill_host(&supervise);
    backing_off(&supervise);
    supervise.submit("s", "r2", json!({"delta_count": 1}));
    let lost = supervise.event("session_lost", |_| true);
    assert_eq!(lost["sid"], "s");
    assert_eq!(supervise.ending("r2")["message_count"], 3, "what is known, the seed, was given again");
    let frames = supervise.process.frames();
    let lost_at = frames.iter().position(|frame| frame["event"] == "session_lost");
    let first_at = frames.iter().position(|frame| frame["event"] == "turn" && frame["request_id"] == "r2");
    assert!(lost_at < first_at, "the loss is told before the first event of the next turn");
    finished(supervise);
}

#[test]
fn too_many_crashes_end_what_waits_and_refuse_everything_until_reset() {
    let scenario = Scenario::new();
    let script = scenario.home().join("script");
    let host = scripted(&script, &[json!({"hello": {}}), json!({"exit": 1})]);
    let supervise = scenario.supervise(
        &["--respawn-max", "2", "--backoff-base-ms", "1", "--unavailable-after-ms", "600000"],
        &host,
    );
    supervise.op(json!({"op": "start"}));
    let (_, looped) = supervise.state_after(0, "crash_looped");
    assert_eq!((&looped["restarts"], &looped["last_exit"]["code"]), (&json!(2), &json!(1)));
    assert_eq!(supervise.refused(turn("s", "r", json!({})))["kind"], "crash_loop");
    assert_eq!(supervise.refused(json!({"op": "start"}))["kind"], "crash_loop");
    assert_eq!(
        supervise.refused(json!({"op": "control", "sid": "s", "route_name": "session.save"}))["kind"],
        "crash_loop"
    );
    let status = supervise.ok(json!({"op": "status"}));
    assert_eq!(
        (&status["state"], &status["incarnation"], &status["pid"]),
        (&json!("crash_looped"), &json!(3), &Value::Null)
    );
    scripted(&script, &[json!({"hello": {}}), json!({"serve": true})]);
    assert_eq!(supervise.ok(json!({"op": "reset"})), json!({"state": "stopped"}));
    supervise.start();
    supervise.submit("s", "r", json!({"delta_count": 1}));
    assert_eq!(supervise.ending("r")["type"], "turn.end");
    finished(supervise);
}

#[test]
fn turns_that_wait_when_the_crashes_become_too_many_end_with_crash_loop() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[json!({"exit": 1})]);
    let supervise = scenario.supervise(
        &["--respawn-max", "1", "--backoff-base-ms", "1", "--unavailable-after-ms", "600000"],
        &host,
    );
    supervise.submit("s", "r", json!({}));
    let error = supervise.ending("r");
    assert_eq!((&error["reason"], &error["turn_started"]), (&json!("crash_loop"), &json!(false)));
    finished(supervise);
}

#[test]
fn a_shutdown_during_the_back_off_starts_nothing_more() {
    let scenario = Scenario::new();
    let host =
        scenario.faulty_argv(&[json!({"hello": {}}), json!({"expect": "turn.start"}), json!({"exit": 1})]);
    let supervise = scenario.supervise(
        &["--backoff-base-ms", "600000", "--backoff-max-ms", "600000", "--unavailable-after-ms", "700000"],
        &host,
    );
    supervise.start();
    supervise.submit("s", "r1", json!({}));
    supervise.ending("r1");
    let event = supervise.event("state", |event| event["next_start_in_ms"].as_u64() > Some(10_000));
    assert!(
        event["next_start_in_ms"].as_u64().is_some_and(|ms| (200_000..=600_000).contains(&ms)),
        "{event}"
    );
    supervise.submit("s", "waits", json!({}));
    supervise.ok(json!({"op": "shutdown"}));
    let error = supervise.ending("waits");
    assert_eq!((&error["reason"], &error["turn_started"]), (&json!("shutdown"), &json!(false)));
    assert_eq!(supervise.ok(json!({"op": "status"}))["state"], "stopped");
    finished(supervise);
}

#[test]
fn a_hello_of_another_boot_on_the_same_pipe_is_a_crash_without_a_spawn() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"hello": {"boot_id": "one"}}),
        json!({"expect": "turn.start"}),
        json!({"hello": {"boot_id": "two"}}),
        json!({"serve": true}),
    ]);
    let supervise = scenario.supervise(&[], &host);
    let first = supervise.start();
    supervise.submit("s", "r", json!({}));
    assert_eq!(supervise.ending("r")["reason"], "crash");
    supervise.submit("s", "r2", json!({"delta_count": 1}));
    assert_eq!(supervise.ending("r2")["type"], "turn.end");
    let status = supervise.ok(json!({"op": "status"}));
    assert_eq!((&status["boot_id"], &status["pid"]), (&json!("two"), &first["pid"]));
    finished(supervise);
}
