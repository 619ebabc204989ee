//! A line of stdin to an operation: pure.
//!
//! The frame of a `submit_turn`, `seed`, `control`, `reload_mcp` or `respond` is the line without `id`, `op` and the
//! fields that are the operation's own. It is checked against the frame's type and kept as its text, so that fields
//! this program does not know reach the host.

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::time::Duration;
use turnhost_protocol::frame::{Control, ReloadMcp, Respond, SessionSeed, TurnStart};
use turnhost_protocol::scan::{ScanError, scan};
use turnhost_protocol::{RawJson, RequestId, Route, SessionId};

/// How long `control`, `reload_mcp` and `respond` wait for their ack.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for the routes that compress: a host lets a model write for 120 s, and 15 s more may pass until it answers.
const COMPRESS_TIMEOUT: Duration = Duration::from_secs(150);
/// How long `shutdown` may take in all.
pub(crate) const DEFAULT_BUDGET: Duration = Duration::from_secs(25);

/// What names an operation in its answer: a JSON string or number, given back as it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpId(pub RawJson);

/// A line that is no operation.
#[derive(Debug, PartialEq)]
pub(crate) struct BadLine {
    /// The id, if the line had a usable one.
    pub id: Option<OpId>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// What is asked.
#[derive(Debug, PartialEq)]
pub(crate) enum Op {
    Start,
    Status,
    Seed(Frame<SessionSeed>),
    SubmitTurn(Frame<TurnStart>),
    Interrupt { sid: SessionId, turn_id: Option<RequestId> },
    Control { frame: Frame<Control>, timeout: Duration },
    ReloadMcp { frame: Frame<ReloadMcp>, timeout: Duration },
    Respond { frame: Frame<Respond>, timeout: Duration },
    Reset,
    Restart { drain: Duration },
    Shutdown { drain: Duration, budget: Duration },
}

/// A frame as its struct, and as its text with the fields that the struct does not know.
#[derive(Debug, PartialEq)]
pub(crate) struct Frame<T> {
    pub known: T,
    pub text: RawJson,
}

fn default_timeout(route: Option<Route>) -> Duration {
    match route {
        Some(Route::SessionCompress | Route::SlashCompress) => COMPRESS_TIMEOUT,
        Some(
            Route::PromptSubmit
            | Route::SessionInterrupt
            | Route::ReloadMcp
            | Route::SessionSave
            | Route::PromptSubmitTruncate
            | Route::SlashModel
            | Route::SlashPersonality
            | Route::SlashPrompt
            | Route::SessionReset
            | Route::SessionHistoryReload
            | Route::SlashRetry,
        )
        | None => DEFAULT_TIMEOUT,
    }
}

/// Reads one line.
///
/// # Errors
/// [`BadLine`], to be answered with kind `usage`.
pub(crate) fn parse(line: &[u8]) -> Result<(OpId, Op), BadLine> {
    // Whoever sent it waits for an answer with this id, as after a `NaN` that a JSON writer let through.
    let broken = |message: String| BadLine { id: id_in_part(line), message };
    let scanned = scan(line).map_err(|error| {
        broken(match error {
            ScanError::Depth => "nested deeper than 128 levels".to_owned(),
            ScanError::ControlCharacter => {
                "a raw control character inside a string: write it as \\u00XX".to_owned()
            }
        })
    })?;
    let mut fields = Fields::parse(&scanned.text).map_err(broken)?;
    let id = fields.take_id().map_err(|message| BadLine { id: None, message })?;
    match fields.into_op() {
        Ok(op) => Ok((id, op)),
        Err(message) => Err(BadLine { id: Some(id), message }),
    }
}

/// The fields of a line, in their order.
struct Fields(Vec<(String, Box<RawValue>)>);

/// The id of an operation of which only the beginning is there, or is right.
pub(crate) fn id_in_part(head: &[u8]) -> Option<OpId> {
    let mut fields = Fields(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(head);
    // The cut end is an error; what was read before it counts.
    let _ = reader.deserialize_map(Collect(&mut fields));
    fields.take_id().ok()
}

impl Fields {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.trim_start().starts_with('{') {
            let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
            return Err(if is_json {
                "expected one JSON object per line, as {\"id\":\"1\",\"op\":\"status\"}".to_owned()
            } else {
                "no JSON: expected one object per line, as {\"id\":\"1\",\"op\":\"status\"}".to_owned()
            });
        }
        serde_json::from_str::<Fields>(text).map_err(|error| format!("invalid JSON: {error}"))
    }

    fn take(&mut self, name: &str) -> Option<Box<RawValue>> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// The field as `T`, `None` if it is absent or null.
    fn take_as<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, String> {
        match self.take(name) {
            Some(raw) => {
                serde_json::from_str::<Option<T>>(raw.get()).map_err(|error| field_error(name, &error))
            }
            None => Ok(None),
        }
    }

    fn take_ms(&mut self, name: &str, default: Duration) -> Result<Duration, String> {
        let ms = self.take_as::<u64>(name)?;
        Ok(ms.map_or(default, Duration::from_millis))
    }

    fn take_id(&mut self) -> Result<OpId, String> {
        let raw = self.take("id").ok_or("`id` is missing: a string that names the answer")?;
        match raw.get().as_bytes().first() {
            Some(b'"' | b'-' | b'0'..=b'9') => {}
            Some(_) | None => return Err("`id`: expected a string".to_owned()),
        }
        RawJson::parse(raw.get()).map(OpId).map_err(|error| field_error("id", &error))
    }

    fn into_op(mut self) -> Result<Op, String> {
        let name: String = self.take_as("op")?.ok_or_else(|| format!("`op` is missing: one of {NAMES}"))?;
        Ok(match name.as_str() {
            "start" => Op::Start,
            "status" => Op::Status,
            "seed" => {
                let frame: Frame<SessionSeed> = self.into_frame()?;
                require_sid(frame.known.sid.as_ref())?;
                Op::Seed(frame)
            }
            "submit_turn" => {
                let frame: Frame<TurnStart> = self.into_frame()?;
                require_sid(frame.known.sid.as_ref())?;
                Op::SubmitTurn(frame)
            }
            "interrupt" => {
                let sid: Option<SessionId> = self.take_as("sid")?;
                require_sid(sid.as_ref())?;
                Op::Interrupt { sid: sid.unwrap_or_default(), turn_id: self.take_as("turn_id")? }
            }
            "control" => {
                let timeout = self.take_as::<u64>("timeout_ms")?.map(Duration::from_millis);
                let frame: Frame<Control> = self.into_frame()?;
                require_sid(frame.known.sid.as_ref())?;
                if frame.known.route_name.is_none() {
                    return Err(
                        "`route_name` is missing: a route of docs/protocol.md, as session.reset".to_owned()
                    );
                }
                let route = frame.known.route_name.as_deref().and_then(Route::from_name);
                Op::Control { timeout: timeout.unwrap_or_else(|| default_timeout(route)), frame }
            }
            "reload_mcp" => {
                let timeout = self.take_ms("timeout_ms", DEFAULT_TIMEOUT)?;
                Op::ReloadMcp { frame: self.into_frame()?, timeout }
            }
            "respond" => {
                let timeout = self.take_ms("timeout_ms", DEFAULT_TIMEOUT)?;
                Op::Respond { frame: self.into_frame()?, timeout }
            }
            "reset" => Op::Reset,
            "restart" => Op::Restart { drain: self.take_ms("drain_ms", Duration::ZERO)? },
            "shutdown" => Op::Shutdown {
                drain: self.take_ms("drain_ms", Duration::ZERO)?,
                budget: self.take_ms("budget_ms", DEFAULT_BUDGET)?,
            },
            other => return Err(format!("unknown op {other:?}: one of {NAMES}")),
        })
    }

    /// What is left, as a frame. `type` is the frame's own word and not the caller's.
    fn into_frame<T: DeserializeOwned>(mut self) -> Result<Frame<T>, String> {
        self.take("type");
        let text = self.to_text();
        let text = RawJson::parse(text).map_err(|error| format!("the frame: {error}"))?;
        match text.read() {
            Ok(known) => Ok(Frame { known, text }),
            Err(error) => Err(self.blame::<T>().unwrap_or_else(|| format!("the frame: {error}"))),
        }
    }

    fn to_text(&self) -> String {
        let mut text = String::from("{");
        for (at, (name, value)) in self.0.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&serde_json::Value::from(name.as_str()).to_string());
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        text
    }

    /// serde_json does not name the field that has a wrong type, so each is tried alone.
    fn blame<T: DeserializeOwned>(&mut self) -> Option<String> {
        std::mem::take(&mut self.0).into_iter().find_map(|field| {
            let alone = Fields(vec![field]);
            let error = serde_json::from_str::<T>(&alone.to_text()).err()?;
            alone.0.first().map(|(name, _)| field_error(name, &error))
        })
    }
}

/// Every op, for people.
pub(super) const NAMES: &str =
    "start, status, seed, submit_turn, interrupt, control, reload_mcp, respond, reset, restart, shutdown";

fn require_sid(sid: Option<&SessionId>) -> Result<(), String> {
    match sid {
        Some(sid) if !sid.is_empty() => Ok(()),
        Some(_) | None => Err("sid required: `sid` names the session".to_owned()),
    }
}

fn field_error(name: &str, error: &serde_json::Error) -> String {
    let full = error.to_string();
    // The position is that of the field alone and would mislead.
    let words = full.split(" at line ").next().unwrap_or(&full);
    format!("`{name}`: {words}")
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Fields(Vec::new());
        deserializer.deserialize_map(Collect(&mut fields))?;
        Ok(fields)
    }
}

/// Collects fields as they are read, so that those before an error are there.
struct Collect<'a>(&'a mut Fields);

impl<'de> Visitor<'de> for Collect<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("the field `{name}` is there twice")));
            }
            self.0.0.push((name, value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn id(text: &str) -> OpId {
        OpId(RawJson::parse(text).expect("json"))
    }

    fn op(line: &str) -> Op {
        parse(line.as_bytes()).expect("an op").1
    }

    fn refused(line: &str) -> (Option<OpId>, String) {
        let bad = parse(line.as_bytes()).expect_err("a bad line");
        (bad.id, bad.message)
    }

    #[test]
    fn every_op_of_the_table_is_read_with_its_defaults() {
        assert_eq!(op(r#"{"id":"1","op":"start"}"#), Op::Start);
        assert_eq!(op(r#"{"id":"1","op":"status"}"#), Op::Status);
        assert_eq!(op(r#"{"id":"1","op":"reset"}"#), Op::Reset);
        assert_eq!(op(r#"{"id":"1","op":"restart"}"#), Op::Restart { drain: Duration::ZERO });
        assert_eq!(
            op(r#"{"id":"1","op":"restart","drain_ms":5}"#),
            Op::Restart { drain: Duration::from_millis(5) }
        );
        assert_eq!(
            op(r#"{"id":"1","op":"shutdown"}"#),
            Op::Shutdown { drain: Duration::ZERO, budget: Duration::from_secs(25) }
        );
        assert_eq!(
            op(r#"{"id":"1","op":"shutdown","drain_ms":10,"budget_ms":20}"#),
            Op::Shutdown { drain: Duration::from_millis(10), budget: Duration::from_millis(20) }
        );
        assert_eq!(
            op(r#"{"id":"1","op":"interrupt","sid":"s"}"#),
            Op::Interrupt { sid: "s".into(), turn_id: None }
        );
        assert_eq!(
            op(r#"{"id":"1","op":"interrupt","sid":"s","turn_id":"t"}"#),
            Op::Interrupt { sid: "s".into(), turn_id: Some("t".into()) }
        );
        for (name, fields) in [
            ("control", r#""sid":"s","route_name":"session.reset""#),
            ("reload_mcp", r#""sid":"s""#),
            ("respond", r#""sid":"s","approval_id":"a","choice":"once""#),
        ] {
            for (given, wanted) in
                [("", Duration::from_secs(30)), (r#","timeout_ms":7"#, Duration::from_millis(7))]
            {
                let line = format!(r#"{{"id":"1","op":"{name}",{fields}{given}}}"#);
                let (timeout, text) = match op(&line) {
                    Op::Control { frame, timeout } => (timeout, frame.text),
                    Op::ReloadMcp { frame, timeout } => (timeout, frame.text),
                    Op::Respond { frame, timeout } => (timeout, frame.text),
                    other => panic!("{other:?}"),
                };
                assert_eq!((timeout, text.as_str().to_owned()), (wanted, format!("{{{fields}}}")));
            }
        }
    }

    #[test]
    fn a_compression_has_the_time_that_a_model_needs() {
        for route in ["session.compress", "slash.compress"] {
            for (given, wanted) in
                [("", Duration::from_secs(150)), (r#","timeout_ms":7"#, Duration::from_millis(7))]
            {
                let line = format!(r#"{{"id":"1","op":"control","sid":"s","route_name":"{route}"{given}}}"#);
                let Op::Control { timeout, .. } = op(&line) else { panic!("no control") };
                assert_eq!(timeout, wanted, "{route}");
            }
        }
    }

    #[test]
    fn a_frame_keeps_unknown_fields_and_number_spelling_and_loses_id_op_and_type() {
        let line =
            r#"{"id":"1","op":"submit_turn","type":"x","sid":"s","text":"hi","n":1.50,"\"":{"b":2,"a":1}}"#;
        let Op::SubmitTurn(frame) = op(line) else { panic!("no submit") };
        assert_eq!(frame.text.as_str(), r#"{"sid":"s","text":"hi","n":1.50,"\"":{"b":2,"a":1}}"#);
        assert_eq!(frame.known.prompt_text(), "hi");
        let Op::SubmitTurn(frame) =
            op(r#"{"id":"1","op":"submit_turn","sid":"s","n":[1e999,123456789012345678901]}"#)
        else {
            panic!("no submit")
        };
        assert_eq!(frame.text.as_str(), r#"{"sid":"s","n":[1e999,123456789012345678901]}"#);
        let Op::Seed(frame) = op(r#"{"op":"seed","sid":"s","history":[{"role":"user"}],"id":"1"}"#) else {
            panic!("no seed")
        };
        assert_eq!(frame.known.history.map(|history| history.len()), Some(1));
    }

    #[test]
    fn an_id_is_given_back_as_it_came_and_must_be_a_string_or_a_number() {
        for text in [r#""a\u00e9""#, "17", "-1.50", r#""""#] {
            let (found, _) = parse(format!(r#"{{"id":{text},"op":"start"}}"#).as_bytes()).expect("an op");
            assert_eq!(found, id(text));
        }
        for text in ["null", "true", "[1]", "{}"] {
            let (found, message) = refused(&format!(r#"{{"id":{text},"op":"start"}}"#));
            assert_eq!((found, message.as_str()), (None, "`id`: expected a string"));
        }
    }

    #[test]
    fn a_line_that_is_no_op_is_refused_with_its_id_if_it_has_one() {
        for line in ["nonsense", "[1]", "3", "\"x\"", "{", r#"{"id":"1"#, r#"{"op":"start"}"#, "{}"] {
            assert_eq!(refused(line).0, None, "{line}");
        }
        for line in [
            r#"{"id":"1"}"#,
            r#"{"id":"1","op":5}"#,
            r#"{"id":"1","op":null}"#,
            r#"{"id":"1","op":"dance"}"#,
            r#"{"id":"1""#,
            r#"{"id":"1","op":"submit_turn","sid":"s","x":NaN}"#,
            r#"{"id":"1","op":"start"}}"#,
            "{\"id\":\"1\",\"op\":\"submit_turn\",\"text\":\"a\tb\"}",
            r#"{"id":"1","op":"status","x":1,"x":2}"#,
            r#"{"id":"1","op":"submit_turn"}"#,
            r#"{"id":"1","op":"submit_turn","sid":""}"#,
            r#"{"id":"1","op":"seed"}"#,
            r#"{"id":"1","op":"interrupt","turn_id":"t"}"#,
            r#"{"id":"1","op":"control","sid":"s"}"#,
        ] {
            assert_eq!(refused(line).0, Some(id("\"1\"")), "{line}");
        }
        assert!(refused(r#"{"id":"1","op":"dance"}"#).1.contains("submit_turn"));
    }

    #[test]
    fn a_field_of_a_wrong_type_is_named() {
        for (line, name) in [
            (r#"{"id":"1","op":"submit_turn","sid":"s","text":5}"#, "`text`"),
            (r#"{"id":"1","op":"submit_turn","sid":7,"text":"x"}"#, "`sid`"),
            (r#"{"id":"1","op":"submit_turn","sid":"s","agent":[]}"#, "`agent`"),
            (r#"{"id":"1","op":"seed","sid":"s","history":"x"}"#, "`history`"),
            (r#"{"id":"1","op":"interrupt","sid":"s","turn_id":1}"#, "`turn_id`"),
            (r#"{"id":"1","op":"control","sid":"s","route_name":"r","timeout_ms":-1}"#, "`timeout_ms`"),
            (r#"{"id":"1","op":"shutdown","budget_ms":"soon"}"#, "`budget_ms`"),
            (r#"{"id":"1","op":"restart","drain_ms":1.5}"#, "`drain_ms`"),
        ] {
            let (found, message) = refused(line);
            assert_eq!(found, Some(id("\"1\"")), "{line}");
            assert!(message.contains(name), "{line}: {message}");
            assert!(!message.contains("line 1"), "{message}");
        }
    }

    #[test]
    fn the_id_of_a_line_too_long_is_found_in_its_beginning() {
        let head = br#"{"id":"7","op":"submit_turn","text":"xxxxxx"#;
        assert_eq!(id_in_part(head), Some(id("\"7\"")));
        for head in
            [&br#"{"text":"{\"id\":\"7\"}","x":"yy"#[..], br#"{"x":{"id":"7"},"y":"#, b"xxxx", br#"{"id":"7"#]
        {
            assert_eq!(id_in_part(head), None);
        }
    }

    #[test]
    fn a_field_given_twice_is_refused() {
        let (_, message) = refused(r#"{"id":"1","op":"submit_turn","sid":"s","sid":"t"}"#);
        assert!(message.contains("`sid`") && message.contains("twice"), "{message}");
    }

    #[test]
    fn a_line_nested_too_deep_is_refused() {
        let line = format!(r#"{{"id":"1","op":"status","x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        let (found, message) = refused(&line);
        assert_eq!(found, Some(id("\"1\"")));
        assert!(message.contains("128"), "{message}");
    }
}
