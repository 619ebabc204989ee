//! What can be seen from outside: state, status, and how often something is told.

use super::{Actor, Waiter};
use crate::events::HostNotice;
use crate::machine::{Lookup, OpenPhase, RequestKind, Snapshot, StartFault};
use crate::status::{
    HostReady, HostStatus, LastExit, OpenRequests, OpenTurn, StateSnapshot, TurnPhase, millis,
};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use turnhost_protocol::ErrorKind;
use turnhost_protocol::hello::Hello;

/// Stray and protocol events a second; the rest is only counted.
const NOTICES_PER_SECOND: u32 = 20;
/// Unknown frame types that are told by name.
const TYPES_TOLD: usize = 64;

/// What the accepted hello of the current or last child said, and when its last heartbeat came.
#[derive(Debug, Default)]
pub(super) struct LastHello {
    pub boot_id: Option<String>,
    pub build_sha: Option<String>,
    pub protocol: u32,
    pub heartbeat: Option<Instant>,
}

/// Keeps a host that misbehaves from flooding whoever listens.
#[derive(Debug, Default)]
pub(super) struct NoticeBudget {
    window: Option<Instant>,
    taken: u32,
    types: HashSet<String>,
}

impl NoticeBudget {
    /// True if one more may be told now.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        if self.window.is_none_or(|began| now.saturating_duration_since(began) >= Duration::from_secs(1)) {
            self.window = Some(now);
            self.taken = 0;
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= NOTICES_PER_SECOND
    }

    /// True the first time for each of the first types.
    pub(super) fn first_of_type(&mut self, name: &str) -> bool {
        self.types.len() < TYPES_TOLD && self.types.insert(name.to_owned())
    }
}

impl Actor {
    pub(super) fn note_hello(&mut self, hello: &Hello) {
        self.last_hello = LastHello {
            boot_id: Some(hello.boot_id.as_str().to_owned()),
            build_sha: hello.build_sha.clone(),
            protocol: hello.protocol.unwrap_or(0),
            heartbeat: None,
        };
    }

    pub(super) fn note_heartbeat(&mut self) {
        let now = Self::now();
        self.last_hello.heartbeat = Some(now);
        // Seen by whoever looks, without waking those who wait for a change.
        self.publish.send_if_modified(|state| {
            state.last_heartbeat = Some(now);
            false
        });
    }

    /// The pid is known between two states.
    pub(super) fn note_pid(&mut self) {
        let pid = self.pid();
        self.publish.send_if_modified(|state| {
            state.pid = pid;
            false
        });
    }

    pub(super) fn publish(&mut self, snapshot: Snapshot) {
        let lives = self.running.as_ref().is_some_and(|running| !running.exited && running.hello.is_some());
        let state = StateSnapshot {
            state: snapshot.state,
            pid: self.pid(),
            incarnation: snapshot.epoch,
            boot_id: self.last_hello.boot_id.clone().filter(|_| lives),
            restarts: snapshot.restarts,
            last_exit: self.last_exit.map(LastExit::of),
            next_start_at: snapshot.next_start_at,
            last_heartbeat: self.last_hello.heartbeat.filter(|_| lives),
        };
        tracing::debug!(state = ?state.state, incarnation = state.incarnation, "state");
        self.publish.send_replace(state.clone());
        self.subscribers.send(HostNotice::State(state));
    }

    fn pid(&self) -> Option<i32> {
        self.running.as_ref().filter(|running| !running.exited).map(|running| running.identity.pid)
    }

    pub(super) fn ready(&self) -> HostReady {
        HostReady {
            pid: self.pid().unwrap_or_default(),
            incarnation: self.machine.epoch(),
            boot_id: self.last_hello.boot_id.clone().unwrap_or_default(),
            build_sha: self.last_hello.build_sha.clone(),
            protocol: self.last_hello.protocol,
            reconciled: self.registry.reconciled().map(str::to_owned),
        }
    }

    pub(super) fn status(&self) -> HostStatus {
        let now = Self::now();
        let snapshot = self.machine.snapshot();
        let living = self.running.as_ref().filter(|running| !running.exited);
        let ago = |at: Instant| millis(now.saturating_duration_since(at));
        let requests = self.machine.open_requests();
        let is_turn = |kind: &RequestKind| matches!(kind, RequestKind::Turn);
        let turns = requests.iter().filter(|request| is_turn(request.kind)).map(|request| OpenTurn {
            request_id: request.id.clone(),
            sid: request.sid.clone(),
            phase: match request.phase {
                OpenPhase::Waiting => TurnPhase::Waiting,
                OpenPhase::Sent => TurnPhase::Sent,
                OpenPhase::Started => TurnPhase::Started,
            },
            since_ms: ago(request.since),
        });
        let turns: Vec<OpenTurn> = turns.collect();
        let active_turns = turns.iter().filter(|turn| turn.phase != TurnPhase::Waiting).count();
        let open = OpenRequests {
            turns,
            controls: requests.iter().filter(|request| !is_turn(request.kind)).count(),
        };
        let greeted = living.is_some_and(|running| running.hello.is_some());
        HostStatus {
            state: snapshot.state,
            pid: living.map(|running| running.identity.pid),
            guard_pid: living.and_then(|running| running.guard.as_ref()).map(|guard| guard.pid),
            incarnation: snapshot.epoch,
            boot_id: self.last_hello.boot_id.clone().filter(|_| greeted),
            build_sha: self.last_hello.build_sha.clone().filter(|_| greeted),
            uptime_ms: living.map(|running| ago(running.started_at)),
            restarts: snapshot.restarts,
            next_start_in_ms: snapshot.next_start_at.map(|at| millis(at.saturating_duration_since(now))),
            last_exit: self.last_exit.map(LastExit::of),
            last_heartbeat_ms_ago: self.last_hello.heartbeat.filter(|_| greeted).map(ago),
            active_turns,
            open,
            counters: self.counters.clone(),
            stderr_tail: self.stderr.lines(),
            stray_tail: self.stray.lines(),
            registry: self.registry.path().map(|path| path.display().to_string()),
        }
    }

    /// Why a start failed, with what the child said instead of hello.
    pub(super) fn start_message(&self, fault: &StartFault) -> String {
        let mut message = fault.detail.clone();
        if !matches!(fault.kind, ErrorKind::NoHello | ErrorKind::ExitedBeforeHello) {
            return message;
        }
        if let Some(running) = &self.running {
            let bytes = running.bytes_read;
            message.push_str(&match (bytes, running.lines_read) {
                (0, _) => "; 0 bytes on stdout".to_owned(),
                (bytes, 0) => format!("; {bytes} bytes on stdout, no line end"),
                (bytes, lines) => format!("; {bytes} bytes on stdout, {lines} lines, none of them a hello"),
            });
            if running.lines_read > 0
                && let Some(line) = self.stray.last()
            {
                let line: String = line.chars().take(200).collect();
                message.push_str(&format!(" (the last: {line})"));
            }
        }
        let stderr = self.stderr.lines();
        if stderr.is_empty() {
            message.push_str("; nothing on stderr");
        } else {
            let last = &stderr[stderr.len().saturating_sub(10)..];
            message.push_str(&format!("; its stderr ends: {}", last.join(" | ")));
        }
        message
    }

    /// Tells the permits of turns of which something is in the pipe, for when they are lost.
    pub(super) fn mark_handed_over(&self) {
        let epoch = self.machine.epoch();
        for request in self.machine.open_requests() {
            // The machine finds by id only what was handed over.
            if let Lookup::Open(Waiter::Turn { permit, .. }) = self.machine.turn(epoch, request.id) {
                permit.handed_over();
            }
        }
    }
}
