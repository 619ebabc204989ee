//! A host with an agent of your own. Drive it as any other host:
//!
//! ```sh
//! cargo build --bins --examples
//! target/debug/turnhost supervise --no-registry -- target/debug/examples/own_agent
//! {"id":"1","op":"submit_turn","sid":"s","text":"what is left of a bottle of beer"}
//! ```

use std::process::ExitCode;
use turnhost_host::turn::context::TurnContext;
use turnhost_host::{AgentError, AgentResult, Agents, Answer, AsyncAgent, TurnFuture};

/// Answers with the words of the prompt in reverse, one by one.
struct Backwards;

impl AsyncAgent for Backwards {
    // One call is one turn. Turns of other sessions run at the same time.
    fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
        Box::pin(backwards(turn))
    }
}

async fn backwards(turn: TurnContext) -> AgentResult {
    if turn.prompt.trim().is_empty() {
        // The turn ends with turn.error; the session and the host live on. A panic would come to the same.
        return Err(AgentError::exception("there are no words in the prompt"));
    }
    for word in turn.prompt.split_whitespace().rev() {
        if turn.interrupt.is_set() {
            return Ok(Answer { interrupted: true, ..Answer::default() });
        }
        // Waits while the reader is slow. An error means that the turn is over: stop.
        if turn.sink.delta(format!("{word} ")).await.is_err() {
            break;
        }
    }
    // No text: the answer is what was streamed.
    Ok(Answer::default())
}

fn main() -> anyhow::Result<ExitCode> {
    // stdout belongs to the protocol from here on: what is printed goes to stderr.
    turnhost_host::run(Agents::new().with_async("backwards", Backwards))
}
