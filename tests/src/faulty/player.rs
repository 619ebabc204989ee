//! Plays a script.

use crate::grandchild::{self, Kind};
use crate::script::{FloodStep, GrandchildStep, Numbered, Step};
use crate::stdio::{self, Inbox, Output, Taken};
use crate::template::Bound;
use crate::{serve, sys};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use turnhost_protocol::hello;

/// Why the program ends.
#[derive(Debug)]
pub(crate) enum End {
    /// `exit`, or `shutdown` while serving.
    Exit(u8),
    /// Stdin ended where a step waited for a frame.
    NoFrame { step: String, frame_type: String },
    /// A step could not be done.
    Step { step: String, detail: String },
    /// Whoever should read stdout or stderr is gone.
    Output(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        End::Output(error)
    }
}

/// The host that is played.
pub(crate) struct Player {
    inbox: Inbox,
    output: Arc<Output>,
    boot_id: String,
    bound: Bound,
    /// The last `turn.start` that was bound or expected: whom a flood belongs to, and its next `seq`.
    turn: Option<(Map<String, Value>, u64)>,
    heartbeat: Option<SyncSender<Duration>>,
    // Kept, never waited for: a host that forgets its children.
    grandchildren: Vec<Child>,
}

impl Player {
    pub(crate) fn new() -> io::Result<Self> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
        Ok(Self {
            inbox: Inbox::open()?,
            output: Arc::new(Output::new()),
            boot_id,
            bound: Bound::new(),
            turn: None,
            heartbeat: None,
            grandchildren: Vec::new(),
        })
    }

    /// Plays every step in order.
    pub(crate) fn play(&mut self, steps: &[Numbered]) -> Result<(), End> {
        steps.iter().try_for_each(|numbered| self.step(numbered))
    }

    fn step(&mut self, Numbered { number, step }: &Numbered) -> Result<(), End> {
        let failed = |detail: String| End::Step { step: number.clone(), detail };
        match step {
            Step::Hello(overrides) => self.hello(overrides)?,
            Step::Write(template) | Step::Frame(template) => {
                let bytes = template.fill(&self.bound).map_err(failed)?;
                self.output.write(&bytes)?;
            }
            Step::SleepMs(ms) => std::thread::sleep(Duration::from_millis(*ms)),
            Step::Read(lines) => {
                for _ in 0..*lines {
                    let Taken::Line(_) = self.inbox.take(None) else { break };
                }
            }
            Step::Expect { frame_type, bind } => self.expect(number, frame_type, bind.as_deref())?,
            Step::Serve => serve::serve(&self.inbox, &self.output)?,
            Step::HeartbeatMs(ms) => {
                self.heartbeat(Duration::from_millis(*ms)).map_err(|e| failed(e.to_string()))?
            }
            Step::Exit(code) => return Err(End::Exit(*code)),
            Step::Signal(signal) => {
                // KILL and STOP have no other action than the kernel's, and the kernel refuses to be told.
                let _ = sys::restore(*signal);
                nix::sys::signal::raise(*signal).map_err(|errno| failed(errno.to_string()))?;
            }
            Step::Stderr(what) => stdio::write_stderr(what.bytes, what.newline)?,
            Step::Flood(flood) => self.flood(flood)?,
            Step::HoldPipes(life) => self.grandchild(number, Kind::HoldPipes, life)?,
            Step::SetsidChild(life) => self.grandchild(number, Kind::Setsid, life)?,
            Step::Ignore(signals) => {
                for signal in signals {
                    sys::ignore(*signal).map_err(|errno| failed(errno.to_string()))?;
                }
            }
            Step::StopReading => self.inbox.stop(),
            Step::Close(stream) => {
                if *stream == crate::script::Stream::Stdin {
                    self.inbox.stop();
                }
                stdio::close(*stream)?;
            }
            Step::Repeat { times, steps } => {
                for _ in 0..*times {
                    self.play(steps)?;
                }
            }
        }
        Ok(())
    }

    fn hello(&self, overrides: &BTreeMap<String, Option<String>>) -> Result<(), End> {
        let cwd = std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default();
        let mut fields = vec![
            ("type".to_owned(), json!("hello")),
            ("host_pid".to_owned(), json!(std::process::id())),
            ("boot_id".to_owned(), json!(self.boot_id)),
            ("build_sha".to_owned(), json!("unknown")),
            ("cwd".to_owned(), json!(cwd)),
            ("hermes_home".to_owned(), json!(std::env::var("HERMES_HOME").unwrap_or_default())),
            ("protocol".to_owned(), json!(hello::PROTOCOL_VERSION)),
            ("capabilities".to_owned(), json!(hello::CAPABILITIES)),
            ("max_frame_bytes".to_owned(), json!(serve::limit())),
            ("host_ns".to_owned(), json!(self.output.host_ns())),
        ]
        .into_iter()
        .map(|(name, value)| (name, Some(value.to_string())))
        .collect::<Vec<_>>();
        for (name, text) in overrides {
            match fields.iter_mut().find(|(known, _)| known == name) {
                Some((_, value)) => value.clone_from(text),
                None => fields.push((name.clone(), text.clone())),
            }
        }
        let shown: Vec<String> = fields
            .into_iter()
            .filter_map(|(name, text)| text.map(|text| format!("{}:{text}", Value::from(name))))
            .collect();
        Ok(self.output.write(format!("{{{}}}\n", shown.join(",")).as_bytes())?)
    }

    /// Takes lines until one is a frame of this type; what else comes is dropped unanswered.
    fn expect(&mut self, step: &str, frame_type: &str, bind: Option<&str>) -> Result<(), End> {
        loop {
            let Taken::Line(line) = self.inbox.take(None) else {
                return Err(End::NoFrame { step: step.to_owned(), frame_type: frame_type.to_owned() });
            };
            let Ok(Value::Object(frame)) = serde_json::from_slice::<Value>(&line) else { continue };
            if frame.get("type").and_then(Value::as_str) != Some(frame_type) {
                continue;
            }
            if frame_type == "turn.start" {
                self.turn = Some((frame.clone(), 0));
            }
            if let Some(name) = bind {
                self.bound.insert(name.to_owned(), frame);
            }
            return Ok(());
        }
    }

    /// Deltas of the turn that was expected last, or `rpc` frames if there was none.
    fn flood(&mut self, flood: &FloodStep) -> Result<(), End> {
        let text = "x".repeat(usize::try_from(flood.bytes).unwrap_or(usize::MAX));
        for _ in 0..flood.frames {
            match &mut self.turn {
                Some((turn, seq)) => {
                    let part = |name: &str| turn.get(name).cloned().unwrap_or(Value::Null);
                    self.output.frame(
                        "delta",
                        &[
                            ("sid", part("sid")),
                            ("request_id", part("request_id")),
                            ("text", json!(text)),
                            ("emitted_ns", json!(self.output.host_ns())),
                            ("seq", json!(*seq)),
                        ],
                    )?;
                    *seq += 1;
                }
                None => {
                    let message = json!({"jsonrpc": "2.0", "method": "event", "params": {"type": "flood", "payload": {"text": text}}});
                    self.output.frame("rpc", &[("sid", json!("")), ("message", message)])?;
                }
            }
        }
        Ok(())
    }

    /// From now on a heartbeat each `period`, the first at once, whatever the script does meanwhile.
    fn heartbeat(&mut self, period: Duration) -> io::Result<()> {
        if let Some(thread) = &self.heartbeat {
            // The thread ends only when stdout is gone, and then there is nothing to say.
            let _ = thread.send(period);
            return Ok(());
        }
        let (sender, periods) = sync_channel::<Duration>(1);
        let output = Arc::clone(&self.output);
        std::thread::Builder::new().name("faulty-heartbeat".to_owned()).spawn(move || {
            let mut period = period;
            let mut next = Instant::now();
            while output.heartbeat().is_ok() {
                next += period;
                match periods.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(other) => {
                        period = other;
                        next = Instant::now();
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        self.heartbeat = Some(sender);
        Ok(())
    }

    fn grandchild(&mut self, step: &str, kind: Kind, life: &GrandchildStep) -> Result<(), End> {
        let child = grandchild::spawn(kind, life)
            .map_err(|error| End::Step { step: step.to_owned(), detail: format!("{error:#}") })?;
        if let Some(name) = &life.bind {
            let pid = Map::from_iter([("pid".to_owned(), json!(child.id()))]);
            self.bound.insert(name.clone(), pid);
        }
        self.grandchildren.push(child);
        Ok(())
    }
}
