//! The compute host.
#![warn(missing_docs)]

pub mod turn;

pub use turn::{Agent, AgentError, AgentResult, Agents, Answer, AsyncAgent, BlockingAgent, TurnFuture};
