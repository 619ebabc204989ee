//! The answer as text on stdout: pure.

/// What of the answer was shown.
#[derive(Debug, Default)]
pub(super) struct Text {
    shown: usize,
    ends_line: bool,
    /// A piece is missing, so nothing more is shown until the whole answer is there.
    gap: bool,
}

impl Text {
    /// A piece of the answer; gives what to write.
    pub(super) fn delta<'a>(&mut self, text: &'a str) -> &'a str {
        if self.gap {
            return "";
        }
        self.show(text)
    }

    /// Pieces were left out because stdout was read too slowly.
    pub(super) fn lagged(&mut self) {
        self.gap = true;
    }

    /// The end with the whole answer, if the host gave it; gives what is missing of it.
    pub(super) fn end<'a>(&mut self, answer: Option<&'a str>) -> &'a str {
        if self.shown > 0 && !self.gap {
            return "";
        }
        match answer.and_then(|answer| answer.get(self.shown..)) {
            Some(rest) => {
                self.gap = false;
                self.show(rest)
            }
            None => "",
        }
    }

    /// True if the text shown does not end its line.
    pub(super) fn leaves_line_open(&self) -> bool {
        self.shown > 0 && !self.ends_line
    }

    /// True if a part of the answer was never shown.
    pub(super) fn has_gap(&self) -> bool {
        self.gap
    }

    fn show<'a>(&mut self, text: &'a str) -> &'a str {
        self.shown += text.len();
        if !text.is_empty() {
            self.ends_line = text.ends_with('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_shown_as_they_come_and_the_whole_answer_not_again() {
        let mut text = Text::default();
        assert_eq!(text.delta("a"), "a");
        assert!(text.leaves_line_open());
        assert_eq!(text.delta("b\n"), "b\n");
        assert_eq!(text.delta(""), "");
        assert_eq!(text.end(Some("ab\n[interrupted]")), "");
        assert!(!text.leaves_line_open() && !text.has_gap());
    }

    #[test]
    fn an_answer_without_pieces_is_shown_at_the_end() {
        let mut text = Text::default();
        assert_eq!(text.end(Some("whole")), "whole");
        assert!(text.leaves_line_open());
        assert_eq!(Text::default().end(None), "");
    }

    #[test]
    fn what_is_missing_after_a_gap_comes_from_the_whole_answer() {
        let mut text = Text::default();
        text.delta("one ");
        text.lagged();
        assert_eq!(text.delta("three"), "");
        assert_eq!(text.end(Some("one two three")), "two three");
        assert!(!text.has_gap());
    }

    #[test]
    fn a_gap_that_nothing_fills_is_known() {
        for answer in [None, Some("o")] {
            let mut text = Text::default();
            text.delta("one ");
            text.lagged();
            assert_eq!(text.end(answer), "");
            assert!(text.has_gap());
        }
    }
}
