//! Reads what a control is given: its slash command, or its params. Pure. Every error names what is wrong.

use std::collections::HashMap;
use turnhost_protocol::RawJson;

/// Bytes of a wrong value that an error shows.
const SHOWN_BYTES: usize = 64;

/// What stands behind the command's word, without the white space around it; `None` if there is no command at all. The
/// slash may be left out.
pub(super) fn command<'a>(
    given: Option<&'a str>,
    words: &[&str],
    usage: &str,
) -> Result<Option<&'a str>, String> {
    let Some(given) = given.map(str::trim).filter(|given| !given.is_empty()) else { return Ok(None) };
    let bare = given.strip_prefix('/').unwrap_or(given);
    let (word, rest) = bare.split_once(char::is_whitespace).unwrap_or((bare, ""));
    if words.contains(&word) {
        return Ok(Some(rest.trim()));
    }
    Err(format!("unknown command {}; expected {usage}", quoted(given)))
}

/// [`command`] for commands that take nothing.
pub(super) fn bare_command(given: Option<&str>, words: &[&str], usage: &str) -> Result<(), String> {
    match command(given, words, usage)? {
        None | Some("") => Ok(()),
        Some(rest) => Err(format!("unexpected {} behind the command; expected {usage}", quoted(rest))),
    }
}

/// `/model NAME [--provider P]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModelChoice<'a> {
    pub(super) model: &'a str,
    pub(super) provider: Option<&'a str>,
}

/// Reads what stands behind `/model`.
pub(super) fn model_choice(rest: &str) -> Result<ModelChoice<'_>, String> {
    let (mut model, mut provider) = (None, None);
    let mut words = rest.split_whitespace();
    while let Some(word) = words.next() {
        let named = match word.strip_prefix("--provider") {
            Some("") => Some(words.next().unwrap_or("")),
            Some(value) => value.strip_prefix('='),
            None => None,
        };
        if let Some(value) = named {
            if value.is_empty() || value.starts_with("--") {
                return Err("--provider needs a name behind it".to_owned());
            }
            if provider.replace(value).is_some() {
                return Err("--provider is given twice".to_owned());
            }
        } else if word.starts_with("--") {
            return Err(format!("unknown option {}; there is --provider P", quoted(word)));
        } else if model.is_some() {
            return Err(format!("unexpected {} behind the model's name", quoted(word)));
        } else {
            model = Some(word);
        }
    }
    let model = model.ok_or("the model's name is missing: /model NAME [--provider P]")?;
    Ok(ModelChoice { model, provider })
}

/// A field of the params; `None` if it is absent or null.
pub(super) fn param(params: Option<&RawJson>, name: &str) -> Result<Option<RawJson>, String> {
    let Some(params) = params.filter(|params| params.as_str() != "null") else { return Ok(None) };
    let fields: HashMap<String, Option<RawJson>> =
        params.read().map_err(|_| format!("params must be an object, not {}", shown(params.as_str())))?;
    Ok(fields.into_iter().find(|(field, _)| field == name).and_then(|(_, value)| value))
}

/// An integer from 1.
pub(super) fn ordinal(params: Option<&RawJson>, name: &str) -> Result<u64, String> {
    let value = param(params, name)?.ok_or_else(|| format!("params.{name} is missing: an integer from 1"))?;
    match value.read::<u64>() {
        Ok(number @ 1..) => Ok(number),
        Ok(0) | Err(_) => {
            Err(format!("params.{name} must be an integer from 1, not {}", shown(value.as_str())))
        }
    }
}

/// A list of messages: objects with a role.
pub(super) fn messages(params: Option<&RawJson>, name: &str) -> Result<Option<Vec<RawJson>>, String> {
    let Some(value) = param(params, name)? else { return Ok(None) };
    let messages: Vec<RawJson> = value
        .read()
        .map_err(|_| format!("params.{name} must be a list of messages, not {}", shown(value.as_str())))?;
    match no_message(&messages) {
        Some(at) => Err(format!("params.{name}[{at}] must be an object with role, a string")),
        None => Ok(Some(messages)),
    }
}

/// The place of the first one that is no message.
pub(super) fn no_message(messages: &[RawJson]) -> Option<usize> {
    messages.iter().position(|message| crate::session::message::role(message).is_none())
}

/// The beginning of a text, in backticks.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", shown(text))
}

fn shown(text: &str) -> String {
    match text.get(..text.floor_char_boundary(SHOWN_BYTES)) {
        Some(beginning) if beginning.len() < text.len() => format!("{beginning}…"),
        Some(_) | None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> RawJson {
        RawJson::parse(text).unwrap()
    }

    #[test]
    fn a_command_gives_what_stands_behind_its_word() {
        for (given, expected) in [
            (None, None),
            (Some("  "), None),
            (Some("/compress"), Some("")),
            (Some("/compress focus"), Some("focus")),
            (Some("/compact focus topic "), Some("focus topic")),
            (Some(" compress\t a\nb"), Some("a\nb")),
        ] {
            assert_eq!(command(given, &["compress", "compact"], "/compress"), Ok(expected), "{given:?}");
        }
    }

    #[test]
    fn another_command_is_named_beside_the_one_expected() {
        for given in ["/foo", "/Compress", "/compressed", "//compress", "/", "compress: x", "/ compress"] {
            let error = command(Some(given), &["compress"], "/compress [TOPIC]").unwrap_err();
            assert_eq!(error, format!("unknown command `{given}`; expected /compress [TOPIC]"));
        }
        let error = command(Some(&"é".repeat(100)), &["compress"], "/compress").unwrap_err();
        assert_eq!(error, format!("unknown command `{}…`; expected /compress", "é".repeat(32)));
        assert_eq!(bare_command(Some("/retry"), &["retry"], "/retry"), Ok(()));
        let error = bare_command(Some("/retry now"), &["retry"], "/retry").unwrap_err();
        assert_eq!(error, "unexpected `now` behind the command; expected /retry");
    }

    #[test]
    fn a_model_is_a_name_and_perhaps_a_provider() {
        let choice = |model, provider| Ok(ModelChoice { model, provider });
        for (rest, expected) in [
            ("m", choice("m", None)),
            ("a/m:1 --provider p", choice("a/m:1", Some("p"))),
            ("--provider p m", choice("m", Some("p"))),
            ("m --provider=p", choice("m", Some("p"))),
            ("", Err("the model's name is missing: /model NAME [--provider P]")),
            ("--provider p", Err("the model's name is missing: /model NAME [--provider P]")),
            ("m --provider", Err("--provider needs a name behind it")),
            ("m --provider=", Err("--provider needs a name behind it")),
            ("--provider --provider m", Err("--provider needs a name behind it")),
            ("m --provider p --provider q", Err("--provider is given twice")),
            ("m --providers p", Err("unknown option `--providers`; there is --provider P")),
            ("m --global", Err("unknown option `--global`; there is --provider P")),
            ("m n", Err("unexpected `n` behind the model's name")),
        ] {
            assert_eq!(model_choice(rest), expected.map_err(str::to_owned), "{rest:?}");
        }
    }

    #[test]
    fn an_ordinal_is_an_integer_from_1() {
        let name = "before_user_ordinal";
        assert_eq!(ordinal(Some(&json(r#"{"before_user_ordinal":3,"other":{}}"#)), name), Ok(3));
        for params in [None, Some("null"), Some("{}"), Some(r#"{"before_user_ordinal":null}"#)] {
            let params = params.map(json);
            let error = ordinal(params.as_ref(), name).unwrap_err();
            assert_eq!(error, "params.before_user_ordinal is missing: an integer from 1");
        }
        for wrong in ["0", "-1", "1.5", "1.0", "\"1\"", "true", "[1]", "18446744073709551616"] {
            let error =
                ordinal(Some(&json(&format!(r#"{{"before_user_ordinal":{wrong}}}"#))), name).unwrap_err();
            assert_eq!(error, format!("params.before_user_ordinal must be an integer from 1, not {wrong}"));
        }
        for wrong in ["[]", "1", "\"x\""] {
            let error = ordinal(Some(&json(wrong)), name).unwrap_err();
            assert_eq!(error, format!("params must be an object, not {wrong}"));
        }
    }

    #[test]
    fn messages_are_objects_with_a_role() {
        let read = |text: &str| messages(Some(&json(text)), "history");
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"history":[]}"#), Ok(Some(Vec::new())));
        let one = r#"{"role":"user","content":"a","x":1.50}"#;
        assert_eq!(read(&format!(r#"{{"history":[{one}]}}"#)), Ok(Some(vec![json(one)])));
        for (history, message) in [
            ("{}", "params.history must be a list of messages, not {}"),
            ("7", "params.history must be a list of messages, not 7"),
            (r#"[{"role":"user"},1]"#, "params.history[1] must be an object with role, a string"),
            (r#"[{"content":"a"}]"#, "params.history[0] must be an object with role, a string"),
            (r#"[{"role":7}]"#, "params.history[0] must be an object with role, a string"),
        ] {
            assert_eq!(read(&format!(r#"{{"history":{history}}}"#)), Err(message.to_owned()));
        }
    }
}
