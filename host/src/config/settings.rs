//! Which value counts: the command line before the environment before the file before the default. Pure.

use super::ConfigFile;
use crate::agent::scripted::{DEFAULT_DELAY, DEFAULT_DELTA_COUNT};
use crate::options::{DEFAULT_DRAIN, HostArgs, home, seconds};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use turnhost_protocol::limits::{DEFAULT_HEARTBEAT, DEFAULT_WORKERS, MAX_FRAME_BYTES, MIN_FRAME_BYTES};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An option of the command line.
    Flag(&'static str),
    /// A variable of the environment.
    Variable(&'static str),
    /// The config.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// It follows from another setting: which.
    Because(&'static str),
    /// Nothing says otherwise.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Variable(name) => formatter.write_str(name),
            Self::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Self::Because(what) => write!(formatter, "because {what}"),
            Self::Default => formatter.write_str("default"),
        }
    }
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved<T> {
    /// What counts.
    pub value: T,
    /// Who said so.
    pub source: Source,
}

impl<T> Resolved<T> {
    fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }

    fn flag(value: Option<T>, name: &'static str) -> Option<Self> {
        Some(Self::new(value?, Source::Flag(name)))
    }
}

/// Everything that command line, environment and config decide about a host. A value that nobody gave is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The folder of the config, logs and saved sessions.
    pub home: Resolved<PathBuf>,
    /// The agent of turns that name none.
    pub agent: Resolved<String>,
    /// Who serves the model.
    pub provider: Option<Resolved<String>>,
    /// The model of sessions that choose none.
    pub model: Option<Resolved<String>>,
    /// Base URL of the model's server.
    pub base_url: Option<Resolved<String>>,
    /// Who gives the API key, if anybody does; never the key itself.
    pub api_key: Option<Source>,
    /// The system prompt of sessions that set none.
    pub system_prompt: Option<Resolved<String>>,
    /// Program and arguments of the exec agent in turns that bring none.
    pub exec_argv: Option<Resolved<Vec<String>>>,
    /// Chunks of the scripted agent in turns that name no number.
    pub delta_count: Resolved<u64>,
    /// Pause between them.
    pub delay: Resolved<Duration>,
    /// Named additions to the system prompt, sorted by name.
    pub personalities: Vec<(String, Resolved<String>)>,
    /// Turns at once.
    pub workers: Resolved<usize>,
    /// Period of the heartbeat; `None`: there is none.
    pub heartbeat: Resolved<Option<Duration>>,
    /// How long running turns may go on after SIGTERM.
    pub drain: Resolved<Duration>,
    /// Largest frame in bytes.
    pub max_frame_bytes: Resolved<usize>,
    /// Whether each turn is mirrored as `rpc` frames.
    pub rpc_events: Resolved<bool>,
    /// Variables whose values cannot be used, one line for people each.
    pub ignored: Vec<String>,
}

/// The variable of the API key.
pub const API_KEY: &str = "OPENAI_API_KEY";

impl Settings {
    /// Decides. `variable` gives a variable of the environment; an empty one counts as unset, but for the pool's.
    pub fn resolve(args: &HostArgs, variable: impl Fn(&str) -> Option<String>, file: &ConfigFile) -> Self {
        let filled = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut ignored = Vec::new();
        let config = &file.config;
        // A value of the file always has a line; 1 is for a `ConfigFile` that somebody made by hand.
        let at = |key: &str| Source::File { path: file.path.clone(), line: file.line(key).unwrap_or(1) };
        let said = |value: &Option<String>, key: &str| Some(Resolved::new(value.clone()?, at(key)));

        let base_url = Resolved::flag(args.base_url.clone(), "--base-url")
            .or_else(|| Some(Resolved::new(filled("OPENAI_BASE_URL")?, Source::Variable("OPENAI_BASE_URL"))))
            .or_else(|| said(&config.model.base_url, "model.base_url"));
        let api_key = filled(API_KEY).map(|_| Source::Variable(API_KEY));
        let agent = Resolved::flag(args.agent.clone(), "--agent")
            .or_else(|| said(&config.agent.name, "agent.name"))
            .unwrap_or_else(|| follow(args.script.is_some(), base_url.is_some(), api_key.is_some()));
        let exec_argv = (!config.agent.exec_argv.is_empty())
            .then(|| Resolved::new(config.agent.exec_argv.clone(), at("agent.exec.argv")));
        let personalities = config.personalities.iter().map(|(name, text)| {
            (name.clone(), Resolved::new(text.clone(), at(&format!("personalities.{name}"))))
        });
        Self {
            home: home(&filled),
            agent,
            provider: said(&config.model.provider, "model.provider"),
            model: Resolved::flag(args.model.clone(), "--model")
                .or_else(|| said(&config.model.name, "model.name")),
            base_url,
            api_key,
            system_prompt: said(&config.agent.system_prompt, "agent.system_prompt"),
            exec_argv,
            delta_count: config.agent.scripted_delta_count.map_or_else(
                || Resolved::new(DEFAULT_DELTA_COUNT, Source::Default),
                |count| Resolved::new(count, at("agent.scripted.delta_count")),
            ),
            delay: config.agent.scripted_delay.map_or_else(
                || Resolved::new(DEFAULT_DELAY, Source::Default),
                |delay| Resolved::new(delay, at("agent.scripted.delay_s")),
            ),
            personalities: personalities.collect(),
            workers: workers(args, &variable, &mut ignored),
            heartbeat: heartbeat(args, &filled, &mut ignored),
            drain: Resolved::flag(args.drain_secs, "--drain-secs")
                .unwrap_or_else(|| Resolved::new(DEFAULT_DRAIN, Source::Default)),
            max_frame_bytes: max_frame_bytes(&filled, &mut ignored),
            rpc_events: if args.rpc_events {
                Resolved::new(true, Source::Flag("--rpc-events"))
            } else {
                Resolved::new(false, Source::Default)
            },
            ignored,
        }
    }
}

/// Nobody named an agent.
fn follow(has_script: bool, has_base_url: bool, has_api_key: bool) -> Resolved<String> {
    let (name, source) = match (has_script, has_base_url, has_api_key) {
        // It is meant to be played.
        (true, _, _) => ("scripted", Source::Because("a script is given")),
        (false, true, _) => ("openai", Source::Because("a base URL is set")),
        (false, false, true) => ("openai", Source::Because("OPENAI_API_KEY is set")),
        (false, false, false) => ("scripted", Source::Default),
    };
    Resolved::new(name.to_owned(), source)
}

/// Workers as the pool variable says: at least 2, and 8 if it is unset or no number.
fn workers(
    args: &HostArgs,
    variable: &dyn Fn(&str) -> Option<String>,
    ignored: &mut Vec<String>,
) -> Resolved<usize> {
    const NAME: &str = "HERMES_TUI_RPC_POOL_WORKERS";
    if let Some(workers) = args.workers {
        return Resolved::new(usize::try_from(workers).unwrap_or(usize::MAX), Source::Flag("--workers"));
    }
    let default = Resolved::new(DEFAULT_WORKERS, Source::Default);
    let Some(text) = variable(NAME) else { return default };
    match text.trim().parse::<i64>() {
        Ok(number) => {
            let workers = usize::try_from(number.max(2)).unwrap_or(DEFAULT_WORKERS);
            Resolved::new(workers, Source::Variable(NAME))
        }
        Err(_) => {
            if !text.is_empty() {
                ignored.push(format!("{NAME}: {text:?} is no whole number; {DEFAULT_WORKERS} is used"));
            }
            default
        }
    }
}

fn heartbeat(
    args: &HostArgs,
    filled: &dyn Fn(&str) -> Option<String>,
    ignored: &mut Vec<String>,
) -> Resolved<Option<Duration>> {
    const NAME: &str = "HERMES_COMPUTE_HOST_HEARTBEAT_SECS";
    let some = |period: Duration, source| Resolved::new(Some(period).filter(|p| !p.is_zero()), source);
    if let Some(period) = args.heartbeat_secs {
        return some(period, Source::Flag("--heartbeat-secs"));
    }
    match filled(NAME).map(|text| seconds(text.trim())) {
        Some(Ok(period)) => some(period, Source::Variable(NAME)),
        Some(Err(problem)) => {
            ignored.push(format!("{NAME}: {problem}; {} is used", DEFAULT_HEARTBEAT.as_secs()));
            some(DEFAULT_HEARTBEAT, Source::Default)
        }
        None => some(DEFAULT_HEARTBEAT, Source::Default),
    }
}

fn max_frame_bytes(filled: &dyn Fn(&str) -> Option<String>, ignored: &mut Vec<String>) -> Resolved<usize> {
    const NAME: &str = "HERMES_COMPUTE_HOST_MAX_FRAME_BYTES";
    let Some(text) = filled(NAME) else { return Resolved::new(MAX_FRAME_BYTES, Source::Default) };
    match text.trim().parse::<usize>() {
        Ok(bytes) => {
            if bytes < MIN_FRAME_BYTES {
                ignored.push(format!("{NAME}: {bytes} is too small; {MIN_FRAME_BYTES} is used"));
            }
            Resolved::new(bytes.max(MIN_FRAME_BYTES), Source::Variable(NAME))
        }
        Err(_) => {
            ignored.push(format!("{NAME}: {text:?} is no number of bytes; {MAX_FRAME_BYTES} is used"));
            Resolved::new(MAX_FRAME_BYTES, Source::Default)
        }
    }
}

#[cfg(test)]
mod tests;
