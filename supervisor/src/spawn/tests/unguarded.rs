//! A host without a guard.

use super::*;
use pretty_assertions::assert_eq;

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
