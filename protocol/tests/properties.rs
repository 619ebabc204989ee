//! What holds for any bytes and any frame. `PROPTEST_CASES` makes the runs longer; the seed is fixed.

#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use serde_json::{Map, Value, json};
use std::path::Path;
use turnhost_protocol::frame::Delta;
use turnhost_protocol::scan::scan;
use turnhost_protocol::{
    Encoded, HostCommand, HostEvent, Line, LineDecoder, decode_command, decode_event, delta_pieces, peek_ids,
};

fn config() -> Config {
    Config { rng_seed: RngSeed::Fixed(0x7475_726e), failure_persistence: None, ..Config::default() }
}

/// Pieces of which hostile lines are made.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let words: &[&[u8]] = &[
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b":",
        b",",
        b"\\",
        b"\\u",
        b"\\ud800",
        b"\\udc00",
        b"\\u00",
        b"\n",
        b"\r",
        b" ",
        b"{\"type\":",
        b"\"turn.end\"",
        b"\"delta\"",
        b"\"hb\"",
        b"\"type\"",
        b"\"request_id\":\"r1\"",
        b"\"sid\":",
        b"null",
        b"1e400",
        b"-1",
        b"18446744073709551616",
        b"NaN",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xe2\x80",
        b"\x1b",
        b"\x1b[0m",
        b"\x1b]0;",
        b"\x07",
        b"\x00",
        b"text ",
        b"\xc3\xa9",
        br#"{"type":"delta","request_id":"r1","text":"a"}"#,
        br#"{"type":"turn.end","request_id":"r1"}"#,
    ];
    let word = prop_oneof![
        8 => prop::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        1 => (prop::sample::select(&[b"[", b"{", b"x", b"\xff"][..]), 1..300_usize)
            .prop_map(|(byte, count)| byte.repeat(count)),
    ];
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

#[derive(Debug, Clone, PartialEq)]
enum Item {
    Line(Vec<u8>),
    Rest(Vec<u8>),
    Oversize(u64, Vec<u8>, Vec<u8>),
}

fn item(line: Line<'_>) -> Item {
    match line {
        Line::Complete(line) => Item::Line(line.to_vec()),
        Line::Unterminated(rest) => Item::Rest(rest.to_vec()),
        Line::Oversize { bytes, head, tail } => Item::Oversize(bytes, head.to_vec(), tail.to_vec()),
    }
}

fn items<'a>(limit: usize, reads: impl Iterator<Item = &'a [u8]>) -> Vec<Item> {
    let mut decoder = LineDecoder::new(limit);
    let mut items = Vec::new();
    for read in reads {
        let space = decoder.space(read.len());
        assert!(space.len() >= read.len());
        space[..read.len()].copy_from_slice(read);
        decoder.commit(read.len());
        while let Some(line) = decoder.next_line() {
            items.push(item(line));
        }
    }
    while let Some(line) = decoder.finish() {
        items.push(item(line));
    }
    assert_eq!(decoder.pending_bytes(), 0);
    items
}

/// What the items should be, by the plain words of the rules.
fn expected_items(limit: usize, stream: &[u8]) -> Vec<Item> {
    const KEPT: usize = 4096;
    let mut lines: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let trimmed = |mut line: &[u8]| {
        while let Some(shorter) = line.strip_suffix(b"\r") {
            line = shorter;
        }
        while let Some(shorter) = line.strip_prefix(b"\xef\xbb\xbf") {
            line = shorter;
        }
        line.to_vec()
    };
    let expected = |line: &[u8], normal: fn(Vec<u8>) -> Item| {
        if line.len() > limit {
            let (head, rest) = line.split_at(line.len().min(KEPT));
            let tail = &rest[rest.len().saturating_sub(KEPT)..];
            return Some(Item::Oversize(line.len() as u64, head.to_vec(), tail.to_vec()));
        }
        let line = trimmed(line);
        (!line.trim_ascii().is_empty()).then(|| normal(line))
    };
    let mut items: Vec<Item> = lines.into_iter().filter_map(|line| expected(line, Item::Line)).collect();
    items.extend(expected(rest, Item::Rest));
    items
}

fn reads(stream: &[u8], mut cuts: Vec<prop::sample::Index>) -> Vec<&[u8]> {
    cuts.sort_by_key(|cut| cut.index(stream.len() + 1));
    let mut reads = Vec::new();
    let mut from = 0;
    for cut in cuts {
        let to = cut.index(stream.len() + 1);
        reads.push(&stream[from..to]);
        from = to;
    }
    reads.push(&stream[from..]);
    reads
}

/// A value that a schema of ours allows.
fn value_of(schema: &Value, definitions: &Value) -> BoxedStrategy<Value> {
    if let Some(constant) = schema.get("const") {
        return Just(constant.clone()).boxed();
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next().unwrap();
        return value_of(&definitions[name], definitions);
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(alternatives) = schema.get(choice).and_then(Value::as_array) {
            let alternatives: Vec<_> = alternatives.iter().map(|one| value_of(one, definitions)).collect();
            return prop::strategy::Union::new(alternatives).boxed();
        }
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().map(|one| one.as_str().unwrap()).collect(),
        _ => return any_json(),
    };
    let of_type = |name: &str| match name {
        "null" => Just(Value::Null).boxed(),
        "boolean" => any::<bool>().prop_map(Value::from).boxed(),
        "string" => any_text().prop_map(Value::from).boxed(),
        "number" => any::<i32>().prop_map(|thousandths| Value::from(f64::from(thousandths) / 1000.0)).boxed(),
        "integer" => match schema.get("format").and_then(Value::as_str) {
            Some("int64") => any::<i64>().prop_map(Value::from).boxed(),
            Some("uint32") => any::<u32>().prop_map(Value::from).boxed(),
            _ => any::<u64>().prop_map(Value::from).boxed(),
        },
        "array" => {
            prop::collection::vec(value_of(&schema["items"], definitions), 0..4).prop_map(Value::from).boxed()
        }
        "object" => object_of(schema, definitions),
        other => panic!("a schema has the type {other}"),
    };
    prop::strategy::Union::new(types.into_iter().map(of_type).collect::<Vec<_>>()).boxed()
}

fn object_of(schema: &Value, definitions: &Value) -> BoxedStrategy<Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().flat_map(Value::as_str).collect();
    let mut object = Just(Map::new()).boxed();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let value = if required.contains(&name.as_str()) {
            value_of(field, definitions).prop_map(Some).boxed()
        } else {
            prop::option::of(value_of(field, definitions)).boxed()
        };
        let name = name.clone();
        object = (object, value)
            .prop_map(move |(mut object, value)| {
                object.extend(value.map(|value| (name.clone(), value)));
                object
            })
            .boxed();
    }
    object.prop_map(Value::from).boxed()
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter),
        Just("\u{0}\n\"\\\u{2028}\u{7f}😀".to_owned()),
    ]
}

fn any_json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((any_text(), inner), 0..3)
                .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
    .boxed()
}

/// A frame of any of the types, with any of its fields, and unknown ones.
fn frame_of(types: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let schemas: Vec<_> = types
        .iter()
        .map(|name| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{name}.json"));
            let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            let definitions = schema.get("$defs").cloned().unwrap_or_default();
            object_of(&schema, &definitions)
        })
        .collect();
    (prop::strategy::Union::new(schemas), any_json()).prop_map(|(mut frame, unknown)| {
        frame["of_another_version"] = json!([unknown]);
        frame
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_split_of_any_bytes_gives_the_same_lines(
        stream in prop::collection::vec(pieces(), 0..6).prop_map(|parts| parts.join(&b'\n')),
        limit in 0..200_usize,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let expected = expected_items(limit, &stream);
        prop_assert_eq!(&items(limit, reads(&stream, cuts).into_iter()), &expected);
        prop_assert_eq!(&items(limit, stream.chunks(1)), &expected);
    }

    #[test]
    fn no_line_makes_the_reader_panic(line in pieces()) {
        for result in [
            decode_event(&line).map(|decoded| decoded.text.into_owned()),
            decode_command(&line).map(|decoded| decoded.text.into_owned()),
        ] {
            match result {
                Ok(text) => {
                    let value: Value = serde_json::from_str(&text).expect("the text of a frame is JSON");
                    prop_assert!(value["type"].is_string());
                }
                Err(error) => prop_assert!(!error.detail.is_empty() && error.detail.len() < 1000),
            }
        }
        let (head, tail) = line.split_at(line.len() / 2);
        peek_ids(head, tail);
    }

    #[test]
    fn what_passes_the_scan_is_text_without_lone_surrogates_or_depth(line in pieces()) {
        if let Ok(scanned) = scan(&line) {
            let again = scan(scanned.text.as_bytes()).expect("a repaired line passes");
            prop_assert_eq!((again.repaired, &again.text), (0, &scanned.text));
            let has_escapes = line.windows(2).any(|pair| pair == br"\u");
            prop_assert!(has_escapes || std::str::from_utf8(&line).is_err() || scanned.repaired == 0);
            // The parser may refuse it, and never for a string's content.
            if let Err(error) = serde_json::from_str::<Value>(&scanned.text) {
                let error = error.to_string();
                prop_assert!(!error.contains("surrogate") && !error.contains("control character"), "{}", error);
            }
        }
    }

    #[test]
    fn any_command_is_written_as_it_was_read(frame in frame_of(HostCommand::TYPES)) {
        let text = frame.to_string();
        let decoded = decode_command(text.as_bytes()).unwrap();
        prop_assert_eq!((&*decoded.text, decoded.repaired, decoded.salvaged), (&*text, 0, false));
        let mut line = Vec::new();
        decoded.frame.encode(&mut line);
        let again = decode_command(&line).unwrap();
        prop_assert_eq!(again.frame, decoded.frame);
    }

    #[test]
    fn any_event_is_written_as_it_was_read(frame in frame_of(HostEvent::TYPES), host_ns in any::<u64>()) {
        let text = frame.to_string();
        let decoded = decode_event(text.as_bytes()).unwrap();
        prop_assert_eq!((&*decoded.text, decoded.repaired, decoded.salvaged), (&*text, 0, false));
        let mut line = Vec::new();
        decoded.frame.encode(host_ns, &mut line);
        let again = decode_event(&line).unwrap();
        if !matches!(again.frame, HostEvent::Event(_)) {
            prop_assert_eq!(&again.frame, &decoded.frame);
        }
        let value: Value = serde_json::from_str(&again.text).unwrap();
        prop_assert_eq!(&value["host_ns"], host_ns);
    }

    #[test]
    fn a_bounded_frame_is_within_its_limit_and_names_what_it_lost(
        frame in frame_of(HostEvent::TYPES),
        limit in 50..600_usize,
    ) {
        let text = frame.to_string();
        let decoded = decode_event(text.as_bytes()).unwrap();
        let mut line = Vec::new();
        let encoded = decoded.frame.encode_bounded(1, limit, &mut line);
        match encoded {
            Encoded::TooLarge => prop_assert!(line.is_empty()),
            Encoded::Whole | Encoded::Shortened => {
                prop_assert!(line.len() <= limit + 1);
                let short: Map<String, Value> = serde_json::from_slice(&line).unwrap();
                let mut whole = Vec::new();
                decoded.frame.encode(1, &mut whole);
                let whole: Map<String, Value> = serde_json::from_slice(&whole).unwrap();
                let omitted = short.get("omitted").cloned().unwrap_or_default();
                for (name, value) in &whole {
                    let kept = short.get(name) == Some(value);
                    let named = omitted.as_array().is_some_and(|names| names.contains(&json!(name)));
                    prop_assert!(kept || named || name == "omitted", "{} was lost without a word", name);
                }
                prop_assert_eq!(encoded == Encoded::Shortened, short != whole);
            }
        }
    }

    #[test]
    fn the_pieces_of_any_text_fit_and_are_the_text(
        text in prop::collection::vec(any_text(), 0..40).prop_map(|texts| texts.concat()),
        limit in 160..800_usize,
    ) {
        let pieces: Vec<&str> = delta_pieces(Some(&"s".into()), &"r".into(), &text, limit).collect();
        prop_assert_eq!(pieces.concat(), &*text);
        for piece in pieces {
            let delta = Delta {
                sid: Some("s".into()),
                request_id: "r".into(),
                text: piece.to_owned(),
                emitted_ns: Some(u64::MAX),
                seq: Some(u64::MAX),
            };
            let encoded = HostEvent::from(delta).encode_bounded(u64::MAX, limit, &mut Vec::new());
            prop_assert_eq!(encoded, Encoded::Whole);
        }
    }
}
