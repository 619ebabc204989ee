//! A front end for a terminal that stays responsive and unscribbled whatever its host does. To copy from.
//!
//! ```sh
//! cargo run --example tui                       # this very program is the host too, with the scripted agent
//! cargo run --example tui -- PROGRAM ARGS…      # any other host, as `turnhost host --agent openai`
//! ```
//!
//! Enter sends, Esc or Ctrl+C interrupts the turn, `q` on an empty line quits. The scripted agent echoes the prompt;
//! `flood`, `silence`, `noise`, `crash` and `ask` show what a host can do to a front end, and `panic` what this one may do itself.
#![expect(clippy::print_stderr, reason = "a program with a terminal says its last words there")]

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Position};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use turnhost_protocol::RawJson;
use turnhost_protocol::frame::{Respond, SessionSeed, TurnStart};
use turnhost_supervisor::blocking::{Events, HostSupervisor, TurnHandle};
use turnhost_supervisor::{Config, HostNotice, StopOptions, TurnEvent, TurnOutcome, guard_main};

const SID: &str = "tui";
/// Between two pictures, at most.
const FRAME: Duration = Duration::from_millis(33);
/// Events of a turn that are taken between two pictures. What does not come to its turn waits in the mailbox, where
/// neighbouring deltas become one: a flood costs memory and time up to a bound, and no key waits behind it.
const EVENTS_A_FRAME: usize = 256;
/// Bytes of text that are kept.
const KEPT: usize = 64 * 1024;

fn main() -> anyhow::Result<ExitCode> {
    // First thing: this program is also the guard that ends the host's processes if it dies itself.
    guard_main();
    let mut argv: Vec<_> = std::env::args_os().skip(1).collect();
    if argv == ["be-the-host"] {
        return turnhost_host::run_builtin(&turnhost_host::HostArgs::default());
    }
    if argv.is_empty() {
        argv = vec![std::env::current_exe()?.into_os_string(), "be-the-host".into()];
    }
    let supervisor = HostSupervisor::new(Config::new(argv))?;
    // Before the screen is taken, so that a host that does not start is a line on stderr. What is seeded once, the
    // supervisor seeds again after a crash, with all that was said since.
    supervisor.seed(SessionSeed {
        sid: Some(SID.into()),
        history: Some(Vec::new()),
        ..SessionSeed::default()
    })?;
    // From here on a panic restores the terminal before it speaks.
    let terminal = ratatui::init();
    let ended = App::new(supervisor.clone()).run(terminal);
    ratatui::restore();
    // Open turns end, and so does everything that the host started.
    let stopped = supervisor.shutdown(StopOptions::default())?;
    eprintln!("host ended with {:?}; left behind: {:?}", stopped.exit_code, stopped.survivors);
    ended.map(|()| ExitCode::SUCCESS)
}

struct App {
    supervisor: HostSupervisor,
    events: Events,
    turn: Option<TurnHandle>,
    /// The `approval_id` of a question that waits for `y` or `n`.
    question: Option<String>,
    interrupted: bool,
    transcript: Transcript,
    input: String,
    pieces: u64,
    strays: u64,
}

impl App {
    fn new(supervisor: HostSupervisor) -> Self {
        Self {
            events: supervisor.events(),
            supervisor,
            turn: None,
            question: None,
            interrupted: false,
            transcript: Transcript::default(),
            input: String::new(),
            pieces: 0,
            strays: 0,
        }
    }

    fn run(mut self, mut terminal: DefaultTerminal) -> anyhow::Result<()> {
        loop {
            self.take_events();
            terminal.draw(|frame| self.draw(frame))?;
            // Every key that is there, else whatever comes first: a key or the time for the next picture.
            let mut wait = FRAME;
            while event::poll(wait)? {
                wait = Duration::ZERO;
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                    && self.key(key)
                {
                    return Ok(());
                }
            }
        }
    }

    /// Takes what has come, and waits for nothing.
    fn take_events(&mut self) {
        while let Some(notice) = self.events.next_within(Duration::ZERO) {
            // The state is looked up when it is drawn; what else a host says of itself is counted.
            if let HostNotice::Stray { .. } | HostNotice::ProtocolError { .. } = notice {
                self.strays += 1;
            }
        }
        for _ in 0..EVENTS_A_FRAME {
            let Some(event) = self.turn.as_mut().and_then(TurnHandle::try_next) else { return };
            self.take(event);
        }
    }

    fn take(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::Delta(delta) => {
                self.pieces += delta.pieces;
                self.transcript.push(&delta.text);
            }
            TurnEvent::Event(frame) if frame.kind == "approval_request" => {
                let question: serde_json::Value = serde_json::from_str(frame.to_json()).unwrap_or_default();
                self.question = question["approval_id"].as_str().map(str::to_owned);
                self.note(&format!("may it run {}? y or n", question["command"]));
            }
            TurnEvent::Lagged { bytes, .. } => self.note(&format!("{bytes} bytes came too fast to be shown")),
            TurnEvent::SessionLost { .. } => self.note("the host does not know what was said before"),
            TurnEvent::Ended(outcome) => {
                self.turn = None;
                self.question = None;
                match outcome {
                    TurnOutcome::Completed(_) => self.transcript.push("\n"),
                    TurnOutcome::Interrupted(_) => self.note("interrupted"),
                    TurnOutcome::Failed(error) => {
                        self.note(&format!("{}: {}", error.fail_reason(), error.message));
                    }
                }
            }
            // Its start, thoughts, tool calls, usage, and what later versions add.
            _ => {}
        }
    }

    /// True if it asks to quit.
    fn key(&mut self, key: KeyEvent) -> bool {
        match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
            (KeyCode::Esc, _) | (KeyCode::Char('c'), true) => self.interrupt(),
            (KeyCode::Char('q'), false) if self.input.is_empty() => return true,
            (KeyCode::Char(choice @ ('y' | 'n')), false) if self.question.is_some() => self.answer(choice),
            (KeyCode::Char(character), false) => self.input.push(character),
            (KeyCode::Backspace, _) => {
                self.input.pop();
            }
            (KeyCode::Enter, _) if self.turn.is_none() && !self.input.is_empty() => self.submit(),
            _ => {}
        }
        false
    }

    fn submit(&mut self) {
        let prompt = std::mem::take(&mut self.input);
        self.transcript.push(&format!("> {prompt}\n"));
        let turn = TurnStart {
            sid: Some(SID.into()),
            script: script(&prompt),
            text: Some(prompt),
            ..TurnStart::default()
        };
        // It waits for the supervisor's own thread and never for a pipe or the host: a turn that comes while there is
        // no host waits in the supervisor.
        match self.supervisor.submit_turn(turn) {
            Ok(turn) => (self.turn, self.interrupted, self.pieces) = (Some(turn), false, 0),
            Err(error) => self.note(&error.to_string()),
        }
    }

    fn interrupt(&mut self) {
        let Some(turn) = self.turn.as_ref().filter(|_| !self.interrupted) else { return };
        self.interrupted = true;
        let (supervisor, sid, id) = (self.supervisor.clone(), turn.sid().clone(), turn.request_id().clone());
        // It waits for the host's word, so not on this thread; what comes of it, the end of the turn tells.
        std::thread::spawn(move || supervisor.interrupt(sid, Some(id)));
    }

    fn answer(&mut self, choice: char) {
        let answer = Respond {
            sid: Some(SID.into()),
            approval_id: self.question.take(),
            choice: Some(if choice == 'y' { "once" } else { "deny" }.into()),
            ..Respond::default()
        };
        let supervisor = self.supervisor.clone();
        std::thread::spawn(move || supervisor.respond(answer, Duration::from_secs(30)));
    }

    fn note(&mut self, text: &str) {
        self.transcript.push(&format!("\n[{text}]\n"));
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let rows = [Constraint::Min(0), Constraint::Length(1), Constraint::Length(1)];
        let [text, status, input] = Layout::vertical(rows).areas(frame.area());
        frame
            .render_widget(Paragraph::new(self.transcript.tail(text.width.into(), text.height.into())), text);
        frame.render_widget(Paragraph::new(self.status()).style(Style::new().reversed()), status);
        // The end of a line that is too long is what one types at.
        let line = Line::raw(format!("> {}", self.input));
        let end = u16::try_from(line.width()).unwrap_or(u16::MAX);
        let cut = end.saturating_sub(input.width.saturating_sub(1));
        frame.render_widget(Paragraph::new(line).scroll((0, cut)), input);
        frame.set_cursor_position(Position::new(input.x + end - cut, input.y));
    }

    fn status(&self) -> String {
        // A value that the supervisor publishes: nobody is asked.
        let host = self.supervisor.state();
        let turn = match (&self.turn, self.interrupted) {
            (None, _) => "idle".to_owned(),
            (Some(_), false) => format!("running, {} pieces", self.pieces),
            (Some(_), true) => format!("interrupting, {} pieces", self.pieces),
        };
        let strays = if self.strays > 0 { format!(" | {} stray lines", self.strays) } else { String::new() };
        format!(
            " {turn} | host {:?}, incarnation {}{strays} | Esc interrupts, q quits",
            host.state, host.incarnation
        )
    }
}

/// The last [`KEPT`] bytes of the conversation.
#[derive(Default)]
struct Transcript(String);

impl Transcript {
    /// Adds text. Control characters are no text: an escape sequence of an agent must not reach the terminal.
    fn push(&mut self, text: &str) {
        let skip = text.len().saturating_sub(KEPT);
        let tail = text.get(text.ceil_char_boundary(skip)..).unwrap_or_default();
        self.0.extend(tail.chars().filter(|character| *character == '\n' || !character.is_control()));
        if self.0.len() > 2 * KEPT {
            self.0.drain(..self.0.ceil_char_boundary(self.0.len() - KEPT));
        }
    }

    /// As many of the last lines as fit, each cut where the screen ends.
    fn tail(&self, width: usize, height: usize) -> Vec<Line<'_>> {
        let mut rows: Vec<Line<'_>> = Vec::new();
        for line in self.0.lines().rev().take(height) {
            let (mut start, mut used, mut pieces) = (0, 0, Vec::new());
            for (at, character) in line.char_indices() {
                let cells = Span::raw(&line[at..at + character.len_utf8()]).width();
                if used + cells > width && at > start {
                    pieces.push(Line::raw(&line[start..at]));
                    (start, used) = (at, 0);
                }
                used += cells;
            }
            pieces.push(Line::raw(&line[start..]));
            rows.extend(pieces.into_iter().rev());
        }
        rows.truncate(height);
        rows.reverse();
        rows
    }
}

/// What the scripted agent is to do for a few words; other agents do not look at it.
fn script(prompt: &str) -> Option<RawJson> {
    let steps = match prompt {
        "flood" => json!([{"deltas": 1_000_000_000, "bytes": 4096}]),
        "silence" => json!([{"sleep_ms": 600_000}]),
        "noise" => json!([
            {"stdout": "scribble on stdout\n"}, {"stderr": "scribble on stderr\n"},
            {"raw_frame": "\\x1b[2Jscribble among the frames\n"}, {"delta": "\u{1b}[2Jthat was loud"},
        ]),
        "crash" => json!([{"delta": "one moment"}, {"signal": "KILL"}]),
        "ask" => json!([{"ask": {"command": "rm -r build", "choices": ["once", "deny"]}}]),
        // To show what becomes of the terminal and the host.
        "panic" => panic!("as you wish"),
        _ => return None,
    };
    RawJson::from_value(&steps).ok()
}
