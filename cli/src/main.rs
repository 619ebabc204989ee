//! `turnhost`: runs an agent's turns in a supervised child process. One binary: it is its own host and its own guard.

mod demo;
mod exit;
mod host;
mod output;
mod run;
mod signals;
mod supervise;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(
    name = "turnhost",
    version,
    about = "Runs an agent's turns in a supervised child process",
    long_about = "Runs an agent's turns in a supervised child process: if the child crashes, hangs, floods or talks \
                  garbage, every accepted turn still gets exactly one ending with the reason, and no process outlives \
                  its owner.",
    after_help = HELP,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  turnhost run \"hello\"                              one turn of the built-in demonstration agent
  turnhost run -- claude -p < prompt.txt            one turn of a command-line program
  turnhost demo                                     a host is killed in mid-turn: see what happens
  turnhost supervise --no-registry -- turnhost host drive a host by JSON lines on stdin and stdout

Logs go to stderr and are quiet; TURNHOST_LOG (else RUST_LOG) takes a filter, as TURNHOST_LOG=debug.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one turn on a supervised child and stream its text
    Run(run::Args),
    /// See a host being killed in mid-turn, and what becomes of its turns
    Demo(demo::Args),
    /// Own one host and be driven by JSON lines on stdin and stdout
    Supervise(supervise::Args),
    #[command(about = "Be the host: frames on stdin and stdout", after_help = host::HELP)]
    Host(turnhost_host::HostArgs),
    /// The process between supervisor and host; internal
    #[command(hide = true)]
    Guard,
}

fn main() -> ExitCode {
    // A guard is a process of its own: nothing of this program may run before it.
    turnhost_supervisor::guard_main();
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return refuse(&error),
    };
    match command {
        Command::Run(args) => in_front(|| run::main(args)),
        Command::Demo(args) => in_front(|| demo::main(&args)),
        Command::Supervise(args) => in_front(|| supervise::main(args)),
        Command::Host(args) => host::main(&args),
        Command::Guard => {
            say(
                "turnhost guard is started by a supervisor, with its orders in the environment; use `turnhost run` or \
                 `turnhost supervise`",
            );
            ExitCode::from(exit::USAGE)
        }
    }
}

/// Help, version or a wrong command line, as clap says it; with the two usual causes where a word of `run` is too many.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.print().is_err() {
        // Nobody can be told.
    }
    let of_run = std::env::args_os().nth(1).is_some_and(|word| word == "run");
    if of_run && error.kind() == clap::error::ErrorKind::UnknownArgument {
        say(EXTRA_WORD);
    }
    ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::ENDED })
}

const EXTRA_WORD: &str =
    "put a prompt of several words in quotes, and a program behind --: turnhost run -- sh -c 'echo hi'";

/// Runs a command that owns a host, behind an init of its own where it is pid 1.
fn in_front(command: impl FnOnce() -> ExitCode) -> ExitCode {
    if let Err(error) = turnhost_supervisor::init_if_pid1() {
        say(format_args!("no init of its own as pid 1, orphans are not reaped: {error}"));
    }
    start_log();
    command()
}

/// Logs to stderr, quiet unless TURNHOST_LOG or RUST_LOG asks.
fn start_log() {
    use std::io::IsTerminal as _;
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("TURNHOST_LOG")
        .or_else(|_| EnvFilter::try_from_default_env())
        .unwrap_or_else(|_| EnvFilter::new("off"));
    let colour =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour);
    if log.try_init().is_err() {
        // Only this function installs a subscriber; a second call changes nothing.
    }
}

/// A line for people on stderr. A stderr that is closed loses it, and nothing else.
pub(crate) fn say(message: impl std::fmt::Display) {
    use std::io::Write as _;
    let line = format!("turnhost: {message}\n");
    if std::io::stderr().write_all(line.as_bytes()).is_err() {
        // Nobody can be told.
    }
}
