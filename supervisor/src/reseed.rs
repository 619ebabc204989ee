//! Where the histories of sessions come from when a new host must be given them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use turnhost_protocol::{RawJson, SessionId};

type Ask = dyn Fn(&SessionId) -> Option<Vec<RawJson>> + Send + Sync;

/// The embedder's own record of sessions, asked before the supervisor's whenever a new host is seeded.
///
/// It runs on a thread of its own, never on the I/O thread, and all its answers for one host must be there within
/// [`crate::Config::reseed_timeout`]; whatever is not is taken from the supervisor's own record. `None` = it does not
/// know the session.
#[derive(Clone)]
pub struct ReseedSource {
    ask: Arc<Ask>,
}

impl ReseedSource {
    /// A source that may block.
    pub fn blocking(ask: impl Fn(&SessionId) -> Option<Vec<RawJson>> + Send + Sync + 'static) -> Self {
        Self { ask: Arc::new(ask) }
    }

    /// An async source. Its futures are polled on a plain thread: what needs a runtime must bring its own handle.
    pub fn future<F>(ask: impl Fn(SessionId) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Vec<RawJson>>> + Send + 'static,
    {
        Self::blocking(move |sid| {
            let future: Pin<Box<F>> = Box::pin(ask(sid.clone()));
            crate::blocking::block_on(future)
        })
    }

    pub(crate) fn history(&self, sid: &SessionId) -> Option<Vec<RawJson>> {
        (self.ask)(sid)
    }
}

impl fmt::Debug for ReseedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReseedSource")
    }
}
