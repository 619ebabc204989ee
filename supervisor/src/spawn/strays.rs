//! Processes of a tree whose guard is gone: nobody's children, found by the session that the guard made and by the
//! owner marker in their environment.

use crate::environment::OWNER_VARIABLE;
use rustix::process::Signal;
use std::collections::BTreeSet;
use turnhost_os::ProcessIdentity;
use turnhost_os::identity::{ProcessHandle, stat};
use turnhost_os::tree;

/// The marks of one tree.
#[derive(Debug, Clone)]
pub(crate) struct Strays {
    /// The leader of its session, dead or alive; `None` if it has no session of its own.
    pub leader: Option<ProcessIdentity>,
    /// The value of [`OWNER_VARIABLE`], which no other tree has.
    pub owner: Option<String>,
}

impl Strays {
    /// Sends `signal` to every process that bears a mark. The pids found, sent or not.
    ///
    /// Each is opened first and looked at again, so that a pid that changed hands in between is left alone.
    pub(crate) fn signal(&self, signal: Signal) -> Vec<i32> {
        let found = self.find();
        for pid in &found {
            let Ok(process) = ProcessHandle::open(*pid) else { continue };
            if self.bears_a_mark(*pid) {
                // EPERM for a setuid process: it is reported as a survivor if it stays.
                let _ = process.signal(signal);
            }
        }
        found
    }

    /// Living processes that bear a mark; never this process itself.
    pub(crate) fn find(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let mut found = BTreeSet::new();
        if let Some(session) = self.session() {
            found.extend(tree::in_session(session));
        }
        if let Some(owner) = &self.owner {
            found.extend(tree::with_environment(OWNER_VARIABLE, owner));
        }
        found.remove(&own);
        found.into_iter().collect()
    }

    fn bears_a_mark(&self, pid: i32) -> bool {
        let Some(stat) = stat(pid).filter(|stat| !stat.is_dead()) else { return false };
        self.session() == Some(stat.session) || self.owner.as_ref().is_some_and(|owner| has_owner(pid, owner))
    }

    /// A session's number is its leader's pid, which another process can get once nobody is left in the session.
    fn session(&self) -> Option<i32> {
        let leader = self.leader.as_ref()?;
        let ours = stat(leader.pid).is_none_or(|stat| stat.start_ticks == leader.start_ticks);
        ours.then_some(leader.pid)
    }
}

fn has_owner(pid: i32, owner: &str) -> bool {
    let wanted = format!("{OWNER_VARIABLE}={owner}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|block| block.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}
