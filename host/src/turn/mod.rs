//! What an agent is, and what it is given for one turn.

pub mod context;
pub(crate) mod pool;
pub(crate) mod table;
pub(crate) mod threads;

use crate::context_engine::{ContextEngine, HeadAndTail};
use crate::turn::context::TurnContext;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use turnhost_protocol::FailReason;

/// The future of one turn.
pub type TurnFuture<'a> = Pin<Box<dyn Future<Output = AgentResult> + Send + 'a>>;

/// What a turn gave.
pub type AgentResult = Result<Answer, AgentError>;

/// An agent that awaits: it runs as a task, and many fit on few threads. A panic is that turn's `exception`.
pub trait AsyncAgent: Send + Sync + 'static {
    /// Runs one turn. It should end soon after [`TurnContext::interrupt`] is set; 10 s later its processes are
    /// killed and the turn is ended without it.
    fn run(&self, turn: TurnContext) -> TurnFuture<'_>;
}

/// An agent that blocks: each turn has a named thread (`turn-N`) to itself, kept for later turns. A panic is that turn's
/// `exception`.
pub trait BlockingAgent: Send + Sync + 'static {
    /// Runs one turn; see [`AsyncAgent::run`].
    ///
    /// # Errors
    /// [`AgentError`] becomes the turn's `turn.error`.
    fn run(&self, turn: TurnContext) -> AgentResult;
}

/// A turn that came to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The whole answer. `None`: the concatenation of the deltas.
    pub text: Option<String>,
    /// True if the agent stopped because it was told to.
    pub interrupted: bool,
}

/// A turn that failed. The history keeps the prompt and what was streamed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    /// `exception`, `agent_exit`, or `bad_request` (the frame's options for the agent are wrong; nothing was run, so
    /// the history does not change).
    pub reason: FailReason,
    /// A lowercase fragment for people.
    pub message: String,
    /// Exit code of the agent's program.
    pub exit_code: Option<i32>,
    /// Signal that ended the agent's program.
    pub signal: Option<i32>,
    /// Last lines of its stderr, each bounded.
    pub stderr_tail: Vec<String>,
}

impl AgentError {
    /// An `exception` with this message.
    pub fn exception(message: impl Into<String>) -> Self {
        Self::with_reason(FailReason::Exception, message)
    }

    /// A `bad_request` with this message: the options for the agent are wrong, and nothing was run.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::with_reason(FailReason::BadRequest, message)
    }

    fn with_reason(reason: FailReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), exit_code: None, signal: None, stderr_tail: Vec::new() }
    }
}

/// One registered agent.
#[derive(Clone)]
pub enum Agent {
    /// Runs as a task.
    Async(Arc<dyn AsyncAgent>),
    /// Runs on a thread.
    Blocking(Arc<dyn BlockingAgent>),
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Agent::Async(_) => "Agent::Async",
            Agent::Blocking(_) => "Agent::Blocking",
        })
    }
}

/// The agents of a host, by name, and the one that turns get which name none; and what compresses histories.
#[derive(Clone)]
pub struct Agents {
    by_name: BTreeMap<String, Agent>,
    default: Option<String>,
    context_engine: Arc<dyn ContextEngine>,
}

impl Default for Agents {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), default: None, context_engine: Arc::new(HeadAndTail) }
    }
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { by_name, default, context_engine: _ } = self;
        f.debug_struct("Agents").field("by_name", by_name).field("default", default).finish_non_exhaustive()
    }
}

impl Agents {
    /// No agents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an agent that awaits. The first one added is the default.
    #[must_use]
    pub fn with_async(mut self, name: impl Into<String>, agent: impl AsyncAgent) -> Self {
        self.add(name.into(), Agent::Async(Arc::new(agent)));
        self
    }

    /// Adds an agent that blocks. The first one added is the default.
    #[must_use]
    pub fn with_blocking(mut self, name: impl Into<String>, agent: impl BlockingAgent) -> Self {
        self.add(name.into(), Agent::Blocking(Arc::new(agent)));
        self
    }

    /// Makes `name` the agent of turns that name none.
    #[must_use]
    pub fn with_default(mut self, name: impl Into<String>) -> Self {
        self.default = Some(name.into());
        self
    }

    /// Makes `engine` compress the sessions' histories, in place of [`HeadAndTail`].
    #[must_use]
    pub fn with_context_engine(mut self, engine: impl ContextEngine) -> Self {
        self.context_engine = Arc::new(engine);
        self
    }

    /// What compresses the sessions' histories.
    pub(crate) fn context_engine(&self) -> Arc<dyn ContextEngine> {
        Arc::clone(&self.context_engine)
    }

    fn add(&mut self, name: String, agent: Agent) {
        self.default.get_or_insert_with(|| name.clone());
        self.by_name.insert(name, agent);
    }

    /// The name of the default agent.
    pub fn default_name(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// The agent of this name.
    pub fn find(&self, name: &str) -> Option<&Agent> {
        self.by_name.get(name)
    }

    /// Every name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}
