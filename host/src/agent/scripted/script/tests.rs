use super::*;
use pretty_assertions::assert_eq;

fn steps(text: &str) -> Vec<Step> {
    parse_script(text).unwrap().steps
}

#[test]
fn the_manual_has_every_step_and_its_example_is_a_right_script() {
    let manual = include_str!("../../../../../docs/scripted.md");
    for step in STEPS {
        assert!(manual.contains(&format!("`{{\"{step}\":")), "`{step}` is not in docs/scripted.md");
    }
    let (_, example) = manual.split_once("```jsonl\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    assert_eq!(steps(example).len(), 5);
}

#[test]
fn every_step_reads_with_all_its_fields() {
    let question = |description: &str, choices: &[&str], allow_permanent, timeout_ms| Question {
        command: "rm".to_owned(),
        description: description.to_owned(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        allow_permanent,
        timeout_ms,
    };
    let ms = Duration::from_millis;
    let cases = [
        (r#"{"delta":"a\n"}"#, Step::Delta("a\n".to_owned())),
        (r#"{"deltas":3}"#, Step::Deltas { count: 3, bytes: 16, delay: ms(0) }),
        (r#"{"delay_ms":5,"bytes":9,"deltas":3}"#, Step::Deltas { count: 3, bytes: 9, delay: ms(5) }),
        (r#"{"sleep_ms":7}"#, Step::Sleep(ms(7))),
        (
            r#"{"event":{"kind":"own","b":1,"a":2.50}}"#,
            Step::Event(RawJson::parse(r#"{"kind":"own","b":1,"a":2.50}"#).unwrap()),
        ),
        (r#"{"ask":{"command":"rm"}}"#, Step::Ask(question("", &[], false, 300_000))),
        (
            r#"{"ask":{"command":"rm","description":"d","choices":["once"],"allow_permanent":true,"timeout_ms":1}}"#,
            Step::Ask(question("d", &["once"], true, 1)),
        ),
        (r#"{"stdout":"a"}"#, Step::Stdout(b"a".to_vec())),
        (r#"{"stderr":"\\xff"}"#, Step::Stderr(b"\xff".to_vec())),
        (r#"{"raw_frame":"{}\n\\x00"}"#, Step::RawFrame(b"{}\n\0".to_vec())),
        (r#"{"error":"e"}"#, Step::Error("e".to_owned())),
        (r#"{"panic":"p"}"#, Step::Panic("p".to_owned())),
        (r#"{"exit":255}"#, Step::Exit(255)),
        (r#"{"signal":"SEGV"}"#, Step::Signal(Signal::SIGSEGV)),
        (r#"{"signal":"SIGKILL"}"#, Step::Signal(Signal::SIGKILL)),
        (r#"{"hang":true}"#, Step::Hang),
        (r#"{"spin_ms":1}"#, Step::Spin(ms(1))),
        (r#"{"alloc_mb":1}"#, Step::Alloc { mebibytes: 1 }),
        (r#"{"spawn":["sh","-c","x"]}"#, Step::Spawn { argv: argv(&["sh", "-c", "x"]), detach: false }),
        (r#"{"spawn":["x"],"detach":true}"#, Step::Spawn { argv: argv(&["x"]), detach: true }),
    ];
    for (text, expected) in cases {
        assert_eq!(steps(text), std::slice::from_ref(&expected), "as a line: {text}");
        assert_eq!(steps(&format!("[{text}]")), [expected], "as a list: {text}");
    }
}

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_list_and_lines_are_the_same_script() {
    let list = " [\n {\"delta\":\"a\"},\n {\"exit\":1}\n]\n";
    let lines = "\u{feff}\n# first\n{\"delta\":\"a\"}\r\n\n   {\"exit\":1}";
    assert_eq!(steps(list), steps(lines));
    assert!(parse_script("").unwrap().is_empty() && parse_script("[]").unwrap().is_empty());
}

#[test]
fn a_mistake_names_its_step_and_field() {
    let cases = [
        (r#"{"delta":1}"#, Some("delta"), "invalid type"),
        (r#"{"delta":null}"#, Some("delta"), "invalid type"),
        (r#"{"sleep_ms":-1}"#, Some("sleep_ms"), "invalid value"),
        (r#"{"sleep_ms":1.5}"#, Some("sleep_ms"), "invalid type"),
        (r#"{"deltas":1,"bytes":67108865}"#, Some("bytes"), "over the limit"),
        (r#"{"deltas":1,"delay":1}"#, Some("delay"), "not a field of `deltas`"),
        (r#"{"delta":"a","bytes":1}"#, Some("bytes"), "not a field of `delta`"),
        (r#"{"delta":"a","delta":"b"}"#, Some("delta"), "twice"),
        (r#"{"delta":"a","exit":1}"#, None, "two steps"),
        (r#"{"sleep":1}"#, None, "unknown step `sleep`"),
        ("{}", None, "unknown step"),
        ("7", None, "not an object"),
        (r#"{"event":1}"#, Some("event"), "not an object"),
        (r#"{"event":{}}"#, Some("event.kind"), "missing"),
        (r#"{"event":{"kind":""}}"#, Some("event.kind"), "empty"),
        (r#"{"event":{"kind":"a","seq":1}}"#, Some("event.seq"), "host itself"),
        (r#"{"ask":{}}"#, Some("ask.command"), "missing"),
        (r#"{"ask":{"command":"a","choices":"once"}}"#, Some("ask.choices"), "invalid type"),
        (r#"{"ask":{"command":"a","timeout":1}}"#, Some("ask.timeout"), "not a field"),
        (r#"{"exit":256}"#, Some("exit"), "invalid value"),
        (r#"{"signal":"NOPE"}"#, Some("signal"), "NOPE"),
        (r#"{"signal":11}"#, Some("signal"), "invalid type"),
        (r#"{"hang":false}"#, Some("hang"), "only true"),
        (r#"{"spawn":[]}"#, Some("spawn"), "no program"),
        (r#"{"spawn":["a\u0000"]}"#, Some("spawn"), "NUL"),
        (r#"{"spawn":"ls"}"#, Some("spawn"), "invalid type"),
    ];
    for (text, field, problem) in cases {
        for script in [format!(r#"[{{"delta":"fine"}},{text}]"#), format!("{{\"delta\":\"fine\"}}\n{text}")] {
            let error = parse_script(&script).unwrap_err();
            assert_eq!((error.step, error.field.as_deref()), (Some(2), field), "{text}");
            assert!(error.problem.contains(problem), "{text}: {error}");
            assert!(error.to_string().starts_with("script step 2"), "{error}");
            assert!(!error.to_string().contains(" at line "), "{error}");
        }
    }
}

#[test]
fn text_that_is_no_script_says_so() {
    for (text, step) in [("[{\"delta\":\"a\"}", None), ("{\"delta\":", Some(1)), ("hello", Some(1))] {
        assert_eq!(parse_script(text).unwrap_err().step, step, "{text}");
    }
    let error = read_script(&RawJson::parse(r#"{"delta":"a"}"#).unwrap()).unwrap_err();
    assert!(error.step.is_none() && error.problem.contains("not a list"), "{error}");
}

#[test]
fn an_event_that_was_written_over_several_lines_becomes_one() {
    let script = "[{\"event\":{\n  \"kind\": \"status\",\r\n  \"text\": \"a\\nb\"\n}}]";
    let Some(Step::Event(body)) = steps(script).pop() else { panic!("no event") };
    assert_eq!(body.as_str(), "{   \"kind\": \"status\",    \"text\": \"a\\nb\" }");
}

#[test]
fn only_x_and_two_digits_make_a_byte() {
    let cases: [(&str, &[u8]); 7] = [
        ("a\\x41\\xfFz", b"aA\xffz"),
        ("\\x", b"\\x"),
        ("\\x4", b"\\x4"),
        ("\\x4g", b"\\x4g"),
        ("C:\\tmp\\\\x41", b"C:\\tmp\\A"),
        ("\\x5cx41", b"\\x41"),
        ("€\\xe2", b"\xe2\x82\xac\xe2"),
    ];
    for (text, expected) in cases {
        assert_eq!(unescape(text), expected, "{text}");
    }
}
