//! Looks at a recorded host, and ends it if it is an orphan of ours. Blocks, for a bounded time.

use super::decide::{Facts, Found, Own, Parent};
use super::entry::Recorded;
use crate::environment::OWNER_VARIABLE;
use crate::spawn::strays::Strays;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use turnhost_os::identity::{ProcessHandle, Stat, machine_boot_id, stat};
use turnhost_os::{ProcessIdentity, tree};

/// A guard ends its tree within two seconds.
const GUARD_TIME: Duration = Duration::from_secs(4);
/// From TERM to KILL for a host without a guard.
const TERM_TIME: Duration = Duration::from_secs(3);
/// KILL takes effect at once but for a process in uninterruptible sleep.
const KILL_TIME: Duration = Duration::from_secs(2);
/// Between two looks at what is left.
const ROUND: Duration = Duration::from_millis(20);
/// Programs that adopt orphans: the parent of a process is no sign of an owner if it is one of these. The kernel does
/// not show who is a sub-reaper, so names have to do.
const ADOPTERS: &[&str] = &[
    "systemd",
    "init",
    "tini",
    "dumb-init",
    "docker-init",
    "catatonit",
    "conmon",
    "containerd-shim",
    "s6-svscan",
    "runsvdir",
    turnhost_os::GUARD_NAME,
    "compute-host",
];

/// A recorded host that was opened, so that nothing can take its place, and then looked at.
#[derive(Debug)]
pub(super) struct Suspect {
    host: Option<ProcessHandle>,
    guard: Option<ProcessHandle>,
    guard_identity: Option<ProcessIdentity>,
    pub facts: Facts,
}

impl Suspect {
    /// Opens first and looks second.
    pub(super) fn open(recorded: &Recorded) -> Self {
        let host = ProcessHandle::open(recorded.host_pid).ok();
        let guard = recorded.guard.as_ref().and_then(|guard| guard.open().ok());
        let supervisor_lives = recorded.supervisor.as_ref().is_some_and(ProcessIdentity::is_alive);
        let facts = Facts {
            own: own(),
            machine_boot_id: machine_boot_id(),
            host: host.as_ref().and_then(|host| found(host.pid())),
            guard_lives: guard.is_some(),
            supervisor_lives,
        };
        Self { host, guard, guard_identity: recorded.guard.clone(), facts }
    }

    /// Ends the host and what it started: through its guard if that lives, else TERM, KILL and a sweep. True once the
    /// host is dead.
    pub(super) fn end(self, guarded: bool) -> bool {
        let Some(host) = &self.host else { return true };
        let mut remains = Remains::of(host.pid(), self.guard_identity.as_ref());
        let guard = self.guard.as_ref().filter(|_| guarded);
        if let Some(guard) = guard {
            let _ = guard.signal(Signal::TERM);
            // A stopped guard keeps its TERM pending.
            let _ = guard.signal(Signal::CONT);
            if has_ended(guard, GUARD_TIME) && has_ended(host, KILL_TIME) {
                remains.kill();
                return true;
            }
            let _ = guard.signal(Signal::KILL);
        } else {
            let _ = host.signal(Signal::TERM);
            let _ = host.signal(Signal::CONT);
            has_ended(host, TERM_TIME);
        }
        // Its children name it as their parent only while it is not reaped.
        remains.find_descendants(host.pid());
        let _ = host.signal(Signal::KILL);
        let ended = has_ended(host, KILL_TIME);
        remains.kill();
        ended
    }
}

/// What a host leaves behind: its session, all that carry its owner marker, and what descended from it.
struct Remains {
    strays: Strays,
    descendants: Vec<ProcessIdentity>,
}

impl Remains {
    /// Looked for while the host lives, so that none of its numbers is anyone else's.
    fn of(host: i32, guard: Option<&ProcessIdentity>) -> Self {
        let session = stat(host).map(|stat| stat.session);
        let leader = if session == Some(host) {
            ProcessIdentity::of(host)
        } else {
            // Any other session is shared with strangers.
            guard.filter(|guard| session == Some(guard.pid)).cloned()
        };
        let mut remains = Self { strays: Strays { leader, owner: owner_of(host) }, descendants: Vec::new() };
        remains.find_descendants(host);
        remains
    }

    fn find_descendants(&mut self, host: i32) {
        self.descendants.extend(tree::descendants(host).into_iter().filter_map(ProcessIdentity::of));
    }

    /// Until nothing is left, or it has taken too long.
    fn kill(&self) {
        let deadline = Instant::now() + KILL_TIME;
        loop {
            let mut left = !self.strays.signal(Signal::KILL).is_empty();
            for process in &self.descendants {
                if let Ok(process) = process.open() {
                    left |= process.signal(Signal::KILL).is_ok();
                }
            }
            if !left || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(ROUND);
        }
    }
}

fn owner_of(host: i32) -> Option<String> {
    let block = std::fs::read(format!("/proc/{host}/environ")).ok()?;
    let prefix = format!("{OWNER_VARIABLE}=");
    let value = block.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()))?;
    String::from_utf8(value.to_vec()).ok().filter(|owner| !owner.is_empty())
}

/// True if the process has ended within the time; a zombie has.
fn has_ended(process: &ProcessHandle, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let descriptor = process.as_fd();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

/// A leader outside our pid namespace reads as 0, which `rustix` takes for impossible.
fn own() -> Own {
    Own {
        pid: nix::unistd::getpid().as_raw(),
        parent: nix::unistd::getppid().as_raw(),
        group: nix::unistd::getpgrp().as_raw(),
        session: nix::unistd::getsid(None).map_or(0, nix::unistd::Pid::as_raw),
    }
}

fn found(pid: i32) -> Option<Found> {
    let Stat { start_ticks, ppid, .. } = stat(pid)?;
    Some(Found {
        dead: stat(pid)?.is_dead(),
        start_ticks,
        started_at: seconds_of_boot() + start_ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        command_line: command_line(pid),
        parent: parent(ppid, pid),
    })
}

/// When the machine was booted, in seconds since 1970.
fn seconds_of_boot() -> f64 {
    std::fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
            line.trim().parse().ok()
        })
        .unwrap_or_default()
}

fn command_line(pid: i32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn parent(pid: i32, host: i32) -> Parent {
    let name = turnhost_os::identity::name(pid).unwrap_or_default();
    Parent { pid, adopts_orphans: ADOPTERS.contains(&name.as_str()), holds_pipes: holds_pipes(pid, host) }
}

/// Whoever started a host holds the other end of its stdin and stdout; who adopted it does not.
fn holds_pipes(parent: i32, host: i32) -> Option<bool> {
    let pipe = |descriptor: i32| {
        let target = std::fs::read_link(format!("/proc/{host}/fd/{descriptor}")).ok()?;
        let is_pipe =
            target.to_string_lossy().starts_with("pipe:") || target.to_string_lossy().starts_with("socket:");
        is_pipe.then_some(target)
    };
    let pipes: Vec<_> = [0, 1].into_iter().filter_map(pipe).collect();
    if pipes.is_empty() {
        return None;
    }
    let mut descriptors = std::fs::read_dir(format!("/proc/{parent}/fd")).ok()?;
    Some(descriptors.any(|entry| {
        entry.and_then(|entry| std::fs::read_link(entry.path())).is_ok_and(|target| pipes.contains(&target))
    }))
}
