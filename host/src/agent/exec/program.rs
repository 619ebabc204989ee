//! The program of a turn as a process: started, waited for, interrupted, and never left behind.

use super::Timings;
use super::options::{Options, PromptMode, start_failed};
use super::tree::Tree;
use crate::agent::command::{Place, command};
use crate::turn::AgentError;
use crate::turn::context::{Interrupt, TurnContext, TurnProcesses};
use std::io;
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// A running program. Dropping it kills it and everything below it.
pub(super) struct Program {
    child: Child,
    pid: i32,
    tree: Tree,
    processes: TurnProcesses,
    /// False once it was reaped: then its pid may be another's.
    unreaped: bool,
}

/// Our ends of its pipes.
pub(super) struct Pipes {
    /// Present if the prompt goes there.
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// How it ended.
pub(super) struct Ended {
    pub(super) status: io::Result<ExitStatus>,
    /// True if it was told to stop before it had exited.
    pub(super) interrupted: bool,
}

impl Program {
    pub(super) fn start(options: &Options, turn: &TurnContext) -> Result<(Self, Pipes), AgentError> {
        let failed = |error: io::Error| start_failed(options, &turn.cwd, &error);
        let mut command = command(&options.argv, &turn.cwd, Place::OwnGroup)
            .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let (marker, value) = Tree::marker();
        command
            .envs(&turn.env)
            .envs(&options.env)
            .env(marker, &value)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if options.prompt == PromptMode::Stdin {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().map_err(failed)?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let (Some(pid), Some(stdout), Some(stderr)) = (pid, child.stdout.take(), child.stderr.take()) else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let pipes = Pipes { stdin: child.stdin.take(), stdout, stderr };
        turn.processes.add(pid);
        let tree = Tree::new(pid, value);
        Ok((Self { child, pid, tree, processes: turn.processes.clone(), unreaped: true }, pipes))
    }

    /// Waits for its end; once `interrupt` is set, sees to it that the end comes, for its whole tree.
    pub(super) async fn run_to_end(&mut self, interrupt: &Interrupt, timings: &Timings) -> Ended {
        let exited = tokio::select! {
            biased;
            status = self.wait() => Some(status),
            () = interrupt.wait() => None,
        };
        if let Some(status) = exited {
            return Ended { status, interrupted: false };
        }
        let status = self.stop(timings).await;
        self.tree.end_leftovers(timings.leftovers).await;
        Ended { status, interrupted: true }
    }

    async fn stop(&mut self, timings: &Timings) -> io::Result<ExitStatus> {
        let steps = [
            (rustix::process::Signal::INT, timings.after_interrupt),
            (rustix::process::Signal::TERM, timings.after_terminate),
        ];
        for (signal, patience) in steps {
            // Now, because children of a process that dies can no longer be found below it.
            self.tree.look();
            self.signal_group(signal);
            if let Ok(status) = tokio::time::timeout(patience, self.wait()).await {
                return status;
            }
        }
        self.tree.look();
        self.signal_group(rustix::process::Signal::KILL);
        self.tree.kill();
        self.wait().await
    }

    async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.reaped();
        status
    }

    fn reaped(&mut self) {
        self.unreaped = false;
        self.tree.root_is_gone();
        self.processes.remove(self.pid);
    }

    /// To every process of its group. Only before it is reaped: as long as it is not, the number is its own.
    fn signal_group(&self, signal: rustix::process::Signal) {
        if let Some(group) = rustix::process::Pid::from_raw(self.pid).filter(|_| self.unreaped) {
            // An error means that nobody is there or none may be signalled; the next step does not depend on it.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.unreaped {
            self.tree.look();
            self.signal_group(rustix::process::Signal::KILL);
            self.tree.kill();
            // The runtime reaps it.
            self.reaped();
        }
    }
}
