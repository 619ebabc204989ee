use super::*;
use crate::frame::{Delta, Heartbeat, TurnStart};
use pretty_assertions::assert_eq;

fn event_error(line: &str) -> DecodeError {
    decode_event(line.as_bytes()).expect_err("the line is refused")
}

#[test]
fn a_frame_is_read_with_its_text() {
    let line = r#"{"type":"delta","sid":"s1","request_id":"r1","text":"a","new":[1, 2]}"#;
    let decoded = decode_event(line.as_bytes()).unwrap();
    let delta =
        Delta { sid: Some("s1".into()), request_id: "r1".into(), text: "a".to_owned(), ..Delta::default() };
    let expected =
        Decoded { frame: HostEvent::Delta(delta), text: line.into(), repaired: 0, salvaged: false };
    assert_eq!(decoded, expected);
    assert!(matches!(decoded.text, Cow::Borrowed(_)));
}

#[test]
fn every_field_that_is_not_required_may_be_null() {
    let line = br#"{"type":"delta","sid":null,"request_id":"r1","text":null,"seq":null}"#;
    let delta = Delta { request_id: "r1".into(), ..Delta::default() };
    assert_eq!(decode_event(line).unwrap().frame, HostEvent::Delta(delta));
    let line = br#"{"type":"turn.start","sid":null,"history":null,"delta_count":null,"agent":null}"#;
    assert_eq!(decode_command(line).unwrap().frame, HostCommand::TurnStart(TurnStart::default()));
    let line = br#"{"type":"hb","rss_mb":null}"#;
    assert_eq!(decode_event(line).unwrap().frame, HostEvent::Heartbeat(Heartbeat::default()));
}

#[test]
fn a_bad_field_is_named() {
    for (line, detail) in [
        (
            r#"{"type":"delta","request_id":"r","seq":"x"}"#,
            r#"bad field `seq`: invalid type: string "x", expected u64"#,
        ),
        (r#"{"type":"delta","text":"x"}"#, "bad field: missing field `request_id`"),
        (
            r#"{"type":"delta","request_id":7,"text":"x"}"#,
            "bad field `request_id`: invalid type: integer `7`, expected a string",
        ),
        (
            r#"{"type":"hb","progress_counter":-1,"rss_mb":1}"#,
            "bad field `progress_counter`: invalid value: integer `-1`, expected u64",
        ),
        (
            r#"{"type":"hb","active_turns":1,"progress_counter":1e400}"#,
            "bad field `progress_counter`: number out of range",
        ),
        (r#"{"type":5}"#, "bad field `type`: it is no string"),
        (r"{}", "bad field `type`: it is missing"),
    ] {
        let error = event_error(line);
        assert_eq!((error.kind, &*error.detail), (DecodeErrorKind::BadField, detail), "{line}");
    }
}
