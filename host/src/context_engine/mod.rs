//! Context compression: what an engine is, and what it is given. [`HeadAndTail`] is the built-in one.
//!
//! `session.compress` and `/compress` ask the host's engine for a shorter history. The host commits it, gives the
//! session a new key whose parent is the old one, and then tells the engine, once, that the session goes on under the
//! new key. If anything fails before the commit is complete, the history stays as it was and the engine is told
//! nothing.
//!
//! # An engine of your own
//! ```
//! use turnhost_host::context_engine::{
//!     BoundaryFuture, Compressed, Compression, CompressionFuture, CompressionRequest, ContextEngine, SessionBoundary,
//! };
//! use turnhost_host::{Agents, agent::builtin, config::Config};
//!
//! /// Keeps the last messages and forgets the others.
//! struct Forgetful;
//!
//! impl ContextEngine for Forgetful {
//!     fn compress(&self, request: CompressionRequest) -> CompressionFuture<'_> {
//!         Box::pin(async move {
//!             let messages = request.history.iter().skip(request.history.len().saturating_sub(10)).cloned().collect();
//!             Ok(Compression::Compressed(Compressed { messages, summary: String::new(), session_key: None }))
//!         })
//!     }
//!
//!     fn on_session_start(&self, boundary: SessionBoundary) -> BoundaryFuture<'_> {
//!         Box::pin(async move { tracing::info!(key = boundary.session_key, "a session was compressed") })
//!     }
//! }
//!
//! let agents: Agents = builtin(None, &Config::default()).with_context_engine(Forgetful);
//! ```

mod ask;
mod head_and_tail;

pub use head_and_tail::HeadAndTail;

pub(crate) use ask::SessionAgent;

use crate::turn::context::Interrupt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use turnhost_protocol::{RawJson, SessionId};

/// The future of one compression.
pub type CompressionFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Compression, CompressionError>> + Send + 'a>>;

/// The future of one notification.
pub type BoundaryFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Makes histories shorter. Its futures run as tasks beside the turns and must not block their thread. A panic aborts
/// that compression and nothing else.
pub trait ContextEngine: Send + Sync + 'static {
    /// A shorter history for the session. While it runs the session takes no turn. It should end soon after
    /// [`CompressionRequest::interrupt`] is set; 10 s later it is dropped. Whatever it gives after that is not used.
    fn compress(&self, request: CompressionRequest) -> CompressionFuture<'_>;

    /// The compressed history was committed, and the session goes on under a new key. Called exactly once for each
    /// compression that was committed, and for no other; the answer to whoever asked waits for it, 5 s at most.
    fn on_session_start(&self, boundary: SessionBoundary) -> BoundaryFuture<'_> {
        let _ = boundary;
        Box::pin(std::future::ready(()))
    }
}

/// What an engine is asked.
#[derive(Debug)]
pub struct CompressionRequest {
    /// The session.
    pub sid: SessionId,
    /// Its durable name.
    pub session_key: String,
    /// Its messages, oldest first.
    pub history: Arc<Vec<RawJson>>,
    /// What the summary should keep above all, if that was said.
    pub focus: Option<String>,
    /// The session's model, if one is known.
    pub model: Option<String>,
    /// Set when the compression should stop: a person interrupted it, its time is up, or the host stops.
    pub interrupt: Interrupt,
    /// `None`: this host has no such agent.
    pub(crate) agent: Option<SessionAgent>,
}

/// What came of a compression.
#[derive(Debug, Clone, PartialEq)]
pub enum Compression {
    /// A shorter history.
    Compressed(Compressed),
    /// There is nothing to gain; the history stays. `reason` is a lowercase fragment for people.
    Unchanged {
        /// Why.
        reason: String,
    },
}

/// A shorter history.
#[derive(Debug, Clone, PartialEq)]
pub struct Compressed {
    /// All its messages, oldest first: objects with a `role`. Others are refused, and the history stays.
    pub messages: Vec<RawJson>,
    /// The text that took the place of what was left out; may be empty.
    pub summary: String,
    /// The session's new key, of 1 to 1,024 bytes and no other session's; `None`: the host makes one.
    pub session_key: Option<String>,
}

/// Why a compression came to nothing; the history stays. A lowercase fragment for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompressionError(String);

impl CompressionError {
    /// With this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// A session goes on under another key.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionBoundary {
    /// The session.
    pub sid: SessionId,
    /// Its key from now on.
    pub session_key: String,
    /// The key that it had, now the parent of the new one.
    pub parent_session_key: String,
    /// The history that was committed.
    pub history: Arc<Vec<RawJson>>,
}

/// Tokens that these messages come to, about: a quarter of the characters of their JSON, rounded up. A plain estimate
/// that needs no model; real counts differ by language and tokenizer.
pub fn estimated_tokens(messages: &[RawJson]) -> u64 {
    messages.iter().map(|message| message.as_str().chars().count() as u64).sum::<u64>().div_ceil(4)
}
