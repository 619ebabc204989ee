//! `turnhost`: runs an agent's turns in a supervised child process. One binary: it is its own host and its own guard.

mod config;
mod demo;
mod exit;
mod host;
mod manual;
mod output;
mod run;
mod signals;
mod status;
mod supervise;
mod table;

use clap::{CommandFactory as _, Parser, Subcommand};
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
  turnhost run \"hello\"                 one turn of the built-in demonstration agent
  turnhost run \"fix it\" -- codex exec  one turn of a command-line program
  turnhost demo                        a host is killed in mid-turn
  turnhost supervise -- turnhost host  a host driven by JSON lines
  turnhost status                      is a host registered, and does it live
  turnhost config show                 which settings hold, and why

Each command has examples and its exit codes in its own --help: turnhost help run.
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
    /// Say who is registered, whether it is alive and how that is known
    Status(status::Args),
    #[command(about = "Show which settings hold, or check the config", after_help = config::HELP)]
    Config(config::Args),
    /// Write the completions of a shell
    Completions(manual::Completions),
    /// Write the manual pages
    Man(manual::Man),
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
        Command::Status(args) => status::main(args),
        Command::Config(args) => config::main(args),
        Command::Completions(args) => manual::completions(&args, Cli::command()),
        Command::Man(args) => manual::man(&args, Cli::command()),
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
    let colour = table::wants_colour(std::io::stderr().is_terminal());
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

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    /// The words of a shell line, and its operators as words of their own. Enough for examples.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' => {
                    let quoted: String = letters.by_ref().take_while(|letter| *letter != '\'').collect();
                    word.get_or_insert_default().push_str(&quoted);
                }
                '"' => {
                    let word = word.get_or_insert_default();
                    while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
                        word.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
                    }
                }
                ' ' | '|' | ';' | '(' | ')' | '<' | '>' | '&' => {
                    words.extend(word.take());
                    if letter != ' ' {
                        words.push(letter.to_string());
                    }
                }
                letter => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        words
    }

    /// The command lines of this program in an example: what stands before a pipe, a redirection or a remark.
    fn commands(line: &str) -> Vec<Vec<String>> {
        let line = line.split("   ").next().unwrap_or(line);
        let words = words(line);
        let commands = words.split(|word| ["|", ";", "(", ")", "<", ">", "&"].contains(&word.as_str()));
        let ours = commands.map(|words| {
            let is_assignment =
                |word: &&String| word.split('=').next().is_some_and(|name| name.ends_with("HOME"));
            words.iter().skip_while(is_assignment).cloned().collect::<Vec<_>>()
        });
        ours.filter(|words| words.first().is_some_and(|word| word == "turnhost")).collect()
    }

    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        help.lines().filter_map(|line| line.strip_prefix("  ")).map(|line| line.trim().to_owned()).collect()
    }

    fn every_command(command: &clap::Command) -> Vec<clap::Command> {
        let mut all = vec![command.clone()];
        for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            all.extend(every_command(below));
        }
        all
    }

    #[test]
    fn every_command_has_an_example_and_every_example_is_a_command_line() {
        let mut seen = 0;
        for command in every_command(&Cli::command()) {
            let name = command.get_name().to_owned();
            let examples: Vec<_> = examples(&command).iter().flat_map(|line| commands(line)).collect();
            assert!(!examples.is_empty(), "{name} has no example");
            for words in examples {
                seen += 1;
                if let Err(error) = Cli::try_parse_from(&words) {
                    panic!("{name}: {words:?}: {error}");
                }
            }
        }
        assert!(seen > 15, "{seen}");
    }

    #[test]
    fn an_example_is_read_as_a_shell_reads_it() {
        let own = |line: &str| commands(line).into_iter().map(|words| words.join("|")).collect::<Vec<_>>();
        assert_eq!(
            own("turnhost run \"a b\" -- sh -c 'x | y'    remark"),
            ["turnhost|run|a b|--|sh|-c|x | y"]
        );
        assert_eq!(own("(echo '{}'; sleep 1) | turnhost host"), ["turnhost|host"]);
        assert_eq!(own("HERMES_HOME=/h turnhost status --json | jq ."), ["turnhost|status|--json"]);
        assert_eq!(own("turnhost run - < file"), ["turnhost|run|-"]);
        assert_eq!(own("echo turnhost"), Vec::<String>::new());
        assert!(Cli::try_parse_from(["turnhost", "status", "--nonsense"]).is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
