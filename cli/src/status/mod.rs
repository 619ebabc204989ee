//! `turnhost status`: who is recorded in the registry, and what is true of it. Reads only.

mod tell;

use crate::supervise::default_registry;
use crate::table::{finish, stdout_wants_colour};
use crate::{exit, say};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;
use turnhost_supervisor::registry::inspect;

const HELP: &str = "\
A host is alive if its pid names a process with the recorded start ticks, in the same boot of the
machine. Where the file has no ticks (hermes-agent writes none), the command line and the time of
the start decide. Nothing is changed, locked or signalled.

Examples:
  turnhost status
  turnhost status --json | jq -r .state
  turnhost status --registry /run/agent/host.json";

/// Options of `turnhost status`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{HELP}\n\n{}", exit::STATUS_HELP))]
pub(crate) struct Args {
    /// The registry file
    /// [default: turnhost/host.json in HERMES_HOME, else in $XDG_STATE_HOME/turnhost, else in ~/.local/state/turnhost]
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,
    /// Write one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Looks and tells.
pub(crate) fn main(args: Args) -> ExitCode {
    ExitCode::from(status(args))
}

fn status(args: Args) -> u8 {
    let registry = args.registry.map_or_else(|| default_registry(|name| std::env::var_os(name)), Ok);
    let registry = match registry {
        Ok(registry) => registry,
        Err(message) => {
            say(message);
            return exit::USAGE;
        }
    };
    let found = match inspect(&registry) {
        Ok(found) => found,
        Err(error) => {
            say(format_args!("{error}; the next start moves it to {}.bad", registry.display()));
            if !args.json {
                return exit::USAGE;
            }
            return finish(&format!("{}\n", tell::unreadable_json(&error)), exit::USAGE);
        }
    };
    let now = SystemTime::now();
    let text = if args.json {
        format!("{}\n", tell::json(&registry, found.as_ref()))
    } else {
        tell::text(&registry, found.as_ref(), now, stdout_wants_colour())
    };
    finish(&text, tell::code(found.as_ref()))
}
