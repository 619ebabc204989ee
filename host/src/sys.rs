//! The host's only unsafe code: what a child does between fork and exec, and how a scripted host ends itself.
#![expect(unsafe_code, reason = "calls of the C library that have no safe form")]

use nix::libc;
use std::io;
use std::time::Duration;

/// Makes the child start as if from a shell: every signal at its default and unblocked, no descriptor above 2, and, if
/// `own_session`, a session of its own.
///
/// Ignored signals pass through exec, and so does any descriptor that our own parent left open. The mask is emptied by
/// the standard library.
pub(crate) fn start_clean(command: &mut tokio::process::Command, own_session: bool) {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: signal, setsid and a plain system call
    // are; nothing allocates or takes a lock.
    unsafe {
        command.pre_exec(move || {
            for number in 1..=libc::SIGRTMAX() {
                // KILL, STOP and the C library's own two cannot be set and need not be.
                let _ = libc::signal(number, libc::SIG_DFL);
            }
            // Close-on-exec and not close: the standard library reports a failed exec through one of them. A kernel
            // before 5.11 refuses; then only descriptors that were leaked into the host are passed on.
            let _ = libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            if own_session && libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Sends `signal` to this process with its default disposition, whatever handlers there are. Returns if the signal's
/// default is not to end the process. Leaves no core file.
pub(crate) fn raise_default(signal: nix::sys::signal::Signal) {
    let number = signal as libc::c_int;
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: SIG_DFL installs no code of ours; the set is initialised by sigemptyset before it is read.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        let mut this: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut this);
        libc::sigaddset(&raw mut this, number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const this, std::ptr::null_mut());
        libc::raise(number);
    }
    // A thread of the C library's choosing takes a stop signal; give it the moment that it needs.
    std::thread::sleep(Duration::from_millis(10));
}

/// Ends the process at once: no destructors, no handlers, nothing flushed, as a crash would.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any code and does not return.
    unsafe { libc::_exit(code) }
}

/// Puts a descriptor into the current reactor.
pub(crate) fn watch(fd: std::os::fd::OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    // SAFETY: the descriptor must stay open while it is registered; the result owns it, lends it only as a shared
    // reference, and takes it out of the reactor before it is closed.
    unsafe { tokio::io::unix::AsyncFd::register(fd) }.map_err(Into::into)
}
