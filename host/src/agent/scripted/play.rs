//! Playing the steps of a script in a turn.

use super::script::{Script, Step};
use crate::agent::command::{Place, command};
use crate::turn::context::{ApprovalAnswer, TurnContext, WorkItem};
use crate::turn::table::Generated;
use crate::turn::{AgentError, AgentResult, Answer};
use std::io::Write as _;
use std::time::{Duration, Instant};
use turnhost_protocol::limits::MAX_FRAME_BYTES;

/// How long a step that ends the process waits for what was streamed before; a parent that reads nothing must not keep
/// the host alive.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// Why a turn stops before its last step.
enum Stop {
    /// Told to, or the turn is over without us.
    Interrupted,
    /// A step failed.
    Failed(AgentError),
}

/// A turn under way: its context, and what was streamed so far.
struct Play {
    turn: TurnContext,
    streamed: Generated,
    /// What `alloc_mb` took.
    held: Vec<Vec<u8>>,
}

pub(super) async fn script(turn: TurnContext, script: &Script) -> AgentResult {
    let mut play = Play::new(turn);
    let mut stopped = Ok(());
    for (index, step) in script.steps.iter().enumerate() {
        stopped = play.step(index + 1, step).await;
        if stopped.is_err() {
            break;
        }
    }
    play.end(stopped)
}

pub(super) async fn numbered_chunks(turn: TurnContext, count: u64, delay: Duration) -> AgentResult {
    let mut play = Play::new(turn);
    let stopped = play.chunks(count, delay).await;
    play.end(stopped)
}

impl Play {
    fn new(turn: TurnContext) -> Self {
        Self { turn, streamed: Generated::new(MAX_FRAME_BYTES), held: Vec::new() }
    }

    fn end(mut self, stopped: Result<(), Stop>) -> AgentResult {
        let interrupted = match stopped {
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Interrupted) => true,
            // An interrupt that came during the last step counts as well.
            Ok(()) => self.turn.interrupt.is_set(),
        };
        let mut text = self.streamed.take();
        if interrupted {
            text.push_str("[interrupted]");
        }
        Ok(Answer { text: Some(text), interrupted })
    }

    async fn chunks(&mut self, count: u64, delay: Duration) -> Result<(), Stop> {
        let start = format!("{}:{}:", self.turn.sid, self.turn.prompt);
        for index in 0..count {
            self.delta(format!("{start}{index:04} ")).await?;
            self.pause(delay).await?;
        }
        Ok(())
    }

    async fn step(&mut self, number: usize, step: &Step) -> Result<(), Stop> {
        self.check()?;
        match step {
            Step::Delta(text) => self.delta(text.clone()).await,
            Step::Deltas { count, bytes, delay } => {
                for index in 0..*count {
                    self.delta(filler(index, *bytes)).await?;
                    self.pause(*delay).await?;
                }
                Ok(())
            }
            Step::Sleep(time) => self.pause(*time).await,
            Step::Event(body) => self.send(WorkItem::Event(body.clone())).await,
            Step::Ask(question) => {
                let answer = self.unless_interrupted(self.turn.ask_approval(question.clone())).await?;
                self.delta(match answer {
                    ApprovalAnswer::Choice(choice) => format!("[approval: {choice}]"),
                    ApprovalAnswer::Denied => "[approval: denied]".to_owned(),
                })
                .await
            }
            Step::Stdout(bytes) => self.stray(bytes.clone(), Descriptor::Stdout).await,
            Step::Stderr(bytes) => self.stray(bytes.clone(), Descriptor::Stderr).await,
            Step::RawFrame(bytes) => self.send(WorkItem::RawBytes(bytes.clone())).await,
            Step::Error(message) => Err(Stop::Failed(AgentError::exception(message.clone()))),
            Step::Panic(message) => panic!("{message}"),
            Step::Exit(code) => {
                self.last_flush().await?;
                crate::sys::exit_now(*code)
            }
            Step::Signal(signal) => {
                self.last_flush().await?;
                crate::sys::raise_default(*signal);
                Ok(())
            }
            Step::Hang => std::future::pending().await,
            Step::Spin(time) => {
                let start = Instant::now();
                while start.elapsed() < *time {
                    std::hint::spin_loop();
                }
                Ok(())
            }
            Step::Alloc { mebibytes } => self.allocate(number, *mebibytes).await,
            Step::Spawn { argv, detach } => self.spawn(number, argv, *detach),
        }
    }

    fn check(&self) -> Result<(), Stop> {
        if self.turn.interrupt.is_set() { Err(Stop::Interrupted) } else { Ok(()) }
    }

    async fn unless_interrupted<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.turn.interrupt.wait() => Err(Stop::Interrupted),
        }
    }

    async fn send(&self, item: WorkItem) -> Result<(), Stop> {
        self.unless_interrupted(self.turn.sink.send(item)).await?.map_err(|_| Stop::Interrupted)
    }

    async fn delta(&mut self, text: String) -> Result<(), Stop> {
        self.check()?;
        self.send(WorkItem::Delta(text.clone())).await?;
        self.streamed.push(&text);
        Ok(())
    }

    /// Waits, or at least lets others run: a script without pauses must not keep its thread.
    async fn pause(&self, time: Duration) -> Result<(), Stop> {
        if time.is_zero() {
            tokio::task::yield_now().await;
            return Ok(());
        }
        self.unless_interrupted(tokio::time::sleep(time)).await
    }

    async fn last_flush(&self) -> Result<(), Stop> {
        let flushed = tokio::time::timeout(LAST_FLUSH, self.turn.sink.flush());
        // Written, never to be written, or too slow: the process ends all the same.
        self.unless_interrupted(flushed).await.map(|_| ())
    }

    /// A stray print. On a thread that may block: where fd 1 or 2 leads is not ours to know.
    async fn stray(&self, bytes: Vec<u8>, to: Descriptor) -> Result<(), Stop> {
        let written = tokio::task::spawn_blocking(move || to.write(&bytes));
        // A closed descriptor is no failure of the turn: a library that prints would not notice either.
        self.unless_interrupted(written).await.map(|_| ())
    }

    async fn allocate(&mut self, number: usize, mebibytes: usize) -> Result<(), Stop> {
        const MEBIBYTE: usize = 1024 * 1024;
        for done in 0..mebibytes {
            self.check()?;
            let mut block = Vec::new();
            block.try_reserve_exact(MEBIBYTE).map_err(|_| {
                let problem = format!("script step {number}: no memory left after {done} of {mebibytes} MiB");
                Stop::Failed(AgentError::exception(problem))
            })?;
            // Ones, because untouched or zero pages cost nothing.
            block.resize(MEBIBYTE, 1);
            self.held.push(block);
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn spawn(&self, number: usize, argv: &[String], detach: bool) -> Result<(), Stop> {
        let place = if detach { Place::OwnSession } else { Place::HostGroup };
        let failed = |problem: String| {
            Stop::Failed(AgentError::exception(format!(
                "script step {number}: cannot start {argv:?}: {problem}"
            )))
        };
        let mut command =
            command(argv, &self.turn.cwd, place).ok_or_else(|| failed("no program named".to_owned()))?;
        let mut child = command.envs(&self.turn.env).spawn().map_err(|error| failed(error.to_string()))?;
        let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else { return Ok(()) };
        self.turn.processes.add(pid);
        let processes = self.turn.processes.clone();
        // It may outlive the turn, and somebody must reap it.
        tokio::spawn(async move {
            let _ = child.wait().await;
            processes.remove(pid);
        });
        Ok(())
    }
}

/// The text of one delta of `deltas`: always `bytes` long, and its number can be read from it.
fn filler(index: u64, bytes: usize) -> String {
    let mut text = format!("{index:08} ");
    if text.len() < bytes {
        text.extend(std::iter::repeat_n('.', bytes - text.len()));
    }
    text.truncate(bytes);
    text
}

#[derive(Clone, Copy)]
enum Descriptor {
    Stdout,
    Stderr,
}

impl Descriptor {
    fn write(self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Descriptor::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Descriptor::Stderr => std::io::stderr().lock().write_all(bytes),
        }
    }
}
