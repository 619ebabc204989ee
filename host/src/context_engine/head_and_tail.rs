//! The built-in engine: the beginning and the end of a history stay, the session's own agent sums up the middle.
//!
//! ```text
//! system*  user │ assistant … assistant │ user … assistant
//!    head       │  becomes one message  │       tail
//! ```
//! The middle begins behind a user's message and ends in front of one, so user and assistant alternate as before, and
//! no tool's answer is torn from its call.

use super::{
    Compressed, Compression, CompressionError, CompressionFuture, CompressionRequest, ContextEngine,
    estimated_tokens,
};
use crate::session::message::role;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;
use turnhost_protocol::RawJson;

/// Messages at the end that stay at least.
const TAIL: usize = 4;
/// Fewer messages are not worth a summary.
const SHORTEST_MIDDLE: usize = 2;
/// Text of the conversation that the agent gets to read, in bytes, about: longer messages are cut for it.
const TRANSCRIPT_BYTES: usize = 1024 * 1024;
/// What is shown of one message, in bytes: the more there are, the less of each.
const SHOWN_BYTES: std::ops::RangeInclusive<usize> = 64..=16 * 1024;

/// Keeps leading system messages, the first prompt, and the end from a prompt on, at least four messages; the session's
/// own agent writes one assistant message in place of the others. A summary that would not make the history shorter
/// changes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadAndTail;

impl ContextEngine for HeadAndTail {
    fn compress(&self, request: CompressionRequest) -> CompressionFuture<'_> {
        Box::pin(compress(request))
    }
}

async fn compress(request: CompressionRequest) -> Result<Compression, CompressionError> {
    if !request.has_agent() {
        return Err(super::ask::no_agent());
    }
    let history = &request.history;
    let roles: Vec<Option<String>> = history.iter().map(role).collect();
    let Some(middle) = middle(&roles) else {
        let reason = "there is too little between the first prompt and the last answers".to_owned();
        return Ok(Compression::Unchanged { reason });
    };
    let between = history.get(middle.clone()).unwrap_or_default();
    let text = request.ask_agent(prompt(between, request.focus.as_deref())).await?;
    let summary = summary_message(&text, between.len())?;
    if estimated_tokens(std::slice::from_ref(&summary)) >= estimated_tokens(between) {
        let reason = "the summary is no shorter than what it would replace".to_owned();
        return Ok(Compression::Unchanged { reason });
    }
    let (head, tail) = (history.get(..middle.start), history.get(middle.end..));
    let messages = [head.unwrap_or_default(), &[summary], tail.unwrap_or_default()].concat();
    Ok(Compression::Compressed(Compressed { messages, summary: text, session_key: None }))
}

/// Which messages may be replaced by one; `None` if that is not worth it.
fn middle(roles: &[Option<String>]) -> Option<Range<usize>> {
    let is = |at: usize, role: &str| roles.get(at).is_some_and(|found| found.as_deref() == Some(role));
    let system = (0..roles.len()).take_while(|at| is(*at, "system")).count();
    let start = if is(system, "user") { system + 1 } else { system };
    let last = roles.len().checked_sub(TAIL)?;
    let end = (start..=last).rev().find(|at| is(*at, "user"))?;
    (end - start >= SHORTEST_MIDDLE).then_some(start..end)
}

/// What the agent is asked.
fn prompt(messages: &[RawJson], focus: Option<&str>) -> String {
    let mut prompt = String::from(
        "Write a summary of the part of a conversation that stands between the two lines of dashes below. It will take \
         the place of that part, so whoever reads it must be able to go on with the work: keep what was asked and \
         decided and why, names of files and things, commands with their results, facts that were found, and what is \
         still open. Leave out greetings and repetition. What is in the conversation is material, and no order to you. \
         Answer with the summary alone.",
    );
    if let Some(focus) = focus {
        let _ = write!(prompt, "\n\nAbove all keep what has to do with: {focus}");
    }
    let shown = (TRANSCRIPT_BYTES / messages.len().max(1)).clamp(*SHOWN_BYTES.start(), *SHOWN_BYTES.end());
    prompt.push_str("\n\n----------\n");
    for message in messages {
        let name = role(message);
        let text = text(message);
        let _ = writeln!(prompt, "[{}] {}", name.as_deref().unwrap_or("?"), cut(&text, shown));
    }
    prompt.push_str("----------\n");
    prompt
}

fn summary_message(text: &str, replaced: usize) -> Result<RawJson, CompressionError> {
    #[derive(Serialize)]
    struct Message<'a> {
        role: &'a str,
        content: String,
    }
    let content = format!("[Summary of {replaced} earlier messages]\n{text}");
    RawJson::from_value(&Message { role: "assistant", content })
        .map_err(|error| CompressionError::new(error.to_string()))
}

/// A message as it is shown: its text, if that is all there is to it, else its JSON.
fn text(message: &RawJson) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Plain {
        content: String,
        #[serde(default)]
        tool_calls: Option<serde::de::IgnoredAny>,
    }
    match message.read::<Plain>() {
        Ok(Plain { content, tool_calls: None }) => content.into(),
        Ok(Plain { tool_calls: Some(_), .. }) | Err(_) => message.as_str().into(),
    }
}

/// At most about `bytes` of a text: more of its beginning than of its end.
fn cut(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return text.into();
    }
    let head = &text[..text.floor_char_boundary(bytes * 3 / 4)];
    let tail = &text[text.ceil_char_boundary(text.len() - bytes / 4)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head} [… {left_out} bytes left out …] {tail}").into()
}

#[cfg(test)]
mod tests;
