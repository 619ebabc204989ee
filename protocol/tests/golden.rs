//! The transcripts in `golden/`, line by line: what is read, what is written again, what is refused and how.
//!
//! A line is one object. `{">": FRAME}` goes to the host, `{"<": FRAME}` comes from it; written again the frame is the
//! same text, or the one in `sent`. `>bytes` and `<bytes` are hostile lines (`\xNN` is a byte, `\\` a backslash) with
//! the `frame` that is read all the same, or with what they are `refused` as and whose they are (`of`: type and
//! request), or `stray` for text. `stream` is split at a `limit` into `items`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails is a test that fails")]

use pretty_assertions::assert_eq;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use turnhost_protocol::{
    DecodeError, DecodeErrorKind, Decoded, HostCommand, HostEvent, Line, LineDecoder, RawJson,
    decode_command, decode_event, encode_turn_event, peek_ids,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(rename = ">")]
    to_host: Option<RawJson>,
    #[serde(rename = "<")]
    from_host: Option<RawJson>,
    sent: Option<RawJson>,
    #[serde(rename = ">bytes")]
    bytes_to_host: Option<String>,
    #[serde(rename = "<bytes")]
    bytes_from_host: Option<String>,
    frame: Option<RawJson>,
    #[serde(default)]
    repaired: u32,
    #[serde(default)]
    salvaged: bool,
    refused: Option<String>,
    #[serde(default)]
    of: (Option<String>, Option<String>),
    #[serde(default)]
    stray: bool,
    limit: Option<usize>,
    stream: Option<String>,
    #[serde(default)]
    items: Vec<RawJson>,
}

#[derive(Deserialize, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
struct StreamItem {
    oversize: Option<u64>,
    of: (Option<String>, Option<String>),
    rest: Option<String>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Every line of every transcript with its place.
fn entries() -> Vec<(String, Entry)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder("golden")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut entries = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (at, line) in text.lines().enumerate() {
            let place = format!("{}:{}", file.file_name().unwrap().display(), at + 1);
            let entry = serde_json::from_str(line).unwrap_or_else(|error| panic!("{place}: {error}"));
            entries.push((place, entry));
        }
    }
    entries
}

fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        rest = if let Some(after) = escape.strip_prefix('\\') {
            bytes.push(b'\\');
            after
        } else {
            let hex = escape.strip_prefix('x').expect("a backslash is \\xNN or \\\\");
            bytes.push(u8::from_str_radix(&hex[..2], 16).unwrap());
            &hex[2..]
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

#[derive(Deserialize)]
struct HostNs {
    host_ns: u64,
}

/// The frame as this crate writes it, with the time of the one that was read.
fn written_event(decoded: &Decoded<'_, HostEvent>) -> String {
    let host_ns =
        serde_json::from_str::<HostNs>(&decoded.text).expect("every frame of a host has host_ns").host_ns;
    let mut out = Vec::new();
    match &decoded.frame {
        HostEvent::Event(header) => {
            let body = RawJson::parse(decoded.text.clone()).unwrap();
            encode_turn_event(header, &body, host_ns, &mut out);
        }
        frame => frame.encode(host_ns, &mut out),
    }
    line_of(out)
}

fn written_command(decoded: &Decoded<'_, HostCommand>) -> String {
    let mut out = Vec::new();
    decoded.frame.encode(&mut out);
    line_of(out)
}

fn line_of(out: Vec<u8>) -> String {
    let mut text = String::from_utf8(out).unwrap();
    assert_eq!(text.pop(), Some('\n'));
    text
}

fn check_frame<T>(
    place: &str,
    frame: &RawJson,
    sent: Option<&RawJson>,
    decoded: Result<Decoded<'_, T>, DecodeError>,
    written: impl Fn(&Decoded<'_, T>) -> String,
) {
    let decoded = decoded.unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!((decoded.repaired, decoded.salvaged), (0, false), "{place}");
    assert_eq!(decoded.text, frame.as_str(), "{place}");
    assert_eq!(written(&decoded), sent.unwrap_or(frame).as_str(), "{place}");
}

fn check_hostile<T>(place: &str, entry: &Entry, decoded: Result<Decoded<'_, T>, DecodeError>) {
    match decoded {
        Ok(decoded) => {
            let frame = entry.frame.as_ref().unwrap_or_else(|| panic!("{place} is read"));
            assert_eq!(decoded.text, frame.as_str(), "{place}");
            assert_eq!((decoded.repaired, decoded.salvaged), (entry.repaired, entry.salvaged), "{place}");
        }
        Err(error) if entry.stray => {
            assert_eq!((error.kind, error.looks_like_frame), (DecodeErrorKind::Json, false), "{place}");
        }
        Err(error) => {
            assert_eq!(Some(error.kind.as_str()), entry.refused.as_deref(), "{place}: {error}");
            assert!(error.looks_like_frame || error.kind == DecodeErrorKind::TerminalBehindText, "{place}");
            let of = (error.frame_type, error.request_id.map(|id| id.to_string()));
            assert_eq!(of, entry.of, "{place}");
        }
    }
}

fn check_stream(place: &str, stream: &[u8], limit: usize, expected: &[RawJson]) {
    for size in [1, 2, 7, stream.len()] {
        let mut decoder = LineDecoder::new(limit);
        let mut found = Vec::new();
        for read in stream.chunks(size) {
            decoder.push(read);
            while let Some(line) = decoder.next_line() {
                found.push(stream_item(line));
            }
        }
        while let Some(line) = decoder.finish() {
            found.push(stream_item(line));
        }
        let expected: Vec<Result<String, StreamItem>> = expected
            .iter()
            .map(|item| {
                item.read().map_err(|_| item.read().unwrap_or_else(|error| panic!("{place}: {error}")))
            })
            .collect();
        assert_eq!(found, expected, "{place} read by {size}");
    }
}

fn stream_item(line: Line<'_>) -> Result<String, StreamItem> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match line {
        Line::Complete(line) => Ok(text(line)),
        Line::Unterminated(rest) => Err(StreamItem { rest: Some(text(rest)), ..StreamItem::default() }),
        Line::Oversize { bytes, head, tail } => {
            let ids = peek_ids(head, tail);
            let of = (ids.frame_type, ids.request_id.map(|id| id.to_string()));
            Err(StreamItem { oversize: Some(bytes), of, rest: None })
        }
    }
}

#[test]
fn every_line_of_the_transcripts_reads_and_writes_as_it_says() {
    for (place, entry) in entries() {
        if let Some(frame) = &entry.to_host {
            let decoded = decode_command(frame.as_str().as_bytes());
            check_frame(&place, frame, entry.sent.as_ref(), decoded, written_command);
        } else if let Some(frame) = &entry.from_host {
            let decoded = decode_event(frame.as_str().as_bytes());
            check_frame(&place, frame, entry.sent.as_ref(), decoded, written_event);
        } else if let Some(text) = &entry.bytes_to_host {
            check_hostile(&place, &entry, decode_command(&bytes(text)));
        } else if let Some(text) = &entry.bytes_from_host {
            check_hostile(&place, &entry, decode_event(&bytes(text)));
        } else {
            let stream = bytes(entry.stream.as_ref().unwrap_or_else(|| panic!("{place} has no known field")));
            check_stream(&place, &stream, entry.limit.unwrap(), &entry.items);
        }
    }
}

#[test]
fn the_transcripts_show_every_field_of_every_frame() {
    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, entry) in entries() {
        let Some(frame) = entry.to_host.or(entry.from_host) else { continue };
        let fields: serde_json::Map<String, serde_json::Value> = frame.read().unwrap();
        let name = match (fields["type"].as_str().unwrap(), fields.get("kind")) {
            ("event", Some(kind)) => format!("event.{}", kind.as_str().unwrap()),
            (name, _) => name.to_owned(),
        };
        shown.entry(name).or_default().extend(fields.into_iter().map(|(name, _)| name));
    }
    for file in std::fs::read_dir(folder("schemas")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name == "event" {
            // Shown by its kinds.
            continue;
        }
        let schema: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let fields: BTreeSet<String> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        let shown = shown.get(name).unwrap_or_else(|| panic!("no transcript shows `{name}`"));
        let missing: Vec<_> = fields.difference(shown).collect();
        assert!(missing.is_empty(), "no transcript shows {missing:?} of `{name}`");
    }
}

#[test]
fn the_turns_of_the_transcripts_obey_the_order() {
    #[derive(Default)]
    struct Turn {
        started: bool,
        next_seq: u64,
        ended: bool,
    }
    let mut file = String::new();
    let mut turns: BTreeMap<String, Turn> = BTreeMap::new();
    for (place, entry) in entries() {
        let (name, _) = place.split_once(':').unwrap();
        if name != file {
            turns.clear();
            name.clone_into(&mut file);
        }
        let Some(frame) = &entry.from_host else { continue };
        let frame = decode_event(frame.as_str().as_bytes()).unwrap().frame;
        let (id, seq, terminal) = match &frame {
            HostEvent::TurnStarted(frame) => {
                let turn = turns.entry(frame.request_id.to_string()).or_default();
                assert!(
                    !turn.started && !turn.ended && turn.next_seq == 0,
                    "{place}: it starts once and first"
                );
                turn.started = true;
                continue;
            }
            HostEvent::Delta(frame) => (&frame.request_id, frame.seq, false),
            HostEvent::Event(frame) => (&frame.request_id, frame.seq, false),
            HostEvent::TurnEnd(frame) => (&frame.request_id, None, true),
            HostEvent::TurnError(frame) => (&frame.request_id, None, true),
            _ => continue,
        };
        let turn = turns.entry(id.to_string()).or_default();
        assert!(!turn.ended, "{place}: nothing comes after the terminal frame");
        assert!(
            turn.started || terminal,
            "{place}: nothing but a terminal frame comes before `turn.started`"
        );
        if let Some(seq) = seq {
            assert_eq!(seq, turn.next_seq, "{place}: deltas and events share one sequence");
            turn.next_seq += 1;
        }
        turn.ended = terminal;
    }
}
