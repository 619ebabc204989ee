//! A terminal for programs under test: what they write is on a screen, and keys go to them.

use crate::launch::Launch;
use crate::process::Process;
use crate::scenario::Scenario;
use crate::wait::DEADLINE;
use nix::pty::Winsize;
use rustix::termios::{LocalModes, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The screen and the keyboard of a program under test. Every wait fails with what the screen shows.
pub struct Terminal {
    master: File,
    screen: Arc<Screen>,
}

struct Screen {
    // A mutex and no channel: any number of waits look at the whole of it, again and again.
    held: Mutex<Held>,
    changed: Condvar,
}

struct Held {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    ended: bool,
}

impl Screen {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, bytes: &[u8]) {
        let mut held = self.lock();
        held.parser.process(bytes);
        held.bytes.extend_from_slice(bytes);
        held.ended = bytes.is_empty();
        self.changed.notify_all();
    }
}

impl Terminal {
    /// Opens a terminal of this size (columns and rows) and starts a program in it as the leader of a session of its
    /// own; `prepare` adds the program and its arguments. Its environment has a `TERM` and no `NO_COLOR`.
    ///
    /// # Panics
    /// If there is no terminal or no such program.
    #[track_caller]
    pub fn start(
        scenario: &Scenario,
        (columns, rows): (u16, u16),
        prepare: impl FnOnce(Launch) -> Launch,
    ) -> (Self, Process) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = worked("open a terminal", nix::pty::openpty(Some(&size), None));
        let parser = vt100::Parser::new(cells(rows), cells(columns), 0);
        let held = Mutex::new(Held { parser, bytes: Vec::new(), ended: false });
        let screen = Arc::new(Screen { held, changed: Condvar::new() });
        let master = File::from(pty.master);
        let mut reader = worked("share the terminal", master.try_clone());
        let shown = Arc::clone(&screen);
        // It ends when nobody has the terminal open any more.
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let count = reader.read(&mut buffer).unwrap_or(0);
                shown.show(&buffer[..count]);
                if count == 0 {
                    return;
                }
            }
        });
        // `setsid` becomes the program: the pid stays.
        let launch = scenario.launch(Path::new("setsid")).args(["--ctty"]);
        let launch = prepare(launch.env("TERM", "xterm-256color").env_remove("NO_COLOR"));
        let process = launch.terminal(pty.slave).start();
        (Self { master, screen }, process)
    }

    /// Types.
    ///
    /// # Panics
    /// If the terminal takes no keys.
    #[track_caller]
    pub fn keys(&self, keys: &str) {
        worked("type", (&self.master).write_all(keys.as_bytes()));
    }

    /// Gives the terminal another size, of which its program is told.
    ///
    /// # Panics
    /// If it cannot be done.
    #[track_caller]
    pub fn resize(&self, (columns, rows): (u16, u16)) {
        self.screen.lock().parser.screen_mut().set_size(cells(rows), cells(columns));
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        worked("change the terminal's size", tcsetwinsize(&self.master, size));
    }

    /// Waits until `wanted` accepts the screen; gives its text.
    ///
    /// # Panics
    /// At the deadline, or once nobody has the terminal open any more.
    #[track_caller]
    pub fn wait(&self, what: &str, mut wanted: impl FnMut(&vt100::Screen) -> bool) -> String {
        self.wait_held(what, |held| wanted(held.parser.screen()))
    }

    /// Waits until the screen shows `text`; gives all of its text.
    ///
    /// # Panics
    /// As [`Terminal::wait`].
    #[track_caller]
    pub fn wait_text(&self, text: &str) -> String {
        self.wait(&format!("{text:?}"), |screen| screen.contents().contains(text))
    }

    /// Waits until nobody has the terminal open any more; gives the last text of the screen.
    ///
    /// # Panics
    /// At the deadline.
    #[track_caller]
    pub fn wait_end(&self) -> String {
        self.wait_held("the end of every program that has the terminal", |held| held.ended)
    }

    #[track_caller]
    fn wait_held(&self, what: &str, mut wanted: impl FnMut(&Held) -> bool) -> String {
        let end = Instant::now() + DEADLINE;
        let mut held = self.screen.lock();
        loop {
            if wanted(&held) {
                return held.parser.screen().contents();
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || held.ended {
                let text = held.parser.screen().contents();
                drop(held);
                panic!("waited in vain for {what}; the screen:\n{text}");
            }
            held = self.screen.changed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Everything that was written so far, escape sequences and all.
    pub fn bytes(&self) -> Vec<u8> {
        self.screen.lock().bytes.clone()
    }

    /// True if it is as a shell wants it: lines, echo and signals from keys; the main screen; a cursor.
    ///
    /// # Panics
    /// If its modes cannot be read.
    #[track_caller]
    pub fn is_restored(&self) -> bool {
        let modes = worked("read the terminal's modes", tcgetattr(&self.master)).local_modes;
        let held = self.screen.lock();
        let screen = held.parser.screen();
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
    }
}

#[track_caller]
fn worked<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("cannot {what}: {error}"))
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap_or(NonZero::<u16>::MIN)
}
