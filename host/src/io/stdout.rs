//! The writer: the only code that writes to the protocol's stdout.

use crate::io::lanes::{InFlight, Lanes};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::Poll;
use std::thread::JoinHandle;
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;

/// Writes batches; never holds the loop up, for each write is awaited beside everything else.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    output: W,
    batch: InFlight,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// A writer to `output`.
    pub(crate) fn new(output: W) -> Self {
        Self { output, batch: InFlight::default() }
    }

    /// Takes the next batch if the last one was written. True if there is something to write.
    pub(crate) fn load(&mut self, lanes: &mut Lanes) -> bool {
        if self.batch.rest().is_empty() {
            lanes.fill(&mut self.batch);
        }
        !self.batch.rest().is_empty()
    }

    /// Writes once, as much as the pipe takes. May be cancelled; nothing is lost then.
    ///
    /// # Errors
    /// What the pipe says; it takes nothing after that.
    pub(crate) async fn write(&mut self) -> io::Result<()> {
        let written = poll_fn(|cx| Pin::new(&mut self.output).poll_write(cx, self.batch.rest())).await?;
        self.wrote(written)
    }

    /// Writes once if the pipe takes something now.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub(crate) async fn write_if_ready(&mut self) -> io::Result<()> {
        let written = poll_fn(|cx| {
            Poll::Ready(match Pin::new(&mut self.output).poll_write(cx, self.batch.rest()) {
                Poll::Ready(written) => Some(written),
                Poll::Pending => None,
            })
        });
        match written.await {
            Some(written) => self.wrote(written?),
            None => Ok(()),
        }
    }

    fn wrote(&mut self, written: usize) -> io::Result<()> {
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.batch.advance(written);
        Ok(())
    }
}

/// Stdout as a reactor writes to it.
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// The protocol's stdout for a reactor: a pipe or socket as it is; a file or a terminal, which no reactor can wait
/// for, behind a pipe that a thread empties. Join the thread to be sure that everything arrived.
///
/// # Errors
/// What the kernel or the reactor says. Call it inside the loop's runtime.
pub(crate) fn open(stdout: OwnedFd) -> io::Result<(Output, Option<JoinHandle<()>>)> {
    use crate::io::stdin::{Kind, kind, reopen};
    match kind(&stdout)? {
        Kind::Pipe => Ok((Box::new(pipe::Sender::from_owned_fd(reopen(stdout, true))?), None)),
        Kind::Socket => {
            let socket = std::os::unix::net::UnixStream::from(stdout);
            socket.set_nonblocking(true)?;
            Ok((Box::new(tokio::net::UnixStream::from_std(socket)?), None))
        }
        Kind::Other => {
            let (mut from, to) = io::pipe()?;
            let mut file = std::fs::File::from(stdout);
            let thread = std::thread::Builder::new().name("host-stdout".to_owned()).spawn(move || {
                if let Err(error) = io::copy(&mut from, &mut file) {
                    tracing::warn!(%error, "stdout takes nothing any more");
                }
            })?;
            Ok((Box::new(pipe::Sender::from_owned_fd(to.into())?), Some(thread)))
        }
    }
}
