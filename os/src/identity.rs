//! Who a process is, so that a signal never reaches another one that got the same pid.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;

/// A process beyond doubt: pid, start time in kernel ticks, and the boot in which both hold.
///
/// Start times in seconds (as `sysinfo` has them) do not tell two processes apart that started 40 ms apart; ticks do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The pid.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub machine_boot_id: String,
}

/// What `/proc/<pid>/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The state letter: `R`, `S`, `D`, `T`, `Z`, …
    pub state: u8,
    /// Parent.
    pub ppid: i32,
    /// Process group.
    pub pgrp: i32,
    /// Session.
    pub session: i32,
    /// Start time in ticks since boot.
    pub start_ticks: u64,
}

impl Stat {
    /// Dead and not reaped, or dying.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Reads `/proc/<pid>/stat`. `None` if there is no such process.
pub fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

/// The command name stands in parentheses and may hold any byte, so the fields are counted after the last `)`.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let after = text.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(text.get(after..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let ppid = fields.next()?.parse().ok()?;
    let pgrp = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // Fields 7 to 21 lie between `session` (6) and `starttime` (22).
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(Stat { state, ppid, pgrp, session, start_ticks })
}

/// The name of a process, as `/proc/<pid>/comm` has it: 15 bytes at most, and whatever the process made of it.
/// `None` if there is no such process.
pub fn name(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Names this boot of the machine; "" if the kernel does not say.
pub fn machine_boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

impl ProcessIdentity {
    /// The identity of a process that lives now. `None` if it does not, a zombie included.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = stat(pid).filter(|stat| !stat.is_dead())?;
        Some(Self { pid, start_ticks: stat.start_ticks, machine_boot_id: machine_boot_id() })
    }

    /// True if this very process lives; a zombie does not.
    pub fn is_alive(&self) -> bool {
        self.machine_boot_id == machine_boot_id()
            && stat(self.pid).is_some_and(|stat| !stat.is_dead() && stat.start_ticks == self.start_ticks)
    }

    /// Opens a handle to this very process: the handle first, then the check, so that no reuse fits in between.
    ///
    /// # Errors
    /// `NotFound` if it is gone or the pid names another process now; else what the kernel says.
    pub fn open(&self) -> io::Result<ProcessHandle> {
        let handle = ProcessHandle::open(self.pid)?;
        if self.is_alive() { Ok(handle) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// A pidfd: names one process for as long as it is held, reaped or not.
#[derive(Debug)]
pub struct ProcessHandle {
    fd: OwnedFd,
    pid: i32,
}

impl ProcessHandle {
    /// Opens whatever process has this pid now.
    ///
    /// # Errors
    /// `InvalidInput` for pids below 2, which name groups, everyone or init; `NotFound` if there is none.
    pub fn open(pid: i32) -> io::Result<Self> {
        // Checked first: `from_raw` panics on a negative number.
        let named = if pid > 1 { Pid::from_raw(pid) } else { None }.ok_or(io::ErrorKind::InvalidInput)?;
        let fd = pidfd_open(named, PidfdFlags::empty())?;
        Ok(Self { fd, pid })
    }

    /// The pid it was opened with.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal to exactly this process.
    ///
    /// # Errors
    /// `NotFound` once it is reaped, `PermissionDenied` for a setuid process.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, signal)?)
    }

    /// The descriptor; readable once the process has ended.
    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }

    /// The descriptor, given away (for a reactor).
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Process, eventually};

    #[test]
    fn a_command_name_may_hold_spaces_parentheses_and_newlines() {
        let tail = "S 41 42 43 34816 42 4194304 1 2 3 4 5 6 7 8 20 0 1 0 69376 10 11";
        for name in ["sleep", "tmux: server", "a) R 1 1 1 (b", "))", "", "x\n)"] {
            let line = format!("40 ({name}) {tail}\n");
            let stat = Stat { state: b'S', ppid: 41, pgrp: 42, session: 43, start_ticks: 69376 };
            assert_eq!(parse_stat(line.as_bytes()), Some(stat), "{name:?}");
        }
        let bytes = [b"40 (\xff\xfe) ".as_slice(), tail.as_bytes()].concat();
        assert_eq!(parse_stat(&bytes).map(|stat| stat.start_ticks), Some(69376));
    }

    #[test]
    fn a_line_that_is_cut_or_made_up_is_none() {
        for line in [
            "",
            "40",
            "40 (x)",
            "40 (x) S 1 2",
            "40 (x) S 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7",
            "40 (x) S a 2 3",
        ] {
            assert_eq!(parse_stat(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn only_a_zombie_and_a_dying_process_are_dead() {
        let stat = |state| Stat { state, ppid: 1, pgrp: 1, session: 1, start_ticks: 1 };
        let dead: Vec<u8> = (b'A'..=b'z').filter(|state| stat(*state).is_dead()).collect();
        assert_eq!(dead, b"XZx");
    }

    #[test]
    fn our_own_process_is_known_and_alive() {
        let own = i32::try_from(std::process::id()).unwrap();
        let identity = ProcessIdentity::of(own).unwrap();
        assert!(identity.is_alive());
        assert_eq!(identity.open().unwrap().pid(), own);
        let found = stat(own).unwrap();
        assert_eq!(found.ppid, i32::try_from(std::os::unix::process::parent_id()).unwrap());
    }

    #[test]
    fn the_leader_of_a_session_is_that_of_its_group_too_and_its_children_name_it() {
        let leader = Process::start("exec setsid sh -c 'sleep 1000; exit'");
        eventually("the session and its member", || {
            let session = stat(leader.pid()).is_some_and(|stat| stat.session == leader.pid());
            session && !crate::tree::children(leader.pid()).is_empty()
        });
        let member = crate::tree::children(leader.pid())[0];
        for (pid, ppid) in
            [(leader.pid(), i32::try_from(std::process::id()).unwrap()), (member, leader.pid())]
        {
            let found = stat(pid).unwrap();
            assert_eq!((found.ppid, found.pgrp, found.session), (ppid, leader.pid(), leader.pid()));
        }
    }

    #[test]
    fn the_same_pid_with_other_ticks_or_another_boot_is_another_process() {
        let process = Process::start("exec sleep 1000");
        let identity = ProcessIdentity::of(process.pid()).unwrap();
        let earlier = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity.clone() };
        let other_boot = ProcessIdentity { machine_boot_id: "another".to_owned(), ..identity.clone() };
        for other in [earlier, other_boot] {
            assert!(!other.is_alive());
            assert_eq!(other.open().unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert!(identity.open().is_ok());
    }

    #[test]
    fn a_zombie_is_dead_and_a_handle_signals_only_its_own_process() {
        let mut process = Process::start("exec sleep 1000");
        let identity = ProcessIdentity::of(process.pid()).unwrap();
        let handle = identity.open().unwrap();
        handle.signal(Signal::KILL).unwrap();
        eventually("it is a zombie", || stat(process.pid()).is_some_and(|stat| stat.state == b'Z'));
        assert!(!identity.is_alive());
        assert_eq!(ProcessIdentity::of(process.pid()), None);
        process.reap();
        assert_eq!(handle.signal(Signal::KILL).unwrap_err().raw_os_error(), Some(3), "ESRCH");
        assert_eq!(stat(process.pid()), None);
    }

    #[test]
    fn pids_that_name_groups_everyone_or_init_cannot_be_opened() {
        for pid in [i32::MIN, -1, 0, 1] {
            assert_eq!(ProcessHandle::open(pid).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{pid}");
        }
    }

    #[test]
    fn the_boot_of_the_machine_has_a_name() {
        assert_eq!(machine_boot_id().len(), 36);
    }
}
