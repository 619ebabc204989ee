use super::*;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

/// What a body brings when it comes in these pieces, neighbouring text and thoughts joined.
fn read(content_type: Option<&str>, pieces: &[&[u8]]) -> (Vec<Part>, Result<(), Fault>) {
    let mut answer = Answer::new(content_type);
    let mut parts = Vec::new();
    let mut result = Ok(());
    for piece in pieces {
        result = answer.feed(piece, &mut parts);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = answer.end(&mut parts);
    }
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(Part::Text(text)), Part::Text(more)) => text.push_str(&more),
            (Some(Part::Thought(text)), Part::Thought(more)) => text.push_str(&more),
            (_, part) => joined.push(part),
        }
    }
    (joined, result)
}

fn stream(chunks: &[&str]) -> (Vec<Part>, Result<(), Fault>) {
    let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    read(Some("text/event-stream; charset=utf-8"), &[body.as_bytes()])
}

fn json(body: &str) -> (Vec<Part>, Result<(), Fault>) {
    read(Some("application/json"), &[body.as_bytes()])
}

fn delta(fields: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{{fields}}},"finish_reason":null}}]}}"#)
}

fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn thought(text: &str) -> Part {
    Part::Thought(text.to_owned())
}

const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;

#[test]
fn a_stream_gives_text_thoughts_and_the_last_count_of_tokens() {
    let (parts, result) = stream(&[
        &delta(r#""role":"assistant","content":"""#),
        &delta(r#""reasoning_content":"hm""#),
        &delta(r#""reasoning":"m","reasoning_content":null"#),
        &delta(r#""content":"Hel""#),
        r#"{"choices":[{"delta":{"content":"lo"}}],"usage":{"prompt_tokens":1}}"#,
        &finish("stop"),
        USAGE,
        "[DONE]",
    ]);
    assert_eq!(result, Ok(()));
    assert_eq!(parts, [thought("hmm"), text("Hello"), Part::Usage { input: 3, output: 4, total: 7 }]);
}

#[test]
fn reasoning_under_both_names_is_told_once() {
    let (parts, _) = stream(&[&delta(r#""reasoning":"once","reasoning_content":"once""#), "[DONE]"]);
    assert_eq!(parts, [thought("once")]);
}

#[test]
fn a_stream_is_whole_with_a_finish_reason_or_done_and_cut_without() {
    let hi = delta(r#""content":"hi""#);
    assert_eq!(stream(&[&hi, "[DONE]"]), (vec![text("hi")], Ok(())));
    assert_eq!(stream(&[&hi, &finish("stop")]), (vec![text("hi")], Ok(())));
    assert_eq!(stream(&[&hi]), (vec![text("hi")], Err(Fault::Cut)));
    assert_eq!(stream(&[&hi, "[DONE]", &hi]), (vec![text("hi")], Ok(())), "nothing counts after the end");
    let empty_finish = hi.replace("\"finish_reason\":null", "\"finish_reason\":\"\"");
    assert_eq!(stream(&[&empty_finish, &empty_finish]), (vec![text("hihi")], Err(Fault::Cut)));
    let cut_usage = format!("data: {hi}\n\ndata: {}\n\ndata: {{\"choices\":[],\"usa", finish("stop"));
    assert_eq!(read(Some("text/event-stream"), &[cut_usage.as_bytes()]), (vec![text("hi")], Ok(())));
    assert_eq!(stream(&[]).1, Err(Fault::Empty(String::new())));
    for nothing in [
        "[DONE]",
        USAGE,
        r#"{"choices":[]}"#,
        r#"{"choices":[{"index":0,"text":"old","finish_reason":"stop"}]}"#,
    ] {
        assert_eq!(stream(&[nothing, "[DONE]"]).1, Err(Fault::Empty(String::new())), "{nothing}");
    }
    assert!(matches!(json(r#"{"choices":[]}"#).1, Err(Fault::Garbage(_))));
    let marked = "\u{feff}{\"choices\":[{\"message\":{\"content\":\"hi\"}}]}";
    for kind in [Some("application/json"), Some("text/plain")] {
        assert_eq!(read(kind, &[marked.as_bytes()]), (vec![text("hi")], Ok(())), "{kind:?}");
    }
}

#[test]
fn an_odd_field_beside_the_text_costs_nothing() {
    for odd in [
        r#"{"choices":[{"index":-1,"delta":{"content":"hi"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"delta":{"content":"hi","refusal":{}},"finish_reason":"stop"}]}"#,
        r#"{"choices":[null,{"index":0,"delta":{"content":"hi"},"finish_reason":false}]}"#,
    ] {
        assert_eq!(stream(&[odd, "[DONE]"]), (vec![text("hi")], Ok(())), "{odd}");
    }
}

#[test]
fn only_the_first_choice_is_the_answer() {
    let (parts, _) = stream(&[
        r#"{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"}}]}"#,
        r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}"#,
        "[DONE]",
    ]);
    assert_eq!(parts, [text("yes")]);
}

#[test]
fn one_json_object_is_an_answer_too() {
    let (parts, result) = json(
        r#" {"choices":[{"index":0,"message":{"role":"assistant","reasoning":"hm","content":"Hello"},
            "finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}} "#,
    );
    assert_eq!(result, Ok(()));
    assert_eq!(parts, [thought("hm"), text("Hello"), Part::Usage { input: 3, output: 4, total: 7 }]);
    let parts = json(
        r#"{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}"#,
    );
    assert_eq!(parts, (vec![text("ab")], Ok(())));
    let refused = json(r#"{"choices":[{"message":{"content":null,"refusal":"I will not"}}]}"#);
    assert_eq!(refused, (vec![text("I will not")], Ok(())));
}

#[test]
fn the_content_type_decides_and_without_one_the_first_byte() {
    let body = br#"{"choices":[{"message":{"content":"x"}}]}"#;
    let events = b"\n: hello\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
    for kind in
        [Some("application/json"), Some("Application/Problem+JSON; charset=utf-8"), None, Some("text/plain")]
    {
        assert_eq!(read(kind, &[b" ", body]), (vec![text("x")], Ok(())), "{kind:?}");
    }
    for kind in [Some("TEXT/event-stream"), None, Some("application/octet-stream")] {
        assert_eq!(read(kind, &[events]), (vec![text("x")], Ok(())), "{kind:?}");
    }
    assert_eq!(read(None, &[b" \n"]).1, Err(Fault::Empty(String::new())));
    let page = read(Some("text/html; charset=utf-8"), &[b"<html>", b"log in</html>"]);
    let expected =
        Fault::NoCompletion { kind: "text/html".to_owned(), said: "<html>log in</html>".to_owned() };
    assert_eq!(page, (vec![], Err(expected)));
}

#[test]
fn garbage_is_named_with_what_it_says_and_what_came_before_it_is_kept() {
    let hi = delta(r#""content":"hi""#);
    assert_eq!(stream(&[&hi, "{nonsense"]), (vec![text("hi")], Err(Fault::Garbage("{nonsense".to_owned()))));
    assert_eq!(stream(&["7"]).1, Err(Fault::Garbage("7".to_owned())));
    assert_eq!(stream(&[r#"{"choices":[{"delta":{"content":7}}]}"#]).1.is_err(), true);
    assert_eq!(json("not json").1, Err(Fault::Garbage("not json".to_owned())));
    assert_eq!(json("{}").1, Err(Fault::Garbage("{}".to_owned())), "no choices");
    assert_eq!(json(" ").1, Err(Fault::Empty(String::new())));
    let (_, lied) = read(Some("text/event-stream"), &[br#"{"error":"no stream here"}"#]);
    let Err(Fault::Empty(said)) = lied else { panic!("{lied:?}") };
    assert!(said.contains("no stream here"), "{said}");
    let long = format!("{{{}", "x".repeat(10_000));
    let Err(Fault::Garbage(said)) = json(&long).1 else { panic!("no fault") };
    assert_eq!(said.len(), SAID_BYTES);
}

#[test]
fn an_error_in_the_stream_ends_it_in_every_form_that_servers_have() {
    let hi = delta(r#""content":"hi""#);
    let table = [
        (r#"{"error":{"message":"overloaded","code":529}}"#, "overloaded"),
        (r#"{"error":"overloaded"}"#, "overloaded"),
        (r#"{"error":{"kind":"x"},"choices":[]}"#, r#"{"choices":[],"error":{"kind":"x"}}"#),
    ];
    for (chunk, message) in table {
        let expected = (vec![text("hi")], Err(Fault::Server(message.to_owned())));
        assert_eq!(stream(&[&hi, chunk, "[DONE]"]), expected, "{chunk}");
    }
    let named = b"event: error\ndata: {\"message\":\"gone\"}\n\n";
    assert_eq!(read(Some("text/event-stream"), &[named]).1, Err(Fault::Server("gone".to_owned())));
    let none = r#"{"choices":[{"delta":{"content":"x"}}],"error":null}"#;
    assert_eq!(stream(&[none, "[DONE]"]), (vec![text("x")], Ok(())));
    assert_eq!(stream(&[&finish("error")]).1, Err(Fault::Server("finish_reason error".to_owned())));
}

#[test]
fn an_answer_that_only_calls_tools_is_a_fault_and_one_with_text_says_so() {
    let call = delta(r#""tool_calls":[{"index":0,"function":{"name":"ls","arguments":""}}]"#);
    let more = delta(r#""tool_calls":[{"index":0,"function":{"arguments":"{}"}}]"#);
    assert_eq!(stream(&[&call, &more, &finish("tool_calls")]), (vec![], Err(Fault::Tools("ls".to_owned()))));
    let (parts, result) = stream(&[&delta(r#""content":"see""#), &call, "[DONE]"]);
    assert_eq!(result, Ok(()));
    assert_eq!(parts[0], text("see"));
    assert!(matches!(&parts[1], Part::Note(note) if note.contains("\"ls\"")), "{parts:?}");
    let odd = delta(r#""content":"x","tool_calls":"none""#);
    assert_eq!(stream(&[&odd, "[DONE]"]), (vec![text("x")], Ok(())), "of another shape: not there");
}

#[test]
fn an_answer_that_was_cut_by_a_limit_or_a_filter_says_so() {
    for reason in ["length", "content_filter"] {
        let (parts, result) = stream(&[&delta(r#""content":"x""#), &finish(reason)]);
        assert_eq!(result, Ok(()));
        assert!(
            matches!(&parts[..], [Part::Text(_), Part::Note(note)] if note.contains("ends early")),
            "{parts:?}"
        );
    }
}

#[test]
fn a_pair_of_surrogates_split_over_chunks_is_one_character() {
    let (parts, _) = stream(&[&delta(r#""content":"a\ud83d""#), &delta(r#""content":"\ude00b""#), "[DONE]"]);
    assert_eq!(parts, [text("a\u{1f600}b")]);
    let (parts, _) = stream(&[&delta(r#""content":"a\ud83d""#), "[DONE]"]);
    assert_eq!(parts, [text("a\u{fffd}")]);
}

#[test]
fn a_json_answer_over_the_limit_is_refused_by_its_length_or_while_it_comes() {
    let mut answer = Answer::new(Some("application/json"));
    let limit = MAX_JSON_BYTES as u64;
    assert_eq!(answer.check_length(Some(limit)), Ok(()));
    assert_eq!(answer.check_length(None), Ok(()));
    assert_eq!(answer.check_length(Some(limit + 1)), Err(too_long()));
    assert_eq!(Answer::new(Some("text/event-stream")).check_length(Some(limit + 1)), Ok(()));
    let piece = vec![b' '; MAX_JSON_BYTES / 2];
    let mut parts = Vec::new();
    assert_eq!(answer.feed(&piece, &mut parts), Ok(()));
    assert_eq!(answer.feed(&piece, &mut parts), Ok(()));
    assert_eq!(answer.feed(b" ", &mut parts), Err(too_long()));
}

#[test]
fn a_server_says_what_is_wrong_in_one_of_many_places() {
    let table = [
        (r#"{"error":{"message":"a","type":"t"}}"#, "a"),
        (r#"{"error":"b"}"#, "b"),
        (r#"{"object":"error","message":"c"}"#, "c"),
        (r#"{"detail":"d"}"#, "d"),
        (r#"{"detail":[{"msg":"\u0073k"}]}"#, r#"{"detail":[{"msg":"sk"}]}"#),
        ("<h1>Bad Gateway</h1>", "<h1>Bad Gateway</h1>"),
        ("", ""),
    ];
    for (body, message) in table {
        assert_eq!(message_of(body.as_bytes()), message, "{body}");
    }
    assert_eq!(code_of(br#"{"error":{"code":"insufficient_quota"}}"#).as_deref(), Some("insufficient_quota"));
    assert_eq!(code_of(b"no"), None);
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_answer(
        pieces in proptest::collection::vec("[a\u{e9}\u{20ac}\u{1f600}\"\\\\\n]{0,6}", 0..8),
        thoughts in proptest::collection::vec("[b\u{e9}\u{1f600}]{0,4}", 1..3),
        escaped in any::<bool>(),
        line_end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")],
        sizes in proptest::collection::vec(1usize..9, 1..20),
    ) {
        let written = |text: &str| {
            let plain = serde_json::to_string(text).unwrap();
            if !escaped {
                return plain;
            }
            plain.encode_utf16().map(|unit| match u8::try_from(unit) {
                Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
                Ok(_) | Err(_) => format!("\\u{unit:04x}"),
            }).collect()
        };
        let mut body = format!(": hello{line_end}{line_end}");
        for thought in &thoughts {
            let chunk = delta(&format!("\"reasoning\":{}", written(thought)));
            body += &format!("data: {chunk}{line_end}{line_end}");
        }
        for piece in &pieces {
            let chunk = delta(&format!("\"content\":{}", written(piece)));
            body += &format!("data: {chunk}{line_end}{line_end}");
        }
        body += &format!("data: [DONE]{line_end}{line_end}");
        let mut chunks = Vec::new();
        let mut rest = body.as_bytes();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, later) = rest.split_at((*size).min(rest.len()));
            chunks.push(chunk);
            rest = later;
        }
        let expected: Vec<Part> = [thought(&thoughts.concat()), text(&pieces.concat())]
            .into_iter()
            .filter(|part| *part != text("") && *part != thought(""))
            .collect();
        prop_assert_eq!(read(Some("text/event-stream"), &chunks), (expected, Ok(())));
    }
}
