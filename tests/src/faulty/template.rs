//! Bytes with holes: the text of a `write` or `frame` step, in which `$t.request_id` stands for a field of the frame
//! that an earlier `expect` bound to `t`.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What `expect` and the grandchild steps have bound so far: a name to the fields that it stands for.
pub(crate) type Bound = BTreeMap<String, Map<String, Value>>;

/// Bytes with holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    Field { name: String, field: String },
}

impl Template {
    /// Reads the text of a `write`: `\xNN` is the byte NN, everything else stands for itself.
    pub(crate) fn of_bytes(text: &str) -> Result<Self, String> {
        Self::parse(text, true)
    }

    /// Takes the JSON text of a `frame`: no escape is read, the white space between tokens goes, a newline comes.
    pub(crate) fn of_frame(json: &str) -> Result<Self, String> {
        Self::parse(&(compact(json) + "\n"), false)
    }

    fn parse(text: &str, escapes: bool) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '$']) {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("\\x").filter(|_| escapes) {
                let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(byte.ok_or_else(|| {
                    format!("`\\x{}` is no byte: two hexadecimal digits must follow `\\x`", head(after))
                })?);
                rest = &after[2..];
            } else if let Some((name, field, after)) = reference(rest) {
                pieces.push(Piece::Bytes(std::mem::take(&mut bytes)));
                pieces.push(Piece::Field { name: name.to_owned(), field: field.to_owned() });
                rest = after;
            } else {
                bytes.push(rest.as_bytes()[0]);
                rest = &rest[1..];
            }
        }
        bytes.extend_from_slice(rest.as_bytes());
        pieces.push(Piece::Bytes(bytes));
        pieces.retain(|piece| *piece != Piece::Bytes(Vec::new()));
        Ok(Self { pieces })
    }

    /// The first hole whose name is not in `known`, as it was written.
    pub(crate) fn unknown(&self, known: &BTreeSet<String>) -> Option<String> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Field { name, field } if !known.contains(name) => Some(format!("${name}.{field}")),
            Piece::Field { .. } | Piece::Bytes(_) => None,
        })
    }

    /// The bytes, holes filled. A text goes in as it stands between the quotes of JSON, anything else as its JSON,
    /// quoted likewise.
    pub(crate) fn fill(&self, bound: &Bound) -> Result<Vec<u8>, String> {
        let mut filled = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => filled.extend_from_slice(bytes),
                Piece::Field { name, field } => {
                    let value = bound.get(name).and_then(|fields| fields.get(field)).ok_or_else(|| {
                        format!("`${name}.{field}`: what was bound to `{name}` has no field `{field}`")
                    })?;
                    let text = match value {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    let quoted = Value::String(text).to_string();
                    filled.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
                }
            }
        }
        Ok(filled)
    }
}

/// Splits `$name.field…`, both made of letters, digits and `_` with no digit first.
fn reference(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = identifier(text.strip_prefix('$')?)?;
    let (field, rest) = identifier(rest.strip_prefix('.')?)?;
    Some((name, field, rest))
}

fn identifier(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well.then(|| text.split_at(end))
}

fn head(text: &str) -> String {
    text.chars().take(2).collect()
}

/// JSON without the white space between its tokens. Key order and the spelling of numbers and strings stay.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut in_string = false;
    let mut escaped = false;
    for c in json.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            in_string = c == '"';
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn bound() -> Bound {
        let Value::Object(fields) = json!({"request_id": "r\"1", "n": 7, "list": ["a"]}) else { panic!() };
        Bound::from([("t".to_owned(), fields)])
    }

    #[test]
    fn write_reads_byte_escapes_and_keeps_every_other_backslash() {
        let template = Template::of_bytes("a\\xffb\\n\\x0a\\\\x41 ü").unwrap();
        assert_eq!(template.fill(&bound()).unwrap(), b"a\xffb\\n\n\\A \xc3\xbc");
    }

    #[test]
    fn a_cut_byte_escape_is_refused_with_what_was_found() {
        assert_eq!(
            Template::of_bytes("x\\xf").unwrap_err(),
            "`\\xf` is no byte: two hexadecimal digits must follow `\\x`"
        );
        assert!(Template::of_bytes("\\xzz").is_err());
        assert!(Template::of_bytes("\\x€€").is_err());
    }

    #[test]
    fn a_hole_takes_text_as_it_stands_between_the_quotes_of_json() {
        let template =
            Template::of_frame(r#"{"request_id":"$t.request_id", "n":"<$t.n>","l":"$t.list"}"#).unwrap();
        let line = template.fill(&bound()).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&line).unwrap(),
            json!({"request_id": "r\"1", "n": "<7>", "l": "[\"a\"]"})
        );
    }

    #[test]
    fn a_dollar_that_begins_no_hole_stays() {
        let template = Template::of_bytes("$5.00 $HOME $t. $ $").unwrap();
        assert_eq!(template.fill(&Bound::new()).unwrap(), b"$5.00 $HOME $t. $ $");
        assert_eq!(template.unknown(&BTreeSet::new()), None);
    }

    #[test]
    fn a_field_that_was_not_in_the_frame_is_an_error_that_names_it() {
        let template = Template::of_bytes("$t.sid").unwrap();
        assert_eq!(
            template.fill(&bound()).unwrap_err(),
            "`$t.sid`: what was bound to `t` has no field `sid`"
        );
    }

    #[test]
    fn a_frame_keeps_key_order_and_loses_only_the_white_space_between_tokens() {
        let template =
            Template::of_frame("{ \"type\" : \"x y\",\n\t\"b\": 1.50, \"a\": \"q\\\" { \\\\\" }").unwrap();
        assert_eq!(
            template.fill(&Bound::new()).unwrap(),
            b"{\"type\":\"x y\",\"b\":1.50,\"a\":\"q\\\" { \\\\\"}\n"
        );
    }
}
