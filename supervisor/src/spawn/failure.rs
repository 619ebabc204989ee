//! Why no host came of it, in words: what was tried, what the system said, and what to do. Pure.

use crate::child::SpawnError;
use crate::guard::exit;
use crate::guard::protocol::Stage;
use crate::machine::{Exit, StartFault};
use nix::errno::Errno;
use std::path::Path;
use turnhost_protocol::ErrorKind;

/// What was tried when the system said no.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tried<'a> {
    /// Pipes, sockets, process handles of our own.
    Descriptors,
    /// To start the guard.
    Guard(&'a Path),
    /// A step of the guard towards the host.
    Host { stage: Stage, program: &'a Path, cwd: &'a Path },
}

/// The error of a system call.
pub(super) fn refused(tried: Tried<'_>, errno: i32) -> SpawnError {
    let errno = Errno::from_raw(errno);
    let what = match tried {
        Tried::Descriptors => "cannot make the pipes of the host".to_owned(),
        Tried::Guard(program) => format!("cannot start the guard {}", program.display()),
        Tried::Host { stage, program, cwd } => match stage {
            Stage::Launch => "cannot hand the launch of the host to its guard".to_owned(),
            Stage::Fork => "cannot fork the host".to_owned(),
            Stage::Setup => "cannot set up the process of the host".to_owned(),
            Stage::Chdir => format!("cannot enter the working directory {}", cwd.display()),
            Stage::Exec => format!("cannot start {}", program.display()),
        },
    };
    let advice = advice(tried, errno);
    let detail = format!("{what}: {} ({errno:?}); {advice}", errno.desc());
    let fault = StartFault { errno: Some(errno as i32), ..fault(detail) };
    SpawnError { permanent: is_permanent(errno), fault }
}

/// Trying again cannot help, or the system has to be changed first.
fn is_permanent(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOENT
            | Errno::EACCES
            | Errno::EPERM
            | Errno::ENOTDIR
            | Errno::EISDIR
            | Errno::ELOOP
            | Errno::ENAMETOOLONG
            | Errno::ENOEXEC
            | Errno::ELIBBAD
            | Errno::E2BIG
            | Errno::EINVAL
    )
}

fn advice(tried: Tried<'_>, errno: Errno) -> &'static str {
    let is_cwd = matches!(tried, Tried::Host { stage: Stage::Chdir, .. });
    match errno {
        Errno::ENOENT | Errno::ENOTDIR if is_cwd => "create the directory or name another one",
        Errno::EACCES if is_cwd => "make the directory accessible to this user or name another one",
        Errno::ENOENT | Errno::ENOTDIR => {
            "check the path of the program, and the interpreter that its first line names"
        }
        Errno::EACCES | Errno::EPERM => "make the file executable for this user",
        Errno::ENOEXEC | Errno::ELIBBAD => "the file is no program of this machine; a script needs a #! line",
        Errno::E2BIG => "arguments and environment are too long; shorten them or pass them in a file",
        Errno::EAGAIN => "the limit of processes is reached (ulimit -u); it is tried again",
        Errno::EMFILE => "the limit of open files is reached (ulimit -n); it is tried again",
        Errno::ENFILE => "the system has no file handle left; it is tried again",
        Errno::ENOMEM => "memory is short; it is tried again",
        Errno::ETXTBSY => "the program file is being written; it is tried again",
        _ => "see the system's log",
    }
}

/// A launch that no system call was needed to refuse.
pub(super) fn unusable(detail: impl Into<String>) -> SpawnError {
    SpawnError { permanent: true, fault: fault(detail.into()) }
}

/// The guard did not get as far as to speak.
pub(super) fn guard_silent(program: &Path, how: Silence) -> SpawnError {
    let program = program.display();
    let forgot = "its main must call turnhost_supervisor::guard_main() before anything else";
    let (permanent, detail) = match how {
        Silence::Timeout(seconds) => {
            (false, format!("{program} did not answer as a guard within {seconds} s; {forgot}"))
        }
        Silence::Ended(Exit::Code(exit::WRONG_VERSION)) => (
            true,
            format!(
                "the guard {program} is of another version; install the one that belongs to this program"
            ),
        ),
        Silence::Ended(Exit::Code(exit::NO_SETUP)) => {
            (false, format!("the guard {program} could not set itself up; it is tried again"))
        }
        Silence::Ended(Exit::Code(exit::NO_HOST)) => {
            (false, format!("the guard {program} was told to end before it had a host; it is tried again"))
        }
        // A program that is no guard runs to its own end each time: trying again only repeats what it does.
        Silence::Ended(Exit::Code(code)) => {
            (true, format!("{program} ended with {code} instead of answering as a guard; {forgot}"))
        }
        Silence::Ended(Exit::Signal(signal)) => {
            (false, format!("the guard {program} was ended by signal {signal}; it is tried again"))
        }
        Silence::Ended(Exit::Unknown) => {
            (false, format!("the guard {program} ended before it answered; it is tried again"))
        }
        Silence::Nonsense => (true, format!("{program} did not answer as a guard; {forgot}")),
    };
    SpawnError { permanent, fault: fault(detail) }
}

/// How a guard failed to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// Nothing came in so many seconds.
    Timeout(u64),
    /// It ended.
    Ended(Exit),
    /// It said something else.
    Nonsense,
}

fn fault(detail: String) -> StartFault {
    StartFault::new(ErrorKind::SpawnFailed, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn host(stage: Stage) -> Tried<'static> {
        Tried::Host { stage, program: Path::new("/opt/agent"), cwd: Path::new("/srv/work") }
    }

    #[test]
    fn each_errno_is_permanent_or_not_and_comes_with_advice() {
        let table = [
            (Errno::ENOENT, true),
            (Errno::EACCES, true),
            (Errno::ENOTDIR, true),
            (Errno::ENOEXEC, true),
            (Errno::E2BIG, true),
            (Errno::EAGAIN, false),
            (Errno::EMFILE, false),
            (Errno::ENFILE, false),
            (Errno::ENOMEM, false),
            (Errno::ETXTBSY, false),
            (Errno::EIO, false),
        ];
        for (errno, permanent) in table {
            let error = refused(host(Stage::Exec), errno as i32);
            assert_eq!(error.permanent, permanent, "{errno:?}");
            assert_eq!(error.fault.kind, ErrorKind::SpawnFailed);
            assert!(error.fault.detail.contains(&format!("({errno:?}); ")), "{}", error.fault.detail);
        }
    }

    #[test]
    fn a_missing_working_directory_is_named_and_the_program_is_not_blamed() {
        let detail = refused(host(Stage::Chdir), Errno::ENOENT as i32).fault.detail;
        assert!(detail.starts_with("cannot enter the working directory /srv/work: "), "{detail}");
        assert!(detail.ends_with("create the directory or name another one"), "{detail}");
        assert!(!detail.contains("/opt/agent"), "{detail}");
        let detail = refused(host(Stage::Exec), Errno::ENOENT as i32).fault.detail;
        assert!(detail.starts_with("cannot start /opt/agent: "), "{detail}");
    }

    #[test]
    fn a_guard_that_does_not_speak_says_who_must_change_what() {
        let table = [
            (Silence::Timeout(5), false, "guard_main()"),
            (Silence::Ended(Exit::Code(exit::WRONG_VERSION)), true, "another version"),
            (Silence::Ended(Exit::Code(exit::NO_SETUP)), false, "tried again"),
            (Silence::Ended(Exit::Code(exit::NO_HOST)), false, "told to end"),
            (Silence::Ended(Exit::Code(2)), true, "guard_main()"),
            (Silence::Ended(Exit::Signal(2)), false, "signal 2"),
            (Silence::Ended(Exit::Unknown), false, "tried again"),
            (Silence::Nonsense, true, "guard_main()"),
        ];
        for (how, permanent, words) in table {
            let error = guard_silent(Path::new("/opt/app"), how);
            assert_eq!(error.permanent, permanent, "{how:?}");
            assert!(error.fault.detail.contains("/opt/app"), "{how:?}");
            assert!(error.fault.detail.contains(words), "{how:?}: {}", error.fault.detail);
        }
    }
}
