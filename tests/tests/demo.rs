//! `turnhost demo`: what it shows has happened, and nothing of it is left.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::path::Path;
use turnhost_testkit::{DEADLINE, Ended, Process, Scenario, Terminal, binary, wait_until};

const CLAIMS: [&str; 8] =
    ["side_by_side", "killed", "one_ending", "crash", "went_on", "respawn", "history", "nothing_left"];

fn demo(scenario: &Scenario, arguments: &[&str]) -> Process {
    scenario.program("turnhost").args(["demo"]).args(arguments).start()
}

/// Waits for a line on stdout that has this text in it.
#[track_caller]
fn wait_line(process: &Process, text: &str) {
    wait_until(DEADLINE, &format!("{text:?} on stdout"), || {
        process.strays().iter().any(|line| line.contains(text)).then_some(())
    });
}

fn is_terminal(line: &Value) -> bool {
    line["frame"]["type"] == "turn.end" || line["frame"]["type"] == "turn.error"
}

#[test]
fn the_json_form_shows_that_all_of_it_has_happened() {
    let scenario = Scenario::new();
    let mut process = demo(&scenario, &["--json"]);
    assert_eq!(process.wait_exit(), Ended::Code(0), "{:?}\n{}", process.strays(), process.stderr());
    assert_eq!(process.stderr(), "");
    assert_eq!(process.strays(), [] as [&str; 0]);
    let lines = process.frames();

    // Exactly one ending of each turn that was submitted, as the last thing of it.
    let of = |id: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["event"] == "turn" && line["request_id"] == *id).collect()
    };
    let submitted: Vec<&str> = lines
        .iter()
        .filter(|line| line["event"] == "submitted")
        .map(|line| line["request_id"].as_str().unwrap())
        .collect();
    let mut sorted = submitted.clone();
    sorted.sort_unstable();
    let all = ["alice-1", "alice-2", "alice-3", "bob-1", "bob-2", "bob-3", "carol-1", "carol-2"];
    assert_eq!(sorted, all);
    for id in all {
        let of = of(id);
        assert_eq!(of[0]["frame"]["type"], "turn.started", "{id}");
        assert_eq!(of.iter().filter(|line| is_terminal(line)).count(), 1, "{id}");
        assert!(of.last().is_some_and(|line| is_terminal(line)), "{id}");
        let host = if id.starts_with("carol") { "south" } else { "north" };
        assert!(of.iter().all(|line| line["host"] == host), "{id}");
    }

    // The host that was ready was killed, its turns ended for that reason, the other's went on.
    let at = |what: &str, wanted: &dyn Fn(&Value) -> bool| {
        lines.iter().position(wanted).unwrap_or_else(|| panic!("no {what}"))
    };
    let kill = at("kill", &|line| line["event"] == "killed");
    let ready = at("host", &|line| line["host"] == "north" && line["state"] == "ready");
    assert_eq!(lines[kill]["host"], "north");
    assert_eq!(lines[kill]["pid"], lines[ready]["pid"]);
    let end = |id: &str| at("end", &|line| line["request_id"] == *id && is_terminal(line));
    for id in ["alice-2", "bob-2"] {
        let frame = &lines[end(id)]["frame"];
        assert!(end(id) > kill, "{id}");
        assert_eq!(frame["reason"], "crash", "{id}");
        assert_eq!(frame["signal_name"], "SIGKILL", "{id}");
        assert_eq!(frame["turn_started"], true, "{id}");
        let deltas = of(id).iter().filter(|line| line["frame"]["type"] == "delta").count();
        assert_eq!(frame["delivered"]["deltas"], json!(deltas), "{id}");
    }
    let crash = end("alice-2").max(end("bob-2"));
    let south_goes_on = |line: &Value| line["request_id"] == "carol-2" && line["frame"]["type"] == "delta";
    assert!(lines[crash..].iter().any(south_goes_on));
    assert_eq!(lines[end("carol-2")]["frame"]["type"], "turn.end");

    // Each host's way, and the countdown in its place.
    let way = |host: &str| {
        let mut words: Vec<&str> = lines
            .iter()
            .filter(|line| line["host"] == host)
            .filter_map(|line| line["state"].as_str())
            .collect();
        words.dedup();
        words
    };
    let north = ["starting", "ready", "backing_off", "starting", "ready", "draining", "stopped"];
    assert_eq!(way("north"), north);
    assert_eq!(way("south"), ["starting", "ready", "draining", "stopped"]);
    let counted: Vec<u64> = lines
        .iter()
        .filter(|line| line["event"] == "countdown")
        .map(|line| line["next_start_in_ms"].as_u64().unwrap())
        .collect();
    assert!(!counted.is_empty() && counted.is_sorted_by(|one, next| one >= next), "{counted:?}");

    // The next turns had the history: the seed and the first turn, not the one that crashed.
    for id in ["alice-1", "bob-1"] {
        assert_eq!(lines[end(id)]["frame"]["message_count"], 4, "{id}");
    }
    for id in ["alice-3", "bob-3"] {
        assert!(end(id) > crash, "{id}");
        assert_eq!(lines[end(id)]["frame"]["message_count"], 6, "{id}");
    }
    assert!(!lines.iter().any(|line| line["event"] == "session_lost"));

    // And it says so itself, at the end.
    let said: Vec<&Value> = lines.iter().filter(|line| line["event"] == "claim").collect();
    assert_eq!(said.iter().map(|line| line["claim"].as_str().unwrap()).collect::<Vec<_>>(), CLAIMS);
    assert!(said.iter().all(|line| line["ok"] == true), "{said:?}");
    assert_eq!(lines.last(), Some(&json!({"event": "verdict", "ok": true})));
    let times: Vec<u64> = lines.iter().filter_map(|line| line["at_ms"].as_u64()).collect();
    assert!(times.is_sorted());
    assert!(scenario.processes().is_empty(), "it says that nothing is left");
}

#[test]
fn the_plain_form_is_lines_without_escape_sequences() {
    let scenario = Scenario::new();
    let mut process = demo(&scenario, &[]);
    assert_eq!(process.wait_exit(), Ended::Code(0), "{:?}\n{}", process.strays(), process.stderr());
    let lines = process.strays();
    assert!(!lines.iter().any(|line| line.contains('\x1b') || line.contains('\r')), "{lines:?}");
    let ok: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("ok "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(ok, CLAIMS);
    for told in
        ["alice-2  | Once there was", "kill -9 ", "alice-2 ended: turn.error, crash", "a new host in "]
    {
        assert!(lines.iter().any(|line| line.contains(told)), "{told}: {lines:?}");
    }
}

#[test]
fn a_signal_at_any_time_ends_it_and_everything_it_started() {
    for (moment, signal) in [
        ("its host is ready", Signal::SIGINT),
        ("alice-1 started", Signal::SIGTERM),
        ("kill -9", Signal::SIGINT),
        ("a new host in", Signal::SIGHUP),
        ("a new host is ready", Signal::SIGINT),
    ] {
        let scenario = Scenario::new();
        let mut process = demo(&scenario, &[]);
        wait_line(&process, moment);
        process.signal(signal);
        assert_eq!(process.wait_exit(), Ended::Code(130), "{moment}: {}", process.stderr());
        assert!(process.stderr().contains("interrupted"), "{moment}: {}", process.stderr());
        assert!(!process.strays().iter().any(|line| line.starts_with("ok")), "it promises nothing");
        scenario.wait_nothing_left();
    }
}

#[test]
fn kill_9_of_the_demo_leaves_nothing() {
    let scenario = Scenario::new();
    let mut process = demo(&scenario, &[]);
    wait_line(&process, "carol-2 started");
    process.signal(Signal::SIGKILL);
    assert_eq!(process.wait_exit(), Ended::Signal(9));
    scenario.wait_nothing_left();
}

#[test]
fn a_reader_that_goes_ends_the_lines_and_not_the_play() {
    let scenario = Scenario::new();
    let mut process = demo(&scenario, &[]);
    wait_line(&process, "alice-1 started");
    process.close_stdout();
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    assert_eq!(process.stderr(), "");
    scenario.wait_nothing_left();
}

#[test]
fn without_a_stdout_or_on_a_full_disk_it_plays_and_says_what_is_lost() {
    for (redirected, code, complaint) in [(">&-", 0, ""), ("> /dev/full", 1, "stdout cannot be written")] {
        let scenario = Scenario::new();
        let shell = format!(r#""$0" demo {redirected}"#);
        let launch = scenario.launch(Path::new("/bin/sh")).args(["-c", &shell]);
        let mut process = launch.args([binary("turnhost")]).start();
        assert_eq!(process.wait_exit(), Ended::Code(code), "{redirected}: {}", process.stderr());
        let stderr = process.stderr();
        assert!(stderr.contains(complaint) && !stderr.contains("panicked"), "{redirected}: {stderr}");
        scenario.wait_nothing_left();
    }
}

#[test]
fn without_a_host_it_says_that_none_could_be_started() {
    let scenario = Scenario::new();
    // A program that is gone from the disk cannot start itself again.
    let shell = r#"cp "$0" "$HERMES_HOME/gone"; exec 3< "$HERMES_HOME/gone"; rm "$HERMES_HOME/gone"; exec /proc/self/fd/3 demo"#;
    let launch = scenario.launch(Path::new("/bin/sh")).args(["-c", shell]);
    let mut process = launch.args([binary("turnhost")]).start();
    assert_eq!(process.wait_exit(), Ended::Code(3), "{:?}\n{}", process.strays(), process.stderr());
    assert!(process.stderr().contains("no host could be started"), "{}", process.stderr());
    scenario.wait_nothing_left();
}

#[test]
fn a_wrong_command_line_starts_nothing() {
    let scenario = Scenario::new();
    let mut process = demo(&scenario, &["now"]);
    assert_eq!(process.wait_exit(), Ended::Code(2));
    assert_eq!(process.stdout_bytes(), 0);
}

/// What stands on the screen at the end is one picture and the claims, with nothing of older pictures between.
#[track_caller]
fn assert_one_picture(screen: &str) {
    assert_eq!(screen.matches("turnhost demo").count(), 1, "{screen}");
    assert_eq!(screen.matches("\nnorth ").count(), 1, "{screen}");
    assert_eq!(screen.matches("\nsouth ").count(), 1, "{screen}");
}

#[test]
fn on_a_terminal_lines_are_drawn_in_place_whatever_its_size_becomes() {
    let scenario = Scenario::new();
    let (terminal, mut process) =
        Terminal::start(&scenario, (80, 30), |launch| launch.args([binary("turnhost")]).args(["demo"]));
    assert_one_picture(&terminal.wait_text("streams"));
    terminal.resize((30, 8));
    terminal.wait("the end of the crash in a small terminal", |screen| {
        let text = screen.contents();
        text.contains("new host in") || text.contains("asks")
    });
    terminal.resize((100, 40));
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", terminal.wait_end());
    let screen = terminal.wait_end();
    assert_one_picture(&screen);
    for claim in CLAIMS {
        assert!(screen.contains(&format!("ok      {claim}")), "{claim}:\n{screen}");
    }
    assert!(terminal.is_restored());
    assert!(terminal.bytes().windows(5).any(|bytes| bytes == b"\x1b[32m"), "colour");
    scenario.wait_nothing_left();
}

#[test]
fn in_a_narrow_terminal_no_line_wraps_and_no_color_is_honoured() {
    let scenario = Scenario::new();
    let (terminal, mut process) = Terminal::start(&scenario, (24, 50), |launch| {
        launch.args([binary("turnhost")]).args(["demo"]).env("NO_COLOR", "1")
    });
    let screen = terminal.wait("the play", |screen| screen.contents().contains("kill -9"));
    assert_one_picture(&screen);
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", terminal.wait_end());
    assert_one_picture(&terminal.wait_end());
    let coloured = terminal.bytes().split(|byte| *byte == b'\x1b').any(|piece| {
        let end = piece.iter().position(u8::is_ascii_alphabetic);
        end.is_some_and(|end| piece[end] == b'm')
    });
    assert!(!coloured, "no colour");
    scenario.wait_nothing_left();
}

#[test]
fn ctrl_c_at_a_terminal_ends_it_below_the_picture() {
    let scenario = Scenario::new();
    let (terminal, mut process) =
        Terminal::start(&scenario, (80, 24), |launch| launch.args([binary("turnhost")]).args(["demo"]));
    terminal.wait_text("streams");
    terminal.keys("\x03");
    assert_eq!(process.wait_exit(), Ended::Code(130), "{}", terminal.wait_end());
    let screen = terminal.wait_end();
    assert!(screen.contains("interrupted; both hosts are stopped"), "{screen}");
    assert!(terminal.is_restored());
    scenario.wait_nothing_left();
}

#[test]
fn a_terminal_that_can_do_nothing_gets_plain_lines() {
    let scenario = Scenario::new();
    let (terminal, mut process) = Terminal::start(&scenario, (80, 24), |launch| {
        launch.args([binary("turnhost")]).args(["demo"]).env("TERM", "dumb")
    });
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", terminal.wait_end());
    assert!(terminal.wait_end().contains("nothing_left"));
    assert!(!terminal.bytes().contains(&b'\x1b'));
}
