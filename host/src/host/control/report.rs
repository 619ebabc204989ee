//! What whoever asked for a compression reads of it. Pure.

use super::Done;
use super::history::counted;
use crate::context_engine::estimated_tokens;
use crate::session::compress::Verdict;
use serde::Serialize;
use turnhost_protocol::{RawJson, Route};

/// A compression that is over.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) before: &'a [RawJson],
    pub(super) after: &'a [RawJson],
    pub(super) verdict: &'a Verdict,
    /// The text that was committed.
    pub(super) summary: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Size {
    messages: usize,
    /// Estimated.
    tokens: u64,
}

#[derive(Debug, Serialize)]
struct Summary {
    aborted: bool,
    noop: bool,
    headline: String,
    token_line: String,
    note: Option<String>,
    text: Option<String>,
}

#[derive(Debug, Serialize)]
struct Outcome<'a> {
    status: &'static str,
    before: Size,
    after: Size,
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [RawJson]>,
}

impl Report<'_> {
    /// The answer of this route: the slash route's frame has the messages beside the result.
    pub(super) fn done(self, route: Route) -> Done {
        let (before, after) = (size(self.before), size(self.after));
        let number = counted(before.messages, "message");
        let (status, headline, note) = match self.verdict {
            Verdict::Compressed { note } => (
                "compressed",
                format!("Compressed: {} → {}", before.messages, counted(after.messages, "message")),
                note.clone(),
            ),
            Verdict::Unchanged { reason } => {
                ("unchanged", format!("Nothing to compress: {number} kept"), Some(reason.clone()))
            }
            Verdict::Aborted { reason } => {
                ("aborted", format!("Compression aborted: {number} kept"), Some(reason.clone()))
            }
            Verdict::SyncFailed { reason } => (
                "aborted",
                format!("Compression aborted: {number} kept"),
                Some(format!("live session sync failed: {reason}")),
            ),
        };
        let token_line = if before.tokens == after.tokens {
            format!("About {} tokens", grouped(before.tokens))
        } else {
            format!("About {} → {} tokens", grouped(before.tokens), grouped(after.tokens))
        };
        let mut output = format!("{headline}\n{token_line}");
        if let Some(note) = &note {
            output = format!("{output}\n{note}");
        }
        let summary = Summary {
            aborted: status == "aborted",
            noop: status == "unchanged",
            headline,
            token_line,
            note,
            text: self.summary,
        };
        let messages = (route == Route::SessionCompress).then_some(self.after);
        Done::new(output, &Outcome { status, before, after, summary, messages })
    }
}

fn size(messages: &[RawJson]) -> Size {
    Size { messages: messages.len(), tokens: estimated_tokens(messages) }
}

/// `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn messages(count: usize) -> Vec<RawJson> {
        // 40 characters each: 10 tokens.
        (0..count)
            .map(|_| {
                RawJson::parse(r#"{"role":"user","content":"0123456789ab"}"#.to_owned() + "   ").unwrap()
            })
            .collect()
    }

    fn done(verdict: &Verdict, after: usize, route: Route) -> (String, Value) {
        let (before, after) = (messages(400), messages(after));
        let done =
            Report { before: &before, after: &after, verdict, summary: Some("text".to_owned()) }.done(route);
        (done.output, done.result.unwrap().read().unwrap())
    }

    #[test]
    fn a_compression_is_told_with_its_sizes() {
        let (output, result) = done(&Verdict::Compressed { note: None }, 1, Route::SlashCompress);
        assert_eq!(output, "Compressed: 400 → 1 message\nAbout 4,000 → 10 tokens");
        assert_eq!(
            result,
            json!({
                "status": "compressed",
                "before": {"messages": 400, "tokens": 4000},
                "after": {"messages": 1, "tokens": 10},
                "summary": {"aborted": false, "noop": false, "headline": "Compressed: 400 → 1 message",
                    "token_line": "About 4,000 → 10 tokens", "note": null, "text": "text"},
            })
        );
    }

    #[test]
    fn only_the_session_route_has_the_messages_in_its_result() {
        let (_, result) = done(&Verdict::Compressed { note: None }, 2, Route::SessionCompress);
        assert_eq!(result["messages"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn whatever_kept_the_history_is_told_with_its_reason() {
        let reason = || "why".to_owned();
        for (verdict, status, aborted, last_line) in [
            (Verdict::Unchanged { reason: reason() }, "unchanged", false, "why"),
            (Verdict::Aborted { reason: reason() }, "aborted", true, "why"),
            (Verdict::SyncFailed { reason: reason() }, "aborted", true, "live session sync failed: why"),
        ] {
            let (output, result) = done(&verdict, 400, Route::SlashCompress);
            assert_eq!(result["status"], status);
            assert_eq!(result["summary"]["aborted"], aborted);
            assert_eq!(result["summary"]["noop"], !aborted);
            assert_eq!(output.lines().last(), Some(last_line));
            assert!(output.contains("400 messages kept\nAbout 4,000 tokens"), "{output}");
        }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (123_456, "123,456"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), expected);
        }
    }
}
