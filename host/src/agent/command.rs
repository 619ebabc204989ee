//! The one place where the host starts processes.

use std::ffi::OsStr;
use std::path::Path;
use tokio::process::Command;

/// Where a process stands among the others, which decides the signals that reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the host's own group.
    HostGroup,
    /// Leader of a new group in the host's session: signals to the group reach it and what it starts.
    OwnGroup,
    /// Leader of a new session without a terminal: no group signal reaches it.
    OwnSession,
}

/// A process to start in `cwd`: default signals, no descriptors beyond 0 to 2, `HERMES_COMPUTE_HOST_CHILD=1`, and
/// stdin, stdout and stderr from /dev/null until told otherwise.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(super) fn command(argv: &[impl AsRef<OsStr>], cwd: &Path, place: Place) -> Option<Command> {
    let (program, arguments) = argv.split_first()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(cwd)
        .env("HERMES_COMPUTE_HOST_CHILD", "1")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    if place == Place::OwnGroup {
        command.process_group(0);
    }
    crate::sys::start_clean(&mut command, place == Place::OwnSession);
    Some(command)
}
