//! Every number that bounds something on the wire, with the reason beside it.

use std::time::Duration;

/// Largest frame in bytes, newline not counted, in both directions. Also the default of
/// `HERMES_COMPUTE_HOST_MAX_FRAME_BYTES`. 16 MiB carries an image in a prompt and still bounds the memory of a reader.
pub const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// Smallest frame limit that can be set: a frame without its big fields must still fit, with two identifiers of
/// [`MAX_ID_BYTES`] whose every byte is escaped to six.
pub const MIN_FRAME_BYTES: usize = 16 * 1024;
/// Deepest nesting of arrays and objects in one frame; a deeper one is refused before it is parsed.
pub const MAX_DEPTH: u32 = 128;
/// Bytes kept of each end of a line over the limit, to find out what it was.
pub const OVERSIZE_KEPT_BYTES: usize = 4 * 1024;
/// Bytes of a line that was no frame which are shown to people.
pub const STRAY_SHOWN_BYTES: usize = 4 * 1024;
/// Longest `request_id` or `sid` in bytes that is accepted at submit.
pub const MAX_ID_BYTES: usize = 1024;
/// Ended turns that a session remembers, to tell `already_ended` from `not_found`.
pub const ENDED_TURNS_KEPT: usize = 64;
/// Lines kept of a child's stderr for reports.
pub const STDERR_TAIL_LINES: usize = 80;
/// Bytes kept of one stderr line.
pub const STDERR_LINE_BYTES: usize = 4 * 1024;
/// Turns at once in a host when nothing says otherwise.
pub const DEFAULT_WORKERS: usize = 8;
/// Default heartbeat period of a host.
pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(15);
