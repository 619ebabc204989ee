use super::*;
use crate::io::lanes::InFlight;
use crate::session::Usage;
use serde_json::{Value, json};
use turnhost_protocol::frame::{
    ControlAck, ControlError, Error, Orphan, RespondAck, RespondError, ShutdownAck, TurnEnd, TurnError,
};
use turnhost_protocol::limits::{MAX_ID_BYTES, MIN_FRAME_BYTES};

/// What a frame without identifiers may have, and the least that may be set.
const LIMITS: [usize; 2] = [MIN_FRAME_BYTES, 100_000];
const LONG: usize = 120_000;

fn room() -> Room {
    crate::turn::context::tests::room()
}

/// Short identifiers, and the longest ones whose every byte is escaped to six.
fn addresses() -> [Address; 2] {
    let longest = "\u{1}".repeat(MAX_ID_BYTES);
    [
        Address { sid: "s".into(), request_id: "t".into(), group: 1 },
        Address { sid: longest.clone().into(), request_id: longest.into(), group: 1 },
    ]
}

fn cases() -> impl Iterator<Item = (usize, Address)> {
    LIMITS.into_iter().flat_map(|limit| addresses().map(|to| (limit, to)))
}

/// Every frame that leaves; none of them over the limit.
fn frames(out: &mut Outbox) -> Vec<Value> {
    let mut bytes = Vec::new();
    let mut batch = InFlight::default();
    loop {
        out.lanes.fill(&mut batch);
        if batch.rest().is_empty() {
            break;
        }
        bytes.extend_from_slice(batch.rest());
        batch.advance(batch.rest().len());
    }
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            assert!(line.len() <= out.limit, "a frame of {} bytes, limit {}", line.len(), out.limit);
            serde_json::from_slice(line).unwrap()
        })
        .collect()
}

fn only(out: &mut Outbox) -> Value {
    let mut frames = frames(out);
    assert_eq!(frames.len(), 1, "{frames:.500?}");
    frames.remove(0)
}

fn big() -> RawJson {
    RawJson::from_value(&"x".repeat(LONG)).unwrap()
}

#[test]
fn an_oversize_delta_arrives_in_pieces_with_consecutive_numbers_and_loses_nothing() {
    for (limit, to) in cases() {
        for text in ["x".repeat(LONG), "\u{1}\"".repeat(20_000), "🦀é\n".repeat(20_000), "a".repeat(limit)]
        {
            let mut out = Outbox::new(limit);
            let mut next = 5;
            let mut seq = || {
                next += 1;
                next - 1
            };
            out.delta(&to, &text, &room(), &mut seq, true);
            let frames = frames(&mut out);
            let (rpc, deltas): (Vec<_>, Vec<_>) = frames.iter().partition(|frame| frame["type"] == "rpc");
            assert!(deltas.len() > 1, "{} deltas", deltas.len());
            let joined: String = deltas.iter().map(|frame| frame["text"].as_str().unwrap()).collect();
            assert!(joined == text, "the text changed");
            let numbers: Vec<_> = deltas.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (5..5 + deltas.len() as u64).collect::<Vec<_>>());
            assert!(deltas.iter().all(|delta| delta["request_id"] == to.request_id.as_str()));
            let mirrored: String = rpc
                .iter()
                .map(|frame| frame["message"]["params"]["payload"]["text"].as_str().unwrap())
                .collect();
            assert!(mirrored == text, "the mirrored text changed");
        }
    }
}

#[test]
fn a_delta_keeps_its_room_until_its_last_piece_has_left() {
    for mirror in [false, true] {
        let (room, held) = crate::turn::context::tests::room_of(7);
        let mut out = Outbox::new(MIN_FRAME_BYTES);
        out.delta(&addresses()[0], &"x".repeat(LONG), &room, &mut || 0, mirror);
        drop(room);
        let mut batch = InFlight::default();
        let mut pieces = 0;
        while !out.lanes.is_empty() {
            assert_eq!(held.available_permits(), 0, "given back after {pieces} pieces");
            out.lanes.fill(&mut batch);
            batch.advance(batch.rest().len());
            pieces += 1;
        }
        assert_eq!(held.available_permits(), 7);
    }
}

#[test]
fn an_empty_delta_is_one_frame() {
    let mut out = Outbox::new(MIN_FRAME_BYTES);
    out.delta(&addresses()[0], "", &room(), &mut || 0, true);
    let kinds: Vec<_> = frames(&mut out).iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(kinds, ["delta", "rpc"]);
}

/// Every frame that somebody waits for, as big as it can become.
fn big_endings(to: &Address) -> Vec<(HostEvent, &'static [&'static str])> {
    let (sid, request_id) = (Some(to.sid.clone()), to.request_id.clone());
    let text = "é\u{1}".repeat(15_000);
    let end = TurnEnd {
        sid: sid.clone(),
        request_id: request_id.clone(),
        session_key: Some(text.clone()),
        final_response: Some(text.clone()),
        session_info: Some(big()),
        messages_appended: Some(vec![big(), big()]),
        ..TurnEnd::default()
    };
    let error = TurnError {
        sid: sid.clone(),
        request_id: request_id.clone(),
        reason: Some("agent_exit".to_owned()),
        message: text.clone(),
        stderr_tail: Some(vec![text.clone()]),
        messages_appended: Some(vec![big()]),
        ..TurnError::default()
    };
    let ack = ControlAck {
        sid: sid.clone(),
        request_id: request_id.clone(),
        route_name: Some("session.reset".to_owned()),
        output: Some(text.clone()),
        result: Some(big()),
        session_key: Some(text.clone()),
        session_info: Some(big()),
        messages: Some(vec![big()]),
        ..ControlAck::default()
    };
    let refused = ControlError { sid: sid.clone(), request_id: request_id.clone(), message: text.clone() };
    let unanswered = RespondError { sid: sid.clone(), request_id: request_id.clone(), message: text.clone() };
    let answered = RespondAck {
        sid,
        request_id: request_id.clone(),
        resolved: Some(true),
        approval_id: Some(text.clone()),
        choice: Some(text.clone()),
    };
    vec![
        (end.into(), &["final_response", "messages_appended", "session_info", "session_key"]),
        (error.into(), &["message", "messages_appended", "stderr_tail"]),
        (ack.into(), &["messages", "output", "result", "session_info", "session_key"]),
        (refused.into(), &["message"]),
        (unanswered.into(), &["message"]),
        (answered.into(), &["approval_id", "choice"]),
        (Error { request_id: Some(request_id), message: text }.into(), &["message"]),
    ]
}

#[test]
fn every_oversize_ending_and_answer_still_arrives_and_says_what_was_omitted() {
    for (limit, to) in cases() {
        for (frame, expected) in big_endings(&to) {
            let kind = frame.type_name();
            let mut out = Outbox::new(limit);
            out.send(1, frame.clone());
            out.answer(frame);
            let both = frames(&mut out);
            assert_eq!(both.len(), 2, "{kind} at {limit}");
            for sent in both {
                assert_eq!(sent["type"], kind);
                assert_eq!(sent["request_id"], to.request_id.as_str(), "{kind} at {limit}");
                let mut omitted: Vec<&str> =
                    sent["omitted"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
                omitted.sort_unstable();
                assert_eq!(omitted, expected, "{kind} at {limit}");
                if let Some(message) = sent.get("message") {
                    assert!(message.as_str().unwrap().starts_with('é'), "{kind}: the start of it is kept");
                }
                assert!(sent["host_ns"].is_u64());
            }
        }
    }
}

#[test]
fn an_end_keeps_what_fits() {
    let mut out = Outbox::new(MIN_FRAME_BYTES);
    let end = TurnEnd {
        request_id: "t".into(),
        final_response: Some("fits".to_owned()),
        messages_appended: Some(vec![big()]),
        ..TurnEnd::default()
    };
    out.send(1, end);
    let sent = only(&mut out);
    assert_eq!(sent["omitted"], json!(["messages_appended"]));
    assert_eq!(sent["final_response"], "fits");
}

#[test]
fn an_oversize_event_leaves_without_its_big_fields() {
    for (limit, to) in cases() {
        let mut out = Outbox::new(limit);
        let body = json!({"kind": "tool_call_update", "tool_call_id": "c", "content": "x".repeat(LONG)});
        out.event(&to, 3, &RawJson::from_value(&body).unwrap(), None);
        let sent = only(&mut out);
        assert_eq!(
            (&sent["kind"], &sent["tool_call_id"], &sent["seq"]),
            (&json!("tool_call_update"), &json!("c"), &json!(3))
        );
        assert_eq!(sent["omitted"], json!(["content"]));
    }
}

#[test]
fn an_oversize_rpc_event_keeps_its_small_fields_and_names_the_others() {
    for (limit, to) in cases() {
        let mut out = Outbox::new(limit);
        let text = "\u{1}".repeat(20_000);
        out.rpc(
            &to,
            "message.complete",
            crate::rpc::message_complete(&text, "error", Some(&text), Usage::default()),
        );
        let sent = only(&mut out);
        let params = &sent["message"]["params"];
        assert_eq!(
            (&params["type"], &params["session_id"]),
            (&json!("message.complete"), &json!(to.sid.as_str()))
        );
        assert_eq!(params["payload"]["status"], "error");
        assert_eq!(params["payload"]["omitted"], json!(["message", "text"]));
    }
}

#[test]
fn whether_an_event_fits_is_known_before_it_is_sent() {
    for (limit, to) in cases() {
        for mirror in [None, Some("approval.request")] {
            let mut out = Outbox::new(limit);
            let status = |bytes: usize| EventBody::Status { text: "x".repeat(bytes) };
            assert!(out.fits_event(&to, &status(1), mirror));
            let sizes: Vec<usize> = (0..limit).collect();
            let most = sizes.partition_point(|bytes| out.fits_event(&to, &status(*bytes), mirror)) - 1;
            assert!(most > 1000, "{most} of {limit}");
            out.event(&to, u64::MAX, &RawJson::from_value(&status(most)).unwrap(), None);
            if mirror.is_some() {
                out.rpc(&to, "approval.request", serde_json::to_value(status(most)).unwrap());
            }
            for sent in frames(&mut out) {
                assert!(!sent.to_string().contains("omitted"), "{most} bytes at {limit}");
            }
        }
    }
}

#[test]
fn nothing_follows_the_last_frame() {
    let mut out = Outbox::new(MIN_FRAME_BYTES);
    let [to, _] = addresses();
    out.answer(ShutdownAck::default());
    out.close();
    out.answer(Orphan::default());
    out.heartbeat(Heartbeat::default());
    out.send(1, Error::default());
    out.delta(&to, "x", &room(), &mut || 0, true);
    out.event(&to, 0, &RawJson::from_value(&json!({"kind": "status"})).unwrap(), None);
    out.raw(1, b"x", room());
    out.rpc(&to, "message.start", Value::Null);
    let types: Vec<_> = frames(&mut out).iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(types, ["shutdown.ack"]);
}
