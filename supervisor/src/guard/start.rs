//! Forks the host: what happens between fork and exec, and what becomes of it.

use super::protocol::{HostImage, Stage};
use crate::sys::{self, PreparedExec};
use nix::errno::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::ffi::CString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use turnhost_os::identity::stat;

/// The host's three descriptors, in order.
pub(super) type Stdio = [OwnedFd; 3];

/// A host between fork and exec.
#[derive(Debug)]
pub(super) struct Starting {
    pid: i32,
    /// Closed by the exec; before that it says why there was none.
    verdict: std::fs::File,
}

/// A host that runs.
#[derive(Debug)]
pub(super) struct Started {
    pub pid: i32,
    pub start_ticks: u64,
    pub pidfd: OwnedFd,
}

/// A start that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartFailed {
    pub stage: Stage,
    pub errno: i32,
}

impl StartFailed {
    pub(super) fn new(stage: Stage, errno: i32) -> Self {
        Self { stage, errno }
    }
}

/// Forks. The child goes on to exec; wait for its verdict with [`Starting::verdict`].
pub(super) fn start(image: HostImage, stdio: Stdio) -> Result<Starting, StartFailed> {
    let fork_failed = |error: io::Error| StartFailed::new(Stage::Fork, errno_of(&error));
    let (verdict, report) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)
            .map_err(|errno| fork_failed(errno.into()))?;
    let candidates = image.candidates();
    let cwd = image.cwd;
    let exec = PreparedExec::new(candidates, image.argv, image.environment);
    let guard = rustix::process::getpid();
    match sys::fork().map_err(fork_failed)? {
        Some(pid) => Ok(Starting { pid, verdict: verdict.into() }),
        None => {
            let failed = become_host(guard, &cwd, &stdio, &exec);
            let mut message = [failed.stage.code(), 0, 0, 0, 0];
            message[1..].copy_from_slice(&failed.errno.to_le_bytes());
            let _ = rustix::io::write(&report, &message);
            sys::exit_now(127)
        }
    }
}

/// Runs in the child: system calls only. Returns if it failed.
fn become_host(guard: Pid, cwd: &CString, stdio: &Stdio, exec: &PreparedExec) -> StartFailed {
    if let Err(error) = set_up(guard, stdio) {
        return StartFailed::new(Stage::Setup, error.raw_os_error());
    }
    if let Err(errno) = rustix::process::chdir(cwd.as_c_str()) {
        return StartFailed::new(Stage::Chdir, errno.raw_os_error());
    }
    StartFailed::new(Stage::Exec, exec.exec() as i32)
}

fn set_up(guard: Pid, [stdin, stdout, stderr]: &Stdio) -> rustix::io::Result<()> {
    // A group of its own, so that a `kill 0` in the host does not reach the guard.
    rustix::process::setpgid(None, None)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The guard may have died before that took effect.
    if rustix::process::getppid() != Some(guard) {
        return Err(rustix::io::Errno::SRCH);
    }
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    // Every other descriptor here is close-on-exec. The mask goes last: a pending TERM would end this child.
    sys::reset_signals();
    Ok(())
}

impl Starting {
    /// Readable once [`Starting::verdict`] knows more.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.verdict.as_fd()
    }

    /// Whether the exec took place; `None` if that is not known yet. Do not reap the host before.
    pub(super) fn verdict(&mut self) -> Option<Result<Started, StartFailed>> {
        let mut message = [0_u8; 5];
        let read = match self.verdict.read(&mut message) {
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return None;
            }
            Err(error) => return Some(Err(StartFailed::new(Stage::Fork, errno_of(&error)))),
        };
        if read == 0 {
            return Some(self.started());
        }
        let [stage, errno @ ..] = message;
        let stage = Stage::from_code(stage).unwrap_or(Stage::Exec);
        Some(Err(StartFailed::new(stage, i32::from_le_bytes(errno))))
    }

    /// The host is our child and not reaped, so its pid is its own even if it is dead already.
    fn started(&self) -> Result<Started, StartFailed> {
        let failed = |errno: Errno| StartFailed::new(Stage::Setup, errno as i32);
        let pid = Pid::from_raw(self.pid).ok_or_else(|| failed(Errno::ESRCH))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|errno| StartFailed::new(Stage::Setup, errno.raw_os_error()))?;
        let stat = stat(self.pid).ok_or_else(|| failed(Errno::ENOENT))?;
        Ok(Started { pid: self.pid, start_ticks: stat.start_ticks, pidfd })
    }
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::EIO as i32)
}
