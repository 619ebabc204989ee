//! `docs/protocol.md` is compared with the types, the schemas and the closed tables.

#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use pretty_assertions::assert_eq;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use turnhost_protocol::hello::CAPABILITIES;
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{
    DecodeErrorKind, ErrorKind, FailReason, HostCommand, HostEvent, Route, decode_command, decode_event,
    limits,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn document() -> String {
    std::fs::read_to_string(root().join("../docs/protocol.md")).unwrap()
}

fn schema(name: &str) -> Value {
    let path = root().join(format!("schemas/{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Each heading with the lines below it, up to the next heading of any level.
fn sections(document: &str) -> Vec<(String, Vec<&str>)> {
    let mut sections: Vec<(String, Vec<&str>)> = vec![(String::new(), Vec::new())];
    for line in document.lines() {
        match line.strip_prefix('#') {
            Some(heading) => {
                sections.push((heading.trim_start_matches('#').trim().to_owned(), Vec::new()));
            }
            None => sections.last_mut().unwrap().1.push(line),
        }
    }
    sections
}

/// The sections whose heading is the name of a frame.
fn frame_sections(document: &str) -> Vec<(String, Vec<&str>)> {
    sections(document)
        .into_iter()
        .filter_map(|(heading, lines)| {
            let name = heading.strip_prefix('`')?.strip_suffix('`')?.to_owned();
            Some((name, lines))
        })
        .collect()
}

/// The rows of the tables among the lines whose first column has this title, without their backticks.
fn table<'a>(lines: &[&'a str], first_column: &str) -> Vec<Vec<String>> {
    let cells = |line: &&'a str| -> Vec<String> {
        let row = line.trim().trim_start_matches('|').trim_end_matches('|');
        row.split(" | ").map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let mut rows = Vec::new();
    let mut inside = false;
    for line in lines {
        if !line.starts_with('|') {
            inside = false;
        } else if line.starts_with(&format!("| {first_column} |")) {
            inside = true;
        } else if inside && !line.starts_with("|---") {
            rows.push(cells(line));
        }
    }
    rows
}

fn whole_table(document: &str, first_column: &str) -> Vec<Vec<String>> {
    table(&document.lines().collect::<Vec<_>>(), first_column)
}

fn column(rows: &[Vec<String>], at: usize) -> Vec<&str> {
    rows.iter().map(|row| row[at].as_str()).collect()
}

/// The lines of the `json` blocks.
fn examples<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut examples = Vec::new();
    let mut inside = false;
    for line in lines {
        match *line {
            "```json" => inside = true,
            "```" => inside = false,
            line if inside => examples.push(line),
            _ => {}
        }
    }
    examples
}

/// What a field table calls the JSON of a field with this schema.
fn json_word(field: &Value) -> &str {
    if field.pointer("/anyOf/0/oneOf").is_some() {
        return "string or object";
    }
    if let Some(reference) = field.pointer("/anyOf/0/$ref").and_then(Value::as_str) {
        return if reference.ends_with("Delivered") { "object" } else { "string" };
    }
    match &field["type"] {
        Value::String(one) => one,
        Value::Array(several) => several[0].as_str().unwrap(),
        _ => "any",
    }
}

#[test]
fn every_example_line_is_the_frame_of_its_section() {
    let document = document();
    let mut shown = BTreeSet::new();
    for (name, lines) in frame_sections(&document) {
        for line in examples(&lines) {
            let (frame_type, salvaged) = if HostCommand::TYPES.contains(&&*name) {
                let decoded =
                    decode_command(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
                (decoded.frame.type_name(), decoded.salvaged)
            } else {
                let decoded = decode_event(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
                (decoded.frame.type_name(), decoded.salvaged)
            };
            assert_eq!((frame_type, salvaged), (&*name, false), "{line}");
            shown.insert(frame_type);
        }
    }
    let all: BTreeSet<&str> = HostCommand::TYPES.iter().chain(HostEvent::TYPES).copied().collect();
    assert_eq!(shown, all, "each type has an example");
    let examples_anywhere = examples(&document.lines().collect::<Vec<_>>()).len();
    let examples_of_frames: usize =
        frame_sections(&document).iter().map(|(_, lines)| examples(lines).len()).sum();
    assert_eq!(examples_of_frames, examples_anywhere, "every example stands in the section of its frame");
}

#[test]
fn the_field_tables_have_exactly_the_fields_of_the_types() {
    let document = document();
    let mut described = BTreeMap::new();
    for (name, lines) in frame_sections(&document) {
        for row in table(&lines, "field") {
            described
                .entry(name.clone())
                .or_insert_with(BTreeMap::new)
                .insert(row[0].clone(), row[1].clone());
        }
    }
    for name in HostCommand::TYPES.iter().chain(HostEvent::TYPES) {
        let schema = schema(name);
        let fields: BTreeMap<String, String> = schema["properties"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(field, _)| !matches!(field.as_str(), "type" | "host_ns"))
            .map(|(field, schema)| (field.clone(), json_word(schema).to_owned()))
            .collect();
        assert_eq!(described.get(*name), Some(&fields), "the table of `{name}`");
    }
}

#[test]
fn the_kinds_of_an_event_are_all_described_and_shown() {
    let document = document();
    let kinds = whole_table(&document, "kind");
    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, lines) in frame_sections(&document) {
        for line in examples(&lines).into_iter().filter(|_| name == "event") {
            let frame: BTreeMap<String, Value> = serde_json::from_str(line).unwrap();
            let kind = frame["kind"].as_str().unwrap().to_owned();
            shown.entry(kind).or_default().extend(frame.into_keys());
        }
    }
    let files = std::fs::read_dir(root().join("schemas")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let kinds_of_types: BTreeSet<String> = names
        .filter_map(|name| Some(name.strip_prefix("event.")?.strip_suffix(".json")?.to_owned()))
        .filter(|kind| !kind.is_empty())
        .collect();
    assert_eq!(shown.keys().cloned().collect::<BTreeSet<_>>(), kinds_of_types);
    for kind in kinds_of_types {
        let schema = schema(&format!("event.{kind}"));
        let row = kinds.iter().find(|row| row[0] == kind).unwrap_or_else(|| panic!("`{kind}` has no row"));
        for field in schema["properties"].as_object().unwrap().keys() {
            let of_every_event =
                matches!(field.as_str(), "type" | "sid" | "request_id" | "seq" | "kind" | "host_ns");
            let described = format!("`{}`", row[1]).contains(&format!("`{field}`"));
            assert!(of_every_event || described, "the row of `{kind}` does not name `{field}`");
            assert!(shown[&kind].contains(field), "the example of `{kind}` does not show `{field}`");
        }
    }
}

#[test]
fn the_closed_tables_are_those_of_the_types() {
    let document = document();
    let words = |rows: &[Vec<String>]| column(rows, 0).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let reasons: Vec<_> = FailReason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(words(&whole_table(&document, "reason")), reasons);
    let outcomes: Vec<_> = InterruptOutcome::ALL.iter().map(|outcome| outcome.as_str()).collect();
    assert_eq!(words(&whole_table(&document, "outcome")), outcomes);
    assert_eq!(words(&whole_table(&document, "capability")), CAPABILITIES);
    let (_, refusals) =
        sections(&document).into_iter().find(|(name, _)| name == "Refusals of a call").unwrap();
    let kinds: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(words(&table(&refusals, "kind")), kinds);
    let routes = whole_table(&document, "route");
    let rows: Vec<_> = routes.iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
    assert_eq!(rows, Route::ALL.map(|route| (route.name(), route.class().name())));
}

#[test]
fn every_word_for_a_refused_line_is_in_the_table_of_hostile_lines() {
    let document = document();
    let rows = whole_table(&document, "the line");
    let words: BTreeSet<&str> = column(&rows, 2).into_iter().filter(|word| !word.is_empty()).collect();
    let kinds = [
        DecodeErrorKind::Depth,
        DecodeErrorKind::Json,
        DecodeErrorKind::NotObject,
        DecodeErrorKind::BadField,
        DecodeErrorKind::DuplicateKey,
        DecodeErrorKind::UnknownType,
        DecodeErrorKind::TerminalBehindText,
    ];
    let expected: BTreeSet<&str> =
        kinds.into_iter().map(DecodeErrorKind::as_str).chain(["oversize", "utf8"]).collect();
    assert_eq!(words, expected);
}

#[test]
fn the_limits_are_those_of_the_code() {
    let document = document();
    let rows = whole_table(&document, "what");
    let limit = |what: &str| {
        let row = rows.iter().find(|row| row[0] == what);
        row.unwrap_or_else(|| panic!("no limit of {what}"))[1].clone()
    };
    let kib = |bytes: usize| bytes / 1024;
    let line = format!(
        "{} MiB, settable from {} KiB up",
        kib(limits::MAX_FRAME_BYTES) / 1024,
        kib(limits::MIN_FRAME_BYTES)
    );
    assert_eq!(limit("line, both ways"), line);
    assert_eq!(limit("nesting of one frame"), limits::MAX_DEPTH.to_string());
    assert_eq!(
        limit("kept of an oversize line"),
        format!("the first and the last {} KiB", kib(limits::OVERSIZE_KEPT_BYTES))
    );
    assert_eq!(limit("kept of a stray line"), format!("{} KiB", kib(limits::STRAY_SHOWN_BYTES)));
    assert_eq!(limit("request_id`, `sid").replace(',', ""), format!("{} bytes", limits::MAX_ID_BYTES));
    assert_eq!(limit("ended turns that a session remembers"), limits::ENDED_TURNS_KEPT.to_string());
    assert_eq!(
        limit("stderr kept"),
        format!("{} lines of at most {} KiB", limits::STDERR_TAIL_LINES, kib(limits::STDERR_LINE_BYTES))
    );
    assert_eq!(limit("turns at once"), limits::DEFAULT_WORKERS.to_string());
    assert_eq!(limit("heartbeat"), format!("every {} s", limits::DEFAULT_HEARTBEAT.as_secs()));
}

#[test]
fn every_link_inside_the_document_has_its_heading() {
    let document = document();
    let anchors: BTreeSet<String> = sections(&document)
        .iter()
        .map(|(heading, _)| heading.to_lowercase().replace(' ', "-").replace(['`', '.'], ""))
        .collect();
    let links: Vec<&str> =
        document.split("](#").skip(1).map(|after| after.split(')').next().unwrap()).collect();
    assert!(!links.is_empty());
    for link in links {
        assert!(anchors.contains(link), "#{link} has no heading");
    }
}

#[test]
fn every_counterpart_of_the_public_suite_is_a_test_of_the_workspace() {
    let document = document();
    let rows = whole_table(&document, "there");
    assert_eq!(rows.len(), 14);
    let workspace = root().join("..");
    let mut sources = String::new();
    let mut folders: Vec<PathBuf> =
        ["protocol", "os", "host", "supervisor", "cli", "tests"].map(|name| workspace.join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    for name in column(&rows, 1) {
        assert!(sources.contains(&format!("fn {name}(")), "there is no test `{name}`");
    }
}
