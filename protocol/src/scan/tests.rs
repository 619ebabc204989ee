use super::*;
use pretty_assertions::assert_eq;

fn repaired(line: &[u8]) -> (String, u32) {
    let scanned = scan(line).unwrap();
    (scanned.text.into_owned(), scanned.repaired)
}

#[test]
fn a_clean_line_is_not_copied() {
    let line = "{\"a\":\"é\u{2028}\\u00e9\\ud83d\\ude00\\\\ \\\"\"}";
    assert_eq!(scan(line.as_bytes()), Ok(Scanned { text: Cow::Borrowed(line), repaired: 0 }));
    assert!(matches!(scan(line.as_bytes()).unwrap().text, Cow::Borrowed(_)));
}

#[test]
fn half_of_a_surrogate_pair_is_replaced() {
    for (escaped, expected, count) in [
        (r"\ud800", "\u{fffd}", 1),
        (r"\uD800x", "\u{fffd}x", 1),
        (r"\udBfF", "\u{fffd}", 1),
        (r"\udc00", "\u{fffd}", 1),
        (r"\uDfFf.", "\u{fffd}.", 1),
        (r"\udc00\ud800", "\u{fffd}\u{fffd}", 2),
        (r"\ud800\ud800\udc00", "\u{fffd}\\ud800\\udc00", 1),
        (r"\ud800\u0041", "\u{fffd}\\u0041", 1),
        (r"\ud800\n", "\u{fffd}\\n", 1),
        (r"\ud83d\ude00", r"\ud83d\ude00", 0),
        (r"\uD83D\uDE00\udc00", "\\uD83D\\uDE00\u{fffd}", 1),
        (r"\ud7ff\ue000", r"\ud7ff\ue000", 0),
        (r"\\ud800", r"\\ud800", 0),
        (r"\\\ud800", "\\\\\u{fffd}", 1),
        (r"a\ud800b\udfffc", "a\u{fffd}b\u{fffd}c", 2),
    ] {
        let line = format!(r#"["{escaped}",1]"#);
        assert_eq!(repaired(line.as_bytes()), (format!(r#"["{expected}",1]"#), count), "{escaped}");
    }
}

#[test]
fn an_escape_outside_a_string_or_cut_short_is_left_to_the_parser() {
    for line in
        [r"\ud800", r#"{"a":\ud800}"#, r#"["\ud80"]"#, r#"["\ud8"#, r#"["\u"#, r#"["\"#, r#"["\ud80g"]"#]
    {
        assert_eq!(repaired(line.as_bytes()), (line.to_owned(), 0));
    }
    let behind = format!(r#"["abc\u",{}"#, "[".repeat(128));
    assert_eq!(scan(behind.as_bytes()), Err(ScanError::Depth), "the string ends at its quote");
}

#[test]
fn each_run_of_bad_bytes_is_replaced_once() {
    for (bytes, expected, count) in [
        (&b"[\"\xff\"]"[..], "[\"\u{fffd}\"]", 1),
        (b"[\"\xff\xfe\"]", "[\"\u{fffd}\u{fffd}\"]", 2),
        (b"[\"\xe2\x80\"]", "[\"\u{fffd}\"]", 1),
        (b"[\"\xe2\"]", "[\"\u{fffd}\"]", 1),
        (b"[\"\xed\xa0\x80\"]", "[\"\u{fffd}\u{fffd}\u{fffd}\"]", 3),
        (b"[\"\xc0\x80\"]", "[\"\u{fffd}\u{fffd}\"]", 2),
        (b"[\"\xff\\ud800\"]", "[\"\u{fffd}\u{fffd}\"]", 2),
        (b"[\"a\xe2\x80\xa8b\"]", "[\"a\u{2028}b\"]", 0),
    ] {
        assert_eq!(repaired(bytes), (expected.to_owned(), count), "{bytes:?}");
    }
}

#[test]
fn raw_control_characters_are_refused_inside_strings_only() {
    for byte in 0x00..=0x1f {
        for padding in 0..20 {
            let text = format!("[\"{}{}\"]", "x".repeat(padding), char::from(byte));
            assert_eq!(scan(text.as_bytes()), Err(ScanError::ControlCharacter), "{byte:#x} at {padding}");
        }
        let run = format!("[\"{}\"]", char::from(byte).to_string().repeat(8));
        assert_eq!(scan(run.as_bytes()), Err(ScanError::ControlCharacter), "{byte:#x} and nothing else");
        let outside = [b"[", &[byte][..], b"\"\"]"].concat();
        assert!(scan(&outside).is_ok(), "{byte:#x} outside");
        let escaped = [b"[\"\\", &[byte][..], b"\"]"].concat();
        assert_eq!(scan(&escaped), Err(ScanError::ControlCharacter), "{byte:#x} behind a backslash");
    }
    assert!(scan("[\"\u{7f}\u{80}\u{9f}\"]".as_bytes()).is_ok());
}

#[test]
fn the_end_of_a_string_is_found_wherever_it_stands() {
    for padding in 0..40 {
        let x = "x".repeat(padding);
        // The brackets inside the string do not count, those behind it do.
        let deep = format!(r#"["{x}[{{\"[","{x}\\",{}"#, "[".repeat(128));
        assert_eq!(scan(deep.as_bytes()), Err(ScanError::Depth), "{padding}");
        let flat = format!(r#"["{x}{}\"{}"]"#, "[".repeat(200), "{".repeat(200));
        assert!(scan(flat.as_bytes()).is_ok(), "{padding}");
    }
}

#[test]
fn nesting_of_128_passes_and_of_129_is_refused() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        assert!(scan(nested(128).as_bytes()).is_ok());
        assert_eq!(scan(nested(129).as_bytes()), Err(ScanError::Depth));
    }
    let side_by_side = format!("[{}1]", "[1],".repeat(1000));
    assert!(scan(side_by_side.as_bytes()).is_ok());
}

#[test]
fn a_million_levels_are_refused_without_recursion() {
    assert_eq!(scan(&b"[".repeat(1_000_000)), Err(ScanError::Depth));
    assert_eq!(scan(&br#"{"a":"#.repeat(1_000_000)), Err(ScanError::Depth));
    assert!(scan(&b"]".repeat(1_000_000)).is_ok(), "closing brackets alone are the parser's");
}
