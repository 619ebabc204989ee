//! What a signal, a timeout or a reader that went away does to a run, and the exit code that comes of it: pure.

use crate::exit;
use turnhost_protocol::FailReason;

/// Something that is no event of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happening {
    /// Ctrl+C.
    Interrupt,
    /// SIGTERM or SIGHUP.
    Terminate,
    /// `--timeout` ran out.
    Timeout,
    /// The turn had its time to obey the interrupt.
    GraceOver,
    /// Nobody reads stdout.
    OutputClosed,
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Interrupt the turn and wait for its end.
    InterruptTurn,
    /// Stop the host as fast as it can be done cleanly.
    Stop,
    /// Kill the host's tree.
    Kill,
    Nothing,
}

/// How the turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// `turn.end`.
    Completed { interrupted: bool },
    /// `turn.error`.
    Failed {
        reason: FailReason,
        /// The agent's program's own exit, as a shell shows it.
        program: Option<u8>,
    },
    /// The program was ended before the turn.
    Abandoned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Person,
    Timeout,
    OutputClosed,
}

/// Why a run ends before its turn does, if it does. The first cause counts.
#[derive(Debug, Default)]
pub(super) struct Course {
    cause: Option<Cause>,
    interrupts: u32,
}

impl Course {
    /// Takes a happening; says what to do.
    pub(super) fn take(&mut self, happening: Happening) -> Act {
        match happening {
            Happening::Interrupt => {
                self.cause.get_or_insert(Cause::Person);
                self.interrupts += 1;
                if self.interrupts == 1 { Act::InterruptTurn } else { Act::Kill }
            }
            Happening::Terminate => {
                self.cause.get_or_insert(Cause::Person);
                Act::Stop
            }
            Happening::Timeout if self.cause.is_some() => Act::Nothing,
            Happening::Timeout => {
                self.cause = Some(Cause::Timeout);
                Act::InterruptTurn
            }
            Happening::GraceOver => Act::Kill,
            Happening::OutputClosed => {
                self.cause.get_or_insert(Cause::OutputClosed);
                Act::Stop
            }
        }
    }

    /// True if the run was cut short on purpose, so that its failure is no news.
    pub(super) fn is_asked_for(&self) -> bool {
        self.cause.is_some()
    }

    /// The exit code.
    pub(super) fn exit_code(&self, ended: Ended, propagate: bool) -> u8 {
        match (self.cause, ended) {
            (Some(Cause::Timeout), _) => exit::TIMEOUT,
            (Some(Cause::OutputClosed), _) => exit::ENDED,
            (_, Ended::Completed { interrupted: false }) => exit::ENDED,
            (_, Ended::Completed { interrupted: true } | Ended::Abandoned) => exit::INTERRUPTED,
            (_, Ended::Failed { reason: reason @ (FailReason::Crash | FailReason::Hung), .. }) => {
                exit::for_reason(reason)
            }
            // A program that ends by the interrupt that we sent has done as it was told.
            (Some(Cause::Person), Ended::Failed { .. }) => exit::INTERRUPTED,
            (None, Ended::Failed { program: Some(code), .. }) if propagate => code,
            (None, Ended::Failed { reason, .. }) => exit::for_reason(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(happenings: &[Happening]) -> (Course, Vec<Act>) {
        let mut course = Course::default();
        let acts = happenings.iter().map(|happening| course.take(*happening)).collect();
        (course, acts)
    }

    #[test]
    fn the_first_interrupt_asks_the_turn_and_the_second_ends_the_program() {
        let (_, acts) = course(&[Happening::Interrupt, Happening::Interrupt, Happening::Interrupt]);
        assert_eq!(acts, [Act::InterruptTurn, Act::Kill, Act::Kill]);
    }

    #[test]
    fn a_timeout_interrupts_then_kills_and_does_nothing_after_an_interrupt() {
        assert_eq!(course(&[Happening::Timeout, Happening::GraceOver]).1, [Act::InterruptTurn, Act::Kill]);
        assert_eq!(course(&[Happening::Interrupt, Happening::Timeout]).1, [Act::InterruptTurn, Act::Nothing]);
        assert_eq!(
            course(&[Happening::Timeout, Happening::Interrupt]).1,
            [Act::InterruptTurn, Act::InterruptTurn]
        );
    }

    #[test]
    fn the_exit_code_follows_the_first_cause_and_then_the_turn() {
        let whole = Ended::Completed { interrupted: false };
        let cut = Ended::Completed { interrupted: true };
        let failed = |reason| Ended::Failed { reason, program: Some(3) };
        for (happenings, ended, propagate, code) in [
            (&[][..], whole, false, 0),
            (&[], cut, false, 130),
            (&[], failed(FailReason::AgentExit), false, 1),
            (&[], failed(FailReason::AgentExit), true, 3),
            (&[], Ended::Failed { reason: FailReason::Exception, program: None }, true, 1),
            (&[], Ended::Failed { reason: FailReason::Crash, program: None }, true, 4),
            (&[], Ended::Failed { reason: FailReason::Unavailable, program: None }, false, 3),
            (&[Happening::Interrupt], cut, false, 130),
            (&[Happening::Interrupt], whole, false, 0),
            (&[Happening::Interrupt], failed(FailReason::AgentExit), true, 130),
            (&[Happening::Interrupt], failed(FailReason::Crash), false, 4),
            (&[Happening::Interrupt, Happening::Interrupt], Ended::Abandoned, false, 130),
            (&[Happening::Terminate], failed(FailReason::Shutdown), false, 130),
            (&[Happening::Timeout], cut, false, 124),
            (&[Happening::Timeout, Happening::Interrupt], whole, false, 124),
            (&[Happening::Timeout, Happening::GraceOver], Ended::Abandoned, false, 124),
            (&[Happening::OutputClosed], failed(FailReason::Shutdown), false, 0),
            (&[Happening::Interrupt, Happening::OutputClosed], cut, false, 130),
        ] {
            assert_eq!(course(happenings).0.exit_code(ended, propagate), code, "{happenings:?} {ended:?}");
        }
    }
}
