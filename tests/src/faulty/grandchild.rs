//! Grandchildren: this program again, with a hidden word. They do nothing but live for so long.

use crate::script::GrandchildStep;
use anyhow::Context as _;
use nix::sys::signal::Signal;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The word that makes this program a grandchild.
pub(crate) const WORD: &str = "grandchild";

/// What a grandchild is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Inherits stdin, stdout and stderr and keeps them open.
    HoldPipes,
    /// Has a session of its own, ignores TERM, and holds no stream of the host.
    Setsid,
}

/// Starts one and waits until it is what it should be. Nobody waits for its end: as in a host that forgets its
/// children.
pub(crate) fn spawn(kind: Kind, step: &GrandchildStep) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    #[expect(clippy::disallowed_methods, reason = "the one place where faulty-host starts a process")]
    let mut command = Command::new(program);
    command.arg(WORD);
    match kind {
        Kind::HoldPipes => command.arg("hold-pipes"),
        Kind::Setsid => {
            command.arg("setsid").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null())
        }
    };
    command.arg(step.seconds.to_string());
    let mut child = command.spawn().context("cannot start a grandchild")?;
    if let Some(mut ready) = child.stdout.take() {
        ready.read_exact(&mut [0]).context("the grandchild ended before it was in its own session")?;
    }
    Ok(child)
}

/// The life of a grandchild.
pub(crate) fn live(kind: Kind, seconds: u64) -> anyhow::Result<()> {
    if kind == Kind::Setsid {
        nix::unistd::setsid().context("cannot make a session")?;
        crate::sys::ignore(Signal::SIGTERM).context("cannot ignore TERM")?;
        std::io::stdout()
            .write_all(b"!")
            .and_then(|()| std::io::stdout().flush())
            .context("cannot say ready")?;
        crate::stdio::close(crate::script::Stream::Stdout)?;
    }
    std::thread::sleep(Duration::from_secs(seconds));
    Ok(())
}
