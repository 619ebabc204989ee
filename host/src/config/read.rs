//! From the tree to the config: pure. What is ours must have its type; what is another program's is left alone.

use super::yaml::{Node, Value};
use super::{Config, Problem, Remark, RemarkKind};
use std::collections::BTreeMap;
use std::time::Duration;

/// Every key of ours; below `personalities` any name may stand.
pub(super) const KEYS: [&str; 9] = [
    "model.provider",
    "model.name",
    "model.base_url",
    "agent.name",
    "agent.system_prompt",
    "agent.exec.argv",
    "agent.scripted.delta_count",
    "agent.scripted.delay_s",
    "personalities",
];

/// Longest pause of the scripted agent, so that every deadline can be reckoned with.
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// What the tree says.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub config: Config,
    /// Where each key of ours stands.
    pub lines: BTreeMap<String, usize>,
    pub problems: Vec<Problem>,
    pub remarks: Vec<Remark>,
}

/// Reads a document; one that is not there says nothing.
pub(super) fn read(root: Option<&Node>) -> Reading {
    let mut reading = Reading::default();
    if let Some(root) = root {
        reading.root(root);
    }
    reading.problems.sort_by_key(|problem| problem.line);
    reading.remarks.sort_by_key(|remark| remark.line);
    reading
}

impl Reading {
    fn root(&mut self, root: &Node) {
        // The personalities at the top count before those of the agent, wherever they stand in the file.
        for (key, node) in self.section("", root, &["model", "personalities", "agent"]) {
            match key {
                "model" => self.model(node),
                "personalities" => self.personalities(node),
                _ => self.agent(node),
            }
        }
    }

    fn model(&mut self, node: &Node) {
        // A config may name nothing but the model.
        if matches!(node.value, Value::Text(_)) {
            self.config.model.name = self.text("model", node);
            self.place("model.name", node);
            return;
        }
        let mut fallback = None;
        for (key, node) in self.section("model", node, &["provider", "name", "base_url", "default"]) {
            match key {
                "provider" => self.config.model.provider = self.text("model.provider", node),
                "name" => self.config.model.name = self.text("model.name", node),
                "base_url" => self.config.model.base_url = self.text("model.base_url", node),
                // What hermes-agent calls the name.
                _ => fallback = Some(node),
            }
        }
        if let Some(node) = fallback {
            if self.config.model.name.is_some() {
                self.ignore("model.default", node.line, "model.name counts");
            } else if let Some(name) = node.value.as_text().filter(|name| !name.is_empty()) {
                self.config.model.name = Some(name.to_owned());
                self.place("model.name", node);
            } else if !is_empty(&node.value) {
                self.ignore("model.default", node.line, "it is no text");
            }
        }
    }

    fn agent(&mut self, node: &Node) {
        let known = ["name", "system_prompt", "exec", "scripted", "personalities"];
        for (key, node) in self.section("agent", node, &known) {
            match key {
                "name" => self.config.agent.name = self.text("agent.name", node),
                "system_prompt" => self.config.agent.system_prompt = self.text("agent.system_prompt", node),
                "exec" => {
                    for (_, node) in self.section("agent.exec", node, &["argv"]) {
                        self.config.agent.exec_argv = self.argv("agent.exec.argv", node);
                    }
                }
                "scripted" => {
                    for (key, node) in self.section("agent.scripted", node, &["delta_count", "delay_s"]) {
                        if key == "delta_count" {
                            self.config.agent.scripted_delta_count =
                                self.count("agent.scripted.delta_count", node);
                        } else {
                            self.config.agent.scripted_delay = self.seconds("agent.scripted.delay_s", node);
                        }
                    }
                }
                // Where hermes-agent keeps them.
                _ => self.others_personalities(node),
            }
        }
    }

    fn personalities(&mut self, node: &Node) {
        let entries = match &node.value {
            Value::Nothing => return,
            Value::Map(entries) => entries,
            other => {
                return self.wrong("personalities", node, "a section of names, each with its text", other);
            }
        };
        for (name, node) in entries {
            let Some(name) = name.value.as_text().filter(|name| !name.is_empty()) else {
                self.problem("personalities", name.line, "a name must be text; put it in quotes".to_owned());
                continue;
            };
            let key = format!("personalities.{name}");
            if let Some(earlier) = self.lines.get(&key) {
                let earlier = *earlier;
                self.problem(&key, node.line, format!("given twice, first in line {earlier}; remove one"));
            }
            match addition(node) {
                Addition::Text(text) => {
                    self.config.personalities.insert(name.to_owned(), text.to_owned());
                    self.place(&key, node);
                    self.unused_parts(&key, node);
                }
                Addition::Empty => {}
                Addition::Other => {
                    self.wrong(&key, node, "text, or a section with system_prompt", &node.value)
                }
            }
        }
    }

    /// Of another program: taken where they can be, never refused.
    fn others_personalities(&mut self, node: &Node) {
        let Value::Map(entries) = &node.value else {
            if !is_empty(&node.value) {
                self.ignore("agent.personalities", node.line, "it is no section of names");
            }
            return;
        };
        for (name, node) in entries {
            let Some(name) = name.value.as_text().filter(|name| !name.is_empty()) else { continue };
            let key = format!("agent.personalities.{name}");
            match addition(node) {
                Addition::Text(text) if !self.config.personalities.contains_key(name) => {
                    self.config.personalities.insert(name.to_owned(), text.to_owned());
                    self.place(&format!("personalities.{name}"), node);
                    self.unused_parts(&key, node);
                }
                Addition::Text(_) => {
                    self.ignore(&key, node.line, "personalities has one of this name, which counts")
                }
                Addition::Empty => {}
                Addition::Other => {
                    self.ignore(&key, node.line, "it is neither text nor has it a system_prompt")
                }
            }
        }
    }

    fn unused_parts(&mut self, key: &str, node: &Node) {
        let Value::Map(parts) = &node.value else { return };
        for (part, _) in parts {
            let name = part.value.as_text().unwrap_or("?");
            if name != "system_prompt" {
                self.ignore(&format!("{key}.{name}"), part.line, "only system_prompt is");
            }
        }
    }

    /// The entries of a section whose keys are known, in the order of `known`; the others are remarked on.
    fn section<'a>(
        &mut self,
        prefix: &str,
        node: &'a Node,
        known: &[&'static str],
    ) -> Vec<(&'static str, &'a Node)> {
        let entries = match &node.value {
            Value::Nothing => return Vec::new(),
            Value::Map(entries) => entries,
            other if prefix.is_empty() => {
                let message = format!("expected sections, as `model:`; found {}", other.kind());
                self.problems.push(Problem { line: Some(node.line), key: None, message });
                return Vec::new();
            }
            other => {
                self.wrong(prefix, node, &format!("a section with {}", ours_of(known)), other);
                return Vec::new();
            }
        };
        let mut found: Vec<Option<(&'static str, &Node)>> = vec![None; known.len()];
        for (key, node) in entries {
            let name = key.value.as_text();
            let place = known.iter().zip(&mut found).find(|(known, _)| Some(**known) == name);
            match (place, name) {
                (Some((known, place)), _) => match place {
                    None => *place = Some((*known, node)),
                    Some((_, first)) => {
                        let message = format!("given twice, first in line {}; remove one", first.line);
                        self.problem(&joined(prefix, known), key.line, message);
                    }
                },
                (None, Some(name)) => self.stranger(prefix, name, key.line, node),
                (None, None) => {
                    let key_text = joined(prefix, key.value.kind());
                    self.remarks.push(Remark { line: key.line, key: key_text, kind: RemarkKind::Foreign });
                }
            }
        }
        found.into_iter().flatten().collect()
    }

    fn stranger(&mut self, prefix: &str, name: &str, line: usize, node: &Node) {
        let kind = match nearest(prefix, name, node) {
            Some(nearest) => RemarkKind::Mistyped { nearest },
            None => match prefix {
                "agent.exec" => RemarkKind::Ignored { why: "of agent.exec only argv is" },
                "agent.scripted" => {
                    RemarkKind::Ignored { why: "of agent.scripted only delta_count and delay_s are" }
                }
                _ => RemarkKind::Foreign,
            },
        };
        self.remarks.push(Remark { line, key: joined(prefix, name), kind });
    }

    /// Text; empty text says nothing.
    fn text(&mut self, key: &str, node: &Node) -> Option<String> {
        match &node.value {
            Value::Nothing => None,
            Value::Text(text) if text.is_empty() => None,
            Value::Text(text) => {
                self.place(key, node);
                Some(text.clone())
            }
            other @ (Value::Bool(_) | Value::Int(_) | Value::Float(_)) => {
                self.wrong(key, node, "text (put it in quotes)", other);
                None
            }
            other @ (Value::List(_) | Value::Map(_)) => {
                self.wrong(key, node, "text", other);
                None
            }
        }
    }

    fn argv(&mut self, key: &str, node: &Node) -> Vec<String> {
        let items = match &node.value {
            Value::Nothing => return Vec::new(),
            Value::List(items) => items,
            other => {
                self.wrong(key, node, "a list, as [program, argument]", other);
                return Vec::new();
            }
        };
        let mut words = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let key = format!("{key}[{index}]");
            match &item.value {
                Value::Text(word) if word.contains('\0') => {
                    self.problem(&key, item.line, "holds a NUL, which no argument can".to_owned());
                }
                Value::Text(word) if word.is_empty() && index == 0 => {
                    self.problem(&key, item.line, "names no program".to_owned());
                }
                Value::Text(word) => words.push(word.clone()),
                other => self.wrong(&key, item, "text (put it in quotes)", other),
            }
        }
        if words.len() == items.len() {
            self.place(key, node);
            return words;
        }
        Vec::new()
    }

    fn count(&mut self, key: &str, node: &Node) -> Option<u64> {
        let number = match &node.value {
            Value::Nothing => return None,
            // What the frame's own field can carry.
            Value::Int(number) => u64::try_from(*number).ok().filter(|number| i64::try_from(*number).is_ok()),
            Value::Bool(_) | Value::Float(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
        };
        match number {
            Some(_) => self.place(key, node),
            None => self.wrong(key, node, "a whole number from 0", &node.value),
        }
        number
    }

    fn seconds(&mut self, key: &str, node: &Node) -> Option<Duration> {
        let number = match &node.value {
            Value::Nothing => return None,
            // A pause is nowhere near the 2^53 up to which this is exact.
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
        };
        let delay = number.filter(|number| *number >= 0.0);
        let delay = delay.map(|delay| Duration::try_from_secs_f64(delay).unwrap_or(LONGEST_DELAY));
        match delay {
            Some(delay) => {
                self.place(key, node);
                Some(delay.min(LONGEST_DELAY))
            }
            None => {
                self.wrong(key, node, "a number of seconds from 0, as 0.5", &node.value);
                None
            }
        }
    }

    fn place(&mut self, key: &str, node: &Node) {
        self.lines.insert(key.to_owned(), node.line);
    }

    fn wrong(&mut self, key: &str, node: &Node, expected: &str, found: &Value) {
        self.problem(key, node.line, format!("expected {expected}, found {}", found.kind()));
    }

    fn problem(&mut self, key: &str, line: usize, message: String) {
        self.problems.push(Problem { line: Some(line), key: Some(key.to_owned()), message });
    }

    fn ignore(&mut self, key: &str, line: usize, why: &'static str) {
        self.remarks.push(Remark { line, key: key.to_owned(), kind: RemarkKind::Ignored { why } });
    }
}

/// What a personality adds.
enum Addition<'a> {
    Text(&'a str),
    Empty,
    Other,
}

fn addition(node: &Node) -> Addition<'_> {
    match &node.value {
        Value::Text(text) if !text.is_empty() => Addition::Text(text),
        Value::Map(parts) => {
            let part = parts.iter().find(|(key, _)| key.value.as_text() == Some("system_prompt"));
            match part.map(|(_, node)| &node.value) {
                Some(Value::Text(text)) if !text.is_empty() => Addition::Text(text),
                Some(value) if is_empty(value) => Addition::Empty,
                Some(_) | None => Addition::Other,
            }
        }
        value if is_empty(value) => Addition::Empty,
        _ => Addition::Other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Nothing => true,
        Value::Text(text) => text.is_empty(),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => false,
    }
}

fn joined(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// The names of a section for a message, without those that are only understood.
fn ours_of(known: &[&str]) -> String {
    let ours: Vec<&str> =
        known.iter().copied().filter(|name| !matches!(*name, "default" | "personalities")).collect();
    ours.join(", ")
}

/// The key of ours that an unknown one was probably meant to be.
fn nearest(prefix: &str, name: &str, node: &Node) -> Option<String> {
    let full = joined(prefix, name);
    // Dots in the key itself, as other formats write it.
    if let Some(key) = KEYS.iter().find(|key| **key == full) {
        return Some(format!("{key} (one level of indentation for each dot)"));
    }
    let below = if prefix.is_empty() { String::new() } else { format!("{prefix}.") };
    let siblings = KEYS.iter().filter_map(|key| key.strip_prefix(below.as_str()));
    let siblings = siblings.map(|rest| rest.split('.').next().unwrap_or(rest));
    let similar = siblings
        .filter_map(|sibling| Some((distance(name, sibling)?, sibling)))
        .filter(|(_, sibling)| is_shaped_like(&joined(prefix, sibling), node))
        .min_by_key(|(distance, _)| *distance);
    if let Some((_, sibling)) = similar {
        return Some(joined(prefix, sibling));
    }
    // The right name one level too high.
    let deeper =
        |key: &&&str| !prefix.is_empty() && key.starts_with(&below) && key.ends_with(&format!(".{name}"));
    KEYS.iter().find(deeper).map(|key| (*key).to_owned())
}

/// How far a word is from a key, if it is near: letter case and separators do not count, and the longer the key is,
/// the more letters may differ.
fn distance(word: &str, key: &str) -> Option<usize> {
    let plain = |text: &str| -> String {
        text.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let (word, key) = (plain(word), plain(key));
    let bearable = match key.len() {
        0..=3 => 0,
        4..=6 => 1,
        _ => 2,
    };
    // The measure takes time by the product of the lengths.
    if word.len() > key.len() + bearable {
        return None;
    }
    Some(strsim::damerau_levenshtein(&word, &key)).filter(|distance| *distance <= bearable)
}

/// A section is only taken for one of ours if something of ours is in it: `models:` may well be another program's.
fn is_shaped_like(section: &str, node: &Node) -> bool {
    let below = format!("{section}.");
    let names: Vec<&str> = KEYS
        .iter()
        .filter_map(|key| key.strip_prefix(below.as_str()))
        .map(|rest| rest.split('.').next().unwrap_or(rest))
        .collect();
    let entries = match &node.value {
        Value::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    if section == "personalities" {
        return !entries.is_empty()
            && entries.iter().all(|(_, node)| matches!(addition(node), Addition::Text(_)));
    }
    let is_ours = |key: &Node| {
        key.value.as_text().is_some_and(|key| names.iter().any(|name| distance(key, name).is_some()))
    };
    names.is_empty() || entries.iter().any(|(key, _)| is_ours(key))
}

#[cfg(test)]
mod tests;
