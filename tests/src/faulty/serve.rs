//! A minimal host that behaves: what `{"serve":true}` plays. One thread, one list of turns; lines from stdin are
//! looked at between any two deltas, so an interrupt never waits for a turn.

use crate::player::End;
use crate::stdio::{Inbox, Output, Taken};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use turnhost_protocol::{Route, RouteClass};

/// Serves until stdin ends.
///
/// # Errors
/// [`End::Exit`] with 0 after `shutdown`, [`End::Output`] if stdout is gone.
pub(crate) fn serve(inbox: &Inbox, output: &Output) -> Result<(), End> {
    let mut host = Host { output, sessions: BTreeMap::new(), turns: Vec::new() };
    loop {
        let now = Instant::now();
        host.advance(now)?;
        match inbox.take(host.turns.iter().filter_map(|turn| turn.due).min()) {
            Taken::Line(line) => host.line(&line)?,
            Taken::Ended => break,
            Taken::TimedOut => {}
        }
    }
    output.active_turns.store(0, Ordering::Relaxed);
    Ok(())
}

struct Host<'a> {
    output: &'a Output,
    sessions: BTreeMap<String, Session>,
    turns: Vec<Turn>,
}

#[derive(Default)]
struct Session {
    key: String,
    history: Vec<Value>,
    version: u64,
    report_messages: bool,
    ended: Vec<String>,
}

struct Turn {
    sid: String,
    request_id: String,
    prompt: String,
    /// When the next delta, or the end, is to be written; `None`: it hangs.
    due: Option<Instant>,
    delay: Duration,
    deltas_left: u64,
    index: u64,
    delta_bytes: usize,
    as_rpc: bool,
    answer: String,
}

impl Host<'_> {
    /// Writes one delta or the end of every turn that is due.
    fn advance(&mut self, now: Instant) -> io::Result<()> {
        let mut at = 0;
        while let Some(turn) = self.turns.get_mut(at) {
            if turn.due.is_none_or(|due| due > now) {
                at += 1;
            } else if turn.deltas_left == 0 {
                let turn = self.turns.remove(at);
                self.end(turn, false)?;
            } else {
                turn.delta(self.output, now)?;
                at += 1;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), End> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let frame = match serde_json::from_slice::<Value>(line) {
            Ok(Value::Object(frame)) => frame,
            Ok(_) => return Ok(self.error(None, "frame must be an object")?),
            Err(error) => return Ok(self.error(None, &format!("invalid json: {error}"))?),
        };
        let request_id = text(&frame, "request_id").unwrap_or_default().to_owned();
        let sid = text(&frame, "sid").unwrap_or_default().to_owned();
        match text(&frame, "type").unwrap_or_default() {
            "session.seed" => self.seed(sid, request_id, &frame)?,
            "turn.start" => self.start(sid, request_id, &frame)?,
            "interrupt" => self.interrupt(&sid, &request_id, text(&frame, "turn_id"))?,
            "control" => self.control(&sid, &request_id, &frame)?,
            "reload_mcp" => self.answer("reload_mcp.ack", &sid, &request_id, &[("response", json!({}))])?,
            "respond" => self.answer("respond.ack", &sid, &request_id, &[("resolved", json!(false))])?,
            "shutdown" => {
                self.shutdown(&request_id)?;
                return Err(End::Exit(0));
            }
            other => self.error(Some(&request_id), &format!("unknown frame type: {other}"))?,
        }
        self.output.active_turns.store(self.turns.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn seed(&mut self, sid: String, request_id: String, frame: &Map<String, Value>) -> io::Result<()> {
        if sid.is_empty() {
            return self.error(Some(&request_id), "sid required");
        }
        if self.running(&sid).is_some() {
            return self.error(Some(&request_id), "session busy");
        }
        let session = Session::new(&sid, frame);
        let counts = [("history_version", json!(0)), ("message_count", json!(session.history.len()))];
        self.sessions.insert(sid.clone(), session);
        self.answer("session.seeded", &sid, &request_id, &counts)
    }

    fn start(&mut self, sid: String, request_id: String, frame: &Map<String, Value>) -> io::Result<()> {
        let refuse = |reason: &str, message: &str| {
            self.answer(
                "turn.error",
                &sid,
                &request_id,
                &[("reason", json!(reason)), ("message", json!(message))],
            )
        };
        if sid.is_empty() {
            return refuse("bad_request", "sid required");
        }
        if self.running(&sid).is_some() {
            return refuse("busy", "session busy");
        }
        self.sessions.entry(sid.clone()).or_insert_with(|| Session::new(&sid, frame));
        self.answer("turn.started", &sid, &request_id, &[("started_ns", json!(self.output.host_ns()))])?;
        self.turns.push(Turn::new(sid, request_id, frame));
        Ok(())
    }

    fn interrupt(&mut self, sid: &str, request_id: &str, turn_id: Option<&str>) -> io::Result<()> {
        let running = self.running(sid).map(|at| self.turns[at].request_id.clone());
        let ended = |id: &str| {
            self.sessions.get(sid).is_some_and(|session| session.ended.iter().any(|one| one == id))
        };
        let outcome = match (&running, turn_id) {
            (Some(running), wanted) if wanted.is_none_or(|wanted| wanted == running) => "applied",
            (_, Some(wanted)) if ended(wanted) => "already_ended",
            (Some(_), Some(_)) => "superseded",
            (Some(_) | None, _) => "not_found",
        };
        let applied = outcome == "applied";
        let fields = [
            ("applied", json!(applied)),
            ("applied_ns", json!(self.output.host_ns())),
            ("outcome", json!(outcome)),
            ("turn", json!(running)),
        ];
        self.answer("interrupt.ack", sid, request_id, &fields)?;
        match self.running(sid) {
            // A turn that hangs ignores it.
            Some(at) if applied && self.turns[at].due.is_some() => {
                let turn = self.turns.remove(at);
                self.end(turn, true)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn control(&mut self, sid: &str, request_id: &str, frame: &Map<String, Value>) -> io::Result<()> {
        let name = text(frame, "route_name").unwrap_or_default();
        let refuse =
            |message: &str| self.answer("control.error", sid, request_id, &[("message", json!(message))]);
        let busy = self.running(sid).is_some();
        let Some(route) = Route::from_name(name) else {
            return refuse(&format!("unclassified route: {name}"));
        };
        match route.class() {
            RouteClass::TurnPath => return refuse("use turn.start or interrupt"),
            RouteClass::IdleGated if busy => return refuse("session busy"),
            RouteClass::IdleGated | RouteClass::RunConcurrent => {}
        }
        let Some(session) = self.sessions.get_mut(sid) else {
            return self.answer("control.error", sid, request_id, &[("message", json!("session not found"))]);
        };
        if route == Route::SessionReset {
            session.history.clear();
            session.version += 1;
        }
        let fields = [
            ("route_name", json!(name)),
            ("output", json!("")),
            ("result", json!({})),
            ("session_key", json!(session.key)),
            ("history_version", json!(session.version)),
            ("message_count", json!(session.history.len())),
            ("session_info", json!({"running": busy})),
        ];
        self.answer("control.ack", sid, request_id, &fields)
    }

    fn shutdown(&mut self, request_id: &str) -> io::Result<()> {
        for turn in std::mem::take(&mut self.turns) {
            if turn.due.is_some() {
                self.end(turn, true)?;
            } else {
                let fields = [("reason", json!("shutdown")), ("message", json!("the host is stopping"))];
                self.answer("turn.error", &turn.sid, &turn.request_id, &fields)?;
            }
        }
        self.output.frame("shutdown.ack", &[("request_id", json!(request_id))])
    }

    fn end(&mut self, turn: Turn, interrupted: bool) -> io::Result<()> {
        let session = self.sessions.entry(turn.sid.clone()).or_default();
        let answer = if interrupted { format!("{}[interrupted]", turn.answer) } else { turn.answer };
        let appended = [
            json!({"role": "user", "content": turn.prompt}),
            json!({"role": "assistant", "content": answer}),
        ];
        session.history.extend(appended.iter().cloned());
        session.version += 1;
        session.ended.push(turn.request_id.clone());
        let excess = session.ended.len().saturating_sub(turnhost_protocol::limits::ENDED_TURNS_KEPT);
        session.ended.drain(..excess);
        let mut fields = vec![
            ("history_version", json!(session.version)),
            ("session_key", json!(session.key)),
            ("message_count", json!(session.history.len())),
            ("interrupted", json!(interrupted)),
            ("ended_ns", json!(self.output.host_ns())),
            ("final_response", json!(answer)),
            ("session_info", json!({"running": false})),
        ];
        if session.report_messages {
            fields.push(("messages_appended", json!(appended)));
        }
        // The answer is in the frame twice if messages are reported.
        if appended.iter().map(|message| message.to_string().len()).sum::<usize>() * 2 > limit() {
            fields.retain(|(name, _)| *name != "final_response" && *name != "messages_appended");
            fields.push(("omitted", json!(["final_response", "messages_appended"])));
        }
        self.output.active_turns.store(self.turns.len() as u64, Ordering::Relaxed);
        self.answer("turn.end", &turn.sid, &turn.request_id, &fields)
    }

    /// Where the session's turn stands in the list.
    fn running(&self, sid: &str) -> Option<usize> {
        self.turns.iter().position(|turn| turn.sid == sid)
    }

    fn answer(
        &self,
        frame_type: &str,
        sid: &str,
        request_id: &str,
        more: &[(&str, Value)],
    ) -> io::Result<()> {
        let mut fields = vec![("sid", json!(sid)), ("request_id", json!(request_id))];
        fields.extend_from_slice(more);
        self.output.frame(frame_type, &fields)
    }

    fn error(&self, request_id: Option<&str>, message: &str) -> io::Result<()> {
        let mut fields = Vec::new();
        if let Some(id) = request_id.filter(|id| !id.is_empty()) {
            fields.push(("request_id", json!(id)));
        }
        fields.push(("message", json!(message)));
        self.output.frame("error", &fields)
    }
}

impl Session {
    fn new(sid: &str, frame: &Map<String, Value>) -> Self {
        Self {
            key: text(frame, "session_key").unwrap_or(sid).to_owned(),
            history: frame.get("history").and_then(Value::as_array).cloned().unwrap_or_default(),
            version: 0,
            report_messages: frame.get("report_messages").and_then(Value::as_bool).unwrap_or(false),
            ended: Vec::new(),
        }
    }
}

impl Turn {
    fn new(sid: String, request_id: String, frame: &Map<String, Value>) -> Self {
        let number = |name: &str| frame.get(name).and_then(Value::as_f64);
        let hangs = frame.get("hang").and_then(Value::as_bool).unwrap_or(false);
        let prompt = text(frame, "text").or_else(|| text(frame, "prompt")).unwrap_or_default().to_owned();
        let delay = Duration::try_from_secs_f64(number("delay_s").unwrap_or(0.001)).unwrap_or_default();
        Self {
            sid,
            request_id,
            prompt,
            due: (!hangs).then(Instant::now),
            delay,
            // A negative or broken count is none.
            deltas_left: number("delta_count").unwrap_or(24.0) as u64,
            index: 0,
            delta_bytes: number("delta_bytes").unwrap_or(0.0) as usize,
            as_rpc: text(frame, "emit") == Some("rpc"),
            answer: String::new(),
        }
    }

    fn delta(&mut self, output: &Output, now: Instant) -> io::Result<()> {
        let mut piece = format!("{}:{}:{:04} ", self.sid, self.prompt, self.index);
        piece.extend(std::iter::repeat_n('x', self.delta_bytes.saturating_sub(piece.len())));
        self.answer.push_str(&piece);
        if self.as_rpc {
            let params = json!({"type": "message.delta", "session_id": self.sid, "payload": {"text": piece}});
            let message = json!({"jsonrpc": "2.0", "method": "event", "params": params});
            output.frame("rpc", &[("sid", json!(self.sid)), ("message", message)])?;
        } else {
            output.frame(
                "delta",
                &[
                    ("sid", json!(self.sid)),
                    ("request_id", json!(self.request_id)),
                    ("text", json!(piece)),
                    ("emitted_ns", json!(output.host_ns())),
                    ("seq", json!(self.index)),
                ],
            )?;
        }
        self.index += 1;
        self.deltas_left -= 1;
        self.due = Some(now + self.delay);
        Ok(())
    }
}

/// The largest frame in bytes, as the parent says.
pub(crate) fn limit() -> usize {
    let told = std::env::var("HERMES_COMPUTE_HOST_MAX_FRAME_BYTES").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(turnhost_protocol::limits::MAX_FRAME_BYTES)
}

fn text<'a>(frame: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    frame.get(name).and_then(Value::as_str)
}
