//! Hosts without a guard: the weaker promise.
//!
//! The host leads a session of its own. Its group is killed when it is told to, when it has died, and when its owner is
//! dropped; what left the group is looked for by session and by owner marker. But nobody acts when the supervisor
//! itself dies: then the end of its stdin is all that a host learns, and a detached process that has cleaned its
//! environment is never found.

use super::failure::{Tried, refused, unusable};
use super::strays::Strays;
use super::tree::{ROUND, Role, Tree};
use super::{Launch, OrderSender, Orders, Output, errno_of, host_pipes};
use crate::child::{Child, ChildEvent, Spawn, SpawnError, SpawnFuture};
use crate::environment::OWNER_VARIABLE;
use crate::guard::protocol::Stage;
use crate::machine::Exit;
use crate::sys;
use nix::libc;
use rustix::process::Signal;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use turnhost_os::identity::{ProcessHandle, ProcessIdentity, machine_boot_id, stat};

/// KILL takes effect at once but for a process in uninterruptible sleep.
const KILL_TIME: Duration = Duration::from_secs(2);

/// Starts hosts as children of this process.
#[derive(Debug)]
pub(crate) struct DirectSpawn {
    launch: Launch,
}

impl DirectSpawn {
    pub(crate) fn new(launch: Launch) -> Self {
        Self { launch }
    }
}

impl Spawn for DirectSpawn {
    fn spawn(&mut self, _epoch: u64) -> SpawnFuture<'_> {
        // Nothing is waited for, so there is no stage at which it could be cancelled.
        Box::pin(std::future::ready(start(&self.launch)))
    }
}

fn start(launch: &Launch) -> Result<Child, SpawnError> {
    let owner = uuid::Uuid::new_v4().simple().to_string();
    let cwd = launch.absolute_cwd()?;
    let descriptors = |error: std::io::Error| refused(Tried::Descriptors, errno_of(&error));
    let (pipes, host_ends) = host_pipes().map_err(descriptors)?;
    let [stdin, stdout, stderr] = pipes;
    let stdin = super::input(stdin).map_err(descriptors)?;
    let stdout = Output::new(stdout).map_err(descriptors)?;
    let stderr = Output::new(stderr).map_err(descriptors)?;
    let (tree, identity) = start_host(launch, &cwd, &owner, host_ends)?;
    let host_ended = ProcessHandle::open(identity.pid)
        .and_then(|handle| sys::watch(handle.into_fd(), Interest::READABLE))
        .map_err(descriptors)?;
    let (orders, ordered) = watch::channel(Orders::default());
    let (tell, events) = mpsc::channel(4);
    tokio::spawn(Attendant { host_ended, tree, ordered, tell }.run());
    Ok(Child {
        stdin: Some(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(stderr),
        control: Box::new(OrderSender(orders)),
        events,
        identity,
        guard: None,
    })
}

#[expect(clippy::disallowed_methods, reason = "the one place where a host is started without a guard")]
fn start_host(
    launch: &Launch,
    cwd: &Path,
    owner: &str,
    [stdin, stdout, stderr]: [OwnedFd; 3],
) -> Result<(Tree, ProcessIdentity), SpawnError> {
    let Some((program, arguments)) = launch.argv.split_first() else {
        return Err(unusable("no program was given for the host; name one in argv"));
    };
    let failed = |stage, errno| refused(Tried::Host { stage, program: Path::new(program), cwd }, errno);
    // std does not say whether the directory or the program was missing.
    let entered = rustix::fs::access(cwd, rustix::fs::Access::EXEC_OK).map_err(|errno| errno.raw_os_error());
    entered.map_err(|errno| failed(Stage::Chdir, errno))?;
    if !cwd.is_dir() {
        return Err(failed(Stage::Chdir, libc::ENOTDIR));
    }
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(cwd)
        .env_clear()
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .env(OWNER_VARIABLE, owner)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr));
    sys::isolate(&mut command);
    let mut child = command.spawn().map_err(|error| failed(Stage::Exec, errno_of(&error)))?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    let start_ticks = stat(pid).map(|stat| stat.start_ticks).unwrap_or_default();
    let identity = ProcessIdentity { pid, start_ticks, machine_boot_id: machine_boot_id() };
    // The child is ours and not reaped, so the pid is its own; a dead one still has a pidfd.
    match ProcessHandle::open(pid) {
        Ok(handle) => {
            let strays = Strays { leader: Some(identity.clone()), owner: Some(owner.to_owned()) };
            Ok((Tree::new(handle.into_fd(), Role::Host, strays), identity))
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(refused(Tried::Descriptors, errno_of(&error)))
        }
    }
}

/// Attends one host.
struct Attendant {
    host_ended: AsyncFd<OwnedFd>,
    tree: Tree,
    ordered: watch::Receiver<Orders>,
    tell: mpsc::Sender<ChildEvent>,
}

impl Attendant {
    async fn run(mut self) {
        let mut sent = Orders::default();
        loop {
            tokio::select! {
                _ = self.host_ended.readable() => break,
                changed = self.ordered.changed() => {
                    if changed.is_err() {
                        // The tree, dropped with this task, kills and reaps.
                        return;
                    }
                    let orders = *self.ordered.borrow_and_update();
                    if orders.terms != sent.terms {
                        self.tree.signal_group(Signal::TERM);
                        self.tree.signal_group(Signal::CONT);
                    }
                    if orders.kill {
                        self.tree.signal_group(Signal::KILL);
                    }
                    sent = orders;
                }
            }
        }
        // Reaped last: until then the numbers of its group and session cannot be anyone else's.
        let exit = self.tree.child_exit().unwrap_or(Exit::Unknown);
        let _ = self.tell.try_send(ChildEvent::Exited(exit));
        self.tree.signal_group(Signal::KILL);
        let deadline = Instant::now() + KILL_TIME;
        while !self.tree.signal_strays(Signal::KILL).is_empty() && Instant::now() < deadline {
            tokio::time::sleep(ROUND).await;
        }
        let _ = self.tell.try_send(ChildEvent::Swept(self.tree.survivors()));
        self.tree.reap();
    }
}
