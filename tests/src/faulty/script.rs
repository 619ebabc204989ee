//! What a script is: its steps, and the strict reading of them. Every error names the step and the field.

use crate::template::Template;
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};

/// One step. `docs/harness.md` says what each does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Writes a hello; `None` takes a field out of it.
    Hello(BTreeMap<String, Option<String>>),
    /// Writes bytes.
    Write(Template),
    /// Writes a line.
    Frame(Template),
    /// Waits.
    SleepMs(u64),
    /// Takes so many lines from stdin.
    Read(u64),
    /// Takes lines from stdin until one of this type.
    Expect { frame_type: String, bind: Option<String> },
    /// Behaves well until the end of stdin.
    Serve,
    /// Writes heartbeats from now on.
    HeartbeatMs(u64),
    /// Exits.
    Exit(u8),
    /// Sends itself a signal.
    Signal(Signal),
    /// Writes to stderr.
    Stderr(StderrStep),
    /// Writes many frames.
    Flood(FloodStep),
    /// A grandchild that holds stdin, stdout and stderr.
    HoldPipes(GrandchildStep),
    /// A grandchild in a session of its own that ignores TERM.
    SetsidChild(GrandchildStep),
    /// Ignores signals.
    Ignore(Vec<Signal>),
    /// Reads no byte of stdin from now on.
    StopReading,
    /// Closes a standard stream.
    Close(Stream),
    /// Plays steps again and again.
    Repeat { times: u64, steps: Vec<Numbered> },
}

/// `stderr`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StderrStep {
    /// Bytes of `x`.
    pub(crate) bytes: u64,
    /// Whether a newline follows them.
    #[serde(default = "yes")]
    pub(crate) newline: bool,
}

/// `flood`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FloodStep {
    /// How many frames.
    pub(crate) frames: u64,
    /// Bytes of text in each.
    pub(crate) bytes: u64,
}

/// `hold_pipes` and `setsid_child`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrandchildStep {
    /// How long it lives.
    pub(crate) seconds: u64,
    /// The name that its pid is bound to.
    #[serde(default)]
    pub(crate) bind: Option<String>,
}

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

/// A step and where it stands in the script: `3`, or `4.2` for the second step inside the repeat that is step 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: String,
    pub(crate) step: Step,
}

/// A script that is not one: which step, which field, and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScriptError {
    step: String,
    field: Option<String>,
    detail: String,
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.field {
            Some(field) => write!(f, "step {}, field `{field}`: {}", self.step, self.detail),
            None => write!(f, "step {}: {}", self.step, self.detail),
        }
    }
}

impl std::error::Error for ScriptError {}

/// A grandchild lives no longer than this, so that a lost one ends by itself.
const MAX_GRANDCHILD_SECONDS: u64 = 3600;
const STEPS: &str = "hello, write, frame, sleep_ms, read, expect, serve, heartbeat_ms, exit, signal, stderr, flood, \
                     hold_pipes, setsid_child, ignore, stop_reading, close, repeat";

fn yes() -> bool {
    true
}

/// Reads a script file: a JSON list, or one step per line; blank lines and lines that begin with `#` are skipped.
pub(crate) fn parse_file(text: &str) -> Result<Vec<Numbered>, ScriptError> {
    if text.trim_start().starts_with('[') {
        let list: Vec<Box<RawValue>> = serde_json::from_str(text)
            .map_err(|error| at("1", None, format!("the list is no JSON: {error}")))?;
        return parse_steps(list.iter().map(|raw| raw.get()));
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    parse_steps(lines)
}

/// Reads steps, each a JSON object.
pub(crate) fn parse_steps<'a>(
    steps: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Numbered>, ScriptError> {
    let mut known = BTreeSet::new();
    steps
        .into_iter()
        .enumerate()
        .map(|(index, text)| parse_step(text, &(index + 1).to_string(), &mut known))
        .collect()
}

fn parse_step(text: &str, number: &str, known: &mut BTreeSet<String>) -> Result<Numbered, ScriptError> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text)
        .map_err(|error| at(number, None, format!("not a JSON object with one step in it: {error}")))?;
    let mut bind = None;
    let mut action = None;
    for (name, raw) in &fields {
        if name == "bind" && fields.contains_key("expect") {
            bind = Some(name_to_bind(&read::<String>(number, name, raw)?, number)?);
        } else if action.replace((name.as_str(), raw.get())).is_some() {
            let names = fields.keys().map(String::as_str).collect::<Vec<_>>().join("`, `");
            return Err(at(number, None, format!("one step at a time, but there are `{names}`")));
        }
    }
    let Some((name, raw)) = action else {
        return Err(at(number, None, format!("an empty object is no step; the steps are {STEPS}")));
    };
    let step = parse_action(name, raw, bind, number, known)?;
    Ok(Numbered { number: number.to_owned(), step })
}

fn parse_action(
    name: &str,
    raw: &str,
    bind: Option<String>,
    number: &str,
    known: &mut BTreeSet<String>,
) -> Result<Step, ScriptError> {
    let wrong = |detail: String| at(number, Some(name), detail);
    let step = match name {
        "hello" => {
            let overrides: BTreeMap<String, &RawValue> = read_str(number, name, raw)?;
            let shown = |value: &RawValue| (value.get() != "null").then(|| value.get().to_owned());
            Step::Hello(overrides.into_iter().map(|(field, value)| (field, shown(value))).collect())
        }
        "write" => {
            let text: String = read_str(number, name, raw)?;
            Step::Write(checked(Template::of_bytes(&text), number, name, known)?)
        }
        "frame" => {
            read_str::<BTreeMap<String, &RawValue>>(number, name, raw)?;
            Step::Frame(checked(Template::of_frame(raw), number, name, known)?)
        }
        "sleep_ms" => Step::SleepMs(read_str(number, name, raw)?),
        "read" => Step::Read(read_str(number, name, raw)?),
        "expect" => {
            known.extend(bind.clone());
            Step::Expect { frame_type: read_str(number, name, raw)?, bind }
        }
        "serve" => only_true(number, name, raw, Step::Serve)?,
        "heartbeat_ms" => match read_str(number, name, raw)? {
            0 => return Err(wrong("must be at least 1".to_owned())),
            period => Step::HeartbeatMs(period),
        },
        "exit" => Step::Exit(read_str(number, name, raw)?),
        "signal" => Step::Signal(signal(&read_str::<String>(number, name, raw)?, number, name)?),
        "stderr" => Step::Stderr(read_str(number, name, raw)?),
        "flood" => Step::Flood(read_str(number, name, raw)?),
        "hold_pipes" => Step::HoldPipes(grandchild(number, name, raw, known)?),
        "setsid_child" => Step::SetsidChild(grandchild(number, name, raw, known)?),
        "ignore" => {
            let names: Vec<String> = read_str(number, name, raw)?;
            let signals: Result<Vec<_>, _> = names.iter().map(|word| signal(word, number, name)).collect();
            let signals = signals?;
            if let Some(fixed) = signals.iter().find(|one| matches!(one, Signal::SIGKILL | Signal::SIGSTOP)) {
                return Err(wrong(format!("the kernel lets nobody ignore {fixed}")));
            }
            Step::Ignore(signals)
        }
        "stop_reading" => only_true(number, name, raw, Step::StopReading)?,
        "close" => Step::Close(read_str(number, name, raw)?),
        "repeat" => repeat(number, name, raw, known)?,
        other => {
            return Err(at(number, Some(other), format!("there is no such step; the steps are {STEPS}")));
        }
    };
    Ok(step)
}

fn repeat(number: &str, name: &str, raw: &str, known: &mut BTreeSet<String>) -> Result<Step, ScriptError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Repeat<'a> {
        times: u64,
        #[serde(borrow)]
        steps: Vec<&'a RawValue>,
    }
    let Repeat { times, steps } = read_str(number, name, raw)?;
    let steps: Result<Vec<_>, _> = steps
        .iter()
        .enumerate()
        .map(|(index, raw)| parse_step(raw.get(), &format!("{number}.{}", index + 1), known))
        .collect();
    Ok(Step::Repeat { times, steps: steps? })
}

fn grandchild(
    number: &str,
    name: &str,
    raw: &str,
    known: &mut BTreeSet<String>,
) -> Result<GrandchildStep, ScriptError> {
    let step: GrandchildStep = read_str(number, name, raw)?;
    if step.seconds > MAX_GRANDCHILD_SECONDS {
        let detail = format!("seconds: at most {MAX_GRANDCHILD_SECONDS}, so that a lost one ends by itself");
        return Err(at(number, Some(name), detail));
    }
    if let Some(bind) = &step.bind {
        known.insert(name_to_bind(bind, number)?);
    }
    Ok(step)
}

fn name_to_bind(name: &str, number: &str) -> Result<String, ScriptError> {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(name.to_owned());
    }
    Err(at(number, Some("bind"), format!("`{name}` is no name: letters, digits and `_`, no digit first")))
}

fn checked(
    template: Result<Template, String>,
    number: &str,
    name: &str,
    known: &BTreeSet<String>,
) -> Result<Template, ScriptError> {
    let template = template.map_err(|detail| at(number, Some(name), detail))?;
    match template.unknown(known) {
        None => Ok(template),
        Some(hole) => Err(at(number, Some(name), format!("`{hole}`: no earlier step binds that name"))),
    }
}

fn signal(word: &str, number: &str, name: &str) -> Result<Signal, ScriptError> {
    let long = if word.starts_with("SIG") { word.to_owned() } else { format!("SIG{word}") };
    long.parse().map_err(|_| at(number, Some(name), format!("`{word}` is no signal, as KILL or SIGTERM are")))
}

fn only_true(number: &str, name: &str, raw: &str, step: Step) -> Result<Step, ScriptError> {
    match read_str(number, name, raw)? {
        true => Ok(step),
        false => Err(at(number, Some(name), "must be true; leave the step out otherwise".to_owned())),
    }
}

fn read<'a, T: Deserialize<'a>>(number: &str, field: &str, raw: &'a RawValue) -> Result<T, ScriptError> {
    read_str(number, field, raw.get())
}

fn read_str<'a, T: Deserialize<'a>>(number: &str, field: &str, raw: &'a str) -> Result<T, ScriptError> {
    serde_json::from_str(raw).map_err(|error| {
        // The place counts from the start of this value, which nobody sees: the step and the field are enough.
        let text = error.to_string();
        let detail = text.split(" at line ").next().unwrap_or(&text).to_owned();
        at(number, Some(field), detail)
    })
}

fn at(number: &str, field: Option<&str>, detail: String) -> ScriptError {
    ScriptError { step: number.to_owned(), field: field.map(str::to_owned), detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn refused(steps: &[&str]) -> String {
        parse_steps(steps.iter().copied()).unwrap_err().to_string()
    }

    fn accepted(step: &str) -> Step {
        parse_steps([step]).unwrap().remove(0).step
    }

    #[test]
    fn every_step_is_read_as_what_it_is() {
        let cases: &[(&str, Step)] = &[
            (
                r#"{"hello":{"boot_id":"b","cwd":null}}"#,
                Step::Hello(BTreeMap::from([
                    ("boot_id".to_owned(), Some("\"b\"".to_owned())),
                    ("cwd".to_owned(), None),
                ])),
            ),
            (r#"{"write":"a\\x00"}"#, Step::Write(Template::of_bytes("a\\x00").unwrap())),
            (r#"{"frame":{"type":"hb"}}"#, Step::Frame(Template::of_frame(r#"{"type":"hb"}"#).unwrap())),
            (r#"{"sleep_ms":5}"#, Step::SleepMs(5)),
            (r#"{"read":2}"#, Step::Read(2)),
            (
                r#"{"expect":"turn.start","bind":"t"}"#,
                Step::Expect { frame_type: "turn.start".to_owned(), bind: Some("t".to_owned()) },
            ),
            (r#"{"serve":true}"#, Step::Serve),
            (r#"{"heartbeat_ms":50}"#, Step::HeartbeatMs(50)),
            (r#"{"exit":137}"#, Step::Exit(137)),
            (r#"{"signal":"KILL"}"#, Step::Signal(Signal::SIGKILL)),
            (r#"{"signal":"SIGSEGV"}"#, Step::Signal(Signal::SIGSEGV)),
            (r#"{"stderr":{"bytes":9}}"#, Step::Stderr(StderrStep { bytes: 9, newline: true })),
            (
                r#"{"stderr":{"bytes":9,"newline":false}}"#,
                Step::Stderr(StderrStep { bytes: 9, newline: false }),
            ),
            (r#"{"flood":{"frames":3,"bytes":4}}"#, Step::Flood(FloodStep { frames: 3, bytes: 4 })),
            (r#"{"hold_pipes":{"seconds":1}}"#, Step::HoldPipes(GrandchildStep { seconds: 1, bind: None })),
            (
                r#"{"setsid_child":{"seconds":1,"bind":"g"}}"#,
                Step::SetsidChild(GrandchildStep { seconds: 1, bind: Some("g".to_owned()) }),
            ),
            (r#"{"ignore":["TERM","SIGHUP"]}"#, Step::Ignore(vec![Signal::SIGTERM, Signal::SIGHUP])),
            (r#"{"stop_reading":true}"#, Step::StopReading),
            (r#"{"close":"stderr"}"#, Step::Close(Stream::Stderr)),
            (
                r#"{"repeat":{"times":2,"steps":[{"read":1}]}}"#,
                Step::Repeat {
                    times: 2,
                    steps: vec![Numbered { number: "1.1".to_owned(), step: Step::Read(1) }],
                },
            ),
        ];
        for (text, step) in cases {
            assert_eq!(accepted(text), *step, "{text}");
        }
    }

    #[test]
    fn a_refusal_names_the_step_and_the_field() {
        let cases: &[(&[&str], &str)] = &[
            (&[r#"{"serve":true}"#, r#"{"slep_ms":1}"#], "step 2, field `slep_ms`: there is no such step"),
            (&[r#"{"sleep_ms":"1"}"#], "step 1, field `sleep_ms`: invalid type: string \"1\", expected u64"),
            (&[r#"{"sleep_ms":-1}"#], "step 1, field `sleep_ms`: invalid value: integer `-1`, expected u64"),
            (&[r#"{"exit":256}"#], "step 1, field `exit`: invalid value: integer `256`, expected u8"),
            (&[r#"{"signal":"NOPE"}"#], "step 1, field `signal`: `NOPE` is no signal"),
            (&[r#"{"ignore":["KILL"]}"#], "step 1, field `ignore`: the kernel lets nobody ignore SIGKILL"),
            (&[r#"{"stderr":{"byte":1}}"#], "step 1, field `stderr`: unknown field `byte`"),
            (&[r#"{"flood":{"frames":1}}"#], "step 1, field `flood`: missing field `bytes`"),
            (&[r#"{"hold_pipes":{"seconds":3601}}"#], "step 1, field `hold_pipes`: seconds: at most 3600"),
            (&[r#"{"serve":false}"#], "step 1, field `serve`: must be true"),
            (&[r#"{"heartbeat_ms":0}"#], "step 1, field `heartbeat_ms`: must be at least 1"),
            (&[r#"{"close":"fd3"}"#], "step 1, field `close`: unknown variant `fd3`"),
            (&[r#"{"frame":"hb"}"#], "step 1, field `frame`: invalid type: string"),
            (&[r#"{"read":1,"exit":0}"#], "step 1: one step at a time, but there are `exit`, `read`"),
            (&[r#"{"read":1,"bind":"t"}"#], "step 1: one step at a time, but there are `bind`, `read`"),
            (&[r#"{"expect":"x","bind":"1a"}"#], "step 1, field `bind`: `1a` is no name"),
            (&["{}"], "step 1: an empty object is no step"),
            (&["[]"], "step 1: not a JSON object"),
            (
                &[r#"{"repeat":{"times":1,"steps":[{"read":1},{"wat":1}]}}"#],
                "step 1.2, field `wat`: there is no such step",
            ),
            (&[r#"{"write":"$t.sid"}"#], "step 1, field `write`: `$t.sid`: no earlier step binds that name"),
        ];
        for (steps, start) in cases {
            let message = refused(steps);
            assert!(message.starts_with(start), "{steps:?}\n got {message}\nwant {start}");
        }
    }

    #[test]
    fn a_name_can_be_used_after_the_step_that_binds_it_even_inside_a_repeat() {
        let steps = [
            r#"{"repeat":{"times":2,"steps":[{"expect":"turn.start","bind":"t"},{"frame":{"type":"turn.end","request_id":"$t.request_id"}}]}}"#,
            r#"{"write":"$t.sid"}"#,
        ];
        assert!(parse_steps(steps).is_ok());
    }

    #[test]
    fn a_file_is_a_list_or_one_step_per_line() {
        let list = "[\n {\"read\": 1},\n {\"exit\": 3}\n]";
        let lines = "# a comment\n{\"read\":1}\n\n  {\"exit\":3}\n";
        let expected: Vec<Step> = vec![Step::Read(1), Step::Exit(3)];
        for text in [list, lines] {
            let steps: Vec<Step> = parse_file(text).unwrap().into_iter().map(|one| one.step).collect();
            assert_eq!(steps, expected, "{text}");
        }
        assert!(parse_file("[{\"read\":1}").unwrap_err().to_string().contains("the list is no JSON"));
    }
}
