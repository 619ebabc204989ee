//! `turnhost host`: the compute host, as the binary `compute-host` is.

use crate::{exit, say};
use std::process::ExitCode;
use turnhost_host::HostArgs;
use turnhost_host::config::ConfigError;

/// For the end of `--help`.
pub(crate) const HELP: &str = "\
Frames come on stdin and go out on stdout, one JSON object a line; docs/protocol.md has them. People
use `turnhost run` or `turnhost supervise`, which start a host of their own. Its agents are scripted,
exec and openai, the default if a base URL or OPENAI_API_KEY is set, else scripted; docs/agents.md
has their options. Here is a turn by hand:

  (echo '{\"type\":\"turn.start\",\"sid\":\"s\",\"request_id\":\"t\",\"text\":\"hello\"}'; sleep 1) | turnhost host";

/// Runs until its parent or a signal ends it.
pub(crate) fn main(args: &HostArgs) -> ExitCode {
    turnhost_host::log_to_stderr();
    turnhost_host::run_builtin(args).unwrap_or_else(|error| {
        say(format_args!("{error:#}"));
        ExitCode::from(if error.is::<ConfigError>() { exit::USAGE } else { exit::FAILED })
    })
}
