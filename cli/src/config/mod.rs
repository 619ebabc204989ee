//! `turnhost config`: which settings hold and where they come from, and what is wrong with the file.

mod check;
mod show;

use crate::table::{finish, stdout_wants_colour};
use crate::{exit, say};
use clap::Subcommand;
use std::process::ExitCode;
use turnhost_host::HostArgs;
use turnhost_host::config::{ConfigFile, Settings};
use turnhost_host::options::home_of_this_process;

/// For the end of `--help`.
pub(crate) const HELP: &str = "\
The config is config.yaml in HERMES_HOME, else in $XDG_STATE_HOME/turnhost, else in
~/.local/state/turnhost. It is only read. Flags count before the environment, and that before the
file. docs/config.md has every key.

Examples:
  turnhost config show
  turnhost config check

  # A config to begin with
  model:
    name: qwen3
    base_url: http://127.0.0.1:11434/v1
  agent:
    system_prompt: Be brief.";

const SHOW_HELP: &str = "\
The options are those of `turnhost host`: show says what would hold with them.

Examples:
  turnhost config show
  turnhost config show --model qwen3
  turnhost config show --json | jq '.settings[\"model.base_url\"]'";

const CHECK_HELP: &str = "\
Each line is FILE:LINE: KEY: what is wrong, as compilers write it.

Examples:
  turnhost config check
  turnhost config check --verbose
  HERMES_HOME=/srv/agent turnhost config check --json";

/// Options of `turnhost config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(about = "Show every setting, its value, and where it comes from", after_help = format!("{SHOW_HELP}\n\n{}", exit::SHOW_HELP))]
    Show(Show),
    #[command(about = "Say what is wrong with the config", after_help = format!("{CHECK_HELP}\n\n{}", exit::CHECK_HELP))]
    Check(Check),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Write one JSON object instead of the table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
struct Check {
    /// Write one JSON object instead of the lines
    #[arg(long)]
    json: bool,
    /// List the keys of other programs as well
    #[arg(long)]
    verbose: bool,
}

/// Shows or checks.
pub(crate) fn main(args: Args) -> ExitCode {
    let file = ConfigFile::examine(&home_of_this_process());
    ExitCode::from(match args.command {
        Command::Show(args) => shown(&args, &file),
        Command::Check(args) => checked(&args, &file),
    })
}

fn settings(args: &HostArgs, file: &ConfigFile) -> Settings {
    Settings::resolve(args, |name| std::env::var(name).ok(), file)
}

fn shown(args: &Show, file: &ConfigFile) -> u8 {
    for problem in &file.problems {
        say(problem.to_line(&file.path));
    }
    if !file.problems.is_empty() {
        return exit::USAGE;
    }
    let settings = settings(&args.host, file);
    if args.json {
        return finish(&format!("{}\n", show::json(&settings, file)), exit::ENDED);
    }
    for warning in file.warnings().chain(settings.ignored.iter().cloned()) {
        say(warning);
    }
    finish(&show::text(&settings, file), exit::ENDED)
}

fn checked(args: &Check, file: &ConfigFile) -> u8 {
    let settings = settings(&HostArgs::default(), file);
    let report = check::Report::new(file, &settings);
    let code = if report.is_fine() { exit::ENDED } else { exit::FAILED };
    let text = if args.json {
        format!("{}\n", report.json(file))
    } else {
        report.text(file, args.verbose, stdout_wants_colour())
    };
    finish(&text, code)
}
