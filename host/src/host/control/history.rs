//! Controls that change the history: truncate, reset, reload, retry.

use super::arguments::{bare_command, messages, ordinal};
use super::{Done, new_key};
use crate::session::Session;
use crate::session::message::{content, has_role, text};
use serde::Serialize;
use turnhost_protocol::RawJson;
use turnhost_protocol::frame::Control;

#[derive(Serialize)]
struct Removed {
    removed: usize,
}

/// `prompt.submit.truncate`: cuts the history before the Nth message of the user.
pub(super) fn truncate(session: &mut Session, frame: &Control) -> Result<Done, String> {
    let wanted = ordinal(frame.params.as_ref(), "before_user_ordinal")?;
    let history = session.history.snapshot();
    let prompts: Vec<usize> = users(&history).collect();
    let index = usize::try_from(wanted - 1).ok().and_then(|index| prompts.get(index));
    let at = index.ok_or_else(|| {
        format!(
            "params.before_user_ordinal is {wanted}, but the history has {}",
            counted(prompts.len(), "user message")
        )
    })?;
    let removed = session.history.cut(*at).len();
    let output = format!("{} removed, {} left", counted(removed, "message"), session.history.message_count());
    Ok(Done::new(output, &Removed { removed }))
}

/// `session.reset`: empties the history under a new key.
pub(super) fn reset(session: &mut Session, frame: &Control) -> Result<Done, String> {
    #[derive(Serialize)]
    struct Reset<'a> {
        session_key: &'a str,
        parent_session_key: Option<&'a str>,
    }
    bare_command(frame.command.as_deref(), &["reset", "new"], "/reset or no command")?;
    session.history.reset(new_key());
    let (session_key, parent_session_key) = (session.history.session_key(), session.history.parent_key());
    let output = format!("new session {session_key}");
    Ok(Done::new(output, &Reset { session_key, parent_session_key }))
}

/// `session.history.reload`: takes the history given.
pub(super) fn reload(session: &mut Session, frame: &Control) -> Result<Done, String> {
    #[derive(Serialize)]
    struct Reloaded {
        changed: bool,
    }
    let given = messages(frame.params.as_ref(), "history")?
        .ok_or("params.history is missing, and this host has no store to read the history from")?;
    let changed = *session.history.snapshot() != given;
    let number = counted(given.len(), "message");
    if changed {
        session.history.replace(given);
    }
    let output =
        if changed { format!("history replaced: {number}") } else { format!("history unchanged: {number}") };
    Ok(Done::new(output, &Reloaded { changed }))
}

/// `slash.retry`: takes the last prompt out, with everything behind it, and gives its text.
pub(super) fn retry(session: &mut Session, frame: &Control) -> Result<Done, String> {
    #[derive(Serialize)]
    struct Retry {
        prompt: Option<RawJson>,
        removed: usize,
    }
    bare_command(frame.command.as_deref(), &["retry"], "/retry")?;
    let history = session.history.snapshot();
    let at = users(&history).last().ok_or("there is no prompt in the history to try again")?;
    let removed = session.history.cut(at);
    let prompt = removed.first().and_then(content);
    let output = prompt.as_ref().map(text).unwrap_or_default();
    Ok(Done::new(output, &Retry { prompt, removed: removed.len() }))
}

fn users(history: &[RawJson]) -> impl Iterator<Item = usize> {
    history.iter().enumerate().filter(|(_, message)| has_role(message, "user")).map(|(at, _)| at)
}

/// `1 message`, `2 messages`.
pub(super) fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
