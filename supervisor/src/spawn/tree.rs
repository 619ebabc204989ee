//! The processes of one spawn, as its owner holds them: nothing of them outlives the owner for long, and no zombie
//! stays, whether or not a runtime is left.

use super::strays::Strays;
use crate::machine::Exit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// How long a guard whose owner is gone may take; it needs two seconds.
const GUARD_TIME: Duration = Duration::from_secs(5);
/// KILL takes effect at once but for a process in uninterruptible sleep.
const KILL_TIME: Duration = Duration::from_secs(2);
/// Between two looks at what is left.
pub(super) const ROUND: Duration = Duration::from_millis(20);

/// Our child process (the guard, or the host where there is none) and what hangs on it.
///
/// Dropped before the end was seen, it leaves a detached thread behind, `turnhost-reaper`, that waits for our child,
/// ends what a dead guard left, and reaps. A thread, because a task would die with its runtime, and because the child
/// is ours to reap: nobody else in the embedder's process can be asked to. It lives for two seconds as a rule.
#[derive(Debug)]
pub(super) struct Tree {
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    /// Our child.
    child: OwnedFd,
    role: Role,
    /// The host, once a guard has named it.
    host: Option<OwnedFd>,
    strays: Strays,
}

/// What our child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It ends the tree when its owner is gone.
    Guard,
    /// It is the host itself: its group is killed with the owner.
    Host,
}

impl Tree {
    pub(super) fn new(child: OwnedFd, role: Role, strays: Strays) -> Self {
        Self { parts: Some(Parts { child, role, host: None, strays }) }
    }

    /// Names the host that the guard started.
    pub(super) fn set_host(&mut self, host: OwnedFd) {
        if let Some(parts) = &mut self.parts {
            parts.host = Some(host);
        }
    }

    /// A signal to our child.
    pub(super) fn signal_child(&self, signal: Signal) {
        if let Some(parts) = &self.parts {
            let _ = pidfd_send_signal(&parts.child, signal);
        }
    }

    /// A signal to the host that the guard started.
    pub(super) fn signal_host(&self, signal: Signal) {
        if let Some(host) = self.parts.as_ref().and_then(|parts| parts.host.as_ref()) {
            let _ = pidfd_send_signal(host, signal);
        }
    }

    /// A signal to the group that our child leads, while it is not reaped and the number therefore its own.
    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(parts) = &self.parts {
            parts.signal_group(signal);
        }
    }

    /// A signal to all that bear the marks of this tree; those found.
    pub(super) fn signal_strays(&self, signal: Signal) -> Vec<i32> {
        self.parts.as_ref().map(|parts| parts.strays.signal(signal)).unwrap_or_default()
    }

    /// Those of them that live.
    pub(super) fn survivors(&self) -> Vec<i32> {
        self.parts.as_ref().map(|parts| parts.strays.find()).unwrap_or_default()
    }

    /// How our child ended, left as a zombie so that its pid stays its own; `None` while it lives.
    pub(super) fn child_exit(&self) -> Option<Exit> {
        self.parts.as_ref().and_then(|parts| child_exit(&parts.child, WaitIdOptions::NOWAIT))
    }

    /// Reaps our child, which has ended. Nothing is left to do on drop.
    pub(super) fn reap(&mut self) {
        if let Some(parts) = self.parts.take() {
            let _ = child_exit(&parts.child, WaitIdOptions::empty());
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        match parts.role {
            // A stopped guard would never see that its owner is gone.
            Role::Guard => {
                let _ = pidfd_send_signal(&parts.child, Signal::CONT);
            }
            Role::Host => parts.signal_group(Signal::KILL),
        }
        // The parts go by a channel: a thread that cannot be started must not take them with it.
        let (hand, take) = std::sync::mpsc::sync_channel::<Parts>(1);
        let thread = std::thread::Builder::new().name("turnhost-reaper".to_owned()).stack_size(128 * 1024);
        let started = thread.spawn(move || {
            if let Ok(parts) = take.recv() {
                parts.see_out();
            }
        });
        match started {
            Ok(_detached) => {
                let _ = hand.send(parts);
            }
            // At the limit of threads the owner has to wait itself.
            Err(_) => parts.see_out(),
        }
    }
}

impl Parts {
    fn signal_group(&self, signal: Signal) {
        let group = self.strays.leader.as_ref().and_then(|leader| rustix::process::Pid::from_raw(leader.pid));
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    /// Blocks until our child and what it left behind have ended.
    fn see_out(self) {
        if !wait_readable(&self.child, GUARD_TIME) {
            let _ = pidfd_send_signal(&self.child, Signal::KILL);
            wait_readable(&self.child, KILL_TIME);
        }
        let exit = child_exit(&self.child, WaitIdOptions::NOWAIT);
        let orderly = self.role == Role::Guard && matches!(exit, Some(Exit::Code(_)));
        if !orderly {
            if let Some(host) = &self.host {
                let _ = pidfd_send_signal(host, Signal::KILL);
            }
            let deadline = Instant::now() + KILL_TIME;
            while !self.strays.signal(Signal::KILL).is_empty() && Instant::now() < deadline {
                std::thread::sleep(ROUND);
            }
        }
        // In uninterruptible sleep it may take its time; the thread has nothing else to do.
        while let Err(rustix::io::Errno::INTR) =
            waitid(WaitId::PidFd(self.child.as_fd()), WaitIdOptions::EXITED)
        {}
    }
}

fn wait_readable(pidfd: &OwnedFd, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

/// `None` while the child lives. Someone else in the process may have reaped it, or SIGCHLD is ignored: then how it
/// ended is unknown.
fn child_exit(child: &OwnedFd, more: WaitIdOptions) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | more;
    loop {
        match waitid(WaitId::PidFd(child.as_fd()), options) {
            Ok(None) => return None,
            Ok(Some(status)) => {
                return Some(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => Exit::Unknown,
                });
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Some(Exit::Unknown),
        }
    }
}
