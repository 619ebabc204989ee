//! What is asked of which server: the agent object, the base URL, the body of the call.

use super::retry::DEFAULT_ATTEMPTS;
use crate::turn::AgentError;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::net::IpAddr;
use std::time::Duration;
use turnhost_protocol::RawJson;

/// Where a key is for if nothing else is said.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
const MOST_ATTEMPTS: u32 = 20;
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Roles that the interface knows. Front ends keep other messages in a history, which are not for the model.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// The agent object of a turn, with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    pub(super) base_url: Option<String>,
    pub(super) model: Option<String>,
    /// Asks for the answer as it is made, instead of in one piece.
    pub(super) stream: bool,
    /// Calls of this turn, the first included.
    pub(super) max_attempts: u32,
    pub(super) connect_timeout: Duration,
    /// From the beginning of a call to the first byte of the answer's body.
    pub(super) first_byte_timeout: Duration,
    /// Between two pieces of the body; anything counts, also a comment.
    pub(super) idle_timeout: Duration,
}

impl Options {
    pub(super) fn read(raw: Option<&RawJson>) -> Result<Self, AgentError> {
        let given: Map<String, Value> = match raw {
            Some(raw) => raw.read().map_err(|error| bad(format!("agent: {error}")))?,
            None => Map::new(),
        };
        let seconds = |name: &str, default| seconds(name, field(&given, name)?, default);
        let max_attempts = field(&given, "max_attempts")?.unwrap_or(DEFAULT_ATTEMPTS);
        if !(1..=MOST_ATTEMPTS).contains(&max_attempts) {
            return Err(bad(format!("agent.max_attempts: {max_attempts} is not from 1 to {MOST_ATTEMPTS}")));
        }
        Ok(Self {
            base_url: filled(field(&given, "base_url")?),
            model: filled(field(&given, "model")?),
            stream: field(&given, "stream")?.unwrap_or(true),
            max_attempts,
            connect_timeout: seconds("connect_timeout_s", CONNECT_TIMEOUT)?,
            first_byte_timeout: seconds("first_byte_timeout_s", FIRST_BYTE_TIMEOUT)?,
            idle_timeout: seconds("idle_timeout_s", IDLE_TIMEOUT)?,
        })
    }
}

/// Default of `connect_timeout_s`.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

fn seconds(name: &str, given: Option<f64>, default: Duration) -> Result<Duration, AgentError> {
    let Some(number) = given else { return Ok(default) };
    let duration = Duration::try_from_secs_f64(number).ok().filter(|duration| !duration.is_zero());
    let duration =
        duration.ok_or_else(|| bad(format!("agent.{name}: {number} is no number of seconds above 0")))?;
    Ok(duration.min(LONGEST_TIMEOUT))
}

/// One field of the agent object, named if it has the wrong type; null counts as absent.
fn field<T: DeserializeOwned>(given: &Map<String, Value>, name: &str) -> Result<Option<T>, AgentError> {
    let Some(value) = given.get(name) else { return Ok(None) };
    Option::deserialize(value).map_err(|error| bad(format!("agent.{name}: {error}")))
}

fn bad(problem: impl std::fmt::Display) -> AgentError {
    AgentError::bad_request(format!("openai: {problem}"))
}

pub(super) fn filled(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The model: the turn's, or a refusal that says where one is named.
pub(super) fn model(named: [Option<&str>; 2]) -> Result<String, AgentError> {
    named.into_iter().flatten().map(str::trim).find(|name| !name.is_empty()).map(str::to_owned).ok_or_else(|| {
        bad("no model is named; give --model NAME, `model` in the agent object, or model.name in config.yaml")
    })
}

/// Where the call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// The whole address of the call.
    pub(super) url: Url,
    /// Scheme, host and port: what people read. The rest of an address may hold secrets.
    pub(super) name: String,
}

impl Server {
    /// The server of the first base URL that is named; else OpenAI's own if there is a key for it.
    pub(super) fn find(named: [Option<&str>; 2], has_key: bool) -> Result<Self, AgentError> {
        let named = named.into_iter().flatten().map(str::trim).find(|url| !url.is_empty());
        match named.or_else(|| has_key.then_some(DEFAULT_BASE_URL)) {
            Some(base) => Self::parse(base).map_err(bad),
            None => Err(bad(
                "no server is named; give --base-url URL (as http://127.0.0.1:8080/v1), set OPENAI_BASE_URL, or set OPENAI_API_KEY to ask api.openai.com",
            )),
        }
    }

    fn parse(base: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "give one as http://127.0.0.1:8080/v1";
        // What stands before an @ may be a password, and a query a key.
        let shown = base.rsplit_once('@').map_or(base, |(_, host)| host);
        let shown = shown.split_once('?').map_or(shown, |(shown, _)| shown);
        let mut url = Url::parse(base)
            .map_err(|error| format!("the base URL {shown:?} is none: {error}; {EXAMPLE}"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the base URL holds a user name or a password, which would be shown in lists of processes; set OPENAI_API_KEY instead".to_owned());
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("the base URL {shown:?} does not begin with http:// or https://; {EXAMPLE}"));
        }
        // Whoever pastes the whole address means the same.
        let path = url.path().trim_end_matches('/');
        let path = if path.ends_with("/chat/completions") {
            path.to_owned()
        } else {
            format!("{path}/chat/completions")
        };
        url.set_path(&path);
        url.set_fragment(None);
        let name = url.origin().ascii_serialization();
        Ok(Self { url, name })
    }

    /// True if it is this machine: then no proxy is asked.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or("").trim_end_matches('.');
        if host == "localhost" || host.ends_with(".localhost") {
            return true;
        }
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => {
                let address = address.to_canonical();
                address.is_loopback() || address.is_unspecified()
            }
            Err(_) => false,
        }
    }
}

/// A message as the interface knows it; other fields of a history's messages are not passed on, because some servers
/// refuse what they do not know.
#[derive(Serialize, Deserialize)]
struct Message<'a> {
    role: std::borrow::Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    content: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// The body of the call: system prompt, history, prompt. `usage` asks a stream for its count of tokens.
pub(super) fn body(
    model: &str,
    system: Option<&str>,
    history: &[RawJson],
    prompt: &str,
    stream: bool,
    usage: bool,
) -> Result<Vec<u8>, serde_json::Error> {
    let system = system.map(to_raw_value).transpose()?;
    let prompt = to_raw_value(prompt)?;
    let own = |role: &'static str, content| Message {
        role: role.into(),
        content: Some(content),
        name: None,
        tool_calls: None,
        tool_call_id: None,
    };
    let system = system.as_deref().map(|content| own("system", content));
    let messages: Vec<Message<'_>> = system
        .into_iter()
        .chain(history.iter().filter_map(for_the_model))
        .chain(std::iter::once(own("user", &prompt)))
        .collect();
    let stream_options = (stream && usage).then_some(StreamOptions { include_usage: true });
    serde_json::to_vec(&Body { model, messages, stream, stream_options })
}

/// A message of the history, if it is one that a model can be given.
fn for_the_model(raw: &RawJson) -> Option<Message<'_>> {
    let message: Message<'_> = raw
        .read()
        .inspect_err(|error| tracing::debug!(%error, "a message of the history is left out"))
        .ok()?;
    let is_known = ROLES.contains(&&*message.role);
    let says_something = message.content.is_some() || message.tool_calls.is_some();
    (is_known && says_something).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::{Value, json};
    use turnhost_protocol::FailReason;

    fn options(object: Value) -> Result<Options, AgentError> {
        Options::read(Some(&RawJson::from_value(&object).unwrap()))
    }

    #[test]
    fn the_agent_object_is_read_with_its_defaults_and_wrong_fields_are_named() {
        let defaults = Options::read(None).unwrap();
        assert_eq!(
            defaults,
            options(json!({"name": "openai", "other": 1, "base_url": " ", "model": ""})).unwrap()
        );
        assert_eq!(
            defaults,
            Options {
                base_url: None,
                model: None,
                stream: true,
                max_attempts: 5,
                connect_timeout: Duration::from_secs(10),
                first_byte_timeout: Duration::from_secs(120),
                idle_timeout: Duration::from_secs(60),
            }
        );
        let all = options(json!({"base_url": "http://a", "model": "m", "stream": false, "max_attempts": 1,
            "connect_timeout_s": 0.5, "first_byte_timeout_s": 2, "idle_timeout_s": 1e9}));
        assert_eq!(
            all.unwrap(),
            Options {
                base_url: Some("http://a".to_owned()),
                model: Some("m".to_owned()),
                stream: false,
                max_attempts: 1,
                connect_timeout: Duration::from_millis(500),
                first_byte_timeout: Duration::from_secs(2),
                idle_timeout: LONGEST_TIMEOUT,
            }
        );
        for (field, value) in [
            ("max_attempts", json!(0)),
            ("max_attempts", json!(21)),
            ("connect_timeout_s", json!(0)),
            ("first_byte_timeout_s", json!(-1)),
            ("idle_timeout_s", json!(1e300)),
        ] {
            let error = options(json!({field: value})).unwrap_err();
            assert_eq!(error.reason, FailReason::BadRequest);
            assert!(error.message.contains(&format!("agent.{field}")), "{error}");
        }
        assert_eq!(options(json!({"stream": "yes"})).unwrap_err().reason, FailReason::BadRequest);
    }

    #[test]
    fn the_call_goes_to_the_first_base_url_named_or_to_openai_if_there_is_a_key() {
        let table = [
            (
                "http://127.0.0.1:8080/v1",
                "http://127.0.0.1:8080/v1/chat/completions",
                "http://127.0.0.1:8080",
            ),
            (
                "http://127.0.0.1:8080/v1/",
                "http://127.0.0.1:8080/v1/chat/completions",
                "http://127.0.0.1:8080",
            ),
            ("https://h", "https://h/chat/completions", "https://h"),
            ("https://h/v1/chat/completions/", "https://h/v1/chat/completions", "https://h"),
            ("https://h/v1?api-version=2#x", "https://h/v1/chat/completions?api-version=2", "https://h"),
        ];
        for (base, url, name) in table {
            let server = Server::find([Some(" "), Some(base)], true).unwrap();
            assert_eq!((server.url.as_str(), server.name.as_str()), (url, name));
        }
        assert_eq!(Server::find([Some("http://a"), Some("http://b")], true).unwrap().name, "http://a");
        assert_eq!(Server::find([None, None], true).unwrap().name, "https://api.openai.com");
    }

    #[test]
    fn a_server_that_cannot_be_asked_is_refused_with_what_to_set() {
        let refused = |base| Server::find([base, None], false).unwrap_err();
        assert!(refused(None).message.contains("OPENAI_BASE_URL"));
        for base in ["localhost:8080/v1", "127.0.0.1:8080", "/v1", "file:///etc/passwd", "http://"] {
            let error = refused(Some(base));
            assert_eq!(error.reason, FailReason::BadRequest);
            assert!(error.message.contains("http://127.0.0.1:8080/v1"), "{error}");
        }
        let error = refused(Some("https://me:secret@h/v1"));
        assert!(error.message.contains("OPENAI_API_KEY") && !error.message.contains("secret"), "{error}");
    }

    #[test]
    fn the_first_model_that_is_named_counts_and_none_is_refused() {
        assert_eq!(model([Some(""), Some("b")]).unwrap(), "b");
        assert_eq!(model([Some("a"), Some("b")]).unwrap(), "a");
        assert!(model([None, Some(" ")]).unwrap_err().message.contains("--model"));
    }

    #[test]
    fn a_loopback_address_is_known_in_every_spelling() {
        let is_loopback = |host: &str| Server::parse(&format!("http://{host}/v1")).unwrap().is_loopback();
        for host in [
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "a.localhost",
            "127.0.0.1",
            "127.9.9.9:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "127.1",
            "2130706433",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["example.com", "localhost.example.com", "notlocalhost", "10.0.0.1", "[2001:db8::1]", "128.0.0.1"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }

    fn written(history: &[Value], system: Option<&str>, stream: bool, usage: bool) -> Value {
        let history: Vec<RawJson> =
            history.iter().map(|message| RawJson::from_value(message).unwrap()).collect();
        let body = body("m", system, &history, "prompt", stream, usage).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn the_messages_are_system_prompt_history_and_prompt() {
        let history = [json!({"role": "user", "content": "q"}), json!({"role": "assistant", "content": ""})];
        let expected = json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": ""},
                {"role": "user", "content": "prompt"},
            ],
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        assert_eq!(written(&history, Some("be brief"), true, true), expected);
        let plain = written(&[], None, false, true);
        assert_eq!(
            plain,
            json!({"model": "m", "messages": [{"role": "user", "content": "prompt"}], "stream": false})
        );
        assert_eq!(written(&[], None, true, false).get("stream_options"), None);
    }

    #[test]
    fn what_a_history_holds_beyond_the_interface_is_not_passed_on() {
        let call = json!([{"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]);
        let history = [
            json!({"role": "user", "content": [{"type": "text", "text": "q"}], "timestamp": 1, "name": "n"}),
            json!({"role": "assistant", "content": null, "tool_calls": call, "reasoning": "hm"}),
            json!({"role": "tool", "content": "out", "tool_call_id": "c"}),
            json!({"role": "session_meta", "content": "x"}),
            json!({"role": "assistant", "content": null}),
            json!({"content": "no role"}),
            json!({"role": 7, "content": "x"}),
            json!("no message"),
        ];
        let expected = json!([
            {"role": "user", "content": [{"type": "text", "text": "q"}], "name": "n"},
            {"role": "assistant", "tool_calls": call},
            {"role": "tool", "content": "out", "tool_call_id": "c"},
            {"role": "user", "content": "prompt"},
        ]);
        assert_eq!(written(&history, None, true, true)["messages"], expected);
    }
}
