//! The compute host: runs an agent's turns behind line-delimited JSON frames on stdin and stdout.
//!
//! # Threads, and who owns what
//! - `host-io` is the loop. It alone owns stdin, stdout, the sessions and every deadline, and never blocks. A session's
//!   history changes here and nowhere else.
//! - `host-turns` threads run the agents that await, as tasks; `turn-N` threads run those that block, one turn each. An
//!   agent gets a snapshot ([`TurnContext`](turn::context::TurnContext)) and sends back; it never holds a session.
//! - `host-log` writes log lines to stderr, which may be a pipe that nobody reads.
//! - `host-stdin` and `host-stdout` exist only where those are a file or a terminal, which no reactor can wait for.
//!
//! Commands go one way (stdin, loop, agent) and everything else the other way (agent, loop, stdout). A slow reader of
//! stdout slows the agents by a budget of bytes that they share; it never slows the loop, so an interrupt is acted on
//! while the pipe is full.
//!
//! # An agent of your own
//! ```
//! use turnhost_host::turn::context::TurnContext;
//! use turnhost_host::{Agents, Answer, AsyncAgent, HostOptions, TurnFuture};
//!
//! struct Shout;
//!
//! impl AsyncAgent for Shout {
//!     fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
//!         Box::pin(async move {
//!             for word in turn.prompt.split_whitespace() {
//!                 if turn.interrupt.is_set() {
//!                     return Ok(Answer { interrupted: true, ..Answer::default() });
//!                 }
//!                 // An error says that the turn is over; there is nobody left to answer.
//!                 if turn.sink.delta(word.to_uppercase()).await.is_err() {
//!                     break;
//!                 }
//!             }
//!             Ok(Answer::default())
//!         })
//!     }
//! }
//!
//! // A real host's `main` is `turnhost_host::run(Agents::new().with_async("shout", Shout))`. Here the same host
//! // speaks over memory instead of stdin and stdout.
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
//!
//! let home = tempfile::tempdir()?;
//! let options = HostOptions { home: home.path().to_owned(), ..HostOptions::default() };
//! let (mut to_host, stdin) = tokio::io::duplex(4096);
//! let (stdout, from_host) = tokio::io::duplex(4096);
//! let host = tokio::spawn(turnhost_host::serve(
//!     Agents::new().with_async("shout", Shout),
//!     options,
//!     stdin,
//!     stdout,
//! ));
//! to_host.write_all(b"{\"type\":\"turn.start\",\"sid\":\"s\",\"request_id\":\"t\",\"text\":\"hello you\"}\n").await?;
//! let mut lines = BufReader::new(from_host).lines();
//! let mut answer = None;
//! while let Some(line) = lines.next_line().await? {
//!     let frame: serde_json::Value = serde_json::from_str(&line)?;
//!     if frame["type"] == "turn.end" {
//!         answer = Some(frame["final_response"].clone());
//!         break;
//!     }
//! }
//! assert_eq!(answer, Some("HELLOYOU".into()));
//! drop((to_host, lines));
//! host.await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

pub mod agent;
pub mod config;
pub mod context_engine;
pub mod options;
pub mod turn;

mod approval;
mod event;
mod host;
mod io;
mod memory;
mod parent;
mod process;
mod reap;
mod rpc;
mod runtime;
mod session;
mod stop;
mod sys;

pub use context_engine::ContextEngine;
pub use options::{HostArgs, HostOptions};
pub use process::{compute_host, log_to_stderr, run, run_builtin, run_with};
pub use turn::{Agent, AgentError, AgentResult, Agents, Answer, AsyncAgent, BlockingAgent, TurnFuture};

use tokio::io::{AsyncRead, AsyncWrite};

/// Runs a host over any two streams until it stops: at the end of `input`, after a `shutdown` frame, or when `output`
/// fails. For tests, and for programs that hold a host inside.
///
/// Unlike [`run`] it changes nothing of the process: no signals, no parent guard, no reaping of orphans. Agents run on
/// the runtime that awaits this. Log and saved sessions go to [`HostOptions::home`].
pub async fn serve(
    agents: Agents,
    options: HostOptions,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) {
    let (_open, outside) = tokio::sync::mpsc::channel(1);
    let agents_on = tokio::runtime::Handle::current();
    let surroundings = runtime::Surroundings { agents_on, outside, owns_process: false, process_guard: None };
    runtime::run(agents, options, input, output, surroundings).await;
}
