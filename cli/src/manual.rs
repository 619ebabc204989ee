//! `turnhost completions` and `turnhost man`: what shells and `man` know of this program, made from its own options.

use crate::table::finish;
use crate::{exit, say};
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const COMPLETIONS_HELP: &str = "\
The script goes to stdout.

Examples:
  turnhost completions bash > ~/.local/share/bash-completion/completions/turnhost
  turnhost completions zsh > ~/.zfunc/_turnhost
  turnhost completions fish > ~/.config/fish/completions/turnhost.fish";

const MAN_HELP: &str = "\
Examples:
  turnhost man > turnhost.1
  turnhost man ~/.local/share/man/man1";

/// Options of `turnhost completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Options of `turnhost man`.
#[derive(Debug, clap::Args)]
#[command(after_help = MAN_HELP)]
pub(crate) struct Man {
    /// Where a page for each command goes [default: the first page to stdout]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Writes the script of a shell.
pub(crate) fn completions(args: &Completions, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "turnhost", &mut script);
    ExitCode::from(finish(&String::from_utf8_lossy(&script), exit::ENDED))
}

/// Writes the pages.
pub(crate) fn man(args: &Man, command: clap::Command) -> ExitCode {
    ExitCode::from(match &args.folder {
        None => first_page(command),
        Some(folder) => every_page(command, folder),
    })
}

fn first_page(command: clap::Command) -> u8 {
    let mut page = Vec::new();
    match clap_mangen::Man::new(command).render(&mut page) {
        Ok(()) => finish(&String::from_utf8_lossy(&page), exit::ENDED),
        Err(error) => {
            say(format_args!("the page cannot be made: {error}"));
            exit::FAILED
        }
    }
}

fn every_page(command: clap::Command, folder: &Path) -> u8 {
    let made = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    match made {
        Ok(()) => {
            say(format_args!("pages written to {}; read one with `man {0}/turnhost.1`", folder.display()));
            exit::ENDED
        }
        Err(error) => {
            say(format_args!("pages cannot be written to {}: {error}", folder.display()));
            exit::FAILED
        }
    }
}
