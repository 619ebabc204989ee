//! Where turns run: agents that await as tasks on a runtime beside the loop's own, agents that block on [`Threads`].
//! Each job yields exactly one [`Finished`], also after a panic, because the set owns its end.

use crate::turn::threads::Threads;
use crate::turn::{Agent, AgentError, AgentResult, context::TurnContext};
use std::any::Any;
use std::collections::HashMap;
use std::path::PathBuf;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, Id, JoinSet};

/// What a job was.
#[derive(Debug)]
enum Job {
    /// An accepted turn.
    Turn(u64),
    /// A control's file.
    Save(u64),
    /// The end of a turn's processes.
    Kill,
}

/// What a job gave.
#[derive(Debug)]
enum Output {
    Turn(AgentResult),
    Save(std::io::Result<PathBuf>),
    Kill,
}

/// A job that is over.
#[derive(Debug)]
pub(crate) enum Finished {
    /// The turn ended; the message of a panic is an error.
    Turn(u64, Result<AgentResult, String>),
    /// The file was written, or not.
    Save(u64, std::io::Result<PathBuf>),
    /// Nothing to be told.
    Nothing,
}

/// The jobs of a host.
#[derive(Debug)]
pub(crate) struct Pool {
    jobs: JoinSet<Output>,
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

    /// Gives a turn to its agent. The handle ends an agent that awaits; one that blocks is left behind by it.
    pub(crate) fn start(&mut self, turn: u64, agent: Agent, context: TurnContext) -> AbortHandle {
        let handle = match agent {
            Agent::Async(agent) => {
                self.jobs.spawn_on(async move { Output::Turn(agent.run(context).await) }, &self.runtime)
            }
            Agent::Blocking(agent) => {
                let running = self.threads.run(agent, context);
                let turn = async move {
                    let result = match running {
                        Ok(result) => {
                            result.await.unwrap_or_else(|_| Err("the agent's thread is gone".to_owned()))
                        }
                        Err(problem) => Err(problem),
                    };
                    Output::Turn(result.unwrap_or_else(|problem| Err(AgentError::exception(problem))))
                };
                self.jobs.spawn_on(turn, &self.runtime)
            }
        };
        self.names.insert(handle.id(), Job::Turn(turn));
        handle
    }

    /// Writes a file on a blocking thread: a slow disk must not stop the loop.
    pub(crate) fn save(
        &mut self,
        control: u64,
        write: impl FnOnce() -> std::io::Result<PathBuf> + Send + 'static,
    ) {
        let handle = self.jobs.spawn_blocking_on(move || Output::Save(write()), &self.runtime);
        self.names.insert(handle.id(), Job::Save(control));
    }

    /// Ends processes on a blocking thread.
    pub(crate) fn kill(&mut self, kill: impl FnOnce() + Send + 'static) {
        let work = move || {
            kill();
            Output::Kill
        };
        let handle = self.jobs.spawn_blocking_on(work, &self.runtime);
        self.names.insert(handle.id(), Job::Kill);
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
        let (id, output) = match joined {
            Ok((id, output)) => (id, Ok(output)),
            Err(error) => (error.id(), Err(describe(error))),
        };
        match (self.names.remove(&id), output) {
            (Some(Job::Turn(turn)), Ok(Output::Turn(result))) => Finished::Turn(turn, Ok(result)),
            (Some(Job::Turn(turn)), Err(panic)) => Finished::Turn(turn, Err(panic)),
            (Some(Job::Save(control)), Ok(Output::Save(result))) => Finished::Save(control, result),
            (Some(Job::Save(control)), Err(panic)) => {
                Finished::Save(control, Err(std::io::Error::other(panic)))
            }
            (Some(Job::Kill) | None, Ok(_) | Err(_))
            | (Some(Job::Turn(_) | Job::Save(_)), Ok(Output::Turn(_) | Output::Save(_) | Output::Kill)) => {
                Finished::Nothing
            }
        }
    }
}

fn describe(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => panic_text(&*panic),
        Err(_) => "the agent was ended".to_owned(),
    }
}

/// What people read about a panic of an agent.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&'static str>().copied();
    match text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)) {
        Some(text) => format!("the agent panicked: {text}"),
        None => "the agent panicked".to_owned(),
    }
}
