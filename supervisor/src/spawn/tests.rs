//! Every numbered point of the guard's promise, with real processes.

use super::guarded::GuardSpawn;
use super::*;
use crate::child::{Child, ChildEvent};
use crate::machine::Exit;
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use turnhost_os::identity::stat;
use turnhost_os::tree;

/// Marks the processes of one test.
const MARK: &str = "TURNHOST_TEST_MARK";
/// Makes this binary a supervisor that a test can kill, instead of a test run.
const ROLE: &str = "TURNHOST_TEST_ROLE";
/// No test depends on the speed of the machine: this is for a machine that is very slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until the condition holds.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn new_mark() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn marked(mark: &str) -> Vec<i32> {
    tree::with_environment(MARK, mark)
}

fn nothing_is_left(mark: &str) {
    eventually("no process of the test is left", || marked(mark).is_empty());
}

fn launch(argv: &[&str], mark: &str) -> Launch {
    Launch {
        argv: argv.iter().map(OsString::from).collect(),
        cwd: None,
        environment: vec![
            ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
            (MARK.into(), mark.into()),
        ],
    }
}

/// A host under a guard: this binary.
async fn spawn(argv: &[&str], mark: &str) -> Child {
    try_spawn(launch(argv, mark)).await.unwrap_or_else(|error| panic!("{error:?}"))
}

async fn try_spawn(launch: Launch) -> Result<Child, SpawnError> {
    GuardSpawn::new(None, launch).spawn(1).await
}

/// A shell script as the host.
async fn spawn_sh(script: &str, mark: &str) -> Child {
    spawn(&["sh", "-c", script], mark).await
}

async fn line(child: &mut Child) -> String {
    let mut line = Vec::new();
    loop {
        let byte = tokio::time::timeout(PATIENCE, child.stdout.read_u8()).await;
        match byte.expect("a line within the patience of the test") {
            Ok(b'\n') => return String::from_utf8(line).unwrap(),
            Ok(byte) => line.push(byte),
            Err(error) => panic!("no line but {error}, after {:?}", String::from_utf8_lossy(&line)),
        }
    }
}

async fn all_output(child: &mut Child) -> String {
    let mut text = String::new();
    tokio::time::timeout(PATIENCE, child.stdout.read_to_string(&mut text)).await.unwrap().unwrap();
    text
}

async fn next_event(child: &mut Child) -> Option<ChildEvent> {
    tokio::time::timeout(PATIENCE, child.events.recv())
        .await
        .expect("an event within the patience of the test")
}

async fn ending(child: &mut Child) -> (Exit, Vec<i32>) {
    let Some(ChildEvent::Exited(exit)) = next_event(child).await else { panic!("no exit first") };
    let Some(ChildEvent::Swept(survivors)) = next_event(child).await else { panic!("no sweep second") };
    assert_eq!(next_event(child).await, None, "nothing comes after the sweep");
    (exit, survivors)
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn guard_pid(child: &Child) -> i32 {
    child.guard.as_ref().unwrap().pid
}

// ---- roles: what this binary is when a test starts it again ----

/// Plays the role that the environment names, before the test harness's `main`, and never returns then.
pub(crate) fn play_role() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let code = match role.to_str() {
        Some("supervisor") => supervisor_role(false),
        Some("forking-supervisor") => supervisor_role(true),
        _ => 99,
    };
    std::process::exit(code);
}

/// Starts the host that the arguments name, prints its pid and its guard's, then every event, and stays.
#[expect(clippy::print_stdout, reason = "the test reads it")]
fn supervisor_role(leave_a_copy: bool) -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let argv: Vec<String> = std::env::args().skip(1).collect();
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let mark = std::env::var("HOST_MARK").unwrap();
        let mut child = spawn(&argv, &mark).await;
        if leave_a_copy && crate::sys::fork().unwrap().is_none() {
            // A copy of the embedder: it holds every descriptor, and knows nothing.
            std::thread::sleep(PATIENCE * 10);
            crate::sys::exit_now(0);
        }
        println!("{} {}", child.identity.pid, guard_pid(&child));
        while let Some(event) = child.events.recv().await {
            println!("{event:?}");
        }
        println!("end");
        std::future::pending::<()>().await;
    });
    0
}

/// A supervisor in a process of its own. Killed and reaped when the test ends.
struct Supervisor {
    process: std::process::Child,
    output: BufReader<std::process::ChildStdout>,
    host: i32,
    guard: i32,
}

impl Supervisor {
    fn start(role: &str, host: &[&str], mark: &str) -> Self {
        Self::start_by(&[std::env::current_exe().unwrap().to_str().unwrap()], role, host, mark)
    }

    /// `by` are the words that start this binary.
    #[expect(clippy::disallowed_methods, reason = "the test's own process")]
    fn start_by(by: &[&str], role: &str, host: &[&str], mark: &str) -> Self {
        let mut process = Command::new(by[0])
            .args(&by[1..])
            .args(host)
            .env(ROLE, role)
            .env("HOST_MARK", mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let pids: Vec<i32> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        Self { process, output, host: pids[0], guard: pids[1] }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A host with a grandchild in a session of its own; both ignore TERM, and the host the end of its stdin. It says when
/// they are ready.
const STUBBORN: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo grandchild; while :; do sleep 1; done' & \
                        wait_for_it=1; while :; do sleep 1; done";

#[tokio::test]
async fn a_host_runs_and_its_exit_comes_before_the_sweep() {
    let mark = new_mark();
    let mut child = spawn_sh("echo hello; read word; echo \"$word\" >&2; exit 7", &mark).await;
    assert_eq!(line(&mut child).await, "hello");
    child.stdin.as_mut().unwrap().write_all(b"bye\n").await.unwrap();
    assert_eq!(ending(&mut child).await, (Exit::Code(7), vec![]));
    let mut text = String::new();
    child.stderr.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "bye\n");
    nothing_is_left(&mark);
}
