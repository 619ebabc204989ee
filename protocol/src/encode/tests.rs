use super::*;
use crate::decode::decode_event;
use crate::frame::{ControlAck, Error, Rpc, TurnEnd, TurnError};
use crate::limits::{MAX_ID_BYTES, MIN_FRAME_BYTES};
use pretty_assertions::assert_eq;

fn raw(text: impl Into<String>) -> RawJson {
    RawJson::parse(text).unwrap()
}

fn string_of(len: usize) -> String {
    "x".repeat(len)
}

/// The frame as a bounded writer sends it, without its newline; checks that it is one line within the limit.
fn bounded(frame: impl Into<HostEvent>, limit: usize) -> (Encoded, String) {
    let mut out = b"before\n".to_vec();
    let encoded = frame.into().encode_bounded(7, limit, &mut out);
    let text = String::from_utf8(out).unwrap();
    let line = text.strip_prefix("before\n").unwrap();
    if encoded == Encoded::TooLarge {
        assert_eq!(line, "");
        return (encoded, String::new());
    }
    let line = line.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'));
    assert!(line.len() <= limit, "{} bytes over a limit of {limit}", line.len());
    (encoded, line.to_owned())
}

fn end() -> TurnEnd {
    TurnEnd {
        sid: Some("s1".into()),
        request_id: "r1".into(),
        history_version: Some(1),
        ..TurnEnd::default()
    }
}

#[test]
fn a_frame_within_the_limit_is_left_alone() {
    let frame = HostEvent::from(end());
    let mut whole = Vec::new();
    frame.encode(7, &mut whole);
    let whole = String::from_utf8(whole).unwrap().trim_end().to_owned();
    assert_eq!(bounded(end(), whole.len()), (Encoded::Whole, whole.clone()));
    assert_eq!(
        bounded(end(), whole.len() - 1).0,
        Encoded::TooLarge,
        "one byte less, and nothing big to leave out"
    );
}

#[test]
fn the_biggest_fields_of_a_turn_end_go_first_and_are_named() {
    let frame = TurnEnd {
        final_response: Some(string_of(10_000)),
        session_info: Some(raw(format!(r#"{{"model":"{}"}}"#, string_of(8_000)))),
        messages_appended: Some(vec![raw(format!(r#""{}""#, string_of(20_000)))]),
        session_key: Some("k".to_owned()),
        ..end()
    };
    let info = frame.session_info.clone().unwrap();
    let expected = format!(
        r#"{{"type":"turn.end","sid":"s1","request_id":"r1","history_version":1,"session_key":"k","interrupted":false,"session_info":{},"omitted":["messages_appended","final_response"],"host_ns":7}}"#,
        info.as_str()
    );
    assert_eq!(bounded(frame, 16_384), (Encoded::Shortened, expected));
}

#[test]
fn a_message_for_people_is_cut_between_characters() {
    let frame = TurnError {
        request_id: "r1".into(),
        reason: Some("exception".to_owned()),
        message: "é\"".repeat(10_000),
        stderr_tail: Some(vec![string_of(30_000)]),
        ..TurnError::default()
    };
    // 1,021 bytes hold 255 times the two characters of 4 encoded bytes, and no half of one.
    let expected = format!(
        r#"{{"type":"turn.error","request_id":"r1","reason":"exception","message":"{}…","omitted":["message","stderr_tail"],"host_ns":7}}"#,
        r#"é\""#.repeat(255)
    );
    assert_eq!(bounded(frame, 16_384), (Encoded::Shortened, expected));
}

#[test]
fn a_control_ack_goes_without_its_messages_and_result() {
    let frame = ControlAck {
        request_id: "c1".into(),
        route_name: Some("session.reset".to_owned()),
        result: Some(raw(format!(r#""{}""#, string_of(17_000)))),
        messages: Some(vec![raw(format!(r#""{}""#, string_of(18_000)))]),
        ..ControlAck::default()
    };
    let expected = r#"{"type":"control.ack","request_id":"c1","route_name":"session.reset","omitted":["messages","result"],"host_ns":7}"#;
    assert_eq!(bounded(frame, 16_384), (Encoded::Shortened, expected.to_owned()));
}

#[test]
fn an_rpc_object_is_left_out_and_never_cut() {
    let frame = Rpc { sid: Some("s1".into()), message: Some(raw(format!(r#"["{}"]"#, string_of(17_000)))) };
    let expected = r#"{"type":"rpc","sid":"s1","omitted":["message"],"host_ns":7}"#;
    assert_eq!(bounded(frame, 16_384), (Encoded::Shortened, expected.to_owned()));
}

#[test]
fn any_frame_with_allowed_identifiers_fits_into_the_smallest_limit() {
    let widest = "\u{1}".repeat(MAX_ID_BYTES);
    let frame = TurnError {
        sid: Some(widest.as_str().into()),
        request_id: widest.as_str().into(),
        message: string_of(100_000),
        signal_name: Some(string_of(2_000)),
        stderr_tail: Some(vec![string_of(4_096); 80]),
        ..TurnError::default()
    };
    let (encoded, line) = bounded(frame, MIN_FRAME_BYTES);
    assert_eq!(encoded, Encoded::Shortened);
    let HostEvent::TurnError(read) = decode_event(line.as_bytes()).unwrap().frame else {
        panic!("no turn.error: {line}");
    };
    assert_eq!(read.request_id, widest.as_str());
    assert_eq!(read.message, format!("{}…", string_of(1021)));
    assert_eq!(read.omitted.unwrap(), ["stderr_tail", "message"]);
}

#[test]
fn identifiers_over_the_limit_append_nothing() {
    let frame = Error { request_id: Some(string_of(500).as_str().into()), message: string_of(500) };
    assert_eq!(bounded(frame, 400), (Encoded::TooLarge, String::new()));
}

#[test]
fn a_frame_of_very_many_fields_names_some_and_takes_linear_time() {
    let body: Vec<String> = (0..50_000).map(|i| format!(r#""field{i}":{i}"#)).collect();
    let body = raw(format!("{{{}}}", body.join(",")));
    let header = Event { request_id: "r1".into(), seq: Some(3), ..Event::default() };
    let mut out = Vec::new();
    assert_eq!(encode_turn_event_bounded(&header, &body, 7, 16_384, &mut out), Encoded::Shortened);
    assert!(out.len() <= 16_385);
    let HostEvent::Event(event) = decode_event(&out).unwrap().frame else { panic!("no event") };
    assert_eq!(event.seq, Some(3));
    let text = String::from_utf8(out).unwrap();
    let omitted = text.split(r#""omitted":"#).nth(1).unwrap().split(r#","host_ns""#).next().unwrap();
    let omitted: Vec<String> = serde_json::from_str(omitted).unwrap();
    assert_eq!(omitted.len(), 17);
    assert_eq!(omitted[16], "…");
}

#[test]
fn an_event_keeps_its_kind_and_small_fields() {
    let body =
        raw(format!(r#"{{"kind":"tool_call","args":{{"a":"{}"}},"status":"running"}}"#, string_of(20_000)));
    let header = Event { sid: Some("s1".into()), request_id: "r1".into(), seq: Some(3), ..Event::default() };
    let mut out = Vec::new();
    assert_eq!(encode_turn_event_bounded(&header, &body, 7, 16_384, &mut out), Encoded::Shortened);
    let expected = r#"{"type":"event","sid":"s1","request_id":"r1","seq":3,"kind":"tool_call","status":"running","omitted":["args"],"host_ns":7}"#;
    assert_eq!(String::from_utf8(out).unwrap().trim_end(), expected);
}

#[test]
fn the_pieces_of_a_delta_fit_with_any_seq_and_give_the_text() {
    let sid = SessionId::from("s\"1");
    let request_id = RequestId::from("r1");
    for text in ["", "short", &"\u{1}é😀\"x".repeat(9_000), &string_of(100_000)] {
        let pieces: Vec<&str> = delta_pieces(Some(&sid), &request_id, text, MIN_FRAME_BYTES).collect();
        assert_eq!(pieces.concat(), text);
        assert_eq!(pieces.len() > 1, text.len() > MIN_FRAME_BYTES, "a short text is one piece");
        for (at, piece) in pieces.iter().enumerate() {
            let frame = Delta {
                sid: Some(sid.clone()),
                request_id: request_id.clone(),
                text: (*piece).to_owned(),
                emitted_ns: Some(u64::MAX),
                seq: Some(u64::MAX),
            };
            let mut out = Vec::new();
            assert_eq!(
                HostEvent::from(frame).encode_bounded(u64::MAX, MIN_FRAME_BYTES, &mut out),
                Encoded::Whole
            );
            let is_last = at + 1 == pieces.len();
            assert!(is_last || out.len() > MIN_FRAME_BYTES - 6, "a piece is as long as it can be");
        }
    }
}

#[test]
fn text_is_cut_between_characters_at_the_encoded_length() {
    let pieces = |text: &'static str, max| text_pieces(text, max).collect::<Vec<_>>();
    assert_eq!(pieces("abcdef", 4), ["abcd", "ef"]);
    assert_eq!(pieces("ab\"\u{1}c", 4), ["ab\"", "\u{1}", "c"]);
    assert_eq!(pieces("éé", 3), ["é", "é"]);
    assert_eq!(pieces("😀", 0), ["😀"]);
    assert_eq!(pieces("", 0), [""]);
}

#[test]
fn any_body_makes_an_event_without_a_field_twice() {
    for (body, expected) in [
        (
            r#"{"kind":"status","text":"a"}"#,
            r#"{"type":"event","request_id":"r1","kind":"status","text":"a","host_ns":7}"#,
        ),
        ("{}", r#"{"type":"event","request_id":"r1","host_ns":7}"#),
        (
            r#"{"kind":"status","type":"hb","seq":9,"t\u0079pe":"x","a b":[1, 2],"kind":"plan"}"#,
            r#"{"type":"event","request_id":"r1","kind":"status","a b":[1, 2],"host_ns":7}"#,
        ),
        ("5", r#"{"type":"event","request_id":"r1","host_ns":7}"#),
    ] {
        let header = Event { request_id: "r1".into(), ..Event::default() };
        let mut out = Vec::new();
        encode_turn_event(&header, &raw(body), 7, &mut out);
        assert_eq!(String::from_utf8(out).unwrap().trim_end(), expected);
    }
}

#[test]
fn a_cut_message_goes_too_if_it_is_still_too_long() {
    let frame = TurnError { request_id: "r1".into(), message: string_of(5_000), ..TurnError::default() };
    let without = r#"{"type":"turn.error","request_id":"r1","omitted":["message"],"host_ns":7}"#;
    let with = without.replace(
        r#""omitted""#,
        &format!(r#""message":"{}…","omitted""#, string_of(CUT_MESSAGE_BYTES - "…".len())),
    );
    for limit in without.len()..with.len() + 50 {
        let expected = if limit >= with.len() { &with } else { without };
        assert_eq!(bounded(frame.clone(), limit), (Encoded::Shortened, expected.to_owned()), "limit {limit}");
    }
}
