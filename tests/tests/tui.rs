//! The example `tui`: a front end on a terminal that stays responsive and unscribbled whatever its host does.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use std::time::{Duration, Instant};
use turnhost_testkit::{Ended, Process, Scenario, Terminal, example};

/// What a key may take until it is seen, on whatever machine. A front end that reads a flood to its end before it looks
/// at the keyboard would take as long as the flood does.
const KEY_DEADLINE: Duration = Duration::from_secs(10);

fn start(scenario: &Scenario) -> (Terminal, Process) {
    let (terminal, process) = Terminal::start(scenario, (80, 24), |launch| launch.args([example("tui")]));
    terminal.wait("the first picture", |screen| status(screen).contains("idle"));
    (terminal, process)
}

/// The rows of the screen, from above.
fn rows(screen: &vt100::Screen) -> Vec<String> {
    screen.rows(0, screen.size().1.get()).collect()
}

fn row(screen: &vt100::Screen, from_below: usize) -> String {
    rows(screen).into_iter().rev().nth(from_below).unwrap_or_default()
}

fn status(screen: &vt100::Screen) -> String {
    row(screen, 1)
}

fn input(screen: &vt100::Screen) -> String {
    row(screen, 0).trim_end().to_owned()
}

/// How many pieces of the running turn were shown, by the status line.
fn pieces(screen: &vt100::Screen) -> Option<u64> {
    let status = status(screen);
    let (_, rest) = status.split_once("running, ")?;
    rest.split(' ').next()?.parse().ok()
}

fn begin_flood(terminal: &Terminal) -> u64 {
    terminal.keys("flood\r");
    let mut seen = 0;
    terminal.wait("a flood", |screen| {
        seen = pieces(screen).unwrap_or_default();
        // Far more than a screen.
        seen > 100
    });
    seen
}

#[track_caller]
fn quit(terminal: &Terminal, mut process: Process, scenario: &Scenario) {
    terminal.keys("q");
    let end = terminal.wait_end();
    assert_eq!(process.wait_exit(), Ended::Code(0), "{end}");
    assert!(end.contains("host ended with Some(0); left behind: []"), "{end}");
    assert!(terminal.is_restored());
    scenario.wait_nothing_left();
}

#[test]
fn keys_are_answered_while_a_flood_runs_and_esc_ends_it() {
    let scenario = Scenario::new();
    let (terminal, process) = start(&scenario);
    let mut before = begin_flood(&terminal);
    let mut typed = String::from("> ");
    for key in "still here".chars() {
        typed.push(key);
        let pressed = Instant::now();
        terminal.keys(&key.to_string());
        terminal.wait(&format!("{typed:?} below the flood"), |screen| {
            input(screen) == typed.trim_end() && pieces(screen).is_some_and(|now| now > before)
        });
        assert!(pressed.elapsed() < KEY_DEADLINE, "{key:?} took {:?}", pressed.elapsed());
        terminal.wait("more of the flood", |screen| {
            let now = pieces(screen).unwrap_or_default();
            now > std::mem::replace(&mut before, now)
        });
    }
    terminal.keys("\x1b");
    terminal.wait("the end of the turn", |screen| status(screen).contains("idle"));
    terminal.wait_text("[interrupted]");
    // What was typed meanwhile is still there, and is the next prompt.
    terminal.keys("\r");
    terminal.wait_text("tui:still here:0023");
    quit(&terminal, process, &scenario);
}

#[test]
fn keys_are_answered_while_a_turn_is_silent() {
    let scenario = Scenario::new();
    let (terminal, process) = start(&scenario);
    terminal.keys("silence\r");
    terminal.wait("the turn", |screen| status(screen).contains("running"));
    let pressed = Instant::now();
    terminal.keys("hello");
    terminal.wait("what was typed", |screen| input(screen) == "> hello");
    assert!(pressed.elapsed() < KEY_DEADLINE, "{:?}", pressed.elapsed());
    terminal.keys("\x1b");
    terminal.wait_text("[interrupted]");
    terminal.keys("\r");
    terminal.wait_text("tui:hello:0023");
    quit(&terminal, process, &scenario);
}

#[test]
fn a_flood_shows_nothing_but_itself_in_a_terminal_of_any_size() {
    let scenario = Scenario::new();
    let (terminal, process) = start(&scenario);
    begin_flood(&terminal);
    for size in [(20, 5), (100, 30), (7, 3), (80, 24)] {
        terminal.resize(size);
        terminal.wait("the flood in the new size", |screen| {
            let mut text = rows(screen);
            text.truncate(text.len() - 2);
            // The last row is still being filled, and a piece ends with a dot.
            let full = |row: &String| row.trim_end().len() == usize::from(screen.size().1.get());
            let whole = text.iter().rev().skip(1).all(full) && text.concat().len() > 2;
            whole && text.concat().chars().all(|character| "0123456789. ".contains(character))
        });
    }
    // Ctrl+C is a key as any other.
    terminal.keys("\x03");
    terminal.wait_text("[interrupted]");
    quit(&terminal, process, &scenario);
}

#[test]
fn what_a_host_prints_is_counted_and_not_shown() {
    let scenario = Scenario::new();
    let (terminal, process) = start(&scenario);
    terminal.keys("noise\r");
    let screen = terminal.wait("the noise", |screen| {
        screen.contents().contains("that was loud") && status(screen).contains("1 stray lines")
    });
    // The escape sequences among the frames and in the text would have cleared this.
    assert!(screen.contains("> noise") && screen.contains("[2Jthat was loud"), "{screen}");
    let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(!bytes.contains("scribble"), "{bytes}");
    quit(&terminal, process, &scenario);
}

#[test]
fn a_crash_of_the_host_is_told_and_the_next_turn_has_its_history() {
    let scenario = Scenario::new();
    let (terminal, process) = start(&scenario);
    terminal.keys("hello\r");
    terminal.wait_text("tui:hello:0023");
    terminal.keys("crash\r");
    terminal.wait_text("[crash: the host was ended by signal 9 (SIGKILL)]");
    // While it is down already, or back again: a turn waits for the host.
    terminal.keys("again\r");
    let screen = terminal.wait_text("tui:again:0023");
    assert!(!screen.contains("does not know what was said before"), "{screen}");
    terminal.wait("the next host", |screen| status(screen).contains("host Ready, incarnation 2"));
    quit(&terminal, process, &scenario);
}

#[test]
fn a_question_is_answered_by_a_key() {
    let scenario = Scenario::new();
    let (terminal, process) = start(&scenario);
    for (asked, (key, answer)) in
        [("y", "[approval: once]"), ("n", "[approval: deny")].into_iter().enumerate()
    {
        terminal.keys("ask\r");
        terminal.wait("the question", |screen| {
            screen.contents().matches("may it run \"rm -r build\"? y or n").count() == asked + 1
        });
        terminal.keys(key);
        terminal.wait_text(answer);
        terminal.wait("the end of the turn", |screen| status(screen).contains("idle"));
    }
    quit(&terminal, process, &scenario);
}

#[test]
fn quitting_in_mid_flood_restores_the_terminal_and_leaves_nothing() {
    let scenario = Scenario::new();
    let (terminal, process) = start(&scenario);
    begin_flood(&terminal);
    quit(&terminal, process, &scenario);
}

#[test]
fn a_panic_restores_the_terminal_and_leaves_nothing() {
    let scenario = Scenario::new();
    let (terminal, mut process) = start(&scenario);
    terminal.keys("panic\r");
    let end = terminal.wait_end();
    assert_eq!(process.wait_exit(), Ended::Code(101), "{end}");
    assert!(end.contains("as you wish"), "{end}");
    assert!(terminal.is_restored());
    scenario.wait_nothing_left();
}

#[test]
fn kill_9_in_mid_flood_leaves_nothing() {
    let scenario = Scenario::new();
    let (terminal, mut process) = start(&scenario);
    begin_flood(&terminal);
    process.signal(Signal::SIGKILL);
    assert_eq!(process.wait_exit(), Ended::Signal(9));
    scenario.wait_nothing_left();
}
