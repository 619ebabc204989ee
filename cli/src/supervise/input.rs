//! Stdin as lines, read on a named thread: a pipe, a file or a terminal alike, and no line longer than the limit.

use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::thread;
use tokio::sync::mpsc;
use turnhost_protocol::{Line, LineDecoder};

/// Lines that may wait; further ones wait in the pipe.
const QUEUE: usize = 8;
const READ: usize = 64 * 1024;

/// What stdin gave. Its end is the end of the channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A line, or what stood behind the last newline.
    Line(Vec<u8>),
    /// A line over the limit, of which only the beginning was kept.
    Oversize { bytes: u64, head: Vec<u8> },
}

/// Reads the process's stdin. The thread is never joined: a read that waits for a person ends with the process.
///
/// # Errors
/// If stdin cannot be duplicated or the thread cannot be started.
pub(crate) fn stdin(limit: usize) -> io::Result<mpsc::Receiver<Input>> {
    let source = std::fs::File::from(io::stdin().as_fd().try_clone_to_owned()?);
    read(source, limit)
}

fn read(mut source: impl Read + Send + 'static, limit: usize) -> io::Result<mpsc::Receiver<Input>> {
    let (lines, receiver) = mpsc::channel(QUEUE);
    thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut decoder = LineDecoder::new(limit);
        loop {
            match source.read(decoder.space(READ)) {
                Ok(0) => break,
                Ok(count) => decoder.commit(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::warn!(%error, "stdin cannot be read; taken as its end");
                    break;
                }
            }
            while let Some(line) = decoder.next_line() {
                if lines.blocking_send(Input::from(line)).is_err() {
                    return;
                }
            }
        }
        if let Some(line) = decoder.finish() {
            // The receiver may be gone: then nobody asks.
            let _ = lines.blocking_send(Input::from(line));
        }
    })?;
    Ok(receiver)
}

impl From<Line<'_>> for Input {
    fn from(line: Line<'_>) -> Self {
        match line {
            Line::Complete(bytes) | Line::Unterminated(bytes) => Input::Line(bytes.to_vec()),
            Line::Oversize { bytes, head, .. } => Input::Oversize { bytes, head: head.to_vec() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use turnhost_protocol::limits::OVERSIZE_KEPT_BYTES;

    #[tokio::test]
    async fn lines_come_in_order_with_the_last_one_unended_and_a_long_one_only_counted() {
        let long = "x".repeat(20_000);
        let mut lines = read(io::Cursor::new(format!("a\r\n\n{long}\nb\nc")), 10).expect("thread");
        let mut got = Vec::new();
        while let Some(item) = lines.recv().await {
            got.push(item);
        }
        assert_eq!(
            got,
            [
                Input::Line(b"a".to_vec()),
                Input::Oversize { bytes: 20_000, head: vec![b'x'; OVERSIZE_KEPT_BYTES] },
                Input::Line(b"b".to_vec()),
                Input::Line(b"c".to_vec())
            ]
        );
    }
}
