//! The processes below this host: ends them, and reaps those that nobody else will.
//!
//! The host is a child sub-reaper, so whatever an agent starts stays below it, however it detaches itself. Blocks;
//! only called on the loop's thread at the very end, and on blocking threads before.

use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use turnhost_os::identity::{ProcessHandle, stat};
use turnhost_os::tree;

/// How long ended processes may take to disappear. SIGKILL acts within milliseconds, or (uninterruptible sleep) not
/// at all.
const SWEEP: Duration = Duration::from_millis(400);
/// Between two looks at processes that were killed.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Kills and reaps every process below this one, until none is left or the time is over. Returns the survivors.
pub(crate) fn end_all_descendants() -> Vec<i32> {
    end(|| tree::descendants(own_pid()), true)
}

/// Kills the processes of one turn: `roots` and all below, and whatever below this host carries the turn's marker in
/// its environment. Returns the survivors.
pub(crate) fn end_turn(roots: &[i32], marker: (&str, &str)) -> Vec<i32> {
    let own = || {
        let below: HashSet<i32> = tree::descendants(own_pid()).into_iter().collect();
        let mut of_turn: Vec<i32> = roots.to_vec();
        of_turn.extend(roots.iter().flat_map(|root| tree::descendants(*root)));
        of_turn.extend(tree::with_environment(marker.0, marker.1));
        of_turn.retain(|pid| below.contains(pid));
        of_turn.sort_unstable();
        of_turn.dedup();
        of_turn
    };
    end(own, false)
}

fn end(find: impl Fn() -> Vec<i32>, reap: bool) -> Vec<i32> {
    let until = Instant::now() + SWEEP;
    loop {
        let found = find();
        let handles: Vec<ProcessHandle> =
            found.iter().filter_map(|pid| ProcessHandle::open(*pid).ok()).collect();
        // Found again after the handle was opened: so the handle names a process of ours and no reused pid.
        let again: HashSet<i32> = find().into_iter().collect();
        for handle in handles.iter().filter(|handle| again.contains(&handle.pid())) {
            let _ = handle.signal(Signal::KILL);
        }
        if reap {
            reap_zombies(&again);
        }
        let alive: Vec<i32> =
            again.into_iter().filter(|pid| stat(*pid).is_some_and(|stat| !stat.is_dead())).collect();
        if (alive.is_empty() && find().iter().all(|pid| is_dead(*pid))) || until <= Instant::now() {
            return alive;
        }
        // Nothing tells of the death of a process that is not a child; a few milliseconds cost nobody anything here.
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn reap_zombies(pids: &HashSet<i32>) {
    for pid in pids.iter().filter(|pid| is_dead(**pid)).filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

fn is_dead(pid: i32) -> bool {
    stat(pid).is_none_or(|stat| stat.is_dead())
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Reaps orphans that fell to this host, and leaves to agents what is theirs.
#[derive(Debug, Default)]
pub(crate) struct OrphanReaper {
    dead_before: HashSet<i32>,
}

impl OrphanReaper {
    /// Looks at this host's children. A dead one that no agent manages and that was dead at the last look already is
    /// reaped: whoever started it himself had that long to fetch its status.
    pub(crate) fn look(&mut self, managed: &[i32]) {
        let dead: HashSet<i32> = tree::children(own_pid())
            .into_iter()
            .filter(|pid| is_dead(*pid) && !managed.contains(pid))
            .collect();
        let nobodys: HashSet<i32> = dead.intersection(&self.dead_before).copied().collect();
        reap_zombies(&nobodys);
        self.dead_before = dead;
    }
}
