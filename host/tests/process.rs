//! `compute-host` as a real process: its streams, its signals, its parent, and what is below it.
#![expect(clippy::disallowed_methods, reason = "these tests start processes")]
#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is the answer")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use turnhost_os::identity::stat;
use turnhost_os::tree;

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);
/// In the environment of a host and so of all that it starts.
const MARKER: &str = "TURNHOST_TEST_MARKER";

struct Host {
    child: Child,
    stdin: Option<PipeWriter>,
    frames: Receiver<Value>,
    marker: String,
    home: tempfile::TempDir,
}

fn command(program: &Path, marker: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("HERMES_HOME", home).env(MARKER, marker).env_remove("HERMES_COMPUTE_HOST_HEARTBEAT_SECS");
    command
}

fn frames_of(stdout: PipeReader) -> Receiver<Value> {
    let (send, frames) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let line = line.unwrap();
            let frame = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if send.send(frame).is_err() {
                return;
            }
        }
    });
    frames
}

impl Host {
    fn start(args: &[&str]) -> Self {
        Self::start_with(args, |command| command)
    }

    fn start_with(args: &[&str], change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let host = Path::new(env!("CARGO_BIN_EXE_compute-host"));
        let (home, marker) = (tempfile::tempdir().unwrap(), uuid::Uuid::new_v4().to_string());
        let (input, stdin) = std::io::pipe().unwrap();
        let (stdout, output) = std::io::pipe().unwrap();
        let mut command = command(host, &marker, home.path());
        command.args(args).stdin(input).stdout(output);
        let child = change(&mut command).spawn().unwrap();
        drop(command);
        Self { child, stdin: Some(stdin), frames: frames_of(stdout), marker, home }
    }

    fn send(&mut self, frame: &Value) {
        let line = format!("{frame}\n");
        self.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn play(&mut self, script: &Value) {
        self.send(
            &json!({"type": "turn.start", "sid": "s", "request_id": "t", "text": "p", "script": script}),
        );
    }

    fn until(&self, frame_type: &str) -> Value {
        loop {
            let frame = self.frames.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no {frame_type}"));
            if frame["type"] == frame_type {
                return frame;
            }
        }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    fn exit(&mut self) -> ExitStatus {
        eventually("the host exits", || self.child.try_wait().unwrap())
    }

    /// It exited with 0 and nothing of it is left.
    fn ends_well(&mut self) {
        let status = self.exit();
        assert_eq!(status.code(), Some(0), "{status}");
        assert_eq!(tree::with_environment(MARKER, &self.marker), [0; 0], "processes are left");
    }

    fn reasons(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.home.path().join("logs/compute-host.log")).unwrap_or_default();
        log.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["reason"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in tree::with_environment(MARKER, &self.marker) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Looks again and again, up to the deadline.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Two programs that would outlive any careless host: one that detached itself and is deaf to all but SIGKILL, and an
/// orphan in a session of its own.
fn stubborn() -> Value {
    json!([
        {"spawn": ["sh", "-c", "trap '' TERM INT HUP; sleep 1000 & wait; sleep 1000"], "detach": true},
        {"spawn": ["sh", "-c", "setsid sleep 1000 & exit 0"]},
        {"delta": "started"},
        {"sleep_ms": 1_000_000},
    ])
}

fn wait_for_stubborn(host: &Host) {
    host.until("delta");
    // The host, the deaf shell and its sleep, the orphan.
    eventually("all of them run", || (tree::with_environment(MARKER, &host.marker).len() >= 4).then_some(()));
}

#[test]
fn the_hello_names_the_process_and_the_end_of_stdin_ends_it_with_0() {
    let mut host = Host::start(&[]);
    let hello = host.until("hello");
    assert_eq!(hello["host_pid"], host.pid());
    assert_eq!(hello["hermes_home"], host.home.path().to_str().unwrap());
    host.send(&json!({"type": "session.seed", "sid": "s", "request_id": "r"}));
    host.until("session.seeded");
    host.stdin = None;
    host.ends_well();
    assert_eq!(host.reasons(), ["compute_host_stdin_closed"]);
}

#[test]
fn each_way_to_stop_ends_everything_that_turns_started() {
    for way in ["shutdown frame", "end of stdin", "SIGTERM", "SIGINT", "SIGHUP"] {
        let mut host = Host::start(&["--drain-secs", "0"]);
        host.play(&stubborn());
        wait_for_stubborn(&host);
        match way {
            "shutdown frame" => host.send(&json!({"type": "shutdown"})),
            "end of stdin" => host.stdin = None,
            "SIGTERM" => host.signal(Signal::SIGTERM),
            "SIGINT" => host.signal(Signal::SIGINT),
            _ => host.signal(Signal::SIGHUP),
        }
        let end = host.until("turn.end");
        assert_eq!(end["interrupted"], true, "{way}");
        host.ends_well();
        let reason = match way {
            "shutdown frame" => "compute_host_shutdown",
            "end of stdin" => "compute_host_stdin_closed",
            "SIGHUP" => "compute_host_orphan",
            _ => "compute_host_sigterm",
        };
        assert_eq!(host.reasons(), [reason], "{way}");
    }
}

#[test]
fn an_agent_that_ignores_its_interrupt_loses_its_processes_and_no_others() {
    let mut host = Host::start(&[]);
    host.send(&json!({"type": "turn.start", "sid": "other", "request_id": "o", "script": [
        {"spawn": ["sleep", "1001"], "detach": true}, {"sleep_ms": 1_000_000}]}));
    let mut script = stubborn();
    script[3] = json!({"hang": true});
    host.play(&script);
    wait_for_stubborn(&host);
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": "i"}));
    assert_eq!(host.until("turn.end")["request_id"], "t");
    let left = eventually("only the other turn's process is left", || {
        let left = tree::with_environment(MARKER, &host.marker);
        (left.len() == 2).then_some(left)
    });
    let other = left.into_iter().find(|pid| *pid != host.pid()).unwrap();
    let line = std::fs::read(format!("/proc/{other}/cmdline")).unwrap();
    assert_eq!(line, b"sleep\x001001\0");
    host.stdin = None;
    host.ends_well();
}

#[test]
fn orphans_that_fall_to_the_host_are_reaped_and_agents_keep_their_children() {
    let mut host = Host::start(&[]);
    // Its status is fetched by the agent long after the host first sees it dead; the orphan's by nobody.
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "t",
        "agent": {"name": "exec", "argv": ["sh", "-c", "(sh -c 'sleep 0.1' &); exit 7"]}}));
    let error = host.until("turn.error");
    assert_eq!((&error["reason"], &error["exit_code"]), (&json!("agent_exit"), &json!(7)));
    eventually("no child is left, no zombie either", || tree::children(host.pid()).is_empty().then_some(()));
    host.stdin = None;
    host.ends_well();
}

#[test]
fn a_stray_print_never_gets_between_frames() {
    let mut host = Host::start_with(&[], |command| command.stderr(Stdio::piped()));
    host.play(&json!([{"delta": "a"}, {"stdout": "stray, and no line"}, {"delta": "b"},
        {"spawn": ["sh", "-c", "echo from below >&1"]}]));
    assert_eq!(host.until("turn.end")["final_response"], "ab");
    host.stdin = None;
    host.ends_well();
    let mut stderr = String::new();
    host.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("stray, and no line"), "{stderr}");
}

#[test]
fn a_pipe_that_nobody_reads_holds_up_no_stop() {
    let (home, marker) = (tempfile::tempdir().unwrap(), uuid::Uuid::new_v4().to_string());
    let (input, mut stdin) = std::io::pipe().unwrap();
    let (stdout, output) = std::io::pipe().unwrap();
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_compute-host")), &marker, home.path());
    let mut child = command.stdin(input).stdout(output).spawn().unwrap();
    drop(command);
    let start = json!({"type": "turn.start", "sid": "s", "request_id": "t", "script": [{"deltas": 100_000, "bytes": 4096}]});
    stdin.write_all(format!("{start}\n").as_bytes()).unwrap();
    eventually("the pipe is full", || (turnhost_os::fd::bytes_available(&stdout) > 30_000).then_some(()));
    stdin.write_all(b"{\"type\":\"shutdown\"}\n").unwrap();
    let status = eventually("the host exits", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_parent_that_is_killed_leaves_no_host() {
    let (home, marker) = (tempfile::tempdir().unwrap(), uuid::Uuid::new_v4().to_string());
    let (input, mut stdin) = std::io::pipe().unwrap();
    let (stdout, output) = std::io::pipe().unwrap();
    // The shell is the parent; stdin stays open in this test, so only the parent's end can stop the host.
    let mut command = command(Path::new("/bin/sh"), &marker, home.path());
    let script = r#"exec 3<&0; "$0" <&3 & wait"#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_compute-host")]).stdin(input).stdout(output);
    let mut shell = command.spawn().unwrap();
    drop(command);
    let frames = frames_of(stdout);
    let hello = frames.recv_timeout(DEADLINE).unwrap();
    let host = i32::try_from(hello["host_pid"].as_i64().unwrap()).unwrap();
    stdin.write_all(b"{\"type\":\"session.seed\",\"sid\":\"s\",\"request_id\":\"r\"}\n").unwrap();
    frames.recv_timeout(DEADLINE).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    let orphan = frames.recv_timeout(DEADLINE).unwrap();
    assert_eq!((&orphan["type"], &orphan["old_ppid"]), (&json!("orphan"), &json!(shell.id())));
    assert_ne!(orphan["ppid"], orphan["old_ppid"]);
    eventually("the host is gone", || stat(host).is_none_or(|stat| stat.is_dead()).then_some(()));
    let log = std::fs::read_to_string(home.path().join("logs/compute-host.log")).unwrap();
    assert!(log.contains("compute_host_orphan"), "{log}");
}

#[test]
fn files_do_as_stdin_and_stdout() {
    let home = tempfile::tempdir().unwrap();
    let (input, output) = (home.path().join("in"), home.path().join("out"));
    let turn =
        json!({"type": "turn.start", "sid": "s", "request_id": "t", "delta_count": 1000, "delay_s": 0});
    std::fs::write(&input, format!("{turn}\n{}\n", json!({"type": "shutdown", "request_id": "bye"})))
        .unwrap();
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_compute-host")), "files", home.path());
    command.stdin(std::fs::File::open(&input).unwrap()).stdout(std::fs::File::create(&output).unwrap());
    let mut child = command.spawn().unwrap();
    let status = eventually("the host exits", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    let written = std::fs::read_to_string(&output).unwrap();
    let last: Value = serde_json::from_str(written.lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["request_id"]), (&json!("shutdown.ack"), &json!("bye")));
}

#[test]
fn a_socket_does_as_stdin_and_stdout() {
    let home = tempfile::tempdir().unwrap();
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_compute-host")), "socket", home.path());
    command.stdin(OwnedFd::from(theirs.try_clone().unwrap())).stdout(OwnedFd::from(theirs));
    let mut child = command.spawn().unwrap();
    drop(command);
    ours.write_all(b"{\"type\":\"shutdown\",\"request_id\":\"bye\"}\n").unwrap();
    let mut all = String::new();
    ours.read_to_string(&mut all).unwrap();
    let types: Vec<Value> =
        all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(types, ["hello", "shutdown.ack"]);
    assert_eq!(eventually("the host exits", || child.try_wait().unwrap()).code(), Some(0));
}

#[test]
fn the_pipes_that_were_given_stay_blocking_for_those_who_share_them() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let home = tempfile::tempdir().unwrap();
    let (input, stdin) = std::io::pipe().unwrap();
    let (stdout, output) = std::io::pipe().unwrap();
    let (shared_input, shared_output) = (input.try_clone().unwrap(), output.try_clone().unwrap());
    let mut command = command(Path::new(env!("CARGO_BIN_EXE_compute-host")), "shared", home.path());
    let mut child = command.stdin(input).stdout(output).spawn().unwrap();
    drop(command);
    let frames = frames_of(stdout);
    frames.recv_timeout(DEADLINE).unwrap();
    for flags in [fcntl(&shared_input, FcntlArg::F_GETFL), fcntl(&shared_output, FcntlArg::F_GETFL)] {
        let flags = OFlag::from_bits_retain(flags.unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK), "{flags:?}");
    }
    drop((stdin, shared_output));
    assert_eq!(eventually("the host exits", || child.try_wait().unwrap()).code(), Some(0));
}

#[test]
fn wrong_options_are_told_before_anything_runs() {
    for (args, code, words) in [
        (vec!["--workers", "0"], 2, "--workers"),
        (vec!["--heartbeat-secs", "soon"], 2, "no number of seconds"),
        (vec!["--agent", "nobody"], 1, "unknown agent: nobody (--agent); this host has: "),
        (vec!["--script", "/no/such/file"], 1, "/no/such/file"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_compute-host")).args(&args).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
        assert_eq!(output.stdout, b"", "{args:?}");
    }
}

#[test]
fn an_ignored_sigchld_that_a_parent_hands_down_is_ignored_no_more() {
    let home = tempfile::tempdir().unwrap();
    let (input, stdin) = std::io::pipe().unwrap();
    let (stdout, output) = std::io::pipe().unwrap();
    let mut command = command(Path::new("/bin/bash"), "sigchld", home.path());
    command.args(["-c", r#"trap '' CHLD; exec "$0""#, env!("CARGO_BIN_EXE_compute-host")]);
    let mut child = command.stdin(input).stdout(output).spawn().unwrap();
    drop(command);
    frames_of(stdout).recv_timeout(DEADLINE).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert_eq!(ignored & (1 << (Signal::SIGCHLD as u64 - 1)), 0, "{status}");
    drop(stdin);
    assert_eq!(eventually("the host exits", || child.try_wait().unwrap()).code(), Some(0));
}

/// An agent that blocks for ever, deaf to everything.
struct Stuck;

impl turnhost_host::BlockingAgent for Stuck {
    fn run(&self, turn: turnhost_host::turn::context::TurnContext) -> turnhost_host::AgentResult {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let _ = turn.sink.send_blocking(turnhost_host::turn::context::WorkItem::Delta(thread));
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_thread_that_never_returns_does_not_hold_up_the_exit() {
    const AS_HOST: &str = "TURNHOST_TEST_AS_HOST";
    if std::env::var_os(AS_HOST).is_some() {
        // This very test, run again as a host of its own.
        let options = turnhost_host::HostOptions::from_env(&turnhost_host::HostArgs::default()).unwrap();
        let ended =
            turnhost_host::run_with(turnhost_host::Agents::new().with_blocking("stuck", Stuck), options);
        std::process::exit(i32::from(ended.is_err()));
    }
    let (home, marker) = (tempfile::tempdir().unwrap(), uuid::Uuid::new_v4().to_string());
    let (input, mut stdin) = std::io::pipe().unwrap();
    let (stdout, output) = std::io::pipe().unwrap();
    let mut command = command(&std::env::current_exe().unwrap(), &marker, home.path());
    command.args(["--exact", "a_thread_that_never_returns_does_not_hold_up_the_exit", "--nocapture"]);
    let mut child = command.env(AS_HOST, "1").stdin(input).stdout(output).spawn().unwrap();
    drop(command);
    let (send, frames) = channel();
    std::thread::spawn(move || {
        // What the test runner says first is no frame.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Ok(frame) = serde_json::from_str::<Value>(&line) {
                let _ = send.send(frame);
            }
        }
    });
    let next = || frames.recv_timeout(DEADLINE).expect("a frame");
    let until = |kind: &str| std::iter::repeat_with(next).find(|frame| frame["type"] == kind).unwrap();
    stdin.write_all(b"{\"type\":\"turn.start\",\"sid\":\"s\",\"request_id\":\"t\"}\n").unwrap();
    assert_eq!(until("delta")["text"], "turn-1");
    stdin.write_all(b"{\"type\":\"shutdown\"}\n").unwrap();
    assert_eq!(until("turn.error")["reason"], "shutdown");
    until("shutdown.ack");
    let status = eventually("the host exits", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}
