//! Makes hosts: under a guard, or directly with the weaker promise.

mod attendant;
mod control;
mod direct;
mod failure;
mod guarded;
pub(crate) mod strays;
#[cfg(test)]
pub(crate) mod tests;
mod tree;

use crate::child::{ChildControl, ChildOutput, Spawn, SpawnError};
use crate::config::{Config, Guard};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// What is started, complete: nothing of the embedder's process is added to it later.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// Program and arguments; a program without a slash is looked up in the host's own `PATH`.
    pub argv: Vec<OsString>,
    /// Working directory; `None` = the embedder's at the time of the spawn.
    pub cwd: Option<PathBuf>,
    /// The environment from [`crate::environment::host_environment`].
    pub environment: Vec<(OsString, OsString)>,
}

/// The spawn that a configuration asks for. `environment` is that of the host.
pub(crate) fn from_config(config: &Config, environment: Vec<(OsString, OsString)>) -> Box<dyn Spawn + Send> {
    let launch = Launch { argv: config.argv.clone(), cwd: config.cwd.clone(), environment };
    match &config.guard {
        Guard::CurrentExe => Box::new(guarded::GuardSpawn::new(None, launch)),
        Guard::Program(path) => Box::new(guarded::GuardSpawn::new(Some(path.clone()), launch)),
        Guard::None => Box::new(direct::DirectSpawn::new(launch)),
    }
}

impl Launch {
    /// The guard works in `/`, so a relative directory is resolved here.
    fn absolute_cwd(&self) -> Result<PathBuf, SpawnError> {
        let absolute = match &self.cwd {
            Some(path) => std::path::absolute(path),
            None => std::env::current_dir(),
        };
        absolute.map_err(|error| {
            failure::unusable(format!(
                "the working directory of this program is gone ({error}); name an existing one for the host"
            ))
        })
    }
}

/// Orders so far. A state and not a queue: it cannot overflow, and an order that was given twice is one order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Orders {
    /// How many times TERM was asked for.
    terms: u32,
    /// The tree is to be ended.
    kill: bool,
}

/// The owner's end of the orders. Dropping it is the order to end everything.
struct OrderSender(watch::Sender<Orders>);

impl ChildControl for OrderSender {
    fn term(&mut self) {
        self.0.send_modify(|orders| orders.terms = orders.terms.wrapping_add(1));
    }

    fn kill(&mut self) {
        self.0.send_modify(|orders| orders.kill = true);
    }
}

/// Our ends of the host's stdin, stdout and stderr, and the host's. The default size: a larger pipe only adds latency.
fn host_pipes() -> io::Result<([OwnedFd; 3], [OwnedFd; 3])> {
    let (host_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, host_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, host_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok(([stdin, stdout, stderr], [host_stdin, host_stdout, host_stderr]))
}

fn input(stdin: OwnedFd) -> io::Result<Box<dyn AsyncWrite + Unpin>> {
    Ok(Box::new(pipe::Sender::from_owned_fd(stdin)?))
}

/// The read end of one of the host's pipes.
struct Output(pipe::Receiver);

impl Output {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        pipe::Receiver::from_owned_fd(fd).map(Self)
    }
}

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl ChildOutput for Output {
    fn available(&self) -> usize {
        turnhost_os::fd::bytes_available(&self.0)
    }
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(nix::libc::EIO)
}
