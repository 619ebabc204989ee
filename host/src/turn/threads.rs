//! Named threads (`turn-N`) for agents that block. Made when a turn needs one, kept for the next turn, and never waited
//! for: a thread that does not come back holds up neither a later turn nor the end of the host.

use crate::turn::context::TurnContext;
use crate::turn::{AgentResult, BlockingAgent};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Threads beyond the workers, for turns that were ended without their agent: their threads cannot be ended.
pub(crate) const SPARE_THREADS: usize = 64;
/// Threads that one process can hope for, whatever the worker setting.
const MOST_THREADS: usize = 32 * 1024;

/// One turn for a thread.
struct Job {
    agent: Arc<dyn BlockingAgent>,
    context: TurnContext,
    /// The result, or the text of a panic.
    reply: oneshot::Sender<Result<AgentResult, String>>,
}

/// The threads of one host; every clone is a handle on the same ones. Dropping the last handle ends those that are
/// idle; one that is busy ends after its turn.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    jobs: Sender<Job>,
    queue: Receiver<Job>,
    /// Threads that have no turn and that no job in the queue is meant for.
    idle: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
    most: usize,
    runtime: Handle,
}

impl Threads {
    /// No threads yet; for `workers` turns and as many summaries at once. Agents find `runtime` as the current one.
    pub(crate) fn new(workers: usize, runtime: Handle) -> Self {
        let most = workers.min(MOST_THREADS).saturating_mul(2) + SPARE_THREADS;
        // A job is sent only when a thread is free for it, so there are never more jobs than threads.
        let (jobs, queue) = bounded(most);
        Self { jobs, queue, idle: Arc::default(), made: Arc::default(), most, runtime }
    }

    /// Gives a turn to an idle thread, or to a new one. Does not block.
    ///
    /// # Errors
    /// Why there is no thread for it: every one is busy and no more may be made, or the system gives none.
    pub(crate) fn run(
        &self,
        agent: Arc<dyn BlockingAgent>,
        context: TurnContext,
    ) -> Result<oneshot::Receiver<Result<AgentResult, String>>, String> {
        let claimed = self.idle.fetch_update(Ordering::AcqRel, Ordering::Acquire, |idle| idle.checked_sub(1));
        if claimed.is_err() {
            self.make_thread()?;
        }
        let (reply, result) = oneshot::channel();
        match self.jobs.try_send(Job { agent, context, reply }) {
            Ok(()) => Ok(result),
            Err(_) => Err("the queue of the turn threads is full".to_owned()),
        }
    }

    fn make_thread(&self) -> Result<(), String> {
        let number = self
            .made
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |made| (made < self.most).then_some(made + 1))
            .map_err(|made| {
                format!(
                    "no thread left for the turn: all {made} are held, also by agents that did not end when they were told to"
                )
            })?;
        let (queue, idle, runtime) = (self.queue.clone(), Arc::clone(&self.idle), self.runtime.clone());
        let started = std::thread::Builder::new().name(format!("turn-{}", number + 1)).spawn(move || {
            let _entered = runtime.enter();
            work(&queue, &idle);
        });
        if let Err(error) = started {
            self.made.fetch_sub(1, Ordering::AcqRel);
            return Err(format!(
                "no thread for the turn ({error}); the machine may be short of processes or memory"
            ));
        }
        Ok(())
    }
}

fn work(queue: &Receiver<Job>, idle: &AtomicUsize) {
    for Job { agent, context, reply } in queue {
        let result = catch_unwind(AssertUnwindSafe(|| agent.run(context))).map_err(text_of);
        // An agent's last owner may be this thread, and its drop may panic as well.
        drop_quietly(agent);
        // Idle before the result is known, so that the turn that follows finds this thread.
        idle.fetch_add(1, Ordering::AcqRel);
        // Nobody waits for a turn that was ended without its agent.
        let _ = reply.send(result);
    }
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = super::pool::panic_text(&*panic, "agent");
    drop_quietly(panic);
    text
}

fn drop_quietly(dropped: impl Sized) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(dropped))) {
        // Whatever panics when it is dropped is not tried again.
        std::mem::forget(again);
    }
}

#[cfg(test)]
mod tests;
