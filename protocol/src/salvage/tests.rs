use super::*;
use pretty_assertions::assert_eq;

const FRAME: &[u8] = br#"{"type":"hb"}"#;

#[test]
fn escape_sequences_and_control_characters_are_passed_over() {
    for front in [
        "\u{1b}[?2004h",
        "\u{1b}[0m",
        "\u{1b}[38;5;12m\u{1b}[K",
        "\u{1b}[ q",
        "\u{1b}]0;title\u{7}",
        "\u{1b}]0;{\"type\":\"turn.end\"}\u{7}",
        "\u{1b}]8;;https://example.org\u{1b}\\",
        "\u{1b}Pq#0\u{1b}\\",
        "\u{1b}_payload\u{1b}\\",
        "\u{1b}]0;broken off\u{1b}[0m",
        "\u{1b}c",
        "\u{1b}7",
        "\u{1b}(B",
        "\u{1b}=",
        "\u{1b}",
        "\u{1b}[",
        "\u{1b}[12;",
        "\u{1b}\u{1b}\u{1b}",
        "\u{7}\u{8}\u{0}\u{7f}",
        "\u{feff}",
        " \u{feff}\t\u{1b}[0m ",
    ] {
        let line = [front.as_bytes(), FRAME].concat();
        assert_eq!(strip_front(&line), (FRAME, true), "{front:?}");
    }
}

#[test]
fn white_space_alone_is_no_salvage() {
    assert_eq!(strip_front(b" \t\r {}"), (&b"{}"[..], false));
    assert_eq!(strip_front(b"{}"), (&b"{}"[..], false));
    assert_eq!(strip_front(b""), (&b""[..], false));
}

#[test]
fn text_is_not_passed_over() {
    assert_eq!(strip_front(b"\x1b[0mhello"), (&b"hello"[..], true));
    assert_eq!(strip_front(b"\x1b]0;no end {}"), (&b"0;no end {}"[..], true));
    assert_eq!(strip_front("\u{85}{}".as_bytes()), ("\u{85}{}".as_bytes(), false));
}

#[test]
fn escape_sequences_behind_a_frame_are_cut_off() {
    for behind in ["\u{1b}[0m", "\u{1b}[?2004l\r", "\u{0}", " \u{7} ", "\u{1b}]0;title\u{7}"] {
        let line = [FRAME, behind.as_bytes()].concat();
        assert_eq!(strip_back(&line), Some(FRAME), "{behind:?}");
    }
    for behind in ["", " ", "\r", "x", "\u{1b}[0mx", "{}"] {
        let line = [FRAME, behind.as_bytes()].concat();
        assert_eq!(strip_back(&line), None, "{behind:?}");
    }
    assert_eq!(strip_back(b"no brace"), None);
    assert_eq!(strip_back(b""), None);
}

#[test]
fn frame_starts_are_found_behind_the_first_byte() {
    let line = br#"{"type":1}{"type":2}{"type":3}"#;
    assert_eq!(first_frame_start(line), Some(&line[10..]));
    assert_eq!(last_frame_start(line), Some(&line[20..]));
    for none in [&b""[..], b"{", br#"{"type":1}"#, br#"x{"type" :1}"#] {
        assert_eq!((first_frame_start(none), last_frame_start(none)), (None, None));
    }
}

#[test]
fn endless_introducers_take_linear_time() {
    for line in ["\u{1b}]".repeat(300_000), "\u{1b}[".repeat(300_000), "\u{1b}]x\u{7}".repeat(300_000)] {
        assert_eq!(strip_front(line.as_bytes()), (&b""[..], true));
    }
}
