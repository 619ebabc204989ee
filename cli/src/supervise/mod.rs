//! `turnhost supervise`: owns one host and is driven by JSON lines. `docs/supervise.md` has the contract.

pub(crate) mod answer;
pub(crate) mod event;
mod input;
mod op;
mod serve;

use crate::{exit, say};
use clap::{ArgAction, ValueEnum, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use turnhost_protocol::limits;
use turnhost_supervisor::Config;
use turnhost_supervisor::config::{EnvPolicy, Guard, Registry};

const HELP: &str = "\
stdin takes one operation a line, {\"id\":\"1\",\"op\":…}: start, status, seed, submit_turn,
interrupt, control, reload_mcp, respond, reset, restart, shutdown. stdout gives one answer to each,
{\"id\":\"1\",\"ok\":true,\"result\":{…}} or {\"id\":\"1\",\"ok\":false,\"error\":{\"kind\":…,\"message\":…}},
and events, {\"event\":\"state\",…}. End of input, Ctrl+C, SIGTERM and a closed stdout shut the host
down and end the program, so keep stdin open until you have your answer. docs/supervise.md has every
field.

Examples:
  turnhost supervise --no-registry -- turnhost host
  turnhost supervise --env-pass API_KEY -- python -m tui_gateway.compute_host
  (echo '{\"id\":\"1\",\"op\":\"submit_turn\",\"sid\":\"s\",\"text\":\"hello\"}'; sleep 2) |
    turnhost supervise --no-registry -- turnhost host

Exit codes: 0 after a clean shutdown, 2 for a wrong command line, 1 else.";

/// Options of `turnhost supervise`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Where the host is recorded, so that the next start finds an orphan
    /// [default: turnhost/host.json in HERMES_HOME, else in $XDG_STATE_HOME/turnhost, else in ~/.local/state/turnhost]
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,
    /// Record the host nowhere; any number of supervisors run side by side
    #[arg(long, conflicts_with_all = ["registry", "registry_optional"])]
    no_registry: bool,
    /// Run unregistered if the registry is owned by another supervisor or cannot be written
    #[arg(long)]
    registry_optional: bool,
    /// Working directory of the host [default: this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// What the host inherits of the environment
    #[arg(long, value_enum, value_name = "POLICY", default_value = "scrubbed")]
    env_policy: EnvPolicyName,
    /// A variable that the host gets whatever the policy says (repeatable)
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    env_pass: Vec<OsString>,
    /// Who ends the host's tree: auto = a small process of this program, none = a group kill is all
    #[arg(long, value_enum, value_name = "WHO", default_value = "auto")]
    guard: GuardName,
    /// From spawn to hello
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = value_parser!(u64).range(1..))]
    hello_timeout_ms: u64,
    /// Heartbeat period asked of the host; 0 = none
    #[arg(long, value_name = "SECS", default_value_t = 15)]
    heartbeat_secs: u32,
    /// Silent heartbeats until a host that has sent one is hung; 0 = off
    #[arg(long, value_name = "N", default_value_t = 3)]
    hang_after_heartbeats: u32,
    /// A write to the host without progress for this long makes it hung
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = value_parser!(u64).range(1..))]
    write_stall_ms: u64,
    /// Failures within the window that are answered by a respawn; 0 = never respawn
    #[arg(long, value_name = "N", default_value_t = 3)]
    respawn_max: u32,
    /// The window
    #[arg(long, value_name = "SECS", default_value_t = 300)]
    respawn_window_secs: u32,
    /// First delay before a respawn; doubles with each failure in a row
    #[arg(long, value_name = "MS", default_value_t = 250)]
    backoff_base_ms: u64,
    /// Longest delay before a respawn
    #[arg(long, value_name = "MS", default_value_t = 5_000)]
    backoff_max_ms: u64,
    /// Largest frame, both ways, and largest line on stdin
    #[arg(long, value_name = "BYTES", default_value_t = limits::MAX_FRAME_BYTES,
          value_parser = frame_bytes)]
    max_frame_bytes: usize,
    /// Each of the two waits of a stop: for the host to end by itself, and after SIGTERM
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    grace_ms: u64,
    /// How long a request waits for a host
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    unavailable_after_ms: u64,
    /// Requests that may wait for a host
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_waiting: usize,
    /// Build that the host must have [default: any]
    #[arg(long, value_name = "SHA")]
    expected_build_sha: Option<String>,
    /// Home that the host must name [default: HERMES_HOME as given to the host]
    #[arg(long, value_name = "DIR")]
    expected_home: Option<String>,
    /// The host and its arguments
    #[arg(last = true, required = true, value_name = "HOST ARGV")]
    host: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EnvPolicyName {
    /// Everything but loader and interpreter hooks and names that look like secrets
    Scrubbed,
    /// Everything
    Inherit,
    /// PATH, HOME, LANG, TMPDIR and HERMES_* only
    Allow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GuardName {
    Auto,
    None,
}

/// Serves until stdin or stdout ends, or a signal comes.
pub(crate) fn main(args: Args) -> ExitCode {
    let config = match config(args, |name| std::env::var_os(name)) {
        Ok(config) => config,
        Err(message) => {
            say(message);
            return ExitCode::from(exit::USAGE);
        }
    };
    ExitCode::from(serve::serve(config))
}

fn config(args: Args, variable: impl Fn(&str) -> Option<OsString>) -> Result<Config, String> {
    let registry = if args.no_registry {
        Registry::Off
    } else {
        let file = match args.registry {
            Some(file) => file,
            None => default_registry(variable)?,
        };
        if args.registry_optional { Registry::Optional(file) } else { Registry::Required(file) }
    };
    let mut config = Config::new(args.host);
    config.cwd = args.cwd;
    config.env_policy = match args.env_policy {
        EnvPolicyName::Scrubbed => EnvPolicy::Scrubbed,
        EnvPolicyName::Inherit => EnvPolicy::Inherit,
        EnvPolicyName::Allow => EnvPolicy::Allow,
    };
    config.env_pass = args.env_pass;
    config.guard = match args.guard {
        GuardName::Auto => Guard::CurrentExe,
        GuardName::None => Guard::None,
    };
    config.registry = registry;
    config.hello_timeout = Duration::from_millis(args.hello_timeout_ms);
    config.heartbeat = Duration::from_secs(args.heartbeat_secs.into());
    config.hang_after_heartbeats = args.hang_after_heartbeats;
    config.write_stall = Duration::from_millis(args.write_stall_ms);
    config.restart.max = args.respawn_max;
    config.restart.window = Duration::from_secs(args.respawn_window_secs.into());
    config.restart.backoff_base = Duration::from_millis(args.backoff_base_ms);
    config.restart.backoff_max = Duration::from_millis(args.backoff_max_ms);
    config.max_frame_bytes = args.max_frame_bytes;
    config.grace = Duration::from_millis(args.grace_ms);
    config.unavailable_after = Duration::from_millis(args.unavailable_after_ms);
    config.max_waiting = args.max_waiting;
    config.expected_build_sha = args.expected_build_sha;
    config.expected_home = args.expected_home;
    Ok(config)
}

/// `<home>/turnhost/host.json`.
pub(crate) fn default_registry(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = named("HERMES_HOME")
        .or_else(|| Some(named("XDG_STATE_HOME").filter(|path| path.is_absolute())?.join("turnhost")))
        .or_else(|| Some(named("HOME")?.join(".local/state/turnhost")))
        .ok_or("no place for the registry: HOME is not set; give --registry FILE or --no-registry")?;
    Ok(home.join("turnhost/host.json"))
}

fn frame_bytes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if bytes >= limits::MIN_FRAME_BYTES => Ok(bytes),
        Ok(_) | Err(_) => Err(format!("expected a number of at least {}", limits::MIN_FRAME_BYTES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use pretty_assertions::assert_eq;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn configured(words: &[&str]) -> Config {
        let line = Line::try_parse_from(std::iter::once(&"supervise").chain(words)).expect("a command line");
        config(line.args, |name| (name == "HERMES_HOME").then(|| "/h".into())).expect("a config")
    }

    #[test]
    fn the_defaults_of_the_options_are_those_of_the_library() {
        let wanted = Config {
            registry: Registry::Required("/h/turnhost/host.json".into()),
            ..Config::new(["host", "--flag"])
        };
        assert_eq!(format!("{:?}", configured(&["--", "host", "--flag"])), format!("{wanted:?}"));
    }

    #[test]
    fn every_option_reaches_the_config() {
        let wanted = Config {
            cwd: Some("/c".into()),
            env_policy: EnvPolicy::Allow,
            env_pass: vec!["A".into(), "B".into()],
            guard: Guard::None,
            registry: Registry::Optional("/r".into()),
            hello_timeout: Duration::from_millis(1),
            heartbeat: Duration::from_secs(2),
            hang_after_heartbeats: 0,
            write_stall: Duration::from_millis(3),
            restart: turnhost_supervisor::RestartPolicy {
                max: 0,
                window: Duration::from_secs(4),
                backoff_base: Duration::from_millis(5),
                backoff_max: Duration::from_millis(6),
                ..Default::default()
            },
            max_frame_bytes: 20_000,
            grace: Duration::from_millis(7),
            unavailable_after: Duration::from_millis(8),
            max_waiting: 9,
            expected_build_sha: Some("sha".into()),
            expected_home: Some("/home".into()),
            ..Config::new(["host"])
        };
        let words = "--cwd /c --env-policy allow --env-pass A --env-pass B --guard none --registry /r \
                     --registry-optional --hello-timeout-ms 1 --heartbeat-secs 2 --hang-after-heartbeats 0 \
                     --write-stall-ms 3 --respawn-max 0 --respawn-window-secs 4 --backoff-base-ms 5 \
                     --backoff-max-ms 6 --max-frame-bytes 20000 --grace-ms 7 --unavailable-after-ms 8 \
                     --max-waiting 9 --expected-build-sha sha --expected-home /home -- host";
        let words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(format!("{:?}", configured(&words)), format!("{wanted:?}"));
    }

    #[test]
    fn the_registry_stands_in_the_home_unless_it_is_named_or_off() {
        let at = |variables: &[(&str, &str)]| {
            default_registry(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            })
        };
        let path = |text: &str| Ok(PathBuf::from(text));
        assert_eq!(at(&[("HERMES_HOME", "/h"), ("XDG_STATE_HOME", "/x")]), path("/h/turnhost/host.json"));
        assert_eq!(at(&[("XDG_STATE_HOME", "/x"), ("HOME", "/p")]), path("/x/turnhost/turnhost/host.json"));
        assert_eq!(
            at(&[("HERMES_HOME", ""), ("HOME", "/p")]),
            path("/p/.local/state/turnhost/turnhost/host.json")
        );
        assert!(at(&[]).is_err());
        assert_eq!(configured(&["--no-registry", "--", "host"]).registry, Registry::Off);
    }

    #[test]
    fn the_manual_has_every_op_every_kind_and_every_event() {
        let manual = include_str!("../../../docs/supervise.md");
        let has_row = |cell: &str| manual.lines().any(|line| line.starts_with(&format!("| {cell}")));
        for op in op::NAMES.split(", ") {
            assert!(has_row(&format!("`{op}` |")), "{op}");
        }
        for kind in turnhost_protocol::ErrorKind::ALL {
            assert!(has_row(&format!("`{kind}` |")), "{kind}");
        }
        for event in ["state", "turn", "lagged", "rpc", "stray", "protocol_error", "session_lost"] {
            assert!(has_row(&format!("`{{\"event\":\"{event}\"")), "{event}");
        }
    }

    #[test]
    fn a_command_line_that_cannot_be_meant_is_refused() {
        for words in [
            &["--no-registry"][..],
            &["--no-registry", "--registry", "/r", "--", "host"],
            &["--no-registry", "--registry-optional", "--", "host"],
            &["--max-frame-bytes", "5", "--", "host"],
            &["--guard", "maybe", "--", "host"],
            &["--hello-timeout-ms", "0", "--", "host"],
            &["--respawn-max", "-1", "--", "host"],
        ] {
            assert!(Line::try_parse_from(std::iter::once(&"supervise").chain(words)).is_err(), "{words:?}");
        }
    }
}
