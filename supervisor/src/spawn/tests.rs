//! Every numbered point of the guard's promise, with real processes.

mod drops;
mod endings;
mod pid1;
mod starts;
mod unguarded;

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
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn new_mark() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

pub(crate) fn marked(mark: &str) -> Vec<i32> {
    tree::with_environment(MARK, mark)
}

pub(crate) fn nothing_is_left(mark: &str) {
    eventually("no process of the test is left", || marked(mark).is_empty());
}

/// The same on a runtime that has to go on meanwhile.
async fn nothing_stays(mark: &str) {
    let nothing = async {
        while !marked(mark).is_empty() || !zombies().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, nothing).await.expect("no process of the test is left, and no zombie");
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

pub(crate) fn signal(pid: i32, signal: Signal) {
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
        Some("init") => init_role(),
        Some("short-of-descriptors") => short_of_descriptors_role(),
        Some("without-directory") => without_directory_role(),
        _ => 99,
    };
    std::process::exit(code);
}

/// Starts the host that the arguments name, prints its pid and its guard's, then every event, and stays.
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

/// Spawns with every limit of open files from far too low to enough, and says what came of it.
fn short_of_descriptors_role() -> i32 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mark = std::env::var("HOST_MARK").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let maximum = getrlimit(Resource::Nofile).maximum;
    runtime.block_on(async {
        for limit in u64::try_from(before).unwrap()..64 {
            setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
            let outcome = match try_spawn(launch(&["true"], &mark)).await {
                Ok(mut child) => format!("started {:?}", ending(&mut child).await.0),
                Err(error) => format!("{} {}", error.permanent, error.fault.detail),
            };
            println!("{outcome}");
        }
    });
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    drop(runtime);
    eventually("every guard is reaped", || tree::children(own()).is_empty());
    println!("left open: {}", open().saturating_sub(before));
    0
}

/// Spawns in a directory that is gone.
fn without_directory_role() -> i32 {
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    drop(folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let Err(error) = runtime.block_on(try_spawn(launch(&["true"], "none"))) else { return 1 };
    println!("{} {}", error.permanent, error.fault.detail);
    let there = Launch { cwd: Some("/".into()), ..launch(&["true"], "none") };
    println!("{}", runtime.block_on(try_spawn(there)).is_ok());
    0
}

/// What a role printed.
#[expect(clippy::disallowed_methods, reason = "the test's own process")]
fn played(role: &str, mark: &str) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .env(ROLE, role)
        .env("HOST_MARK", mark)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    text.lines().map(str::to_owned).collect()
}

/// Pid 1 of a namespace, and what it leaves in front of itself.
fn init_role() -> i32 {
    use std::os::unix::process::CommandExt as _;
    crate::init_if_pid1().unwrap();
    let script = "trap 'echo \"term to $$\"; exit 9' TERM; \
                  (setsid sh -c 'echo orphan; exit 0' &); \
                  echo \"up as $$\"; while :; do sleep 0.02; done";
    #[expect(clippy::disallowed_methods, reason = "the test's own process")]
    let error = Command::new("sh").args(["-c", script]).env_remove(ROLE).exec();
    panic!("{error}");
}

/// A supervisor in a process of its own. Killed and reaped when the test ends.
pub(crate) struct Supervisor {
    process: std::process::Child,
    output: BufReader<std::process::ChildStdout>,
    pub(crate) host: i32,
    pub(crate) guard: i32,
}

impl Supervisor {
    pub(crate) fn start(role: &str, host: &[&str], mark: &str) -> Self {
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

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    pub(crate) fn kill(&mut self) {
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
pub(crate) const STUBBORN: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo grandchild; while :; do sleep 1; done' & \
                        wait_for_it=1; while :; do sleep 1; done";

/// Speaks as a guard does, starts a host, and then never answers.
const DEAF_GUARD: &str = r#"
import array, os, signal, socket, struct, sys
for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
control = socket.socket(fileno=0)
os.setsid()
control.send(b"R1")
data, fds = b"", []
while True:
    message, ancillary, _, _ = control.recvmsg(65536, socket.CMSG_LEN(64))
    for level, kind, payload in ancillary:
        fds = array.array("i", payload[: len(payload) // 4 * 4]).tolist()
    if message[:1] == b"L":
        total = struct.unpack("<I", message[1:])[0]
    else:
        data += message[1:]
    if len(data) == total:
        break
count = struct.unpack("<I", data[:4])[0]
words = data[4:].split(b"\0")[:-1]
cwd, argv, environment = words[0], words[1 : 1 + count], words[1 + count :]
pid = os.fork()
if pid == 0:
    for target in range(3): os.dup2(fds[target], target)
    os.execvpe(argv[0], argv, dict(entry.split(b"=", 1) for entry in environment))
for fd in fds: os.close(fd)
ticks = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
rights = array.array("i", [os.pidfd_open(pid)])
control.sendmsg([b"S" + struct.pack("<iQ", pid, ticks)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
while True: signal.pause()
"#;

/// Zombies among our own children that are `turnhost-guard`s or hosts of this test binary.
fn zombies() -> Vec<i32> {
    tree::children(i32::try_from(std::process::id()).unwrap())
        .into_iter()
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.state == b'Z'))
        .collect()
}

fn own() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

fn name_is(pid: i32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

fn write_script(path: &Path, body: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path).unwrap();
    std::io::Write::write_all(&mut file, format!("#!/bin/sh\n{body}\n").as_bytes()).unwrap();
}
