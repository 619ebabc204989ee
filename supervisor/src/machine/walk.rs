//! A random walk over the machine with a world that checks every effect against what it knows itself.
//!
//! Inputs of every kind come at any time, stale and doubled ones too. `TURNHOST_WALK_STEPS` makes it longer,
//! `TURNHOST_WALK_SEED` repeats one that failed.

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

    fn perform(&mut self, out: &Effects) {
        for effect in out {
            self.log.push(format!("    {effect:?}"));
            match effect {
                Effect::Spawn { epoch } => {
                    assert!(self.child.is_none(), "two children at once");
                    assert!(*epoch > self.last_epoch, "spawned under an old number");
                    self.last_epoch = *epoch;
                    assert!(self.stop_end.is_none(), "spawned during a stop");
                    assert!(!self.stopped_on_purpose, "spawned after a stop on purpose");
                    if let Some(since) = self.unswept_since {
                        assert!(self.now >= since + self.policy.sweep_timeout, "spawned beside an old tree");
                    }
                    self.unswept_since = None;
                    self.child = Some(Child { epoch: *epoch, ..Child::default() });
                }
                Effect::Register { epoch } => {
                    assert!(self.is_live(*epoch), "registered a child that does not live");
                    self.registered = Some(*epoch);
                    self.live().said_hello = true;
                }
                Effect::Unregister { epoch } => {
                    assert!(self.child.is_none(), "unregistered a child that lives");
                    assert!(self.registered.take().is_some(), "unregistered {epoch} without need");
                }
                Effect::Reseed { epoch } => {
                    assert_eq!(self.registered, Some(*epoch), "seeded before it was registered");
                    self.live().reseed_due = true;
                    self.live().seeded = false;
                }
                Effect::Term { epoch } => {
                    assert!(self.is_live(*epoch) && self.stop_end.is_some(), "a TERM out of place");
                    assert!(!self.live().termed, "a second TERM");
                    self.live().termed = true;
                    self.seen.note("term");
                }
                Effect::Kill { epoch } => {
                    assert!(self.is_live(*epoch), "killed a child that does not live");
                    self.live().doomed = true;
                    self.seen.note("kill");
                }
                Effect::Abandon { epoch } => {
                    assert!(self.is_live(*epoch) && self.live().doomed, "abandoned before it was killed");
                    self.child = None;
                    self.registered = None;
                    self.unswept_since = Some(self.now);
                    self.seen.note("abandon");
                }
                Effect::Resolve { waiter, ending } => self.resolved(*waiter, ending),
                Effect::Started(answer) => {
                    assert!(std::mem::take(&mut self.start_waits), "nobody waits for a start");
                    match answer {
                        Ok(epoch) => {
                            assert!(
                                self.is_live(*epoch) && self.live().seeded,
                                "started before it was ready"
                            );
                            self.seen.note("started ok");
                        }
                        Err(_) => self.seen.note("started err"),
                    }
                }
                Effect::Stopped(report) => {
                    assert!(self.stop_end.take().is_some(), "nobody waits for a stop");
                    assert!(self.child.is_none(), "stopped, but the child lives");
                    assert!(
                        self.given.iter().all(|given| given.fate != Fate::Pending),
                        "stopped with open requests"
                    );
                    assert!(report.steps.is_sorted_by_key(|step| step.at_ms), "{report:?}");
                    self.stopped_on_purpose = !self.starts_again;
                    self.start_waits |= self.starts_again;
                    self.seen.note("stopped");
                }
                Effect::Count(counted) => self.seen.note(format!("count {counted:?}")),
                Effect::Publish(snapshot) => {
                    assert_ne!(*snapshot, self.published, "published without a change");
                    self.published = *snapshot;
                    let state = serde_json::to_value(snapshot.state).expect("a state is a word");
                    self.seen.note(format!("state {}", state.as_str().unwrap_or_default()));
                }
            }
        }
    }

    fn live(&mut self) -> &mut Child {
        self.child.as_mut().expect("a child lives")
    }

    fn resolved(&mut self, waiter: usize, ending: &Ending<u64>) {
        let given = &mut self.given[waiter];
        assert_eq!(given.fate, Fate::Pending, "resolved twice");
        given.fate = Fate::Resolved;
        assert_eq!(self.open_ids.remove(&given.id), Some(waiter));
        let turn = given.kind == RequestKind::Turn;
        let interrupt = matches!(given.kind, RequestKind::Interrupt { .. });
        match ending {
            Ending::Reply(epoch) => {
                assert_eq!(given.handed, Some(*epoch), "answered by a child that never had it");
                self.seen.note("reply");
            }
            Ending::InterruptedUnsent => {
                assert!(turn && given.handed.is_none(), "not unsent");
                self.seen.note("interrupted unsent");
            }
            Ending::Interrupt { outcome, turn } => {
                assert!(interrupt && given.handed.is_none(), "not an interrupt that was answered here");
                assert_eq!(turn.is_some(), *outcome == InterruptOutcome::Applied);
                self.seen.note(format!("interrupt {outcome}"));
            }
            Ending::TurnFailed { reason, turn_started, exit, .. } => {
                assert!(turn, "a call ended like a turn");
                let known = match given.handed {
                    None => Some(false),
                    Some(_) => given.started.then_some(true),
                };
                assert_eq!(*turn_started, known, "turn_started of {reason}");
                match reason {
                    FailReason::Crash | FailReason::Hung => {
                        assert!(given.handed.is_some(), "{reason}, but not a byte was handed over");
                        assert!(*reason == FailReason::Crash || exit.is_some(), "hung without an exit");
                    }
                    FailReason::Unavailable | FailReason::CrashLoop => {
                        assert!(given.handed.is_none() && exit.is_none(), "{reason}, but it was handed over");
                    }
                    FailReason::Shutdown => assert!(self.stop_end.is_some(), "no stop is under way"),
                    FailReason::Protocol => {}
                    FailReason::Busy
                    | FailReason::BadRequest
                    | FailReason::Exception
                    | FailReason::AgentExit
                    | FailReason::FrameTooLarge
                    | FailReason::Dropped => panic!("{reason} is not the machine's"),
                }
                self.seen.note(format!("turn {reason}"));
            }
            Ending::CallFailed { kind, .. } => {
                assert!(!turn, "a turn ended like a call");
                let due = given.deadline.is_some_and(|at| at <= self.now);
                match *kind {
                    ErrorKind::Crash | ErrorKind::Hung => assert!(given.handed.is_some() || interrupt),
                    ErrorKind::Unavailable | ErrorKind::CrashLoop => assert!(given.handed.is_none()),
                    ErrorKind::Timeout => assert!(due, "timed out before its time"),
                    ErrorKind::Shutdown => assert!(self.stop_end.is_some(), "no stop is under way"),
                    ErrorKind::ControlFailed => assert!(given.handed.is_some()),
                    other => panic!("{other} does not end a call"),
                }
                self.seen.note(format!("call {kind}"));
            }
        }
    }

    /// What holds after every step.
    fn check(&mut self) {
        let open = self.machine.open_requests();
        let pending: Vec<&RequestId> =
            self.given.iter().filter(|given| given.fate == Fate::Pending).map(|given| &given.id).collect();
        let shown: Vec<&RequestId> = open.iter().map(|open| open.id).collect();
        assert_eq!(shown, pending, "given = resolved + refused + open, in order of arrival");
        assert_eq!(self.machine.snapshot(), self.published, "a change was not published");
        let turns = open.iter().filter(|open| *open.kind == RequestKind::Turn).count();
        assert_eq!(self.machine.pending.turns(), turns);
        let unsent: Vec<&Given> =
            self.given.iter().filter(|g| g.fate == Fate::Pending && g.handed.is_none()).collect();
        assert_eq!(self.machine.pending.unsent_count(), unsent.len());
        for open in &open {
            let given = &self.given[self.open_ids[open.id]];
            match given.handed {
                Some(epoch) => assert!(self.is_live(epoch), "sent to a child that is gone"),
                None if matches!(given.kind, RequestKind::Interrupt { .. }) => {
                    assert!(self.child.is_some(), "an interrupt waits for the next child");
                }
                None => {}
            }
            let taken = self.machine.open(self.machine.epoch(), open.id);
            assert_eq!(taken.map(|(_, waiter)| *waiter), given.handed.map(|_| self.open_ids[open.id]));
            let phase = match given.handed {
                Some(_) if given.started => OpenPhase::Started,
                Some(_) => OpenPhase::Sent,
                None => OpenPhase::Waiting,
            };
            assert_eq!(open.phase, phase, "{open:?}");
            assert_eq!(open.since, given.at);
        }
        let state = self.machine.state();
        match state {
            HostState::Stopped | HostState::CrashLooped => {
                assert!(open.is_empty(), "{state:?} holds requests")
            }
            HostState::Starting | HostState::Ready => {
                assert!(self.child.is_some(), "{state:?} without a child")
            }
            HostState::BackingOff | HostState::Draining => {
                assert!(self.machine.next_deadline().is_some(), "{state:?} for ever");
            }
        }
        assert_eq!(state == HostState::Draining, self.stop_end.is_some());
        assert_eq!(
            self.machine.snapshot().next_start_at.is_some(),
            matches!(self.machine.phase, Phase::BackingOff { .. })
        );
        if !unsent.is_empty() && !self.machine.has_outgoing() {
            assert!(self.machine.next_deadline().is_some(), "requests wait for ever");
        }
        if let Some(child) = &self.child
            && (child.doomed || !child.said_hello)
        {
            let deadline = self.machine.next_deadline();
            assert!(deadline.is_some(), "a child that will never be ready is waited for without a limit");
        }
        assert_eq!(self.machine.has_outgoing(), !self.outgoing().is_empty());
        if self.machine.has_outgoing() {
            let child = self.child.as_ref().expect("input for a child that lives");
            assert!(child.said_hello && !child.doomed && !child.termed, "input for a child that takes none");
            assert!(child.seeded || self.stop_end.is_some(), "input before the seeds");
        }
        if self.start_waits {
            assert!(
                self.stop_end.is_some() || matches!(state, HostState::Starting | HostState::BackingOff),
                "a start waits in {state:?}"
            );
        }
    }

    fn submit(&mut self) {
        let kind = match self.below(10) {
            0..=4 => RequestKind::Turn,
            5..=6 => RequestKind::Call,
            7 => RequestKind::Seed,
            _ => {
                let named = self.chance(60);
                RequestKind::Interrupt { turn_id: named.then(|| self.some_id()) }
            }
        };
        let waiter = self.given.len();
        let id = self.some_id();
        let sid = SessionId::from(format!("s{}", self.below(4)));
        let padding = "x".repeat(self.below(30) as usize);
        let line = format!("{waiter}:{padding}\n").into_bytes();
        let deadline = self.chance(40).then(|| self.now + Duration::from_millis(self.random.next() % 8_000));
        let given = Given {
            id: id.clone(),
            kind: kind.clone(),
            line: line.clone(),
            deadline,
            at: self.now,
            fate: Fate::Pending,
            handed: None,
            started: false,
        };
        self.log.push(format!("{:?} submit {given:?} {sid:?}", self.machine.state()));
        let expected = self.expected_refusal(&given);
        let duplicate = self.open_ids.contains_key(&id);
        self.given.push(given);
        if !duplicate {
            self.open_ids.insert(id.clone(), waiter);
        }
        let request = Request { id: id.clone(), sid, kind: kind.clone(), line, deadline, waiter };
        let mut out = Vec::new();
        let taken = self.machine.request(self.now, request, &mut out);
        let interrupt = matches!(kind, RequestKind::Interrupt { .. });
        match taken {
            Ok(phase) => {
                assert_eq!(expected.filter(|kind| !interrupt || *kind == ErrorKind::DuplicateRequest), None);
                let ready = self.machine.has_outgoing();
                let answered = out.iter().any(|effect| matches!(effect, Effect::Resolve { .. }));
                assert_eq!(phase == SubmitPhase::Sent, ready && !(interrupt && answered), "{phase:?}");
            }
            Err(refused) => {
                assert_eq!(refused.waiter, waiter, "the waiter of somebody else came back");
                assert!(out.is_empty(), "refused, but {out:?}");
                if !interrupt || expected.is_some() {
                    assert_eq!(Some(refused.kind), expected);
                }
                self.given[waiter].fate = Fate::Refused;
                if !duplicate {
                    self.open_ids.remove(&id);
                }
                self.seen.note(format!("refused {}", refused.kind));
            }
        }
        self.perform(&out);
        self.check();
    }

    /// Why a request must be refused, as far as the world knows; an interrupt may still be answered at once.
    fn expected_refusal(&self, given: &Given) -> Option<ErrorKind> {
        if self.open_ids.contains_key(&given.id) {
            return Some(ErrorKind::DuplicateRequest);
        }
        let interrupt = matches!(given.kind, RequestKind::Interrupt { .. });
        if self.stop_end.is_some() {
            let drains = matches!(&self.machine.phase, Phase::Stopping(stop) if stop.is_draining());
            let helps = interrupt || given.kind == RequestKind::Call;
            if !(drains && helps) {
                return Some(ErrorKind::Shutdown);
            }
        }
        if self.machine.state() == HostState::CrashLooped && !interrupt {
            return Some(ErrorKind::CrashLoop);
        }
        if self.machine.state() == HostState::Stopped && self.stopped_on_purpose && !interrupt {
            return Some(ErrorKind::Shutdown);
        }
        let unsent = self.given.iter().filter(|g| g.fate == Fate::Pending && g.handed.is_none());
        let (count, bytes) = unsent.fold((0, 0), |(n, bytes), given| (n + 1, bytes + given.line.len()));
        let full =
            count >= self.policy.max_waiting || bytes + given.line.len() > self.policy.max_waiting_bytes;
        full.then_some(ErrorKind::Overloaded)
    }

    /// Ids are few, so that they are used again, doubled, and asked for after their end.
    fn some_id(&mut self) -> RequestId {
        RequestId::from(format!("r{}", self.below(24)))
    }

    fn some_handed(&mut self) -> Option<usize> {
        let handed: Vec<usize> = (0..self.given.len())
            .filter(|n| self.given[*n].fate == Fate::Pending && self.given[*n].handed.is_some())
            .collect();
        if handed.is_empty() { None } else { Some(handed[self.below(handed.len() as u64) as usize]) }
    }

    /// An id and, if a frame of `epoch` may touch it, whose it is.
    fn some_target(&mut self, epoch: u64) -> (RequestId, Option<usize>) {
        let handed = if self.chance(70) { self.some_handed() } else { None };
        let id = match handed {
            Some(waiter) => self.given[waiter].id.clone(),
            None => self.some_id(),
        };
        let owner = self.open_ids.get(&id).copied();
        (id, owner.filter(|owner| self.is_live(epoch) && self.given[*owner].handed == Some(epoch)))
    }

    fn answer(&mut self) {
        let epoch = self.some_epoch();
        let (id, owner) = self.some_target(epoch);
        let out = self.give_of(epoch, Input::Answer { epoch, id, reply: epoch });
        self.assert_ended(owner, &out);
    }

    fn break_answer(&mut self) {
        let epoch = self.some_epoch();
        let (id, owner) = self.some_target(epoch);
        let reason = FailReason::Protocol;
        let out = self.give_of(epoch, Input::TurnFailed { epoch, id, reason, detail: String::new() });
        self.assert_ended(owner, &out);
    }

    /// A terminal frame ends the request it belongs to, or is counted once.
    fn assert_ended(&self, owner: Option<usize>, out: &Effects) {
        let counted = out.iter().filter(|effect| matches!(effect, Effect::Count(_))).count();
        match owner {
            Some(owner) => {
                assert_eq!(self.given[owner].fate, Fate::Resolved, "its answer did not end it");
                assert_eq!(counted, 0, "{out:?}");
            }
            None => assert!(counted == 1 && out.len() == 1, "{out:?}"),
        }
    }

    fn start_turn(&mut self) {
        let epoch = self.some_epoch();
        let (id, owner) = self.some_target(epoch);
        if let Some(owner) = owner.filter(|owner| self.given[*owner].kind == RequestKind::Turn) {
            self.given[owner].started = true;
        }
        self.give_of(epoch, Input::TurnStarted { epoch, id });
    }

    fn tick_at_deadline(&mut self) {
        if let Some(at) = self.machine.next_deadline() {
            self.now = self.now.max(at);
        }
        self.give(Input::Tick);
    }

    fn pass_time(&mut self) {
        let most = [10, 700, 3_000, 120_000][self.below(4) as usize];
        let time = self.below(most);
        self.now += Duration::from_millis(time);
        if self.chance(70) {
            self.give(Input::Tick);
        }
    }

    fn sign_of_life(&mut self) {
        let epoch = self.some_epoch();
        let input = if self.chance(30) { Input::Alive { epoch } } else { Input::Heartbeat { epoch } };
        self.give_of(epoch, input);
    }

    /// A piece of what is outgoing goes into the pipe, of any length.
    fn write(&mut self) {
        let lines: Vec<Vec<u8>> = self.machine.outgoing().map(<[u8]>::to_vec).collect();
        let total: usize = lines.iter().map(Vec::len).sum();
        let epoch = self.some_epoch();
        if total == 0 || epoch != self.machine.epoch() {
            // A child that takes nothing, or an old one, wrote something: nobody may believe it.
            if !self.is_live(epoch) {
                self.give_of(epoch, Input::Wrote { epoch, bytes: 5 });
            }
            return;
        }
        let bytes = if self.chance(30) { total } else { 1 + self.below(total as u64) as usize };
        let mut left = bytes;
        for (n, line) in lines.iter().enumerate() {
            let rest = std::mem::take(&mut self.live().rest);
            if n == 0 && !rest.is_empty() {
                assert_eq!(*line, rest, "a line that has begun goes on as it began");
            } else {
                assert!(rest.is_empty() && line.ends_with(b"\n"), "whole lines only");
                self.first_byte_of(line, epoch);
            }
            let taken = left.min(line.len());
            self.live().rest = line[taken..].to_vec();
            left -= taken;
            if left == 0 {
                break;
            }
        }
        self.give(Input::Wrote { epoch, bytes });
        let remains: usize = self.machine.outgoing().map(<[u8]>::len).sum();
        assert_eq!(remains, total - bytes);
    }

    fn first_byte_of(&mut self, line: &[u8], epoch: u64) {
        let text = std::str::from_utf8(line).expect("lines are text here");
        assert!(!self.live().asked, "a line behind shutdown: {text:?}");
        if text.contains("shutdown") {
            self.live().asked = true;
        } else if let Some(of) = text.strip_prefix("seed ") {
            assert_eq!(of.trim_end(), epoch.to_string(), "a seed of another incarnation");
            assert_eq!(self.live().last_owner, None, "a seed behind a request");
        } else if text == "\n" {
            self.seen.note("cut line crossed a restart");
        } else {
            let owner: usize = text.split(':').next().expect("a waiter").parse().expect("a number");
            assert!(self.live().last_owner < Some(owner), "out of order");
            self.live().last_owner = Some(owner);
            let given = &mut self.given[owner];
            assert_eq!(given.line, line, "a changed line");
            assert_eq!((given.fate, given.handed), (Fate::Pending, None), "sent twice, or after its end");
            given.handed = Some(epoch);
        }
    }

    fn hello(&mut self) {
        let epoch = self.some_epoch();
        let verdict = if self.chance(90) {
            Ok(())
        } else {
            Err(StartFault::new(ErrorKind::BuildMismatch, "another build".to_owned()))
        };
        self.give_of(epoch, Input::Hello { epoch, verdict });
    }

    fn reseeded(&mut self) {
        let epoch = self.some_epoch();
        let lines = (0..self.below(3)).map(|_| format!("seed {epoch}\n").into_bytes()).collect();
        if self.is_live(epoch) && std::mem::take(&mut self.live().reseed_due) {
            self.live().seeded = true;
        }
        self.give_of(epoch, Input::Reseeded { epoch, lines });
    }

    fn write_failed(&mut self) {
        let epoch = self.some_epoch();
        if self.is_live(epoch) {
            self.live().rest.clear();
        }
        self.give_of(epoch, Input::WriteFailed { epoch });
    }

    fn host_restarted(&mut self) {
        let epoch = self.some_epoch();
        let before = self.machine.epoch();
        self.give_of(epoch, Input::HostRestarted { epoch });
        if self.machine.epoch() != before {
            self.seen.note("host restarted");
            let child = self.live();
            child.last_owner = None;
            child.asked = false;
            child.rest.clear();
        }
    }

    fn exit(&mut self) {
        let epoch = self.some_epoch();
        let exit = [Exit::Code(0), Exit::Code(7), Exit::Signal(9), Exit::Unknown][self.below(4) as usize];
        self.exited(epoch, exit);
    }

    fn exited(&mut self, epoch: u64, exit: Exit) {
        if self.is_live(epoch) {
            self.child = None;
            self.unswept_since = Some(self.now);
            let input = Input::Exited { epoch, exit };
            self.give(input);
            if self.machine.pending.unsent_count() > 0 {
                self.seen.note("carried over a crash");
            }
            assert_eq!(self.registered, None, "a child that is gone stayed registered");
        } else {
            self.give_of(epoch, Input::Exited { epoch, exit });
        }
    }

    fn swept(&mut self) {
        let epoch = self.some_epoch();
        let survivors = if self.chance(20) { vec![4711] } else { Vec::new() };
        if self.child.is_none() && epoch == self.machine.epoch() {
            self.unswept_since = None;
            self.give(Input::Swept { epoch, survivors });
        } else {
            self.give(Input::Swept { epoch, survivors });
        }
    }

    /// Only a child that has not said hello can turn out not to be there.
    fn spawn_failed(&mut self) {
        let epoch = self.some_epoch();
        let fault = StartFault::new(ErrorKind::SpawnFailed, "no memory".to_owned());
        let permanent = self.chance(40);
        if !self.is_live(epoch) {
            self.give_of(epoch, Input::SpawnFailed { epoch, fault, permanent });
        } else if !self.live().said_hello {
            self.child = None;
            self.give(Input::SpawnFailed { epoch, fault, permanent });
        }
    }

    fn start(&mut self) {
        self.start_waits = true;
        self.stopped_on_purpose = false;
        self.starts_again = true;
        self.give(Input::Start);
    }

    /// An operator lifts a crash loop, and often wants the host at once: the old child may still be dying.
    fn reset(&mut self) {
        self.give(Input::Reset);
        if self.chance(50) {
            self.start();
        }
    }

    fn stop(&mut self) {
        let millis = |n| Duration::from_millis(n);
        let drain = millis([0, 1_000, 20_000][self.below(3) as usize]);
        let budget = millis([0, 2_000, 25_000][self.below(3) as usize]);
        let restart = self.chance(30);
        self.stop_with(StopPlan { drain, budget, restart });
    }

    fn stop_with(&mut self, plan: StopPlan) {
        let end = self.now + plan.budget;
        self.stop_end = Some(self.stop_end.map_or(end, |old| old.min(end)));
        self.starts_again = plan.restart;
        self.give(Input::Stop(plan));
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
