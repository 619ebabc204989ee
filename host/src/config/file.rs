//! The file as it was found: bounded, and never waited for.

use super::read::{Reading, read};
use super::{Config, ConfigError, Problem, Remark, RemarkKind, yaml};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Largest file in bytes that is read: a config of hundreds of lines has a few KiB.
pub const MAX_BYTES: usize = 1024 * 1024;

/// What stands at `<home>/config.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it is, or would be.
    pub path: PathBuf,
    /// Whether there is one.
    pub found: bool,
    /// What it says; what is wrong with it is left out.
    pub config: Config,
    /// Everything that makes it unusable, in the order of the lines.
    pub problems: Vec<Problem>,
    /// Every key that has no effect, in the order of the lines.
    pub remarks: Vec<Remark>,
    lines: BTreeMap<String, usize>,
}

impl ConfigFile {
    /// Reads `<home>/config.yaml` and says what is wrong with it; a file that is not there says nothing. Follows
    /// symbolic links, waits for no writer of a fifo, and reads no more than [`MAX_BYTES`]. Blocks on the file system.
    pub fn examine(home: &Path) -> Self {
        let path = home.join("config.yaml");
        match content(&path) {
            Ok(None) => Self { path, ..Self::default() },
            Ok(Some(bytes)) => Self::parse(&path, &bytes),
            Err(message) => Self::unusable(path, None, message),
        }
    }

    /// [`ConfigFile::examine`], for whom a file with problems is of no use.
    ///
    /// # Errors
    /// All the problems.
    pub fn read(home: &Path) -> Result<Self, ConfigError> {
        let file = Self::examine(home);
        if file.problems.is_empty() {
            Ok(file)
        } else {
            Err(ConfigError { path: file.path, problems: file.problems })
        }
    }

    /// What these bytes say. Pure; any bytes will do.
    pub fn parse(path: &Path, bytes: &[u8]) -> Self {
        let path = path.to_owned();
        if bytes.len() > MAX_BYTES {
            return Self::unusable(path, None, too_large());
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                return Self::unusable(path, Some(line), "no UTF-8 here; save the file as UTF-8".to_owned());
            }
        };
        match yaml::parse(text) {
            Ok(root) => {
                let Reading { config, lines, problems, remarks } = read(root.as_ref());
                Self { path, found: true, config, problems, remarks, lines }
            }
            Err(error) => Self::unusable(path, error.line, error.message),
        }
    }

    /// The line of a key of ours, as `model.name`; `None` if the file does not say it.
    pub fn line(&self, key: &str) -> Option<usize> {
        self.lines.get(key).copied()
    }

    /// The keys that were probably meant otherwise, one line for people each.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.remarks
            .iter()
            .filter(|remark| matches!(remark.kind, RemarkKind::Mistyped { .. }))
            .map(|remark| remark.to_line(&self.path))
    }

    fn unusable(path: PathBuf, line: Option<usize>, message: String) -> Self {
        let problems = vec![Problem { line, key: None, message }];
        Self { path, found: true, problems, ..Self::default() }
    }
}

fn too_large() -> String {
    format!("larger than {MAX_BYTES} bytes, which no config is; is it the right file?")
}

/// `None` if there is no file.
fn content(path: &Path) -> Result<Option<Vec<u8>>, String> {
    // Looked at first: opening a device may do something.
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(found) if found.is_dir() => return Err("a folder; a config is a file".to_owned()),
        Ok(_) => return Err("a pipe, socket or device; a config is a file".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_link = std::fs::symlink_metadata(path).is_ok();
            return if is_link { Err("a link to a file that does not exist".to_owned()) } else { Ok(None) };
        }
        Err(error) => return Err(unreadable(&error)),
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map(File::from).map_err(io::Error::from);
    let file = file.map_err(|error| unreadable(&error))?;
    // It may have been exchanged since.
    match file.metadata() {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err("no file any more".to_owned()),
        Err(error) => return Err(unreadable(&error)),
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    match file.take(limit).read_to_end(&mut bytes) {
        Ok(read) if read > MAX_BYTES => Err(too_large()),
        Ok(_) => Ok(Some(bytes)),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "; give this user the right to read it",
        io::ErrorKind::NotADirectory => "; HERMES_HOME must name a folder",
        _ => "",
    };
    format!("cannot be read: {error}{advice}")
}

#[cfg(test)]
mod tests;
