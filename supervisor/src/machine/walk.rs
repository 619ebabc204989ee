//! A random walk over the machine with a world that checks every effect against what it knows itself.
//!
//! Inputs of every kind come at any time, stale and doubled ones too. `TURNHOST_WALK_STEPS` makes it longer,
//! `TURNHOST_WALK_SEED` repeats one that failed.

mod checks;
mod inputs;

use super::*;
use crate::restart::{Jitter, RestartPolicy};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{ErrorKind, FailReason, RequestId, SessionId};

const STEPS: u64 = 240_000;
const STEPS_OF_A_WALK: u64 = 1_500;

type Effects = Vec<Effect<usize, u64>>;

#[test]
fn a_random_walk_keeps_the_invariants() {
    let knob = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let steps = knob("TURNHOST_WALK_STEPS").unwrap_or(STEPS);
    let only = knob("TURNHOST_WALK_SEED");
    let mut seen = Seen::default();
    for seed in 0..steps.div_ceil(STEPS_OF_A_WALK) {
        let seed = only.unwrap_or(seed);
        let mut world = World::new(seed);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.walk()));
        if let Err(panic) = panicked {
            eprintln!("the walk with TURNHOST_WALK_SEED={seed} failed; its last steps:");
            for line in world.log.iter().rev().take(40).rev() {
                eprintln!("  {line}");
            }
            std::panic::resume_unwind(panic);
        }
        seen.add(&world.seen);
        if only.is_some() {
            return;
        }
    }
    seen.assert_everything_happened();
}

/// What happened in all walks: a walk that never comes to a corner proves nothing about it.
#[derive(Default)]
struct Seen(HashMap<String, u64>);

impl Seen {
    fn note(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    fn add(&mut self, other: &Seen) {
        for (what, count) in &other.0 {
            *self.0.entry(what.clone()).or_default() += count;
        }
    }

    fn assert_everything_happened(&self) {
        let corners = [
            "state stopped",
            "state starting",
            "state ready",
            "state backing_off",
            "state crash_looped",
            "state draining",
            "turn crash",
            "turn hung",
            "turn shutdown",
            "turn unavailable",
            "turn crash_loop",
            "turn protocol",
            "call crash",
            "call hung",
            "call shutdown",
            "call unavailable",
            "call crash_loop",
            "call timeout",
            "reply",
            "interrupted unsent",
            "interrupt applied",
            "interrupt not_found",
            "refused duplicate_request",
            "refused overloaded",
            "refused crash_loop",
            "refused shutdown",
            "count LateAck",
            "count DuplicateTerminal",
            "count LateFrame",
            "count UnknownRequest",
            "abandon",
            "term",
            "kill",
            "stopped",
            "started ok",
            "started err",
            "host restarted",
            "cut line crossed a restart",
            "carried over a crash",
        ];
        let missing: Vec<&str> = corners.into_iter().filter(|corner| !self.0.contains_key(*corner)).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}; happened: {:?}", self.0);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pending,
    Resolved,
    Refused,
}

/// What the world knows of a request; its waiter is its place in the list.
#[derive(Debug)]
struct Given {
    id: RequestId,
    kind: RequestKind,
    line: Vec<u8>,
    deadline: Option<Instant>,
    at: Instant,
    fate: Fate,
    /// The epoch that was handed its first byte.
    handed: Option<u64>,
    started: bool,
}

/// A live child and its stdin.
#[derive(Debug, Default)]
struct Child {
    epoch: u64,
    said_hello: bool,
    reseed_due: bool,
    seeded: bool,
    doomed: bool,
    termed: bool,
    /// What is still due of a line that has begun.
    rest: Vec<u8>,
    last_owner: Option<usize>,
    asked: bool,
}

struct World {
    random: Jitter,
    policy: Policy,
    machine: Machine<usize, u64>,
    now: Instant,
    given: Vec<Given>,
    open_ids: HashMap<RequestId, usize>,
    child: Option<Child>,
    last_epoch: u64,
    /// When the last child went, while its tree is not known to be gone.
    unswept_since: Option<Instant>,
    registered: Option<u64>,
    start_waits: bool,
    stop_end: Option<Instant>,
    starts_again: bool,
    stopped_on_purpose: bool,
    published: Snapshot,
    seen: Seen,
    log: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Jitter::new(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let ms = |random: &mut Jitter, choices: &[u64]| {
            Duration::from_millis(choices[(random.next() % choices.len() as u64) as usize])
        };
        let policy = Policy {
            hello_timeout: ms(&mut random, &[0, 500, 10_000]),
            hang_after: [
                None,
                Some(Duration::ZERO),
                Some(Duration::from_millis(700)),
                Some(Duration::from_secs(45)),
            ][(random.next() % 4) as usize],
            write_stall: ms(&mut random, &[0, 900, 30_000]),
            restart: RestartPolicy {
                max: (random.next() % 6) as u32,
                window: ms(&mut random, &[0, 10_000, 300_000]),
                backoff_base: ms(&mut random, &[0, 250]),
                backoff_max: ms(&mut random, &[0, 5_000]),
                healthy_after: ms(&mut random, &[0, 60_000]),
            },
            grace: ms(&mut random, &[0, 1_000, 10_000]),
            unavailable_after: ms(&mut random, &[0, 2_000, 10_000]),
            max_waiting: [1, 4, 100][(random.next() % 3) as usize],
            max_waiting_bytes: [60, 100_000][(random.next() % 2) as usize],
            sweep_timeout: ms(&mut random, &[0, 2_000]),
        };
        let machine = Machine::new(policy.clone(), seed);
        let published = machine.snapshot();
        Self {
            random,
            policy,
            machine,
            now: Instant::now(),
            given: Vec::new(),
            open_ids: HashMap::new(),
            child: None,
            last_epoch: 0,
            unswept_since: None,
            registered: None,
            start_waits: false,
            stop_end: None,
            starts_again: false,
            stopped_on_purpose: false,
            published,
            seen: Seen::default(),
            log: Vec::new(),
        }
    }

    fn walk(&mut self) {
        for step in 1..=STEPS_OF_A_WALK {
            self.step();
            if step % 500 == 0 {
                self.calm_down();
            } else if step % 250 == 0 {
                self.shut_down();
            }
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next() % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn step(&mut self) {
        match self.below(100) {
            0..=23 => self.submit(),
            24 => self.host_restarted(),
            25..=36 => self.tick_at_deadline(),
            37..=40 => self.pass_time(),
            41..=54 => self.write(),
            55..=66 => self.answer(),
            67..=70 => self.start_turn(),
            71..=73 => self.break_answer(),
            74..=76 => self.sign_of_life(),
            77..=82 => self.hello(),
            83..=88 => self.reseeded(),
            89 => self.exit(),
            90..=93 => self.swept(),
            94 => self.spawn_failed(),
            95 => self.write_failed(),
            96 => self.host_restarted(),
            97 => self.start(),
            98 => self.stop(),
            _ => self.reset(),
        }
    }

    /// Mostly the epoch that lives; sometimes another one, which must change nothing.
    fn some_epoch(&mut self) -> u64 {
        let epoch = self.machine.epoch();
        match self.below(12) {
            0 => epoch.saturating_sub(1),
            1 => epoch + 1,
            _ => epoch,
        }
    }

    fn is_live(&self, epoch: u64) -> bool {
        self.child.as_ref().is_some_and(|child| child.epoch == epoch)
    }

    /// Gives a child's input; one of an epoch that does not live must change nothing.
    fn give_of(&mut self, epoch: u64, input: Input<u64>) -> Effects {
        if self.is_live(epoch) {
            return self.give(input);
        }
        let before = (self.machine.snapshot(), self.machine.next_deadline(), self.outgoing(), self.open());
        let out = self.give(input);
        assert!(out.iter().all(|effect| matches!(effect, Effect::Count(_))), "stale, but {out:?}");
        let after = (self.machine.snapshot(), self.machine.next_deadline(), self.outgoing(), self.open());
        assert_eq!(after, before, "a stale input changed something");
        out
    }

    fn give(&mut self, input: Input<u64>) -> Effects {
        self.log.push(format!("{:?} {input:?}", self.machine.snapshot().state));
        let tick = matches!(input, Input::Tick);
        let restarted = matches!(input, Input::HostRestarted { .. });
        let mut out = Vec::new();
        self.machine.handle(self.now, input, &mut out);
        if let Some(child) = self.child.as_mut().filter(|_| restarted) {
            child.epoch = self.machine.epoch();
            self.last_epoch = child.epoch;
        }
        self.perform(&out);
        if tick {
            let next = self.machine.next_deadline();
            assert!(
                next.is_none_or(|at| at > self.now),
                "a timer is stuck: {:?}",
                next.map(|at| self.now - at)
            );
            if let Some(end) = self.stop_end {
                assert!(self.now < end, "a stop takes longer than its budget");
            }
        }
        self.check();
        out
    }

    fn outgoing(&self) -> Vec<u8> {
        self.machine.outgoing().collect::<Vec<_>>().concat()
    }

    fn open(&self) -> Vec<(RequestId, OpenPhase)> {
        self.machine.open_requests().into_iter().map(|open| (open.id.clone(), open.phase)).collect()
    }

    /// With a host that behaves, everything that is open ends, and soon.
    fn calm_down(&mut self) {
        if self.policy.hello_timeout.is_zero() {
            return;
        }
        for _ in 0..400 {
            let epoch = self.machine.epoch();
            let state = self.machine.state();
            if self.open_ids.is_empty()
                && matches!(state, HostState::Ready | HostState::Stopped | HostState::CrashLooped)
                && !self.machine.has_outgoing()
            {
                return;
            }
            let handed = self.some_handed();
            let Some(child) = &self.child else {
                if self.unswept_since.take().is_some() {
                    self.give(Input::Swept { epoch, survivors: Vec::new() });
                } else {
                    self.tick_at_deadline();
                }
                continue;
            };
            let stopping = self.stop_end.is_some();
            if child.doomed || child.termed || child.asked {
                self.exited(epoch, Exit::Code(0));
            } else if !child.said_hello && !stopping {
                self.give(Input::Hello { epoch, verdict: Ok(()) });
            } else if child.reseed_due && !stopping {
                self.live().reseed_due = false;
                self.live().seeded = true;
                self.give(Input::Reseeded { epoch, lines: Vec::new() });
            } else if self.machine.has_outgoing() {
                self.write();
            } else if let Some(handed) = handed {
                let id = self.given[handed].id.clone();
                self.give(Input::Answer { epoch, id, reply: epoch });
            } else {
                self.tick_at_deadline();
            }
        }
        panic!("it never came to rest: {:?}, {:?}", self.machine.snapshot(), self.open());
    }

    /// With ticks on time, a stop ends within its budget whatever the host does, and leaves nothing.
    fn shut_down(&mut self) {
        let budget = Duration::from_millis(self.below(30_000));
        let plan = StopPlan { drain: Duration::from_millis(self.below(30_000)), budget, restart: false };
        let deaf = self.chance(50);
        let end = self.now + budget;
        self.stop_with(plan);
        let mut epochs = HashSet::new();
        while self.stop_end.is_some() {
            if !deaf && self.chance(30) {
                self.write();
            } else if !deaf && self.chance(30) {
                let epoch = self.machine.epoch();
                epochs.insert(epoch);
                self.exited(epoch, Exit::Code(0));
            } else {
                self.tick_at_deadline();
            }
        }
        assert!(self.now <= end, "the stop took longer than its budget");
        assert_eq!(self.machine.state(), HostState::Stopped);
        assert!(self.open_ids.is_empty() && !self.start_waits);
        if self.chance(80) {
            self.start();
        }
    }
}
