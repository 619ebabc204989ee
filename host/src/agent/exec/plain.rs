//! Text of a terminal without what steers the terminal.

/// `line` without escape sequences and control characters; a tab stays. A sequence that does not end takes the rest.
pub(super) fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => skip_sequence(&mut letters),
            '\t' => text.push(letter),
            letter if letter.is_control() => {}
            letter => text.push(letter),
        }
    }
    text
}

/// Skips what belongs to the ESC before it.
fn skip_sequence(letters: &mut std::str::Chars<'_>) {
    match letters.next() {
        // A control sequence (colours, cursor): parameters, then one letter.
        Some('[') => {
            letters.find(|letter| matches!(letter, '@'..='~'));
        }
        // A string (title, link): up to BEL or ESC \.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            let end = letters.find(|letter| matches!(letter, '\x07' | '\x1b'));
            if end == Some('\x1b') {
                letters.next();
            }
        }
        // A character set and its like: one more letter.
        Some(' '..='/') => {
            letters.next();
        }
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::plain;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    #[test]
    fn what_steers_a_terminal_is_taken_out_and_nothing_else() {
        let cases = [
            ("\x1b[91m\x1b[1mError: \x1b[0mthe key is not known", "Error: the key is not known"),
            ("\x1b[2K\x1b[1Gdone", "done"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link", "alink"),
            ("\x1b(Bplain\x1b7 text\x1b=", "plain text"),
            ("a\tb\u{8}c\u{7f}d\u{9b}e\0", "a\tbcde"),
            ("[91m is text without ESC, \u{20ac} too", "[91m is text without ESC, \u{20ac} too"),
            ("cut \x1b[9", "cut "),
            ("cut \x1b]0;tit", "cut "),
            ("cut \x1b", "cut "),
        ];
        for (line, text) in cases {
            assert_eq!(plain(line), text, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn no_control_character_is_left_of_anything(line in "(\x1b|[\\[\\]();m\x07A-Z]|\\PC|\\p{Cc}){0,60}") {
            let text = plain(&line);
            prop_assert!(text.chars().all(|letter| letter == '\t' || !letter.is_control()), "{text:?}");
            prop_assert_eq!(plain(&text), text);
        }
    }
}
