//! The guard's own tree: its children and what descends from them.

use crate::machine::Exit;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::collections::HashSet;
use turnhost_os::identity::{ProcessHandle, stat};
use turnhost_os::tree;

/// One child that ended and is reaped now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reaped {
    pub pid: i32,
    pub exit: Exit,
}

/// What is left to reap.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reap {
    /// One ended.
    One(Reaped),
    /// Children live, none has ended.
    Later,
    /// There is no child, living or dead.
    Empty,
}

/// Reaps one child if one has ended.
pub(super) fn reap() -> Reap {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let exit = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => continue,
                };
                return Reap::One(Reaped { pid: pid.as_raw_nonzero().get(), exit });
            }
            Ok(None) => return Reap::Later,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Reap::Empty,
        }
    }
}

/// Sends `signals` to every living descendant, nearest first.
///
/// A descendant that is not our own child can die and its pid be given to a stranger at any moment, so each is opened
/// first and signalled only if it is still the child of one of ours.
pub(super) fn signal_descendants(signals: &[Signal]) {
    let own = own_pid();
    let found = tree::descendants(own);
    let tree: HashSet<i32> = found.iter().copied().chain([own]).collect();
    for pid in found {
        let Ok(process) = ProcessHandle::open(pid) else { continue };
        let ours = stat(pid).is_some_and(|stat| !stat.is_dead() && tree.contains(&stat.ppid));
        if ours {
            for signal in signals {
                // EPERM for a setuid process: it is reported as a survivor if it stays.
                let _ = process.signal(*signal);
            }
        }
    }
}

/// KILL to every direct child: only we can reap those, so their pids cannot be anyone else's. Their own children come
/// to us next.
pub(super) fn kill_children() {
    for pid in tree::children(own_pid()) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Descendants that live.
pub(super) fn survivors() -> Vec<i32> {
    tree::descendants(own_pid())
        .into_iter()
        .filter(|pid| stat(*pid).is_some_and(|stat| !stat.is_dead()))
        .collect()
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
