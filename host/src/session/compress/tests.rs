use super::*;
use pretty_assertions::assert_eq;

const SECOND: Duration = Duration::from_secs(1);

/// Where a world fails that does what the machine wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    Nowhere,
    Engine,
    Commit,
    Sync,
    Notify,
}

/// Plays driver and engine: does every effect, and writes down what of it the session and the engine see.
#[derive(Debug)]
struct World {
    machine: Compress,
    fails: Fails,
    seen: Vec<String>,
    /// A commit that was not undone.
    committed: bool,
    synced: bool,
    verdict: Option<Verdict>,
}

impl World {
    fn new(now: Instant, fails: Fails) -> Self {
        let machine = Compress::new(now);
        Self { machine, fails, seen: Vec::new(), committed: false, synced: false, verdict: None }
    }

    fn on(&mut self, now: Instant, input: Input) {
        let mut next = self.machine.on(now, input);
        while let Some(effect) = next.take() {
            assert_eq!(self.verdict, None, "nothing comes behind an answer: {effect:?}");
            let works = |step: Fails| if self.fails == step { Err(format!("{step:?}")) } else { Ok(()) };
            next = match effect {
                Effect::Interrupt => {
                    self.seen.push("interrupt".to_owned());
                    None
                }
                Effect::Commit => {
                    let result = works(Fails::Commit);
                    self.committed = result.is_ok();
                    self.seen.push("commit".to_owned());
                    self.machine.on(now, Input::Committed(result))
                }
                Effect::SyncKey => {
                    assert!(self.committed, "a key moves only behind a commit");
                    let result = works(Fails::Sync);
                    self.synced = result.is_ok();
                    self.seen.push("sync".to_owned());
                    self.machine.on(now, Input::Synced(result))
                }
                Effect::RollBack => {
                    self.committed = false;
                    self.seen.push("roll back".to_owned());
                    self.machine.on(now, Input::RolledBack)
                }
                Effect::Notify => {
                    assert!(self.committed && self.synced, "nobody is told of what is not so");
                    self.seen.push("notify".to_owned());
                    None
                }
                Effect::Answer(verdict) => {
                    self.seen.push("answer".to_owned());
                    self.verdict = Some(verdict);
                    None
                }
            };
        }
    }

    /// The engine does its part, as far as it gets.
    fn play(&mut self, now: Instant) {
        let gave = match self.fails {
            Fails::Engine => Gave::Failed("Engine".to_owned()),
            Fails::Nowhere | Fails::Commit | Fails::Sync | Fails::Notify => Gave::Compressed,
        };
        self.on(now, Input::Engine(gave));
        if self.verdict.is_none() {
            let told = if self.fails == Fails::Notify { Err("Notify".to_owned()) } else { Ok(()) };
            self.on(now, Input::Notified(told));
        }
    }

    fn count(&self, what: &str) -> usize {
        self.seen.iter().filter(|seen| *seen == what).count()
    }
}

#[test]
fn the_engine_is_told_once_behind_commit_and_sync_and_not_at_all_if_one_fails() {
    let failed = |reason: &str| Verdict::SyncFailed { reason: reason.to_owned() };
    for (fails, seen, verdict) in [
        (Fails::Nowhere, vec!["commit", "sync", "notify", "answer"], Verdict::Compressed { note: None }),
        (Fails::Engine, vec!["answer"], Verdict::Aborted { reason: "Engine".to_owned() }),
        (Fails::Commit, vec!["commit", "answer"], failed("Commit")),
        (Fails::Sync, vec!["commit", "sync", "roll back", "answer"], failed("Sync")),
        (
            Fails::Notify,
            vec!["commit", "sync", "notify", "answer"],
            Verdict::Compressed { note: Some("Notify".to_owned()) },
        ),
    ] {
        let now = Instant::now();
        let mut world = World::new(now, fails);
        world.play(now);
        assert_eq!(
            (world.seen.clone(), world.verdict.clone()),
            (seen.iter().map(|s| (*s).to_owned()).collect(), Some(verdict)),
            "{fails:?}"
        );
        // Nothing is left that a later event could set off.
        for input in [
            Input::Engine(Gave::Compressed),
            Input::Committed(Ok(())),
            Input::Synced(Ok(())),
            Input::Notified(Ok(())),
            Input::Stop(Why::Interrupted),
            Input::Force,
            Input::Tick,
        ] {
            world.on(now + LIMIT * 10, input);
        }
        assert_eq!(world.seen.len(), seen.len(), "{fails:?}");
        assert_eq!(world.machine.deadline(), None);
    }
}

#[test]
fn nothing_to_gain_changes_nothing() {
    let now = Instant::now();
    let mut world = World::new(now, Fails::Nowhere);
    world.on(now, Input::Engine(Gave::Unchanged("short".to_owned())));
    assert_eq!(world.verdict, Some(Verdict::Unchanged { reason: "short".to_owned() }));
    assert_eq!(world.seen, ["answer"]);
}

#[test]
fn a_stop_tells_the_engine_waits_for_it_and_keeps_the_history_whatever_it_gives() {
    for (why, reason) in [
        (Why::Interrupted, "interrupted"),
        (Why::HostStops, "the host is shutting down"),
        (Why::TooSlow, "it took longer than 120 s"),
    ] {
        for gave in [Gave::Compressed, Gave::Unchanged(String::new()), Gave::Failed("other".to_owned())] {
            let now = Instant::now();
            let mut world = World::new(now, Fails::Nowhere);
            assert!(world.machine.can_be_stopped());
            world.on(now, Input::Stop(why));
            world.on(now, Input::Stop(Why::Interrupted));
            assert_eq!(world.seen, ["interrupt"], "told once");
            world.on(now + SECOND, Input::Engine(gave));
            assert_eq!(world.verdict, Some(Verdict::Aborted { reason: reason.to_owned() }));
            assert_eq!(world.seen, ["interrupt", "answer"]);
            assert!(!world.machine.can_be_stopped());
        }
    }
}

#[test]
fn an_engine_that_is_too_slow_or_does_not_listen_is_left_behind() {
    let now = Instant::now();
    let mut world = World::new(now, Fails::Nowhere);
    assert_eq!(world.machine.deadline(), Some(now + LIMIT));
    world.on(now + LIMIT - SECOND, Input::Tick);
    assert_eq!(world.seen, [""; 0]);
    world.on(now + LIMIT, Input::Tick);
    assert_eq!(world.seen, ["interrupt"]);
    assert_eq!(world.machine.deadline(), Some(now + LIMIT + IGNORED));
    world.on(now + LIMIT + IGNORED - SECOND, Input::Tick);
    assert_eq!(world.verdict, None);
    world.on(now + LIMIT + IGNORED, Input::Tick);
    assert_eq!(world.verdict, Some(Verdict::Aborted { reason: "it took longer than 120 s".to_owned() }));

    let mut world = World::new(now, Fails::Nowhere);
    world.on(now, Input::Force);
    assert_eq!(world.verdict, Some(Verdict::Aborted { reason: "the host is shutting down".to_owned() }));
}

#[test]
fn a_commit_stands_however_the_news_is_taken() {
    for late in [Input::Tick, Input::Force] {
        let now = Instant::now();
        let mut world = World::new(now, Fails::Nowhere);
        world.on(now, Input::Engine(Gave::Compressed));
        assert_eq!(world.machine.deadline(), Some(now + NOTIFY));
        assert!(!world.machine.can_be_stopped(), "it is done");
        world.on(now, Input::Stop(Why::Interrupted));
        world.on(now + NOTIFY - SECOND, Input::Tick);
        assert_eq!(world.verdict, None);
        world.on(now + NOTIFY, late);
        assert!(matches!(world.verdict, Some(Verdict::Compressed { note: Some(_) })), "{world:?}");
        assert_eq!(world.seen, ["commit", "sync", "notify", "answer"]);
    }
}

/// xorshift: the same walk for the same seed on every machine.
struct Random(u64);

impl Random {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        from[usize::try_from(self.0 % from.len() as u64).unwrap()].clone()
    }
}

#[test]
fn whatever_comes_in_whatever_order_there_is_one_answer_and_news_only_of_a_whole_commit() {
    let steps: u64 =
        std::env::var("TURNHOST_WALK_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(200_000);
    let inputs = [
        Input::Engine(Gave::Compressed),
        Input::Engine(Gave::Compressed),
        Input::Engine(Gave::Unchanged("u".to_owned())),
        Input::Engine(Gave::Failed("f".to_owned())),
        // What only a driver with a fault would say now: stale, or twice.
        Input::Committed(Ok(())),
        Input::Committed(Err("c".to_owned())),
        Input::Synced(Ok(())),
        Input::Synced(Err("s".to_owned())),
        Input::RolledBack,
        Input::Notified(Ok(())),
        Input::Notified(Err("n".to_owned())),
        Input::Stop(Why::Interrupted),
        Input::Stop(Why::HostStops),
        Input::Force,
        Input::Tick,
        Input::Tick,
    ];
    let fails = [Fails::Nowhere, Fails::Nowhere, Fails::Engine, Fails::Commit, Fails::Sync, Fails::Notify];
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut verdicts = std::collections::BTreeMap::<&str, u64>::new();
    for _ in 0..steps / 12 {
        let start = Instant::now();
        let mut now = start;
        let mut world = World::new(now, random.pick(&fails));
        for _ in 0..12 {
            now += random.pick(&[Duration::ZERO, SECOND, IGNORED, LIMIT]);
            let stoppable = world.machine.can_be_stopped();
            let before = (world.committed, world.synced);
            let input = random.pick(&inputs);
            let interrupted = world.count("interrupt") > 0;
            world.on(now, input.clone());
            if !stoppable {
                assert_eq!((world.committed, world.synced), before, "{input:?} came too late: {world:?}");
            }
            if interrupted {
                assert!(!world.committed, "whoever interrupted was told that it was applied: {world:?}");
            }
        }
        // Time alone ends everything.
        for _ in 0..4 {
            if let Some(deadline) = world.machine.deadline() {
                now = now.max(deadline);
                world.on(now, Input::Tick);
            }
        }
        let verdict = world.verdict.clone().unwrap_or_else(|| panic!("no answer: {world:?}"));
        assert_eq!(world.count("answer"), 1, "{world:?}");
        assert!(world.count("interrupt") <= 1, "{world:?}");
        let told = world.count("notify");
        let (name, expected) = match verdict {
            Verdict::Compressed { .. } => ("compressed", (1, true, true)),
            Verdict::Unchanged { .. } => ("unchanged", (0, false, false)),
            Verdict::Aborted { .. } => ("aborted", (0, false, false)),
            Verdict::SyncFailed { .. } => ("sync failed", (0, false, false)),
        };
        assert_eq!((told, world.committed, world.synced), expected, "{world:?}");
        *verdicts.entry(name).or_default() += 1;
    }
    assert_eq!(verdicts.len(), 4, "the walk gets everywhere: {verdicts:?}");
}
