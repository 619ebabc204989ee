use super::*;
use crate::io::lanes::InFlight;
use serde_json::Value;

const LIMIT: usize = 4096;

fn address() -> Address {
    Address { sid: "s".into(), request_id: "t".into(), group: 1 }
}

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
            assert!(line.len() <= LIMIT, "a frame of {} bytes", line.len());
            serde_json::from_slice(line).unwrap()
        })
        .collect()
}

#[test]
fn an_oversize_delta_is_split_between_characters_and_loses_nothing() {
    for text in ["x".repeat(10_000), "\u{1}".repeat(3000), "🦀é".repeat(2000), "a".repeat(LIMIT / 8)] {
        let mut out = Outbox::new(LIMIT);
        let mut next = 0;
        let mut seq = || {
            next += 1;
            next - 1
        };
        out.delta(&address(), text.clone(), None, &mut seq, true);
        let frames = frames(&mut out);
        let (rpc, deltas): (Vec<_>, Vec<_>) = frames.iter().partition(|frame| frame["type"] == "rpc");
        let joined: String = deltas.iter().map(|frame| frame["text"].as_str().unwrap()).collect();
        assert_eq!(joined, text);
        let numbers: Vec<_> = deltas.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..deltas.len() as u64).collect::<Vec<_>>());
        let mirrored: String =
            rpc.iter().map(|frame| frame["message"]["params"]["payload"]["text"].as_str().unwrap()).collect();
        assert_eq!(mirrored, text);
    }
}

fn big() -> RawJson {
    RawJson::from_value(&"x".repeat(LIMIT)).unwrap()
}

#[test]
fn an_oversize_end_leaves_out_its_big_fields_and_names_them() {
    let mut out = Outbox::new(LIMIT);
    let end = TurnEnd {
        request_id: "t".into(),
        final_response: Some("y".repeat(LIMIT)),
        messages_appended: Some(vec![big()]),
        session_info: RawJson::from_value(&1).ok(),
        ..TurnEnd::default()
    };
    out.turn_end(1, TurnEnd { final_response: Some("fits".to_owned()), ..end.clone() });
    out.turn_end(1, end);
    let frames = frames(&mut out);
    assert_eq!(frames[0]["omitted"], serde_json::json!(["messages_appended"]));
    assert_eq!(frames[0]["final_response"], "fits");
    assert_eq!(frames[1]["omitted"], serde_json::json!(["messages_appended", "final_response"]));
    assert_eq!(frames[1]["session_info"], 1);
    assert_eq!(frames.len(), 2);
}

#[test]
fn an_oversize_error_is_cut_and_says_what_was() {
    let mut out = Outbox::new(LIMIT);
    let error = TurnError {
        request_id: "t".into(),
        message: "é".repeat(LIMIT),
        stderr_tail: Some(vec!["z".repeat(LIMIT)]),
        messages_appended: Some(vec![big()]),
        ..TurnError::default()
    };
    out.turn_error(1, error);
    let frames = frames(&mut out);
    assert_eq!(frames[0]["omitted"], serde_json::json!(["messages_appended", "stderr_tail", "message"]));
    assert!(frames[0]["message"].as_str().unwrap().starts_with("éé"));
}

#[test]
fn an_oversize_answer_to_a_control_still_answers() {
    let mut out = Outbox::new(LIMIT);
    out.control_ack(ControlAck {
        request_id: "c".into(),
        messages: Some(vec![big()]),
        result: Some(big()),
        ..ControlAck::default()
    });
    assert_eq!(frames(&mut out)[0]["omitted"], serde_json::json!(["messages", "result"]));
}

#[test]
fn an_oversize_event_is_refused() {
    let mut out = Outbox::new(LIMIT);
    let body =
        RawJson::from_value(&serde_json::json!({"kind": "plan", "entries": ["x".repeat(LIMIT)]})).unwrap();
    assert!(!out.event(&address(), 0, &body, None));
    assert_eq!(frames(&mut out), Vec::<Value>::new());
}

#[test]
fn nothing_follows_the_last_frame() {
    let mut out = Outbox::new(LIMIT);
    out.answer(turnhost_protocol::frame::ShutdownAck::default());
    out.close();
    out.answer(turnhost_protocol::frame::Orphan::default());
    out.heartbeat(Heartbeat::default());
    out.send(1, turnhost_protocol::frame::Error::default());
    out.turn_end(1, TurnEnd::default());
    out.turn_error(1, TurnError::default());
    out.control_ack(ControlAck::default());
    out.delta(&address(), "x".to_owned(), None, &mut || 0, true);
    out.rpc(&address(), "message.start", &Value::Null);
    let types: Vec<_> = frames(&mut out).iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(types, ["shutdown.ack"]);
}
