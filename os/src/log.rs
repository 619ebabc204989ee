//! A log that many threads and processes append to without tearing a line.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Appends `record` and its newline to `path` in exactly one write: opened with O_APPEND, mode 0600, folders created
/// with mode 0700. A newline that the record brings is not doubled.
///
/// Blocks on the file system. Safe from any number of threads and processes on a local file system.
///
/// # Errors
/// What the file system says; `WriteZero` if the record was written short (a full disk).
///
/// # Example
/// ```
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("logs/agent.log");
/// turnhost_os::append_log_record(&path, r#"{"event":"started"}"#)?;
/// assert_eq!(std::fs::read_to_string(&path)?, "{\"event\":\"started\"}\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn append_log_record(path: impl AsRef<Path>, record: &str) -> io::Result<()> {
    let path = path.as_ref();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut line = String::with_capacity(record.len() + 1);
    line.push_str(record);
    if !record.ends_with('\n') {
        line.push('\n');
    }
    let mut file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let written = file.write(line.as_bytes())?;
    if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
