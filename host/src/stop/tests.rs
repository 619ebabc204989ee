use super::*;

const MS: Duration = Duration::from_millis(1);
const DRAIN: Duration = Duration::from_secs(9);

/// A machine with a clock in milliseconds, so that tables can be read.
struct Rig {
    stop: Stop,
    start: Instant,
}

impl Rig {
    fn new() -> Self {
        Self { stop: Stop::new(DRAIN), start: Instant::now() }
    }

    fn cause(&mut self, at_ms: u32, cause: Cause) -> Vec<Action> {
        let mut out = Vec::new();
        self.stop.on_cause(self.start + MS * at_ms, cause, &mut out);
        out
    }

    fn step(&mut self, at_ms: u32, turns: usize, flushed: bool) -> Vec<Action> {
        let mut out = Vec::new();
        self.stop.step(self.start + MS * at_ms, turns, flushed, &mut out);
        out
    }

    fn deadline_ms(&self) -> Option<u128> {
        self.stop.next_deadline().map(|at| (at - self.start).as_millis())
    }
}

#[test]
fn a_shutdown_frame_gives_turns_one_second_and_the_pipe_another() {
    let mut rig = Rig::new();
    assert_eq!(rig.cause(0, Cause::ShutdownFrame), [Action::Close, Action::InterruptAll]);
    assert_eq!(rig.step(999, 1, true), []);
    assert_eq!(rig.deadline_ms(), Some(1000));
    assert_eq!(rig.step(1000, 1, true), [Action::ForceAll]);
    assert_eq!(rig.step(1000, 0, false), [Action::Finalize(Reason::Shutdown)]);
    assert_eq!(rig.step(1999, 0, false), [], "the pipe is full");
    assert_eq!(rig.deadline_ms(), Some(2000));
    assert_eq!(rig.step(2000, 0, false), [Action::Exit]);
}

#[test]
fn a_host_without_turns_leaves_as_soon_as_its_last_frame_is_written() {
    for (cause, reason) in [
        (Cause::ShutdownFrame, Reason::Shutdown),
        (Cause::Signal, Reason::Sigterm),
        (Cause::ParentGone, Reason::Orphan),
        (Cause::OutputGone, Reason::Orphan),
    ] {
        let mut rig = Rig::new();
        assert!(rig.cause(0, cause).contains(&Action::Close), "{cause:?}");
        assert_eq!(rig.step(0, 0, false), [Action::Finalize(reason)], "{cause:?}");
        assert_eq!(rig.step(1, 0, true), [Action::Exit], "{cause:?}");
    }
}

#[test]
fn a_signal_lets_turns_go_on_for_the_drain_then_interrupts_them() {
    let mut rig = Rig::new();
    assert_eq!(rig.cause(0, Cause::Signal), [Action::Close]);
    assert_eq!(rig.step(8999, 2, true), []);
    assert_eq!(rig.deadline_ms(), Some(9000));
    assert_eq!(rig.step(9000, 2, true), [Action::InterruptAll]);
    assert_eq!(rig.deadline_ms(), Some(9800));
    assert_eq!(rig.step(9800, 2, true), [Action::ForceAll]);
    assert_eq!(rig.step(9800, 0, false), [Action::Finalize(Reason::Sigterm)]);
    assert_eq!(
        rig.step(10_000, 0, false),
        [Action::Exit],
        "one second after the drain, whatever the pipe does"
    );
}

#[test]
fn a_second_signal_ends_the_drain() {
    let mut rig = Rig::new();
    rig.cause(0, Cause::Signal);
    assert_eq!(rig.cause(500, Cause::Signal), [Action::InterruptAll]);
    assert_eq!(rig.deadline_ms(), Some(1300));
}

#[test]
fn a_drained_host_leaves_before_the_drain_is_over() {
    let mut rig = Rig::new();
    rig.cause(0, Cause::Signal);
    assert_eq!(rig.step(3000, 0, true), [Action::Finalize(Reason::Sigterm)]);
    assert_eq!(rig.step(3000, 0, true), [Action::Exit]);
}

#[test]
fn the_end_of_stdin_is_an_orphans_if_the_parent_goes_within_100_ms() {
    for (gone_at, reason) in [(Some(50), Reason::Orphan), (None, Reason::StdinClosed)] {
        let mut rig = Rig::new();
        assert_eq!(rig.cause(0, Cause::InputEnded), [Action::Close, Action::InterruptAll]);
        assert_eq!(rig.step(1, 0, true), [], "the reason is open");
        assert_eq!(rig.deadline_ms(), Some(100));
        if let Some(gone_at) = gone_at {
            assert_eq!(rig.cause(gone_at, Cause::ParentGone), []);
            assert_eq!(rig.step(gone_at, 0, true), [Action::Finalize(reason)]);
        } else {
            assert_eq!(rig.step(99, 0, true), []);
            assert_eq!(rig.step(100, 0, true), [Action::Finalize(reason)]);
        }
    }
}

#[test]
fn a_parent_that_goes_later_does_not_change_the_reason() {
    let mut rig = Rig::new();
    rig.cause(0, Cause::InputEnded);
    assert_eq!(rig.step(100, 1, true), []);
    assert_eq!(rig.cause(200, Cause::ParentGone), []);
    assert_eq!(rig.step(300, 0, true), [Action::Finalize(Reason::StdinClosed)]);
}

#[test]
fn the_end_of_stdin_takes_one_second_in_all() {
    let mut rig = Rig::new();
    rig.cause(0, Cause::InputEnded);
    assert_eq!(rig.step(800, 1, false), [Action::ForceAll]);
    assert_eq!(rig.step(800, 0, false), [Action::Finalize(Reason::StdinClosed)]);
    assert_eq!(rig.step(999, 0, false), []);
    assert_eq!(rig.step(1000, 0, false), [Action::Exit]);
}

#[test]
fn stdin_that_ends_behind_a_shutdown_frame_or_within_a_drain_keeps_the_first_reason() {
    let mut rig = Rig::new();
    rig.cause(0, Cause::ShutdownFrame);
    assert_eq!(rig.cause(1, Cause::InputEnded), []);
    assert_eq!(rig.deadline_ms(), Some(1000), "the turns keep their second");
    assert_eq!(rig.step(2, 0, true), [Action::Finalize(Reason::Shutdown)]);

    let mut rig = Rig::new();
    rig.cause(0, Cause::Signal);
    assert_eq!(rig.cause(1000, Cause::InputEnded), [Action::InterruptAll], "nobody is left to drain for");
    assert_eq!(rig.step(1000, 0, true), [Action::Finalize(Reason::Sigterm)]);
}

#[test]
fn a_write_error_while_flushing_ends_the_wait() {
    let mut rig = Rig::new();
    rig.cause(0, Cause::ShutdownFrame);
    rig.step(0, 0, false);
    assert_eq!(rig.step(1, 0, false), []);
    rig.cause(2, Cause::OutputGone);
    assert_eq!(rig.step(2, 0, false), [Action::Exit]);
}

#[test]
fn a_random_walk_always_ends_in_time_and_does_each_step_once() {
    const CAUSES: [Cause; 5] =
        [Cause::ShutdownFrame, Cause::Signal, Cause::InputEnded, Cause::ParentGone, Cause::OutputGone];
    for seed in 0..500_u32 {
        let mut random = seed.wrapping_mul(2_654_435_761) | 1;
        let mut below = |bound: u32| {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random % bound
        };
        let mut rig = Rig::new();
        let mut done = vec![];
        let (mut turns, mut now) = (below(3) as usize, 0);
        done.extend(rig.cause(now, CAUSES[below(5) as usize]));
        while !done.contains(&Action::Exit) {
            assert!(now <= 11_100, "seed {seed}: no stop takes longer than drain, turns and pipe");
            now += 100;
            match below(8) {
                0 => turns = turns.saturating_sub(1),
                1 | 2 => done.extend(rig.cause(now, CAUSES[below(5) as usize])),
                _ => {}
            }
            let flushed = below(4) == 0;
            for _ in 0..4 {
                let acts = rig.step(now, turns, flushed);
                // A forced turn is gone at once.
                turns = if acts.contains(&Action::ForceAll) { 0 } else { turns };
                done.extend(acts);
            }
            let deadline = rig.deadline_ms();
            assert!(deadline.is_none_or(|at| at > u128::from(now)), "seed {seed}: a deadline in the past");
            assert!(deadline.is_some() || done.contains(&Action::Exit), "seed {seed}: nothing would wake it");
        }
        let count = |wanted: fn(&Action) -> bool| done.iter().filter(|action| wanted(action)).count();
        assert_eq!(done.first(), Some(&Action::Close), "seed {seed}");
        assert_eq!(done.last(), Some(&Action::Exit), "seed {seed}");
        assert_eq!(count(|action| matches!(action, Action::Close)), 1, "seed {seed}");
        assert_eq!(count(|action| matches!(action, Action::Finalize(_))), 1, "seed {seed}");
        assert!(count(|action| matches!(action, Action::InterruptAll)) <= 1, "seed {seed}");
        assert!(count(|action| matches!(action, Action::ForceAll)) <= 1, "seed {seed}");
        let forced = done.iter().position(|action| *action == Action::ForceAll);
        let told = done.iter().position(|action| *action == Action::InterruptAll);
        assert!(forced.is_none() || told < forced, "seed {seed}: told to stop before it is forced");
        assert_eq!(rig.cause(now, Cause::Signal), [], "seed {seed}: what is over stays over");
        assert_eq!(rig.step(now + 5000, 1, false), [], "seed {seed}");
    }
}

#[test]
fn what_cannot_even_be_forced_does_not_keep_the_host() {
    let mut rig = Rig::new();
    rig.cause(0, Cause::ParentGone);
    assert_eq!(rig.step(800, 1, true), [Action::ForceAll]);
    assert_eq!(rig.step(999, 1, true), []);
    assert_eq!(rig.deadline_ms(), Some(1000));
    assert_eq!(rig.step(1000, 1, true), [Action::Finalize(Reason::Orphan)]);
    assert_eq!(rig.step(1000, 1, true), [Action::Exit]);
}
