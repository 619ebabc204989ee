//! `turnhost demo`: two hosts, three sessions, one kill -9, and whether everything that is promised then happened.

mod board;
mod cast;
mod claims;
mod drive;
mod line;
mod observed;
mod plot;
mod screen;
mod stage;
mod tell;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

const HELP: &str = "\
Two hosts with their own supervisors run the turns of three sessions. In the middle of them one host
is killed as by `kill -9`. Its turns end with the reason, the other host's go on, it is started
again after a countdown, and the next turns have their history. It takes about five seconds, needs
no network, and leaves no process behind, also when Ctrl+C ends it early.

On a terminal the lines are drawn again in place (NO_COLOR is honoured); elsewhere they are plain.
--json gives one object a line: at_ms, host, and the event as `turnhost supervise` has it (state,
turn); events of the demo's own (seeded, submitted, killed, countdown, allowed, stopping, stopped,
left); then a line for each claim, {\"event\":\"claim\",\"claim\":…,\"ok\":…}, and the verdict.

Examples:
  turnhost demo
  turnhost demo | cat
  turnhost demo --json | jq -c 'select(.event == \"claim\")'
  turnhost demo --json | jq -r 'select(.frame.type == \"turn.error\") | .frame.message'

Exit codes:
  0    all of it really happened
  1    something of it is missing: the lines at the end say what
  2    the command line is wrong
  3    no host could be started
  130  interrupted";

/// Options of `turnhost demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Write every event as one JSON line
    #[arg(long)]
    json: bool,
}

/// Plays the demo.
pub(crate) fn main(args: &Args) -> ExitCode {
    ExitCode::from(drive::run(args.json))
}
