//! Starting a process under test.

use crate::process::Process;
use crate::scenario::Scenario;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// A process about to be started.
pub struct Launch {
    command: Command,
    reads_stdout: bool,
    stdin: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

impl Launch {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the harness starts a process under test"
    )]
    pub(crate) fn new(program: &Path) -> Self {
        Self { command: Command::new(program), reads_stdout: true, stdin: None, terminal: None }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Adds an option and the path that it takes.
    #[must_use]
    pub fn arg_path(mut self, option: &str, path: &Path) -> Self {
        self.command.arg(option).arg(path);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Takes an environment variable out.
    #[must_use]
    pub fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Starts it in this folder.
    #[must_use]
    pub fn cwd(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Leaves its stdout unread until [`Process::read_stdout`].
    #[must_use]
    pub fn stdout_unread(mut self) -> Self {
        self.reads_stdout = false;
        self
    }

    /// Gives it this as stdin, a terminal for instance. The harness can then write nothing to it.
    #[must_use]
    pub fn stdin(mut self, stdin: OwnedFd) -> Self {
        self.stdin = Some(stdin);
        self
    }

    /// Gives it this terminal as stdin, stdout and stderr. The harness then sees nothing of them.
    #[must_use]
    pub fn terminal(mut self, terminal: OwnedFd) -> Self {
        self.terminal = Some(terminal);
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(mut self) -> Process {
        self.command.stdin(self.stdin.take().map_or_else(Stdio::piped, Stdio::from));
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(terminal) = self.terminal.take() {
            let another =
                || terminal.try_clone().unwrap_or_else(|error| panic!("no descriptor is left: {error}"));
            self.command.stdin(another()).stdout(another()).stderr(another());
        }
        match self.command.spawn() {
            Ok(child) => Process::over(child, self.reads_stdout),
            Err(error) => panic!("cannot start {:?}: {error}", self.command),
        }
    }
}

impl Scenario {
    /// Starts a program of this workspace by name.
    pub fn program(&self, name: &str) -> Launch {
        self.launch(&crate::binaries::binary(name))
    }

    /// `compute-host` with its default agents, with these arguments.
    #[track_caller]
    pub fn host(&self, arguments: &[&str]) -> Process {
        self.program("compute-host").args(arguments).start()
    }

    /// `faulty-host` with these steps.
    #[track_caller]
    pub fn faulty(&self, steps: &[Value]) -> Process {
        self.program("faulty-host").args(crate::scenario::step_arguments(steps)).start()
    }
}
