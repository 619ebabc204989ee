//! The only unsafe code of this crate: what a process does to itself between fork and exec, and at its start as a
//! guard; and the registration of descriptors on the reactor.
#![expect(unsafe_code, reason = "fork, exec, signal dispositions, close_range and epoll have no safe form")]

use nix::errno::Errno;
use nix::libc;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The highest signal number of Linux.
const LAST_SIGNAL: libc::c_int = 64;

/// Gives every signal its default disposition: an ignored SIGCHLD, for one, is inherited through exec and would lose
/// the status of every child.
pub(crate) fn reset_dispositions() {
    // The kernel's own structure, all zero: SIG_DFL, no flags, an empty mask. libc's call refuses the two signals that
    // it keeps for itself, and those are inherited ignored as well.
    let default = [0_usize; 8];
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: the structure is at most 32 bytes long and only read; KILL and STOP answer EINVAL.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null::<usize>(), 8_usize)
        };
    }
}

/// [`reset_dispositions`], and an empty mask.
pub(crate) fn reset_signals() {
    reset_dispositions();
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set that it is given, and `sigprocmask` only reads it.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Closes every descriptor from `first` on. Nothing that owns one may live in this process.
pub(crate) fn close_from(first: u32) {
    // SAFETY: the callers are a guard that has opened nothing yet and a child right before exec; closing descriptors
    // touches no memory.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if closed == 0 {
        return;
    }
    // A kernel before 5.9: every number that the limit allows.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(65_536);
    for number in first..u32::try_from(limit).unwrap_or(65_536).min(65_536) {
        if let Ok(number) = libc::c_int::try_from(number) {
            // SAFETY: as above.
            unsafe { libc::close(number) };
        }
    }
}

/// Forks. `None` in the child, which may only make system calls until it execs or calls [`exit_now`].
///
/// # Errors
/// EAGAIN at a process limit, ENOMEM.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: both callers are single-threaded, and the child only makes system calls on memory prepared before.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Ends the process without running exit handlers, which belong to the embedder.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// The arguments of an exec, laid out before the fork so that the child allocates nothing.
pub(crate) struct PreparedExec {
    candidates: Vec<CString>,
    argv: Pointers,
    environment: Pointers,
}

/// Strings and the null-terminated array of pointers to them.
struct Pointers {
    _strings: Vec<CString>,
    array: Vec<*const libc::c_char>,
}

impl Pointers {
    fn new(strings: Vec<CString>) -> Self {
        // The pointers are to the heap blocks of the strings, which do not move with the vector.
        let array = strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        Self { _strings: strings, array }
    }
}

impl PreparedExec {
    /// `candidates` are the files to try in turn.
    pub(crate) fn new(candidates: Vec<CString>, argv: Vec<CString>, environment: Vec<CString>) -> Self {
        Self { candidates, argv: Pointers::new(argv), environment: Pointers::new(environment) }
    }

    /// Becomes the program. Returns only if none of the candidates could be run, with the reason that says most.
    pub(crate) fn exec(&self) -> Errno {
        let mut reason = Errno::ENOENT;
        for candidate in &self.candidates {
            match self.exec_file(candidate) {
                Errno::ENOENT | Errno::ENOTDIR if self.candidates.len() > 1 => {}
                Errno::EACCES => reason = Errno::EACCES,
                other => return other,
            }
        }
        reason
    }

    fn exec_file(&self, file: &CStr) -> Errno {
        // SAFETY: the file is NUL-terminated, both arrays end with a null pointer, and what they point to is owned by
        // `self`.
        unsafe { libc::execve(file.as_ptr(), self.argv.array.as_ptr(), self.environment.array.as_ptr()) };
        Errno::last()
    }
}

/// Makes the command start in a session of its own with default signals, an empty mask and only descriptors 0 to 2.
pub(crate) fn isolate(command: &mut Command) {
    // SAFETY: the closure makes async-signal-safe system calls only, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            reset_signals();
            rustix::process::setsid()?;
            // Not closed at once: std reports a failed exec through a descriptor above 2.
            if libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0 {
                return Ok(());
            }
            for number in 3..65_536 {
                libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
            }
            Ok(())
        });
    }
}

/// Puts a descriptor on the current reactor.
///
/// # Errors
/// What `epoll_ctl` says.
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd keeps its descriptor open, and names the same one, for as long as it lives.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(|error| error.into_parts().1)
}

/// The test binary embeds a supervisor with its own program as the guard, as an embedder does; but its `main` belongs
/// to the test harness. So what an embedder calls first thing in `main` is called here right before it.
#[cfg(test)]
mod before_main {
    extern "C" fn before_main() {
        crate::guard_main();
        crate::spawn::tests::play_role();
    }

    #[used]
    // SAFETY: the function has the signature that the loader calls, and returns.
    #[unsafe(link_section = ".init_array")]
    static BEFORE_MAIN: extern "C" fn() = before_main;
}
