//! YAML text to a tree whose nodes know their lines.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, NonFiniteFloatPolicy, Options, Spanned};
use std::fmt;

/// Nodes of one file, those that aliases repeat included: far above any config, far below what costs memory.
const MAX_NODES: usize = 50_000;
/// Levels of nesting: each takes tens of KiB of stack in a debug build, and a thread may have no more than 2 MiB.
const MAX_DEPTH: usize = 24;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Counted from 1.
    pub line: usize,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Nothing,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; a key may occur twice.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// What it is, for people. Never the value: it may be a secret in the wrong place.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a section",
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Nothing | Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::List(_) | Self::Map(_) => {
                None
            }
        }
    }
}

/// The text is no YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoYaml {
    pub line: Option<usize>,
    pub message: String,
}

/// Reads one document; `None` if the text holds none.
pub(super) fn parse(text: &str) -> Result<Option<Node>, NoYaml> {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_depth = MAX_DEPTH;
    budget.max_nodes = MAX_NODES;
    budget.max_events = 4 * MAX_NODES;
    budget.max_recorded_anchor_events = MAX_NODES;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = MAX_NODES;
    // Other programs read the file too, and most take the last of two keys without a word; ours are looked at below.
    options.duplicate_keys = DuplicateKeyPolicy::PassThrough;
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    options.strict_booleans = true;
    options.with_snippet = false;
    let documents: Result<Vec<Node>, _> = serde_saphyr::from_multiple_with_options(text, options);
    match documents {
        Ok(documents) if documents.len() > 1 => Err(NoYaml {
            line: documents.get(1).map(|node| node.line),
            message: "a second document begins here; a config is one, without `---` between its parts"
                .to_owned(),
        }),
        Ok(documents) => Ok(documents.into_iter().next()),
        Err(error) => Err(NoYaml {
            line: error.location().and_then(line),
            message: format!("no valid YAML: {}", first_line(&error.without_snippet().to_string())),
        }),
    }
}

fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

fn line(location: Location) -> Option<usize> {
    usize::try_from(location.line()).ok().filter(|line| *line > 0)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = Spanned::<Value>::deserialize(deserializer)?;
        let line = line(found.referenced).or_else(|| line(found.defined)).unwrap_or(1);
        Ok(Self { line, value: found.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(i128::try_from(value).map_or(Value::Float(f64::INFINITY), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn text(line: usize, text: &str) -> Node {
        Node { line, value: Value::Text(text.to_owned()) }
    }

    #[test]
    fn nodes_know_their_lines_and_plain_words_stay_text() {
        let root =
            parse("# a comment\nmodel:\n  name: yes\n  base_url: \"5\"\nlist: [1, -2, 2.5, true, ~]\n");
        let node = |line, value| Node { line, value };
        let model = Value::Map(vec![(text(3, "name"), text(3, "yes")), (text(4, "base_url"), text(4, "5"))]);
        let list = [Value::Int(1), Value::Int(-2), Value::Float(2.5), Value::Bool(true), Value::Nothing];
        let list = Value::List(list.into_iter().map(|value| node(5, value)).collect());
        let wanted = Value::Map(vec![(text(2, "model"), node(3, model)), (text(5, "list"), node(5, list))]);
        assert_eq!(root, Ok(Some(node(2, wanted))));
    }

    #[test]
    fn a_text_without_a_document_is_none() {
        for empty in ["", "\n\n", "# nothing but a comment\n", "\u{feff}", "\u{feff}# x\n"] {
            assert!(
                matches!(parse(empty), Ok(None | Some(Node { value: Value::Nothing, .. }))),
                "{empty:?}: {:?}",
                parse(empty)
            );
        }
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_line() {
        let error = parse("a: 1\nb: [1, 2\nc: }\n").unwrap_err();
        assert!(error.line.is_some_and(|line| (2..=4).contains(&line)), "{error:?}");
        assert!(error.message.starts_with("no valid YAML: "), "{error:?}");
        assert!(!error.message.contains('\n'), "{error:?}");
        assert_eq!(parse("a: 1\n---\nb: 2\n").unwrap_err().line, Some(3));
    }

    #[test]
    fn aliases_and_merges_count_and_a_key_may_occur_twice() {
        let root = parse("base: &b {name: x}\nmodel:\n  <<: *b\n  name: y\n  name: z\n").unwrap().unwrap();
        let Value::Map(entries) = root.value else { panic!("no map") };
        let Value::Map(model) = &entries[1].1.value else { panic!("no section") };
        let names: Vec<_> =
            model.iter().map(|(key, value)| (key.value.as_text(), value.value.as_text())).collect();
        assert!(
            names.contains(&(Some("name"), Some("y"))) && names.contains(&(Some("name"), Some("z"))),
            "{names:?}"
        );
    }

    #[test]
    fn a_few_lines_that_unfold_to_millions_of_nodes_are_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", below.trim_end_matches(", ")));
        }
        assert!(parse(&bomb).is_err());
    }

    #[test]
    fn nesting_without_end_is_refused_however_it_is_written() {
        let flow = |depth: usize| format!("a: {}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&flow(100_000)).is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
        let block =
            |depth: usize| (0..depth).map(|level| format!("{}a:\n", " ".repeat(level))).collect::<String>();
        assert!(parse(&block(1000)).is_err());
        let mut aliases = "a0: &a0 [x]\n".to_owned();
        for level in 1..1000 {
            aliases.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(parse(&aliases).is_err());
        // What other programs may want is read.
        assert!(parse(&flow(MAX_DEPTH - 2)).is_ok());
        assert!(parse(&block(MAX_DEPTH - 2)).is_ok());
    }
}
