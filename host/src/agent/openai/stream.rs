//! An answer on its way from the server's connection to the host's loop.

use super::answer::{Answer, Fault, Part};
use super::key::ApiKey;
use super::thoughts::Thoughts;
use super::{Stopped, failed};
use crate::turn::AgentError;
use crate::turn::context::{Sink, TurnOver};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use turnhost_protocol::frame::EventBody;

/// Longest delta: a longer text is passed on in pieces, so that it does not crowd out those of other turns.
const MAX_DELTA_BYTES: usize = 16 * 1024;
/// What the tokens and the end of a stream may take after its text is whole.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Where the bytes of an answer come from.
pub(super) trait Body: Send {
    /// The next bytes; `None` at the end. Cancel safe. The error is for people.
    fn piece(&mut self) -> impl Future<Output = Result<Option<Vec<u8>>, String>> + Send;
}

/// What passing on an answer needs.
pub(super) struct Stream<'a> {
    pub(super) sink: &'a Sink,
    pub(super) key: &'a ApiKey,
    /// The server's name, for people.
    pub(super) server: &'a str,
    pub(super) idle_timeout: Duration,
}

impl Stream<'_> {
    /// Passes an answer on as it comes, `first` before the rest of `body`.
    pub(super) async fn pass_on(
        &self,
        mut answer: Answer,
        first: Option<Vec<u8>>,
        body: &mut impl Body,
    ) -> Result<(), Stopped> {
        let mut out = Out { sink: self.sink, thoughts: Thoughts::default(), key: self.key };
        let mut parts = Vec::new();
        let mut piece = first;
        let ended = loop {
            let Some(bytes) = piece else { break Ok(()) };
            let fed = answer.feed(&bytes, &mut parts);
            out.pass_on(&mut parts).await?;
            if let Err(fault) = fed {
                break Err(self.faulty(&fault));
            }
            if answer.is_done() {
                break Ok(());
            }
            let patience = if answer.is_whole() { LAST_WORDS } else { self.idle_timeout };
            let until = Instant::now() + patience;
            let next = loop {
                tokio::select! {
                    next = timeout_at(until, body.piece()) => break next,
                    () = out.thoughts.due() => out.flush_thoughts().await?,
                }
            };
            piece = match next {
                Ok(Ok(piece)) => piece,
                // What is missing is only the count of tokens.
                Ok(Err(_)) | Err(_) if answer.is_whole() => None,
                Ok(Err(problem)) => break Err(failed(format!("the answer was cut off: {problem}"))),
                Err(_) => {
                    let limit = self.idle_timeout.as_secs_f64();
                    break Err(failed(format!(
                        "the answer was cut off: {} has said nothing for {limit} s (idle_timeout_s)",
                        self.server
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
        end.map_err(|fault| self.faulty(&fault).into())
    }

    fn faulty(&self, fault: &Fault) -> AgentError {
        failed(format!("{}: {}", self.server, self.key.excerpt(&fault.to_string())))
    }
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
        let text = self.key.redact(&self.thoughts.take());
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(MAX_DELTA_BYTES));
            self.sink.event(&EventBody::Thought { text: piece.to_owned() }).await?;
            rest = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
