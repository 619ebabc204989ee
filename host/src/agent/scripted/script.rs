//! The script language: text to steps, strictly and completely before anything runs.

use crate::turn::context::Question;
use nix::sys::signal::Signal;
use serde::Deserialize;
use std::time::Duration;
use turnhost_protocol::RawJson;

/// Largest delta or raw text that one step can make: a few times the largest frame limit, so that a test can go over it.
const MAX_STEP_BYTES: u64 = 64 * 1024 * 1024;
/// How long a question stands if the step does not say.
const DEFAULT_ASK_TIMEOUT_MS: u64 = 5 * 60 * 1000;
/// Fields that the host itself writes into an `event` frame; a second one would make the frame ambiguous.
const HEADER_FIELDS: [&str; 5] = ["type", "sid", "request_id", "seq", "host_ns"];
/// Every step, by the field that names it.
const STEPS: [&str; 16] = [
    "delta",
    "deltas",
    "sleep_ms",
    "event",
    "ask",
    "stdout",
    "stderr",
    "raw_frame",
    "error",
    "panic",
    "exit",
    "signal",
    "hang",
    "spin_ms",
    "alloc_mb",
    "spawn",
];

/// A checked script: the steps of one turn, in order. `docs/scripted.md` has the language.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    pub(super) steps: Vec<Step>,
}

impl Script {
    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// True for a script that does nothing and ends the turn at once.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Delta(String),
    Deltas { count: u64, bytes: usize, delay: Duration },
    Sleep(Duration),
    Event(RawJson),
    Ask(Question),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    RawFrame(Vec<u8>),
    Error(String),
    Panic(String),
    Exit(i32),
    Signal(Signal),
    Hang,
    Spin(Duration),
    Alloc { mebibytes: usize },
    Spawn { argv: Vec<String>, detach: bool },
}

/// Why a text is no script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("script{}{}: {problem}", at(" step ", .step), at(", field ", .field))]
pub struct ScriptError {
    /// The step, counted from 1; `None` if the text as a whole is no list of steps.
    pub step: Option<usize>,
    /// The field of the step, nested ones with a dot.
    pub field: Option<String>,
    /// A lowercase fragment: what is wrong and what would be right.
    pub problem: String,
}

fn at(what: &str, place: &Option<impl ToString>) -> String {
    place.as_ref().map(|place| format!("{what}{}", place.to_string())).unwrap_or_default()
}

impl ScriptError {
    fn whole(problem: impl Into<String>) -> Self {
        Self { step: None, field: None, problem: problem.into() }
    }

    fn of_step(step: usize, problem: impl Into<String>) -> Self {
        Self { step: Some(step), field: None, problem: problem.into() }
    }

    fn of_field(step: usize, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { step: Some(step), field: Some(field.into()), problem: problem.into() }
    }
}

/// Reads a script: a JSON list of steps, or one step per line (blank lines and lines that begin with `#` do not
/// count). `docs/scripted.md` has the language.
///
/// # Errors
/// [`ScriptError`] for the first thing that is no known step, or a known one with a wrong, unknown or missing field.
///
/// # Example
/// ```
/// use turnhost_host::agent::scripted::parse_script;
///
/// let list = parse_script(r#"[{"delta":"a"},{"exit":3}]"#)?;
/// let lines = parse_script("{\"delta\":\"a\"}\n\n# then it dies\n{\"exit\":3}\n")?;
/// assert_eq!(list, lines);
///
/// let error = parse_script(r#"[{"delta":"a"},{"sleep_ms":"long"}]"#).unwrap_err();
/// assert_eq!((error.step, error.field.as_deref()), (Some(2), Some("sleep_ms")));
/// # Ok::<(), turnhost_host::agent::scripted::ScriptError>(())
/// ```
pub fn parse_script(text: &str) -> Result<Script, ScriptError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('[') {
        let raw = RawJson::parse(text)
            .map_err(|error| ScriptError::whole(format!("not a JSON list of steps: {error}")))?;
        return read_script(&raw);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut steps = Vec::new();
    for (index, line) in lines.enumerate() {
        let raw = RawJson::parse(line).map_err(|error| {
            ScriptError::of_step(
                index + 1,
                format!("not a JSON object on one line: {}", without_place(&error)),
            )
        })?;
        steps.push(read_step(index + 1, &raw)?);
    }
    Ok(Script { steps })
}

/// Reads the `script` field of a `turn.start` frame.
pub(super) fn read_script(raw: &RawJson) -> Result<Script, ScriptError> {
    let list: Vec<RawJson> = raw
        .read()
        .map_err(|error| ScriptError::whole(format!("not a list of steps: {}", without_place(&error))))?;
    let steps = list.iter().enumerate().map(|(index, raw)| read_step(index + 1, raw));
    Ok(Script { steps: steps.collect::<Result<_, _>>()? })
}

fn read_step(step: usize, raw: &RawJson) -> Result<Step, ScriptError> {
    let mut fields = Fields::read(step, "", raw)?;
    let mut kinds = STEPS.iter().copied().filter(|kind| fields.has(kind));
    let kind = match (kinds.next(), kinds.next()) {
        (Some(kind), None) => kind,
        (Some(one), Some(other)) => {
            return Err(ScriptError::of_step(
                step,
                format!("`{one}` and `{other}` are two steps; give each its own object"),
            ));
        }
        (None, _) => {
            let found = fields.names();
            let known = STEPS.join(", ");
            return Err(ScriptError::of_step(step, format!("unknown step {found}; known are {known}")));
        }
    };
    let parsed = match kind {
        "delta" => Step::Delta(fields.required(kind)?),
        "deltas" => Step::Deltas {
            count: fields.required(kind)?,
            bytes: fields.size("bytes")?.unwrap_or(16),
            delay: Duration::from_millis(fields.optional("delay_ms")?.unwrap_or(0)),
        },
        "sleep_ms" => Step::Sleep(Duration::from_millis(fields.required(kind)?)),
        "event" => Step::Event(read_event(step, &fields.required(kind)?)?),
        "ask" => Step::Ask(read_ask(step, &fields.required(kind)?)?),
        "stdout" => Step::Stdout(unescape(&fields.required::<String>(kind)?)),
        "stderr" => Step::Stderr(unescape(&fields.required::<String>(kind)?)),
        "raw_frame" => Step::RawFrame(unescape(&fields.required::<String>(kind)?)),
        "error" => Step::Error(fields.required(kind)?),
        "panic" => Step::Panic(fields.required(kind)?),
        "exit" => Step::Exit(i32::from(fields.required::<u8>(kind)?)),
        "signal" => Step::Signal(read_signal(step, &fields.required::<String>(kind)?)?),
        "hang" if fields.required::<bool>(kind)? => Step::Hang,
        "hang" => return Err(ScriptError::of_field(step, kind, "only true is a step")),
        "spin_ms" => Step::Spin(Duration::from_millis(fields.required(kind)?)),
        "alloc_mb" => Step::Alloc { mebibytes: fields.required::<u32>(kind)? as usize },
        "spawn" => Step::Spawn {
            argv: read_argv(step, fields.required(kind)?)?,
            detach: fields.optional("detach")?.unwrap_or(false),
        },
        other => return Err(ScriptError::of_step(step, format!("unknown step `{other}`"))),
    };
    fields.finish(kind)?;
    Ok(parsed)
}

fn read_event(step: usize, raw: &RawJson) -> Result<RawJson, ScriptError> {
    let mut fields = Fields::read(step, "event.", raw)?;
    if fields.required::<String>("kind")?.is_empty() {
        return Err(ScriptError::of_field(
            step,
            "event.kind",
            "empty; give the kind of the event, such as \"status\"",
        ));
    }
    if let Some(name) = HEADER_FIELDS.into_iter().find(|name| fields.has(name)) {
        let problem = "written by the host itself; leave it out";
        return Err(ScriptError::of_field(step, format!("event.{name}"), problem));
    }
    // A frame is one line. In JSON a raw line break can only stand between tokens, where a space is as good.
    let one_line = raw.as_str().replace(['\n', '\r'], " ");
    RawJson::parse(one_line).map_err(|error| ScriptError::of_field(step, "event", without_place(&error)))
}

fn read_ask(step: usize, raw: &RawJson) -> Result<Question, ScriptError> {
    let mut fields = Fields::read(step, "ask.", raw)?;
    let question = Question {
        command: fields.required("command")?,
        description: fields.optional("description")?.unwrap_or_default(),
        choices: fields.optional("choices")?.unwrap_or_default(),
        allow_permanent: fields.optional("allow_permanent")?.unwrap_or(false),
        timeout_ms: fields.optional("timeout_ms")?.unwrap_or(DEFAULT_ASK_TIMEOUT_MS),
    };
    fields.finish("ask")?;
    Ok(question)
}

fn read_argv(step: usize, argv: Vec<String>) -> Result<Vec<String>, ScriptError> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(ScriptError::of_field(
            step,
            "spawn",
            "names no program; give [\"program\",\"argument\",…]",
        ));
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Err(ScriptError::of_field(step, "spawn", "holds a NUL, which no argument can"));
    }
    Ok(argv)
}

fn read_signal(step: usize, name: &str) -> Result<Signal, ScriptError> {
    let full = if name.starts_with("SIG") { name.to_owned() } else { format!("SIG{name}") };
    full.parse().map_err(|_| {
        ScriptError::of_field(
            step,
            "signal",
            format!("no signal is called {name:?}; give a name such as \"SEGV\""),
        )
    })
}

/// Replaces `\xNN` (two hexadecimal digits) by that byte; any other backslash stands for itself.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.strip_prefix(b"x").and_then(|after| after.split_at_checked(2)).and_then(
            |(digits, after)| {
                let [high, low] = digits else { return None };
                Some(((hex(*high)? << 4) | hex(*low)?, after))
            },
        );
        let (byte, after) = escaped.filter(|_| *first == b'\\').unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// The message of a JSON error without its position, which is that of the field's own text and would mislead.
fn without_place(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.rfind(" at line ").unwrap_or(text.len()));
    text
}

/// The fields of one object, taken out one by one, so that what is left over is known to be unknown.
struct Fields {
    step: usize,
    path: &'static str,
    fields: Vec<(String, RawJson)>,
}

impl Fields {
    fn read(step: usize, path: &'static str, raw: &RawJson) -> Result<Self, ScriptError> {
        let Pairs(fields) = raw.read().map_err(|error| {
            let problem = format!("not an object: {}", without_place(&error));
            match path.strip_suffix('.') {
                Some(field) => ScriptError::of_field(step, field, problem),
                None => {
                    ScriptError::of_step(step, format!("{problem}; a step is such as {{\"delta\":\"text\"}}"))
                }
            }
        })?;
        for (index, (name, _)) in fields.iter().enumerate() {
            if fields.iter().skip(index + 1).any(|(other, _)| other == name) {
                return Err(ScriptError::of_field(step, format!("{path}{name}"), "given twice"));
            }
        }
        Ok(Self { step, path, fields })
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| known == name)
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.fields.iter().map(|(name, _)| format!("`{name}`")).collect();
        if names.is_empty() { "{}".to_owned() } else { names.join(", ") }
    }

    fn optional<T: for<'de> Deserialize<'de>>(&mut self, name: &str) -> Result<Option<T>, ScriptError> {
        let Some(index) = self.fields.iter().position(|(known, _)| known == name) else { return Ok(None) };
        let (_, value) = self.fields.swap_remove(index);
        value.read().map(Some).map_err(|error| self.wrong(name, without_place(&error)))
    }

    fn required<T: for<'de> Deserialize<'de>>(&mut self, name: &str) -> Result<T, ScriptError> {
        self.optional(name)?.ok_or_else(|| self.wrong(name, "missing"))
    }

    fn size(&mut self, name: &str) -> Result<Option<usize>, ScriptError> {
        match self.optional::<u64>(name)? {
            Some(bytes) if bytes > MAX_STEP_BYTES => {
                Err(self.wrong(name, format!("{bytes} is over the limit of {MAX_STEP_BYTES}")))
            }
            bytes => Ok(bytes.and_then(|bytes| usize::try_from(bytes).ok())),
        }
    }

    fn finish(self, of: &str) -> Result<(), ScriptError> {
        match self.fields.first() {
            Some((name, _)) => Err(self.wrong(name, format!("not a field of `{of}`"))),
            None => Ok(()),
        }
    }

    fn wrong(&self, name: &str, problem: impl Into<String>) -> ScriptError {
        ScriptError::of_field(self.step, format!("{}{name}", self.path), problem)
    }
}

/// An object's fields in order, duplicates kept.
struct Pairs(Vec<(String, RawJson)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests;
