//! The closed tables of endings: how a turn can end badly, and how a call can be refused.

use serde::{Deserialize, Serialize};

macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }
        impl $name {
            /// Every value, in the order of the table in `docs/protocol.md`.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
            /// The value with this wire word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

word_enum!(
    /// Why a turn ended with `turn.error`.
    FailReason {
        /// Host: another turn of the session runs; nothing changed.
        Busy = "busy",
        /// Host: the frame lacked something; nothing changed.
        BadRequest = "bad_request",
        /// Host: the agent failed or panicked.
        Exception = "exception",
        /// Host: the program of the exec agent ended with a status other than 0, or by a signal.
        AgentExit = "agent_exit",
        /// Host or supervisor: ended by a stop.
        Shutdown = "shutdown",
        /// Supervisor: the child died after a byte of the turn was handed over.
        Crash = "crash",
        /// Supervisor: the child was killed by the watchdog.
        Hung = "hung",
        /// Supervisor: the terminal frame was malformed, or text stood before it, or `error` named the turn.
        Protocol = "protocol",
        /// Supervisor: the terminal frame was over the limit.
        FrameTooLarge = "frame_too_large",
        /// Supervisor: waited in vain for a child.
        Unavailable = "unavailable",
        /// Supervisor: the child crashed too often.
        CrashLoop = "crash_loop",
        /// Supervisor: its last handle went away.
        Dropped = "dropped",
    }
);

word_enum!(
    /// Why a call was refused or failed: the closed set of `error.kind` in `turnhost supervise`.
    ErrorKind {
        /// The call itself is wrong; nothing was done.
        Usage = "usage",
        /// The session runs a turn or a mutating control.
        Busy = "busy",
        /// The host knows no such session.
        SessionNotFound = "session_not_found",
        /// The host answered the control with an error.
        ControlFailed = "control_failed",
        /// The route is not in the table; nothing was sent.
        UnclassifiedRoute = "unclassified_route",
        /// A request with this id is open already.
        DuplicateRequest = "duplicate_request",
        /// Too many requests wait.
        Overloaded = "overloaded",
        /// The frame is over the limit; nothing was sent.
        TooLarge = "too_large",
        /// The session or turn crashed the host too often.
        Quarantined = "quarantined",
        /// No answer in time; the outcome is unknown.
        Timeout = "timeout",
        /// The child died while the call was open.
        Crash = "crash",
        /// The child was killed by the watchdog while the call was open.
        Hung = "hung",
        /// A stop is under way, or the supervisor was stopped.
        Shutdown = "shutdown",
        /// No child was ready in time.
        Unavailable = "unavailable",
        /// The child crashed too often; `reset` allows it again.
        CrashLoop = "crash_loop",
        /// The child sent no hello in time.
        NoHello = "no_hello",
        /// The child exited before its hello.
        ExitedBeforeHello = "exited_before_hello",
        /// The child is another build than expected.
        BuildMismatch = "build_mismatch",
        /// The child works in another home than expected.
        HomeMismatch = "home_mismatch",
        /// The child speaks another protocol version.
        ProtocolMismatch = "protocol_mismatch",
        /// The child could not be started; the message has errno and advice.
        SpawnFailed = "spawn_failed",
        /// Another supervisor owns the registry; the message has its pid.
        RegistryOwned = "registry_owned",
        /// The registry cannot be written.
        RegistryUnwritable = "registry_unwritable",
    }
);

word_enum!(
    /// What came of an interrupt.
    InterruptOutcome {
        /// A running or waiting turn was told to stop.
        Applied = "applied",
        /// Unknown session, idle session without a `turn_id`, or unknown `turn_id`.
        NotFound = "not_found",
        /// The turn is among the session's last 64 ended ones.
        AlreadyEnded = "already_ended",
        /// Another turn of the session runs.
        Superseded = "superseded",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the words are exactly these, in this order, and that each is read as it is written.
    macro_rules! check {
        ($name:ident, $words:expr) => {
            let words: &[&str] = &$words;
            assert_eq!($name::ALL.iter().map(|value| value.as_str()).collect::<Vec<_>>(), words);
            for value in $name::ALL {
                let json = format!("\"{value}\"");
                assert_eq!(serde_json::to_string(value).unwrap(), json);
                assert_eq!(serde_json::from_str::<$name>(&json).unwrap(), *value);
                assert_eq!($name::from_word(value.as_str()), Some(*value));
            }
            assert_eq!($name::from_word("unheard_of"), None);
            assert_eq!($name::from_word(""), None);
        };
    }

    #[test]
    fn the_reasons_of_a_failed_turn_are_a_closed_table() {
        check!(
            FailReason,
            [
                "busy",
                "bad_request",
                "exception",
                "agent_exit",
                "shutdown",
                "crash",
                "hung",
                "protocol",
                "frame_too_large",
                "unavailable",
                "crash_loop",
                "dropped",
            ]
        );
    }

    #[test]
    fn the_kinds_of_a_refused_call_are_a_closed_table() {
        check!(
            ErrorKind,
            [
                "usage",
                "busy",
                "session_not_found",
                "control_failed",
                "unclassified_route",
                "duplicate_request",
                "overloaded",
                "too_large",
                "quarantined",
                "timeout",
                "crash",
                "hung",
                "shutdown",
                "unavailable",
                "crash_loop",
                "no_hello",
                "exited_before_hello",
                "build_mismatch",
                "home_mismatch",
                "protocol_mismatch",
                "spawn_failed",
                "registry_owned",
                "registry_unwritable",
            ]
        );
    }

    #[test]
    fn the_outcomes_of_an_interrupt_are_a_closed_table() {
        check!(InterruptOutcome, ["applied", "not_found", "already_ended", "superseded"]);
    }
}
