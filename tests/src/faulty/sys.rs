//! Signal dispositions: the only unsafe code of this program.
#![expect(unsafe_code, reason = "the disposition of a signal has no safe interface")]

use nix::sys::signal::{SigHandler, Signal, signal};

/// Ignores `to_ignore` from now on; children inherit it.
pub(crate) fn ignore(to_ignore: Signal) -> nix::Result<()> {
    // SAFETY: SIG_IGN runs no code of ours, so nothing can be called in a state it is not safe in.
    unsafe { signal(to_ignore, SigHandler::SigIgn) }.map(drop)
}

/// Gives `to_restore` the action that the kernel has for it.
pub(crate) fn restore(to_restore: Signal) -> nix::Result<()> {
    // SAFETY: SIG_DFL runs no code of ours, so nothing can be called in a state it is not safe in.
    unsafe { signal(to_restore, SigHandler::SigDfl) }.map(drop)
}
