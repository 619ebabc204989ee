use super::*;
use pretty_assertions::assert_eq;

const MS: Duration = Duration::from_millis(1);

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn policy(max: u32) -> RestartPolicy {
    RestartPolicy { max, ..RestartPolicy::default() }
}

/// The delays after failures at these times, `None` for giving up.
fn delays(policy: RestartPolicy, at: &[Duration]) -> Vec<Option<Duration>> {
    let t0 = Instant::now();
    let mut budget = RestartBudget::new(policy);
    at.iter().map(|at| delay(&mut budget, t0 + *at, 1.0)).collect()
}

fn delay(budget: &mut RestartBudget, now: Instant, uniform: f64) -> Option<Duration> {
    match budget.on_failure(now, uniform) {
        Decision::RetryAt(at) => Some(at - now),
        Decision::GiveUp => None,
    }
}

#[test]
fn the_defaults_are_those_of_the_specification() {
    let expected = RestartPolicy {
        max: 3,
        window: secs(300),
        backoff_base: 250 * MS,
        backoff_max: secs(5),
        healthy_after: secs(60),
    };
    assert_eq!(RestartPolicy::default(), expected);
}

#[test]
fn the_delay_doubles_up_to_the_longest() {
    let times: Vec<Duration> = (0..7).map(secs).collect();
    let expected = [250, 500, 1000, 2000, 4000, 5000, 5000].map(|ms| Some(ms * MS));
    assert_eq!(delays(policy(10), &times), expected);
}

#[test]
fn the_delay_is_spread_by_the_factor() {
    let now = Instant::now();
    assert_eq!(delay(&mut RestartBudget::new(policy(3)), now, 0.5), Some(125 * MS));
    assert_eq!(delay(&mut RestartBudget::new(policy(3)), now, 0.75), Some(Duration::from_micros(187_500)));
}

#[test]
fn delays_beyond_every_clock_do_not_overflow() {
    let huge =
        RestartPolicy { max: u32::MAX, backoff_base: Duration::MAX, backoff_max: Duration::MAX, ..policy(0) };
    let mut budget = RestartBudget::new(huge);
    let now = Instant::now();
    for _ in 0..40 {
        assert_eq!(delay(&mut budget, now, 1.0), Some(NEVER));
    }
    let mut small = RestartBudget::new(RestartPolicy { backoff_max: Duration::MAX, ..policy(u32::MAX) });
    let grown: Vec<Duration> = (0..40).filter_map(|_| delay(&mut small, now, 1.0)).collect();
    assert!(grown.windows(2).all(|pair| pair[0] <= pair[1]), "a delay shrank: {grown:?}");
    assert_eq!(grown[31], 250 * MS * (1 << 31), "the thirty-second delay is the last that doubled");
    assert_eq!(later(now, Duration::MAX), now + NEVER);
    assert_eq!(later(now, secs(3)), now + secs(3));
    assert!(NEVER > secs(50 * 365 * 86_400), "years, not hours");
}

#[test]
fn one_failure_more_than_the_budget_gives_up() {
    let at = [0, 1, 2, 3].map(secs);
    assert_eq!(
        delays(policy(3), &at).iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    assert_eq!(delays(policy(1), &at[..2]), [Some(250 * MS), None]);
}

#[test]
fn a_budget_of_zero_gives_up_at_once() {
    assert_eq!(delays(policy(0), &[secs(0)]), [None]);
}

#[test]
fn a_failure_counts_until_it_is_as_old_as_the_window() {
    assert_eq!(delays(policy(1), &[secs(0), secs(300) - MS])[1], None);
    assert!(delays(policy(1), &[secs(0), secs(300)])[1].is_some());
}

#[test]
fn spaced_failures_never_give_up_and_a_burst_does() {
    let t0 = Instant::now();
    let mut budget = RestartBudget::new(policy(3));
    for hour in 0..10 {
        let now = t0 + secs(hour * 3600);
        budget.on_ready(now - secs(1800));
        assert_eq!(delay(&mut budget, now, 1.0), Some(250 * MS), "hour {hour}");
    }
    let burst = t0 + secs(11 * 3600);
    let decisions: Vec<bool> = (0..4).map(|s| delay(&mut budget, burst + secs(s), 1.0).is_some()).collect();
    assert_eq!(decisions, [true, true, true, false]);
}

#[test]
fn sixty_seconds_of_health_start_the_delay_from_the_base_again() {
    for (healthy, expected) in [(secs(60) - MS, 500 * MS), (secs(60), 250 * MS), (secs(90), 250 * MS)] {
        let t0 = Instant::now();
        let mut budget = RestartBudget::new(policy(9));
        assert_eq!(delay(&mut budget, t0, 1.0), Some(250 * MS));
        budget.on_ready(t0);
        assert_eq!(delay(&mut budget, t0 + healthy, 1.0), Some(expected), "healthy for {healthy:?}");
        assert_eq!(delay(&mut budget, t0 + healthy, 1.0), Some(expected * 2), "the health counts once");
    }
}

#[test]
fn time_without_a_ready_child_is_not_health() {
    assert_eq!(delays(policy(9), &[secs(0), secs(200)]), [Some(250 * MS), Some(500 * MS)]);
}

#[test]
fn a_reset_forgets_failures_delay_and_health() {
    let t0 = Instant::now();
    let mut budget = RestartBudget::new(policy(1));
    assert!(delay(&mut budget, t0, 1.0).is_some());
    budget.on_ready(t0);
    budget.reset();
    assert_eq!(delay(&mut budget, t0, 1.0), Some(250 * MS));
    budget.reset();
    budget.on_ready(t0);
    assert_eq!(delay(&mut budget, t0, 1.0), Some(250 * MS));
    budget.reset();
    let mut budget = RestartBudget::new(policy(9));
    budget.on_ready(t0);
    budget.reset();
    assert_eq!(delay(&mut budget, t0, 1.0), Some(250 * MS));
    assert_eq!(
        delay(&mut budget, t0 + secs(100), 1.0),
        Some(500 * MS),
        "the health before the reset is forgotten"
    );
}

/// The first outputs of splitmix64 for this seed, as published with the algorithm.
const REFERENCE_SEED: u64 = 1_234_567;
const REFERENCE: [u64; 5] = [
    6_457_827_717_110_365_317,
    3_203_168_211_198_807_973,
    9_817_491_932_198_370_423,
    4_593_380_528_125_082_431,
    16_408_922_859_458_223_821,
];

#[test]
fn the_generator_is_splitmix64() {
    let mut jitter = Jitter::new(REFERENCE_SEED);
    assert_eq!(REFERENCE.map(|_| jitter.next()), REFERENCE);
}

#[test]
fn factors_are_the_top_bits_scaled_to_half_and_one() {
    let mut jitter = Jitter::new(REFERENCE_SEED);
    for raw in REFERENCE {
        let expected = 0.5 + raw as f64 / u64::MAX as f64 / 2.0;
        let factor = jitter.uniform();
        assert!((factor - expected).abs() < 1e-12, "{factor} for {raw}, expected {expected}");
    }
    let mut jitter = Jitter::new(7);
    assert!((0..10_000).map(|_| jitter.uniform()).all(|factor| (0.5..=1.0).contains(&factor)));
}
