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
mod call;
mod client;
mod key;
mod request;
mod retry;
mod sse;
mod stream;
mod text;
mod thoughts;

use crate::turn::context::{TurnContext, TurnOver};
use crate::turn::{AgentError, AgentResult, Answer, AsyncAgent, TurnFuture};
use call::{Begun, Call};
use client::Clients;
use key::ApiKey;
use request::{Options, Server};
use std::time::Duration;
use stream::Stream;
use tokio::time::timeout;
use turnhost_protocol::frame::EventBody;

/// What the end of a connection may take after `[DONE]`, so that it can serve the next turn.
const CONNECTION_END: Duration = Duration::from_millis(20);

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
        Self::new(std::env::var(crate::config::API_KEY).ok())
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
        let call =
            Call { turn, options: &options, server: &server, model: &model, client: &client, key: &self.key };
        let Begun { mut response, answer, first } = call.begin().await?;
        let mut body = client::Body { response: &mut response, server: &server.name };
        let stream = Stream {
            sink: &turn.sink,
            key: &self.key,
            server: &server.name,
            idle_timeout: options.idle_timeout,
        };
        stream.pass_on(answer, first, &mut body).await?;
        let _ = timeout(CONNECTION_END, async { while let Ok(Some(_)) = response.chunk().await {} }).await;
        Ok(())
    }
}

fn failed(message: impl std::fmt::Display) -> AgentError {
    AgentError::exception(format!("openai: {message}"))
}
