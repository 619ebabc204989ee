//! The driver of `turnhost supervise`: operations in, answers and events out. It decides nothing about the host.
//!
//! Each operation is a future that is polled once in the order of the input, which hands it to the supervisor, and then
//! goes on beside the others: nothing holds up anything, and the turns of a session keep their order.

use crate::output::{self, Closed, Output, ReaderGone, Written};
use crate::signals::Signals;
use crate::supervise::answer;
use crate::supervise::event;
use crate::supervise::input::{self, Input};
use crate::supervise::op::{self, Op, OpId};
use crate::{exit, say};
use anyhow::Context as _;
use serde::Serialize;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinSet, unconstrained};
use turnhost_protocol::{ErrorKind, RawJson, RequestId};
use turnhost_supervisor::{
    CallError, Config, EventStream, HostSupervisor, StopOptions, TurnHandle, TurnPhase, Wire,
};

/// Operations that may be open; beyond it they are refused, `status` excepted.
const OPEN_CALLS: usize = 4096;
/// Answers known at once that may wait for a slow reader of stdout; beyond it stdin waits too. Nothing else of stdout
/// holds up stdin: an interrupt must go through while a turn floods.
const OPEN_ANSWERS: usize = 64;
/// What a line may have beyond its frame: `id`, `op` and the operation's own fields.
const LINE_SLACK: usize = 16 * 1024;
/// How long nobody may read once the host has stopped, until the last lines are given up.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Serves until stdin or stdout ends or a signal comes; gives the exit code.
pub(super) fn serve(config: Config) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime
        .context("cannot make a reactor; free some descriptors")
        .and_then(|runtime| runtime.block_on(Service::run(config)));
    match served {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("{error:#}"));
            exit::FAILED
        }
    }
}

struct Service {
    supervisor: HostSupervisor,
    output: Output,
    open_calls: Arc<Semaphore>,
    open_answers: Arc<Semaphore>,
    /// Operations and the turns that they began.
    tasks: JoinSet<()>,
}

/// Why the program ends.
enum End {
    Input,
    OutputClosed,
    Signal,
}

impl Service {
    async fn run(config: Config) -> anyhow::Result<u8> {
        let mut signals = Signals::new().context("cannot take signals; free some descriptors")?;
        let stdout = output::stdout().context("cannot open stdout; free some descriptors")?;
        let mut reader_gone =
            ReaderGone::watch(&stdout).context("cannot watch stdout; free some descriptors or threads")?;
        let (output, writing) =
            Output::start(stdout).context("cannot write stdout; free some descriptors or threads")?;
        let mut input = input::stdin(config.max_frame_bytes.saturating_add(LINE_SLACK))
            .context("cannot read stdin; free some descriptors or threads")?;
        let supervisor = match HostSupervisor::new(config) {
            Ok(supervisor) => supervisor,
            Err(error) => {
                say(&error.message);
                let usage = error.kind == ErrorKind::Usage;
                return Ok(if usage { exit::USAGE } else { exit::FAILED });
            }
        };
        tokio::spawn(forward_events(supervisor.events(), output.clone()));
        let mut service = Self {
            supervisor,
            output,
            open_calls: Arc::new(Semaphore::new(OPEN_CALLS)),
            open_answers: Arc::new(Semaphore::new(OPEN_ANSWERS)),
            tasks: JoinSet::new(),
        };
        let mut taken = None;
        let end = loop {
            tokio::select! {
                biased;
                _ = signals.recv() => break End::Signal,
                () = reader_gone.wait() => break End::OutputClosed,
                Some(_) = service.tasks.join_next() => {}
                () = service.output.closed() => break End::OutputClosed,
                next = next_input(&mut taken, &mut input, &service.open_answers, &service.supervisor) => match next {
                    Some((item, permit)) => service.take(item, permit).await,
                    None => break End::Input,
                },
            }
        };
        drop(input);
        match end {
            End::Input => tracing::info!("end of input"),
            End::OutputClosed => tracing::info!("stdout is closed"),
            End::Signal => tracing::info!("stopped by a signal"),
        }
        // Whoever ends the input and sends a signal at once, as a closed terminal does, has sent one signal.
        let mut seen = u32::from(matches!(end, End::Signal));
        let stop = service.supervisor.shutdown(StopOptions::default());
        let stopped = tokio::select! {
            stopped = stop => stopped,
            () = second(&mut signals, &mut seen) => {
                // The guard ends the host's tree when this process is gone.
                say("ended before the host had stopped");
                return Ok(exit::FAILED);
            }
        };
        let Self { supervisor, output, mut tasks, .. } = service;
        drop((supervisor, output));
        // Operations, turns and events end with the supervisor and hold the output until they are told; a panic in one
        // has lost its own lines and nothing else.
        tokio::spawn(async move { while tasks.join_next().await.is_some() {} });
        let mut lost = false;
        tokio::select! {
            written = writing.finish(LAST_LINES) => match written {
                Written::Done => {}
                Written::Stalled => tracing::warn!("nobody read the last lines on stdout"),
                Written::Failed(error) => {
                    say(format_args!("stdout cannot be written, its last lines are lost: {error}"));
                    lost = true;
                }
            },
            () = second(&mut signals, &mut seen) => {}
        }
        Ok(match stopped {
            Ok(summary) if summary.survivors.is_empty() => {
                if lost {
                    exit::FAILED
                } else {
                    exit::ENDED
                }
            }
            Ok(summary) => {
                say(format_args!("these processes could not be ended: {:?}", summary.survivors));
                exit::FAILED
            }
            Err(error) => {
                say(format_args!("the host did not stop: {}", error.message));
                exit::FAILED
            }
        })
    }

    /// Begins what a line asks for.
    async fn take(&mut self, item: Input, answer: OwnedSemaphorePermit) {
        let (id, op) = match read(item) {
            Ok(read) => read,
            Err(refusal) => return self.begin(send(self.output.clone(), refusal, answer)).await,
        };
        let permit = match Arc::clone(&self.open_calls).try_acquire_owned() {
            Ok(call) => call,
            Err(_) if op == Op::Status => answer,
            Err(_) => {
                let words = format!("{OPEN_CALLS} operations wait for their answers; wait for some of them");
                let error = CallError::new(ErrorKind::Overloaded, words);
                let refusal = answer::refused(Some(&id), &error);
                return self.begin(send(self.output.clone(), refusal, answer)).await;
            }
        };
        let call = Call { id, supervisor: self.supervisor.clone(), output: self.output.clone(), permit };
        self.begin(call.run(op)).await;
    }

    /// Polls once, so that what is asked is asked in the order of the input, and leaves the rest to a task.
    async fn begin(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
        // With a budget of the task's that is used up it would wait before it has asked for anything.
        let first = unconstrained(poll_fn(|context| Poll::Ready(work.as_mut().poll(context)))).await;
        if first.is_pending() {
            self.tasks.spawn(work);
        }
    }
}

/// Waits for the second signal of the program's life, of which `seen` came before.
async fn second(signals: &mut Signals, seen: &mut u32) {
    while *seen < 2 {
        signals.recv().await;
        *seen += 1;
    }
}

/// What a line asks for, or the answer that refuses it.
fn read(item: Input) -> Result<(OpId, Op), Vec<u8>> {
    match item {
        Input::Line(line) => op::parse(&line)
            .map_err(|bad| answer::refused(bad.id.as_ref(), &CallError::new(ErrorKind::Usage, bad.message))),
        Input::Oversize { bytes, head } => {
            let id = op::id_in_part(&head);
            // A line without an id is no operation; one with an id was one, and was too large.
            let kind = if id.is_some() { ErrorKind::TooLarge } else { ErrorKind::Usage };
            let error = CallError::new(kind, format!("a line of {bytes} bytes is over --max-frame-bytes"));
            Err(answer::refused(id.as_ref(), &error))
        }
    }
}

/// Takes the next line once its answer may wait and the supervisor can take it. What was taken is kept where the caller can find it when this future
/// is dropped.
async fn next_input(
    taken: &mut Option<Input>,
    input: &mut mpsc::Receiver<Input>,
    open_answers: &Arc<Semaphore>,
    supervisor: &HostSupervisor,
) -> Option<(Input, OwnedSemaphorePermit)> {
    if taken.is_none() {
        *taken = Some(input.recv().await?);
    }
    let permit = Arc::clone(open_answers).acquire_owned().await.ok()?;
    // Without it an operation would wait for its place in a task, and a later one could find it free.
    supervisor.room().await;
    Some((taken.take()?, permit))
}

async fn send(output: Output, line: Vec<u8>, permit: OwnedSemaphorePermit) {
    if output.send(line).await == Err(Closed) {
        // The main loop sees it too and ends the program.
    }
    drop(permit);
}

async fn forward_events(mut events: EventStream, output: Output) {
    while let Some(notice) = events.next().await {
        if let Some(line) = event::notice(&notice)
            && output.send(line).await.is_err()
        {
            return;
        }
    }
}

/// One operation.
struct Call {
    id: OpId,
    supervisor: HostSupervisor,
    output: Output,
    /// Given back when the answer is on its way.
    permit: OwnedSemaphorePermit,
}

impl Call {
    async fn run(self, op: Op) {
        let supervisor = &self.supervisor;
        let line = match op {
            Op::Start => self.answer(supervisor.start().await),
            Op::Status => self.answer(supervisor.status().await),
            Op::Seed(frame) => self.answer(supervisor.seed_json(frame.text).await.map(|seeded| Seeded {
                history_version: seeded.history_version,
                message_count: seeded.message_count,
            })),
            Op::SubmitTurn(frame) => match supervisor.submit_turn_json(frame.text).await {
                Ok(turn) => return self.stream(turn).await,
                Err(error) => answer::refused(Some(&self.id), &error),
            },
            Op::Interrupt { sid, turn_id } => self.answer(supervisor.interrupt(sid, turn_id).await),
            Op::Control { frame, timeout } => {
                self.answer_frame(supervisor.control_json(frame.text, timeout).await)
            }
            Op::ReloadMcp { frame, timeout } => {
                self.answer_frame(supervisor.reload_mcp_json(frame.text, timeout).await)
            }
            Op::Respond { frame, timeout } => {
                self.answer_frame(supervisor.respond_json(frame.text, timeout).await)
            }
            Op::Reset => {
                self.answer(supervisor.reset().await.map(|state| serde_json::json!({"state": state})))
            }
            Op::Restart { drain } => {
                let restarted = supervisor.restart(drain).await;
                self.answer(restarted.map(|ready| serde_json::json!({"incarnation": ready.incarnation})))
            }
            Op::Shutdown { drain, budget } => {
                self.answer(supervisor.shutdown(StopOptions { drain, budget }).await)
            }
        };
        send(self.output, line, self.permit).await;
    }

    /// The answer, and then the turn's events up to its end.
    async fn stream(self, mut turn: TurnHandle) {
        let phase = match turn.phase() {
            TurnPhase::Waiting => "waiting",
            TurnPhase::Sent | TurnPhase::Started | TurnPhase::Ended => "sent",
        };
        let request_id = turn.request_id().clone();
        let accepted = answer::done(&self.id, &Accepted { request_id: &request_id, phase });
        if self.output.send(accepted).await.is_err() {
            return;
        }
        drop(self.permit);
        // A slow reader makes this wait, and the turn's mailbox merges meanwhile.
        while let Some(event) = turn.next().await {
            if let Some(line) = event::turn(&request_id, &event)
                && self.output.send(line).await.is_err()
            {
                return;
            }
        }
    }

    fn answer<T: Serialize>(&self, outcome: Result<T, CallError>) -> Vec<u8> {
        match outcome {
            Ok(result) => answer::done(&self.id, &result),
            Err(error) => answer::refused(Some(&self.id), &error),
        }
    }

    /// The host's frame as it came, so that fields which nobody here knows arrive.
    fn answer_frame<T>(&self, outcome: Result<Wire<T>, CallError>) -> Vec<u8> {
        self.answer(outcome.map(|frame| RawJson::parse(frame.to_json()).ok()))
    }
}

#[derive(Serialize)]
struct Accepted<'a> {
    request_id: &'a RequestId,
    phase: &'static str,
}

#[derive(Serialize)]
struct Seeded {
    history_version: Option<u64>,
    message_count: Option<u64>,
}
