//! Where the play is shown: stdout as JSON lines, as plain lines, or as lines that are drawn again in place.

use crate::demo::board::{self, Board, Painter, Size};
use crate::demo::claims::Claim;
use crate::demo::line;
use crate::demo::observed::Observed;
use crate::demo::tell::{Line, Teller};
use crate::output::Output;
use rustix::termios::tcgetwinsize;
use std::fs::File;
use std::time::{Duration, Instant};

/// What a terminal is taken for that does not say how big it is.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// How it is shown.
#[derive(Debug)]
pub(super) enum Form {
    Json,
    Plain(Teller),
    Live(Box<Live>),
}

#[derive(Debug)]
pub(super) struct Live {
    board: Board,
    painter: Painter,
    terminal: File,
    colour: bool,
}

impl Form {
    /// Lines that are drawn again on this terminal.
    pub(super) fn live(terminal: File, colour: bool) -> Self {
        let live = Live { board: Board::default(), painter: Painter::default(), terminal, colour };
        Self::Live(Box::new(live))
    }
}

/// Shows what was seen, as soon as it was.
#[derive(Debug)]
pub(super) struct Screen {
    form: Form,
    /// `None` once nobody reads.
    output: Option<Output>,
    started: Instant,
}

impl Screen {
    pub(super) fn new(form: Form, output: Output) -> Self {
        Self { form, output: Some(output), started: Instant::now() }
    }

    /// Time since the beginning.
    pub(super) fn at(&self) -> Duration {
        self.started.elapsed()
    }

    /// Shows it; `json` is its line if it is a host's or a turn's. Waits while stdout takes nothing.
    pub(super) async fn observe(&mut self, observed: &Observed, json: Option<Vec<u8>>) {
        let at = self.at();
        let bytes = match &mut self.form {
            Form::Json => json.or_else(|| line::own(at, observed)).unwrap_or_default(),
            Form::Plain(teller) => {
                let told = teller.tell(observed).into_iter();
                let lines = told.map(|line| {
                    let (Line::News(text) | Line::Text(text)) = line;
                    format!("{:5.1} s  {text}\n", at.as_secs_f64())
                });
                lines.collect::<String>().into_bytes()
            }
            Form::Live(live) => {
                live.board.observe(observed, at);
                Vec::new()
            }
        };
        self.write(bytes).await;
    }

    /// Draws anew, where that is the form.
    pub(super) async fn draw(&mut self) {
        let at = self.at();
        if let Form::Live(live) = &mut self.form {
            let size = size(&live.terminal);
            let lines = live.board.lines(size, at, live.colour);
            let bytes = live.painter.paint(&lines, size);
            self.write(bytes).await;
        }
    }

    /// The end: every claim and whether it holds.
    pub(super) async fn claims(&mut self, claims: &[Claim]) {
        self.draw().await;
        let (json, colour) = match &self.form {
            Form::Json => (true, false),
            Form::Plain(_) => (false, false),
            Form::Live(live) => (false, live.colour),
        };
        let mut bytes = if json { Vec::new() } else { b"\n".to_vec() };
        for claim in claims {
            if json {
                bytes.extend(line::claim(claim));
            } else {
                bytes.extend(board::claim(claim, colour).into_bytes());
                bytes.push(b'\n');
            }
        }
        if json {
            bytes.extend(line::verdict(claims.iter().all(|claim| claim.holds)));
        }
        self.write(bytes).await;
    }

    async fn write(&mut self, bytes: Vec<u8>) {
        if let Some(output) = self.output.as_ref().filter(|_| !bytes.is_empty())
            && output.send(bytes).await.is_err()
        {
            // The play goes on: whether it succeeds is for the exit code to say.
            self.output = None;
        }
    }
}

fn size(terminal: &File) -> Size {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            Size { columns: size.ws_col.into(), rows: size.ws_row.into() }
        }
        Ok(_) | Err(_) => USUAL,
    }
}
