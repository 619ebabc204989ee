//! `turnhost run`: what a person and a script see of one turn, and that nothing of it is left.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use turnhost_testkit::{DEADLINE, Ended, Process, Scenario, wait_until};

fn run(scenario: &Scenario, arguments: &[&str]) -> Process {
    scenario.program("turnhost").args(["run"]).args(arguments).start()
}

/// Runs to its end with an empty stdin.
fn finished(scenario: &Scenario, arguments: &[&str]) -> (Ended, Process) {
    let mut process = run(scenario, arguments);
    process.close_stdin();
    (process.wait_exit(), process)
}

/// Waits for a line of text on stdout.
#[track_caller]
fn wait_line(process: &Process, line: &str) {
    wait_until(DEADLINE, &format!("{line:?} on stdout"), || {
        process.strays().iter().any(|l| l == line).then_some(())
    });
}

/// A fifo in the scenario's home: a program that opens it goes on when the test lets it.
fn fifo(scenario: &Scenario, name: &str) -> (PathBuf, String) {
    let path = scenario.home().join(name);
    if let Err(error) = nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU) {
        panic!("cannot make a fifo: {error}");
    }
    let text = path.display().to_string();
    (path, text)
}

/// Lets the program that reads the fifo go on.
#[track_caller]
fn let_go(process: &Process, fifo: &Path) {
    let started = Instant::now();
    let mut writer = wait_until(DEADLINE * 2, "a reader of the fifo", || {
        if started.elapsed() > DEADLINE {
            process.fail("nobody reads the fifo");
        }
        // Without a reader this fails instead of waiting for ever.
        let nonblocking = nix::libc::O_NONBLOCK;
        OpenOptions::new().write(true).custom_flags(nonblocking).open(fifo).ok()
    });
    if let Err(error) = writer.write_all(b"go\n") {
        panic!("cannot write to the fifo: {error}");
    }
}

/// A terminal: the end for the program, and the one that keeps it open.
fn terminal() -> (OwnedFd, OwnedFd) {
    let pty = nix::pty::openpty(None, None).unwrap_or_else(|error| panic!("cannot open a terminal: {error}"));
    (pty.slave, pty.master)
}

#[test]
fn the_first_command_of_the_readme_streams_a_turn() {
    let scenario = Scenario::new();
    let (ended, process) = finished(&scenario, &["hello"]);
    assert_eq!(ended, Ended::Code(0), "{}", process.stderr());
    let wanted: String = (0..24).map(|index| format!("run:hello:{index:04} ")).collect();
    assert_eq!(process.strays(), [wanted]);
    let stderr = process.stderr();
    assert!(stderr.contains("agent scripted (none was named"), "{stderr}");
    scenario.wait_nothing_left();
}

#[test]
fn lines_of_a_program_are_shown_as_they_come_and_its_failure_is_the_exit_code() {
    let scenario = Scenario::new();
    // One fifo a step: a word in a fifo that is opened again may be met by its writer, still there.
    let fifos = ["1", "2", "3"].map(|name| fifo(&scenario, name).0);
    let folder = scenario.home().display();
    let program = format!("for i in 1 2 3; do echo line $i; read go < {folder}/$i; done; exit 3");
    for (arguments, code) in [(&["--agent", "exec"][..], 1), (&["--agent", "exec", "--propagate-exit"], 3)] {
        let arguments = [arguments, &["--", "sh", "-c", &program]].concat();
        let mut process = run(&scenario, &arguments);
        process.close_stdin();
        for (line, fifo) in ["line 1", "line 2", "line 3"].iter().zip(&fifos) {
            // The program writes the next line only after this one was seen here.
            wait_line(&process, line);
            let_go(&process, fifo);
        }
        assert_eq!(process.wait_exit(), Ended::Code(code), "{}", process.stderr());
        assert_eq!(process.strays(), ["line 1", "line 2", "line 3"]);
        assert!(process.stderr().contains("agent_exit"), "{}", process.stderr());
    }
}

#[test]
fn a_program_ended_by_a_signal_is_propagated_as_a_shell_shows_it_with_its_last_words() {
    let scenario = Scenario::new();
    let program = "echo last words >&2; kill -9 $$";
    let (ended, process) = finished(&scenario, &["--propagate-exit", "--", "sh", "-c", program]);
    assert_eq!(ended, Ended::Code(137), "{}", process.stderr());
    assert!(process.stderr().contains("| last words"), "{}", process.stderr());
}

#[test]
fn the_prompt_comes_from_stdin_where_none_is_given_or_a_dash() {
    let scenario = Scenario::new();
    for arguments in [&["--", "cat"][..], &["-", "--", "cat"], &["--agent", "exec", "-", "--", "cat"]] {
        let mut process = run(&scenario, arguments);
        process.send_bytes("erste Zeile\nzweite ✓\n".as_bytes());
        process.close_stdin();
        assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
        assert_eq!(process.strays(), ["erste Zeile", "zweite ✓"]);
    }
}

#[test]
fn a_prompt_on_the_command_line_leaves_stdin_alone() {
    let scenario = Scenario::new();
    // stdin stays open and empty: a run that read it would not end.
    let mut process = run(&scenario, &["given", "--", "cat"]);
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    assert_eq!(process.strays(), ["given"]);
}

#[test]
fn at_a_terminal_a_program_gets_an_empty_prompt_and_the_scripted_agent_none() {
    let scenario = Scenario::new();
    let (stdin, _kept) = terminal();
    let program = ["run", "--", "sh", "-c", "cat; echo end"];
    let mut process = scenario.program("turnhost").args(program).stdin(stdin).start();
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    assert_eq!(process.strays(), ["end"]);

    let (stdin, _kept) = terminal();
    let mut process = scenario.program("turnhost").args(["run"]).stdin(stdin).start();
    assert_eq!(process.wait_exit(), Ended::Code(2));
    assert!(process.stderr().contains("no prompt"), "{}", process.stderr());
}

#[test]
fn ctrl_c_interrupts_the_turn() {
    let scenario = Scenario::new();
    let mut process = run(&scenario, &["", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    wait_line(&process, "ready");
    process.signal(Signal::SIGINT);
    assert_eq!(process.wait_exit(), Ended::Code(130), "{}", process.stderr());
    scenario.wait_nothing_left();
}

#[test]
fn a_second_ctrl_c_ends_the_program_though_the_turn_does_not_obey() {
    let scenario = Scenario::new();
    let program = "trap 'echo no' INT; trap '' TERM; echo ready; while :; do sleep 600; done";
    let mut process = run(&scenario, &["", "--", "sh", "-c", program]);
    wait_line(&process, "ready");
    process.signal(Signal::SIGINT);
    wait_line(&process, "no");
    process.signal(Signal::SIGINT);
    assert_eq!(process.wait_exit(), Ended::Code(130), "{}", process.stderr());
    scenario.wait_nothing_left();
}

#[test]
fn sigterm_and_sighup_end_the_program_and_everything_it_started() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let scenario = Scenario::new();
        let program = "setsid sleep 600 & trap '' TERM HUP; echo ready; while :; do sleep 600; done";
        let mut process = run(&scenario, &["", "--", "sh", "-c", program]);
        wait_line(&process, "ready");
        process.signal(signal);
        assert_eq!(process.wait_exit(), Ended::Code(130), "{signal}: {}", process.stderr());
        scenario.wait_nothing_left();
    }
}

#[test]
fn kill_9_of_the_program_leaves_nothing() {
    let scenario = Scenario::new();
    let program =
        "(trap '' TERM HUP; setsid sleep 600) & trap '' TERM; echo ready; while :; do sleep 600; done";
    let mut process = run(&scenario, &["", "--", "sh", "-c", program]);
    wait_line(&process, "ready");
    process.signal(Signal::SIGKILL);
    assert_eq!(process.wait_exit(), Ended::Signal(9));
    scenario.wait_nothing_left();
}

#[test]
fn a_closed_stdout_ends_it_quietly_whether_or_not_the_program_writes() {
    for program in ["echo one; exec sleep 600", "echo one; while :; do echo more; done", "echo one; exec yes"]
    {
        let scenario = Scenario::new();
        let mut process = run(&scenario, &["--agent", "exec", "", "--", "sh", "-c", program]);
        wait_line(&process, "one");
        process.close_stdout();
        assert_eq!(process.wait_exit(), Ended::Code(0), "{program}: {}", process.stderr());
        assert_eq!(process.stderr(), "", "{program}");
        scenario.wait_nothing_left();
    }
}

#[test]
fn a_stdout_on_a_full_disk_is_a_failure() {
    let scenario = Scenario::new();
    let turnhost = turnhost_testkit::binary("turnhost");
    let shell = scenario.launch(Path::new("/bin/sh")).args(["-c", r#""$0" run hello > /dev/full"#]);
    let mut process = shell.args([turnhost]).start();
    process.close_stdin();
    assert_eq!(process.wait_exit(), Ended::Code(1), "{}", process.stderr());
    assert!(process.stderr().contains("stdout cannot be written"), "{}", process.stderr());
}

#[test]
fn a_timeout_ends_a_turn_that_obeys_and_one_that_does_not() {
    for program in ["exec sleep 600", "trap '' INT TERM; while :; do sleep 600; done"] {
        let scenario = Scenario::new();
        let (ended, process) = finished(&scenario, &["--timeout", "0.3", "", "--", "sh", "-c", program]);
        assert_eq!(ended, Ended::Code(124), "{program}: {}", process.stderr());
        assert!(process.stderr().contains("--timeout"), "{}", process.stderr());
        scenario.wait_nothing_left();
    }
}

#[test]
fn json_gives_every_event_as_a_line_up_to_the_end_of_the_turn() {
    let scenario = Scenario::new();
    let script = scenario.home().join("script");
    std::fs::write(
        &script,
        "{\"delta\":\"a\"}\n{\"event\":{\"kind\":\"status\",\"text\":\"x\"}}\n{\"delta\":\"b\"}\n",
    )
    .unwrap();
    let mut process =
        scenario.program("turnhost").args(["run", "--json", "hi"]).arg_path("--script", &script).start();
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    assert_eq!(process.strays(), [] as [&str; 0]);
    let frames = process.frames();
    let of_turn: Vec<&Value> = frames.iter().filter(|line| line["event"] == "turn").collect();
    let types: Vec<&Value> = of_turn.iter().map(|line| &line["frame"]["type"]).collect();
    assert_eq!(json!(types), json!(["turn.started", "delta", "event", "delta", "turn.end"]));
    assert!(of_turn.iter().all(|line| line["request_id"] == line["frame"]["request_id"]));
    assert_eq!(of_turn[4]["frame"]["final_response"], "ab");
    let states: Vec<&str> = frames.iter().filter_map(|line| line["state"].as_str()).collect();
    assert_eq!(states, ["starting", "ready", "draining", "stopped"]);
}

#[test]
fn the_death_of_the_host_is_told_with_its_own_exit_code() {
    let scenario = Scenario::new();
    let mut process = run(&scenario, &["--json", "", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    process.wait_for("the program", |line| line["frame"]["text"] == "ready\n");
    let ready = process.wait_for("the host", |line| line["state"] == "ready");
    let host = i32::try_from(ready["pid"].as_i64().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(host), Signal::SIGKILL).unwrap();
    assert_eq!(process.wait_exit(), Ended::Code(4), "{}", process.stderr());
    let end = process.wait_for("the end", |line| line["frame"]["type"] == "turn.error");
    assert_eq!(end["frame"]["reason"], "crash");
    assert_eq!(end["frame"]["signal_name"], "SIGKILL");
    assert!(process.stderr().contains("the turn failed: crash"), "{}", process.stderr());
    scenario.wait_nothing_left();
}

#[test]
fn an_agent_that_fails_says_why() {
    let scenario = Scenario::new();
    let missing = scenario.home().join("no such program").display().to_string();
    let (ended, process) = finished(&scenario, &["", "--", &missing]);
    assert_eq!(ended, Ended::Code(1), "{}", process.stderr());
    assert!(process.stderr().contains("no such program"), "{}", process.stderr());

    let script = scenario.home().join("script");
    std::fs::write(&script, r#"[{"delta":"half"},{"error":"out of luck"}]"#).unwrap();
    let launch = scenario.program("turnhost").args(["run", "hi"]).arg_path("--script", &script);
    let mut process = launch.start();
    assert_eq!(process.wait_exit(), Ended::Code(1));
    assert_eq!(process.strays(), ["half"]);
    assert!(process.stderr().contains("exception: out of luck"), "{}", process.stderr());
}

#[test]
fn a_command_line_that_is_wrong_starts_nothing() {
    let scenario = Scenario::new();
    let missing = scenario.home().join("nowhere").display().to_string();
    for arguments in [
        &["--cwd", &missing, "hi"][..],
        &["--script", &missing, "hi"],
        &["--agent", "exec", "hi"],
        &["--agent", "dancer", "hi"],
        &["--timeout", "0", "hi"],
        &["--timeout", "soon", "hi"],
        &["--no-such-option"],
    ] {
        let (ended, process) = finished(&scenario, arguments);
        assert_eq!(ended, Ended::Code(2), "{arguments:?}: {}", process.stderr());
        assert!(!process.stderr().is_empty(), "{arguments:?}");
        assert_eq!(process.stdout_bytes(), 0, "{arguments:?}");
    }
}

#[test]
fn the_turn_runs_in_the_folder_that_was_named() {
    let scenario = Scenario::new();
    let folder = scenario.home().join("some folder");
    std::fs::create_dir(&folder).unwrap();
    let launch = scenario.program("turnhost").args(["run"]).arg_path("--cwd", &folder);
    let mut process = launch.args(["", "--", "pwd", "-P"]).start();
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    assert_eq!(process.strays(), [folder.canonicalize().unwrap().display().to_string()]);
}

#[test]
fn the_program_has_the_environment_of_the_person() {
    let scenario = Scenario::new();
    let program = "printf '%s\\n' \"$MY_API_KEY\" \"$TURNHOST_GUARD\" \"$HERMES_COMPUTE_HOST_CHILD\"";
    let launch = scenario.program("turnhost").args(["run", "", "--", "sh", "-c", program]);
    let mut process = launch.env("MY_API_KEY", "secret").start();
    assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    assert_eq!(process.strays(), ["secret", "", "1"]);
}

#[test]
fn a_question_is_denied_because_nobody_is_there() {
    let scenario = Scenario::new();
    let script = scenario.home().join("script");
    // Without an answer the question would stand for ten minutes.
    let steps = json!([{"ask": {"command": "rm -rf /", "timeout_ms": 600_000}}, {"delta": "went on"}]);
    std::fs::write(&script, steps.to_string()).unwrap();
    let launch = scenario.program("turnhost").args(["run", "hi"]).arg_path("--script", &script);
    let mut process = launch.start();
    process.wait_exit();
    assert!(
        process.stderr().contains("denied") && process.stderr().contains("rm -rf /"),
        "{}",
        process.stderr()
    );
    scenario.wait_nothing_left();
}

#[test]
fn any_number_runs_side_by_side() {
    let scenario = Scenario::new();
    let fifos = ["a", "b", "c", "d"].map(|name| fifo(&scenario, name));
    let mut all = fifos.each_ref().map(|(_, fifo)| {
        run(&scenario, &["", "--", "sh", "-c", &format!("echo ready; read go < {fifo}; echo done")])
    });
    all.iter().for_each(|process| wait_line(process, "ready"));
    for (process, (path, _)) in all.iter_mut().zip(&fifos) {
        let_go(process, path);
        assert_eq!(process.wait_exit(), Ended::Code(0), "{}", process.stderr());
    }
}

#[test]
fn a_word_too_many_is_a_usage_error_that_says_where_prompts_and_programs_go() {
    let scenario = Scenario::new();
    for words in [&["hello", "there"][..], &["sh", "-c", "echo hi"]] {
        let (ended, process) = finished(&scenario, words);
        assert_eq!(ended, Ended::Code(2), "{words:?}");
        process.wait_stderr("put a prompt of several words in quotes, and a program behind --");
    }
}
