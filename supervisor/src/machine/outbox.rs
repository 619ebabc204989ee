//! The lines whose turn it is: what of the parent's one FIFO is bound to this incarnation, because its first byte
//! went out or because no request stands behind it (seeds, `shutdown`). Unsent requests follow behind them and stay
//! in the table of open requests, so that a crash takes nothing from them.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    lines: VecDeque<Vec<u8>>,
    /// Bytes of the first line that are out.
    offset: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, line: Vec<u8>) {
        if !line.is_empty() {
            self.lines.push_back(line);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let offset = self.offset;
        self.lines.iter().enumerate().map(move |(n, line)| if n == 0 { &line[offset..] } else { &line[..] })
    }

    /// Takes note that up to `bytes` more are out; gives back how many of them were not of these lines.
    pub(super) fn advance(&mut self, mut bytes: usize) -> usize {
        while let Some(front) = self.lines.front() {
            let left = front.len() - self.offset;
            if bytes < left {
                self.offset += bytes;
                return 0;
            }
            bytes -= left;
            self.offset = 0;
            self.lines.pop_front();
        }
        bytes
    }

    /// Forgets every line: the pipe is gone.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.offset = 0;
    }

    /// Forgets every line, but ends one that was cut: the pipe lives on and somebody else reads it now.
    pub(super) fn clear_to_line_end(&mut self) {
        let cut = self.offset > 0;
        self.clear();
        if cut {
            self.push(b"\n".to_vec());
        }
    }
}
