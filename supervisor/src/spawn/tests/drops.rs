//! A child that is dropped, or whose spawn is, leaves no process and no zombie.

use super::*;
use pretty_assertions::assert_eq;

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
