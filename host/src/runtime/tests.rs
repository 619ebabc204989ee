//! The loop over streams in memory, with a clock that moves only when nothing else can.

mod approvals;
mod blocking;
mod compress;
mod controls;
mod hostile;
mod refusals;
mod stops;
mod streams;
mod turns;
mod walk;

use super::*;
use crate::agent::builtin;
use crate::config::Config;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);

/// A host, and both ends of its streams.
pub(super) struct Rig {
    stdin: Option<DuplexStream>,
    stdout: Option<Lines<BufReader<DuplexStream>>>,
    seen: VecDeque<Value>,
    outside: mpsc::Sender<Outside>,
    host: JoinHandle<()>,
    home: tempfile::TempDir,
}

/// What a test changes of the options.
pub(super) struct Setup {
    agents: Agents,
    workers: usize,
    heartbeat: Option<Duration>,
    drain: Duration,
    rpc_events: bool,
    max_frame_bytes: usize,
    stdout_bytes: usize,
    model: Option<String>,
    config: Config,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            agents: builtin(None, &Default::default()),
            workers: 8,
            heartbeat: None,
            drain: HostOptions::default().drain,
            rpc_events: false,
            max_frame_bytes: 1024 * 1024,
            stdout_bytes: 1024 * 1024,
            model: None,
            config: Config::default(),
        }
    }
}

impl Setup {
    pub(super) async fn start(self) -> Rig {
        let home = tempfile::tempdir().unwrap();
        let options = HostOptions {
            workers: self.workers,
            heartbeat: self.heartbeat,
            drain: self.drain,
            rpc_events: self.rpc_events,
            max_frame_bytes: self.max_frame_bytes,
            home: home.path().to_owned(),
            hermes_home: "/home/of/tests".to_owned(),
            cwd: "/project".into(),
            model: self.model,
            config: self.config,
            ..HostOptions::default()
        };
        let (stdin, input) = tokio::io::duplex(64 * 1024);
        let (output, stdout) = tokio::io::duplex(self.stdout_bytes);
        let (outside, events) = mpsc::channel(8);
        let surroundings = Surroundings {
            agents_on: Handle::current(),
            outside: events,
            owns_process: false,
            process_guard: None,
        };
        let host = tokio::spawn(run(self.agents, options, input, output, surroundings));
        let stdout = Some(BufReader::new(stdout).lines());
        Rig { stdin: Some(stdin), stdout, seen: VecDeque::new(), outside, host, home }
    }
}

impl Rig {
    /// With the defaults, behind its hello.
    pub(super) async fn new() -> Self {
        let mut rig = Setup::default().start().await;
        rig.until("hello").await;
        rig
    }

    pub(super) async fn send(&mut self, frame: Value) {
        self.send_raw(format!("{frame}\n").as_bytes()).await;
    }

    pub(super) async fn send_raw(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes).await.unwrap();
    }

    /// Starts a turn that plays `script`, of session `sid` under the id `turn`.
    pub(super) async fn play(&mut self, sid: &str, turn: &str, script: Value) {
        let frame =
            json!({"type": "turn.start", "sid": sid, "request_id": turn, "text": "prompt", "script": script});
        self.send(frame).await;
    }

    /// Makes a session with this history, and waits for it.
    pub(super) async fn seed(&mut self, sid: &str, more: Value) {
        let mut frame = json!({"type": "session.seed", "sid": sid, "request_id": "seed"});
        frame.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.send(frame).await;
        self.until("session.seeded").await;
    }

    /// The answer to a control with these fields.
    pub(super) async fn control(&mut self, sid: &str, route: &str, more: Value) -> Value {
        self.ask_control(sid, "c", route, more).await;
        self.answer("c").await
    }

    /// Sends a control with these fields.
    pub(super) async fn ask_control(&mut self, sid: &str, id: &str, route: &str, more: Value) {
        let mut frame = json!({"type": "control", "sid": sid, "request_id": id, "route_name": route});
        frame.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.send(frame).await;
    }

    /// The next frame of this request; those of others are dropped.
    pub(super) async fn answer(&mut self, id: &str) -> Value {
        loop {
            let frame = self.next().await.expect("an answer");
            if frame["request_id"] == id {
                return frame;
            }
        }
    }

    pub(super) async fn tell(&self, event: Outside) {
        self.outside.send(event).await.unwrap();
    }

    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next frame; `None` at the end. Panics after an hour of the test's clock, which takes no real time.
    pub(super) async fn next(&mut self) -> Option<Value> {
        if let Some(frame) = self.seen.pop_front() {
            return Some(frame);
        }
        let lines = self.stdout.as_mut().expect("stdout is open");
        let line = tokio::time::timeout(Duration::from_secs(3600), lines.next_line()).await;
        let line = line.expect("no frame within an hour").unwrap()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// Everything up to the first frame of this type, which is the last one.
    pub(super) async fn through(&mut self, frame_type: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|| panic!("no {frame_type} before the end; seen: {frames:#?}"));
            let found = frame["type"] == frame_type;
            frames.push(frame);
            if found {
                return frames;
            }
        }
    }

    /// The first frame of this type; those before it are dropped.
    pub(super) async fn until(&mut self, frame_type: &str) -> Value {
        self.through(frame_type).await.pop().unwrap()
    }

    /// Everything to the end of the host, which must be an orderly one.
    pub(super) async fn rest(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        self.ended().await;
        frames
    }

    /// Waits for the host's end.
    pub(super) async fn ended(&mut self) {
        (&mut self.host).await.expect("the loop must not panic");
    }

    /// The finalize records.
    pub(super) fn records(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.home.path().join("logs/compute-host.log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Lets everything happen that can happen without time.
pub(super) async fn settle() {
    // The clock stands still while anything can run, so this ends when nothing can.
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(super) fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

/// The frames that answer this request or belong to this turn.
pub(super) fn of<'a>(frames: &'a [Value], request_id: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame["request_id"] == request_id).collect()
}
