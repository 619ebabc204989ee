//! The signals that stop a host.

use crate::event::Outside;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// SIGTERM, SIGINT and SIGHUP of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// Never looked at: its handler ends an ignored SIGCHLD, which parents hand down and which would lose the exit
    /// status of every process that an agent starts.
    _child: Signal,
}

impl Signals {
    /// Takes the signals over. Inside a runtime.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            _child: signal(SignalKind::child())?,
        })
    }

    /// Tells the loop of each signal, until the loop is gone.
    pub(crate) async fn forward(mut self, to: mpsc::Sender<Outside>) {
        loop {
            let event = tokio::select! {
                Some(()) = self.terminate.recv() => Outside::Terminate,
                Some(()) = self.interrupt.recv() => Outside::Terminate,
                Some(()) = self.hangup.recv() => Outside::Hangup,
                else => return,
            };
            if to.send(event).await.is_err() {
                return;
            }
        }
    }
}
