//! `exec`: any command-line program as an agent.
//!
//! The turn names it: `{"name":"exec","argv":["prog","arg"],"prompt":"stdin","env":{"NAME":"value"}}`. Only `argv` is
//! required, and not even that where the config has `agent.exec.argv`; other fields are ignored.
//!
//! - **Prompt.** `stdin` (default): its bytes exactly, nothing added, then end of file. `arg`: the last argument, after
//!   all of `argv`, with stdin at /dev/null; a prompt that begins with `-` looks like an option unless `argv` ends with
//!   `--`, or with an option that takes it into the same argument: `--prompt=`. `none`: not passed at all.
//! - **Surroundings.** The turn's working directory (a relative program path starts there), the host's environment, then
//!   the turn's, then `env`. A process group of its own, default signals, no descriptors beyond 0, 1 and 2.
//! - **Output.** Each line of stdout is one delta, its newline included, as it comes. A line without an end is passed
//!   on after a short silence, and a long one in pieces. What is no UTF-8 becomes U+FFFD. A reader that is slow slows the
//!   program. stderr is always drained, and its last lines are kept for an error, as a terminal would show them: without
//!   colours, and of a progress bar the last state.
//! - **Outcome.** Exit code 0: the answer is what was streamed. Anything else: `agent_exit` with the code or signal and
//!   the end of stderr. It is the program itself that counts: what it leaves in the background keeps running and delays
//!   nothing, even if it holds the pipes.
//! - **Interrupt.** SIGINT to the group; 2 s later SIGTERM; 2 s later SIGKILL to everything that the program started,
//!   whatever group or session it moved to. Once the program itself is gone, what is left of its tree gets SIGTERM, and
//!   half a second later SIGKILL. The turn ends as interrupted, whatever the exit status.

mod options;
mod pieces;
mod pipe;
mod plain;
mod program;
mod tail;
mod tree;

use crate::turn::context::{Sink, TurnContext, TurnOver};
use crate::turn::{AgentError, AgentResult, Answer, AsyncAgent, TurnFuture};
use options::{Options, PromptMode};
use pieces::Pieces;
use pipe::{Pipe, Read};
use program::{Ended, Program};
use std::time::Duration;
use tail::Tail;
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::sync::watch;
use turnhost_protocol::FailReason;

/// Bytes taken from a pipe at once: what a Linux pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// How long the agent waits for what.
#[derive(Debug, Clone, Copy)]
struct Timings {
    /// From SIGINT to SIGTERM: an agent saves its state on the first.
    after_interrupt: Duration,
    /// From SIGTERM to SIGKILL.
    after_terminate: Duration,
    /// From SIGTERM to SIGKILL for what an interrupted program left behind.
    leftovers: Duration,
    /// Silence after which a line without an end is passed on: a prompt or a progress bar must be seen, but a line that
    /// is written in two halves should not be cut.
    quiet: Duration,
    /// How long output is still taken after the program has exited and its own was read: a filter behind it
    /// (`> >(tee …)`) may not be done, and a daemon that holds the pipe never is.
    drain: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            after_interrupt: Duration::from_secs(2),
            after_terminate: Duration::from_secs(2),
            leftovers: Duration::from_millis(500),
            quiet: Duration::from_millis(50),
            drain: Duration::from_millis(250),
        }
    }
}

/// The `exec` agent.
#[derive(Debug, Default)]
pub struct Exec {
    timings: Timings,
    argv: Vec<String>,
}

impl Exec {
    /// With program and arguments of turns that bring none; empty: such turns are refused.
    #[must_use]
    pub fn with_argv(self, argv: Vec<String>) -> Self {
        Self { argv, ..self }
    }
}

impl AsyncAgent for Exec {
    fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
        Box::pin(run(turn, self.timings, &self.argv))
    }
}

async fn run(turn: TurnContext, timings: Timings, default_argv: &[String]) -> AgentResult {
    let mut options = Options::read(turn.agent_options.as_ref(), default_argv)?;
    if turn.interrupt.is_set() {
        return Ok(Answer { text: None, interrupted: true });
    }
    if options.prompt == PromptMode::Arg {
        options.add_prompt(&turn.prompt);
    }
    let (mut program, pipes) = Program::start(&options, &turn)?;
    let mut tail = Tail::default();
    let ended = {
        let (exited, seen) = watch::channel(false);
        let stream = stream(Pipe::new(pipes.stdout, seen.clone(), timings.drain), &turn.sink, timings.quiet);
        let errors = keep_errors(Pipe::new(pipes.stderr, seen, timings.drain), &mut tail);
        let feed = async move {
            if let Some(mut stdin) = pipes.stdin {
                // A program may end or close its stdin before it has read all: that is its choice, no failure.
                let _ = stdin.write_all(turn.prompt.as_bytes()).await;
            }
        };
        let life = program.run_to_end(&turn.interrupt, &timings);
        tokio::pin!(stream, errors, feed, life);
        let (mut streamed, mut drained, mut fed) = (false, false, false);
        let mut ended = loop {
            tokio::select! {
                ended = &mut life => break ended,
                result = &mut stream, if !streamed => match result {
                    Ok(()) => streamed = true,
                    // Nobody takes the output any more. Leaving drops the program, which kills its tree.
                    Err(TurnOver) => return Ok(Answer { text: None, interrupted: true }),
                },
                () = &mut errors, if !drained => drained = true,
                () = &mut feed, if !fed => fed = true,
            }
        };
        // From here on the pipes end by themselves, unless the one who takes the output is slow.
        exited.send_replace(true);
        let rest = async {
            let stream = async {
                if !streamed {
                    let _ = stream.await;
                }
            };
            let errors = async {
                if !drained {
                    errors.await;
                }
            };
            tokio::join!(stream, errors)
        };
        if ended.interrupted {
            let _ = tokio::time::timeout(timings.drain, rest).await;
        } else {
            tokio::select! {
                biased;
                _ = rest => {}
                () = turn.interrupt.wait() => ended.interrupted = true,
            }
        }
        ended
    };
    outcome(&options, ended, tail)
}

/// Streams stdout until its end.
async fn stream<R: AsyncRead + std::os::fd::AsFd + Unpin>(
    mut pipe: Pipe<R>,
    sink: &Sink,
    quiet: Duration,
) -> Result<(), TurnOver> {
    let mut buffer = vec![0; READ_BYTES];
    let mut pieces = Pieces::default();
    let mut fresh = false;
    loop {
        match pipe.read(&mut buffer, fresh.then_some(quiet)).await {
            Read::Bytes(bytes) => {
                pieces.feed(bytes);
                while let Some(piece) = pieces.next() {
                    sink.delta(piece).await?;
                }
                fresh = pieces.holds_text();
            }
            Read::Quiet => {
                if let Some(piece) = pieces.flush() {
                    sink.delta(piece).await?;
                }
                fresh = false;
            }
            Read::End => break,
        }
    }
    if let Some(piece) = pieces.finish() {
        sink.delta(piece).await?;
    }
    Ok(())
}

/// Keeps the last lines of stderr until its end.
async fn keep_errors<R: AsyncRead + std::os::fd::AsFd + Unpin>(mut pipe: Pipe<R>, tail: &mut Tail) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match pipe.read(&mut buffer, None).await {
            Read::Bytes(bytes) => tail.push(bytes),
            Read::Quiet => {}
            Read::End => return,
        }
    }
}

fn outcome(options: &Options, ended: Ended, tail: Tail) -> AgentResult {
    if ended.interrupted {
        return Ok(Answer { text: None, interrupted: true });
    }
    let program = options.program();
    let status = ended.status.map_err(|error| {
        AgentError::exception(format!(
            "exec: the exit status of `{program}` is lost ({error}); something else in this host reaped it"
        ))
    })?;
    if status.success() {
        return Ok(Answer { text: None, interrupted: false });
    }
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let message = match (status.code(), signal) {
        (Some(code), _) => format!("exec: `{program}` exited with code {code}"),
        (None, Some(number)) => {
            let name = nix::sys::signal::Signal::try_from(number)
                .map_or("a real-time signal", |signal| signal.as_str());
            format!("exec: `{program}` was ended by signal {number} ({name})")
        }
        (None, None) => format!("exec: `{program}` ended with {status}"),
    };
    Err(AgentError {
        reason: FailReason::AgentExit,
        message,
        exit_code: status.code(),
        signal,
        stderr_tail: tail.into_lines(),
    })
}

#[cfg(test)]
mod tests;
