//! What passed between a test and a process, in order, and waiting for more of it.

use serde_json::Value;
use std::fmt::Write as _;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines that a failure shows.
const SHOWN_LINES: usize = 200;
/// Characters of each.
const SHOWN_CHARACTERS: usize = 400;

#[derive(Debug)]
pub(crate) struct Transcript {
    started: Instant,
    // A mutex and no channel: any number of waits look at the whole of it, again and again.
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Lines of stdout that are JSON objects.
    pub(crate) frames: Vec<Value>,
    /// Lines of stdout that are not.
    pub(crate) strays: Vec<Vec<u8>>,
    /// All of stderr.
    pub(crate) stderr: Vec<u8>,
    /// Bytes of stdout.
    pub(crate) stdout_bytes: u64,
    pub(crate) stdout_ended: bool,
    pub(crate) stderr_ended: bool,
    shown: std::collections::VecDeque<String>,
}

impl Transcript {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), held: Mutex::default(), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is held and wakes whoever waits.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Held)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Notes a line for people.
    pub(crate) fn show(&self, held: &mut Held, source: &str, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let cut: String = text.chars().take(SHOWN_CHARACTERS).collect();
        let more = if cut.len() < text.len() { format!("… ({} bytes)", line.len()) } else { String::new() };
        if held.shown.len() == SHOWN_LINES {
            held.shown.pop_front();
        }
        held.shown.push_back(format!("{:9.3} {source} {cut}{more}", self.started.elapsed().as_secs_f64()));
    }

    /// Takes one line of stdout.
    pub(crate) fn stdout_line(&self, line: &[u8]) {
        self.change(|held| {
            self.show(held, "out", line);
            held.stdout_bytes += line.len() as u64 + 1;
            match serde_json::from_slice::<Value>(line) {
                Ok(frame @ Value::Object(_)) => held.frames.push(frame),
                Ok(_) | Err(_) => held.strays.push(line.to_vec()),
            }
        });
    }

    /// Waits until `look` gives something; `Err` is the transcript after `deadline`, or once `over` says that
    /// nothing more can come.
    pub(crate) fn wait<T>(
        &self,
        deadline: Duration,
        mut look: impl FnMut(&Held) -> Option<T>,
        over: impl Fn(&Held) -> bool,
    ) -> Result<T, String> {
        let end = Instant::now() + deadline;
        let mut held = self.lock();
        loop {
            if let Some(found) = look(&held) {
                return Ok(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            if over(&held) || left.is_zero() {
                return Err(Self::text(&held));
            }
            held = self.changed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The transcript so far, for people.
    pub(crate) fn text(held: &Held) -> String {
        let mut text = String::from("transcript (seconds, stream, line):\n");
        for line in &held.shown {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}
