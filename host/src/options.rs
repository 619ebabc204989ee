//! What a host is told at start: the command line first, then the environment, then the config, then the defaults.

use crate::config::{Config, ConfigError, ConfigFile, Resolved, Settings, Source};
use std::path::{Path, PathBuf};
use std::time::Duration;
use turnhost_protocol::limits::MIN_FRAME_BYTES;

/// Time that running turns get after SIGTERM.
pub(crate) const DEFAULT_DRAIN: Duration = Duration::from_secs(9);
/// Shortest period of the heartbeat: a shorter one would leave the loop no time for anything else.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(10);
/// Longest period or drain, so that every deadline can be reckoned with.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The command line of a host. `turnhost host` has the same options.
#[derive(Debug, Clone, Default, clap::Parser)]
#[command(name = "compute-host", version, about = "Runs an agent's turns behind line-delimited JSON frames")]
pub struct HostArgs {
    /// Turns at once, from 1 [default: the variable HERMES_TUI_RPC_POOL_WORKERS, else 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub workers: Option<u32>,
    /// Seconds between heartbeats, 0 for none [default: HERMES_COMPUTE_HOST_HEARTBEAT_SECS, else 15]
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub heartbeat_secs: Option<Duration>,
    /// Seconds that running turns may take to end after SIGTERM [default: 9]
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub drain_secs: Option<Duration>,
    /// Mirror each turn as JSON-RPC events, for parents that forward only those
    #[arg(long)]
    pub rpc_events: bool,
    /// The agent of turns that name none
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// A script that the scripted agent plays in turns that bring none; docs/scripted.md has the steps
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Base URL of an OpenAI-compatible server [default: OPENAI_BASE_URL, else model.base_url of the config]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The model of sessions that choose none [default: model.name of the config]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
}

/// Everything that decides how a host behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// Turns at once, those that await and those that block together; at least 1.
    pub workers: usize,
    /// Period of the heartbeat, at least 10 ms; `None`: no heartbeat.
    pub heartbeat: Option<Duration>,
    /// How long running turns may go on after SIGTERM.
    pub drain: Duration,
    /// Whether each turn is mirrored as `rpc` frames.
    pub rpc_events: bool,
    /// Largest frame in bytes, read or written; at least [`MIN_FRAME_BYTES`].
    pub max_frame_bytes: usize,
    /// Where what must be written somewhere goes: logs, saved sessions.
    pub home: PathBuf,
    /// `HERMES_HOME` as found, "" if unset; what `hello` says.
    pub hermes_home: String,
    /// Working directory of sessions that name none.
    pub cwd: PathBuf,
    /// The build that `hello` names.
    pub build_sha: String,
    /// Base URL of the model's server: command line, then `OPENAI_BASE_URL`, then the config.
    pub base_url: Option<String>,
    /// The model of sessions that choose none: command line, then the config.
    pub model: Option<String>,
    /// What `<home>/config.yaml` says.
    pub config: Config,
}

impl Default for HostOptions {
    /// The defaults, as with an empty command line and an empty environment.
    fn default() -> Self {
        Self::new(&HostArgs::default(), Path::new("/"), |_| None)
    }
}

impl HostOptions {
    /// Options of this process: `args`, its environment, its config, its working directory. Blocks on the config.
    ///
    /// # Errors
    /// A config that cannot be used.
    pub fn from_env(args: &HostArgs) -> Result<Self, ConfigError> {
        let (settings, file) = settings_of_this_process(args)?;
        Ok(Self::of(settings, file.config))
    }

    /// The same with any environment and no config.
    pub fn new(args: &HostArgs, cwd: &Path, variable: impl Fn(&str) -> Option<String>) -> Self {
        let hermes_home = variable("HERMES_HOME").unwrap_or_default();
        let settings = Settings::resolve(args, variable, &ConfigFile::default());
        Self { hermes_home, cwd: cwd.to_owned(), ..Self::of(settings, Config::default()) }
    }

    /// What `settings` say, in the working directory of this process.
    pub(crate) fn of(settings: Settings, config: Config) -> Self {
        Self {
            workers: settings.workers.value,
            heartbeat: settings.heartbeat.value,
            drain: settings.drain.value,
            rpc_events: settings.rpc_events.value,
            max_frame_bytes: settings.max_frame_bytes.value,
            home: settings.home.value,
            hermes_home: std::env::var("HERMES_HOME").unwrap_or_default(),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            build_sha: option_env!("TURNHOST_BUILD_SHA")
                .filter(|sha| !sha.is_empty())
                .unwrap_or("unknown")
                .to_owned(),
            base_url: settings.base_url.map(|base_url| base_url.value),
            model: settings.model.map(|model| model.value),
            config,
        }
    }
}

/// What command line, environment and config of this process decide, and the config. Blocks on the file.
///
/// # Errors
/// A config that cannot be used.
pub fn settings_of_this_process(args: &HostArgs) -> Result<(Settings, ConfigFile), ConfigError> {
    let file = ConfigFile::read(&home_of_this_process())?;
    Ok((Settings::resolve(args, variable, &file), file))
}

/// The home of this process: `HERMES_HOME`, else `$XDG_STATE_HOME/turnhost`, else `~/.local/state/turnhost`.
pub fn home_of_this_process() -> PathBuf {
    home(&|name| variable(name).filter(|value| !value.is_empty())).value
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl HostOptions {
    /// The nearest ones that a host can work with: the fields are open to whoever embeds it.
    pub(crate) fn within_limits(self) -> Self {
        Self {
            workers: self.workers.max(1),
            heartbeat: self
                .heartbeat
                .filter(|period| !period.is_zero())
                .map(|period| period.clamp(SHORTEST_HEARTBEAT, LONGEST)),
            drain: self.drain.min(LONGEST),
            max_frame_bytes: self.max_frame_bytes.clamp(MIN_FRAME_BYTES, isize::MAX.unsigned_abs()),
            ..self
        }
    }
}

pub(crate) fn home(filled: &dyn Fn(&str) -> Option<String>) -> Resolved<PathBuf> {
    if let Some(home) = filled("HERMES_HOME") {
        return Resolved { value: home.into(), source: Source::Variable("HERMES_HOME") };
    }
    if let Some(state) = filled("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
        return Resolved { value: state.join("turnhost"), source: Source::Variable("XDG_STATE_HOME") };
    }
    let user = filled("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    Resolved { value: user.join(".local/state/turnhost"), source: Source::Default }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number of seconds"))?;
    Duration::try_from_secs_f64(number)
        .map(|duration| duration.min(LONGEST))
        .map_err(|_| format!("`{text}` is no number of seconds from 0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnhost_protocol::limits::MAX_FRAME_BYTES;

    fn options(args: HostArgs, variables: &[(&str, &str)]) -> HostOptions {
        HostOptions::new(&args, Path::new("/project"), |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn default_workers_follow_the_pool_variable_or_8() {
        let table = [
            (None, 8),
            (Some("11"), 11),
            (Some("not-an-int"), 8),
            (Some("1"), 2),
            (Some("0"), 2),
            (Some("-3"), 2),
        ];
        for (value, expected) in table.into_iter().chain([(Some(""), 8), (Some(" 4 "), 4), (Some("2.5"), 8)])
        {
            let variables: Vec<_> =
                value.map(|value| ("HERMES_TUI_RPC_POOL_WORKERS", value)).into_iter().collect();
            assert_eq!(options(HostArgs::default(), &variables).workers, expected, "{value:?}");
        }
        let asked = HostArgs { workers: Some(1), ..HostArgs::default() };
        assert_eq!(options(asked, &[("HERMES_TUI_RPC_POOL_WORKERS", "11")]).workers, 1, "the option wins");
    }

    #[test]
    fn the_heartbeat_period_follows_option_variable_and_default() {
        let name = "HERMES_COMPUTE_HOST_HEARTBEAT_SECS";
        let heartbeat = |variables: &[(&str, &str)]| options(HostArgs::default(), variables).heartbeat;
        assert_eq!(heartbeat(&[]), Some(Duration::from_secs(15)));
        assert_eq!(heartbeat(&[(name, "2.5")]), Some(Duration::from_millis(2500)));
        assert_eq!(heartbeat(&[(name, "0")]), None);
        for malformed in ["", "soon", "-1", "NaN", "inf"] {
            assert_eq!(heartbeat(&[(name, malformed)]), Some(Duration::from_secs(15)), "{malformed:?}");
        }
        let none = HostArgs { heartbeat_secs: Some(Duration::ZERO), ..HostArgs::default() };
        assert_eq!(options(none, &[(name, "5")]).heartbeat, None, "the option wins");
    }

    #[test]
    fn the_frame_limit_has_a_floor_under_which_no_ending_would_fit() {
        let name = "HERMES_COMPUTE_HOST_MAX_FRAME_BYTES";
        let limit = |value: &str| options(HostArgs::default(), &[(name, value)]).max_frame_bytes;
        assert_eq!(limit("100000"), 100_000);
        assert_eq!(limit("1"), MIN_FRAME_BYTES);
        assert_eq!(limit("many"), MAX_FRAME_BYTES);
    }

    #[test]
    fn options_that_no_host_can_work_with_become_the_nearest_that_it_can() {
        let wild = HostOptions {
            workers: 0,
            heartbeat: Some(Duration::from_nanos(1)),
            drain: Duration::MAX,
            max_frame_bytes: usize::MAX,
            ..HostOptions::default()
        };
        let tamed = wild.clone().within_limits();
        assert_eq!((tamed.workers, tamed.drain, tamed.heartbeat), (1, LONGEST, Some(SHORTEST_HEARTBEAT)));
        assert_eq!(tamed.max_frame_bytes, isize::MAX as usize);
        let wild = HostOptions { heartbeat: Some(Duration::MAX), max_frame_bytes: 0, ..wild };
        let tamed = wild.clone().within_limits();
        assert_eq!((tamed.heartbeat, tamed.max_frame_bytes), (Some(LONGEST), MIN_FRAME_BYTES));
        let none = HostOptions { heartbeat: Some(Duration::ZERO), ..wild }.within_limits();
        assert_eq!(none.heartbeat, None);
        let usual = HostOptions::default();
        assert_eq!(usual.clone().within_limits(), usual);
    }

    #[test]
    fn the_home_is_hermes_home_or_the_users_state_folder() {
        let home = |variables: &[(&str, &str)]| {
            let options = options(HostArgs::default(), variables);
            (options.home.to_string_lossy().into_owned(), options.hermes_home)
        };
        let table = [
            (vec![("HERMES_HOME", "/h"), ("XDG_STATE_HOME", "/x")], "/h", "/h"),
            (vec![("XDG_STATE_HOME", "/x"), ("HOME", "/u")], "/x/turnhost", ""),
            (vec![("XDG_STATE_HOME", "relative"), ("HOME", "/u")], "/u/.local/state/turnhost", ""),
            (vec![("HOME", "/u")], "/u/.local/state/turnhost", ""),
        ];
        for (variables, path, said) in table {
            assert_eq!(home(&variables), (path.to_owned(), said.to_owned()), "{variables:?}");
        }
    }
}
