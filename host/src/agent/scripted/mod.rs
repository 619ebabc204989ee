//! `scripted`: an agent that does exactly what it is told, for tests, demonstrations and harnesses.
//!
//! `docs/scripted.md` is the manual of its scripts.
//!
//! # Example
//! ```
//! use turnhost_host::agent::scripted::parse_script;
//!
//! let script = parse_script(
//!     r#"
//!     {"delta":"looking…\n"}
//!     {"event":{"kind":"tool_call","tool_call_id":"t1","name":"terminal","title":"ls","args":{},"status":"running"}}
//!     {"sleep_ms":200}
//!     {"deltas":1000,"bytes":64}
//!     {"ask":{"command":"rm -r build","choices":["once","deny"]}}
//!     {"stdout":"a stray print, not even UTF-8: \\xff\n"}
//!     {"error":"the model went away"}
//!     "#,
//! )?;
//! assert_eq!(script.len(), 7);
//! let agents = turnhost_host::agent::builtin(Some(script), &Default::default());
//! assert_eq!(agents.default_name(), Some("scripted"));
//! # Ok::<(), turnhost_host::agent::scripted::ScriptError>(())
//! ```

mod play;
mod script;

pub use script::{Script, ScriptError, parse_script};

use crate::turn::context::{Purpose, TurnContext};
use crate::turn::{AgentError, Answer, AsyncAgent, TurnFuture};
use std::sync::Arc;
use std::time::Duration;

/// Deltas of a turn that has no script and does not say how many.
pub(crate) const DEFAULT_DELTA_COUNT: u64 = 24;
/// Pause between them.
pub(crate) const DEFAULT_DELAY: Duration = Duration::from_millis(1);

/// The `scripted` agent.
#[derive(Debug)]
pub struct Scripted {
    default_script: Option<Arc<Script>>,
    delta_count: u64,
    delay: Duration,
}

impl Default for Scripted {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Scripted {
    /// With the script of turns that bring none; without one such turns stream numbered chunks.
    pub fn new(default_script: Option<Script>) -> Self {
        let default_script = default_script.map(Arc::new);
        Self { default_script, delta_count: DEFAULT_DELTA_COUNT, delay: DEFAULT_DELAY }
    }

    /// With other defaults for the chunks of turns that have no script and do not say: how many, and the pause between
    /// them.
    #[must_use]
    pub fn with_chunks(self, delta_count: Option<u64>, delay: Option<Duration>) -> Self {
        Self {
            delta_count: delta_count.unwrap_or(self.delta_count),
            delay: delay.unwrap_or(self.delay),
            ..self
        }
    }
}

impl AsyncAgent for Scripted {
    fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
        Box::pin(async move {
            match (&turn.frame.script, &self.default_script) {
                (Some(raw), _) => {
                    let script = script::read_script(raw)
                        .map_err(|error| AgentError::bad_request(error.to_string()))?;
                    play::script(turn, &script).await
                }
                (None, Some(script)) => play::script(turn, script).await,
                (None, None) if turn.purpose == Purpose::Summary => {
                    let text = format!("{}:summary of {} bytes", turn.sid, turn.prompt.len());
                    let _ = turn.sink.delta(text).await;
                    Ok(Answer { text: None, interrupted: turn.interrupt.is_set() })
                }
                (None, None) => {
                    let count = turn.frame.delta_count.map(|count| u64::try_from(count).unwrap_or(0));
                    let delay = turn.frame.delay_s.map(seconds);
                    let (count, delay) = (count.unwrap_or(self.delta_count), delay.unwrap_or(self.delay));
                    play::numbered_chunks(turn, count, delay).await
                }
            }
        })
    }
}

/// Seconds as a duration; negative ones are none, and too many are as long as can be.
fn seconds(seconds: f64) -> Duration {
    if seconds > 0.0 { Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests;
