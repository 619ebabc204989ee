//! A log that many threads and processes append to without tearing a line.

use rustix::fs::OFlags;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Appends `record` and its newline to `path` in exactly one write: opened with O_APPEND, mode 0600, folders created
/// with mode 0700. A newline that the record brings is not doubled.
///
/// Blocks on the file system, but never for a reader: a fifo that nobody reads is an error. Safe from any number of threads and processes on a local file system.
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
    let mut open = std::fs::OpenOptions::new();
    open.append(true).create(true).mode(0o600).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut file = open.open(path)?;
    let written = file.write(line.as_bytes())?;
    if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Barrier;

    #[test]
    fn thirty_two_threads_never_tear_a_log_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let together = Barrier::new(32);
        std::thread::scope(|scope| {
            for writer in 0..32 {
                let (path, together) = (&path, &together);
                scope.spawn(move || {
                    together.wait();
                    append_log_record(path, &format!("line-{writer:03}-{}", "x".repeat(2000))).unwrap();
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let expected: Vec<String> =
            (0..32).map(|writer| format!("line-{writer:03}-{}", "x".repeat(2000))).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_log_is_its_owners_alone_and_its_folders_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/agent.log");
        append_log_record(&path, "one").unwrap();
        append_log_record(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&dir.path().join("a")), 0o700);
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(append_log_record(dir.path(), "one").is_err());
    }

    #[test]
    fn a_fifo_in_the_place_of_the_log_holds_nobody_up() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(append_log_record(path, "one")));
        let result = told.recv_timeout(std::time::Duration::from_secs(60)).expect("an answer");
        assert!(result.is_err());
    }
}
