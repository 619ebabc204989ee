//! Hosts under a guard: the start, then one task per host that passes orders on and tells what happened.

use super::attendant::Attendant;
use super::control::{Control, Received};
use super::failure::{Silence, Tried, guard_silent, refused, unusable};
use super::strays::Strays;
use super::tree::{Role, Tree};
use super::{Launch, OrderSender, Orders, Output, errno_of, host_pipes};
use crate::child::{Child, Spawn, SpawnError, SpawnFuture};
use crate::environment::{GUARD_VARIABLE, OWNER_VARIABLE};
use crate::guard::protocol::{FromGuard, HostImage, MAX_LAUNCH, MAX_MESSAGE, Stage, ToGuard, VERSION};
use crate::machine::Exit;
use crate::sys;
use nix::libc;
use rustix::process::Signal;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use turnhost_os::identity::{ProcessHandle, ProcessIdentity, machine_boot_id};

/// From the start of a guard to its `ready`.
const READY_TIME: Duration = Duration::from_secs(5);
/// From the launch to `started`: exec waits for file systems.
const START_TIME: Duration = Duration::from_secs(30);
/// Starts hosts under a guard of their own.
#[derive(Debug)]
pub(crate) struct GuardSpawn {
    /// `None` = this very program, even if its file was replaced or removed since it started.
    program: Option<PathBuf>,
    launch: Launch,
}

impl GuardSpawn {
    pub(crate) fn new(program: Option<PathBuf>, launch: Launch) -> Self {
        Self { program, launch }
    }
}

impl Spawn for GuardSpawn {
    fn spawn(&mut self, _epoch: u64) -> SpawnFuture<'_> {
        Box::pin(start(self.program.as_deref(), &self.launch))
    }
}

async fn start(program: Option<&Path>, launch: &Launch) -> Result<Child, SpawnError> {
    if std::env::var_os(GUARD_VARIABLE).is_some() {
        // An embedder whose main does not call `guard_main` would start itself for ever.
        return Err(unusable(format!(
            "{GUARD_VARIABLE} is set, so this process was started as a guard but did not become one; call \
             turnhost_supervisor::guard_main() before anything else in main"
        )));
    }
    let program = program.unwrap_or_else(|| Path::new("/proc/self/exe"));
    let owner = uuid::Uuid::new_v4().simple().to_string();
    let cwd = launch.absolute_cwd()?;
    let image = host_image(launch, &cwd, &owner)?;
    let descriptors = |error: std::io::Error| refused(Tried::Descriptors, errno_of(&error));
    let (pipes, host_ends) = host_pipes().map_err(descriptors)?;
    let (mut control, guard_end) = Control::pair().map_err(descriptors)?;
    let (mut tree, guard) = start_guard(program, guard_end, &owner)?;
    let guard_pidfd = watch_pidfd(&guard).map_err(descriptors)?;

    match timeout(READY_TIME, await_ready(&mut control, &guard_pidfd, &tree)).await {
        Ok(Ok(())) => {}
        Ok(Err(silence)) => return Err(guard_silent(program, silence)),
        Err(_) => {
            tree.signal_child(Signal::KILL);
            return Err(guard_silent(program, Silence::Timeout(READY_TIME.as_secs())));
        }
    }
    let started = timeout(START_TIME, async {
        match hand_over(&control, &image, host_ends).await {
            Ok(()) => control.receive().await.map(Start::from),
            // A guard that refused the launch has said why before it left.
            Err(error) => control.receive_now().map(Start::from).ok_or(error),
        }
    });
    let host_program = launch.argv.first().map_or_else(|| Path::new(""), Path::new);
    let failed = |stage, errno| Err(refused(Tried::Host { stage, program: host_program, cwd: &cwd }, errno));
    let (identity, host_pidfd) = match started.await {
        Ok(Ok(Start::Started(identity, pidfd))) => (identity, pidfd),
        Ok(Ok(Start::Failed(stage, errno))) => return failed(stage, errno),
        Ok(Ok(Start::Nonsense)) => return Err(guard_silent(program, Silence::Nonsense)),
        Ok(Err(_)) => {
            let _ = timeout(READY_TIME, guard_pidfd.readable()).await;
            let ended = tree.child_exit().unwrap_or(Exit::Unknown);
            return Err(guard_silent(program, Silence::Ended(ended)));
        }
        Err(_) => return failed(Stage::Exec, libc::ETIMEDOUT),
    };
    tree.set_host(host_pidfd.try_clone().map_err(descriptors)?);
    let host_ended = sys::watch(host_pidfd, Interest::READABLE).map_err(descriptors)?;

    let (orders, ordered) = watch::channel(Orders::default());
    let (tell, events) = mpsc::channel(4);
    tokio::spawn(Attendant::new(control, guard_pidfd, host_ended, tree, ordered, tell).run());
    let [stdin, stdout, stderr] = pipes;
    Ok(Child {
        stdin: Some(super::input(stdin).map_err(descriptors)?),
        stdout: Box::new(Output::new(stdout).map_err(descriptors)?),
        stderr: Box::new(Output::new(stderr).map_err(descriptors)?),
        control: Box::new(OrderSender(orders)),
        events,
        identity,
        guard: Some(guard),
    })
}

fn host_image(launch: &Launch, cwd: &Path, owner: &str) -> Result<HostImage, SpawnError> {
    let text = |bytes: Vec<u8>| {
        CString::new(bytes).map_err(|error| {
            let shown =
                String::from_utf8_lossy(error.into_vec().as_slice()).chars().take(40).collect::<String>();
            unusable(format!(
                "an argument, variable or path of the host holds a NUL byte: {shown:?}…; remove it"
            ))
        })
    };
    if launch.argv.is_empty() {
        return Err(unusable("no program was given for the host; name one in argv"));
    }
    let marker = (OsString::from(OWNER_VARIABLE), OsString::from(owner));
    let image = HostImage {
        cwd: text(cwd.as_os_str().as_bytes().to_vec())?,
        argv: launch.argv.iter().map(|word| text(word.clone().into_vec())).collect::<Result<_, _>>()?,
        environment: launch
            .environment
            .iter()
            .chain([&marker])
            .map(|(name, value)| text([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<_, _>>()?,
    };
    Ok(image)
}

/// Starts the guard with posix_spawn: a fork of a large embedder would take twenty times as long.
#[expect(clippy::disallowed_methods, reason = "the one place where a guard is started")]
fn start_guard(program: &Path, socket: OwnedFd, owner: &str) -> Result<(Tree, ProcessIdentity), SpawnError> {
    let refused = |error: std::io::Error| refused(Tried::Guard(program), errno_of(&error));
    // What people see in a list of processes: the embedder's own name, then `guard`.
    let name = std::env::args_os().next().unwrap_or_else(|| program.as_os_str().to_owned());
    let child = Command::new(program)
        .arg0(name)
        .arg("guard")
        .env(GUARD_VARIABLE, VERSION)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(refused)?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    // The child is ours and not reaped, so the pid is its own; a dead one still has a pidfd.
    let pidfd = match ProcessHandle::open(pid) {
        Ok(handle) => handle.into_fd(),
        Err(error) => {
            // Without a pidfd there is only the pid; the socket's end, dropped with the caller, ends the guard.
            reap_by_pid(child);
            return Err(refused(error));
        }
    };
    let start_ticks = turnhost_os::identity::stat(pid).map(|stat| stat.start_ticks).unwrap_or_default();
    let identity = ProcessIdentity { pid, start_ticks, machine_boot_id: machine_boot_id() };
    let strays = Strays { leader: Some(identity.clone()), owner: Some(owner.to_owned()) };
    Ok((Tree::new(pidfd, Role::Guard, strays), identity))
}

/// Kills and reaps a guard that has no host yet.
fn reap_by_pid(mut child: std::process::Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// A second descriptor of the guard for the reactor.
fn watch_pidfd(guard: &ProcessIdentity) -> std::io::Result<AsyncFd<OwnedFd>> {
    sys::watch(ProcessHandle::open(guard.pid)?.into_fd(), Interest::READABLE)
}

async fn await_ready(
    control: &mut Control,
    guard_pidfd: &AsyncFd<OwnedFd>,
    tree: &Tree,
) -> Result<(), Silence> {
    let received = tokio::select! {
        received = control.receive() => received,
        _ = guard_pidfd.readable() => control.receive_now().ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into()),
    };
    match received {
        Ok(Received { message: Some(FromGuard::Ready { version }), .. }) if version == VERSION => Ok(()),
        Ok(_) => Err(Silence::Nonsense),
        Err(_) => {
            // The socket closes a moment before the process is dead.
            let _ = guard_pidfd.readable().await;
            Err(Silence::Ended(tree.child_exit().unwrap_or(Exit::Unknown)))
        }
    }
}

async fn hand_over(control: &Control, image: &HostImage, host_ends: [OwnedFd; 3]) -> std::io::Result<()> {
    let bytes = image.encode();
    let total = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let descriptors = host_ends.each_ref().map(|end| end.as_fd());
    control.send(&ToGuard::Launch { bytes: total }, &descriptors).await?;
    if bytes.len() > MAX_LAUNCH {
        // The guard refuses it by the number alone.
        return Ok(());
    }
    for chunk in bytes.chunks(MAX_MESSAGE - 1) {
        control.send(&ToGuard::Chunk(chunk.to_vec()), &[]).await?;
    }
    Ok(())
}

enum Start {
    Started(ProcessIdentity, OwnedFd),
    Failed(Stage, i32),
    Nonsense,
}

impl From<Received> for Start {
    fn from(received: Received) -> Self {
        match (received.message, received.descriptor) {
            (Some(FromGuard::Started { pid, start_ticks }), Some(pidfd)) => {
                Self::Started(ProcessIdentity { pid, start_ticks, machine_boot_id: machine_boot_id() }, pidfd)
            }
            (Some(FromGuard::SpawnFailed { stage, errno }), _) => Self::Failed(stage, errno),
            _ => Self::Nonsense,
        }
    }
}
