//! `scripted`: an agent that does exactly what it is told, for tests, demonstrations and harnesses.
//!
//! Without a script it streams `delta_count` (24; a negative one counts as 0) chunks
//! `"<sid>:<prompt>:<index, 4 digits> "`, `delay_s` (0.001; 0 or less = none) seconds after each. The answer is what
//! was streamed, with `[interrupted]` at its end if the turn was interrupted.
//!
//! A **script** replaces that: the list in the frame's `script`, else the one that the host was started with
//! (`--script FILE`). It is read as a whole before anything runs; a mistake in it ends the turn with `bad_request`,
//! and the message names the step and the field. Each step is an object with exactly one of these fields:
//!
//! | step | does |
//! |---|---|
//! | `{"delta":"text"}` | streams the text |
//! | `{"deltas":N,"bytes":B,"delay_ms":D}` | streams N deltas of exactly B bytes (16), D ms (0) after each: the index in 8 digits, a space, then `.` to the length, cut at B |
//! | `{"sleep_ms":N}` | waits |
//! | `{"event":{"kind":…}}` | sends the event as it is; `type`, `sid`, `request_id`, `seq` and `host_ns` are the host's |
//! | `{"ask":{"command":…,"description":"","choices":[],"timeout_ms":300000,"allow_permanent":false}}` | asks a person and waits; then streams `[approval: CHOICE]`, or `[approval: denied]` if nobody chose in time. No `choices`: `once`, `session`, `deny` |
//! | `{"stdout":"raw"}`, `{"stderr":"raw"}` | writes to the process's descriptor 1 or 2, as a stray print would |
//! | `{"raw_frame":"raw"}` | writes to the protocol's stdout past every check, in order with the turn's deltas; no newline is added |
//! | `{"error":"msg"}` | ends the turn with this `exception` |
//! | `{"panic":"msg"}` | panics |
//! | `{"exit":N}` | ends the process at once with this code (0 to 255), once what was streamed is written (1 s at most) |
//! | `{"signal":"SEGV"}` | the same by a signal with its default disposition; the script goes on after one that by default ends nothing |
//! | `{"hang":true}` | never goes on, not even when interrupted |
//! | `{"spin_ms":N}` | burns a processor and keeps its thread, deaf to interrupts |
//! | `{"alloc_mb":N}` | takes and touches N MiB, held until the turn ends |
//! | `{"spawn":["prog","arg"],"detach":false}` | starts a program (stdin, stdout and stderr from and to /dev/null) and goes on; it may outlive the turn. `detach`: in a session of its own |
//!
//! In `raw` texts `\xNN` (in JSON: `\\xNN`) stands for a byte; any other backslash stands for itself. All but `hang` and
//! `spin_ms` end at once when the turn is interrupted, and later steps do not run. A step never depends on chance or on
//! the clock: the same script gives the same deltas and events.
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
