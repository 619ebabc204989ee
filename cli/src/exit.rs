//! The exit codes of `turnhost`. They are an interface: scripts depend on them, so a number never changes its meaning.

use turnhost_protocol::{ErrorKind, FailReason};

/// The turn ended, or the program did what it was asked; also when the reader of stdout went away. `status`: alive.
pub(crate) const ENDED: u8 = 0;
/// The turn ended with `turn.error` or the agent failed; `supervise`: the stop was not clean; `config check`: there are
/// mistakes.
pub(crate) const FAILED: u8 = 1;
/// The command line, or a file that it names, is wrong; nothing was started.
pub(crate) const USAGE: u8 = 2;
/// No host could be had, or it crashed too often; `status`: none is running.
pub(crate) const UNAVAILABLE: u8 = 3;
/// The host crashed, or was killed because it hung.
pub(crate) const CRASHED: u8 = 4;
/// `--timeout` ran out.
pub(crate) const TIMEOUT: u8 = 124;
/// A person or a signal stopped it.
pub(crate) const INTERRUPTED: u8 = 130;

/// For the end of `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    the turn ended (or the reader of stdout went away)
  1    the turn failed or the agent's program did
  2    the command line, or a file that it or HERMES_HOME names, is wrong
  3    no host could be started, or it crashed too often
  4    the host crashed or hung
  124  --timeout ran out
  130  interrupted";

/// For the end of `status --help`.
pub(crate) const STATUS_HELP: &str = "\
Exit codes:
  0    a host is registered and alive
  2    the registry file cannot be used, or the command line is wrong
  3    no host is registered, or the one that is does not run";

/// For the end of `config show --help`.
pub(crate) const SHOW_HELP: &str = "\
Exit codes:
  0    shown
  2    the config cannot be used, or the command line is wrong";

/// For the end of `config check --help`.
pub(crate) const CHECK_HELP: &str = "\
Exit codes:
  0    the config is fine, or there is none
  1    it has mistakes: a value of the wrong kind, a mistyped key, or it cannot be read
  2    the command line is wrong";

/// The code for a turn that ended with `turn.error` of this reason.
pub(crate) fn for_reason(reason: FailReason) -> u8 {
    match reason {
        FailReason::Crash | FailReason::Hung => CRASHED,
        FailReason::Unavailable | FailReason::CrashLoop => UNAVAILABLE,
        FailReason::Busy
        | FailReason::BadRequest
        | FailReason::Exception
        | FailReason::AgentExit
        | FailReason::Shutdown
        | FailReason::Protocol
        | FailReason::FrameTooLarge
        | FailReason::Dropped => FAILED,
    }
}

/// The code for a call that was refused or failed with this kind.
pub(crate) fn for_kind(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Usage | ErrorKind::TooLarge => USAGE,
        ErrorKind::Crash | ErrorKind::Hung => CRASHED,
        ErrorKind::Unavailable
        | ErrorKind::CrashLoop
        | ErrorKind::NoHello
        | ErrorKind::ExitedBeforeHello
        | ErrorKind::BuildMismatch
        | ErrorKind::HomeMismatch
        | ErrorKind::ProtocolMismatch
        | ErrorKind::SpawnFailed
        | ErrorKind::RegistryOwned
        | ErrorKind::RegistryUnwritable => UNAVAILABLE,
        ErrorKind::Busy
        | ErrorKind::SessionNotFound
        | ErrorKind::ControlFailed
        | ErrorKind::UnclassifiedRoute
        | ErrorKind::DuplicateRequest
        | ErrorKind::Overloaded
        | ErrorKind::Quarantined
        | ErrorKind::Timeout
        | ErrorKind::Shutdown => FAILED,
    }
}

/// A program's own exit as a shell shows it: its code, or 128 + the signal. `None` if it had neither, or none that
/// fits an exit status.
pub(crate) fn of_program(exit_code: Option<i64>, signal: Option<i64>) -> Option<u8> {
    let shown = match (exit_code, signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => signal.checked_add(128)?,
        (None, None) => return None,
    };
    u8::try_from(shown).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_of_the_documented_codes() {
        let code = |word: &str| for_reason(FailReason::from_word(word).expect("a reason"));
        assert_eq!(code("crash"), 4);
        assert_eq!(code("hung"), 4);
        assert_eq!(code("unavailable"), 3);
        assert_eq!(code("crash_loop"), 3);
        for word in [
            "busy",
            "bad_request",
            "exception",
            "agent_exit",
            "shutdown",
            "protocol",
            "frame_too_large",
            "dropped",
        ] {
            assert_eq!(code(word), 1, "{word}");
        }
    }

    #[test]
    fn a_refused_start_reads_unavailable_and_a_dead_host_crashed() {
        assert_eq!(for_kind(ErrorKind::SpawnFailed), 3);
        assert_eq!(for_kind(ErrorKind::CrashLoop), 3);
        assert_eq!(for_kind(ErrorKind::Crash), 4);
        assert_eq!(for_kind(ErrorKind::Usage), 2);
        assert_eq!(for_kind(ErrorKind::Busy), 1);
    }

    #[test]
    fn a_program_exit_is_shown_as_a_shell_shows_it() {
        assert_eq!(of_program(Some(3), None), Some(3));
        assert_eq!(of_program(None, Some(9)), Some(137));
        assert_eq!(of_program(None, None), None);
        assert_eq!(of_program(Some(-1), None), None);
        assert_eq!(of_program(None, Some(i64::MAX)), None);
    }

    #[test]
    fn the_help_names_every_code() {
        for code in [ENDED, FAILED, USAGE, UNAVAILABLE, CRASHED, TIMEOUT, INTERRUPTED] {
            assert!(HELP.lines().any(|line| line.trim_start().starts_with(&format!("{code} "))), "{code}");
        }
    }
}
