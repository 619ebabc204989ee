//! How a guard and its host start, and what is said when they cannot.

use super::*;
use pretty_assertions::assert_eq;

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
