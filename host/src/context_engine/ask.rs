//! The session's own agent, asked for a text that is no turn: nothing of it is streamed to the parent.

use super::{CompressionError, CompressionRequest};
use crate::turn::context::{
    ApprovalAnswer, Interrupt, Purpose, Sink, TurnContext, TurnProcesses, Work, WorkItem,
};
use crate::turn::threads::Threads;
use crate::turn::{Agent, AgentError, AgentResult};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use turnhost_protocol::frame::TurnStart;
use turnhost_protocol::{RawJson, RequestId, SessionId};

/// The longest text that is taken from an agent.
pub(crate) const SUMMARY_BYTES: usize = 64 * 1024;
/// Things of the agent that may wait to be looked at.
const WAITING_ITEMS: usize = 64;

/// Everything that one more run of the session's agent needs. Owned by the request.
#[derive(Debug)]
pub(crate) struct SessionAgent {
    /// The compression, as the host's loop numbers it.
    pub(crate) id: u64,
    pub(crate) agent: Agent,
    pub(crate) threads: Threads,
    /// So many such runs at once, of all sessions.
    pub(crate) at_once: Arc<Semaphore>,
    pub(crate) request_id: RequestId,
    pub(crate) cwd: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) provider: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) options: Option<RawJson>,
    pub(crate) processes: TurnProcesses,
    /// To the loop, for what the agent used.
    pub(crate) work: mpsc::Sender<Work>,
}

impl CompressionRequest {
    /// Whether [`CompressionRequest::ask_agent`] has anybody to ask.
    pub fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Lets the session's own agent answer `prompt`, with an empty history and no system prompt, and gives the whole
    /// answer without the white space around it. Its deltas and events go nowhere, its questions are denied, the tokens
    /// it reports count as the session's. Dropping the future ends the agent and its processes.
    ///
    /// # Errors
    /// No agent, an agent that failed, panicked or was interrupted, an empty answer, and one over 64 KiB.
    pub async fn ask_agent(&self, prompt: impl Into<String>) -> Result<String, CompressionError> {
        let agent = self.agent.as_ref().ok_or_else(no_agent)?;
        let _turn = tokio::select! {
            biased;
            turn = agent.at_once.acquire() => turn,
            () = self.interrupt.wait() => return Err(interrupted()),
        };
        let (sender, mut work) = mpsc::channel(WAITING_ITEMS);
        let (stop, flag) = watch::channel(false);
        let stop = StopOnDrop(stop);
        let context = agent.context(&self.sid, self.model.clone(), prompt.into(), sender, flag);
        let mut running = agent.start(context)?;
        let mut text = String::new();
        let mut told = false;
        let result = loop {
            tokio::select! {
                biased;
                ended = running.join_next() => break ended,
                Some(work) = work.recv() => agent.take(work, &mut text).await?,
                () = self.interrupt.wait(), if !told => {
                    told = true;
                    stop.0.send_replace(true);
                }
            }
        };
        while let Ok(work) = work.try_recv() {
            agent.take(work, &mut text).await?;
        }
        let answer = match result {
            Some(Ok(result)) => result.map_err(|error| CompressionError::new(error.message))?,
            Some(Err(error)) => {
                return Err(CompressionError::new(crate::turn::pool::describe(error, "agent")));
            }
            None => return Err(CompressionError::new("the agent is gone")),
        };
        if answer.interrupted || told {
            return Err(interrupted());
        }
        let text = answer.text.unwrap_or(text);
        if text.len() > SUMMARY_BYTES {
            return Err(too_long());
        }
        match text.trim() {
            "" => Err(CompressionError::new("the agent wrote an empty summary")),
            text => Ok(text.to_owned()),
        }
    }
}

/// An agent that is left behind is at least told to stop.
struct StopOnDrop(watch::Sender<bool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl SessionAgent {
    fn context(
        &self,
        sid: &SessionId,
        model: Option<String>,
        prompt: String,
        work: mpsc::Sender<Work>,
        interrupt: watch::Receiver<bool>,
    ) -> TurnContext {
        let frame = TurnStart {
            sid: Some(sid.clone()),
            request_id: Some(self.request_id.clone()),
            text: Some(prompt.clone()),
            ..TurnStart::default()
        };
        TurnContext {
            sid: sid.clone(),
            request_id: self.request_id.clone(),
            prompt,
            purpose: Purpose::Summary,
            history: Arc::default(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            model,
            provider: self.provider.clone(),
            // A persona would colour the summary, and every later turn with it.
            system_prompt: None,
            base_url: self.base_url.clone(),
            agent_options: self.options.clone(),
            frame: Arc::new(frame),
            sink: Sink::new(self.id, work),
            interrupt: Interrupt::new(interrupt),
            processes: self.processes.clone(),
        }
    }

    /// The set ends an agent that awaits when it is dropped.
    fn start(&self, context: TurnContext) -> Result<JoinSet<AgentResult>, CompressionError> {
        let mut running = JoinSet::new();
        match &self.agent {
            Agent::Async(agent) => {
                let agent = Arc::clone(agent);
                running.spawn(async move { agent.run(context).await });
            }
            Agent::Blocking(agent) => {
                let result = self.threads.run(Arc::clone(agent), context).map_err(CompressionError::new)?;
                running.spawn(async move {
                    let ended = result.await.unwrap_or_else(|_| Err("the agent's thread is gone".to_owned()));
                    ended.unwrap_or_else(|problem| Err(AgentError::exception(problem)))
                });
            }
        }
        Ok(running)
    }

    async fn take(&self, work: Work, text: &mut String) -> Result<(), CompressionError> {
        let Work { turn, item, room } = work;
        match item {
            WorkItem::Delta(delta) => {
                if text.len() + delta.len() > SUMMARY_BYTES {
                    return Err(too_long());
                }
                text.push_str(&delta);
            }
            // The loop takes what was used from it; a loop that is gone counts nothing any more.
            WorkItem::Event(body) => {
                let _ = self.work.send(Work { turn, item: WorkItem::Event(body), room }).await;
            }
            WorkItem::RawBytes(_) => {}
            WorkItem::Ask(_, answer) => {
                let _ = answer.send(ApprovalAnswer::Denied);
            }
            WorkItem::Flush(written) => {
                let _ = written.send(());
            }
        }
        Ok(())
    }
}

pub(super) fn no_agent() -> CompressionError {
    CompressionError::new("this session has no agent to write a summary")
}

fn interrupted() -> CompressionError {
    CompressionError::new("interrupted")
}

fn too_long() -> CompressionError {
    CompressionError::new(format!("the summary is over {} KiB", SUMMARY_BYTES / 1024))
}

#[cfg(test)]
mod tests;
