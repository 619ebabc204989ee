//! The call up to the first byte of its answer: here, and only here, it may be made again.

use super::key::ApiKey;
use super::request::{self, Options, Server};
use super::retry::{self, Decision, Failure};
use super::{Stopped, answer, client, failed};
use crate::turn::AgentError;
use crate::turn::context::TurnContext;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Client, Request, Response, StatusCode};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, timeout, timeout_at};
use turnhost_protocol::frame::EventBody;

/// Bytes taken of an error's body.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// What an error's body may take to come.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Everything that the calls of one turn have in common.
pub(super) struct Call<'a> {
    pub(super) turn: &'a TurnContext,
    pub(super) options: &'a Options,
    pub(super) server: &'a Server,
    pub(super) model: &'a str,
    pub(super) client: &'a Client,
    pub(super) key: &'a ApiKey,
}

/// An answer whose first byte, or end, has come.
pub(super) struct Begun {
    pub(super) response: Response,
    pub(super) answer: answer::Answer,
    pub(super) first: Option<Vec<u8>>,
}

/// One call that failed.
struct Miss {
    failure: Failure,
    message: String,
    /// The server does not know the option that asks for the count of tokens.
    is_about_usage: bool,
}

impl Call<'_> {
    /// Calls until an answer begins.
    pub(super) async fn begin(&self) -> Result<Begun, Stopped> {
        let mut asks_usage = self.options.stream;
        let mut request = self.request(asks_usage)?;
        let mut made = 0;
        loop {
            let Some(again) = request.try_clone() else {
                return Err(failed("the call cannot be repeated").into());
            };
            made += 1;
            let miss = match self.attempt(again).await {
                Ok(begun) => return Ok(begun),
                Err(miss) => miss,
            };
            if miss.is_about_usage && asks_usage {
                // Some servers refuse what they do not know. The same call without it is no attempt of its own.
                asks_usage = false;
                made -= 1;
                request = self.request(asks_usage)?;
                continue;
            }
            match retry::decide(miss.failure, made, self.options.max_attempts, uniform()) {
                Decision::Again(pause) => {
                    let (next, of) = (made + 1, self.options.max_attempts);
                    let text = format!(
                        "{}; trying again in {:.1} s (attempt {next} of {of})",
                        miss.message,
                        pause.as_secs_f64()
                    );
                    self.turn.sink.event(&EventBody::Status { text: self.key.redact(&text) }).await?;
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

    fn request(&self, asks_usage: bool) -> Result<Request, AgentError> {
        let body = request::body(
            self.model,
            self.turn.system_prompt.as_deref(),
            &self.turn.history,
            &self.turn.prompt,
            self.options.stream,
            asks_usage,
        )
        .map_err(|error| failed(format!("the call cannot be written: {error}")))?;
        let mut call = self
            .client
            .post(self.server.url.clone())
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
        call.build().map_err(|error| failed(client::describe(&error, &self.server.name)))
    }

    /// One call, up to the first byte of its answer.
    async fn attempt(&self, request: Request) -> Result<Begun, Miss> {
        let first_byte = Instant::now() + self.options.first_byte_timeout;
        let silent = || {
            let limit = self.options.first_byte_timeout.as_secs_f64();
            Miss::ended(format!(
                "{} has not answered within {limit} s (first_byte_timeout_s)",
                self.server.name
            ))
        };
        let broken = |error: reqwest::Error| Miss {
            failure: if client::is_final(&error) { Failure::Final } else { Failure::Connection },
            message: client::describe(&error, &self.server.name),
            is_about_usage: false,
        };
        let response = timeout_at(first_byte, self.client.execute(request)).await.map_err(|_| silent())?;
        let mut response = response.map_err(broken)?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let answer = answer::Answer::new(kind);
        answer
            .check_length(response.content_length())
            .map_err(|fault| Miss::ended(format!("{}: {fault}", self.server.name)))?;
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
    async fn refused(&self, mut response: Response) -> Miss {
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
            message: format!("{} answered {status}{said}{advice}", self.server.name),
            is_about_usage,
        }
    }

    fn advice(&self, status: StatusCode, location: Option<&str>) -> String {
        match status.as_u16() {
            300..=399 => {
                // Its query and user name are nobody's business.
                let place = location.and_then(|place| self.server.url.join(place).ok());
                let place = place.map_or_else(
                    || "another place".to_owned(),
                    |place| {
                        self.key.excerpt(&format!("{}{}", place.origin().ascii_serialization(), place.path()))
                    },
                );
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
}

impl Miss {
    fn ended(message: String) -> Self {
        Self { failure: Failure::Final, message, is_about_usage: false }
    }
}

/// A number in [0, 1) that is another one each time.
fn uniform() -> f64 {
    // The bits that a random UUID leaves free of its version: 32 are plenty to spread pauses.
    let (bits, ..) = uuid::Uuid::new_v4().as_fields();
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
