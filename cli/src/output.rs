//! Stdout as a bounded queue and one named thread: a reader that is slow makes senders wait, never the event loop; a
//! reader that is gone is noticed even while nothing is written.

use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

/// Bytes that may wait to be written. A larger piece waits for the whole room and then goes alone.
const ROOM: u32 = 1024 * 1024;
/// Pieces that may wait; below it the bytes count.
const PIECES: usize = 1024;
/// Bytes gathered for one write.
const GATHER: usize = 64 * 1024;

/// Nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// The sending end; clones feed the same queue, in the order of their `send`s.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pieces: mpsc::Sender<Piece>,
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

/// The writing end, as whoever waits for it sees it.
#[derive(Debug)]
pub(crate) struct Writing {
    done: oneshot::Receiver<io::Result<()>>,
    bytes: Arc<AtomicU64>,
}

/// How writing came to its end.
#[derive(Debug)]
pub(crate) enum Written {
    /// All of it was taken, or nobody wanted the rest: the reader is gone.
    Done,
    /// The reader took nothing any more; the rest is lost.
    Stalled,
    /// The rest is lost, and somebody wanted it: a full disk.
    Failed(io::Error),
}

impl Writing {
    /// Waits until every sender is gone and all is written, or writing has failed; gives up once nobody has read
    /// anything for `stall`.
    pub(crate) async fn finish(mut self, stall: Duration) -> Written {
        loop {
            let before = self.bytes.load(Ordering::Relaxed);
            match timeout(stall, &mut self.done).await {
                Ok(Ok(Err(error))) if error.kind() != io::ErrorKind::BrokenPipe => {
                    return Written::Failed(error);
                }
                // A thread that is gone without a word has panicked, which was reported.
                Ok(Ok(Ok(()) | Err(_)) | Err(_)) => return Written::Done,
                Err(_) if self.bytes.load(Ordering::Relaxed) == before => return Written::Stalled,
                Err(_) => {}
            }
        }
    }
}

impl Output {
    /// Starts the thread `stdout` that writes to `sink`, flushing whenever nothing more waits.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(sink: impl Write + Send + 'static) -> io::Result<(Self, Writing)> {
        let (pieces, queue) = mpsc::channel(PIECES);
        let (done, finished) = oneshot::channel();
        let bytes = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&bytes);
        thread::Builder::new().name("stdout".into()).spawn(move || {
            // The receiver may be gone: then nobody asks.
            let _ = done.send(write_all(queue, sink, &counter));
        })?;
        let output = Self { pieces, room: Arc::new(Semaphore::new(ROOM as usize)) };
        Ok((output, Writing { done: finished, bytes }))
    }

    /// Queues `bytes`. Waits while the queue is full.
    ///
    /// # Errors
    /// [`Closed`] once writing has failed.
    pub(crate) async fn send(&self, bytes: Vec<u8>) -> Result<(), Closed> {
        let wanted = u32::try_from(bytes.len()).unwrap_or(ROOM).min(ROOM);
        let room = tokio::select! {
            room = Arc::clone(&self.room).acquire_many_owned(wanted) => room.map_err(|_| Closed)?,
            () = self.pieces.closed() => return Err(Closed),
        };
        self.pieces.send(Piece { bytes, _room: room }).await.map_err(|_| Closed)
    }

    /// Ends once writing has failed.
    pub(crate) async fn closed(&self) {
        self.pieces.closed().await;
    }
}

fn write_all(mut queue: mpsc::Receiver<Piece>, mut sink: impl Write, written: &AtomicU64) -> io::Result<()> {
    let mut gathered = Vec::with_capacity(GATHER);
    while let Some(first) = queue.blocking_recv() {
        let mut held = vec![first];
        gathered.extend_from_slice(&held[0].bytes);
        while gathered.len() < GATHER {
            let Ok(next) = queue.try_recv() else { break };
            gathered.extend_from_slice(&next.bytes);
            held.push(next);
        }
        let mut rest = &gathered[..];
        while !rest.is_empty() {
            match sink.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    written.fetch_add(count as u64, Ordering::Relaxed);
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        sink.flush()?;
        gathered.clear();
        gathered.shrink_to(GATHER);
    }
    Ok(())
}

/// The process's stdout, unbuffered: a dup, so that no lock and no line buffer of the library stands between.
///
/// # Errors
/// If the descriptor cannot be duplicated.
pub(crate) fn stdout() -> io::Result<std::fs::File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Notices when the reader of a stdout is gone.
#[derive(Debug)]
pub(crate) struct ReaderGone(watch::Receiver<bool>);

impl ReaderGone {
    /// Watches on a thread and no reactor: making stdout non-blocking would make it so for every process that shares
    /// it.
    ///
    /// # Errors
    /// If the descriptor cannot be duplicated or the thread cannot be started.
    pub(crate) fn watch(stdout: impl AsFd) -> io::Result<Self> {
        let stdout = stdout.as_fd().try_clone_to_owned()?;
        let (gone, noticed) = watch::channel(false);
        thread::Builder::new().name("stdout-watch".into()).spawn(move || {
            // No event is asked for: error and hang-up are reported always, and nothing else ends the wait.
            let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
            loop {
                match poll(&mut watched, None) {
                    Ok(_) if watched[0].revents().is_empty() => {}
                    Ok(_) => {
                        gone.send_replace(true);
                        return;
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return,
                }
            }
        })?;
        Ok(Self(noticed))
    }

    /// Ends when the reader is gone, whether or not anything is written. Never for a file, nor where stdout cannot be
    /// watched.
    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|gone| *gone).await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn pieces_are_written_in_the_order_they_were_sent() {
        let (mut reader, writer) = io::pipe().expect("pipe");
        let (output, finished) = Output::start(writer).expect("thread");
        let mut wanted = Vec::new();
        for n in 0..5_000 {
            let line = format!("{n}\n").into_bytes();
            wanted.extend_from_slice(&line);
            output.send(line).await.expect("open");
        }
        drop(output);
        assert!(matches!(finished.finish(LONG).await, Written::Done));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("read");
        assert_eq!(read, wanted);
    }

    #[tokio::test]
    async fn a_sender_waits_for_a_slow_reader_and_a_piece_over_the_room_still_goes() {
        let (mut reader, writer) = io::pipe().expect("pipe");
        let (output, finished) = Output::start(writer).expect("thread");
        let big = vec![b'x'; ROOM as usize * 3];
        output.send(big.clone()).await.expect("open");
        // The pipe is full and the room is taken, so this one cannot be queued before something is read.
        let next = tokio::spawn(async move { output.send(b"y".to_vec()).await });
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        let mut read = vec![0; big.len()];
        reader.read_exact(&mut read).expect("read");
        assert!(read == big);
        next.await.expect("task").expect("open");
        assert!(matches!(finished.finish(LONG).await, Written::Done));
    }

    #[tokio::test]
    async fn every_sender_learns_that_the_reader_is_gone() {
        let (reader, writer) = io::pipe().expect("pipe");
        let (output, finished) = Output::start(writer).expect("thread");
        drop(reader);
        let waiting = output.clone();
        let waiting = tokio::spawn(async move { while waiting.send(vec![0; 4096]).await.is_ok() {} });
        timeout(LONG, waiting).await.expect("in time").expect("task");
        timeout(LONG, output.closed()).await.expect("in time");
        assert_eq!(output.send(Vec::new()).await, Err(Closed));
        assert!(matches!(finished.finish(LONG).await, Written::Done));
    }

    #[tokio::test]
    async fn a_reader_that_reads_nothing_is_not_waited_for() {
        let (reader, writer) = io::pipe().expect("pipe");
        let (output, finished) = Output::start(writer).expect("thread");
        output.send(vec![b'x'; 1024 * 1024]).await.expect("open");
        drop(output);
        assert!(matches!(finished.finish(Duration::from_millis(10)).await, Written::Stalled));
        drop(reader);
    }

    #[tokio::test]
    async fn a_full_disk_is_no_reader_who_went_away() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let (output, finished) = Output::start(full).expect("thread");
        output.send(b"x".to_vec()).await.expect("open");
        drop(output);
        assert!(matches!(finished.finish(LONG).await, Written::Failed(_)));
    }

    #[tokio::test]
    async fn a_reader_that_goes_is_noticed_without_a_write_and_a_file_never_goes() {
        let (reader, writer) = io::pipe().expect("pipe");
        let mut gone = ReaderGone::watch(&writer).expect("thread");
        let mut file = ReaderGone::watch(tempfile::tempfile().expect("file")).expect("thread");
        drop(reader);
        timeout(LONG, gone.wait()).await.expect("in time");
        // It stays so for whoever asks again.
        timeout(LONG, gone.wait()).await.expect("in time");
        assert!(!*file.0.borrow());
        assert!(timeout(Duration::ZERO, file.wait()).await.is_err());
    }
}
