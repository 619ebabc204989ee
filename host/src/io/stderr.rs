//! Log lines to stderr, by a thread of their own: a stderr that nobody reads must not stop the loop.

use crossbeam_channel::{Sender, bounded};
use std::io::{self, Write};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait for stderr; further ones are lost.
const LINES: usize = 256;

/// Where the log goes.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    to: Sender<Vec<u8>>,
}

impl Lines {
    /// Starts the thread.
    ///
    /// # Errors
    /// What the kernel says of the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (to, lines) = bounded::<Vec<u8>>(LINES);
        std::thread::Builder::new().name("host-log".to_owned()).spawn(move || {
            for line in lines {
                // Nobody is left to be told that the log cannot be written.
                let _ = io::stderr().write_all(&line);
            }
        })?;
        Ok(Self { to })
    }
}

/// One line on its way.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    to: &'a Sender<Vec<u8>>,
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { to: &self.to, bytes: Vec::new() }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let _ = self.to.try_send(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_what_may_wait_are_lost_and_nobody_blocks() {
        let (to, lines) = bounded(LINES);
        let log = Lines { to };
        for number in 0..LINES + 10 {
            writeln!(log.make_writer(), "line {number}").unwrap();
        }
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines.recv().unwrap(), b"line 0\n");
    }
}
