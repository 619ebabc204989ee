//! The registry file: where a host is recorded, so that the next supervisor finds it if this one dies.
//!
//! Everything here blocks on the file system, and [`RegistryFile::reconcile`] may wait for an orphan to die (bounded,
//! a few seconds): call it off the reactor.

use crate::machine::StartFault;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use turnhost_os::ProcessIdentity;
use turnhost_protocol::ErrorKind;

/// A registry file whose lock is held, until this is dropped.
#[derive(Debug)]
pub(crate) struct RegistryFile {
    path: PathBuf,
    /// Held for life: the kernel gives it back when the last copy of this descriptor is closed.
    _lock: OwnedFd,
}

/// What is recorded of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The process that the guard started.
    pub host: ProcessIdentity,
    /// Its guard.
    pub guard: Option<ProcessIdentity>,
    /// Of its hello.
    pub boot_id: String,
    /// Of its hello; "" if it named none.
    pub build_sha: String,
    /// Program and arguments.
    pub argv: Vec<OsString>,
}

/// What was found at start-up, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// No file.
    None,
    /// Unreadable in some way; it is `<file>.bad` now.
    InvalidRegistry,
    /// The host is dead; the file is removed.
    NotRunning,
    /// The pid names another process now, which was not touched; the file is removed.
    PidReuseIgnored,
    /// It was ours and orphaned, and has been ended; the file is removed.
    Terminated,
}

impl Reconciled {
    /// The word of `start`'s answer.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::InvalidRegistry => "invalid-registry",
            Self::NotRunning => "not-running",
            Self::PidReuseIgnored => "pid-reuse-ignored",
            Self::Terminated => "terminated",
        }
    }
}

/// The registry cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegistryError {
    /// Another supervisor has it.
    #[error("{}", owned_text(path, *pid))]
    Owned {
        /// The registry file.
        path: PathBuf,
        /// The supervisor, if the file or the lock names it.
        pid: Option<i32>,
    },
    /// The file or its lock cannot be written.
    #[error("cannot {step} {}: {reason}; {advice}", path.display())]
    Unwritable {
        /// What was tried.
        step: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's words, with errno.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
}

fn owned_text(path: &Path, pid: Option<i32>) -> String {
    let who = pid.map_or_else(|| "another supervisor".to_owned(), |pid| format!("pid {pid}"));
    format!("the registry {} is owned by {who}; stop that one, or name another file", path.display())
}

impl RegistryError {
    /// The same as a failed start.
    pub(crate) fn fault(&self) -> StartFault {
        let kind = match self {
            Self::Owned { .. } => ErrorKind::RegistryOwned,
            Self::Unwritable { .. } => ErrorKind::RegistryUnwritable,
        };
        StartFault { kind, detail: self.to_string() }
    }
}

impl RegistryFile {
    /// Takes the lock and tries that the file can be written. Do this before anything is spawned.
    ///
    /// # Errors
    /// [`RegistryError::Owned`] while another supervisor holds the lock, else [`RegistryError::Unwritable`].
    pub(crate) fn open(path: &Path) -> Result<Self, RegistryError> {
        let _ = path;
        Err(RegistryError::Owned { path: path.to_owned(), pid: None })
    }

    /// Deals with what an earlier supervisor left behind. Call it once after [`RegistryFile::open`]; it blocks while
    /// an orphan is ended.
    ///
    /// # Errors
    /// [`RegistryError::Owned`] if the recorded host has a living owner: nothing was signalled or removed.
    pub(crate) fn reconcile(&mut self) -> Result<Reconciled, RegistryError> {
        Ok(Reconciled::None)
    }

    /// Replaces the file: temporary file, fsync, rename, fsync of the folder.
    ///
    /// # Errors
    /// [`RegistryError::Unwritable`].
    pub(crate) fn write(&mut self, entry: &Entry) -> Result<(), RegistryError> {
        let _ = (entry, &self.path);
        Ok(())
    }

    /// Removes the file if it still names what [`RegistryFile::write`] wrote last. Never fails visibly: a file that
    /// stays is found `not-running` by the next start.
    pub(crate) fn remove(&mut self) {}
}
