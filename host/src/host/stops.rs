//! The end of the host: what the stop machine decides, done.

use super::Host;
use crate::event::Outside;
use crate::stop::{Action, Cause, Reason};
use serde::Serialize;
use tokio::time::Instant;
use turnhost_protocol::frame::{Orphan, ShutdownAck};

impl Host {
    pub(super) fn on_outside(&mut self, now: Instant, outside: Outside) {
        match outside {
            Outside::Terminate => self.stop_for(now, Cause::Signal),
            Outside::Hangup => self.stop_for(now, Cause::ParentGone),
            Outside::ParentGone { old, new } => {
                self.out.answer(Orphan { old_ppid: Some(old.into()), ppid: Some(new.into()) });
                self.stop_for(now, Cause::ParentGone);
            }
        }
    }

    pub(super) fn on_input_ended(&mut self, now: Instant) {
        self.stop_for(now, Cause::InputEnded);
    }

    pub(super) fn on_output_gone(&mut self, now: Instant) {
        self.out.close();
        self.out.lanes = crate::io::lanes::Lanes::default();
        self.stop_for(now, Cause::OutputGone);
    }

    pub(super) fn stop_for(&mut self, now: Instant, cause: Cause) {
        let mut actions = Vec::new();
        self.stop.on_cause(now, cause, &mut actions);
        self.act(now, actions);
    }

    pub(super) fn step_stop(&mut self, now: Instant, written: bool) {
        loop {
            let flushed = written && self.out.lanes.is_empty();
            let mut actions = Vec::new();
            let open = self.turns.len() + self.open_controls.len() + self.compressions.len();
            self.stop.step(now, open, flushed, &mut actions);
            if actions.is_empty() {
                return;
            }
            self.act(now, actions);
        }
    }

    fn act(&mut self, now: Instant, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Close => {
                    for session in self.sessions.values_mut() {
                        session.gate.close();
                    }
                    for turn in self.turns.waiting() {
                        self.end_for_stop(turn);
                    }
                }
                Action::InterruptAll => {
                    for turn in self.turns.ids() {
                        self.interrupt_turn(now, turn);
                    }
                    self.stop_compressions(now);
                }
                Action::ForceAll => {
                    for turn in self.turns.ids() {
                        self.end_for_stop(turn);
                    }
                    self.force_compressions(now);
                    self.give_up_open_controls();
                }
                Action::Finalize(reason) => {
                    self.finalize(reason);
                    for request_id in std::mem::take(&mut self.shutdowns) {
                        self.out.send(0, ShutdownAck { request_id });
                    }
                    self.next_heartbeat = None;
                    self.out.close();
                }
                Action::Exit => self.over = true,
            }
        }
    }

    /// One record for each session. An unwritable log costs the records and nothing else.
    fn finalize(&mut self, reason: Reason) {
        #[derive(Serialize)]
        struct Record<'a> {
            event: &'a str,
            reason: &'a str,
            sid: &'a str,
            session_key: &'a str,
            parent_session_key: Option<&'a str>,
            history_version: u64,
            message_count: u64,
            host_pid: u32,
            boot_id: &'a str,
            at_ms: u64,
        }
        let log = self.options.home.join("logs").join("compute-host.log");
        let mut sessions: Vec<_> = self.sessions.values().collect();
        sessions.sort_unstable_by_key(|session| session.number);
        for session in sessions {
            let record = Record {
                event: "session.finalized",
                reason: reason.as_str(),
                sid: session.sid.as_str(),
                session_key: session.history.session_key(),
                parent_session_key: session.history.parent_key(),
                history_version: session.history.version(),
                message_count: session.history.message_count(),
                host_pid: std::process::id(),
                boot_id: self.boot_id.as_str(),
                at_ms: unix_ms(),
            };
            let written = serde_json::to_string(&record)
                .map_err(std::io::Error::other)
                .and_then(|record| turnhost_os::append_log_record(&log, &record));
            if let Err(error) = written {
                tracing::warn!(%error, log = %log.display(), "sessions could not be finalized");
                return;
            }
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
