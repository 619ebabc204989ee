//! As pid 1 of a container: a small init in front of the program.

use crate::sys;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, setpgid, wait};

/// If this process is pid 1, forks: the child returns and is the program, pid 1 stays behind, forwards every signal to
/// it, reaps everything, and exits with its status. Elsewhere it returns at once.
///
/// Pid 1 ignores signals that it does not handle, and inherits every orphan of the container: a supervisor must be
/// neither surprised by the one nor burdened with the other. Call it first thing, before any thread starts.
///
/// # Errors
/// What `fork` says; the program can go on as pid 1 then.
pub fn init_if_pid1() -> std::io::Result<()> {
    if std::process::id() != 1 {
        return Ok(());
    }
    let mut everything = SigSet::all();
    for fault in [
        nix::sys::signal::Signal::SIGSEGV,
        nix::sys::signal::Signal::SIGBUS,
        nix::sys::signal::Signal::SIGILL,
        nix::sys::signal::Signal::SIGFPE,
    ] {
        everything.remove(fault);
    }
    let before = everything.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    match sys::fork() {
        Ok(Some(program)) => sys::exit_now(attend(program, &everything)),
        Ok(None) => {
            take_terminal();
            before.thread_set_mask()?;
            Ok(())
        }
        Err(error) => {
            before.thread_set_mask()?;
            Err(error)
        }
    }
}

/// Makes the program the foreground group of its terminal, if there is one: a Ctrl+C must reach it once, from the
/// terminal, and not a second time through pid 1.
fn take_terminal() {
    if setpgid(None, None).is_ok() {
        // TTOU is blocked here, so that a background group may do this.
        let _ = nix::unistd::tcsetpgrp(std::io::stdin(), nix::unistd::getpgrp());
    }
}

fn attend(program: i32, signals: &SigSet) -> i32 {
    // An inherited "ignore" for SIGCHLD would lose the program's status.
    sys::reset_dispositions();
    let Some(program) = Pid::from_raw(program) else { return 1 };
    loop {
        let Ok(signal) = signals.wait() else { continue };
        if signal != nix::sys::signal::Signal::SIGCHLD {
            if let Some(signal) = Signal::from_named_raw(signal as libc::c_int) {
                let _ = kill_process(program, signal);
            }
            continue;
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == program {
                let by_signal = status.terminating_signal().map(|signal| 128 + signal);
                return status.exit_status().or(by_signal).unwrap_or(1);
            }
        }
    }
}
