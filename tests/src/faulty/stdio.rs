//! The three standard streams of the host that is played: lines from stdin, frames to stdout, bytes to stderr, each
//! of which can be let go of.

use crate::script::Stream;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of unread lines that are kept; with more, stdin is left alone until some are taken.
const INBOX_BYTES: usize = 64 * 1024 * 1024;

/// The lines of stdin. A thread takes them off the pipe from the start, so that a script which is busy with something
/// else never holds up the other end.
pub(crate) struct Inbox {
    queue: Arc<Queue>,
    wake: OwnedFd,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    // A mutex and no channel: the bound is in bytes.
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    ended: bool,
    stop: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waiting for a line gave.
pub(crate) enum Taken {
    Line(Vec<u8>),
    Ended,
    TimedOut,
}

impl Inbox {
    /// Starts to read.
    pub(crate) fn open() -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let (woken, wake) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let theirs = Arc::clone(&queue);
        let reader = std::thread::Builder::new()
            .name("faulty-stdin".to_owned())
            .spawn(move || read_lines(&theirs, &woken))?;
        Ok(Self { queue, wake, reader: Some(reader) })
    }

    /// The next line without its newline, or the end of stdin; waits until `deadline`, for ever without one.
    pub(crate) fn take(&self, deadline: Option<Instant>) -> Taken {
        let mut state = self.queue.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                self.queue.changed.notify_all();
                return Taken::Line(line);
            }
            if state.ended {
                return Taken::Ended;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Taken::TimedOut;
            }
            state = match left {
                Some(left) => {
                    self.queue.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Once this returns no byte more is taken from stdin. Lines that were taken stay; behind them stdin has ended.
    pub(crate) fn stop(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        self.queue.lock().stop = true;
        self.queue.changed.notify_all();
        // The reader may have ended by itself; then nobody needs waking.
        let _ = rustix::io::write(&self.wake, b"!");
        let _ = reader.join();
    }
}

fn read_lines(queue: &Queue, woken: &OwnedFd) {
    let stdin = io::stdin();
    let mut chunk = vec![0; 64 * 1024];
    let mut cut = Vec::new();
    while wait_readable(stdin.as_fd(), woken) {
        let count = match rustix::io::read(stdin.as_fd(), &mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(_) => break,
        };
        let mut state = queue.lock();
        for piece in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
            cut.extend_from_slice(piece);
            if cut.ends_with(b"\n") {
                cut.pop();
                state.bytes += cut.len();
                state.lines.push_back(std::mem::take(&mut cut));
            }
        }
        queue.changed.notify_all();
        while state.bytes > INBOX_BYTES && !state.stop {
            state = queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
    let mut state = queue.lock();
    if !cut.is_empty() && !state.stop {
        state.bytes += cut.len();
        state.lines.push_back(cut);
    }
    state.ended = true;
    queue.changed.notify_all();
}

/// True once there is something to read (or the end), false once the reader should stop.
fn wait_readable(stdin: BorrowedFd<'_>, woken: &OwnedFd) -> bool {
    loop {
        let mut fds = [PollFd::from_borrowed_fd(stdin, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => return false,
            Ok(_) if !fds[0].revents().is_empty() => return true,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Stdout, and the figures that heartbeats report. Shared with the heartbeat thread.
pub(crate) struct Output {
    started: Instant,
    // A mutex and no message: whoever writes must know that its bytes are in the pipe before it goes on.
    one_at_a_time: Mutex<()>,
    /// Turns that run in `serve`.
    pub(crate) active_turns: AtomicU64,
    /// Frames written.
    progress: AtomicU64,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            one_at_a_time: Mutex::new(()),
            active_turns: AtomicU64::new(0),
            progress: AtomicU64::new(0),
        }
    }

    /// Nanoseconds since the program started.
    pub(crate) fn host_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Writes bytes to stdout at once, in one write unless the pipe is full. Nothing else gets between them.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let _held = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        self.progress.fetch_add(1, Ordering::Relaxed);
        write_all(io::stdout().as_fd(), bytes)
    }

    /// Writes a frame: `type` first, the fields in their order, `host_ns` last.
    pub(crate) fn frame(&self, frame_type: &str, fields: &[(&str, Value)]) -> io::Result<()> {
        let mut line = format!("{{\"type\":{}", Value::from(frame_type));
        for (name, value) in fields {
            line.push_str(&format!(",{}:{value}", Value::from(*name)));
        }
        line.push_str(&format!(",\"host_ns\":{}}}\n", self.host_ns()));
        self.write(line.as_bytes())
    }

    /// Writes a heartbeat.
    pub(crate) fn heartbeat(&self) -> io::Result<()> {
        let active = self.active_turns.load(Ordering::Relaxed);
        let progress = self.progress.load(Ordering::Relaxed);
        self.frame(
            "hb",
            &[
                ("active_turns", active.into()),
                ("progress_counter", progress.into()),
                ("rss_mb", resident_mib().into()),
            ],
        )
    }
}

fn resident_mib() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0);
    pages * rustix::param::page_size() as f64 / 1_048_576.0
}

/// Writes `bytes` of `x` to stderr, then a newline if asked.
pub(crate) fn write_stderr(bytes: u64, newline: bool) -> io::Result<()> {
    let stderr = io::stderr();
    let block = [b'x'; 64 * 1024];
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let count = left.min(block.len());
        write_all(stderr.as_fd(), &block[..count])?;
        left -= count;
    }
    if newline { write_all(stderr.as_fd(), b"\n") } else { Ok(()) }
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            // The other end made the pipe non-blocking for us as well.
            Err(rustix::io::Errno::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Lets go of a standard stream: the other end sees it closed. Its number then leads to `/dev/null`, so that nothing
/// else gets it.
pub(crate) fn close(stream: Stream) -> io::Result<()> {
    let nowhere = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    match stream {
        Stream::Stdin => rustix::stdio::dup2_stdin(nowhere)?,
        Stream::Stdout => rustix::stdio::dup2_stdout(nowhere)?,
        Stream::Stderr => rustix::stdio::dup2_stderr(nowhere)?,
    }
    Ok(())
}
