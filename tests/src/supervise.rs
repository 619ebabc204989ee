//! `turnhost supervise` under test.

use crate::process::{Ended, Process};
use crate::scenario::{MARKER, Scenario};
use serde_json::{Value, json};
use std::cell::Cell;

/// A running `turnhost supervise`: operations go in, answers and events come out.
pub struct Supervise {
    /// The program itself, for everything that this type does not do.
    pub process: Process,
    next_id: Cell<u64>,
}

impl Scenario {
    /// `turnhost supervise` with these options over this host (program first), with no registry unless an option
    /// names one.
    #[track_caller]
    pub fn supervise<S: AsRef<str>>(&self, options: &[&str], host: &[S]) -> Supervise {
        Supervise::over(self.supervise_launch(options, host).start())
    }

    /// The same, not started yet.
    pub fn supervise_launch<S: AsRef<str>>(&self, options: &[&str], host: &[S]) -> crate::Launch {
        let mut arguments = vec!["supervise", "--env-pass", MARKER];
        if !options.iter().any(|option| option.contains("registry")) {
            arguments.push("--no-registry");
        }
        arguments.extend_from_slice(options);
        arguments.push("--");
        arguments.extend(host.iter().map(AsRef::as_ref));
        self.program("turnhost").args(arguments)
    }
}

impl Supervise {
    /// Talks to a `turnhost supervise` that is running.
    pub fn over(process: Process) -> Self {
        Self { process, next_id: Cell::new(1) }
    }

    /// Sends an operation, with an id of its own if it has none, and gives the id.
    #[track_caller]
    pub fn begin(&self, mut operation: Value) -> String {
        if operation.get("id").is_none() {
            operation["id"] = json!(self.next_id.replace(self.next_id.get() + 1).to_string());
        }
        let id = operation["id"].as_str().unwrap_or_default().to_owned();
        self.process.send(&operation);
        id
    }

    /// Waits for the answer of an operation that was begun.
    #[track_caller]
    pub fn answer(&self, id: &str) -> Value {
        self.process.wait_for(&format!("the answer of operation {id}"), |frame| {
            frame["id"] == id && frame.get("ok").is_some()
        })
    }

    /// Sends an operation and waits for its answer.
    #[track_caller]
    pub fn op(&self, operation: Value) -> Value {
        let id = self.begin(operation);
        self.answer(&id)
    }

    /// [`Supervise::op`] that must succeed; gives the result.
    ///
    /// # Panics
    /// With the transcript, if it is refused.
    #[track_caller]
    pub fn ok(&self, operation: Value) -> Value {
        let answer = self.op(operation.clone());
        if answer["ok"] != true {
            self.process.fail(&format!("{operation} was refused: {answer}"));
        }
        answer["result"].clone()
    }

    /// [`Supervise::op`] that must be refused; gives the `error` object.
    ///
    /// # Panics
    /// With the transcript, if it succeeds.
    #[track_caller]
    pub fn refused(&self, operation: Value) -> Value {
        let answer = self.op(operation.clone());
        if answer["ok"] != false {
            self.process.fail(&format!("{operation} was not refused: {answer}"));
        }
        answer["error"].clone()
    }

    /// The first event of this name that `wanted` picks, from the start; waits for it.
    #[track_caller]
    pub fn event(&self, name: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        self.process.wait_for(&format!("an event `{name}`"), |frame| frame["event"] == name && wanted(frame))
    }

    /// Waits for the state `state` among the events from the `start`th frame on; gives the event's index and the event.
    #[track_caller]
    pub fn state_after(&self, start: usize, state: &str) -> (usize, Value) {
        self.process.wait_for_after(start, &format!("the state `{state}`"), |frame| {
            frame["event"] == "state" && frame["state"] == state
        })
    }

    /// Waits for the terminal frame of a turn.
    #[track_caller]
    pub fn ending(&self, request_id: &str) -> Value {
        let event = self.process.wait_for(&format!("the end of turn {request_id}"), |frame| {
            frame["event"] == "turn" && frame["request_id"] == request_id && is_terminal(&frame["frame"])
        });
        event["frame"].clone()
    }

    /// Waits for the first frame of this type of a turn.
    #[track_caller]
    pub fn turn_frame(&self, request_id: &str, frame_type: &str) -> Value {
        let event = self.process.wait_for(&format!("{frame_type} of turn {request_id}"), |frame| {
            frame["event"] == "turn"
                && frame["request_id"] == request_id
                && frame["frame"]["type"] == frame_type
        });
        event["frame"].clone()
    }

    /// The frames of a turn so far.
    pub fn turn_frames(&self, request_id: &str) -> Vec<Value> {
        let events = self.process.frames().into_iter();
        let of_turn = events.filter(|frame| frame["event"] == "turn" && frame["request_id"] == request_id);
        of_turn.map(|mut event| event["frame"].take()).collect()
    }

    /// The terminal frames of a turn so far: exactly one once it has ended.
    pub fn endings(&self, request_id: &str) -> Vec<Value> {
        self.turn_frames(request_id).into_iter().filter(is_terminal).collect()
    }

    /// Starts the host and waits until it is ready; gives the answer's result.
    #[track_caller]
    pub fn start(&self) -> Value {
        self.ok(json!({"op": "start"}))
    }

    /// The pid of the host that runs now.
    ///
    /// # Panics
    /// With the transcript, if none runs.
    #[track_caller]
    pub fn host_pid(&self) -> i32 {
        let status = self.ok(json!({"op": "status"}));
        match status["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()) {
            Some(pid) => pid,
            None => self.process.fail(&format!("no host runs: {status}")),
        }
    }

    /// Submits a turn that must be accepted; gives the result. `more` are further fields of the frame.
    #[track_caller]
    pub fn submit(&self, sid: &str, request_id: &str, more: Value) -> Value {
        self.ok(turn(sid, request_id, more))
    }

    /// Closes its stdin and waits for its end.
    #[track_caller]
    pub fn finish(&mut self) -> Ended {
        self.process.close_stdin();
        self.process.wait_exit()
    }
}

/// The operation that submits a turn with the text `hi`; `more` are further fields of the frame.
pub fn turn(sid: &str, request_id: &str, more: Value) -> Value {
    let mut operation = json!({"op": "submit_turn", "sid": sid, "request_id": request_id, "text": "hi"});
    if let (Value::Object(operation), Value::Object(more)) = (&mut operation, more) {
        operation.extend(more);
    }
    operation
}

fn is_terminal(frame: &Value) -> bool {
    frame["type"] == "turn.end" || frame["type"] == "turn.error"
}
