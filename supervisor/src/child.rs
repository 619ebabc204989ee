//! A child as the driver sees it, and the trait that makes one. Real children come from the guard or, with the weaker
//! promise, directly; tests give in-memory pipes.

use crate::machine::{Exit, StartFault};
use std::future::Future;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use turnhost_os::ProcessIdentity;

/// A spawn under way.
pub(crate) type SpawnFuture<'a> = Pin<Box<dyn Future<Output = Result<Child, SpawnError>> + 'a>>;

/// Makes children. Lives on the supervisor's own thread for as long as the supervisor.
pub(crate) trait Spawn {
    /// Starts one child. Cancelling the future leaves no process behind.
    fn spawn(&mut self, epoch: u64) -> SpawnFuture<'_>;
}

/// No child came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpawnError {
    /// Trying again cannot help (ENOENT, EACCES, bad cwd, E2BIG).
    pub permanent: bool,
    /// The kind and the words, with errno and advice.
    pub fault: StartFault,
}

/// A child's stdout or stderr, and how much of it is waiting: what a dead child left behind is read, and no more.
pub(crate) trait ChildOutput: AsyncRead + Unpin {
    /// Bytes that can be read without waiting (FIONREAD).
    fn available(&self) -> usize;
}

/// A running child. Dropping it closes every pipe and the control channel; the guard does the rest.
pub(crate) struct Child {
    pub stdin: Option<Box<dyn AsyncWrite + Unpin>>,
    pub stdout: Box<dyn ChildOutput>,
    pub stderr: Box<dyn ChildOutput>,
    pub control: Box<dyn ChildControl>,
    /// Ends after `Swept`.
    pub events: mpsc::Receiver<ChildEvent>,
    /// The process that the guard started: `pid` and `host_pid` in every output.
    pub identity: ProcessIdentity,
    /// The guard, if there is one.
    pub guard: Option<ProcessIdentity>,
}

/// Orders to a child. They never block and never fail visibly: what comes of them arrives as a [`ChildEvent`].
pub(crate) trait ChildControl {
    /// TERM to the tree, then CONT (a stopped process acts on TERM only then). The caller closes stdin itself.
    fn term(&mut self);
    /// End the tree now.
    fn kill(&mut self);
}

/// What happens to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChildEvent {
    /// The process ended. Exactly once.
    Exited(Exit),
    /// Its tree is gone but for these pids. Once, after `Exited`.
    Swept(Vec<i32>),
}
