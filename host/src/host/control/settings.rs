//! Controls that change what the next turn is given: model, personality, system prompt.

use super::arguments::{command, model_choice, quoted};
use super::{Done, OpenControl};
use crate::config::Config;
use crate::host::Host;
use crate::session::Session;
use serde::Serialize;
use std::path::Path;
use turnhost_protocol::Route;
use turnhost_protocol::frame::Control;

/// Names that an error lists.
const LISTED: usize = 32;

/// `slash.model`: `/model NAME [--provider P]`. Without a provider the one that holds stays.
pub(super) fn model(session: &mut Session, frame: &Control) -> Result<Done, String> {
    #[derive(Serialize)]
    struct Model<'a> {
        model: &'a str,
        provider: Option<&'a str>,
    }
    let usage = "/model NAME [--provider P]";
    let rest = command(frame.command.as_deref(), &["model"], usage)?;
    let choice = model_choice(rest.ok_or_else(|| format!("command is missing: {usage}"))?)?;
    session.model = Some(choice.model.to_owned());
    if let Some(provider) = choice.provider {
        session.provider = Some(provider.to_owned());
    }
    let provider = session.provider.as_deref();
    let by = provider.map(|provider| format!(" from {provider}")).unwrap_or_default();
    Ok(Done::new(format!("model: {}{by}", choice.model), &Model { model: choice.model, provider }))
}

/// `slash.personality`: `/personality NAME`, or `none`.
pub(super) fn personality(
    session: &mut Session,
    frame: &Control,
    config: &Config,
    home: &Path,
) -> Result<Done, String> {
    #[derive(Serialize)]
    struct Personality<'a> {
        personality: Option<&'a str>,
    }
    let usage = "/personality NAME, or none";
    let rest = command(frame.command.as_deref(), &["personality"], usage)?;
    let name = rest.filter(|name| !name.is_empty()).ok_or_else(|| format!("name one: {usage}"))?;
    if name == "none" {
        session.personality = None;
        return Ok(Done::new("no personality".to_owned(), &Personality { personality: None }));
    }
    if !config.personalities.contains_key(name) {
        let known: Vec<&str> = config.personalities.keys().map(String::as_str).collect();
        return Err(unknown_personality(name, &known, home));
    }
    session.personality = Some(name.to_owned());
    Ok(Done::new(format!("personality: {name}"), &Personality { personality: Some(name) }))
}

/// `slash.prompt`: `/prompt TEXT` at once. `None` for `/prompt`, which needs the config first.
pub(super) fn prompt(session: &mut Session, frame: &Control) -> Result<Option<Done>, String> {
    let usage = "/prompt, or /prompt TEXT";
    let rest = command(frame.command.as_deref(), &["prompt"], usage)?;
    let text = rest.ok_or_else(|| format!("command is missing: {usage}"))?;
    if text.is_empty() {
        return Ok(None);
    }
    session.own_prompt = Some(text.to_owned());
    let output = format!("system prompt: {} characters", text.chars().count());
    Ok(Some(Done::new(output, &Prompt { system_prompt: Some(text) })))
}

#[derive(Serialize)]
struct Prompt<'a> {
    /// The session's own; null: the config's counts.
    system_prompt: Option<&'a str>,
}

impl Host {
    /// The config was read again for a `/prompt`. Its system prompt and personalities hold from now on, for every
    /// session that has none of its own; its other keys count when a host starts.
    pub(in crate::host) fn on_config(&mut self, id: u64, read: Result<Config, String>) {
        let Some(OpenControl { sid, request_id, route }) = self.open_controls.remove(&id) else { return };
        debug_assert!(route == Route::SlashPrompt, "no other control reads the config");
        let done = read.map(|config| {
            self.options.config.agent.system_prompt = config.agent.system_prompt;
            self.options.config.personalities = config.personalities;
            let text = self.options.config.agent.system_prompt.as_deref();
            let output = match text {
                Some(text) => format!("system prompt of the config: {} characters", text.chars().count()),
                None => "the config has no system prompt".to_owned(),
            };
            Done::new(output, &Prompt { system_prompt: None })
        });
        if let Some(session) = self.sessions.get_mut(&sid) {
            if done.is_ok() {
                session.own_prompt = None;
            }
            session.gate.finish(id);
        }
        self.answer_control(route, &sid, request_id, done);
    }
}

fn unknown_personality(name: &str, known: &[&str], home: &Path) -> String {
    let Some(nearest) = known.iter().min_by_key(|known| distance(name, known)) else {
        let config = home.join("config.yaml");
        return format!(
            "no personality {}: there is none at all; add some under `personalities` in {}, then say /prompt",
            quoted(name),
            config.display()
        );
    };
    let more = if known.len() > LISTED { ", …" } else { "" };
    let listed: Vec<&str> = known.iter().take(LISTED).copied().collect();
    format!(
        "no personality {}; the nearest is {nearest}; there are: {}{more}",
        quoted(name),
        listed.join(", ")
    )
}

/// Letters to change, add or leave out to make one name of the other; only the beginnings of long ones are compared.
fn distance(one: &str, other: &str) -> usize {
    let letters = |name: &str| -> Vec<char> { name.chars().flat_map(char::to_lowercase).take(64).collect() };
    let (one, other) = (letters(one), letters(other));
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut next = vec![at + 1];
        for ((wanted, above), corner) in other.iter().zip(row.iter().skip(1)).zip(&row) {
            let left = next.last().copied().unwrap_or(at);
            next.push((corner + usize::from(letter != wanted)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_names_counts_their_differences() {
        for (one, other, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("pirate", "pirate", 0),
            ("Pirate", "pirate", 0),
            ("pirat", "pirate", 1),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn an_unknown_personality_is_answered_with_those_that_there_are() {
        let home = Path::new("/h");
        assert_eq!(
            unknown_personality("pirat", &["judge", "pirate"], home),
            "no personality `pirat`; the nearest is pirate; there are: judge, pirate"
        );
        assert_eq!(
            unknown_personality("x", &[], home),
            "no personality `x`: there is none at all; add some under `personalities` in /h/config.yaml, then say /prompt"
        );
        let many: Vec<String> = (0..100).map(|number| format!("p{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(unknown_personality("x", &many, home).ends_with(", p31, …"));
    }
}
