//! Where turns run: agents that await as tasks on a runtime beside the loop's own, agents that block on [`Threads`].
//! Each job yields exactly one [`Finished`], also after a panic, because the set owns its end.

use crate::config::Config;
use crate::context_engine::{
    Compression, CompressionError, CompressionRequest, ContextEngine, SessionBoundary,
};
use crate::turn::threads::Threads;
use crate::turn::{Agent, AgentError, AgentResult, context::TurnContext};
use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, Id, JoinSet};

/// What a job was, for those that panic.
#[derive(Debug, Clone, Copy)]
enum Job {
    /// An accepted turn.
    Turn(u64),
    /// A control's file.
    Save(u64),
    /// A control's look at the config.
    Config(u64),
    /// A control's compression.
    Compress(u64),
    /// The news of a compression, to its engine.
    Notify(u64),
    /// The end of a turn's processes.
    Kill,
}

/// A job that is over.
#[derive(Debug)]
pub(crate) enum Finished {
    /// The turn ended; the message of a panic is an error.
    Turn(u64, Result<AgentResult, String>),
    /// The file was written, or not.
    Save(u64, std::io::Result<PathBuf>),
    /// The config was read, or not.
    Config(u64, Result<Config, String>),
    /// The engine is done; a panic is an error.
    Compress(u64, Result<Compression, CompressionError>),
    /// The engine was told; the message of a panic is an error.
    Notify(u64, Result<(), String>),
    /// Nothing to be told.
    Nothing,
}

/// The jobs of a host.
#[derive(Debug)]
pub(crate) struct Pool {
    jobs: JoinSet<Finished>,
    names: HashMap<Id, Job>,
    threads: Threads,
    runtime: Handle,
}

impl Pool {
    /// A pool for `workers` turns at once, whose jobs run on `runtime`.
    pub(crate) fn new(workers: usize, runtime: Handle) -> Self {
        let threads = Threads::new(workers, runtime.clone());
        Self { jobs: JoinSet::new(), names: HashMap::new(), threads, runtime }
    }

    /// The threads of agents that block.
    pub(crate) fn threads(&self) -> Threads {
        self.threads.clone()
    }

    /// Gives a turn to its agent. The handle ends an agent that awaits; one that blocks is left behind by it.
    pub(crate) fn start(&mut self, turn: u64, agent: Agent, context: TurnContext) -> AbortHandle {
        match agent {
            Agent::Async(agent) => {
                self.spawn(Job::Turn(turn), async move { Finished::Turn(turn, Ok(agent.run(context).await)) })
            }
            Agent::Blocking(agent) => {
                let running = self.threads.run(agent, context);
                self.spawn(Job::Turn(turn), async move {
                    let result = match running {
                        Ok(result) => {
                            result.await.unwrap_or_else(|_| Err("the agent's thread is gone".to_owned()))
                        }
                        Err(problem) => Err(problem),
                    };
                    let result = result.unwrap_or_else(|problem| Err(AgentError::exception(problem)));
                    Finished::Turn(turn, Ok(result))
                })
            }
        }
    }

    /// Asks the engine for a shorter history. The handle ends the engine, and with it an agent that awaits.
    pub(crate) fn compress(
        &mut self,
        control: u64,
        engine: Arc<dyn ContextEngine>,
        request: CompressionRequest,
    ) -> AbortHandle {
        self.spawn(Job::Compress(control), async move {
            Finished::Compress(control, engine.compress(request).await)
        })
    }

    /// Tells the engine of a session's new key.
    pub(crate) fn notify(
        &mut self,
        control: u64,
        engine: Arc<dyn ContextEngine>,
        boundary: SessionBoundary,
    ) -> AbortHandle {
        self.spawn(Job::Notify(control), async move {
            engine.on_session_start(boundary).await;
            Finished::Notify(control, Ok(()))
        })
    }

    /// Writes a file on a blocking thread: a slow disk must not stop the loop.
    pub(crate) fn save(
        &mut self,
        control: u64,
        write: impl FnOnce() -> std::io::Result<PathBuf> + Send + 'static,
    ) {
        self.spawn_blocking(Job::Save(control), move || Finished::Save(control, write()));
    }

    /// Reads the config of this home on a blocking thread.
    pub(crate) fn read_config(&mut self, control: u64, home: PathBuf) {
        self.spawn_blocking(Job::Config(control), move || {
            Finished::Config(control, Config::read(&home).map_err(|error| error.to_string()))
        });
    }

    /// Ends processes on a blocking thread.
    pub(crate) fn kill(&mut self, kill: impl FnOnce() + Send + 'static) {
        self.spawn_blocking(Job::Kill, move || {
            kill();
            Finished::Nothing
        });
    }

    fn spawn(&mut self, job: Job, work: impl Future<Output = Finished> + Send + 'static) -> AbortHandle {
        let handle = self.jobs.spawn_on(work, &self.runtime);
        self.names.insert(handle.id(), job);
        handle
    }

    fn spawn_blocking(&mut self, job: Job, work: impl FnOnce() -> Finished + Send + 'static) {
        let handle = self.jobs.spawn_blocking_on(work, &self.runtime);
        self.names.insert(handle.id(), job);
    }

    /// True if no job is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The next job that is over; waits for ever if there is none. May be cancelled.
    pub(crate) async fn next(&mut self) -> Finished {
        let Some(joined) = self.jobs.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let error = match joined {
            Ok((id, finished)) => {
                self.names.remove(&id);
                return finished;
            }
            Err(error) => error,
        };
        match self.names.remove(&error.id()) {
            Some(Job::Turn(turn)) => Finished::Turn(turn, Err(describe(error, "agent"))),
            Some(Job::Save(control)) => {
                Finished::Save(control, Err(std::io::Error::other(describe(error, "host"))))
            }
            Some(Job::Config(control)) => Finished::Config(control, Err(describe(error, "host"))),
            Some(Job::Compress(control)) => {
                Finished::Compress(control, Err(CompressionError::new(describe(error, "context engine"))))
            }
            Some(Job::Notify(control)) => Finished::Notify(control, Err(describe(error, "context engine"))),
            Some(Job::Kill) | None => Finished::Nothing,
        }
    }
}

/// What people read about a task that gave nothing; `who` ran in it.
pub(crate) fn describe(error: tokio::task::JoinError, who: &str) -> String {
    match error.try_into_panic() {
        Ok(panic) => panic_text(&*panic, who),
        Err(_) => format!("the {who} was ended"),
    }
}

/// What people read about a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send), who: &str) -> String {
    let text = panic.downcast_ref::<&'static str>().copied();
    match text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)) {
        Some(text) => format!("the {who} panicked: {text}"),
        None => format!("the {who} panicked"),
    }
}
