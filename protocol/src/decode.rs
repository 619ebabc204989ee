//! A line to a frame, in two steps: first `type`, `request_id` and `sid`, then the struct of that type. So an
//! unknown type, a known type with a bad field and a line that is no JSON are three different errors, and the
//! first two can be answered to the right request.

use crate::frame::{HostCommand, HostEvent};
use crate::ids::{RequestId, SessionId};
use crate::limits::MAX_ID_BYTES;
use crate::peek::peek_ids;
use crate::salvage::{first_frame_start, last_frame_start, strip_back, strip_front};
use crate::scan::{ScanError, scan};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A frame and how it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded<'a, T> {
    /// The frame.
    pub frame: T,
    /// Its JSON text as it came, repaired: unknown fields included, for whoever forwards it. A copy only if something
    /// was repaired.
    pub text: Cow<'a, str>,
    /// Places that the safety scan replaced by U+FFFD.
    pub repaired: u32,
    /// True if escape sequences or control characters stood around it, or other text in front of it.
    pub salvaged: bool,
}

/// Why a line is no frame. The words are those of the `protocol_error` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecodeErrorKind {
    /// Nested too deep.
    Depth,
    /// No JSON.
    Json,
    /// JSON, but no object.
    NotObject,
    /// A known field with a wrong JSON type or a number out of its range, or a required one missing; `type` too.
    BadField,
    /// A known field twice.
    DuplicateKey,
    /// A type that this direction does not have.
    UnknownType,
    /// A terminal frame behind other text on one line: not believed.
    TerminalBehindText,
}

impl DecodeErrorKind {
    /// The word in a `protocol_error` event.
    pub const fn as_str(self) -> &'static str {
        match self {
            DecodeErrorKind::Depth => "depth",
            DecodeErrorKind::Json => "json",
            DecodeErrorKind::NotObject => "not_object",
            DecodeErrorKind::BadField => "bad_field",
            DecodeErrorKind::DuplicateKey => "duplicate_key",
            DecodeErrorKind::UnknownType => "unknown_type",
            DecodeErrorKind::TerminalBehindText => "terminal_behind_text",
        }
    }
}

/// A line that is no frame, with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// `type`, if it could be read; the start of a long one.
    pub frame_type: Option<String>,
    /// `request_id`, if it could be read.
    pub request_id: Option<RequestId>,
    /// `sid`, if it could be read.
    pub sid: Option<SessionId>,
    /// True for a broken frame: the line begins with `{`, or is some other JSON. False: stray text.
    pub looks_like_frame: bool,
    /// For people: a lowercase fragment of at most a few hundred bytes, which a host sends as the `message` of its
    /// `error`.
    pub detail: String,
}

impl DecodeError {
    /// True if the line was meant to end a turn.
    pub fn is_terminal(&self) -> bool {
        self.frame_type.as_deref().is_some_and(is_terminal_type)
    }

    fn new(kind: DecodeErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            frame_type: None,
            request_id: None,
            sid: None,
            looks_like_frame: true,
            detail: detail.into(),
        }
    }

    fn json(error: impl fmt::Display) -> Self {
        Self::new(DecodeErrorKind::Json, format!("invalid json: {error}"))
    }

    /// With what a search through a line that could not be parsed finds.
    fn with_ids_of(mut self, line: &[u8]) -> Self {
        let ids = peek_ids(line, &[]);
        self.frame_type = ids.frame_type;
        self.request_id = ids.request_id;
        self.sid = ids.sid;
        self
    }
}

/// True for the types that end a turn.
pub fn is_terminal_type(frame_type: &str) -> bool {
    matches!(frame_type, "turn.end" | "turn.error")
}

/// Reads a line that came from a front end. Identifiers over [`MAX_ID_BYTES`] are refused, so that every answer that
/// repeats them fits into a frame.
///
/// # Errors
/// [`DecodeError`]; reading goes on after any of them.
pub fn decode_command(line: &[u8]) -> Result<Decoded<'_, HostCommand>, DecodeError> {
    decode(line, HostCommand::read, MAX_ID_BYTES)
}

/// Reads a line that came from a host.
///
/// # Errors
/// [`DecodeError`]; reading goes on after any of them.
pub fn decode_event(line: &[u8]) -> Result<Decoded<'_, HostEvent>, DecodeError> {
    decode(line, HostEvent::read, usize::MAX)
}

/// True if the line begins like a heartbeat: a sign of life even if the frame is refused.
pub fn is_heartbeat_prefix(line: &[u8]) -> bool {
    line.strip_prefix(br#"{"type":"#).is_some_and(|rest| rest.trim_ascii_start().starts_with(br#""hb""#))
}

/// Reads one JSON object as the frame of that name; `None` for a name that the direction does not have.
type Read<T> = fn(&str, &str) -> Option<Result<T, serde_json::Error>>;

fn decode<T>(line: &[u8], read: Read<T>, max_id: usize) -> Result<Decoded<'_, T>, DecodeError> {
    let (line, stripped_front) = strip_front(line);
    let (line, stripped_back) = strip_back(line).map_or((line, false), |line| (line, true));
    let result = if line.starts_with(b"{") {
        match decode_object(line, read, max_id) {
            Ok(object) => Ok(Decoded { salvaged: stripped_front || stripped_back, ..object.decoded }),
            Err(Refused { error, more_may_follow: false }) => Err(error),
            Err(Refused { error, more_may_follow: true }) => Err(end_glued_to(line).unwrap_or(error)),
        }
    } else {
        match decode_no_object(line) {
            error if error.looks_like_frame => Err(error),
            stray => decode_behind_text(line, read, max_id).unwrap_or(Err(stray)),
        }
    };
    result.map_err(|error| DecodeError {
        frame_type: error.frame_type.map(|name| cut(&name).to_owned()),
        request_id: error.request_id.filter(|id| id.as_str().len() <= max_id),
        sid: error.sid.filter(|sid| sid.as_str().len() <= max_id),
        ..error
    })
}

/// The frame behind text on its line, or the end of a turn that is not believed there; `None` if there is neither.
fn decode_behind_text<T>(
    line: &[u8],
    read: Read<T>,
    max_id: usize,
) -> Option<Result<Decoded<'_, T>, DecodeError>> {
    let rest = first_frame_start(line)?;
    match decode_object(rest, read, max_id) {
        Ok(object) if object.terminal => Some(Err(terminal_behind_text(rest))),
        Ok(object) => Some(Ok(Decoded { salvaged: true, ..object.decoded })),
        Err(Refused { error, more_may_follow: false })
            if error.is_terminal() && error.kind != DecodeErrorKind::Json =>
        {
            Some(Err(terminal_behind_text(rest)))
        }
        Err(_) => end_glued_to(line).map(Err),
    }
}

/// The error for a line that is no frame and has the whole end of a turn as its last part.
fn end_glued_to(line: &[u8]) -> Option<DecodeError> {
    let rest = last_frame_start(line)?;
    let scanned = scan(rest).ok()?;
    let head = Head::read(&scanned.text).ok()?;
    head.is_terminal().then(|| terminal_behind_text(rest))
}

fn terminal_behind_text(frame: &[u8]) -> DecodeError {
    let error = DecodeError::new(DecodeErrorKind::TerminalBehindText, "").with_ids_of(frame);
    let name = error.frame_type.as_deref().unwrap_or("the end of a turn");
    DecodeError { detail: format!("{name} behind other text on one line"), ..error }
}

/// What is wrong with a line that does not begin with a brace.
fn decode_no_object(line: &[u8]) -> DecodeError {
    let error = match scan(line) {
        Ok(scanned) => match serde_json::from_str::<IgnoredAny>(&scanned.text) {
            Ok(IgnoredAny) => return DecodeError::new(DecodeErrorKind::NotObject, "frame must be an object"),
            Err(error) => DecodeError::json(error),
        },
        Err(error @ ScanError::Depth) if line.starts_with(b"[") => {
            return DecodeError::new(DecodeErrorKind::Depth, error.to_string());
        }
        Err(error) => DecodeError::json(error),
    };
    DecodeError { looks_like_frame: false, ..error }
}

/// A line that begins with a brace and is a frame.
struct Object<'a, T> {
    decoded: Decoded<'a, T>,
    terminal: bool,
}

/// A line that begins with a brace and is none.
struct Refused {
    error: DecodeError,
    /// True if it stops being JSON in the middle, so that something else may stand behind.
    more_may_follow: bool,
}

impl From<DecodeError> for Refused {
    fn from(error: DecodeError) -> Self {
        Refused { error, more_may_follow: false }
    }
}

fn decode_object<T>(line: &[u8], read: Read<T>, max_id: usize) -> Result<Object<'_, T>, Refused> {
    let scanned = scan(line).map_err(|error| {
        let refused = match error {
            ScanError::Depth => DecodeError::new(DecodeErrorKind::Depth, error.to_string()),
            ScanError::ControlCharacter => DecodeError::json(error),
        };
        refused.with_ids_of(line)
    })?;
    let head = Head::read(&scanned.text).map_err(|error| Refused {
        more_may_follow: !error.is_eof(),
        error: DecodeError::json(error).with_ids_of(line),
    })?;
    let frame = head.read_frame(&scanned.text, read, max_id).map_err(|error| DecodeError {
        frame_type: head.frame_type.and_then(read_string),
        request_id: head.request_id.and_then(read_string).map(RequestId::from),
        sid: head.sid.and_then(read_string).map(SessionId::from),
        ..error
    })?;
    let terminal = head.is_terminal();
    let decoded = Decoded { frame, repaired: scanned.repaired, salvaged: false, text: scanned.text };
    Ok(Object { decoded, terminal })
}

/// The fields by which a frame is told from others, as they stand in the text: the first step.
#[derive(Default)]
struct Head<'a> {
    frame_type: Option<&'a str>,
    request_id: Option<&'a str>,
    sid: Option<&'a str>,
    type_twice: bool,
}

impl<'a> Head<'a> {
    /// Checks the syntax of the whole object on the way.
    fn read(object: &'a str) -> Result<Self, serde_json::Error> {
        let mut head = Self::default();
        for_each_field(object, |key, value| {
            let place = match &*key {
                "type" => &mut head.frame_type,
                "request_id" => &mut head.request_id,
                "sid" => &mut head.sid,
                _ => return,
            };
            head.type_twice |= key == "type" && place.is_some();
            place.get_or_insert(value);
        })?;
        Ok(head)
    }

    fn is_terminal(&self) -> bool {
        self.frame_type.and_then(read_str).is_some_and(|name| is_terminal_type(&name))
    }

    /// The second step.
    fn read_frame<T>(&self, object: &str, read: Read<T>, max_id: usize) -> Result<T, DecodeError> {
        let bad_field = |detail: String| DecodeError::new(DecodeErrorKind::BadField, detail);
        let frame_type =
            self.frame_type.ok_or_else(|| bad_field("bad field `type`: it is missing".to_owned()))?;
        if self.type_twice {
            return Err(DecodeError::new(DecodeErrorKind::DuplicateKey, "duplicate field `type`"));
        }
        let frame_type =
            read_str(frame_type).ok_or_else(|| bad_field("bad field `type`: it is no string".to_owned()))?;
        for (name, value) in [("request_id", self.request_id), ("sid", self.sid)] {
            if value.and_then(read_str).is_some_and(|id| id.len() > max_id) {
                return Err(bad_field(format!("bad field `{name}`: longer than {max_id} bytes")));
            }
        }
        read(&frame_type, object)
            .ok_or_else(|| {
                let name = cut(&frame_type);
                DecodeError::new(DecodeErrorKind::UnknownType, format!("unknown frame type: {name}"))
            })?
            .map_err(|error| describe_field_error(object, &error))
    }
}

/// A field error of the second step. The syntax was checked by the first one, so it is a field's fault.
fn describe_field_error(object: &str, error: &serde_json::Error) -> DecodeError {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
    if message.starts_with("duplicate field ") {
        return DecodeError::new(DecodeErrorKind::DuplicateKey, cut(message));
    }
    let detail = match field_at(object, error.column()) {
        Some(name) if !message.starts_with("missing field ") => {
            format!("bad field `{}`: {}", cut(&name), cut(message))
        }
        Some(_) | None => format!("bad field: {}", cut(message)),
    };
    DecodeError::new(DecodeErrorKind::BadField, detail)
}

/// The outermost field whose value the parser was in, or had just read, when it stopped behind `column` bytes.
fn field_at(object: &str, column: usize) -> Option<String> {
    let mut name = None;
    for_each_field(object, |key, value| {
        let start = value.as_ptr().addr() - object.as_ptr().addr();
        if start <= column {
            name = Some(key.into_owned());
        }
    })
    .ok()?;
    name
}

/// The first part of a text that may be long, for people.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_BYTES)]
}

const SHOWN_BYTES: usize = 200;

/// A JSON string, without a copy if it has no escapes (which `Cow` does not give by itself).
struct Str<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Str<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StrVisitor;
        impl<'de> Visitor<'de> for StrVisitor {
            type Value = Str<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Str(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Str(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(StrVisitor)
    }
}

fn read_str(json: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str(json).ok().map(|Str(text)| text)
}

fn read_string(json: &str) -> Option<String> {
    read_str(json).map(Cow::into_owned)
}

/// Calls `field` with the key, without its escapes, and the JSON text of the value, a part of `object`, of each
/// outermost field. Checks the syntax of the whole.
pub(crate) fn for_each_field<'a>(
    object: &'a str,
    field: impl FnMut(Cow<'a, str>, &'a str),
) -> Result<(), serde_json::Error> {
    struct Fields<F>(F);
    impl<'de, F: FnMut(Cow<'de, str>, &'de str)> Visitor<'de> for Fields<F> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
            while let Some(Str(key)) = fields.next_key()? {
                let value: &RawValue = fields.next_value()?;
                (self.0)(key, value.get());
            }
            Ok(())
        }
    }
    let mut parser = serde_json::Deserializer::from_str(object);
    parser.deserialize_map(Fields(field))?;
    parser.end()
}

#[cfg(test)]
mod tests;
