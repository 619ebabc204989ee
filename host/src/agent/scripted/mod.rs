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
//! let agents = turnhost_host::agent::builtin(Some(script));
//! assert_eq!(agents.default_name(), Some("scripted"));
//! # Ok::<(), turnhost_host::agent::scripted::ScriptError>(())
//! ```

mod play;
mod script;

pub use script::{Script, ScriptError, parse_script};

use crate::turn::context::TurnContext;
use crate::turn::{AgentError, AsyncAgent, TurnFuture};
use std::sync::Arc;
use std::time::Duration;

/// Deltas of a turn that has no script and does not say how many.
const DEFAULT_DELTA_COUNT: i64 = 24;
/// Seconds between them.
const DEFAULT_DELAY_S: f64 = 0.001;

/// The `scripted` agent.
#[derive(Debug, Default)]
pub struct Scripted {
    default_script: Option<Arc<Script>>,
}

impl Scripted {
    /// With the script of turns that bring none; without one such turns stream numbered chunks.
    pub fn new(default_script: Option<Script>) -> Self {
        Self { default_script: default_script.map(Arc::new) }
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
                (None, None) => {
                    let count = turn.frame.delta_count.unwrap_or(DEFAULT_DELTA_COUNT);
                    let delay = seconds(turn.frame.delay_s.unwrap_or(DEFAULT_DELAY_S));
                    play::numbered_chunks(turn, u64::try_from(count).unwrap_or(0), delay).await
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
