//! Hosts in memory: a spawn whose children are played by the test.

use crate::actor::Actor;
use crate::child::{Child, ChildControl, ChildEvent, ChildOutput, Spawn, SpawnError, SpawnFuture};
use crate::config::{Config, Guard};
use crate::handle::HostSupervisor;
use crate::machine::{Exit, StartFault};
use crate::reseed::ReseedSource;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet};
use turnhost_os::ProcessIdentity;

/// A pipe of so many bytes, that tells what it holds.
#[derive(Debug)]
pub(crate) struct Pipe {
    state: Mutex<PipeState>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    writer_gone: bool,
    reader_gone: bool,
    wakers: Vec<Waker>,
}

pub(crate) fn pipe(capacity: usize) -> (PipeWriter, PipeReader) {
    let pipe = Arc::new(Pipe { state: Mutex::default(), capacity });
    (PipeWriter(Arc::clone(&pipe)), PipeReader(pipe))
}

impl Pipe {
    fn change<T>(&self, act: impl FnOnce(&mut PipeState) -> T) -> T {
        let mut state = self.state.lock().unwrap();
        let result = act(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

#[derive(Debug)]
pub(crate) struct PipeWriter(Arc<Pipe>);
#[derive(Debug)]
pub(crate) struct PipeReader(Arc<Pipe>);

impl AsyncWrite for PipeWriter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.state.lock().unwrap();
        if state.reader_gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = self.0.capacity - state.bytes.len();
        if room == 0 {
            state.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        let taken = room.min(bytes.len());
        self.0.change(|state| state.bytes.extend(&bytes[..taken]));
        Poll::Ready(Ok(taken))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.change(|state| state.writer_gone = true);
    }
}

impl AsyncRead for PipeReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state.lock().unwrap();
        if state.bytes.is_empty() {
            if state.writer_gone {
                return Poll::Ready(Ok(()));
            }
            state.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.remaining().min(state.bytes.len());
        let taken: Vec<u8> = state.bytes.drain(..count).collect();
        drop(state);
        buffer.put_slice(&taken);
        self.0.change(|_| ());
        Poll::Ready(Ok(()))
    }
}

impl ChildOutput for PipeReader {
    fn available(&self) -> usize {
        self.0.state.lock().unwrap().bytes.len()
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.change(|state| state.reader_gone = true);
    }
}

/// What the supervisor ordered a host to suffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Term,
    Kill,
    /// The child was dropped.
    LetGo,
}

struct FakeControl(mpsc::Sender<Fate>);

impl ChildControl for FakeControl {
    fn term(&mut self) {
        let _ = self.0.try_send(Fate::Term);
    }
    fn kill(&mut self) {
        let _ = self.0.try_send(Fate::Kill);
    }
}

impl Drop for FakeControl {
    fn drop(&mut self) {
        let _ = self.0.try_send(Fate::LetGo);
    }
}

/// The host's side of a child.
pub(crate) struct FakeHost {
    pub epoch: u64,
    pub stdin: PipeReader,
    pub stdout: Option<PipeWriter>,
    pub stderr: PipeWriter,
    pub fates: mpsc::Receiver<Fate>,
    events: mpsc::Sender<ChildEvent>,
    unread: Vec<u8>,
}

impl FakeHost {
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        use tokio::io::AsyncWriteExt as _;
        // Nobody listens after a drop.
        let _ = self.stdout.as_mut().unwrap().write_all(bytes.as_ref()).await;
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.raw(format!("{frame}\n")).await;
    }

    pub(crate) async fn hello(&mut self, boot_id: &str) {
        self.send(json!({"type": "hello", "host_pid": 7, "boot_id": boot_id, "build_sha": "good"})).await;
    }

    /// The next frame that the supervisor wrote; `None` at the end of stdin.
    pub(crate) async fn read(&mut self) -> Option<Value> {
        self.read_line().await.map(|line| serde_json::from_str(&line).unwrap())
    }

    /// The same as its text.
    pub(crate) async fn read_line(&mut self) -> Option<String> {
        use tokio::io::AsyncReadExt as _;
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(String::from_utf8(line).unwrap());
            }
            let mut buffer = vec![0; 65536];
            let count = self.stdin.read(&mut buffer).await.unwrap();
            if count == 0 {
                return None;
            }
            self.unread.extend_from_slice(&buffer[..count]);
        }
    }

    /// Reads a frame that must be of this type.
    pub(crate) async fn expect(&mut self, frame_type: &str) -> Value {
        let frame = self.read().await.unwrap_or_else(|| panic!("stdin ended, expected {frame_type}"));
        assert_eq!(frame["type"], frame_type, "{frame}");
        frame
    }

    /// Answers as a right host does until `deltas` deltas are out; the turn goes on.
    pub(crate) async fn begin_turn(&mut self, start: &Value, deltas: usize) {
        let (sid, id) = (&start["sid"], &start["request_id"]);
        self.send(json!({"type": "turn.started", "sid": sid, "request_id": id, "started_ns": 1})).await;
        for seq in 0..deltas {
            let text = format!("{seq} ");
            self.send(json!({"type": "delta", "sid": sid, "request_id": id, "text": text, "seq": seq})).await;
        }
    }

    pub(crate) async fn end_turn(&mut self, start: &Value) {
        let (sid, id) = (&start["sid"], &start["request_id"]);
        self.send(json!({"type": "turn.end", "sid": sid, "request_id": id, "final_response": "done"})).await;
    }

    pub(crate) async fn exit(&mut self, exit: Exit) {
        let _ = self.events.send(ChildEvent::Exited(exit)).await;
    }

    pub(crate) async fn swept(&mut self) {
        let _ = self.events.send(ChildEvent::Swept(Vec::new())).await;
    }

    /// Dies with everything it started.
    pub(crate) async fn die(mut self, exit: Exit) {
        self.exit(exit).await;
        self.swept().await;
    }

    /// Waits for one order and dies of it.
    pub(crate) async fn die_when_told(mut self) -> Fate {
        let fate = self.fates.recv().await.unwrap();
        let exit = match fate {
            Fate::Term => Exit::Signal(15),
            Fate::Kill | Fate::LetGo => Exit::Signal(9),
        };
        self.die(exit).await;
        fate
    }
}

/// What a spawn comes to.
pub(crate) enum Plan {
    Host,
    Fail {
        permanent: bool,
        fault: StartFault,
    },
    /// The spawn never ends.
    Never,
}

pub(crate) struct FakeSpawn {
    hosts: mpsc::Sender<FakeHost>,
    plans: Arc<Mutex<VecDeque<Plan>>>,
    pipe_bytes: usize,
}

impl Spawn for FakeSpawn {
    fn spawn(&mut self, epoch: u64) -> SpawnFuture<'_> {
        Box::pin(async move {
            let plan = self.plans.lock().unwrap().pop_front().unwrap_or(Plan::Host);
            match plan {
                Plan::Host => {}
                Plan::Fail { permanent, fault } => return Err(SpawnError { permanent, fault }),
                Plan::Never => std::future::pending().await,
            }
            let (child_stdin, stdin) = pipe(self.pipe_bytes);
            let (stdout, child_stdout) = pipe(self.pipe_bytes);
            let (stderr, child_stderr) = pipe(self.pipe_bytes);
            let (order, fates) = mpsc::channel(16);
            let (event, events) = mpsc::channel(16);
            let host = FakeHost {
                epoch,
                stdin,
                stdout: Some(stdout),
                stderr,
                fates,
                events: event,
                unread: Vec::new(),
            };
            // The test may be over.
            let _ = self.hosts.send(host).await;
            Ok(Child {
                stdin: Some(Box::new(child_stdin)),
                stdout: Box::new(child_stdout),
                stderr: Box::new(child_stderr),
                control: Box::new(FakeControl(order)),
                events,
                identity: ProcessIdentity {
                    pid: 1000 + epoch as i32,
                    start_ticks: epoch,
                    machine_boot_id: turnhost_os::machine_boot_id(),
                },
                guard: None,
            })
        })
    }
}

/// Where the hosts of a [`FakeSpawn`] come out, and how the next spawns end.
pub(crate) struct FakeHosts {
    pub hosts: mpsc::Receiver<FakeHost>,
    pub plans: Arc<Mutex<VecDeque<Plan>>>,
}

pub(crate) fn fake_spawn(pipe_bytes: usize) -> (FakeSpawn, FakeHosts) {
    let (hosts, spawned) = mpsc::channel(16);
    let plans = Arc::new(Mutex::new(VecDeque::new()));
    (FakeSpawn { hosts, plans: Arc::clone(&plans), pipe_bytes }, FakeHosts { hosts: spawned, plans })
}

/// A supervisor over hosts in memory.
pub(crate) struct Rig {
    pub supervisor: HostSupervisor,
    pub hosts: mpsc::Receiver<FakeHost>,
    pub plans: Arc<Mutex<VecDeque<Plan>>>,
    pub actor: JoinHandle<()>,
}

impl Rig {
    /// Inside a [`LocalSet`] only.
    pub(crate) fn new(config: Config) -> Self {
        Self::with(config, None, 65_536)
    }

    pub(crate) fn with(config: Config, source: Option<ReseedSource>, pipe_bytes: usize) -> Self {
        let (supervisor, parts) = HostSupervisor::connect(&config);
        let (spawn, FakeHosts { hosts: spawned, plans }) = fake_spawn(pipe_bytes);
        let actor = Actor::new(config, source, Box::new(spawn), parts);
        let actor = tokio::task::spawn_local(actor.run());
        Self { supervisor, hosts: spawned, plans, actor }
    }

    /// The next host that is spawned.
    pub(crate) async fn host(&mut self) -> FakeHost {
        self.hosts.recv().await.expect("a host is spawned")
    }

    /// Starts, and answers hello.
    pub(crate) async fn started(&mut self) -> FakeHost {
        let starting = tokio::task::spawn_local({
            let supervisor = self.supervisor.clone();
            async move { supervisor.start().await }
        });
        let mut host = self.host().await;
        host.hello(&format!("boot-{}", host.epoch)).await;
        starting.await.unwrap().unwrap();
        host
    }
}

/// No guard, no heartbeat, and nothing of the machine's environment matters.
pub(crate) fn config() -> Config {
    Config { guard: Guard::None, heartbeat: Duration::ZERO, ..Config::new(["host"]) }
}

/// Runs a test with a rig of its own.
pub(crate) async fn rig<F: Future<Output = ()>>(config: Config, test: impl FnOnce(Rig) -> F) {
    LocalSet::new().run_until(async { test(Rig::new(config)).await }).await;
}
