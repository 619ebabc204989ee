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

#[test]
fn a_field_of_the_wrong_type_is_named_whatever_stands_there() {
    for wrong in [
        "{}",
        r#"{"a":[1]}"#,
        "[]",
        "[7]",
        "true",
        r#""x""#,
        "1.5",
        "-1",
        "18446744073709551616",
        "1e400",
        "1e3",
    ] {
        for line in [
            format!(r#"{{"type":"delta","request_id":"r","text":"a","seq":{wrong},"emitted_ns":1}}"#),
            format!(r#"{{"seq":{wrong},"type":"delta","request_id":"r"}}"#),
            format!(r#"{{"type":"delta","request_id":"r", "seq" : {wrong} }}"#),
        ] {
            let error = event_error(&line);
            assert_eq!(error.kind, DecodeErrorKind::BadField, "{line}");
            assert!(error.detail.starts_with("bad field `seq`: "), "{line}: {}", error.detail);
            assert_eq!(error.request_id, Some("r".into()), "{line}");
            assert_eq!(error.frame_type.as_deref(), Some("delta"), "{line}");
        }
    }
}

#[test]
fn a_bad_field_of_a_command_is_named_with_its_request() {
    for (field, wrong) in [
        ("delta_count", r#""3""#),
        ("delta_count", "3.0"),
        ("delay_s", r#""fast""#),
        ("text", "5"),
        ("history", "{}"),
        ("agent", "5"),
        ("agent", r#"["exec"]"#),
        ("agent", r#"{"argv":[]}"#),
        ("agent", r#"{"name":1}"#),
        ("cols", "9223372036854775808"),
        ("sid", "[]"),
    ] {
        let line = format!(r#"{{"type":"turn.start","request_id":"r1","{field}":{wrong}}}"#);
        let error = decode_command(line.as_bytes()).unwrap_err();
        assert_eq!(error.request_id, Some("r1".into()), "{line}");
        assert_eq!(error.kind, DecodeErrorKind::BadField, "{line}");
        assert!(error.detail.starts_with(&format!("bad field `{field}`: ")), "{line}: {}", error.detail);
    }
}

#[test]
fn a_known_field_twice_is_refused_and_an_unknown_one_is_not() {
    for (line, field) in [
        (r#"{"type":"delta","request_id":"r","text":"a","text":"b"}"#, "text"),
        (r#"{"type":"delta","request_id":"r","request_id":"r"}"#, "request_id"),
        (r#"{"type":"delta","request_id":"r","type":"turn.end"}"#, "type"),
        (r#"{"type":"delta","request_id":"r","sid":"a","s\u0069d":"a"}"#, "sid"),
        (r#"{"type":"turn.error","request_id":"r","delivered":{"deltas":1,"deltas":2}}"#, "deltas"),
    ] {
        let error = event_error(line);
        let expected = (DecodeErrorKind::DuplicateKey, format!("duplicate field `{field}`"));
        assert_eq!((error.kind, error.detail), expected, "{line}");
        assert_eq!(error.request_id, Some("r".into()), "{line}");
    }
    assert!(decode_event(br#"{"type":"delta","request_id":"r","new":1,"new":2}"#).is_ok());
}

#[test]
fn what_is_no_json_is_told_from_what_is_no_object_and_from_text() {
    use DecodeErrorKind::{Json, NotObject};
    let deep_text = format!("trace {}", "[".repeat(129));
    for (line, kind, looks_like_frame) in [
        (r#"{"type":"hb","progress_counter":NaN}"#, Json, true),
        (r#"{"type":"hb","rss_mb":Infinity}"#, Json, true),
        (r#"{"type":"hb","rss_mb":-Infinity}"#, Json, true),
        (r#"{"type":"hb","rss_mb":01}"#, Json, true),
        (r#"{"type":"hb""#, Json, true),
        (r#"{"type":"hb"}}"#, Json, true),
        ("{'type': 'hb'}", Json, true),
        ("{\"type\":\"hb\",\"a\":\"\u{1}\"}", Json, true),
        ("{", Json, true),
        ("[1, 2]", NotObject, true),
        ("null", NotObject, true),
        ("\"text\"", NotObject, true),
        ("42", NotObject, true),
        ("[1, 2", Json, false),
        ("[INFO] ready", Json, false),
        ("server running on stdio...", Json, false),
        ("\u{1b}[0m", Json, false),
        ("a \"quoted\ttab\"", Json, false),
        (&*deep_text, Json, false),
    ] {
        let error = event_error(line);
        assert_eq!((error.kind, error.looks_like_frame), (kind, looks_like_frame), "{line}");
        match kind {
            NotObject => assert_eq!(error.detail, "frame must be an object"),
            _ => assert!(error.detail.starts_with("invalid json: "), "{line}: {}", error.detail),
        }
    }
}

#[test]
fn a_line_that_cannot_be_parsed_still_tells_whose_it_is() {
    let deep = format!(r#"{{"type":"turn.end","request_id":"r1","sid":"s1","a":{}"#, "[".repeat(200_000));
    for (line, kind) in [
        (&*deep, DecodeErrorKind::Depth),
        (
            "{\"type\":\"turn.end\",\"request_id\":\"r1\",\"sid\":\"s1\",\"a\":\"\u{1}\"}",
            DecodeErrorKind::Json,
        ),
        (r#"{"type":"turn.end","request_id":"r1","sid":"s1","a":NaN}"#, DecodeErrorKind::Json),
        (r#"{"type":"turn.end","request_id":"r1","sid":"s1","text":"cu"#, DecodeErrorKind::Json),
        (r#"{"type":"turn.end","request_id":"r1","sid":"s1"} text"#, DecodeErrorKind::Json),
        (r#"{"sid":"s1","request_id":"r1","type":"turn.end","interrupted":1}"#, DecodeErrorKind::BadField),
    ] {
        let error = event_error(line);
        assert_eq!(error.kind, kind, "{error}");
        assert_eq!(error.frame_type.as_deref(), Some("turn.end"), "{error}");
        assert_eq!(error.request_id, Some("r1".into()), "{error}");
        assert_eq!(error.sid, Some("s1".into()), "{error}");
        assert!(error.is_terminal() && error.looks_like_frame, "{error}");
    }
}

#[test]
fn depth_is_refused_in_every_shape_that_can_be_json() {
    for line in [
        "[".repeat(200_000),
        r#"{"a":"#.repeat(200_000),
        format!("{}{}", "[".repeat(129), "]".repeat(129)),
        format!(r#"{}{{"type":"delta","request_id":"r1"}}"#, "[".repeat(129)),
    ] {
        let error = event_error(&line);
        assert_eq!((error.kind, &*error.detail), (DecodeErrorKind::Depth, "nested deeper than 128"));
        assert!(error.looks_like_frame);
    }
    let rpc = format!(r#"{{"type":"rpc","message":{}1{}}}"#, r#"{"a":"#.repeat(127), "}".repeat(127));
    assert!(decode_event(rpc.as_bytes()).is_ok(), "128 levels pass");
}

#[test]
fn an_unknown_type_is_named() {
    let error = event_error(r#"{"type":"turn.paused","request_id":"r1","sid":"s1"}"#);
    assert_eq!(
        (error.kind, &*error.detail),
        (DecodeErrorKind::UnknownType, "unknown frame type: turn.paused")
    );
    assert_eq!((error.request_id, error.sid), (Some("r1".into()), Some("s1".into())));
    let other_way = decode_command(br#"{"type":"delta","request_id":"r1"}"#).unwrap_err();
    assert_eq!(other_way.kind, DecodeErrorKind::UnknownType);
}

#[test]
fn frames_between_escape_sequences_count_even_if_they_are_terminal() {
    for line in [
        "\u{1b}[?2004h{\"type\":\"turn.end\",\"request_id\":\"r1\"}",
        "\u{1b}]0;title\u{7}{\"type\":\"turn.end\",\"request_id\":\"r1\"}",
        "\u{7}\u{feff}{\"type\":\"turn.end\",\"request_id\":\"r1\"}",
        "{\"type\":\"turn.end\",\"request_id\":\"r1\"}\u{1b}[?2004l",
        "\u{1b}[1m{\"type\":\"turn.end\",\"request_id\":\"r1\"}\u{1b}[0m\r",
    ] {
        let decoded = decode_event(line.as_bytes()).unwrap();
        assert_eq!(decoded.text, r#"{"type":"turn.end","request_id":"r1"}"#, "{line:?}");
        assert!(decoded.salvaged, "{line:?}");
    }
    assert!(!decode_event(b" \t{\"type\":\"hb\"} \r").unwrap().salvaged, "white space is JSON");
}

#[test]
fn a_frame_behind_text_is_salvaged_if_it_ends_no_turn() {
    let frame = r#"{"type":"delta","request_id":"r1","text":"a"}"#;
    for text in ["debug: ", "[INFO] ", "\u{1b}[0m> ", "\"", "5", "a \"tab\t\" ", "[[["] {
        let line = format!("{text}{frame}");
        let decoded = decode_event(line.as_bytes()).unwrap();
        assert_eq!((&*decoded.text, decoded.salvaged), (frame, true), "{line}");
    }
    let decoded =
        decode_event(b"\xff\xfe {\"type\":\"delta\",\"request_id\":\"r1\",\"text\":\"\xff\"}").unwrap();
    assert_eq!(decoded.repaired, 1, "what is not taken is not counted");
    let glued = event_error(&format!("{{{frame}"));
    assert_eq!(glued.kind, DecodeErrorKind::Json, "nothing is taken from behind a broken frame");
}

#[test]
fn the_end_of_a_turn_behind_text_is_not_believed() {
    let deep = format!(r#"debug {{"type":"turn.end","request_id":"r1","sid":"s1","a":{}"#, "[".repeat(129));
    for line in [
        r#"debug {"type":"turn.end","request_id":"r1","sid":"s1"}"#,
        r#"debug {"type":"turn.error","request_id":"r1","sid":"s1","message":"x"}"#,
        r#"debug {"type":"turn.end","request_id":"r1","sid":"s1","interrupted":"maybe"}"#,
        r#"debug {"type":"turn.end","request_id":"r1","request_id":"r1","sid":"s1"}"#,
        r#"debug {"type":"turn.end","request_id":"r1","sid":"s1","interrupted":7,"a":{"type":"b"}}"#,
        &*deep,
        r#"{"type":"delta","request_id":"r0","te{"type":"turn.end","request_id":"r1","sid":"s1"}"#,
        r#"{"type":"hb"}{"type":"turn.end","request_id":"r1","sid":"s1"}"#,
        r#"got {"type":"hb"} and {"type":"turn.end","request_id":"r1","sid":"s1"}"#,
    ] {
        let error = event_error(line);
        assert_eq!(error.kind, DecodeErrorKind::TerminalBehindText, "{line}");
        assert_eq!(error.request_id, Some("r1".into()), "{line}");
        assert_eq!(error.sid, Some("s1".into()), "{line}");
        assert!(error.is_terminal(), "{line}");
        assert!(error.detail.ends_with(" behind other text on one line"), "{}", error.detail);
    }
}

#[test]
fn a_broken_frame_that_ends_no_turn_stays_text_behind_text() {
    let broken = r#"{"type":"delta","request_id":"r1","seq":"x"}"#;
    assert!(!event_error(broken).is_terminal());
    assert!(!event_error("{}").is_terminal(), "an unknown type ends nothing");
    let error = event_error(&format!("debug {broken}"));
    assert_eq!((error.kind, error.looks_like_frame), (DecodeErrorKind::Json, false));
}

#[test]
fn text_that_quotes_the_end_of_a_turn_ends_none() {
    for line in [
        r#"sent {"type":"turn.end","request_id":"r1"} to the parent"#,
        r#"expected {"type":"turn.end","request_id":"r1""#,
    ] {
        let error = event_error(line);
        assert_eq!((error.kind, error.looks_like_frame), (DecodeErrorKind::Json, false), "{line}");
        assert_eq!((error.request_id, error.frame_type), (None, None), "{line}");
    }
    let cut = r#"{"type":"rpc","message":{"type":"turn.end","request_id":"r1"}"#;
    let error = event_error(cut);
    assert_eq!(
        (error.kind, error.request_id),
        (DecodeErrorKind::Json, None),
        "an inner object of a cut frame"
    );
}

#[test]
fn repairs_are_counted_and_seen_in_text_and_frame() {
    let decoded = decode_event(
        b"{\"type\":\"delta\",\"request_id\":\"r1\",\"text\":\"\\ud800x\xff\",\"n\":\"\\uDC00\"}",
    )
    .unwrap();
    assert_eq!(decoded.repaired, 3);
    assert_eq!(
        decoded.text,
        "{\"type\":\"delta\",\"request_id\":\"r1\",\"text\":\"\u{fffd}x\u{fffd}\",\"n\":\"\u{fffd}\"}"
    );
    let HostEvent::Delta(delta) = decoded.frame else { panic!("no delta") };
    assert_eq!(delta.text, "\u{fffd}x\u{fffd}");
    let seed =
        decode_command(br#"{"type":"session.seed","history":[{"role":"user","content":"\udc00"}]}"#).unwrap();
    let HostCommand::SessionSeed(seed) = seed.frame else { panic!("no seed") };
    assert_eq!(seed.history.unwrap()[0].as_str(), "{\"role\":\"user\",\"content\":\"\u{fffd}\"}");
}

#[test]
fn identifiers_of_commands_are_bounded() {
    let line = |len: usize| format!(r#"{{"type":"interrupt","sid":"s","request_id":"{}"}}"#, "x".repeat(len));
    assert!(decode_command(line(MAX_ID_BYTES).as_bytes()).is_ok());
    let error = decode_command(line(MAX_ID_BYTES + 1).as_bytes()).unwrap_err();
    assert_eq!(
        (error.kind, &*error.detail),
        (DecodeErrorKind::BadField, "bad field `request_id`: longer than 1024 bytes")
    );
    assert_eq!((error.request_id, error.sid), (None, Some("s".into())), "an answer must fit");
    let long_sid = line(1).replace(r#""s""#, &format!(r#""{}""#, "s".repeat(MAX_ID_BYTES + 1)));
    let error = decode_command(long_sid.as_bytes()).unwrap_err();
    assert_eq!(error.detail, "bad field `sid`: longer than 1024 bytes");
    assert_eq!((error.request_id, error.sid), (Some("x".into()), None), "an answer must fit");
    let broken = format!("{} x", line(MAX_ID_BYTES + 1));
    assert_eq!(decode_command(broken.as_bytes()).unwrap_err().request_id, None);
}

#[test]
fn what_an_error_says_is_short_however_long_the_line() {
    let long = "é".repeat(50_000);
    for line in [
        format!(r#"{{"type":"{long}"}}"#),
        format!(r#"{{"type":"delta","request_id":"r","seq":"{long}"}}"#),
        format!(r#"{{"type":"interrupt.ack","request_id":"r","outcome":"{long}"}}"#),
        format!(r#"{{"type":"{long}" "#),
        long.clone(),
    ] {
        let error = event_error(&line);
        assert!(error.detail.len() < 1000, "{}", error.detail);
        assert!(error.frame_type.is_none_or(|name| name.len() <= SHOWN_BYTES));
    }
}

#[test]
fn a_reader_says_what_it_expected() {
    let no_object = for_each_field("[]", |_, _| {}).unwrap_err().to_string();
    assert!(no_object.contains("expected an object"), "{no_object}");
    let no_string = serde_json::from_str::<Str<'_>>("5").map(|Str(text)| text).unwrap_err().to_string();
    assert!(no_string.contains("expected a string"), "{no_string}");
}

#[test]
fn a_heartbeat_is_known_by_its_beginning() {
    for line in [r#"{"type":"hb","progress_counter":NaN}"#, r#"{"type":"hb"#, r#"{"type": "hb"}"#] {
        assert_eq!(is_heartbeat_prefix(line.as_bytes()), line.contains(r#""hb""#), "{line}");
    }
    for line in [r#"{"type":"hbx"}"#, r#"{"a":{"type":"hb"}}"#, r#"x{"type":"hb"}"#, ""] {
        assert!(!is_heartbeat_prefix(line.as_bytes()), "{line}");
    }
}

#[test]
fn the_kinds_have_the_words_of_the_event() {
    use DecodeErrorKind as Kind;
    let words = [
        Kind::Depth,
        Kind::Json,
        Kind::NotObject,
        Kind::BadField,
        Kind::DuplicateKey,
        Kind::UnknownType,
        Kind::TerminalBehindText,
    ]
    .map(Kind::as_str);
    assert_eq!(
        words,
        ["depth", "json", "not_object", "bad_field", "duplicate_key", "unknown_type", "terminal_behind_text"]
    );
}
