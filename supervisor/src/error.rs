//! Why a call was refused or failed.

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use turnhost_protocol::{ErrorKind, RequestId};

/// A call that came to nothing: the word of the closed table, and the words for people.
///
/// Serialises to `{"kind": …, "message": …}`, as `turnhost supervise` answers it, with `errno` and `pid` where they are
/// known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
#[non_exhaustive]
pub struct CallError {
    /// Which of the closed table.
    pub kind: ErrorKind,
    /// What happened, to what, and what to do.
    pub message: String,
    /// The request that was refused or that failed, if it had been named.
    pub request_id: Option<RequestId>,
    /// The number of the system's error, with `spawn_failed`.
    pub errno: Option<i32>,
    /// The process that owns the registry, with `registry_owned`.
    pub pid: Option<i32>,
}

impl CallError {
    /// An error of this kind with these words.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), request_id: None, errno: None, pid: None }
    }

    pub(crate) fn of_request(mut self, id: &RequestId) -> Self {
        self.request_id = Some(id.clone());
        self
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// The supervisor's thread is gone: nothing can be asked of it any more.
    pub(crate) fn gone() -> Self {
        Self::new(ErrorKind::Shutdown, "the supervisor has ended; make a new one")
    }
}

impl Serialize for CallError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("CallError", 4)?;
        fields.serialize_field("kind", self.kind.as_str())?;
        fields.serialize_field("message", &self.message)?;
        for (name, number) in [("errno", self.errno), ("pid", self.pid)] {
            match number {
                Some(number) => fields.serialize_field(name, &number)?,
                None => fields.skip_field(name)?,
            }
        }
        fields.end()
    }
}
