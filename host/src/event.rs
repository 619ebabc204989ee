//! Everything that can wake the loop.

use crate::turn::context::Work;
use crate::turn::pool::Finished;
use turnhost_protocol::Line;

/// What happens to a process from outside its pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    /// SIGTERM or SIGINT.
    Terminate,
    /// SIGHUP: whoever cared for this host is gone.
    Hangup,
    /// The parent is gone.
    ParentGone {
        /// The parent at start.
        old: i32,
        /// The parent now.
        new: i32,
    },
}

/// One reason for the loop to do something. Closed: a new cause of work is a new variant.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// A signal, or the parent's end.
    Outside(Outside),
    /// A line of stdin.
    Line(Line<'a>),
    /// The end of stdin.
    InputEnded,
    /// An agent did something.
    Work(Work),
    /// A job of the pool is over.
    Finished(Finished),
    /// Stdout takes nothing any more.
    OutputGone,
    /// Time passed, or bytes were written.
    Tick,
}
