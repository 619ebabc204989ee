//! Reading one output pipe of a program, to its end or to the program's.

use std::os::fd::AsFd;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

/// An output pipe. It ends at end of file, or, if something else holds it open, a moment after the program has exited
/// and what it had written was read.
pub(super) struct Pipe<R> {
    from: R,
    exited: watch::Receiver<bool>,
    drain: Duration,
    stage: Stage,
}

enum Stage {
    /// The program runs.
    Running,
    /// It has exited. These many bytes were in the pipe by then: all of its own are among them, however slow the one
    /// is who takes them, and however much others go on writing.
    Exited { left: usize },
    /// Its own output was read; others may still write until then.
    Draining { until: Instant },
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    /// At least one byte.
    Bytes(&'a [u8]),
    /// Nothing for the time given.
    Quiet,
    /// Nothing will come any more.
    End,
}

impl<R: AsyncRead + AsFd + Unpin> Pipe<R> {
    /// `exited` becomes true when the program has exited; `drain` is the moment after it.
    pub(super) fn new(from: R, exited: watch::Receiver<bool>, drain: Duration) -> Self {
        Self { from, exited, drain, stage: Stage::Running }
    }

    /// Waits for bytes; not longer than `quiet`, if given. A read error counts as the end.
    pub(super) async fn read<'a>(&mut self, buffer: &'a mut [u8], quiet: Option<Duration>) -> Read<'a> {
        let quiet = quiet.map(|time| Instant::now() + time);
        let read = loop {
            match &mut self.stage {
                Stage::Running => tokio::select! {
                    // First, or a grandchild that never stops writing would hide the exit.
                    biased;
                    _ = self.exited.wait_for(|exited| *exited) => {
                        self.stage = Stage::Exited { left: turnhost_os::fd::bytes_available(&self.from) };
                    }
                    read = self.from.read(buffer) => break read,
                    () = at(quiet) => return Read::Quiet,
                },
                Stage::Exited { left: 0 } => {
                    self.stage = Stage::Draining { until: Instant::now() + self.drain }
                }
                Stage::Exited { left } => {
                    let read = self.from.read(buffer).await;
                    *left = read.as_ref().map_or(0, |count| left.saturating_sub(*count));
                    break read;
                }
                Stage::Draining { until } => tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(*until) => return Read::End,
                    read = self.from.read(buffer) => break read,
                    () = at(quiet) => return Read::Quiet,
                },
            }
        };
        match read {
            Ok(0) | Err(_) => Read::End,
            Ok(count) => Read::Bytes(&buffer[..count]),
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[tokio::test(start_paused = true)]
    async fn what_the_program_wrote_is_read_whole_however_late_and_whoever_holds_the_pipe() {
        let (held, from) = tokio::net::unix::pipe::pipe().unwrap();
        held.writable().await.unwrap();
        assert_eq!(held.try_write(&[b'x'; 100]).unwrap(), 100);
        let (exited, seen) = watch::channel(false);
        let mut pipe = Pipe::new(from, seen, Duration::from_millis(250));
        exited.send_replace(true);
        let mut buffer = [0; 10];
        for _ in 0..10 {
            assert_eq!(pipe.read(&mut buffer, None).await, Read::Bytes(&[b'x'; 10]));
            tokio::time::advance(Duration::from_secs(3600)).await;
        }
        let start = Instant::now();
        assert_eq!(pipe.read(&mut buffer, None).await, Read::End);
        assert_eq!(start.elapsed().as_millis(), 250);
    }
}
