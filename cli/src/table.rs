//! Text for people on stdout: aligned columns, a little colour, and what happens if nobody reads.

use crate::{exit, say};
use std::io::{self, IsTerminal as _, Write as _};

/// Longest value that a table shows.
const LONGEST_CELL: usize = 60;

/// Rows as lines with aligned columns; the last column is as long as it is.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let gap = width.saturating_sub(cell.chars().count()) + 2;
            line.push_str(cell);
            line.push_str(&" ".repeat(gap));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A value that may hold anything, for one cell: one line, no control characters, not too long.
pub(crate) fn cell(text: &str) -> String {
    let mut shown = String::new();
    let text = text.trim_end_matches('\n');
    for (count, letter) in text.chars().enumerate() {
        if count == LONGEST_CELL {
            shown.push('…');
            break;
        }
        if letter.is_control() { shown.extend(letter.escape_default()) } else { shown.push(letter) }
    }
    shown
}

/// A colour of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Green,
    Yellow,
    Red,
}

/// Whether colour belongs on a stream: a terminal, and NO_COLOR is unset or empty.
pub(crate) fn wants_colour(is_terminal: bool) -> bool {
    is_terminal && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// The text in this colour, where `wanted`.
pub(crate) fn coloured(text: &str, colour: Colour, wanted: bool) -> String {
    let code = match colour {
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Red => 31,
    };
    if wanted { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// True if stdout takes colour.
pub(crate) fn stdout_wants_colour() -> bool {
    wants_colour(io::stdout().is_terminal())
}

/// Writes `text` to stdout and gives `code`; a reader that went away changes nothing, a full disk fails.
pub(crate) fn finish(text: &str, code: u8) -> u8 {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => code,
        Err(error) => {
            say(format_args!("stdout cannot be written: {error}"));
            exit::FAILED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn columns_are_aligned_by_letters_and_no_line_ends_with_blanks() {
        let row = |words: [&str; 3]| words.map(str::to_owned);
        let text = aligned(&[row(["a", "größe", "x"]), row(["long", "b", ""]), row(["", "", "z"])]);
        assert_eq!(text, "a     größe  x\nlong  b\n             z\n");
        assert_eq!(aligned::<2>(&[]), "");
    }

    #[test]
    fn a_cell_is_one_short_line_without_control_characters() {
        assert_eq!(cell("two\nlines\n"), "two\\nlines");
        assert_eq!(cell("\u{1b}[31mred"), "\\u{1b}[31mred");
        assert_eq!(cell(&"ü".repeat(60)), "ü".repeat(60));
        assert_eq!(cell(&"ü".repeat(61)), format!("{}…", "ü".repeat(60)));
    }

    #[test]
    fn colour_stands_around_the_text_where_it_is_wanted() {
        assert_eq!(coloured("x", Colour::Red, false), "x");
        assert_eq!(coloured("x", Colour::Green, true), "\u{1b}[32mx\u{1b}[0m");
        assert!(!wants_colour(false));
    }
}
