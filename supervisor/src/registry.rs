//! The registry file: where a host is recorded, so that the next supervisor finds it if this one dies.
//!
//! The lock is a file of its own, `<registry>.lock`, that is never deleted: the kernel gives the lock back when its
//! holder dies. The registry file itself is only ever replaced as a whole. `decide` judges what was found, `entry` is
//! the file's content, `orphan` looks at processes and ends them, [`inspect`] only looks.
//!
//! Everything here blocks on the file system, and `reconcile` may wait for an orphan to die (bounded,
//! a few seconds): call it off the reactor.

mod decide;
mod entry;
mod inspect;
mod orphan;
#[cfg(test)]
mod tests;

pub use inspect::{Evidence, InspectError, Inspection, Life, Memory, Owner, inspect};

use crate::machine::StartFault;
use decide::{Verdict, decide};
use entry::{MAX_BYTES, Recorded};
use nix::errno::Errno;
use orphan::Suspect;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use turnhost_os::ProcessIdentity;
use turnhost_protocol::ErrorKind;

/// A registry file whose lock is held, until this is dropped.
#[derive(Debug)]
pub(crate) struct RegistryFile {
    path: PathBuf,
    folder: PathBuf,
    /// Held for life.
    _lock: File,
    /// Ourselves, as the file names us.
    supervisor: Option<ProcessIdentity>,
    /// What was written last.
    written: Option<Recorded>,
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
    /// A host of a dead supervisor does not die.
    #[error(
        "the host pid {pid} recorded in {} outlived its supervisor and could not be ended; end it by hand",
        path.display()
    )]
    Undying {
        /// The registry file.
        path: PathBuf,
        /// The host.
        pid: i32,
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
            Self::Owned { .. } | Self::Undying { .. } => ErrorKind::RegistryOwned,
            Self::Unwritable { .. } => ErrorKind::RegistryUnwritable,
        };
        let pid = match self {
            Self::Owned { pid, .. } => *pid,
            Self::Undying { pid, .. } => Some(*pid),
            Self::Unwritable { .. } => None,
        };
        StartFault { pid, ..StartFault::new(kind, self.to_string()) }
    }
}

impl RegistryFile {
    /// Takes the lock and tries that the file can be written. Do this before anything is spawned.
    ///
    /// # Errors
    /// [`RegistryError::Owned`] while another supervisor holds the lock, else [`RegistryError::Unwritable`].
    pub(crate) fn open(path: &Path) -> Result<Self, RegistryError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| unwritable("create the folder", &folder, &error))?;
        let lock = take_lock(path)?;
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let file = Self {
            path: path.to_owned(),
            folder,
            _lock: lock,
            supervisor: ProcessIdentity::of(own),
            written: None,
        };
        let trial = file.temporary();
        file.write_temporary(&trial, &[b' '; 4096])?;
        std::fs::remove_file(&trial).map_err(|error| unwritable("remove", &trial, &error))?;
        Ok(file)
    }

    /// Deals with what an earlier supervisor left behind. Call it once after [`RegistryFile::open`]; it blocks while
    /// an orphan is ended.
    ///
    /// # Errors
    /// [`RegistryError::Owned`] if the recorded host has a living owner: nothing was signalled or removed.
    /// [`RegistryError::Undying`] if an orphan could not be ended.
    pub(crate) fn reconcile(&mut self) -> Result<Reconciled, RegistryError> {
        let recorded = match read(&self.path) {
            Content::Absent => return Ok(Reconciled::None),
            Content::Unreadable => return self.set_aside(),
            Content::Bytes(bytes) => match Recorded::parse(&bytes) {
                Ok(recorded) => recorded,
                Err(entry::Malformed) => return self.set_aside(),
            },
        };
        let suspect = Suspect::open(&recorded);
        let outcome = match decide(&recorded, &suspect.facts) {
            Verdict::NotRunning => Reconciled::NotRunning,
            Verdict::PidReuse => Reconciled::PidReuseIgnored,
            Verdict::Owned { pid } => {
                return Err(RegistryError::Owned { path: self.path.clone(), pid: Some(pid) });
            }
            Verdict::Orphan { guarded } => {
                if !suspect.end(guarded) {
                    return Err(RegistryError::Undying { path: self.path.clone(), pid: recorded.host_pid });
                }
                Reconciled::Terminated
            }
        };
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(unwritable("remove", &self.path, &error))
            }
            Ok(()) | Err(_) => {
                self.sync_folder();
                Ok(outcome)
            }
        }
    }

    /// Replaces the file: temporary file, fsync, rename, fsync of the folder.
    ///
    /// # Errors
    /// [`RegistryError::Unwritable`].
    pub(crate) fn write(&mut self, entry: &Entry) -> Result<(), RegistryError> {
        let recorded = Recorded {
            host_pid: entry.host.pid,
            boot_id: entry.boot_id.clone(),
            build_sha: entry.build_sha.clone(),
            started_at: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64()),
            argv: entry.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            host_start_ticks: Some(entry.host.start_ticks),
            machine_boot_id: entry.host.machine_boot_id.clone(),
            supervisor: self.supervisor.clone(),
            guard: entry.guard.clone(),
        };
        let temporary = self.temporary();
        self.write_temporary(&temporary, &recorded.to_bytes())?;
        if let Err(error) = std::fs::rename(&temporary, &self.path) {
            let _ = std::fs::remove_file(&temporary);
            return Err(unwritable("replace", &self.path, &error));
        }
        self.sync_folder();
        self.written = Some(recorded);
        Ok(())
    }

    /// Removes the file if it still names what [`RegistryFile::write`] wrote last. Never fails visibly: a file that
    /// stays is found `not-running` by the next start.
    pub(crate) fn remove(&mut self) {
        let Some(written) = self.written.take() else { return };
        let Content::Bytes(bytes) = read(&self.path) else { return };
        let still_ours = Recorded::parse(&bytes)
            .is_ok_and(|found| found.host() == written.host() && found.supervisor == written.supervisor);
        if still_ours && std::fs::remove_file(&self.path).is_ok() {
            self.sync_folder();
        }
    }

    /// Moves what cannot be read out of the way, whatever it is: a rename follows no link and opens nothing.
    fn set_aside(&self) -> Result<Reconciled, RegistryError> {
        let bad = with_suffix(&self.path, ".bad");
        let renamed = std::fs::rename(&self.path, &bad).or_else(|_| {
            // An earlier one of another kind is in the way; of a folder only an empty one is removed.
            let _ = std::fs::remove_file(&bad).or_else(|_| std::fs::remove_dir(&bad));
            std::fs::rename(&self.path, &bad)
        });
        renamed.map_err(|error| unwritable("set aside", &self.path, &error))?;
        self.sync_folder();
        Ok(Reconciled::InvalidRegistry)
    }

    /// In the same folder, since a rename cannot cross file systems. One name: the lock keeps others away.
    fn temporary(&self) -> PathBuf {
        with_suffix(&self.path, ".tmp")
    }

    fn write_temporary(&self, temporary: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
        let written = std::fs::remove_file(temporary)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .and_then(|()| {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut file = File::from(rustix::fs::open(temporary, flags, Mode::RUSR | Mode::WUSR)?);
                file.write_all(bytes)?;
                file.sync_all()
            });
        written.map_err(|error| {
            let _ = std::fs::remove_file(temporary);
            unwritable("write", temporary, &error)
        })
    }

    /// So that the rename outlives a power cut. Some file systems cannot; then nothing better is to be had.
    fn sync_folder(&self) {
        let _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
    }
}

/// What stands at the path.
enum Content {
    /// Nothing.
    Absent,
    /// A regular file of a bearable size.
    Bytes(Vec<u8>),
    /// Anything else.
    Unreadable,
}

/// Follows no link, waits for no writer of a fifo, and reads no more than a registry can hold.
fn read(path: &Path) -> Content {
    let is_file = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Content::Absent,
        Err(_) => false,
    };
    if !is_file {
        return Content::Unreadable;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else {
        return Content::Unreadable;
    };
    // It may have been exchanged since.
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Content::Unreadable;
    }
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    match file.take(limit).read_to_end(&mut bytes) {
        Ok(read) if read <= MAX_BYTES => Content::Bytes(bytes),
        Ok(_) | Err(_) => Content::Unreadable,
    }
}

fn take_lock(registry: &Path) -> Result<File, RegistryError> {
    let path = with_suffix(registry, ".lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    loop {
        let mut lock = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|errno| unwritable("open the lock", &path, &errno.into()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = named_pid(&mut lock);
                return Err(RegistryError::Owned { path: registry.to_owned(), pid });
            }
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(unwritable("lock", &path, &errno.into())),
        }
        // Nobody of ours deletes it, but somebody may have: then the lock is on a file that nobody else will find.
        let held = lock.metadata().map_err(|error| unwritable("look at the lock", &path, &error))?;
        let found = std::fs::symlink_metadata(&path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (held.dev(), held.ino())) {
            // For the message of whoever comes second; the lock itself is the kernel's.
            let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
            return Ok(lock);
        }
    }
}

/// The pid that a lock's holder wrote into it.
fn named_pid(lock: &mut File) -> Option<i32> {
    let mut text = String::new();
    lock.rewind().ok()?;
    lock.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|pid| *pid > 0)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OsStr::new(suffix));
    PathBuf::from(name)
}

fn unwritable(step: &'static str, path: &Path, error: &io::Error) -> RegistryError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO));
    let advice = match errno {
        Errno::EACCES | Errno::EPERM => {
            "give this user the right to write there, or name another registry file"
        }
        Errno::EROFS => "the file system is read-only; name another registry file",
        Errno::ENOSPC | Errno::EDQUOT => "the disk is full; free some space",
        Errno::ENOTDIR | Errno::EEXIST => {
            "something that is no folder is in the way; name another registry file"
        }
        Errno::EISDIR | Errno::ENOTEMPTY => "a folder is in the way; move it away",
        Errno::ELOOP => "a link is in the way; move it away",
        Errno::EMFILE | Errno::ENFILE => "too many files are open; raise the limit (ulimit -n)",
        Errno::ENOLCK | Errno::EOPNOTSUPP => {
            "the file system knows no locks; put the registry on a local disk"
        }
        _ => "name another registry file, or run without one",
    };
    let reason = format!("{} ({errno:?})", errno.desc());
    RegistryError::Unwritable { step, path: path.to_owned(), reason, advice }
}
