//! The event lines of stdout: pure.

use crate::supervise::answer::line;
use serde::Serialize;
use turnhost_protocol::RequestId;
use turnhost_supervisor::{HostNotice, TurnEvent};

/// The line of an event of the host. `None` for a lost session: its next turn is told, in its place.
pub(crate) fn notice(notice: &HostNotice) -> Option<Vec<u8>> {
    (!matches!(notice, HostNotice::SessionLost { .. })).then(|| line(notice))
}

/// The line of an event of a turn.
pub(crate) fn turn(request_id: &RequestId, event: &TurnEvent) -> Option<Vec<u8>> {
    match event {
        TurnEvent::SessionLost { sid } => Some(line(&HostNotice::SessionLost { sid: sid.clone() })),
        TurnEvent::Lagged { deltas, bytes } => Some(lagged(request_id, *deltas, *bytes)),
        other => other.to_json().map(|frame| framed(request_id, &frame)),
    }
}

fn lagged(request_id: &RequestId, deltas: u64, bytes: u64) -> Vec<u8> {
    #[derive(Serialize)]
    struct Lagged<'a> {
        event: &'static str,
        request_id: &'a RequestId,
        deltas: u64,
        bytes: u64,
    }
    line(&Lagged { event: "lagged", request_id, deltas, bytes })
}

/// `frame` is one JSON object and goes in as it is, so that fields which nobody here knows arrive.
fn framed(request_id: &RequestId, frame: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Head<'a> {
        event: &'static str,
        request_id: &'a RequestId,
    }
    let mut out = line(&Head { event: "turn", request_id });
    // `{…}` and its newline become `{…,"frame":FRAME}` and a newline.
    out.truncate(out.len().saturating_sub(2));
    out.extend_from_slice(b",\"frame\":");
    out.extend_from_slice(frame.as_bytes());
    out.extend_from_slice(b"}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_stands_in_its_event_byte_for_byte() {
        let line = framed(&"t\"1".into(), r#"{"type":"delta","n":1.50,"new":{"b":1,"a":2}}"#);
        assert_eq!(
            String::from_utf8(line).expect("utf-8"),
            "{\"event\":\"turn\",\"request_id\":\"t\\\"1\",\
             \"frame\":{\"type\":\"delta\",\"n\":1.50,\"new\":{\"b\":1,\"a\":2}}}\n"
        );
    }

    #[test]
    fn a_lost_session_is_told_in_the_place_of_its_turn_alone() {
        let line = b"{\"event\":\"session_lost\",\"sid\":\"s\"}\n".to_vec();
        assert_eq!(turn(&"t".into(), &TurnEvent::SessionLost { sid: "s".into() }), Some(line));
        assert_eq!(notice(&HostNotice::SessionLost { sid: "s".into() }), None);
    }

    #[test]
    fn a_gap_names_its_turn() {
        assert_eq!(
            turn(&"t".into(), &TurnEvent::Lagged { deltas: 2, bytes: 30 }),
            Some(b"{\"event\":\"lagged\",\"request_id\":\"t\",\"deltas\":2,\"bytes\":30}\n".to_vec())
        );
    }
}
