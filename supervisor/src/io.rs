//! A child's pipes, as the actor waits for them. Reading never depends on writing, and every wake-up handles a bounded
//! number of bytes, so that orders, timers and the other pipes get their turn.

use crate::actor::{HostReply, Waiter};
use crate::child::{Child, ChildControl, ChildEvent, ChildOutput};
use crate::machine::Machine;
use crate::tail::LineTail;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Sleep;
use turnhost_os::ProcessIdentity;
use turnhost_os::identity::stat;
use turnhost_protocol::LineDecoder;
use turnhost_protocol::hello::Hello;

/// Bytes of stdout that are read at once.
const STDOUT_READ: usize = 64 * 1024;
/// Bytes of stderr that are read at once.
const STDERR_READ: usize = 16 * 1024;
/// Bytes that are written at once, but for a first frame that is longer.
const WRITE_BATCH: usize = 8 * 1024;
/// Frames that are written at once.
const WRITE_SLICES: usize = 64;
/// How long the exit is waited for after the end of stdout, which comes first when a process dies.
const EXIT_WAIT: Duration = Duration::from_millis(500);
/// How long bytes that the kernel says are there are waited for.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(250);

/// A child that was started, until its tree is gone.
pub(crate) struct Running {
    pub epoch: u64,
    pub started_at: Instant,
    pub identity: ProcessIdentity,
    pub guard: Option<ProcessIdentity>,
    pub control: Box<dyn ChildControl>,
    pub stdin: Option<Box<dyn AsyncWrite + Unpin>>,
    pub stdout_open: bool,
    pub stderr_open: bool,
    /// Its end was seen.
    pub exited: bool,
    pub decoder: LineDecoder,
    /// Its hello, accepted or not.
    pub hello: Option<Hello>,
    /// Bytes and lines that were no hello before it came, for the report if it never does.
    pub bytes_read: u64,
    pub lines_read: u64,
    /// Lines of it that were no frames.
    pub stray_lines: u64,
    /// What its process did when it was killed.
    pub diagnosis: Option<&'static str>,
    pub span: tracing::Span,
    stdout: Box<dyn ChildOutput>,
    stderr: Box<dyn ChildOutput>,
    stderr_buffer: Vec<u8>,
    events: mpsc::Receiver<ChildEvent>,
    /// Since the end of its stdout.
    closing: Option<Pin<Box<Sleep>>>,
    /// Which of the four is looked at first; moves on with every event.
    first: u8,
}

/// What the pipes have brought.
pub(crate) enum IoEvent {
    /// So many bytes went into the decoder; 0 = the end.
    Stdout(io::Result<usize>),
    /// So many bytes are in the buffer; 0 = the end.
    Stderr(io::Result<usize>),
    Wrote(io::Result<Wrote>),
    /// Its stdout has ended, and it has not.
    StdoutClosed,
    /// `None` = no more will come.
    Child(Option<ChildEvent>),
}

/// What went into the pipe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wrote {
    pub bytes: usize,
    /// Frames whose last byte was among them.
    pub frames: u64,
}

impl Running {
    pub(crate) fn new(epoch: u64, now: Instant, child: Child, max_frame_bytes: usize) -> Self {
        Self {
            epoch,
            started_at: now,
            identity: child.identity,
            guard: child.guard,
            control: child.control,
            stdin: child.stdin,
            stdout_open: true,
            stderr_open: true,
            exited: false,
            decoder: LineDecoder::new(max_frame_bytes),
            hello: None,
            bytes_read: 0,
            lines_read: 0,
            stray_lines: 0,
            diagnosis: None,
            span: tracing::debug_span!("host", epoch),
            stdout: child.stdout,
            stderr: child.stderr,
            stderr_buffer: vec![0; STDERR_READ],
            events: child.events,
            closing: None,
            first: 0,
        }
    }

    pub(crate) fn poll_io(
        &mut self,
        context: &mut Context<'_>,
        machine: &Machine<Waiter, HostReply>,
    ) -> Poll<IoEvent> {
        for turn in 0..4 {
            let which = (self.first + turn) % 4;
            let event = match which {
                0 => self.poll_stdout(context).map(IoEvent::Stdout),
                1 => self.poll_write(context, machine).map(IoEvent::Wrote),
                2 => self.poll_stderr(context).map(IoEvent::Stderr),
                _ => self.events.poll_recv(context).map(IoEvent::Child),
            };
            if event.is_ready() {
                self.first = (which + 1) % 4;
                return event;
            }
        }
        if let Some(closing) = &mut self.closing {
            ready!(closing.as_mut().poll(context));
            self.closing = None;
            return Poll::Ready(IoEvent::StdoutClosed);
        }
        Poll::Pending
    }

    /// Notes what the process does now, for the report of its end.
    pub(crate) fn diagnose(&mut self) {
        self.diagnosis = stat(self.identity.pid)
            .filter(|now| now.start_ticks == self.identity.start_ticks)
            .map(|now| match now.state {
                b'T' | b't' => "its process was stopped",
                b'D' => "its process waited in the kernel",
                b'R' => "its process was computing",
                _ if now.is_dead() => "its process had ended",
                _ => "its process was sleeping",
            });
    }

    /// Its stdout has ended.
    pub(crate) fn stdout_ended(&mut self) {
        self.stdout_open = false;
        self.closing = (!self.exited).then(|| Box::pin(tokio::time::sleep(EXIT_WAIT)));
    }

    /// Writes what the pipe takes at once. Whoever waits for more polls again before it sleeps.
    pub(crate) fn write_now(&mut self, machine: &Machine<Waiter, HostReply>) -> Option<io::Result<Wrote>> {
        match self.poll_write(&mut Context::from_waker(Waker::noop()), machine) {
            Poll::Ready(wrote) => Some(wrote),
            Poll::Pending => None,
        }
    }

    /// The bytes of the last [`IoEvent::Stderr`].
    pub(crate) fn stderr_bytes(&self, bytes: usize) -> &[u8] {
        self.stderr_buffer.get(..bytes).unwrap_or_default()
    }

    fn poll_stdout(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.stdout_open {
            return Poll::Pending;
        }
        let mut buffer = ReadBuf::new(self.decoder.space(STDOUT_READ));
        ready!(Pin::new(&mut *self.stdout).poll_read(context, &mut buffer))?;
        let bytes = buffer.filled().len();
        self.decoder.commit(bytes);
        self.bytes_read += bytes as u64;
        Poll::Ready(Ok(bytes))
    }

    fn poll_stderr(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.stderr_open {
            return Poll::Pending;
        }
        let mut buffer = ReadBuf::new(&mut self.stderr_buffer);
        ready!(Pin::new(&mut *self.stderr).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        machine: &Machine<Waiter, HostReply>,
    ) -> Poll<io::Result<Wrote>> {
        let Some(stdin) = self.stdin.as_mut().filter(|_| machine.has_outgoing()) else {
            return Poll::Pending;
        };
        let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
        let mut count = 0;
        let mut total = 0;
        for (slot, line) in slices.iter_mut().zip(machine.outgoing()) {
            if count > 0 && total + line.len() > WRITE_BATCH {
                break;
            }
            total += line.len();
            *slot = IoSlice::new(line);
            count += 1;
        }
        let bytes = ready!(Pin::new(&mut **stdin).poll_write_vectored(context, &slices[..count]))?;
        if bytes == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let mut left = bytes;
        let whole = slices[..count].iter().take_while(|slice| {
            let fits = slice.len() <= left;
            left -= slice.len().min(left);
            fits
        });
        Poll::Ready(Ok(Wrote { bytes, frames: whole.count() as u64 }))
    }

    /// Reads what the pipes of a dead child hold now, and no more. Gives the bytes of stdout.
    pub(crate) async fn take_last_words(&mut self, stderr: &mut LineTail) -> u64 {
        let mut taken = 0;
        let mut left = if self.stdout_open { self.stdout.available() } else { 0 };
        while left > 0 {
            let space = self.decoder.space(STDOUT_READ.min(left));
            let limit = space.len().min(left);
            let bytes = read_within(&mut *self.stdout, &mut space[..limit]).await;
            if bytes == 0 {
                break;
            }
            self.decoder.commit(bytes);
            self.bytes_read += bytes as u64;
            taken += bytes as u64;
            left -= bytes;
        }
        let mut left = if self.stderr_open { self.stderr.available() } else { 0 };
        while left > 0 {
            let limit = left.min(self.stderr_buffer.len());
            let bytes = read_within(&mut *self.stderr, &mut self.stderr_buffer[..limit]).await;
            if bytes == 0 {
                break;
            }
            stderr.push(self.stderr_bytes(bytes));
            left -= bytes;
        }
        taken
    }
}

/// The reactor may not have noticed yet what the kernel says is there, so a moment is allowed.
async fn read_within(output: &mut (dyn ChildOutput + 'static), space: &mut [u8]) -> usize {
    let mut buffer = ReadBuf::new(space);
    let read = std::future::poll_fn(|context| Pin::new(&mut *output).poll_read(context, &mut buffer));
    match tokio::time::timeout(LAST_WORDS_WAIT, read).await {
        Ok(Ok(())) => buffer.filled().len(),
        Ok(Err(_)) | Err(_) => 0,
    }
}
