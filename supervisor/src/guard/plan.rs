//! When the tree is ended and how hard: pure.

use std::time::{Duration, Instant};

/// How long a host may end by itself once its supervisor is gone.
pub(super) const HOST_GRACE: Duration = Duration::from_millis(1200);
/// From TERM to KILL for what the host left behind, and for everything once the supervisor is gone.
pub(super) const TERM_GRACE: Duration = Duration::from_millis(300);
/// KILL takes effect at once but for a process in uninterruptible sleep: after this, survivors are reported.
pub(super) const REPORT_AFTER: Duration = Duration::from_millis(1200);
/// And after this the guard gives up on them.
pub(super) const GIVE_UP_AFTER: Duration = Duration::from_secs(30);
/// Between two rounds of KILL while something is left.
pub(super) const ROUND: Duration = Duration::from_millis(20);

/// What the guard has come to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    /// The supervisor asks the host to end.
    TermOrdered,
    /// The supervisor wants the tree gone.
    KillOrdered,
    /// The host has ended.
    HostExited,
    /// The supervisor is gone, or somebody told the guard to end.
    SupervisorGone,
    /// A child ended, so that its own children have come to the guard.
    ChildReaped,
    /// No child is left, living or dead.
    TreeEmpty,
    /// Time has passed.
    Tick,
}

/// What the guard must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// TERM to every descendant, then CONT.
    TermTree,
    /// KILL to every direct child.
    KillChildren,
    /// Say what is left (nothing, if the tree is empty).
    Report,
    /// The work is done.
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The host runs and nobody wants it gone.
    Watching,
    /// TERM was ordered; its grace is the supervisor's to measure.
    Asked,
    /// The supervisor is gone, and the host may end by itself until then.
    Grace { until: Instant },
    /// Everything was told to end.
    Termed { until: Instant },
    /// Everything is killed, again and again.
    Killing { since: Instant, next: Instant, reported: bool },
    /// Nothing is left to do.
    Over,
}

/// Where the end of the tree stands.
#[derive(Debug)]
pub(super) struct Plan {
    stage: Stage,
    host_lives: bool,
}

impl Plan {
    /// A host has just started.
    pub(super) fn new() -> Self {
        Self { stage: Stage::Watching, host_lives: true }
    }

    /// When [`Fact::Tick`] is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Watching | Stage::Asked | Stage::Over => None,
            Stage::Grace { until } | Stage::Termed { until } => Some(until),
            Stage::Killing { next, .. } => Some(next),
        }
    }

    /// Takes a fact; the steps are to be done in order.
    pub(super) fn handle(&mut self, now: Instant, fact: Fact) -> Vec<Step> {
        match fact {
            Fact::TermOrdered => match self.stage {
                Stage::Watching | Stage::Asked => {
                    self.stage = Stage::Asked;
                    vec![Step::TermTree]
                }
                Stage::Grace { .. } | Stage::Termed { .. } | Stage::Killing { .. } | Stage::Over => {
                    Vec::new()
                }
            },
            Fact::KillOrdered => match self.stage {
                Stage::Watching | Stage::Asked | Stage::Grace { .. } | Stage::Termed { .. } => self.kill(now),
                Stage::Killing { .. } | Stage::Over => Vec::new(),
            },
            Fact::HostExited => {
                self.host_lives = false;
                match self.stage {
                    Stage::Watching | Stage::Asked | Stage::Grace { .. } => self.term(now),
                    Stage::Termed { .. } | Stage::Killing { .. } | Stage::Over => Vec::new(),
                }
            }
            Fact::SupervisorGone => match self.stage {
                Stage::Watching | Stage::Asked => {
                    self.stage = Stage::Grace { until: now + HOST_GRACE };
                    Vec::new()
                }
                Stage::Grace { .. } | Stage::Termed { .. } | Stage::Killing { .. } | Stage::Over => {
                    Vec::new()
                }
            },
            Fact::ChildReaped => match self.stage {
                // Without a wait for the next round: a tree may be deep, or may be growing.
                Stage::Killing { .. } => vec![Step::KillChildren],
                Stage::Watching | Stage::Asked | Stage::Grace { .. } | Stage::Termed { .. } | Stage::Over => {
                    Vec::new()
                }
            },
            Fact::TreeEmpty => self.tree_empty(),
            Fact::Tick => self.tick(now),
        }
    }

    fn term(&mut self, now: Instant) -> Vec<Step> {
        self.stage = Stage::Termed { until: now + TERM_GRACE };
        vec![Step::TermTree]
    }

    fn kill(&mut self, now: Instant) -> Vec<Step> {
        self.stage = Stage::Killing { since: now, next: now + ROUND, reported: false };
        vec![Step::KillChildren]
    }

    fn tree_empty(&mut self) -> Vec<Step> {
        if self.host_lives {
            // Impossible: the host is a child. Its exit must be told first.
            return Vec::new();
        }
        let reported = match self.stage {
            Stage::Over => return Vec::new(),
            Stage::Killing { reported, .. } => reported,
            Stage::Watching | Stage::Asked | Stage::Grace { .. } | Stage::Termed { .. } => false,
        };
        self.stage = Stage::Over;
        if reported { vec![Step::Leave] } else { vec![Step::Report, Step::Leave] }
    }

    fn tick(&mut self, now: Instant) -> Vec<Step> {
        match self.stage {
            Stage::Watching | Stage::Asked | Stage::Over => Vec::new(),
            Stage::Grace { until } if now >= until => self.term(now),
            Stage::Termed { until } if now >= until => self.kill(now),
            Stage::Killing { since, next, reported } if now >= next => {
                if now >= since + GIVE_UP_AFTER {
                    self.stage = Stage::Over;
                    return if reported { vec![Step::Leave] } else { vec![Step::Report, Step::Leave] };
                }
                let report = !reported && now >= since + REPORT_AFTER;
                self.stage = Stage::Killing { since, next: now + ROUND, reported: reported || report };
                if report { vec![Step::KillChildren, Step::Report] } else { vec![Step::KillChildren] }
            }
            Stage::Grace { .. } | Stage::Termed { .. } | Stage::Killing { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    /// Plays facts at their milliseconds, with a tick whenever one is due, and gives the steps with their times.
    fn play(facts: &[(u64, Fact)], until_ms: u64) -> Vec<(u64, Step)> {
        let start = Instant::now();
        let mut plan = Plan::new();
        let mut done = Vec::new();
        let mut facts = facts.iter().copied().peekable();
        let mut now = 0;
        loop {
            let tick = plan.next_deadline().map(|due| u64::try_from((due - start).as_millis()).unwrap());
            let fact = facts.peek().map(|(ms, _)| *ms);
            let (ms, fact) = match (tick, fact) {
                (Some(tick), Some(fact)) if fact <= tick => facts.next().unwrap(),
                (Some(tick), _) => (tick, Fact::Tick),
                (None, Some(_)) => facts.next().unwrap(),
                (None, None) => return done,
            };
            if ms > until_ms {
                return done;
            }
            assert!(ms > now || fact != Fact::Tick, "a tick that changes no deadline would spin");
            now = ms;
            done.extend(plan.handle(at(start, ms), fact).into_iter().map(|step| (ms, step)));
        }
    }

    #[test]
    fn after_a_crash_the_rest_is_termed_at_once_and_killed_soon() {
        let steps = play(&[(5, Fact::HostExited), (310, Fact::TreeEmpty)], 5000);
        assert_eq!(
            steps,
            [(5, Step::TermTree), (305, Step::KillChildren), (310, Step::Report), (310, Step::Leave)]
        );
    }

    #[test]
    fn a_host_that_leaves_nothing_behind_is_swept_at_once() {
        let steps = play(&[(5, Fact::HostExited), (5, Fact::TreeEmpty)], 5000);
        assert_eq!(steps, [(5, Step::TermTree), (5, Step::Report), (5, Step::Leave)]);
    }

    #[test]
    fn an_asked_stop_waits_for_the_host_or_for_the_order_to_kill() {
        assert_eq!(play(&[(1, Fact::TermOrdered)], 60_000), [(1, Step::TermTree)]);
        let ended = play(&[(1, Fact::TermOrdered), (900, Fact::HostExited), (901, Fact::TreeEmpty)], 60_000);
        assert_eq!(
            ended,
            [(1, Step::TermTree), (900, Step::TermTree), (901, Step::Report), (901, Step::Leave)]
        );
        let killed = play(
            &[
                (1, Fact::TermOrdered),
                (900, Fact::KillOrdered),
                (901, Fact::HostExited),
                (902, Fact::TreeEmpty),
            ],
            60_000,
        );
        assert_eq!(
            killed,
            [(1, Step::TermTree), (900, Step::KillChildren), (902, Step::Report), (902, Step::Leave)]
        );
    }

    #[test]
    fn without_a_supervisor_everything_is_killed_within_two_seconds() {
        let steps = play(&[(0, Fact::SupervisorGone)], 1600);
        assert_eq!(steps[..2], [(1200, Step::TermTree), (1500, Step::KillChildren)]);
        // A stop that was asked before does not lengthen it, nor does a second sign that the supervisor is gone.
        let facts = [(0, Fact::TermOrdered), (5, Fact::SupervisorGone), (900, Fact::SupervisorGone)];
        let steps = play(&facts, 1600);
        assert_eq!(steps[..3], [(0, Step::TermTree), (1205, Step::TermTree), (1505, Step::KillChildren)]);
    }

    #[test]
    fn the_grace_ends_when_the_host_has_gone() {
        let steps = play(&[(0, Fact::SupervisorGone), (100, Fact::HostExited)], 450);
        assert_eq!(steps[..2], [(100, Step::TermTree), (400, Step::KillChildren)]);
    }

    #[test]
    fn what_cannot_be_killed_is_reported_once_and_given_up_in_the_end() {
        let steps = play(&[(0, Fact::KillOrdered), (1, Fact::HostExited)], 120_000);
        let reports: Vec<_> = steps.iter().filter(|(_, step)| *step == Step::Report).collect();
        assert_eq!(reports, [&(1200, Step::Report)]);
        assert_eq!(steps.last(), Some(&(30_000, Step::Leave)));
        let kills = steps.iter().filter(|(_, step)| *step == Step::KillChildren).count();
        assert!(kills > 1000, "{kills} rounds");
    }

    #[test]
    fn no_order_and_no_fact_brings_a_plan_back_from_its_end() {
        let start = Instant::now();
        let mut plan = Plan::new();
        plan.handle(start, Fact::HostExited);
        plan.handle(start, Fact::TreeEmpty);
        for fact in [
            Fact::TermOrdered,
            Fact::KillOrdered,
            Fact::HostExited,
            Fact::SupervisorGone,
            Fact::ChildReaped,
            Fact::TreeEmpty,
            Fact::Tick,
        ] {
            assert_eq!(plan.handle(at(start, 60_000), fact), [], "{fact:?}");
            assert_eq!(plan.next_deadline(), None);
        }
    }

    #[test]
    fn what_a_killed_process_leaves_to_the_guard_is_killed_at_once() {
        let facts = [
            (0, Fact::HostExited),
            (100, Fact::ChildReaped),
            (301, Fact::ChildReaped),
            (302, Fact::TreeEmpty),
        ];
        assert_eq!(
            play(&facts, 5000),
            [
                (0, Step::TermTree),
                (300, Step::KillChildren),
                (301, Step::KillChildren),
                (302, Step::Report),
                (302, Step::Leave)
            ]
        );
    }

    #[test]
    fn a_tick_before_its_time_does_nothing() {
        let start = Instant::now();
        let mut plan = Plan::new();
        let mut steps = |ms, fact| plan.handle(at(start, ms), fact);
        assert_eq!(steps(0, Fact::Tick), []);
        steps(0, Fact::SupervisorGone);
        assert_eq!(steps(1199, Fact::Tick), []);
        assert_eq!(steps(1200, Fact::Tick), [Step::TermTree]);
        assert_eq!(steps(1499, Fact::Tick), []);
        assert_eq!(steps(1500, Fact::Tick), [Step::KillChildren]);
        assert_eq!(steps(1519, Fact::Tick), []);
        assert_eq!(steps(1520, Fact::Tick), [Step::KillChildren]);
    }

    #[test]
    fn the_tree_is_not_empty_while_the_host_lives() {
        let mut plan = Plan::new();
        assert_eq!(plan.handle(Instant::now(), Fact::TreeEmpty), []);
    }
}
