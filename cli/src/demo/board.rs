//! The play on a terminal: a few lines that are drawn again in place. Pure: what was seen goes in, bytes come out.
//!
//! The lines are ASCII, so that every character is one column wide in every terminal.

use crate::demo::cast::{HostName, Session, Turn};
use crate::demo::claims::Claim;
use crate::demo::observed::{Ending, Event, Observed, State};
use crate::demo::tell::{Line, Teller};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;
use turnhost_supervisor::HostState;

/// Lines of news that are kept.
const NEWS: usize = 8;
/// Characters of an answer that are kept: as many as fit any terminal.
const TEXT: usize = 512;

/// Columns and rows of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub columns: usize,
    pub rows: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Busy,
    Bad,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Busy => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

type Span = (Style, String);

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct Board {
    hosts: [HostRow; HostName::ALL.len()],
    sessions: [SessionRow; Session::ALL.len()],
    teller: Teller,
    news: VecDeque<(Duration, String)>,
}

#[derive(Debug, Default)]
struct HostRow {
    state: Option<State>,
    left: Option<Duration>,
}

#[derive(Debug, Default)]
struct SessionRow {
    turn: Option<Turn>,
    words: usize,
    text: String,
    phase: Phase,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    Streaming,
    Asking,
    Done(String),
    Failed(String),
}

impl Board {
    /// Takes what was seen so long after the beginning.
    pub(super) fn observe(&mut self, observed: &Observed, at: Duration) {
        for line in self.teller.tell(observed) {
            match line {
                // The lines of hosts and sessions show these by themselves.
                Line::Text(_) => {}
                Line::News(_) if matches!(observed, Observed::Countdown { .. } | Observed::Seeded { .. }) => {
                }
                Line::News(news) => {
                    self.news.push_back((at, news));
                    if self.news.len() > NEWS {
                        self.news.pop_front();
                    }
                }
            }
        }
        match observed {
            Observed::State { host, state } => {
                let row = &mut self.hosts[index(&HostName::ALL, *host)];
                *row = HostRow { state: Some(*state), left: None };
            }
            Observed::Countdown { host, left } => {
                self.hosts[index(&HostName::ALL, *host)].left = Some(*left);
            }
            Observed::Submitted(turn) => {
                self.sessions[index(&Session::ALL, turn.session)] =
                    SessionRow { turn: Some(*turn), ..SessionRow::default() };
            }
            Observed::Turn { turn, event } => self.sessions[index(&Session::ALL, turn.session)].take(event),
            Observed::Seeded { .. }
            | Observed::Killed { .. }
            | Observed::Allowed(_)
            | Observed::Refused(_)
            | Observed::Stopping
            | Observed::Stopped { .. }
            | Observed::Left(_) => {}
        }
    }

    /// The lines for a terminal of this size; fewer than it has rows.
    pub(super) fn lines(&self, size: Size, at: Duration, colour: bool) -> Vec<String> {
        let mut lines = vec![vec![
            (Style::Bold, "turnhost demo".to_owned()),
            (Style::Dim, format!("  {:.1} s", at.as_secs_f64())),
        ]];
        for (host, row) in HostName::ALL.into_iter().zip(&self.hosts) {
            lines.push(row.spans(host));
            for session in host.sessions() {
                lines.push(self.sessions[index(&Session::ALL, session)].spans(session, size.columns));
            }
        }
        let room = size.rows.saturating_sub(1);
        if room > lines.len() + 1 && !self.news.is_empty() {
            let fit = self.news.len().min(room - lines.len() - 1);
            lines.push(Vec::new());
            for (when, news) in self.news.iter().skip(self.news.len() - fit) {
                lines.push(vec![
                    (Style::Dim, format!("{:5.1} s  ", when.as_secs_f64())),
                    (Style::Plain, news.clone()),
                ]);
            }
        }
        lines.truncate(room.max(1));
        // One column stays free: a full line would wrap in some terminals.
        let columns = size.columns.saturating_sub(1).max(1);
        lines.iter().map(|spans| render(spans, columns, colour)).collect()
    }
}

impl HostRow {
    fn spans(&self, host: HostName) -> Vec<Span> {
        let mut spans = vec![(Style::Bold, format!("{host:8}"))];
        let Some(state) = self.state else {
            spans.push((Style::Dim, "not started".to_owned()));
            return spans;
        };
        let (style, word) = match state.state {
            HostState::Stopped => (Style::Dim, "stopped"),
            HostState::Starting => (Style::Busy, "starting"),
            HostState::Ready => (Style::Good, "ready"),
            HostState::BackingOff => (Style::Bad, "down"),
            HostState::CrashLooped => (Style::Bad, "crash-looped"),
            HostState::Draining => (Style::Dim, "stopping"),
        };
        spans.push((style, format!("{word:10}")));
        match (self.left, state.pid) {
            (Some(left), _) => spans.push((Style::Busy, format!("new host in {:.1} s", left.as_secs_f64()))),
            (None, Some(pid)) => {
                spans.push((Style::Dim, format!("host {}, pid {pid}", state.incarnation)));
            }
            (None, None) => {}
        }
        spans
    }
}

impl SessionRow {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Started => self.phase = Phase::Streaming,
            Event::Delta(text) => {
                self.phase = Phase::Streaming;
                self.words += 1;
                self.text.push_str(text);
                if let Some((cut, _)) = self.text.char_indices().rev().nth(TEXT) {
                    self.text.drain(..cut);
                }
            }
            Event::Question(_) => self.phase = Phase::Asking,
            Event::Ended(Ending::Completed { messages }) => {
                let messages = messages.map(|n| format!("{n} messages")).unwrap_or_default();
                self.phase = Phase::Done(messages);
            }
            Event::Ended(Ending::Interrupted) => self.phase = Phase::Failed("interrupted".to_owned()),
            Event::Ended(Ending::Failed { reason, .. }) => self.phase = Phase::Failed(reason.to_string()),
            Event::SessionLost | Event::Other => {}
        }
    }

    fn spans(&self, session: Session, columns: usize) -> Vec<Span> {
        let mut spans = vec![(Style::Plain, format!("  {session:6}"))];
        let Some(turn) = self.turn else { return spans };
        let (style, word) = match &self.phase {
            Phase::Waiting => (Style::Dim, "waits"),
            Phase::Streaming => (Style::Busy, "streams"),
            Phase::Asking => (Style::Busy, "asks"),
            Phase::Done(messages) => (Style::Good, messages.as_str()),
            Phase::Failed(reason) => (Style::Bad, reason.as_str()),
        };
        let bar = (columns / 5).clamp(4, 20);
        let whole = turn.word_count().max(1);
        let done =
            if matches!(self.phase, Phase::Done(_)) { bar } else { bar * self.words.min(whole) / whole };
        spans.push((Style::Plain, format!("turn {}  [", turn.number())));
        spans.push((style, format!("{:.<bar$}", "#".repeat(done))));
        spans.push((Style::Plain, "] ".to_owned()));
        spans.push((style, format!("{word:11} ")));
        let used: usize = spans.iter().map(|(_, text)| text.len()).sum();
        let room = columns.saturating_sub(used + 1);
        let skip = self.text.chars().count().saturating_sub(room);
        spans.push((Style::Dim, self.text.chars().skip(skip).collect()));
        spans
    }
}

fn index<T: PartialEq>(all: &[T], of: T) -> usize {
    all.iter().position(|one| *one == of).unwrap_or_default()
}

/// One line, at most so many columns; what cannot be shown in one column each is shown as `?`.
fn render(spans: &[Span], columns: usize, colour: bool) -> String {
    let mut line = String::new();
    let mut room = columns;
    for (style, text) in spans {
        let text: String = text
            .chars()
            .take(room)
            .map(|character| if (' '..='~').contains(&character) { character } else { '?' })
            .collect();
        room -= text.chars().count();
        if colour && *style != Style::Plain && !text.is_empty() {
            let _ = write!(line, "{}{text}\x1b[0m", style.code());
        } else {
            line.push_str(&text);
        }
    }
    line
}

/// The line of a claim.
pub(super) fn claim(claim: &Claim, colour: bool) -> String {
    let (style, word) = if claim.holds { (Style::Good, "ok") } else { (Style::Bad, "missing") };
    let spans = [
        (style, format!("{word:8}")),
        (Style::Plain, format!("{:14}", claim.name)),
        (Style::Plain, claim.text.to_owned()),
    ];
    render(&spans, usize::MAX, colour)
}

/// Draws lines over those it drew before.
#[derive(Debug, Default)]
pub(super) struct Painter {
    drawn: Option<(usize, Size)>,
}

impl Painter {
    /// The bytes that show `lines`, with the cursor below them.
    pub(super) fn paint(&mut self, lines: &[String], size: Size) -> Vec<u8> {
        let mut out = String::new();
        match self.drawn {
            // Where the old lines are now is the terminal's secret: some break long lines anew, some do not.
            Some((_, old)) if old != size => out.push_str("\x1b[2J\x1b[H"),
            Some((0, _)) | None => {}
            Some((drawn, _)) => {
                let _ = write!(out, "\x1b[{drawn}A\r");
            }
        }
        for line in lines {
            out.push_str(line);
            out.push_str("\x1b[K\r\n");
        }
        out.push_str("\x1b[J");
        self.drawn = Some((lines.len(), size));
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests;
