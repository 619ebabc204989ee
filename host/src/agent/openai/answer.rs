//! The body of an answer: bytes in, what happened out. Event stream or one JSON object, as its Content-Type says.

use super::sse::{Event, Parser};
use super::text::{Joiner, Text};
use serde::Deserialize;
use serde_json::Value;

/// Longest answer in one JSON object, in bytes: held whole before it can be read.
pub(super) const MAX_JSON_BYTES: usize = 64 * 1024 * 1024;
/// Bytes kept of what a server said, for a message.
const SAID_BYTES: usize = 4 * 1024;

/// Something that an answer brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// Text of the answer.
    Text(String),
    /// Reasoning.
    Thought(String),
    /// The tokens of the whole call.
    Usage { input: u64, output: u64, total: u64 },
    /// For people: the answer is not what it should be.
    Note(String),
}

/// Why an answer is none. The words of servers in it are as they came; whoever shows them cuts them and takes out keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The server says that it failed.
    #[error("the server failed in its answer: {0}")]
    Server(String),
    /// A place that should have been JSON.
    #[error("the answer holds what is no chat completion: {0}")]
    Garbage(String),
    /// Neither an event stream nor JSON.
    #[error("the server answered with {kind} instead of a chat completion; check the base URL: {said}")]
    NoCompletion { kind: String, said: String },
    /// Over a limit.
    #[error("{0}")]
    TooLong(String),
    /// It ended in the middle.
    #[error("the answer was cut off: the stream ended without a finish_reason or [DONE]")]
    Cut,
    /// It ended before anything came.
    #[error("the answer is empty{0}")]
    Empty(String),
    /// Nothing but tool calls.
    #[error(
        "the model called the tool {0:?} instead of answering, but the openai agent offers no tools; use a model or a server setting without tools"
    )]
    Tools(String),
}

/// How the body is written.
#[derive(Debug)]
enum Form {
    Events(Parser),
    Json(Vec<u8>),
    /// The Content-Type tells nothing; the first byte that is no white space will.
    Unsaid,
    /// Something else, kept to be shown.
    Other(String, Vec<u8>),
}

/// One answer as it comes.
#[derive(Debug)]
pub(super) struct Answer {
    form: Form,
    text: Joiner,
    thought: Joiner,
    usage: Option<Counts>,
    finish: Option<String>,
    done: bool,
    begun: bool,
    has_text: bool,
    tool: Option<String>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Option<Vec<Option<Choice>>>,
    #[serde(default)]
    usage: Lenient<Counts>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: Lenient<u64>,
    #[serde(default)]
    delta: Option<Message>,
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    finish_reason: Lenient<Text>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<Text>,
    #[serde(default)]
    refusal: Lenient<Text>,
    #[serde(default)]
    reasoning_content: Lenient<Text>,
    #[serde(default)]
    reasoning: Lenient<Text>,
    #[serde(default)]
    tool_calls: Lenient<Vec<ToolCall>>,
}

#[derive(Deserialize)]
struct ToolCall {
    #[serde(default)]
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Counts {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    total_tokens: Option<u64>,
}

/// Some servers begin a text with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A field that nothing depends on: one of another shape than expected counts as absent.
struct Lenient<T>(Option<T>);

impl<T> Default for Lenient<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(raw.get()).ok()))
    }
}

impl Answer {
    /// An answer with this Content-Type.
    pub(super) fn new(content_type: Option<&str>) -> Self {
        let kind = content_type.unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let form = match kind.as_str() {
            "text/event-stream" => Form::Events(Parser::default()),
            kind if kind == "application/json" || kind.ends_with("+json") => Form::Json(Vec::new()),
            "" | "text/plain" | "application/octet-stream" => Form::Unsaid,
            other => Form::Other(other.to_owned(), Vec::new()),
        };
        Self {
            form,
            text: Joiner::default(),
            thought: Joiner::default(),
            usage: None,
            finish: None,
            done: false,
            begun: false,
            has_text: false,
            tool: None,
        }
    }

    /// Refuses a body of this announced length, if it is one that must be held whole.
    pub(super) fn check_length(&self, bytes: Option<u64>) -> Result<(), Fault> {
        match (&self.form, bytes) {
            (Form::Json(_) | Form::Unsaid, Some(bytes)) if bytes > MAX_JSON_BYTES as u64 => Err(too_long()),
            _ => Ok(()),
        }
    }

    /// Takes bytes of the body and appends what they bring.
    pub(super) fn feed(&mut self, bytes: &[u8], parts: &mut Vec<Part>) -> Result<(), Fault> {
        if self.done {
            return Ok(());
        }
        if let Form::Unsaid = self.form {
            match bytes.iter().find(|byte| !byte.is_ascii_whitespace() && !BYTE_ORDER_MARK.contains(byte)) {
                Some(b'{') => self.form = Form::Json(Vec::new()),
                Some(_) => self.form = Form::Events(Parser::default()),
                None => return Ok(()),
            }
        }
        match &mut self.form {
            Form::Events(parser) => {
                let mut events = Vec::new();
                let fed = parser.feed(bytes, &mut events);
                // What came before the line that is too long is still part of the answer.
                self.take_events(events, parts)?;
                fed.map_err(|_| long_event())
            }
            Form::Json(held) => {
                if bytes.len() > MAX_JSON_BYTES - held.len() {
                    return Err(too_long());
                }
                held.extend_from_slice(bytes);
                Ok(())
            }
            Form::Other(_, held) => {
                let room = SAID_BYTES.saturating_sub(held.len()).min(bytes.len());
                held.extend_from_slice(&bytes[..room]);
                Ok(())
            }
            Form::Unsaid => Ok(()),
        }
    }

    /// True once nothing more is to be expected, although the connection may stand.
    pub(super) fn is_done(&self) -> bool {
        self.done || matches!(&self.form, Form::Other(_, held) if held.len() >= SAID_BYTES)
    }

    /// True once the text is whole; only the tokens may still come.
    pub(super) fn is_whole(&self) -> bool {
        self.done || self.finish.is_some()
    }

    /// The end of the body.
    pub(super) fn end(&mut self, parts: &mut Vec<Part>) -> Result<(), Fault> {
        match std::mem::replace(&mut self.form, Form::Unsaid) {
            Form::Events(mut parser) => {
                if !self.done {
                    let mut events = Vec::new();
                    let finished = parser.finish(&mut events).map_err(|_| long_event());
                    let taken = self.take_events(events, parts).and(finished);
                    // After the whole text only the count of tokens can have been cut.
                    if !self.is_whole() {
                        taken?;
                    }
                }
                if !self.begun {
                    let stray = parser.stray().map(|stray| format!("; it begins: {}", lossy(stray)));
                    return Err(Fault::Empty(stray.unwrap_or_default()));
                }
                if !self.is_whole() {
                    return Err(Fault::Cut);
                }
            }
            Form::Json(held) => {
                if held.iter().all(u8::is_ascii_whitespace) {
                    return Err(Fault::Empty(String::new()));
                }
                self.take_chunk(held.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&held), false, parts)?;
                if !self.begun {
                    return Err(Fault::Garbage(said(&held)));
                }
            }
            Form::Other(kind, held) => return Err(Fault::NoCompletion { kind, said: said(&held) }),
            Form::Unsaid => return Err(Fault::Empty(String::new())),
        }
        self.rest(parts)
    }

    /// What stands at the end of a whole answer.
    fn rest(&mut self, parts: &mut Vec<Part>) -> Result<(), Fault> {
        if let Some(thought) = self.thought.finish() {
            parts.push(Part::Thought(thought));
        }
        if let Some(text) = self.text.finish() {
            parts.push(Part::Text(text));
        }
        if let Some(usage) = self.usage.take() {
            let (input, output) = (usage.prompt_tokens.unwrap_or(0), usage.completion_tokens.unwrap_or(0));
            let total = usage.total_tokens.unwrap_or_else(|| input.saturating_add(output));
            parts.push(Part::Usage { input, output, total });
        }
        let note = match (self.finish.as_deref(), self.tool.take()) {
            (Some("error"), _) => return Err(Fault::Server("finish_reason error".to_owned())),
            (_, Some(tool)) if !self.has_text => return Err(Fault::Tools(tool)),
            (_, Some(tool)) => {
                format!("the model also called the tool {tool:?}; the openai agent offers none")
            }
            (Some("length"), None) => "the answer ends early: it reached the model's length limit".to_owned(),
            (Some("content_filter"), None) => {
                "the answer ends early: the server's content filter cut it".to_owned()
            }
            (Some(_) | None, None) => return Ok(()),
        };
        parts.push(Part::Note(note));
        Ok(())
    }

    fn take_events(&mut self, events: Vec<Event>, parts: &mut Vec<Part>) -> Result<(), Fault> {
        for event in events {
            if self.done {
                break;
            }
            match event.data.trim_ascii() {
                b"" => {}
                b"[DONE]" => self.done = true,
                data => self.take_chunk(data, event.is_error, parts)?,
            }
        }
        Ok(())
    }

    fn take_chunk(&mut self, data: &[u8], is_error: bool, parts: &mut Vec<Part>) -> Result<(), Fault> {
        if is_error {
            return Err(Fault::Server(message_of(data)));
        }
        let chunk: Chunk = serde_json::from_slice(data).map_err(|_| Fault::Garbage(said(data)))?;
        if chunk.error.as_ref().is_some_and(|error| !is_nothing(error)) {
            return Err(Fault::Server(message_of(data)));
        }
        if chunk.usage.0.is_some() {
            self.usage = chunk.usage.0;
        }
        let Some(choices) = chunk.choices else {
            // A chunk that says nothing of the answer is none of our business; a whole answer without choices is.
            return Ok(());
        };
        for choice in choices.into_iter().flatten() {
            if choice.index.0.unwrap_or(0) == 0 {
                self.take_choice(choice, parts);
            }
        }
        Ok(())
    }

    fn take_choice(&mut self, choice: Choice, parts: &mut Vec<Part>) {
        if let Some(message) = choice.delta.or(choice.message) {
            self.begun = true;
            // Some servers send the same reasoning under both names.
            let thought = message.reasoning_content.0.or(message.reasoning.0).unwrap_or_default();
            let thought = self.thought.push(&thought.0);
            if !thought.is_empty() {
                parts.push(Part::Thought(thought));
            }
            for text in [message.content, message.refusal.0].into_iter().flatten() {
                self.has_text |= !text.0.is_empty();
                let text = self.text.push(&text.0);
                if !text.is_empty() {
                    parts.push(Part::Text(text));
                }
            }
            let call = message.tool_calls.0.and_then(|calls| calls.into_iter().next());
            if let Some(call) = call {
                let name = call.function.and_then(|function| function.name).unwrap_or_default();
                self.tool.get_or_insert(name);
            }
        }
        // Some servers send an empty one with every chunk.
        if let Some(finish) =
            choice.finish_reason.0.map(|finish| finish.to_text()).filter(|text| !text.is_empty())
        {
            self.finish = Some(finish);
        }
    }
}

/// What a server's error object says, or the whole of it; at most a few kilobytes.
pub(super) fn message_of(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return said(body) };
    let places = ["/error/message", "/error", "/message", "/detail", "/error_description"];
    let text = places.iter().find_map(|place| value.pointer(place).and_then(Value::as_str));
    // Written again, so that no escape hides what must not be shown.
    text.map_or_else(|| said(value.to_string().as_bytes()), |text| said(text.as_bytes()))
}

/// The code that a server's error object names, as `insufficient_quota`.
pub(super) fn code_of(body: &[u8]) -> Option<String> {
    let value = serde_json::from_slice::<Value>(body).ok()?;
    let code = value.pointer("/error/code").or_else(|| value.pointer("/error/type"))?;
    code.as_str().map(str::to_owned)
}

fn is_nothing(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => false,
    }
}

fn said(bytes: &[u8]) -> String {
    lossy(&bytes[..bytes.len().min(SAID_BYTES)])
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn too_long() -> Fault {
    Fault::TooLong(format!(
        "the answer is one JSON object of more than {} MiB; ask for a stream, or for less",
        MAX_JSON_BYTES / (1024 * 1024)
    ))
}

fn long_event() -> Fault {
    Fault::TooLong(format!(
        "the stream holds one event of more than {} MiB",
        super::sse::MAX_EVENT_BYTES / (1024 * 1024)
    ))
}

#[cfg(test)]
mod tests;
