//! The signals that ask the program to end.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Which one came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// SIGINT: Ctrl+C.
    Interrupt,
    /// SIGTERM or SIGHUP.
    Terminate,
}

/// Takes them from now on; they do nothing by themselves any more.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Needs a runtime with I/O.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one.
    pub(crate) async fn recv(&mut self) -> Asked {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Asked::Interrupt,
            Some(()) = self.terminate.recv() => Asked::Terminate,
            Some(()) = self.hangup.recv() => Asked::Terminate,
            else => std::future::pending().await,
        }
    }
}
