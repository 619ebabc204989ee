//! What a host says that is no frame, or one that cannot be believed: counted, told within bounds, never fatal.

use super::Actor;
use crate::events::{HostNotice, ProtocolErrorKind};
use crate::machine::{Input, Lookup, OpenPhase, RequestKind};
use crate::tail::escape_cut;
use turnhost_protocol::decode::{is_heartbeat_prefix, is_terminal_type};
use turnhost_protocol::{DecodeError, DecodeErrorKind, FailReason, RequestId, limits, peek_ids};

impl Actor {
    /// True if it was a sign of life.
    pub(super) fn on_undecodable(&mut self, line: &[u8], error: DecodeError) -> bool {
        let heartbeat = is_heartbeat_prefix(line);
        if !error.looks_like_frame {
            self.stray_line(line);
        } else if error.kind == DecodeErrorKind::UnknownType {
            self.unknown_type(error.frame_type.as_deref().unwrap_or_default());
        } else {
            let again = error.frame_type.as_deref() == Some("hello")
                && self.running.as_ref().is_some_and(|running| running.hello.is_some());
            let kind = if again { ProtocolErrorKind::HelloAgain } else { error.kind.into() };
            self.protocol_error(kind, error.detail.clone());
        }
        if error.is_terminal()
            && let Some(id) = self.turn_meant(error.request_id.as_ref())
        {
            let detail = format!("its terminal frame was refused: {}", error.detail);
            self.turn_lost(id, FailReason::Protocol, detail);
        }
        if heartbeat {
            self.on_heartbeat();
        }
        heartbeat || error.kind == DecodeErrorKind::UnknownType
    }

    pub(super) fn on_oversize(&mut self, bytes: u64, head: &[u8], tail: &[u8]) {
        let limit = self.config.max_frame_bytes;
        let ids = peek_ids(head, tail);
        let name = ids.frame_type.as_deref().unwrap_or("a line");
        let detail =
            format!("{} of {bytes} bytes skipped, the limit is {limit}", escape_cut(name.as_bytes(), 64));
        if is_terminal_type(name)
            && let Some(id) = self.turn_meant(ids.request_id.as_ref())
        {
            self.turn_lost(id, FailReason::FrameTooLarge, detail.clone());
        }
        self.protocol_error(ProtocolErrorKind::Oversize, detail);
    }

    /// The open turn that a terminal frame belongs to which cannot be read: the one it names, or the only one.
    fn turn_meant(&self, named: Option<&RequestId>) -> Option<RequestId> {
        let epoch = self.epoch();
        if let Some(id) = named {
            return matches!(self.machine.turn(epoch, id), Lookup::Open(_)).then(|| id.clone());
        }
        let open = self.machine.open_requests();
        let mut sent = open
            .iter()
            .filter(|request| *request.kind == RequestKind::Turn && request.phase != OpenPhase::Waiting);
        let only = sent.next()?.id.clone();
        sent.next().is_none().then_some(only)
    }

    fn turn_lost(&mut self, id: RequestId, reason: FailReason, detail: String) {
        let epoch = self.epoch();
        self.begin(&id);
        self.input(Input::TurnFailed { epoch, id, reason, detail });
    }

    pub(super) fn stray_line(&mut self, line: &[u8]) {
        self.counters.stray_lines += 1;
        if let Some(running) = &mut self.running {
            running.stray_lines += 1;
        }
        let shown = escape_cut(line, limits::STRAY_SHOWN_BYTES);
        self.stray.push_line(shown.clone());
        if self.notices.take(Self::now()) {
            self.subscribers.send(HostNotice::Stray { line: shown, bytes: line.len() as u64 });
        }
    }

    fn unknown_type(&mut self, name: &str) {
        self.counters.protocol_errors += 1;
        if self.notices.first_of_type(name) {
            let detail = format!("unknown frame type: {}", escape_cut(name.as_bytes(), 128));
            tracing::warn!("{detail}");
            self.subscribers.send(HostNotice::ProtocolError { kind: ProtocolErrorKind::UnknownType, detail });
        }
    }

    pub(super) fn late(&mut self, frame_type: &str) {
        self.counters.late_frames += 1;
        self.protocol_error(ProtocolErrorKind::LateFrame, format!("{frame_type} of a turn that has ended"));
    }

    pub(super) fn unknown(&mut self, frame_type: &str, id: &RequestId) {
        let id = escape_cut(id.as_str().as_bytes(), 128);
        self.protocol_error(
            ProtocolErrorKind::UnknownRequest,
            format!("{frame_type} for {id}, which is not open"),
        );
    }

    pub(super) fn protocol_error(&mut self, kind: ProtocolErrorKind, detail: String) {
        self.counters.protocol_errors += 1;
        if self.notices.take(Self::now()) {
            tracing::debug!(?kind, detail, "protocol error");
            self.subscribers.send(HostNotice::ProtocolError { kind, detail });
        }
    }
}

impl From<DecodeErrorKind> for ProtocolErrorKind {
    fn from(kind: DecodeErrorKind) -> Self {
        match kind {
            DecodeErrorKind::Depth => Self::Depth,
            DecodeErrorKind::Json => Self::Json,
            DecodeErrorKind::NotObject => Self::NotObject,
            DecodeErrorKind::BadField => Self::BadField,
            DecodeErrorKind::DuplicateKey => Self::DuplicateKey,
            DecodeErrorKind::UnknownType => Self::UnknownType,
            DecodeErrorKind::TerminalBehindText => Self::TerminalBehindText,
        }
    }
}
