//! What waits for stdout, and in which order it leaves. Pure: bytes in, bytes out.
//!
//! Two lanes: answers overtake the data of other requests, and within one request nothing overtakes anything. The
//! data lane is bounded by the bytes that agents reserve before they send ([`Room`]); what nobody reserves (answers,
//! last frames) is bounded by [`Lanes::is_overfull`], beyond which stdin is not read until there is room.

use crate::turn::context::Room;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// Small frames that lie behind each other leave in one write of up to this many bytes. An answer waits for no more
/// than that, or for one larger frame.
pub(crate) const WRITE_BYTES: usize = 8 * 1024;
/// A frame over this size is written as it is, without a copy.
const STRAIGHT_BYTES: usize = 4 * 1024;
/// Answers and last frames that may wait: a parent that reads none of so many has stopped reading.
const UNRESERVED_FRAMES: usize = 16 * 1024;
const UNRESERVED_BYTES: usize = 64 * 1024 * 1024;

/// Frames of one request group, whole ones only.
#[derive(Debug, Default)]
struct Chunk {
    group: u64,
    bytes: Vec<u8>,
    frames: usize,
    reserved: bool,
    rooms: Vec<Room>,
    flushes: Vec<oneshot::Sender<()>>,
}

/// Bytes that are being written, and what is due when the last of them is.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    bytes: Vec<u8>,
    written: usize,
    rooms: Vec<Room>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl InFlight {
    /// What is still to be written.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// `count` more bytes were written. At the end of the batch the reserved bytes are given back and those who wait
    /// for a flush are told.
    pub(crate) fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.bytes.len() {
            self.done();
        }
    }

    fn done(&mut self) {
        self.written = 0;
        self.bytes.clear();
        // One frame of megabytes must not hold its memory for the rest of the host's life.
        self.bytes.shrink_to(WRITE_BYTES * 2);
        self.rooms.clear();
        for flushed in self.flushes.drain(..) {
            let _ = flushed.send(());
        }
    }

    fn take(&mut self, chunk: Chunk) {
        if self.bytes.is_empty() {
            self.bytes = chunk.bytes;
        } else {
            self.bytes.extend_from_slice(&chunk.bytes);
        }
        self.rooms.extend(chunk.rooms);
        self.flushes.extend(chunk.flushes);
    }
}

/// The two lanes and the heartbeat's own place.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    control: VecDeque<Chunk>,
    data: VecDeque<Chunk>,
    /// Only the newest one waits: an old heartbeat says nothing.
    heartbeat: Option<Vec<u8>>,
    unreserved_frames: usize,
    unreserved_bytes: usize,
}

impl Lanes {
    /// An answer: overtakes all data.
    pub(crate) fn answer(&mut self, frame: &[u8]) {
        self.unreserved_frames += 1;
        self.unreserved_bytes += frame.len();
        append(&mut self.control, 0, frame, false, None);
    }

    /// The heartbeat; one that still waits is replaced.
    pub(crate) fn heartbeat(&mut self, frame: Vec<u8>) {
        self.heartbeat = Some(frame);
    }

    /// A frame of `group` (a session), behind everything that the lane has.
    pub(crate) fn data(&mut self, group: u64, frame: &[u8], room: Option<Room>) {
        let reserved = room.is_some();
        if !reserved {
            self.unreserved_frames += 1;
            self.unreserved_bytes += frame.len();
        }
        append(&mut self.data, group, frame, reserved, room);
    }

    /// Tells `flushed` once everything of `group` that was queued before has been written.
    pub(crate) fn flush(&mut self, group: u64, flushed: oneshot::Sender<()>) {
        self.data.push_back(Chunk { group, flushes: vec![flushed], ..Chunk::default() });
    }

    /// Lets what waits of `group` overtake the rest, so that an answer about the same session cannot pass it.
    pub(crate) fn promote(&mut self, group: u64) {
        let (ahead, rest): (VecDeque<Chunk>, VecDeque<Chunk>) =
            std::mem::take(&mut self.data).into_iter().partition(|chunk| chunk.group == group);
        self.control.extend(ahead);
        self.data = rest;
    }

    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.data.is_empty() && self.heartbeat.is_none()
    }

    /// True if so many answers wait that no further command should be read.
    pub(crate) fn is_overfull(&self) -> bool {
        self.unreserved_frames >= UNRESERVED_FRAMES || self.unreserved_bytes >= UNRESERVED_BYTES
    }

    /// Fills an empty batch: answers first, then the heartbeat, then data, whole frames only.
    pub(crate) fn fill(&mut self, batch: &mut InFlight) {
        debug_assert!(batch.rest().is_empty(), "a batch is filled once the last one is written");
        while let Some(chunk) = next_that_fits(&mut self.control, batch) {
            self.moved(&chunk);
            batch.take(chunk);
        }
        if self.control.is_empty()
            && let Some(frame) = self.heartbeat.take_if(|frame| fits(batch, frame.len()))
        {
            batch.take(Chunk { bytes: frame, ..Chunk::default() });
        }
        if self.control.is_empty() && self.heartbeat.is_none() {
            while let Some(chunk) = next_that_fits(&mut self.data, batch) {
                self.moved(&chunk);
                batch.take(chunk);
            }
        }
        if batch.bytes.is_empty() {
            batch.done();
        }
    }

    fn moved(&mut self, chunk: &Chunk) {
        if !chunk.reserved {
            self.unreserved_frames -= chunk.frames;
            self.unreserved_bytes -= chunk.bytes.len();
        }
    }
}

fn fits(batch: &InFlight, len: usize) -> bool {
    batch.bytes.is_empty() || (len <= STRAIGHT_BYTES && batch.bytes.len() + len <= WRITE_BYTES)
}

fn next_that_fits(lane: &mut VecDeque<Chunk>, batch: &InFlight) -> Option<Chunk> {
    lane.pop_front_if(|chunk| fits(batch, chunk.bytes.len()))
}

/// Joins small neighbours of one group, so that a stream of small deltas costs one chunk for many.
fn append(lane: &mut VecDeque<Chunk>, group: u64, frame: &[u8], reserved: bool, room: Option<Room>) {
    if let Some(last) = lane.back_mut()
        && last.group == group
        && last.reserved == reserved
        && last.flushes.is_empty()
        && last.bytes.len() + frame.len() <= STRAIGHT_BYTES
    {
        last.bytes.extend_from_slice(frame);
        last.frames += 1;
        last.rooms.extend(room);
        return;
    }
    lane.push_back(Chunk {
        group,
        bytes: frame.to_vec(),
        frames: 1,
        reserved,
        rooms: room.into_iter().collect(),
        flushes: Vec::new(),
    });
}

#[cfg(test)]
mod tests;
