//! The compute host protocol: every frame as a type, the line decoder that both ends use, the route table,
//! the closed tables of endings, and the limits. No I/O, no clock, no threads.
//!
//! One JSON object per line, UTF-8, ended by the byte 0x0A. `docs/protocol.md` is the normative text; the
//! golden transcripts in `golden/` and the schemas in `schemas/` are compared with these types by tests.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod decode;
pub mod encode;
pub mod frame;
pub mod hello;
pub mod ids;
pub mod limits;
pub mod line;
pub mod outcome;
pub mod peek;
pub mod raw;
pub mod route;
mod salvage;
pub mod scan;
#[cfg(any(test, feature = "schema"))]
pub mod schema;

pub use decode::{DecodeError, DecodeErrorKind, Decoded, decode_command, decode_event};
pub use encode::{Encoded, delta_pieces, encode_turn_event, encode_turn_event_bounded, text_pieces};
pub use frame::{HostCommand, HostEvent};
pub use ids::{BootId, RequestId, SessionId};
pub use line::{Line, LineDecoder};
pub use outcome::{ErrorKind, FailReason};
pub use peek::{PeekedIds, peek_ids};
pub use raw::RawJson;
pub use route::{Route, RouteClass};
