use super::*;
use pretty_assertions::assert_eq;

/// An item that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Line(Vec<u8>),
    Rest(Vec<u8>),
    Oversize { bytes: u64, head: Vec<u8>, tail: Vec<u8> },
}

fn owned(line: Line<'_>) -> Item {
    match line {
        Line::Complete(bytes) => Item::Line(bytes.to_vec()),
        Line::Unterminated(bytes) => Item::Rest(bytes.to_vec()),
        Line::Oversize { bytes, head, tail } => {
            Item::Oversize { bytes, head: head.to_vec(), tail: tail.to_vec() }
        }
    }
}

/// What a decoder with this limit gives for the reads, to the end of the stream.
fn items<'a>(limit: usize, reads: impl IntoIterator<Item = &'a [u8]>) -> Vec<Item> {
    let mut decoder = LineDecoder::new(limit);
    let mut items = Vec::new();
    for read in reads {
        decoder.push(read);
        while let Some(line) = decoder.next_line() {
            items.push(owned(line));
        }
    }
    while let Some(line) = decoder.finish() {
        items.push(owned(line));
    }
    items
}

fn line(text: &str) -> Item {
    Item::Line(text.as_bytes().to_vec())
}

fn rest(text: &str) -> Item {
    Item::Rest(text.as_bytes().to_vec())
}

fn oversize(bytes: u64, head: &str, tail: &str) -> Item {
    Item::Oversize { bytes, head: head.as_bytes().to_vec(), tail: tail.as_bytes().to_vec() }
}

/// Checks the items of a stream read at once, and read in pieces of every small size.
fn check(limit: usize, stream: &str, expected: &[Item]) {
    assert_eq!(items(limit, [stream.as_bytes()]), expected, "read at once: {stream:?}");
    for size in 1..=7 {
        assert_eq!(items(limit, stream.as_bytes().chunks(size)), expected, "read by {size}: {stream:?}");
    }
}

#[test]
fn only_the_byte_0x0a_ends_a_line() {
    check(
        100,
        "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f\rg\n{}\n",
        &[line("a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f\rg"), line("{}")],
    );
}

#[test]
fn trailing_carriage_returns_are_cut_off_and_blank_lines_skipped() {
    check(100, "\n\r\n  \n\t\r\r\na\r\nb\r\r\r\n\r", &[line("a"), line("b")]);
}

#[test]
fn a_byte_order_mark_is_skipped_in_front_of_a_line_and_kept_inside_one() {
    check(
        100,
        "\u{feff}a\n\u{feff}\u{feff}b\u{feff}c\n\u{feff}\r\n\u{feff}d",
        &[line("a"), line("b\u{feff}c"), rest("d")],
    );
}

#[test]
fn the_bytes_after_the_last_newline_are_an_item_of_their_own() {
    check(100, "a\nbc\r", &[line("a"), rest("bc")]);
    check(100, "", &[]);
    check(100, "a\n \r", &[line("a")]);
}

#[test]
fn a_line_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
    check(4, "abcd\nabcde\nabcd", &[line("abcd"), oversize(5, "abcde", ""), rest("abcd")]);
    check(4, "abcde", &[oversize(5, "abcde", "")]);
}

#[test]
fn good_lines_around_an_oversize_one_in_the_same_read_are_given() {
    check(5, "good\ntoo long\nfine\n", &[line("good"), oversize(8, "too long", ""), line("fine")]);
}

#[test]
fn a_line_of_blanks_over_the_limit_is_reported() {
    check(3, "    \r\nx\n", &[oversize(5, "    \r", ""), line("x")]);
}

#[test]
fn an_oversize_line_keeps_its_ends_and_they_do_not_overlap() {
    for extra in [1, OVERSIZE_KEPT_BYTES - 1, OVERSIZE_KEPT_BYTES, OVERSIZE_KEPT_BYTES + 1, 50_000] {
        let head: Vec<u8> = (0..OVERSIZE_KEPT_BYTES).map(|i| b'a' + (i % 26) as u8).collect();
        let rest: Vec<u8> = (0..extra).map(|i| b'A' + (i % 26) as u8).collect();
        let stream = [&head[..], &rest, b"\nnext\n"].concat();
        let tail = rest[extra.saturating_sub(OVERSIZE_KEPT_BYTES)..].to_vec();
        let bytes = (OVERSIZE_KEPT_BYTES + extra) as u64;
        let expected = vec![Item::Oversize { bytes, head, tail }, line("next")];
        for size in [1, 1000, OVERSIZE_KEPT_BYTES, 9000, stream.len()] {
            assert_eq!(items(10, stream.chunks(size)), expected, "{extra} over, read by {size}");
        }
    }
}

#[test]
fn a_line_without_end_is_never_buffered() {
    let limit = 64 * 1024;
    let read = 16 * 1024;
    let mut decoder = LineDecoder::new(limit);
    for _ in 0..1000 {
        decoder.space(read)[..read].fill(b'x');
        decoder.commit(read);
        assert_eq!(decoder.next_line(), None);
        let held = decoder.buf.capacity() + decoder.oversize.tail.len() + decoder.oversize.head.len();
        assert!(held <= limit + read + 2 * OVERSIZE_KEPT_BYTES, "{held} bytes are held");
    }
    assert_eq!(decoder.pending_bytes(), 1000 * read as u64);
    decoder.push(b"\n{}\n");
    assert!(matches!(decoder.next_line(), Some(Line::Oversize { bytes: 16_384_000, .. })));
    assert_eq!(decoder.next_line(), Some(Line::Complete(b"{}")));
    assert_eq!(decoder.pending_bytes(), 0);
}

#[test]
fn a_buffer_that_grew_for_one_long_line_is_given_back() {
    let mut decoder = LineDecoder::new(8 * KEPT_CAPACITY);
    decoder.push(&[&b"x".repeat(4 * KEPT_CAPACITY)[..], b"\nbegun"].concat());
    assert!(matches!(decoder.next_line(), Some(Line::Complete(_))));
    decoder.push(b" and ended\n");
    assert!(decoder.buf.capacity() < KEPT_CAPACITY, "{} bytes are held", decoder.buf.capacity());
    assert_eq!(decoder.next_line(), Some(Line::Complete(b"begun and ended")));
}

/// A decoder whose buffer has held one line of `bytes`, newline counted, and is empty again.
fn emptied_after(bytes: usize) -> LineDecoder {
    let mut decoder = LineDecoder::new(8 * KEPT_CAPACITY);
    decoder.push(&[&b"x".repeat(bytes - 1)[..], b"\n"].concat());
    assert!(matches!(decoder.next_line(), Some(Line::Complete(_))));
    decoder
}

#[test]
fn a_buffer_of_up_to_one_mebibyte_is_kept_for_the_next_lines() {
    for bytes in [10, 4096, 1_048_576] {
        assert_eq!(emptied_after(bytes).space(1).len(), bytes);
    }
}

#[test]
fn a_large_buffer_is_kept_as_long_as_a_read_needs_it() {
    let bytes = 3 * KEPT_CAPACITY;
    assert_eq!(emptied_after(bytes).space(KEPT_CAPACITY).len(), bytes);
    assert_eq!(emptied_after(bytes).space(2 * KEPT_CAPACITY).len(), bytes);
    assert_eq!(emptied_after(bytes).space(KEPT_CAPACITY - 1).len(), KEPT_CAPACITY - 1, "it is given back");
}

#[test]
fn a_buffer_that_is_just_large_enough_does_not_grow() {
    assert_eq!(emptied_after(10).space(10).len(), 10);
}

#[test]
fn a_begun_line_is_not_moved_as_long_as_there_is_room_behind_it() {
    let mut decoder = LineDecoder::new(100);
    decoder.space(10)[..5].copy_from_slice(b"ab\ncd");
    decoder.commit(5);
    assert_eq!(decoder.next_line(), Some(Line::Complete(b"ab")));
    assert_eq!(decoder.space(5).len(), 5, "the room behind it is enough");
    assert_eq!(decoder.space(6).len(), 8, "the room of the line that was taken is needed");
    decoder.push(b"e\n");
    assert_eq!(decoder.next_line(), Some(Line::Complete(b"cde")));
}

#[test]
fn an_oversize_line_that_was_given_is_pending_no_more() {
    let mut decoder = LineDecoder::new(4);
    decoder.push(b"too long");
    assert_eq!(decoder.next_line(), None);
    decoder.push(b" a line\nnew");
    assert!(matches!(decoder.next_line(), Some(Line::Oversize { bytes: 15, .. })));
    assert_eq!(decoder.pending_bytes(), 3, "those of the line behind it");
}

#[test]
fn pending_bytes_are_those_of_the_begun_line_alone() {
    let mut decoder = LineDecoder::new(8);
    assert_eq!(decoder.pending_bytes(), 0);
    decoder.push(b"ab\ncde");
    assert_eq!(decoder.pending_bytes(), 3, "before the line is taken");
    assert_eq!(decoder.next_line(), Some(Line::Complete(b"ab")));
    assert_eq!(decoder.pending_bytes(), 3);
    assert_eq!(decoder.next_line(), None);
    decoder.push(b"0123456789");
    assert_eq!(decoder.next_line(), None);
    assert_eq!(decoder.pending_bytes(), 13);
    decoder.push(b"45");
    assert_eq!(decoder.pending_bytes(), 15, "before the skipped bytes are looked at");
}

#[test]
fn lines_that_were_not_taken_come_before_the_rest() {
    let mut decoder = LineDecoder::new(8);
    decoder.push(b"a\nb\nc");
    assert_eq!(decoder.finish(), Some(Line::Complete(b"a")));
    assert_eq!(decoder.finish(), Some(Line::Complete(b"b")));
    assert_eq!(decoder.finish(), Some(Line::Unterminated(b"c")));
    assert_eq!(decoder.finish(), None);
}

#[test]
fn a_long_line_in_one_byte_reads_takes_linear_time() {
    // 4 MiB by single bytes: looking at the begun line again for each would be 8 TiB.
    let len = 4 * 1024 * 1024;
    let mut decoder = LineDecoder::new(len);
    let mut grown = 0;
    for _ in 0..len {
        let before = decoder.buf.len();
        decoder.push(b"x");
        grown += u32::from(decoder.buf.len() != before);
        assert_eq!(decoder.next_line(), None);
    }
    assert!(grown <= 1 + len.ilog2(), "the buffer doubles: it grew {grown} times");
    decoder.push(b"\n");
    assert!(matches!(decoder.next_line(), Some(Line::Complete(bytes)) if bytes.len() == len));
}
