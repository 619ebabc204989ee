//! The compute host protocol: every frame as a type, the line decoder that both ends use, the route table,
//! the closed tables of endings, and the limits. No I/O, no clock, no threads.
//!
//! One JSON object per line, UTF-8, ended by the byte 0x0A. `docs/protocol.md` is the normative text; the
//! golden transcripts in `golden/` and the schemas in `schemas/` are compared with these types by tests.
//!
//! Both ends read alike: bytes go into a [`LineDecoder`], its lines into [`decode_command`] (in a host) or
//! [`decode_event`] (in whoever started it). What is refused is a value, and reading goes on.
//!
//! ```
//! use turnhost_protocol::frame::{HostEvent, TurnStart};
//! use turnhost_protocol::{HostCommand, Line, LineDecoder, decode_event, limits};
//!
//! let turn = TurnStart { sid: Some("s1".into()), request_id: Some("t1".into()), ..TurnStart::default() };
//! let mut line = Vec::new();
//! HostCommand::from(turn).encode(&mut line);
//! assert_eq!(line, b"{\"type\":\"turn.start\",\"sid\":\"s1\",\"request_id\":\"t1\"}\n");
//!
//! let mut decoder = LineDecoder::new(limits::MAX_FRAME_BYTES);
//! decoder.push(b"starting up...\n{\"type\":\"delta\",\"request_id\":\"t1\",\"text\":\"hi\",\"seq\":0}\n");
//! let mut text = String::new();
//! while let Some(line) = decoder.next_line() {
//!     let Line::Complete(bytes) = line else { continue };
//!     match decode_event(bytes) {
//!         Ok(decoded) => {
//!             if let HostEvent::Delta(delta) = decoded.frame {
//!                 text.push_str(&delta.text);
//!             }
//!         }
//!         Err(stray) => assert!(!stray.looks_like_frame),
//!     }
//! }
//! assert_eq!(text, "hi");
//! ```
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
