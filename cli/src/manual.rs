//! `turnhost completions` and `turnhost man`: what shells and `man` know of this program, made from its own options.

use crate::table::finish;
use crate::{exit, say};
use clap_complete::Shell;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const COMPLETIONS_HELP: &str = "\
The script goes to stdout.

Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  turnhost completions bash > ~/.local/share/bash-completion/completions/turnhost
  mkdir -p ~/.zfunc                 # and, before compinit, in ~/.zshrc: fpath+=~/.zfunc
  turnhost completions zsh > ~/.zfunc/_turnhost
  mkdir -p ~/.config/fish/completions
  turnhost completions fish > ~/.config/fish/completions/turnhost.fish

Exit codes:
  0  written
  1  stdout cannot be written
  2  the command line is wrong";

const MAN_HELP: &str = "\
Examples:
  turnhost man > turnhost.1
  turnhost man ~/.local/share/man/man1

Exit codes:
  0  written
  1  a page cannot be written
  2  the command line is wrong";

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
    let mut command = command.disable_help_subcommand(true).propagate_version(true);
    command.build();
    ExitCode::from(match &args.folder {
        None => first_page(&command),
        Some(folder) => every_page(&command, folder),
    })
}

fn first_page(command: &clap::Command) -> u8 {
    match page(command) {
        Ok(page) => finish(&String::from_utf8_lossy(&page), exit::ENDED),
        Err(error) => {
            say(format_args!("the page cannot be made: {error}"));
            exit::FAILED
        }
    }
}

fn every_page(command: &clap::Command, folder: &Path) -> u8 {
    match std::fs::create_dir_all(folder).and_then(|()| write_pages(command, folder)) {
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

fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, folder)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    std::fs::write(folder.join(format!("{name}.1")), page(command)?)
}

/// The end of the help is kept line by line: a command that `man` fills and hyphenates cannot be copied.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        page.extend_from_slice(b".SH NOTES\n.nf\n");
        for line in notes.to_string().lines() {
            // A dot or a quote at the beginning of a line is an order to `man`.
            writeln!(page, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
        }
        page.extend_from_slice(b".fi\n");
    }
    man.render_version_section(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_at_the_end_of_a_page_stand_as_they_are_typed() {
        let notes = "Examples:\n  a-tool --flag '{\"x\":\"\\n\"}' | b\n.not an order";
        let page = page(&clap::Command::new("a-tool").version("1").after_help(notes)).unwrap();
        let page = String::from_utf8(page).unwrap();
        let kept = page.split_once(".nf\n").and_then(|(_, rest)| rest.split_once(".fi\n")).unwrap().0;
        // As `man` reads it: `\-` is a hyphen that is not broken at, `\e` a backslash, `\&` nothing.
        let read = kept.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\");
        assert_eq!(read.trim_end(), notes);
        assert!(kept.lines().all(|line| line.starts_with("\\&")), "{kept}");
    }
}
