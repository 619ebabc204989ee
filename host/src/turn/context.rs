//! What an agent is given for one turn: the session as it stood, a sink with back-pressure, the interrupt, and a way
//! to ask a person.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use turnhost_protocol::frame::{EventBody, TurnStart};
use turnhost_protocol::{RawJson, RequestId, SessionId};

/// Everything of one turn. Owned by the agent; the host keeps nothing of it but the other ends.
#[derive(Debug)]
pub struct TurnContext {
    /// The session.
    pub sid: SessionId,
    /// The turn.
    pub request_id: RequestId,
    /// The prompt.
    pub prompt: String,
    /// What the answer is for.
    pub purpose: Purpose,
    /// The session's messages before this turn, oldest first.
    pub history: Arc<Vec<RawJson>>,
    /// Working directory of the turn.
    pub cwd: PathBuf,
    /// Environment variables that the turn's processes get beside the host's own.
    pub env: BTreeMap<String, String>,
    /// The session's model, if one was chosen.
    pub model: Option<String>,
    /// Who serves it, if that was said.
    pub provider: Option<String>,
    /// The session's system prompt with its personality's addition, if there is any.
    pub system_prompt: Option<String>,
    /// Base URL of the model's server as command line, environment and config say; the agent object may name another.
    pub base_url: Option<String>,
    /// The agent object as the frame or the seed gave it.
    pub agent_options: Option<RawJson>,
    /// The frame that started the turn.
    pub frame: Arc<TurnStart>,
    /// Where deltas and events go.
    pub sink: Sink,
    /// Set when the turn should stop.
    pub interrupt: Interrupt,
    /// Pids that belong to this turn; killed with their trees when the turn is ended by force.
    pub processes: TurnProcesses,
}

/// What an agent is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An answer to a person, which the session's history keeps.
    Turn,
    /// A summary that takes the place of messages of the history. Nobody sees what is streamed, questions are denied,
    /// and tools have no business in it.
    Summary,
}

/// What an agent sends to the host's loop. `turn` names the accepted turn and is never used again.
#[derive(Debug)]
pub struct Work {
    /// Which accepted turn.
    pub turn: u64,
    /// What of it.
    pub item: WorkItem,
    /// The bytes that it takes up of what may wait for the pipe; given back when this is dropped.
    pub room: Room,
}

/// Bytes reserved for one [`Work`] until it was written: the last of its frames, if it became several.
#[derive(Debug, Clone)]
pub struct Room {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// Bytes of deltas and events, of all turns together, that may wait for the host's stdout. With the pipe's own 64 KiB
/// this bounds what an interrupted turn still has in front of its end.
pub const WAITING_BYTES: u32 = 64 * 1024;

/// Each item counts as this many bytes at least, so that the number of waiting items is bounded as well.
const ITEM_BYTES: u32 = 64;

/// One thing that an agent did.
#[derive(Debug)]
pub enum WorkItem {
    /// Text of the answer.
    Delta(String),
    /// An event's fields: a JSON object with `kind`.
    Event(RawJson),
    /// Bytes straight to the protocol's stdout, past every check (harnesses only).
    RawBytes(Vec<u8>),
    /// A question to a person.
    Ask(Question, oneshot::Sender<ApprovalAnswer>),
    /// Answered once everything that the turn sent before it was written to stdout. For agents that are about to end
    /// the process, on purpose or not: without it a crash loses deltas that were already streamed.
    Flush(oneshot::Sender<()>),
}

/// The turn was ended without the agent; nothing more of it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the turn is over")]
pub struct TurnOver;

/// Takes deltas and events of one turn. A slow reader of the host's stdout slows the caller, never the host's loop.
#[derive(Debug, Clone)]
pub struct Sink {
    turn: u64,
    work: mpsc::Sender<Work>,
    waiting: Arc<Semaphore>,
    over: Arc<AtomicBool>,
}

impl Sink {
    /// A sink of the turn `turn` that feeds `work`, with [`WAITING_BYTES`] of its own.
    pub fn new(turn: u64, work: mpsc::Sender<Work>) -> Self {
        let waiting = Arc::new(Semaphore::new(WAITING_BYTES as usize));
        Self::sharing(turn, work, waiting, Arc::default())
    }

    /// A sink that shares the bytes of `waiting` with others, and refuses everything once `over` is set.
    pub(crate) fn sharing(
        turn: u64,
        work: mpsc::Sender<Work>,
        waiting: Arc<Semaphore>,
        over: Arc<AtomicBool>,
    ) -> Self {
        Self { turn, work, waiting, over }
    }

    /// Streams a piece of the answer. Waits while the pipe is full.
    ///
    /// # Errors
    /// [`TurnOver`] once the turn has ended.
    pub async fn delta(&self, text: impl Into<String>) -> Result<(), TurnOver> {
        self.send(WorkItem::Delta(text.into())).await
    }

    /// Sends an event. Waits while the pipe is full.
    ///
    /// # Errors
    /// [`TurnOver`] once the turn has ended.
    pub async fn event(&self, body: &EventBody) -> Result<(), TurnOver> {
        let body = RawJson::from_value(body).map_err(|_| TurnOver)?;
        self.send(WorkItem::Event(body)).await
    }

    /// Sends any item. Waits while the pipe is full.
    ///
    /// # Errors
    /// [`TurnOver`] once the turn has ended.
    pub async fn send(&self, item: WorkItem) -> Result<(), TurnOver> {
        let bytes = item.waiting_bytes();
        let permit = Arc::clone(&self.waiting).acquire_many_owned(bytes).await.map_err(|_| TurnOver)?;
        if self.over.load(Ordering::Acquire) {
            return Err(TurnOver);
        }
        let work = Work { turn: self.turn, item, room: Room { _permit: Arc::new(permit) } };
        self.work.send(work).await.map_err(|_| TurnOver)
    }

    /// Waits until everything sent before was written to the host's stdout (or can never be).
    ///
    /// # Errors
    /// [`TurnOver`] once the turn has ended.
    pub async fn flush(&self) -> Result<(), TurnOver> {
        let (written, answered) = oneshot::channel();
        self.send(WorkItem::Flush(written)).await?;
        answered.await.map_err(|_| TurnOver)
    }

    /// [`Sink::send`] for threads; blocks while the pipe is full. Not from inside an async task.
    ///
    /// # Errors
    /// [`TurnOver`] once the turn has ended.
    pub fn send_blocking(&self, item: WorkItem) -> Result<(), TurnOver> {
        park_until(self.send(item))
    }
}

impl WorkItem {
    fn waiting_bytes(&self) -> u32 {
        let bytes = match self {
            WorkItem::Delta(text) => text.len(),
            WorkItem::Event(body) => body.as_str().len(),
            WorkItem::RawBytes(bytes) => bytes.len(),
            WorkItem::Ask(question, _) => {
                let choices: usize = question.choices.iter().map(String::len).sum();
                question.command.len() + question.description.len() + choices
            }
            WorkItem::Flush(_) => 0,
        };
        u32::try_from(bytes).map_or(WAITING_BYTES, |bytes| bytes.clamp(ITEM_BYTES, WAITING_BYTES))
    }
}

/// Runs a future that needs no runtime to its end on this thread.
fn park_until<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Tells an agent to stop. Made when the turn is accepted, so an interrupt that comes before the agent runs is seen.
#[derive(Debug, Clone)]
pub struct Interrupt {
    flag: watch::Receiver<bool>,
}

impl Interrupt {
    /// The agent's end of a flag.
    pub fn new(flag: watch::Receiver<bool>) -> Self {
        Self { flag }
    }

    /// True once the turn should stop.
    pub fn is_set(&self) -> bool {
        *self.flag.borrow()
    }

    /// Ends once the turn should stop.
    pub async fn wait(&self) {
        let mut flag = self.flag.clone();
        if flag.wait_for(|set| *set).await.is_err() {
            // The host's end is gone, and with it the turn.
        }
    }
}

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What would be run.
    pub command: String,
    /// Why it is asked.
    pub description: String,
    /// The answers allowed; empty: `once`, `session`, `deny`.
    pub choices: Vec<String>,
    /// Whether a permanent answer may be chosen.
    pub allow_permanent: bool,
    /// How long the question stands, in milliseconds; then it is denied.
    pub timeout_ms: u64,
}

/// How a question was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// One of the choices.
    Choice(String),
    /// Nobody answered in time, or the turn was stopped: denied.
    Denied,
}

impl TurnContext {
    /// Asks a person and waits for the answer, the question's end, or the interrupt (which denies it).
    pub async fn ask_approval(&self, question: Question) -> ApprovalAnswer {
        let (answer, answered) = oneshot::channel();
        if self.sink.send(WorkItem::Ask(question, answer)).await.is_err() {
            return ApprovalAnswer::Denied;
        }
        answered.await.unwrap_or(ApprovalAnswer::Denied)
    }

    /// [`TurnContext::ask_approval`] for threads. Not from inside an async task.
    pub fn ask_approval_blocking(&self, question: Question) -> ApprovalAnswer {
        park_until(self.ask_approval(question))
    }
}

/// The processes of one turn, told to the host so that none is left when the turn is ended by force.
///
/// Add every process that you start and will wait for: the host is a child sub-reaper, and a dead child that no turn
/// has added is taken for an orphan and reaped within two seconds, its exit status with it.
#[derive(Debug, Clone, Default)]
pub struct TurnProcesses {
    pids: Arc<std::sync::Mutex<Vec<i32>>>,
}

impl TurnProcesses {
    /// Adds a process that the turn started; its descendants count as well.
    pub fn add(&self, pid: i32) {
        self.lock().push(pid);
    }

    /// Takes out a process that was reaped.
    pub fn remove(&self, pid: i32) {
        self.lock().retain(|known| *known != pid);
    }

    /// The processes that were added and not removed.
    pub fn pids(&self) -> Vec<i32> {
        self.lock().clone()
    }

    // A mutex and no message: the host must see the pids of an agent that no longer answers.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<i32>> {
        self.pids.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Room of one byte.
    pub(crate) fn room() -> Room {
        room_of(1).0
    }

    /// All the bytes of a budget of so many, and the budget.
    pub(crate) fn room_of(bytes: u32) -> (Room, Arc<Semaphore>) {
        let budget = Arc::new(Semaphore::new(bytes as usize));
        let permit = Arc::clone(&budget).try_acquire_many_owned(bytes).unwrap();
        (Room { _permit: Arc::new(permit) }, budget)
    }
}
