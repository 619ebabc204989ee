//! How a host and its tree end: exit, orders, a supervisor or a guard that is gone.

use super::*;
use pretty_assertions::assert_eq;

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
