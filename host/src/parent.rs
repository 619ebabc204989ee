//! Sees that the parent is gone: at once through a pidfd, and by a look at the parent's pid each second.
//!
//! The parent is compared with the one at start, so a parent that is pid 1 (a container) is fine.

use crate::event::Outside;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use turnhost_os::identity::ProcessHandle;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The parent as it was at start.
pub(crate) struct ParentGuard<F> {
    old: i32,
    pidfd: Option<AsyncFd<OwnedFd>>,
    current: F,
}

/// The guard over this process's own parent. Inside a runtime.
pub(crate) fn of_this_process() -> ParentGuard<impl Fn() -> i32> {
    let current = || rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let old = current();
    // No handle to init, and none on an old kernel: then the look each second has to do.
    let pidfd = ProcessHandle::open(old).ok().and_then(|handle| crate::sys::watch(handle.into_fd()).ok());
    ParentGuard { old, pidfd, current }
}

/// The process guard above this host, if it has one.
///
/// A guard that is stopped when its supervisor dies sees nothing; whoever notices the death continues it.
pub(crate) fn process_guard() -> Option<ProcessHandle> {
    let parent = rustix::process::getppid()?.as_raw_nonzero().get();
    let handle = ProcessHandle::open(parent).ok()?;
    // Named after it was opened: a name that fits belongs to the process that is held.
    (turnhost_os::identity::name(parent).as_deref() == Some(turnhost_os::GUARD_NAME)).then_some(handle)
}

impl<F: Fn() -> i32> ParentGuard<F> {
    /// A guard that compares `current` with `old`.
    #[cfg(test)]
    pub(crate) fn comparing(old: i32, current: F) -> Self {
        Self { old, pidfd: None, current }
    }

    /// Tells the loop once the parent is gone.
    pub(crate) async fn forward(self, to: mpsc::Sender<Outside>) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            let ended = tokio::select! {
                ended = readable(self.pidfd.as_ref()) => ended,
                _ = looks.tick() => false,
            };
            let new = (self.current)();
            if ended || new != self.old {
                // The loop is gone before us only if it ended already.
                let _ = to.send(Outside::ParentGone { old: self.old, new }).await;
                return;
            }
        }
    }
}

async fn readable(pidfd: Option<&AsyncFd<OwnedFd>>) -> bool {
    match pidfd {
        Some(pidfd) => match pidfd.readable().await {
            Ok(_) => true,
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
