//! What `<home>/config.yaml` says, and which of command line, environment and file counts. Read only: other programs
//! keep keys of their own in the file, which are left alone. `docs/config.md` has every key.
//!
//! - [`ConfigFile`] is the file as it was found: what it says, on which line, and what is wrong with it.
//! - [`Settings`] is what holds in the end, each value with its [`Source`].
//!
//! ```
//! use std::path::Path;
//! use turnhost_host::HostArgs;
//! use turnhost_host::config::{ConfigFile, Settings};
//!
//! let file = ConfigFile::parse(Path::new("/h/config.yaml"), b"model:\n  name: big\n  base_url: http://one/v1\n");
//! let variable = |name: &str| (name == "OPENAI_BASE_URL").then(|| "http://two/v1".to_owned());
//! let settings = Settings::resolve(&HostArgs::default(), variable, &file);
//! let base_url = settings.base_url.unwrap();
//! assert_eq!((base_url.value.as_str(), base_url.source.to_string().as_str()), ("http://two/v1", "OPENAI_BASE_URL"));
//! assert_eq!(settings.model.unwrap().source.to_string(), "/h/config.yaml:2");
//! assert_eq!(settings.agent.value, "openai");
//! ```

mod file;
mod read;
mod settings;
mod yaml;

pub use file::{ConfigFile, MAX_BYTES};
pub use settings::{API_KEY, Resolved, Settings, Source};

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The keys of the file that are ours. Whatever it does not say is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// `model`: which model, and where it is served.
    pub model: ModelConfig,
    /// `agent`: which agent, and its options.
    pub agent: AgentConfig,
    /// `personalities`: named additions to the system prompt.
    pub personalities: BTreeMap<String, String>,
}

/// `model.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelConfig {
    /// Who serves it; text for people and front ends.
    pub provider: Option<String>,
    /// The model's name, as the server knows it.
    pub name: Option<String>,
    /// Base URL of an OpenAI-compatible server, usually ending in `/v1`.
    pub base_url: Option<String>,
}

/// `agent.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentConfig {
    /// The agent of turns that name none.
    pub name: Option<String>,
    /// The system prompt of sessions that set none.
    pub system_prompt: Option<String>,
    /// Program and arguments of the exec agent in turns that bring none; empty if unset.
    pub exec_argv: Vec<String>,
    /// Chunks of the scripted agent in turns that name no number.
    pub scripted_delta_count: Option<u64>,
    /// Pause between them.
    pub scripted_delay: Option<Duration>,
}

impl Config {
    /// Reads `<home>/config.yaml`; a file that is not there says nothing. Blocks.
    ///
    /// # Errors
    /// A file that cannot be read or is no YAML, and values of ours of the wrong type, named with their lines.
    pub fn read(home: &Path) -> Result<Self, ConfigError> {
        Ok(ConfigFile::read(home)?.config)
    }
}

/// Why the file could not be used: everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    /// The first problem; `turnhost config check` shows them all.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [] => write!(formatter, "{} cannot be used", self.path.display()),
            [only] => only.show(&self.path, formatter),
            [first, rest @ ..] => {
                first.show(&self.path, formatter)?;
                write!(formatter, " (and {} more: see `turnhost config check`)", rest.len())
            }
        }
    }
}

/// One thing that makes the file unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Counted from 1; `None` if it concerns the file as a whole.
    pub line: Option<usize>,
    /// The key of ours, with dots; `None` if it concerns the file as a whole.
    pub key: Option<String>,
    /// A lowercase fragment: what is wrong and what would be right.
    pub message: String,
}

impl Problem {
    fn show(&self, path: &Path, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", path.display())?;
        if let Some(line) = self.line {
            write!(formatter, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(formatter, ": {key}")?;
        }
        write!(formatter, ": {}", self.message)
    }

    /// As one line for people, the way compilers write it: file, line, key, message.
    pub fn to_line(&self, path: &Path) -> String {
        struct Shown<'a>(&'a Problem, &'a Path);
        impl fmt::Display for Shown<'_> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.show(self.1, formatter)
            }
        }
        Shown(self, path).to_string()
    }
}

/// A key that the file holds and that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Counted from 1.
    pub line: usize,
    /// The key with its sections, joined by dots.
    pub key: String,
    /// Why.
    pub kind: RemarkKind,
}

/// Why a key has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemarkKind {
    /// It resembles a key of ours.
    Mistyped {
        /// That key.
        nearest: String,
    },
    /// It stands where ours stand, and is not used.
    Ignored {
        /// Why not.
        why: &'static str,
    },
    /// It is another program's.
    Foreign,
}

impl Remark {
    /// As one line for people: file, line, key, what about it.
    pub fn to_line(&self, path: &Path) -> String {
        let what = match &self.kind {
            RemarkKind::Mistyped { nearest } => format!("no such key; did you mean {nearest}?"),
            RemarkKind::Ignored { why } => format!("not used: {why}"),
            RemarkKind::Foreign => "another program's; left alone".to_owned(),
        };
        format!("{}:{}: {}: {what}", path.display(), self.line, self.key)
    }
}
