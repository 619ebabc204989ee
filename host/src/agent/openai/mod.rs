//! `openai`: any server that speaks OpenAI's chat completions as an agent.
//!
//! `docs/agents.md` is the manual: options, environment, timeouts, what is tried again, and every error.
//!
//! - **Call.** The session's system prompt, its history and the prompt, to `<base URL>/chat/completions`, as a stream.
//! - **Answer.** An event stream or one JSON object, as its Content-Type says. Text becomes deltas, reasoning becomes
//!   `thought` events, the count of tokens a `usage` event.
//! - **Faults.** 429, 5xx and broken connections are tried again, but never after the first byte of an answer. An answer
//!   that is cut ends the turn as `exception`, and what came of it stays.
//! - **Interrupt.** At once, whatever the turn waits for; the connection is dropped.
//! - **Key.** `OPENAI_API_KEY`. It goes into one header and is taken out of everything that is shown.

mod answer;
mod client;
mod key;
mod request;
mod retry;
mod sse;
mod text;
mod thoughts;

use crate::turn::context::{Sink, TurnContext, TurnOver};
use crate::turn::{AgentError, AgentResult, Answer, AsyncAgent, TurnFuture};
use answer::{Fault, Part};
use client::Clients;
use key::ApiKey;
use request::{Options, Server};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Client, Request, Response, StatusCode};
use retry::{Decision, Failure};
use std::time::{Duration, SystemTime};
use thoughts::Thoughts;
use tokio::time::{Instant, timeout, timeout_at};
use turnhost_protocol::frame::EventBody;

/// Longest delta: a longer text is passed on in pieces, so that it does not crowd out those of other turns.
const MAX_DELTA_BYTES: usize = 16 * 1024;
/// Bytes taken of an error's body.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// What an error's body may take to come.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// What the tokens and the end of a stream may take after its text is whole.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// What the end of a connection may take after `[DONE]`, so that it can serve the next turn.
const CONNECTION_END: Duration = Duration::from_millis(20);
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// True if `OPENAI_API_KEY` holds a key.
pub fn has_key() -> bool {
    ApiKey::new(std::env::var(KEY_VARIABLE).ok()).is_set()
}

const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The `openai` agent. Its connections are shared by all of its turns.
#[derive(Debug, Default)]
pub struct Openai {
    key: ApiKey,
    clients: Clients,
}

impl Openai {
    /// With this key; white space around it is left out. `None` is for servers that ask for none.
    pub fn new(key: Option<String>) -> Self {
        Self { key: ApiKey::new(key), clients: Clients::default() }
    }

    /// With the key of `OPENAI_API_KEY`, if it is set.
    pub fn from_env() -> Self {
        Self::new(std::env::var(KEY_VARIABLE).ok())
    }
}

impl AsyncAgent for Openai {
    fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
        Box::pin(async move {
            let answered = Box::pin(self.answer(&turn));
            let stopped = tokio::select! {
                biased;
                () = turn.interrupt.wait() => Stopped::Over,
                result = answered => match result {
                    Ok(()) => return Ok(Answer::default()),
                    Err(stopped) => stopped,
                },
            };
            self.result(stopped)
        })
    }
}

/// Why a turn did not come to its end.
enum Stopped {
    /// It was interrupted, or nobody takes what it says.
    Over,
    Failed(AgentError),
}

impl From<TurnOver> for Stopped {
    fn from(_: TurnOver) -> Self {
        Self::Over
    }
}

impl From<AgentError> for Stopped {
    fn from(error: AgentError) -> Self {
        Self::Failed(error)
    }
}

/// An answer whose first byte, or end, has come.
struct Begun {
    response: Response,
    answer: answer::Answer,
    first: Option<Vec<u8>>,
}

/// One call that failed.
struct Miss {
    failure: Failure,
    message: String,
    /// The server does not know the option that asks for the count of tokens.
    is_about_usage: bool,
}

impl Openai {
    fn result(&self, stopped: Stopped) -> AgentResult {
        match stopped {
            Stopped::Over => Ok(Answer { text: None, interrupted: true }),
            // The one place where errors leave: whatever quotes a server or the command line goes through here.
            Stopped::Failed(error) => Err(AgentError { message: self.key.redact(&error.message), ..error }),
        }
    }

    async fn answer(&self, turn: &TurnContext) -> Result<(), Stopped> {
        let options = Options::read(turn.agent_options.as_ref())?;
        let server =
            Server::find([options.base_url.as_deref(), turn.base_url.as_deref()], self.key.is_set())?;
        let model = request::model([options.model.as_deref(), turn.model.as_deref()])?;
        let client = self.clients.get(&server, options.connect_timeout).map_err(failed)?;
        if let Some(images) = turn.frame.attached_images.as_ref().filter(|images| !images.is_empty()) {
            let text =
                format!("{} attached image(s) are not sent: the openai agent sends text only", images.len());
            turn.sink.event(&EventBody::Status { text }).await?;
        }
        let begun = self.begin(turn, &options, &server, &model, &client).await?;
        self.stream(turn, &options, &server, begun).await
    }

    /// Calls until an answer begins.
    async fn begin(
        &self,
        turn: &TurnContext,
        options: &Options,
        server: &Server,
        model: &str,
        client: &Client,
    ) -> Result<Begun, Stopped> {
        let mut asks_usage = options.stream;
        let mut request = self.request(turn, options, server, model, client, asks_usage)?;
        let mut made = 0;
        loop {
            let Some(again) = request.try_clone() else {
                return Err(failed("the call cannot be repeated").into());
            };
            made += 1;
            let miss = match self.attempt(client, again, options, server).await {
                Ok(begun) => return Ok(begun),
                Err(miss) => miss,
            };
            if miss.is_about_usage && asks_usage {
                // Some servers refuse what they do not know. The same call without it is no attempt of its own.
                asks_usage = false;
                made -= 1;
                request = self.request(turn, options, server, model, client, asks_usage)?;
                continue;
            }
            match retry::decide(miss.failure, made, options.max_attempts, uniform()) {
                Decision::Again(pause) => {
                    let (next, of) = (made + 1, options.max_attempts);
                    let text = format!(
                        "{}; trying again in {:.1} s (attempt {next} of {of})",
                        miss.message,
                        pause.as_secs_f64()
                    );
                    turn.sink.event(&EventBody::Status { text: self.key.redact(&text) }).await?;
                    tokio::time::sleep(pause).await;
                }
                Decision::GiveUp => return Err(failed(miss.message).into()),
                Decision::OutOfAttempts => {
                    return Err(failed(format!("{}; gave up after {made} attempts", miss.message)).into());
                }
                Decision::AskedTooLong(pause) => {
                    let asked = pause.as_secs();
                    return Err(failed(format!(
                        "{}; it asks to wait for {asked} s, which is too long to do so unasked",
                        miss.message
                    ))
                    .into());
                }
            }
        }
    }

    fn request(
        &self,
        turn: &TurnContext,
        options: &Options,
        server: &Server,
        model: &str,
        client: &Client,
        asks_usage: bool,
    ) -> Result<Request, AgentError> {
        let body = request::body(
            model,
            turn.system_prompt.as_deref(),
            &turn.history,
            &turn.prompt,
            options.stream,
            asks_usage,
        )
        .map_err(|error| failed(format!("the call cannot be written: {error}")))?;
        let mut call = client
            .post(server.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json")
            .body(body);
        let key = self.key.header().map_err(|_| {
            AgentError::bad_request(
                "openai: OPENAI_API_KEY holds characters that no header can carry; set it again",
            )
        })?;
        if let Some(key) = key {
            call = call.header(AUTHORIZATION, key);
        }
        call.build().map_err(|error| failed(client::describe(&error, &server.name)))
    }

    /// One call, up to the first byte of its answer.
    async fn attempt(
        &self,
        client: &Client,
        request: Request,
        options: &Options,
        server: &Server,
    ) -> Result<Begun, Miss> {
        let first_byte = Instant::now() + options.first_byte_timeout;
        let silent = || {
            let limit = options.first_byte_timeout.as_secs_f64();
            Miss::ended(format!("{} has not answered within {limit} s (first_byte_timeout_s)", server.name))
        };
        let broken = |error: reqwest::Error| Miss {
            failure: if client::is_final(&error) { Failure::Final } else { Failure::Connection },
            message: client::describe(&error, &server.name),
            is_about_usage: false,
        };
        let response = timeout_at(first_byte, client.execute(request)).await.map_err(|_| silent())?;
        let mut response = response.map_err(broken)?;
        if !response.status().is_success() {
            return Err(self.refused(response, server).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let answer = answer::Answer::new(kind);
        answer
            .check_length(response.content_length())
            .map_err(|fault| Miss::ended(format!("{}: {fault}", server.name)))?;
        let first = loop {
            let piece = timeout_at(first_byte, response.chunk()).await.map_err(|_| silent())?;
            match piece.map_err(broken)? {
                Some(piece) if piece.is_empty() => {}
                piece => break piece.map(|piece| piece.to_vec()),
            }
        };
        Ok(Begun { response, answer, first })
    }

    /// What a status other than success means.
    async fn refused(&self, mut response: Response, server: &Server) -> Miss {
        let status = response.status();
        let header = |name: &HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after = retry::retry_after(
            header(&RETRY_AFTER_MS),
            header(&RETRY_AFTER),
            header(&DATE),
            SystemTime::now(),
        );
        let location = header(&LOCATION).map(str::to_owned);
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(piece)) = response.chunk().await {
                let room = MAX_ERROR_BYTES - body.len();
                body.extend_from_slice(&piece[..piece.len().min(room)]);
                if body.len() == MAX_ERROR_BYTES {
                    break;
                }
            }
        };
        // Without its body an error is still one.
        let _ = timeout(ERROR_BODY_TIMEOUT, reading).await;
        let said = self.key.excerpt(&answer::message_of(&body));
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        let advice = self.advice(status, location.as_deref());
        let is_final = answer::code_of(&body).is_some_and(|code| code == "insufficient_quota");
        let is_about_usage =
            matches!(status.as_u16(), 400 | 422) && String::from_utf8_lossy(&body).contains("stream_options");
        Miss {
            failure: Failure::Status { code: status.as_u16(), retry_after, is_final },
            message: format!("{} answered {status}{said}{advice}", server.name),
            is_about_usage,
        }
    }

    fn advice(&self, status: StatusCode, location: Option<&str>) -> String {
        match status.as_u16() {
            300..=399 => {
                // Its query and user name are nobody's business.
                let place = location.map(|place| place.split(['?', '#']).next().unwrap_or("")).unwrap_or("?");
                let place = self.key.excerpt(place);
                format!(
                    "; it redirects to {place}, which is not followed because the key would be sent there: set the base URL to the right place"
                )
            }
            401 | 403 if !self.key.is_set() => "; set OPENAI_API_KEY".to_owned(),
            401 | 403 => "; check OPENAI_API_KEY, and that it is for this server".to_owned(),
            404 | 405 => "; check the base URL, which usually ends in /v1, and the model's name".to_owned(),
            _ => String::new(),
        }
    }

    /// Passes an answer on as it comes.
    async fn stream(
        &self,
        turn: &TurnContext,
        options: &Options,
        server: &Server,
        begun: Begun,
    ) -> Result<(), Stopped> {
        let Begun { mut response, mut answer, first } = begun;
        let mut out = Out { sink: &turn.sink, thoughts: Thoughts::default(), key: &self.key };
        let mut parts = Vec::new();
        let mut piece = first;
        let ended = loop {
            let Some(bytes) = piece else { break Ok(()) };
            let fed = answer.feed(&bytes, &mut parts);
            out.pass_on(&mut parts).await?;
            if let Err(fault) = fed {
                break Err(self.faulty(&fault, server));
            }
            if answer.is_done() {
                break Ok(());
            }
            let patience = if answer.is_whole() { LAST_WORDS } else { options.idle_timeout };
            let until = Instant::now() + patience;
            let next = loop {
                tokio::select! {
                    next = timeout_at(until, response.chunk()) => break next,
                    () = out.thoughts.due() => out.flush_thoughts().await?,
                }
            };
            piece = match next {
                Ok(Ok(piece)) => piece.map(|piece| piece.to_vec()),
                // What is missing is only the count of tokens.
                Ok(Err(_)) | Err(_) if answer.is_whole() => None,
                Ok(Err(error)) => {
                    break Err(failed(format!(
                        "the answer was cut off: {}",
                        client::describe(&error, &server.name)
                    )));
                }
                Err(_) => {
                    let limit = options.idle_timeout.as_secs_f64();
                    break Err(failed(format!(
                        "the answer was cut off: {} has said nothing for {limit} s (idle_timeout_s)",
                        server.name
                    )));
                }
            };
        };
        if let Err(error) = ended {
            out.flush_thoughts().await?;
            return Err(error.into());
        }
        let end = answer.end(&mut parts);
        out.pass_on(&mut parts).await?;
        out.flush_thoughts().await?;
        end.map_err(|fault| self.faulty(&fault, server))?;
        let _ = timeout(CONNECTION_END, async { while let Ok(Some(_)) = response.chunk().await {} }).await;
        Ok(())
    }

    fn faulty(&self, fault: &Fault, server: &Server) -> AgentError {
        failed(format!("{}: {}", server.name, self.key.excerpt(&fault.to_string())))
    }
}

impl Miss {
    fn ended(message: String) -> Self {
        Self { failure: Failure::Final, message, is_about_usage: false }
    }
}

fn failed(message: impl std::fmt::Display) -> AgentError {
    AgentError::exception(format!("openai: {message}"))
}

/// A number in [0, 1) that is another one each time.
fn uniform() -> f64 {
    // The bits that a random UUID leaves free of its version: 32 are plenty to spread pauses.
    let (bits, ..) = uuid::Uuid::new_v4().as_fields();
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

/// What of an answer goes to the host's loop, in order.
struct Out<'a> {
    sink: &'a Sink,
    thoughts: Thoughts,
    key: &'a ApiKey,
}

impl Out<'_> {
    async fn pass_on(&mut self, parts: &mut Vec<Part>) -> Result<(), TurnOver> {
        let mut text = String::new();
        for part in parts.drain(..) {
            if let Part::Text(more) = part {
                self.flush_thoughts().await?;
                text.push_str(&more);
                continue;
            }
            self.flush_text(&mut text).await?;
            match part {
                Part::Text(_) => {}
                Part::Thought(thought) => {
                    if self.thoughts.push(&thought) {
                        self.flush_thoughts().await?;
                    }
                }
                Part::Usage { input, output, total } => {
                    self.flush_thoughts().await?;
                    self.sink.event(&EventBody::Usage { input, output, total, calls: 1 }).await?;
                }
                Part::Note(text) => {
                    self.flush_thoughts().await?;
                    self.sink.event(&EventBody::Status { text: self.key.redact(&text) }).await?;
                }
            }
        }
        self.flush_text(&mut text).await
    }

    async fn flush_text(&mut self, text: &mut String) -> Result<(), TurnOver> {
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(MAX_DELTA_BYTES));
            self.sink.delta(piece).await?;
            rest = later;
        }
        text.clear();
        Ok(())
    }

    async fn flush_thoughts(&mut self) -> Result<(), TurnOver> {
        let text = self.thoughts.take();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(MAX_DELTA_BYTES));
            self.sink.event(&EventBody::Thought { text: piece.to_owned() }).await?;
            rest = later;
        }
        Ok(())
    }
}
