use super::*;
use crate::spawn::tests::{STUBBORN, Supervisor, eventually, marked, new_mark, nothing_is_left, signal};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use turnhost_os::identity::stat;

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("host.json")
    }

    fn bad(&self) -> PathBuf {
        self.folder.path().join("host.json.bad")
    }

    fn open(&self) -> RegistryFile {
        RegistryFile::open(&self.path()).unwrap()
    }

    fn with(content: impl AsRef<[u8]>) -> Self {
        let fixture = Self::new();
        std::fs::write(fixture.path(), content).unwrap();
        fixture
    }

    fn with_json(content: &Value) -> Self {
        Self::with(content.to_string())
    }

    fn reconcile(&self) -> Result<Reconciled, RegistryError> {
        self.open().reconcile()
    }
}

/// A process of the test's own, killed and reaped with it.
struct Process(Child);

impl Process {
    #[expect(clippy::disallowed_methods, reason = "the test's own process")]
    fn start(argv: &[&str], mark: &str) -> Self {
        let child = Command::new(argv[0])
            .args(&argv[1..])
            .env("TURNHOST_TEST_MARK", mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn own() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

/// The fields of ours about a process that lives.
fn ours(host: i32, supervisor: Option<&ProcessIdentity>, guard: Option<i32>) -> Value {
    let host = ProcessIdentity::of(host).unwrap();
    let mut value = json!({
        "host_pid": host.pid, "boot_id": "b", "build_sha": "s", "started_at": 1.5, "argv": ["host"],
        "host_start_ticks": host.start_ticks, "machine_boot_id": host.machine_boot_id,
    });
    if let Some(supervisor) = supervisor {
        value["supervisor_pid"] = json!(supervisor.pid);
        value["supervisor_start_ticks"] = json!(supervisor.start_ticks);
    }
    if let Some(guard) = guard {
        value["guard_pid"] = json!(guard);
        value["guard_start_ticks"] = json!(stat(guard).unwrap().start_ticks);
    }
    value
}

/// A file as the peer writes it, now.
fn peers(host: i32, argv: &[&str]) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    json!({"host_pid": host, "boot_id": "b", "build_sha": "s", "started_at": now, "argv": argv})
}

#[test]
fn no_file_is_none_and_stays_none() {
    let fixture = Fixture::new();
    assert_eq!(fixture.reconcile(), Ok(Reconciled::None));
    assert!(!fixture.path().exists());
}

#[test]
fn a_registered_pid_of_another_process_is_ignored_and_never_signalled() {
    let mark = new_mark();
    let mut stranger = Process::start(&["sleep", "1000"], &mark);
    let mut earlier_ticks = ours(stranger.pid(), None, None);
    earlier_ticks["host_start_ticks"] = json!(stat(stranger.pid()).unwrap().start_ticks - 1);
    let mut other_boot = ours(stranger.pid(), None, None);
    other_boot["machine_boot_id"] = json!("another boot");
    let mut recorded_long_ago = peers(stranger.pid(), &["sleep", "1000"]);
    recorded_long_ago["started_at"] = json!(1.0);
    let group = nix::unistd::getpgrp().as_raw();
    let parent = nix::unistd::getppid().as_raw();
    for file in [
        earlier_ticks,
        other_boot,
        recorded_long_ago,
        peers(stranger.pid(), &["python", "-m", "compute_host"]),
        json!({"host_pid": stranger.pid()}),
        json!({"host_pid": own(), "boot_id": "stale"}),
        json!({"host_pid": parent, "boot_id": "stale"}),
        ours(own(), None, None),
        ours(group, None, None),
    ] {
        let fixture = Fixture::with_json(&file);
        assert_eq!(fixture.reconcile(), Ok(Reconciled::PidReuseIgnored), "{file}");
        assert!(!fixture.path().exists() && !fixture.bad().exists(), "{file}");
    }
    assert!(stranger.lives(), "no signal reached it");
}

#[test]
fn a_dead_host_and_a_zombie_are_not_running() {
    let mark = new_mark();
    let mut gone = Process::start(&["true"], &mark);
    eventually("it is a zombie", || stat(gone.pid()).is_some_and(|stat| stat.state == b'Z'));
    let file = peers(gone.pid(), &["true"]);
    assert_eq!(Fixture::with_json(&file).reconcile(), Ok(Reconciled::NotRunning), "a zombie");
    gone.0.wait().unwrap();
    let fixture = Fixture::with_json(&file);
    assert_eq!(fixture.reconcile(), Ok(Reconciled::NotRunning));
    assert!(!fixture.path().exists());
}

#[test]
fn a_supervisor_whose_session_and_group_have_leaders_outside_its_pid_namespace_reconciles() {
    // A namespace of its own may be forbidden to this user.
    let words = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];
    #[expect(clippy::disallowed_methods, reason = "the test's own process")]
    let unshare = |argv: &[&std::ffi::OsStr]| {
        let mut command = Command::new("unshare");
        command.args(words).args(argv).stdin(Stdio::null());
        command.output().unwrap()
    };
    if !unshare(&["true".as_ref()]).status.success() {
        return;
    }
    let binary = std::env::current_exe().unwrap();
    for test in [
        "a_dead_host_and_a_zombie_are_not_running",
        "an_orphan_of_the_peer_is_ended_with_its_session_and_descendants",
    ] {
        let name = format!("registry::tests::{test}");
        // The shell is pid 1, so that the test is an ordinary process.
        let argv = ["sh", "-c", "\"$0\" --exact \"$1\"; exit $?"].map(std::ffi::OsStr::new);
        let output = unshare(&[&argv[..], &[binary.as_os_str(), name.as_ref()]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}

#[test]
fn whatever_cannot_be_read_is_set_aside_and_one_is_kept() {
    let nuls = [0_u8; 300];
    for content in
        [&b""[..], &nuls, b"{\"host_pid\":12", b"\xff\xfe", b"{\"host_pid\":1}", b"{\"host_pid\":-1}"]
    {
        let fixture = Fixture::with(content);
        std::fs::write(fixture.bad(), "an earlier one").unwrap();
        assert_eq!(fixture.reconcile(), Ok(Reconciled::InvalidRegistry), "{content:?}");
        assert!(!fixture.path().exists());
        assert_eq!(std::fs::read(fixture.bad()).unwrap(), content);
        assert_eq!(fixture.reconcile(), Ok(Reconciled::None));
    }
}

#[test]
fn what_is_no_file_is_set_aside_without_being_opened_or_followed() {
    let folder = Fixture::new();
    std::fs::create_dir(folder.path()).unwrap();
    std::fs::write(folder.path().join("inside"), "kept").unwrap();
    std::fs::write(folder.bad(), "an earlier one").unwrap();
    assert_eq!(folder.reconcile(), Ok(Reconciled::InvalidRegistry));
    assert_eq!(std::fs::read_to_string(folder.bad().join("inside")).unwrap(), "kept");

    let link = Fixture::new();
    let target = link.folder.path().join("target");
    std::fs::write(&target, "{\"host_pid\": 12}").unwrap();
    std::os::unix::fs::symlink(&target, link.path()).unwrap();
    assert_eq!(link.reconcile(), Ok(Reconciled::InvalidRegistry));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "{\"host_pid\": 12}");
    assert!(std::fs::symlink_metadata(link.bad()).unwrap().is_symlink());

    let dangling = Fixture::new();
    std::os::unix::fs::symlink("/nonexistent", dangling.path()).unwrap();
    assert_eq!(dangling.reconcile(), Ok(Reconciled::InvalidRegistry));

    // Nobody writes to it: a plain open would wait for ever.
    let fifo = Fixture::new();
    nix::unistd::mkfifo(&fifo.path(), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert_eq!(fifo.reconcile(), Ok(Reconciled::InvalidRegistry));

    let huge = Fixture::new();
    File::create(huge.path()).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(huge.reconcile(), Ok(Reconciled::InvalidRegistry));
    assert_eq!(std::fs::metadata(huge.bad()).unwrap().len(), 1 << 30);
}

#[test]
fn a_host_of_the_peer_is_owned_while_its_parent_holds_its_pipes() {
    let mark = new_mark();
    let mut host = Process::start(&["sleep", "1000"], &mark);
    let file = peers(host.pid(), &["sleep", "1000"]);
    let fixture = Fixture::with_json(&file);
    let error = fixture.reconcile().unwrap_err();
    assert_eq!(error, RegistryError::Owned { path: fixture.path(), pid: Some(own()) });
    assert_eq!(error.fault().kind, ErrorKind::RegistryOwned);
    assert!(error.to_string().contains(&format!("pid {}", own())), "{error}");
    assert!(host.lives(), "nothing was signalled");
    assert_eq!(std::fs::read_to_string(fixture.path()).unwrap(), file.to_string(), "nothing was removed");
}

#[test]
fn an_orphan_of_the_peer_is_ended_with_its_session_and_descendants() {
    let mark = new_mark();
    // The middle process dies at once; the host's stdin is a pipe that nobody holds any more.
    let host =
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & while :; do sleep 1; done";
    let orphan = format!("sleep 0 | setsid sh -c '{}' >/dev/null 2>&1 & exit", host.replace('\'', "'\\''"));
    let mut middle = Process::start(&["sh", "-c", &orphan], &mark);
    middle.0.wait().unwrap();
    let is_host = |pid: &i32| {
        stat(*pid).is_some_and(|stat| stat.session == *pid)
            && std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|words| words.ends_with(&with_nul(host)))
    };
    let mut found = None;
    eventually("host and grandchild run", || {
        let all = marked(&mark);
        found = all.iter().copied().find(is_host);
        found.is_some() && all.len() >= 3
    });
    let fixture = Fixture::with_json(&peers(found.unwrap(), &["sh", "-c", host]));
    assert_eq!(fixture.reconcile(), Ok(Reconciled::Terminated));
    assert!(!fixture.path().exists());
    nothing_is_left(&mark);
}

fn with_nul(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

#[test]
fn an_orphan_whose_guard_lives_is_gone_when_the_reconcile_returns() {
    let mark = new_mark();
    let mut supervisor = Supervisor::start("supervisor", &["sh", "-c", STUBBORN], &mark);
    let supervisor_identity = ProcessIdentity::of(supervisor.pid()).unwrap();
    let file = ours(supervisor.host, Some(&supervisor_identity), Some(supervisor.guard));
    let fixture = Fixture::with_json(&file);
    let owned = RegistryError::Owned { path: fixture.path(), pid: Some(supervisor.pid()) };
    assert_eq!(fixture.reconcile(), Err(owned));
    assert!(fixture.path().exists() && stat(supervisor.host).is_some_and(|stat| !stat.is_dead()));

    // It would be the guard's work within two seconds; a stopped guard needs more than TERM.
    signal(supervisor.guard, Signal::STOP);
    supervisor.kill();
    assert_eq!(fixture.reconcile(), Ok(Reconciled::Terminated));
    assert!(!fixture.path().exists());
    assert_eq!(marked(&mark), Vec::<i32>::new());
}

#[test]
fn an_orphan_whose_guard_and_supervisor_were_killed_at_once_is_swept() {
    let mark = new_mark();
    // It has cleared its death signal, ignores TERM, and has a child in another session with an empty environment.
    let host = "import ctypes, signal, subprocess, sys, time\n\
                ctypes.CDLL(None).prctl(1, 0)\n\
                signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                subprocess.Popen(['sleep', '1000'], start_new_session=True)\n\
                while True: time.sleep(1)\n";
    let mut supervisor = Supervisor::start("supervisor", &["python3", "-c", host], &mark);
    eventually("host and grandchild run", || {
        marked(&mark).iter().any(|pid| stat(*pid).is_some_and(|stat| stat.session == *pid))
    });
    let supervisor_identity = ProcessIdentity::of(supervisor.pid()).unwrap();
    let file = ours(supervisor.host, Some(&supervisor_identity), Some(supervisor.guard));
    signal(supervisor.guard, Signal::STOP);
    supervisor.kill();
    signal(supervisor.guard, Signal::KILL);
    let fixture = Fixture::with_json(&file);
    assert_eq!(fixture.reconcile(), Ok(Reconciled::Terminated));
    assert_eq!(marked(&mark), Vec::<i32>::new());
}

#[test]
fn only_one_of_many_gets_the_lock_and_the_others_learn_who() {
    let fixture = Fixture::new();
    let held = fixture.open();
    let errors: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..50).map(|_| scope.spawn(|| RegistryFile::open(&fixture.path()).unwrap_err())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors {
        assert_eq!(error, RegistryError::Owned { path: fixture.path(), pid: Some(own()) });
    }
    drop(held);
    let lock = fixture.folder.path().join("host.json.lock");
    assert!(lock.exists(), "the lock file is never deleted");
    drop(fixture.open());
}

#[test]
fn a_lock_file_that_was_deleted_under_its_holder_is_made_again() {
    let fixture = Fixture::new();
    let lock = fixture.folder.path().join("host.json.lock");
    let first = fixture.open();
    std::fs::remove_file(&lock).unwrap();
    let second = fixture.open();
    assert!(RegistryFile::open(&fixture.path()).is_err(), "the second holder has what others find");
    drop((first, second));
}

#[test]
fn a_lock_is_not_inherited() {
    let mark = new_mark();
    let fixture = Fixture::new();
    let held = fixture.open();
    let mut child = Process::start(&["sleep", "1000"], &mark);
    drop(held);
    drop(fixture.open());
    assert!(child.lives());
}

#[test]
fn a_registry_that_cannot_be_written_says_what_and_why() {
    let fixture = Fixture::new();
    let file = fixture.folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let link = fixture.folder.path().join("link.json");
    std::os::unix::fs::symlink("/nonexistent", with_suffix(&link, ".lock")).unwrap();
    let blocked = fixture.folder.path().join("blocked.json");
    std::fs::create_dir(with_suffix(&blocked, ".tmp")).unwrap();
    for (path, step, errno) in [
        (file.join("host.json"), "create the folder", "EEXIST"),
        (file.join("sub/host.json"), "create the folder", "ENOTDIR"),
        (PathBuf::from("/proc/nowhere/host.json"), "create the folder", "ENOENT"),
        (link, "open the lock", "ELOOP"),
        (blocked, "write", "EISDIR"),
    ] {
        let error = RegistryFile::open(&path).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot {step} ")), "{text}");
        assert!(text.contains(&format!("({errno}); ")), "{text}");
        assert_eq!(error.fault().kind, ErrorKind::RegistryUnwritable);
    }
    assert!(!file.is_dir());
}

#[test]
fn what_is_written_is_whole_private_and_removed_only_by_its_writer() {
    let fixture = Fixture::new();
    let path = fixture.folder.path().join("deep/er/host.json");
    let mut registry = RegistryFile::open(&path).unwrap();
    let host = ProcessIdentity { pid: 4711, start_ticks: 9, machine_boot_id: turnhost_os::machine_boot_id() };
    let entry = Entry {
        host: host.clone(),
        guard: Some(ProcessIdentity { pid: 4710, ..host.clone() }),
        boot_id: "boot".to_owned(),
        build_sha: "sha".to_owned(),
        argv: vec!["host".into(), "--fast".into()],
    };
    registry.write(&entry).unwrap();
    registry.write(&entry).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&with_suffix(&path, ".lock")), 0o600);
    let names: Vec<_> =
        std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the file, its lock and no temporary one: {names:?}");

    let recorded = Recorded::parse(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((recorded.host(), recorded.guard), (Some(host), entry.guard.clone()));
    assert_eq!(recorded.supervisor, ProcessIdentity::of(own()));
    assert_eq!((recorded.boot_id.as_str(), recorded.build_sha.as_str()), ("boot", "sha"));
    assert_eq!(recorded.argv, ["host", "--fast"]);
    let age =
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() - recorded.started_at.unwrap();
    assert!((0.0..3600.0).contains(&age), "{age}");

    registry.remove();
    assert!(!path.exists());
    registry.write(&entry).unwrap();
    std::fs::write(&path, json!({"host_pid": 4711, "boot_id": "theirs"}).to_string()).unwrap();
    registry.remove();
    assert!(path.exists(), "somebody else's file stays");
    registry.remove();
}

#[test]
fn a_host_that_was_recorded_here_and_lives_is_ended_by_the_next_supervisor_of_this_process() {
    let mark = new_mark();
    let fixture = Fixture::new();
    let host = Process::start(&["sleep", "1000"], &mark);
    let mut registry = fixture.open();
    let entry = Entry {
        host: ProcessIdentity::of(host.pid()).unwrap(),
        guard: None,
        boot_id: "b".to_owned(),
        build_sha: String::new(),
        argv: vec!["sleep".into(), "1000".into()],
    };
    registry.write(&entry).unwrap();
    drop(registry);
    assert_eq!(fixture.reconcile(), Ok(Reconciled::Terminated));
    nothing_is_left(&mark);
    assert!(stat(host.pid()).is_some_and(|stat| stat.is_dead()));
}
