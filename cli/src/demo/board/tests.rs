use super::*;
use crate::demo::cast::Part;
use pretty_assertions::assert_eq;
use turnhost_protocol::FailReason;

const AT: Duration = Duration::from_millis(1500);

fn size(columns: usize, rows: usize) -> Size {
    Size { columns, rows }
}

/// A board in the middle of the play.
fn busy() -> Board {
    let mut board = Board::default();
    let alice = Turn { session: Session::Alice, part: Part::Long };
    let bob = Turn { session: Session::Bob, part: Part::Long };
    let state = State { state: HostState::Ready, incarnation: 1, pid: Some(77), last_signal: None };
    let mut seen = vec![
        Observed::State { host: HostName::North, state },
        Observed::Submitted(alice),
        Observed::Submitted(bob),
        Observed::Turn { turn: alice, event: Event::Started },
    ];
    seen.extend(alice.words().take(9).map(|word| {
        let event = Event::Delta(word.to_owned());
        Observed::Turn { turn: alice, event }
    }));
    let crash =
        Ending::Failed { reason: FailReason::Crash, signal: Some(9), message: "ended\x1b[2J\u{4e2d}".into() };
    seen.push(Observed::Turn { turn: bob, event: Event::Ended(crash) });
    seen.push(Observed::Countdown { host: HostName::South, left: Duration::from_millis(1240) });
    let down = State { state: HostState::BackingOff, incarnation: 1, pid: None, last_signal: Some(9) };
    seen.push(Observed::State { host: HostName::South, state: down });
    seen.push(Observed::Countdown { host: HostName::South, left: Duration::from_millis(1240) });
    for observed in &seen {
        board.observe(observed, AT);
    }
    board
}

#[test]
fn hosts_sessions_and_news_have_a_line_each() {
    let lines = busy().lines(size(100, 30), AT, false);
    assert_eq!(lines[0], "turnhost demo  1.5 s");
    assert_eq!(lines[1], "north   ready     host 1, pid 77");
    assert!(lines[2].starts_with("  alice turn 2  [#####"), "{}", lines[2]);
    assert!(lines[2].contains("streams") && lines[2].ends_with("no sea. "), "{}", lines[2]);
    assert!(lines[3].contains("crash"), "{}", lines[3]);
    assert_eq!(lines[4], "south   down      new host in 1.2 s");
    assert_eq!(lines[5], "  carol ");
    assert!(lines[7..].iter().any(|line| line.contains("alice-2 started")), "{lines:?}");
}

#[test]
fn no_line_reaches_the_last_column_nor_the_lines_the_last_row() {
    let board = busy();
    for columns in 1..130 {
        for rows in 1..30 {
            let lines = board.lines(size(columns, rows), AT, false);
            assert!(lines.len() < rows.max(2), "{columns}x{rows}: {} lines", lines.len());
            for line in lines {
                assert!(line.len() < columns.max(2), "{columns}x{rows}: {line}");
                assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line:?}");
            }
        }
    }
}

#[test]
fn colour_changes_no_character() {
    let board = busy();
    let plain = board.lines(size(60, 20), AT, false);
    let coloured = board.lines(size(60, 20), AT, true);
    assert_ne!(plain, coloured);
    let stripped: Vec<String> = coloured
        .iter()
        .map(|line| {
            let mut pieces = line.split("\x1b[");
            let first = pieces.next().unwrap_or_default().to_owned();
            pieces.fold(first, |text, piece| text + piece.split_once('m').map_or("", |(_, rest)| rest))
        })
        .collect();
    assert_eq!(plain, stripped);
}

#[test]
fn lines_are_drawn_over_the_old_ones_and_a_new_size_begins_anew() {
    let mut painter = Painter::default();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("utf-8");
    let lines = ["a".to_owned(), "b".to_owned()];
    assert_eq!(text(painter.paint(&lines, size(80, 24))), "a\x1b[K\r\nb\x1b[K\r\n\x1b[J");
    assert_eq!(text(painter.paint(&lines[..1], size(80, 24))), "\x1b[2A\ra\x1b[K\r\n\x1b[J");
    assert_eq!(text(painter.paint(&lines[..1], size(80, 24))), "\x1b[1A\ra\x1b[K\r\n\x1b[J");
    assert!(text(painter.paint(&lines, size(40, 24))).starts_with("\x1b[2J\x1b[Ha"));
}
