//! A turn without a host around it: what an agent sends can be looked at, and the test plays the host's loop.

use crate::turn::context::{
    ApprovalAnswer, Interrupt, Purpose, Question, Sink, TurnContext, TurnProcesses, Work, WorkItem,
};
use crate::turn::{AgentResult, AsyncAgent};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use turnhost_os::tree::with_environment;
use turnhost_protocol::frame::TurnStart;

/// For things that happen at once on any machine that is not stuck.
const DEADLINE: Duration = Duration::from_secs(60);
const MARKER: &str = "TURNHOST_AGENT_TEST";

/// The host's side of one turn.
pub(crate) struct Host {
    pub(crate) work: mpsc::Receiver<Work>,
    pub(crate) interrupt: watch::Sender<bool>,
    pub(crate) processes: TurnProcesses,
    /// What `ask` is answered.
    pub(crate) answer: ApprovalAnswer,
    marker: String,
}

/// What an agent sent, in a form that can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    Delta(String),
    Event(String),
    Raw(Vec<u8>),
    Asked(Question),
}

/// A turn from its frame, and the host's side of it. The pipe takes `capacity` items before it is full.
pub(crate) fn turn(frame: &Value, capacity: usize) -> (TurnContext, Host) {
    let frame: TurnStart = serde_json::from_str(&frame.to_string()).unwrap();
    let (sender, work) = mpsc::channel(capacity);
    let (interrupt, flag) = watch::channel(false);
    let processes = TurnProcesses::default();
    let marker = uuid::Uuid::new_v4().to_string();
    let context = TurnContext {
        sid: frame.sid.clone().unwrap_or_default(),
        request_id: frame.request_id.clone().unwrap_or_default(),
        prompt: frame.text.clone().or_else(|| frame.prompt.clone()).unwrap_or_default(),
        purpose: Purpose::Turn,
        history: Arc::default(),
        cwd: frame.cwd.clone().map_or_else(std::env::temp_dir, PathBuf::from),
        env: BTreeMap::from([(MARKER.to_owned(), marker.clone())]),
        model: None,
        provider: None,
        system_prompt: None,
        base_url: None,
        agent_options: frame.agent.clone().and_then(|agent| agent.options),
        frame: Arc::new(frame),
        sink: Sink::new(7, sender),
        interrupt: Interrupt::new(flag),
        processes: processes.clone(),
    };
    (context, Host { work, interrupt, processes, answer: ApprovalAnswer::Denied, marker })
}

impl Host {
    /// Takes the next thing that the agent sends; `None` once it has gone.
    pub(crate) async fn next(&mut self) -> Option<Sent> {
        loop {
            let work =
                tokio::time::timeout(DEADLINE, self.work.recv()).await.expect("the agent sends nothing")?;
            assert_eq!(work.turn, 7);
            return Some(match work.item {
                WorkItem::Delta(text) => Sent::Delta(text),
                WorkItem::Event(body) => Sent::Event(body.as_str().to_owned()),
                WorkItem::RawBytes(bytes) => Sent::Raw(bytes),
                WorkItem::Ask(question, answer) => {
                    // An interrupted agent does not wait for it.
                    let _ = answer.send(self.answer.clone());
                    Sent::Asked(question)
                }
                WorkItem::Flush(written) => {
                    let _ = written.send(());
                    continue;
                }
            });
        }
    }

    pub(crate) async fn next_delta(&mut self) -> String {
        match self.next().await {
            Some(Sent::Delta(text)) => text,
            other => panic!("no delta but {other:?}"),
        }
    }

    /// Takes everything until the agent has gone.
    pub(crate) async fn rest(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Some(one) = self.next().await {
            sent.push(one);
        }
        sent
    }

    /// Living processes of the turn.
    pub(crate) fn living(&self) -> Vec<i32> {
        with_environment(MARKER, &self.marker)
    }

    /// No process of the turn is left, and none is registered.
    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.processes.pids(), [0; 0]);
        wait_for("the turn's processes to vanish", || self.living().is_empty());
    }
}

/// The text of all deltas.
pub(crate) fn text(sent: &[Sent]) -> String {
    sent.iter()
        .filter_map(|one| match one {
            Sent::Delta(text) => Some(text.as_str()),
            Sent::Event(_) | Sent::Raw(_) | Sent::Asked(_) => None,
        })
        .collect()
}

/// Starts the turn as the host would: as a task, which ends when the turn does.
pub(crate) fn start(agent: impl AsyncAgent, turn: TurnContext) -> tokio::task::JoinHandle<AgentResult> {
    tokio::spawn(async move { agent.run(turn).await })
}

/// Runs a whole turn and takes what it sends as fast as it comes.
pub(crate) async fn run(agent: impl AsyncAgent, frame: &Value) -> (AgentResult, Vec<Sent>, Host) {
    let (context, mut host) = turn(frame, 16);
    let task = start(agent, context);
    let sent = host.rest().await;
    (ended(task).await, sent, host)
}

/// The turn's result, which must come.
pub(crate) async fn ended(task: tokio::task::JoinHandle<AgentResult>) -> AgentResult {
    tokio::time::timeout(DEADLINE, task).await.expect("the turn does not end").unwrap()
}

/// Looks again and again until `happened`.
pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
