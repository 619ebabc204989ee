//! The compute host.
#![warn(missing_docs)]

pub mod agent;
mod sys;
pub mod turn;

pub use turn::{Agent, AgentError, AgentResult, Agents, Answer, AsyncAgent, BlockingAgent, TurnFuture};
