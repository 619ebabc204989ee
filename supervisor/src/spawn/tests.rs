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
    nothing_stays(&mark).await;
}

// ---- point 1: how a guard starts ----

#[tokio::test]
async fn a_guard_has_the_socket_and_nothing_else_and_stands_by_itself() {
    let mark = new_mark();
    // A descriptor that every child inherits, as careless embedders have.
    let leaked =
        rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let mut child =
        spawn_sh("ls -l /proc/self/fd | wc -l; ls -l /proc/$PPID/fd; echo; read end", &mark).await;
    drop(leaked);
    let guard = guard_pid(&child);
    // A total line, and descriptors 0, 1, 2 and the folder that `ls` reads.
    assert_eq!(line(&mut child).await, "5");
    let mut kinds = Vec::new();
    loop {
        let line = line(&mut child).await;
        if line.is_empty() {
            break;
        }
        if let Some((_, target)) = line.split_once(" -> ") {
            kinds.push(target.split(':').next().unwrap().to_owned());
        }
    }
    kinds.sort();
    assert_eq!(kinds, ["/dev/null", "/dev/null", "/dev/null", "anon_inode", "anon_inode", "socket"]);
    assert_eq!(std::fs::read_link(format!("/proc/{guard}/cwd")).unwrap(), Path::new("/"));
    let guard_stat = stat(guard).unwrap();
    assert_eq!(guard_stat.session, guard);
    assert_eq!(guard_stat.ppid, i32::try_from(std::process::id()).unwrap());
    child.control.kill();
    ending(&mut child).await;
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn a_large_environment_arrives_whole() {
    let mark = new_mark();
    let mut launch = launch(&["sh", "-c", "env | wc -c; printf %s \"$V7\" | tail -c 3"], &mark);
    let value = "x".repeat(100_000) + "end";
    launch.environment.extend((0..12).map(|n| (format!("V{n}").into(), value.clone().into())));
    let mut child = try_spawn(launch).await.unwrap();
    let bytes: usize = line(&mut child).await.trim().parse().unwrap();
    assert!(bytes > 1_200_000, "{bytes}");
    assert_eq!(all_output(&mut child).await, "end");
    assert_eq!(ending(&mut child).await, (Exit::Code(0), vec![]));
}

#[tokio::test]
async fn the_environment_of_a_host_is_what_was_given_and_the_owner_marker() {
    let mark = new_mark();
    let mut child = spawn(&["env"], &mark).await;
    let text = all_output(&mut child).await;
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["PATH", "TURNHOST_OWNER", MARK]);
    ending(&mut child).await;
}

// ---- point 2: signals ----

#[test]
fn an_ignored_sigchld_does_not_lose_the_status_and_the_host_has_clean_signals() {
    let mark = new_mark();
    let binary = std::env::current_exe().unwrap();
    let by = ["sh", "-c", "trap '' CHLD TERM HUP PIPE USR1; exec \"$0\" \"$@\"", binary.to_str().unwrap()];
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let script = format!("grep -E '^Sig(Blk|Ign)' /proc/self/status > {}; exit 7", seen.display());
    let mut supervisor = Supervisor::start_by(&by, "supervisor", &["sh", "-c", &script], &mark);
    assert_eq!(supervisor.line(), "Exited(Code(7))");
    assert_eq!(supervisor.line(), "Swept([])");
    let zeros = "0000000000000000";
    assert_eq!(std::fs::read_to_string(seen).unwrap(), format!("SigBlk:\t{zeros}\nSigIgn:\t{zeros}\n"));
}

// ---- point 3: what is no guard ----

#[tokio::test]
async fn a_program_that_is_no_guard_is_refused_with_the_reason() {
    let mark = new_mark();
    let refuse = async |program: &str| {
        let launch = launch(&["true"], &mark);
        match GuardSpawn::new(Some(program.into()), launch).spawn(1).await {
            Err(error) => (error.permanent, error.fault.detail),
            Ok(_) => panic!("{program} took part as a guard"),
        }
    };
    let (permanent, detail) = refuse("/bin/true").await;
    assert!(permanent && detail.contains("guard_main()"), "{detail}");
    let (permanent, detail) = refuse("/nonexistent/turnhost").await;
    assert!(permanent && detail.contains("/nonexistent/turnhost") && detail.contains("(ENOENT)"), "{detail}");

    let folder = tempfile::tempdir().unwrap();
    let other_version = folder.path().join("guard");
    let binary = std::env::current_exe().unwrap();
    write_script(&other_version, &format!("TURNHOST_GUARD=other exec '{}' guard", binary.display()));
    let (permanent, detail) = refuse(other_version.to_str().unwrap()).await;
    assert!(permanent && detail.contains("another version"), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_says_nothing_is_killed_after_five_seconds() {
    let mark = new_mark();
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("silent");
    write_script(&silent, &format!("export {MARK}={mark}; exec sleep 1000"));
    // With a paused clock the five seconds pass as soon as nothing else is to be done.
    let Err(error) = GuardSpawn::new(Some(silent), launch(&["true"], &mark)).spawn(1).await else {
        panic!("a silent program took part as a guard")
    };
    assert!(error.fault.detail.contains("within 5 s"), "{}", error.fault.detail);
    nothing_stays(&mark).await;
}

#[test]
fn a_variable_left_in_a_shell_is_explained() {
    #[expect(clippy::disallowed_methods, reason = "the test's own process")]
    let output = Command::new(std::env::current_exe().unwrap())
        .env("TURNHOST_GUARD", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(crate::guard::exit::NO_SOCKET));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unset the variable"));
}

fn write_script(path: &Path, body: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path).unwrap();
    std::io::Write::write_all(&mut file, format!("#!/bin/sh\n{body}\n").as_bytes()).unwrap();
}

// ---- point 4: the start of the host ----

#[tokio::test]
async fn a_host_leads_its_own_group_in_the_guards_session_and_kill_0_does_not_reach_the_guard() {
    let mark = new_mark();
    let mut child = spawn_sh("trap '' TERM; kill 0; echo alive; read end", &mark).await;
    assert_eq!(line(&mut child).await, "alive");
    let (host, guard) = (child.identity.pid, guard_pid(&child));
    let host_stat = stat(host).unwrap();
    assert_eq!((host_stat.ppid, host_stat.pgrp, host_stat.session), (guard, host, guard));
    assert_eq!(host_stat.start_ticks, child.identity.start_ticks);
    assert!(child.identity.is_alive() && child.guard.as_ref().unwrap().is_alive());
    drop(child);
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn each_failed_start_names_its_stage_and_errno_and_leaves_nothing() {
    let mark = new_mark();
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "not a program").unwrap();
    let empty = folder.path().join("empty");
    write_script(&empty, "");
    std::fs::write(&empty, [0_u8; 64]).unwrap();
    let plain = plain.to_str().unwrap();
    let gone = folder.path().join("gone");
    let long = "x".repeat(100_000);
    let with =
        |argv: &[&str], cwd: Option<&Path>| Launch { cwd: cwd.map(Path::to_owned), ..launch(argv, &mark) };
    let mut too_long = with(&["true"], None);
    too_long.environment.extend((0..100).map(|n| (format!("V{n}").into(), long.clone().into())));
    let mut far_too_long = with(&["true"], None);
    far_too_long.environment.extend((0..200).map(|n| (format!("V{n}").into(), long.clone().into())));
    for (launch, words) in [
        (
            with(&["/nonexistent/host"], None),
            "cannot start /nonexistent/host: No such file or directory (ENOENT); ",
        ),
        (with(&["no-such-program-anywhere"], None), "cannot start no-such-program-anywhere: "),
        (with(&[plain], None), "Permission denied (EACCES); make the file executable"),
        (with(&[empty.to_str().unwrap()], None), "(ENOEXEC); "),
        (with(&["true"], Some(&gone)), "cannot enter the working directory "),
        (with(&["true"], Some(Path::new(plain))), "(ENOTDIR); create the directory"),
        (too_long, "(E2BIG); "),
        (far_too_long, "(E2BIG); "),
        (with(&["tr\0ue"], None), "NUL byte"),
        (with(&[], None), "no program was given"),
    ] {
        let Err(error) = try_spawn(launch).await else { panic!("it started: {words}") };
        assert!(error.permanent, "{}", error.fault.detail);
        assert!(error.fault.detail.contains(words), "{} lacks {words:?}", error.fault.detail);
    }
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn a_missing_directory_is_found_again_once_it_exists() {
    let mark = new_mark();
    let folder = tempfile::tempdir().unwrap();
    let cwd = folder.path().join("work");
    let mut spawn = GuardSpawn::new(None, Launch { cwd: Some(cwd.clone()), ..launch(&["pwd"], &mark) });
    let Err(error) = spawn.spawn(1).await else { panic!("it started") };
    assert!(error.fault.detail.contains(cwd.to_str().unwrap()), "{}", error.fault.detail);
    std::fs::create_dir(&cwd).unwrap();
    let mut child = spawn.spawn(2).await.unwrap();
    assert_eq!(line(&mut child).await, cwd.to_str().unwrap());
}

#[test]
fn a_shortage_of_descriptors_at_any_point_is_said_is_retryable_and_leaks_nothing() {
    let mark = new_mark();
    let mut outcomes = played("short-of-descriptors", &mark);
    assert_eq!(outcomes.pop().as_deref(), Some("left open: 0"));
    let started = outcomes.iter().position(|outcome| outcome == "started Code(0)").unwrap();
    let (short, enough) = outcomes.split_at(started);
    assert!(short.len() > 3, "{outcomes:?}");
    for outcome in short {
        let named = outcome.contains("(EMFILE); ") || outcome.contains("could not set itself up");
        assert!(outcome.starts_with("false ") && named, "{outcome}");
    }
    assert!(enough.iter().all(|outcome| outcome == "started Code(0)"), "{enough:?}");
    nothing_is_left(&mark);
}

#[test]
fn a_program_whose_own_directory_is_gone_says_so_and_can_start_a_host_elsewhere() {
    let lines = played("without-directory", "none");
    assert!(lines[0].starts_with("true the working directory of this program is gone"), "{lines:?}");
    assert_eq!(lines[1], "true");
}

// ---- point 5: exit, last words, sweep ----

#[tokio::test]
async fn the_last_words_are_in_the_pipe_when_the_exit_is_told_although_a_grandchild_holds_it_open() {
    let mark = new_mark();
    let mut child = spawn_sh("setsid sleep 1000 & printf 'last words'; kill -9 $$", &mark).await;
    assert_eq!(next_event(&mut child).await, Some(ChildEvent::Exited(Exit::Signal(9))));
    assert_eq!(child.stdout.available(), "last words".len());
    assert_eq!(next_event(&mut child).await, Some(ChildEvent::Swept(vec![])));
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn after_a_crash_everything_that_the_host_started_is_ended_though_it_ignores_term_and_left_the_session()
{
    let mark = new_mark();
    let mut child = spawn_sh(STUBBORN, &mark).await;
    assert_eq!(line(&mut child).await, "grandchild");
    signal(child.identity.pid, Signal::KILL);
    assert_eq!(ending(&mut child).await, (Exit::Signal(9), vec![]));
    assert_eq!(marked(&mark), Vec::<i32>::new());
}

// ---- point 6: the supervisor is gone ----

#[test]
fn a_killed_supervisor_leaves_nothing_though_host_and_grandchild_ignore_everything() {
    let mark = new_mark();
    let host = format!("{STUBBORN} # {mark}");
    let mut supervisor = Supervisor::start("supervisor", &["sh", "-c", &host], &mark);
    eventually("host and grandchild run", || marked(&mark).len() >= 2);
    supervisor.kill();
    nothing_is_left(&mark);
    // A zombie until whoever inherited it reaps it.
    eventually("the guard is gone", || stat(supervisor.guard).is_none_or(|stat| stat.is_dead()));
}

#[test]
fn a_killed_supervisor_leaves_no_stopped_host() {
    let mark = new_mark();
    let mut supervisor = Supervisor::start("supervisor", &["sh", "-c", "sleep 1000; exit"], &mark);
    signal(supervisor.host, Signal::STOP);
    supervisor.kill();
    nothing_is_left(&mark);
}

#[test]
fn a_killed_supervisor_leaves_no_foreign_host_that_ignores_eof_and_term() {
    let mark = new_mark();
    let host =
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)";
    let mut supervisor = Supervisor::start("supervisor", &["python3", "-c", host], &mark);
    supervisor.kill();
    nothing_is_left(&mark);
}

#[test]
fn a_forked_copy_that_holds_the_socket_does_not_keep_the_host_alive() {
    let mark = new_mark();
    let mut supervisor = Supervisor::start("forking-supervisor", &["sleep", "1000"], &mark);
    let copies = tree::children(supervisor.pid()).into_iter().filter(|pid| *pid != supervisor.guard);
    let copies: Vec<i32> = copies.collect();
    assert_eq!(copies.len(), 1, "the copy, beside the guard");
    supervisor.kill();
    nothing_is_left(&mark);
    assert!(stat(copies[0]).is_some_and(|stat| !stat.is_dead()), "the copy lives, socket and all");
    signal(copies[0], Signal::KILL);
}

#[test]
fn a_host_outlives_the_thread_that_started_it() {
    let mark = new_mark();
    let folder = tempfile::tempdir().unwrap();
    let pulse = folder.path().join("pulse");
    let script = format!("while :; do echo beat >> {}; sleep 0.02; done", pulse.display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Kept open: only the thread goes.
            std::mem::forget(runtime.block_on(spawn_sh(&script, &mark)));
        });
    });
    let beats = || std::fs::read_to_string(&pulse).unwrap_or_default().lines().count();
    let at_the_end_of_the_thread = beats();
    eventually("the host goes on", || beats() > at_the_end_of_the_thread + 20);
    drop(runtime);
    nothing_is_left(&mark);
}

// ---- point 7: orders ----

#[tokio::test]
async fn a_stopped_guard_is_continued_and_then_obeys() {
    let mark = new_mark();
    let mut child = spawn_sh(STUBBORN, &mark).await;
    assert_eq!(line(&mut child).await, "grandchild");
    signal(guard_pid(&child), Signal::STOP);
    child.control.kill();
    assert_eq!(
        ending(&mut child).await,
        (Exit::Signal(9), vec![]),
        "the guard itself saw how the host ended"
    );
    nothing_stays(&mark).await;
}

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

#[tokio::test]
async fn a_guard_that_does_not_answer_is_killed_and_its_work_is_done_by_the_supervisor() {
    let mark = new_mark();
    let folder = tempfile::tempdir().unwrap();
    let code = folder.path().join("guard.py");
    std::fs::write(&code, DEAF_GUARD).unwrap();
    let program = folder.path().join("guard");
    write_script(&program, &format!("export {MARK}={mark}; exec python3 {}", code.display()));
    let launch = launch(&["sh", "-c", STUBBORN], &mark);
    let mut child = GuardSpawn::new(Some(program), launch).spawn(1).await.unwrap();
    assert_eq!(line(&mut child).await, "grandchild");
    child.control.term();
    assert_eq!(ending(&mut child).await, (Exit::Unknown, vec![]));
    nothing_stays(&mark).await;
}

// ---- points 8 and 9: the end of the tree ----

#[tokio::test]
async fn term_reaches_a_stopped_host_and_its_grandchild_in_another_session() {
    let mark = new_mark();
    let script = "trap 'echo host; exit 3' TERM; \
                  setsid sh -c 'trap \"echo grandchild; exit\" TERM; echo up; while :; do sleep 0.05; done' & \
                  while :; do sleep 0.05; done";
    let mut child = spawn_sh(script, &mark).await;
    assert_eq!(line(&mut child).await, "up");
    signal(child.identity.pid, Signal::STOP);
    child.control.term();
    assert_eq!(ending(&mut child).await, (Exit::Code(3), vec![]));
    let text = all_output(&mut child).await;
    assert!(text.contains("host\n") && text.contains("grandchild\n"), "{text:?}");
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn an_asked_stop_leaves_a_host_its_grace_until_the_order_to_kill() {
    let mark = new_mark();
    let mut child = spawn_sh("trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done", &mark).await;
    assert_eq!(line(&mut child).await, "up");
    child.control.term();
    assert_eq!(line(&mut child).await, "asked");
    child.control.term();
    assert_eq!(line(&mut child).await, "asked", "it lives and hears a second one");
    child.control.kill();
    assert_eq!(ending(&mut child).await, (Exit::Signal(9), vec![]));
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn orphans_come_back_to_the_guard_and_are_ended_with_the_rest() {
    let mark = new_mark();
    let mut child = spawn_sh("(setsid sh -c 'echo $$; exec sleep 1000' &) ; read end", &mark).await;
    let orphan: i32 = line(&mut child).await.parse().unwrap();
    let guard = guard_pid(&child);
    eventually("the orphan's parent is the guard", || stat(orphan).is_some_and(|stat| stat.ppid == guard));
    child.stdin = None;
    assert_eq!(ending(&mut child).await, (Exit::Code(1), vec![]));
    assert!(stat(orphan).is_none_or(|stat| stat.is_dead()));
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn a_dropped_child_may_end_at_the_end_of_its_stdin() {
    let mark = new_mark();
    let folder = tempfile::tempdir().unwrap();
    let flushed = folder.path().join("flushed");
    let script = format!("echo up; cat > /dev/null; echo done > {}", flushed.display());
    let mut child = spawn_sh(&script, &mark).await;
    assert_eq!(line(&mut child).await, "up");
    drop(child);
    nothing_stays(&mark).await;
    assert_eq!(std::fs::read_to_string(flushed).unwrap(), "done\n");
}

#[tokio::test]
async fn term_to_a_guard_ends_its_tree() {
    let mark = new_mark();
    let mut child = spawn_sh(STUBBORN, &mark).await;
    assert_eq!(line(&mut child).await, "grandchild");
    signal(guard_pid(&child), Signal::TERM);
    assert_eq!(ending(&mut child).await, (Exit::Signal(9), vec![]));
    nothing_stays(&mark).await;
}

// ---- point 10: the guard is dead ----

#[tokio::test]
async fn a_killed_guard_is_a_crash_and_the_supervisor_ends_the_tree() {
    let mark = new_mark();
    let mut child = spawn_sh(STUBBORN, &mark).await;
    assert_eq!(line(&mut child).await, "grandchild");
    let host = child.identity.clone();
    signal(guard_pid(&child), Signal::KILL);
    let (exit, survivors) = ending(&mut child).await;
    assert_eq!((exit, survivors), (Exit::Unknown, vec![]));
    assert!(!host.is_alive());
    assert_eq!(marked(&mark), Vec::<i32>::new());
}

#[tokio::test]
async fn a_host_that_shed_its_death_signal_may_flush_when_its_guard_dies() {
    let mark = new_mark();
    // What our own host does: clears the death signal, and takes a new parent as the sign to end.
    let host = "import ctypes, os, sys, time\n\
                ctypes.CDLL(None).prctl(1, 0)\n\
                parent = os.getppid()\n\
                print('up', flush=True)\n\
                while os.getppid() == parent: time.sleep(0.01)\n\
                print('flushed', flush=True)\n";
    let mut child = spawn(&["python3", "-c", host], &mark).await;
    assert_eq!(line(&mut child).await, "up");
    signal(guard_pid(&child), Signal::KILL);
    assert_eq!(line(&mut child).await, "flushed");
    assert_eq!(ending(&mut child).await, (Exit::Unknown, vec![]));
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn an_order_to_kill_ends_the_flush_of_a_host_whose_guard_is_dead() {
    let mark = new_mark();
    let host = "import ctypes, time\nctypes.CDLL(None).prctl(1, 0)\nprint('up', flush=True)\nwhile True: time.sleep(1)";
    let mut child = spawn(&["python3", "-c", host], &mark).await;
    assert_eq!(line(&mut child).await, "up");
    signal(guard_pid(&child), Signal::KILL);
    child.control.kill();
    assert_eq!(ending(&mut child).await, (Exit::Unknown, vec![]));
    nothing_stays(&mark).await;
}

// ---- dropping: no process, no zombie, with or without a runtime ----

#[tokio::test]
async fn a_dropped_child_ends_though_its_guard_is_stopped() {
    let mark = new_mark();
    let mut child = spawn_sh(STUBBORN, &mark).await;
    assert_eq!(line(&mut child).await, "grandchild");
    signal(guard_pid(&child), Signal::STOP);
    drop(child);
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn a_dropped_child_ends_though_its_guard_was_just_killed() {
    let mark = new_mark();
    let mut child = spawn_sh(STUBBORN, &mark).await;
    assert_eq!(line(&mut child).await, "grandchild");
    signal(guard_pid(&child), Signal::KILL);
    drop(child);
    nothing_stays(&mark).await;
}

/// Zombies among our own children that are `turnhost-guard`s or hosts of this test binary.
fn zombies() -> Vec<i32> {
    tree::children(i32::try_from(std::process::id()).unwrap())
        .into_iter()
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.state == b'Z'))
        .collect()
}

#[test]
fn children_dropped_with_or_without_a_runtime_leave_no_zombie() {
    let mark = new_mark();
    for round in 0..40 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let child = runtime.block_on(spawn(&["sleep", "1000"], &mark));
        if round % 2 == 0 {
            drop(child);
            drop(runtime);
        } else {
            drop(runtime);
            drop(child);
        }
    }
    nothing_is_left(&mark);
    eventually("every guard is reaped", || tree::children(own()).is_empty() || zombies().is_empty());
    eventually("no guard is left", || {
        tree::children(own()).iter().all(|pid| !name_is(*pid, turnhost_os::GUARD_NAME))
    });
}

fn own() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

fn name_is(pid: i32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

#[test]
fn a_spawn_cancelled_at_any_stage_leaves_no_process() {
    let mark = new_mark();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for polls in 0..12 {
            let mut spawner = GuardSpawn::new(None, launch(&["sleep", "1000"], &mark));
            let mut spawn = spawner.spawn(1);
            let mut left = polls;
            // Cancelled after so many polls, each of which is one thing that happened.
            std::future::poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                spawn.as_mut().poll(context).map(drop)
            })
            .await;
        }
        nothing_stays(&mark).await;
    });
    eventually("no guard is left", || {
        tree::children(own()).iter().all(|pid| !name_is(*pid, turnhost_os::GUARD_NAME))
    });
}

// ---- without a guard ----

#[tokio::test]
async fn without_a_guard_a_host_has_a_session_of_its_own_and_ends_with_its_group() {
    let mark = new_mark();
    let script = "trap 'echo asked' TERM; sh -c 'trap \"\" TERM; echo up; while :; do sleep 1; done' & \
                  wait; wait; exit 4";
    let mut child = direct::DirectSpawn::new(launch(&["sh", "-c", script], &mark)).spawn(1).await.unwrap();
    assert_eq!(line(&mut child).await, "up");
    let host = child.identity.pid;
    let host_stat = stat(host).unwrap();
    assert_eq!((host_stat.session, host_stat.pgrp, child.guard.clone()), (host, host, None));
    child.control.term();
    assert_eq!(line(&mut child).await, "asked");
    child.control.kill();
    assert_eq!(ending(&mut child).await, (Exit::Signal(9), vec![]));
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn without_a_guard_a_crash_takes_the_group_along_and_a_drop_kills() {
    let mark = new_mark();
    let spawn = async |script: &str| {
        direct::DirectSpawn::new(launch(&["sh", "-c", script], &mark)).spawn(1).await.unwrap()
    };
    let mut child = spawn("sh -c 'trap \"\" TERM; sleep 1000' & setsid sleep 1000 & exit 5").await;
    assert_eq!(ending(&mut child).await, (Exit::Code(5), vec![]));
    assert_eq!(marked(&mark), Vec::<i32>::new());
    drop(spawn("trap '' TERM; while :; do sleep 1; done").await);
    nothing_stays(&mark).await;
}

#[tokio::test]
async fn without_a_guard_a_host_has_clean_signals_and_only_its_pipes() {
    let mark = new_mark();
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l";
    let mut child = direct::DirectSpawn::new(launch(&["sh", "-c", script], &mark)).spawn(1).await.unwrap();
    let text = all_output(&mut child).await;
    let zeros = "0000000000000000";
    assert_eq!(text, format!("SigBlk:\t{zeros}\nSigIgn:\t{zeros}\n4\n"));
    ending(&mut child).await;
}

#[tokio::test]
async fn without_a_guard_a_failed_start_names_what_is_missing() {
    let mark = new_mark();
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    for (argv, cwd, words) in [
        (vec!["/nonexistent/host"], None, "cannot start /nonexistent/host: "),
        (vec!["true"], Some(gone.clone()), "cannot enter the working directory "),
        (vec![], None, "no program was given"),
    ] {
        let launch = Launch { cwd, ..launch(&argv, &mark) };
        let Err(error) = direct::DirectSpawn::new(launch).spawn(1).await else { panic!("it started") };
        assert!(error.permanent && error.fault.detail.contains(words), "{}", error.fault.detail);
    }
}

// ---- point 13: pid 1 of a container ----

#[test]
fn as_pid_1_a_program_runs_behind_an_init_that_forwards_signals_and_reaps() {
    let binary = std::env::current_exe().unwrap();
    // A namespace of its own may be forbidden to this user; then there is no pid 1 to be.
    let words = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];
    #[expect(clippy::disallowed_methods, reason = "the test's own process")]
    let unshare = |argv: &[&std::ffi::OsStr]| {
        let mut command = Command::new("unshare");
        command.args(words).args(argv).env(ROLE, "init").stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    if !unshare(&["true".as_ref()]).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return;
    }
    let mut process = unshare(&[binary.as_os_str()]).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut lines = Vec::new();
    while lines.len() < 2 {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "{lines:?}");
        lines.push(line);
    }
    lines.sort();
    assert_eq!(lines, ["orphan\n", "up as 2\n"], "the program is not pid 1");

    let unshare_pid = i32::try_from(process.id()).unwrap();
    let init = tree::children(unshare_pid)[0];
    eventually("the orphan is reaped by pid 1, whose only child is the program", || {
        tree::children(init).len() == 1
    });
    signal(init, Signal::TERM);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "term to 2\n");
    assert_eq!(process.wait().unwrap().code(), Some(9), "pid 1 ends as the program did");
}
