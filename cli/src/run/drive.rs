//! The driver of `turnhost run`: one supervisor, one turn, stdout, signals and the clock. What each of them means is
//! [`super::course`]'s to say.

use crate::output::{self, Closed, Output, ReaderGone, Written};
use crate::run::Turn;
use crate::run::course::{Act, Course, Ended, Happening};
use crate::run::text::Text;
use crate::signals::{Asked, Signals};
use crate::supervise::event;
use crate::{exit, say};
use std::io::IsTerminal as _;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use turnhost_protocol::frame::{Respond, TurnError};
use turnhost_protocol::{FailReason, RawJson};
use turnhost_supervisor::config::EnvPolicy;
use turnhost_supervisor::{
    CallError, Config, EventStream, HostState, HostSupervisor, StateWatch, StopOptions, TurnEvent,
    TurnHandle, TurnOutcome,
};

/// The one session.
const SID: &str = "run";
/// What an interrupted turn may take after `--timeout`: the exec agent's SIGINT, 2 s, SIGTERM, 2 s, SIGKILL, and some.
const INTERRUPT_GRACE: Duration = Duration::from_secs(6);
/// What a stop may take; the host itself takes 1 s to end a turn that does not obey.
const STOP_BUDGET: Duration = Duration::from_secs(10);
/// Waiting for longer than this is explained, where a person watches.
const PATIENCE: Duration = Duration::from_secs(1);
/// A mailbox that holds what a reader of stdout who pauses would miss.
const MAILBOX_BYTES: usize = 64 * 1024 * 1024;

/// Runs the turn; gives the exit code.
pub(super) fn run(turn: Turn) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(format_args!("no runtime: {error}"));
            return exit::UNAVAILABLE;
        }
    };
    let code = runtime.block_on(async {
        match drive(turn).await {
            Ok(code) => code,
            Err(Failure::Io(error)) => {
                say(format_args!("cannot watch stdout and signals: {error}"));
                exit::UNAVAILABLE
            }
            Err(Failure::Call(error)) => {
                say(format_args!("no turn was run: {}: {}", error.kind, error.message));
                exit::for_kind(error.kind)
            }
        }
    });
    // A blocked thread of the runtime would hold up the end; there is nothing left to wait for.
    runtime.shutdown_background();
    code
}

enum Failure {
    Io(std::io::Error),
    Call(CallError),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

fn config(turn: &Turn) -> std::io::Result<Config> {
    let program = std::env::current_exe()?.into_os_string();
    let mut config = Config::new([program, "host".into()]);
    config.cwd = turn.cwd.clone();
    // The agent is the person's own, and needs what the person's shell has.
    config.env_policy = EnvPolicy::Inherit;
    config.mailbox_bytes = MAILBOX_BYTES;
    Ok(config)
}

async fn drive(turn: Turn) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    let stdout = output::stdout()?;
    let terminal = stdout.is_terminal();
    let mut reader_gone = ReaderGone::watch(&stdout)?;
    let (output, writing) = Output::start(stdout)?;
    let supervisor = HostSupervisor::new(config(&turn)?)?;
    if turn.json {
        tokio::spawn(forward_notices(supervisor.events(), output.clone()));
    }
    let deadline = turn.timeout.map(|limit| Instant::now() + limit);

    let mut fields = turn.frame;
    fields.insert("sid".into(), SID.into());
    let fields = RawJson::from_value(&fields).map_err(std::io::Error::from)?;
    let handle = supervisor.submit_turn_json(fields).await?;
    let request_id = handle.request_id().clone();
    let (begun, has_begun) = watch::channel(false);
    let show =
        Show { json: turn.json, terminal, output: output.clone(), supervisor: supervisor.clone(), begun };
    let mut shown = tokio::spawn(show.turn(handle));
    let progress = tokio::spawn(explain_waiting(supervisor.watch(), has_begun));

    let mut course = Course::default();
    let mut timed_out = false;
    let mut grace_over = None;
    let mut stop_budget = STOP_BUDGET;
    let outcome = loop {
        let happening = tokio::select! {
            biased;
            asked = signals.recv() => match asked {
                Asked::Interrupt => Happening::Interrupt,
                Asked::Terminate => Happening::Terminate,
            },
            () = reader_gone.wait() => Happening::OutputClosed,
            shown = &mut shown => {
                if matches!(shown, Ok(Err(Closed))) {
                    course.take(Happening::OutputClosed);
                }
                break shown.ok().and_then(Result::ok);
            },
            () = at(deadline), if !timed_out => {
                timed_out = true;
                Happening::Timeout
            }
            () = at(grace_over) => Happening::GraceOver,
        };
        match course.take(happening) {
            Act::InterruptTurn => {
                if happening == Happening::Timeout {
                    grace_over = Some(Instant::now() + INTERRUPT_GRACE);
                } else if std::io::stderr().is_terminal() {
                    say("interrupting the turn; Ctrl+C again ends it at once");
                }
                let (supervisor, turn) = (supervisor.clone(), request_id.clone());
                // Its answer adds nothing: the turn's end tells.
                tokio::spawn(async move { supervisor.interrupt(SID.into(), Some(turn)).await });
            }
            Act::Stop => break None,
            Act::Kill => {
                stop_budget = Duration::ZERO;
                break None;
            }
            Act::Nothing => {}
        }
    };

    progress.abort();

    stop(&supervisor, stop_budget, &mut signals).await;
    drop((supervisor, output));
    let mut outcome = outcome;
    let told = async {
        if outcome.is_none() && !shown.is_finished() {
            // The stop has ended the turn; what it still had to say is said, if stdout takes it.
            outcome = shown.await.ok().and_then(Result::ok);
        }
        // Turn and events end with the supervisor and hold the output until they are told. A slow reader is waited
        // for: it is a pager, or a person who has stopped the terminal.
        writing.finish(Duration::MAX).await
    };
    let written = tokio::select! {
        biased;
        written = told => written,
        () = reader_gone.wait() => Written::Done,
        _ = signals.recv() => Written::Stalled,
    };
    let ended = outcome.as_ref().map_or(Ended::Abandoned, ended);
    let code = course.exit_code(ended, turn.propagate_exit);
    if let Some(TurnOutcome::Failed(error)) = &outcome
        && !course.is_asked_for()
    {
        report(error);
    }
    if code == exit::TIMEOUT {
        say("--timeout ran out; the turn was interrupted");
    }
    if let Written::Failed(error) = written {
        say(format_args!("stdout cannot be written, a part of the answer is lost: {error}"));
        return Ok(if code == exit::ENDED { exit::FAILED } else { code });
    }
    Ok(code)
}

fn ended(outcome: &TurnOutcome) -> Ended {
    match outcome {
        TurnOutcome::Completed(_) => Ended::Completed { interrupted: false },
        TurnOutcome::Interrupted(_) => Ended::Completed { interrupted: true },
        TurnOutcome::Failed(error) => {
            let reason = error.fail_reason();
            let program = (reason == FailReason::AgentExit)
                .then(|| exit::of_program(error.exit_code, error.signal))
                .flatten();
            Ended::Failed { reason, program }
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Stops the host. A signal meanwhile ends the wait: the guard ends the host's tree when this process is gone.
async fn stop(supervisor: &HostSupervisor, budget: Duration, signals: &mut Signals) {
    let stopping = supervisor.shutdown(StopOptions { drain: Duration::ZERO, budget });
    let patience = async {
        sleep(PATIENCE).await;
        if std::io::stderr().is_terminal() {
            say("stopping the host");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        stopped = stopping => match stopped {
            Ok(summary) if summary.survivors.is_empty() => {}
            Ok(summary) => say(format_args!("these processes could not be ended: {:?}", summary.survivors)),
            Err(error) => say(format_args!("the host did not stop: {}", error.message)),
        },
        _ = signals.recv() => {}
        () = patience => {}
    }
}

/// Says what is waited for, once it takes longer than a moment, to a person.
async fn explain_waiting(mut state: StateWatch, mut has_begun: watch::Receiver<bool>) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let explain = async {
        sleep(PATIENCE).await;
        let mut told = None;
        loop {
            let now = state.current().state;
            if told != Some(now) {
                told = Some(now);
                match now {
                    HostState::Starting => say("starting the host"),
                    HostState::BackingOff => say("the host failed; starting another one soon"),
                    HostState::Ready => say("waiting for the agent; Ctrl+C interrupts it"),
                    HostState::Stopped | HostState::CrashLooped | HostState::Draining => {}
                }
            }
            if state.changed().await.is_none() {
                return;
            }
        }
    };
    tokio::select! {
        () = explain => {}
        // The sender goes with the turn.
        _ = has_begun.wait_for(|begun| *begun) => {}
    }
}

async fn forward_notices(mut events: EventStream, output: Output) {
    while let Some(notice) = events.next().await {
        if let Some(line) = event::notice(&notice)
            && output.send(line).await.is_err()
        {
            return;
        }
    }
}

/// Shows a turn on stdout.
struct Show {
    json: bool,
    terminal: bool,
    output: Output,
    supervisor: HostSupervisor,
    begun: watch::Sender<bool>,
}

impl Show {
    async fn turn(self, mut turn: TurnHandle) -> Result<TurnOutcome, Closed> {
        let mut text = Text::default();
        while let Some(event) = turn.next().await {
            let piece = if self.json {
                event::turn(turn.request_id(), &event)
            } else {
                self.text(&event, &mut text).map(str::to_owned).map(String::into_bytes)
            };
            if let Some(piece) = piece.filter(|piece| !piece.is_empty()) {
                self.begun.send_replace(true);
                self.output.send(piece).await?;
            }
            match event {
                TurnEvent::Ended(outcome) => {
                    if self.terminal && !self.json && text.leaves_line_open() {
                        self.output.send(b"\n".to_vec()).await?;
                    }
                    if text.has_gap() {
                        say("stdout was read so slowly that a part of the answer is missing");
                    }
                    return Ok(outcome);
                }
                TurnEvent::Event(frame) if frame.kind == "approval_request" => self.deny(frame.to_json()),
                TurnEvent::Event(frame) if frame.kind == "status" && !self.json => tell(frame.to_json()),
                _ => {}
            }
        }
        debug_assert!(false, "a turn ends once before its events do");
        Err(Closed)
    }

    fn text<'a>(&self, event: &'a TurnEvent, text: &mut Text) -> Option<&'a str> {
        match event {
            TurnEvent::Delta(delta) => Some(text.delta(&delta.text)),
            TurnEvent::Lagged { .. } => {
                text.lagged();
                None
            }
            TurnEvent::Ended(TurnOutcome::Completed(end) | TurnOutcome::Interrupted(end)) => {
                Some(text.end(end.final_response.as_deref()))
            }
            _ => None,
        }
    }

    /// Nobody is there to be asked, and waiting for the question's timeout would come to the same.
    fn deny(&self, question: &str) {
        #[derive(serde::Deserialize)]
        struct Question {
            approval_id: String,
            #[serde(default)]
            command: String,
        }
        let Ok(question) = serde_json::from_str::<Question>(question) else { return };
        say(format_args!(
            "denied, because a headless turn has nobody to ask: {:?}; use turnhost supervise to answer questions",
            question.command
        ));
        let answer = Respond {
            sid: Some(SID.into()),
            approval_id: Some(question.approval_id),
            choice: Some("deny".into()),
            ..Respond::default()
        };
        let supervisor = self.supervisor.clone();
        // The turn goes on by what the host makes of it.
        tokio::spawn(async move { supervisor.respond(answer, Duration::from_secs(30)).await });
    }
}

/// A line of the agent for people: that it waits and tries again, for instance.
fn tell(status: &str) {
    #[derive(serde::Deserialize)]
    struct Status {
        text: String,
    }
    if let Ok(Status { text }) = serde_json::from_str(status) {
        say(text.replace(char::is_control, " "));
    }
}

/// Why the turn failed, what the failed program said last, and what to do.
fn report(error: &TurnError) {
    let reason = error.fail_reason();
    for line in error.stderr_tail.iter().flatten() {
        say(format_args!("| {line}"));
    }
    say(format_args!("the turn failed: {reason}: {}", error.message));
    let advice = match reason {
        FailReason::Crash | FailReason::Hung => {
            Some("the turn was not run again; run it again if that is safe. TURNHOST_LOG=debug shows more")
        }
        FailReason::Unavailable | FailReason::CrashLoop => {
            Some("no host could be started; try `turnhost host` by itself, and TURNHOST_LOG=debug")
        }
        FailReason::FrameTooLarge | FailReason::Protocol => {
            Some("the host broke the protocol; TURNHOST_LOG=debug shows where")
        }
        FailReason::Busy
        | FailReason::BadRequest
        | FailReason::Exception
        | FailReason::AgentExit
        | FailReason::Shutdown
        | FailReason::Dropped => None,
    };
    if let Some(advice) = advice {
        say(advice);
    }
}
