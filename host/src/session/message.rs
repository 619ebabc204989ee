//! What the host reads of a message: its role, and the text of a prompt. Everything else is the agents' matter.

use serde::Deserialize;
use turnhost_protocol::RawJson;

/// The role; `None` if it is no object with one.
pub(crate) fn role(message: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    struct Role {
        role: String,
    }
    message.read::<Role>().ok().map(|message| message.role)
}

/// True for a message of this role.
pub(crate) fn has_role(message: &RawJson, wanted: &str) -> bool {
    role(message).is_some_and(|role| role == wanted)
}

/// The content as it stands.
pub(crate) fn content(message: &RawJson) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct Content {
        content: RawJson,
    }
    message.read::<Content>().ok().map(|message| message.content)
}

/// The text of a content: a string, or the text parts of a list, one a line. Images and the like have none.
pub(crate) fn text(content: &RawJson) -> String {
    #[derive(Deserialize)]
    struct Part {
        text: String,
    }
    if let Ok(text) = content.read::<String>() {
        return text;
    }
    let parts: Vec<RawJson> = content.read().unwrap_or_default();
    let texts: Vec<String> =
        parts.iter().filter_map(|part| part.read::<Part>().ok()).map(|part| part.text).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_content_is_its_string_or_its_text_parts() {
        for (message, expected) in [
            (r#"{"role":"user","content":"a\nb"}"#, Some("a\nb")),
            (
                r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"},{"text":"b"}]}"#,
                Some("a\nb"),
            ),
            (r#"{"role":"user","content":[{"type":"image_url"}]}"#, Some("")),
            (r#"{"role":"user","content":null}"#, Some("")),
            (r#"{"role":"user"}"#, None),
        ] {
            let message = RawJson::parse(message).unwrap();
            assert_eq!(role(&message).as_deref(), Some("user"));
            assert_eq!(content(&message).map(|content| text(&content)).as_deref(), expected, "{message:?}");
        }
    }

    #[test]
    fn what_is_no_message_has_no_role() {
        for text in ["1", "null", "[]", r#""user""#, "{}", r#"{"role":1}"#, r#"{"role":null}"#] {
            assert_eq!(role(&RawJson::parse(text).unwrap()), None, "{text}");
        }
    }
}
