//! Restart budget and back-off: pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// When a host is started again after it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Failures within the window that are answered by a respawn; one more is a crash loop. 0 = never respawn.
    pub max: u32,
    /// The window.
    pub window: Duration,
    /// First delay; doubles with each failure in a row.
    pub backoff_base: Duration,
    /// Longest delay.
    pub backoff_max: Duration,
    /// Time in good health after which the delay starts from the base again.
    pub healthy_after: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            max: 3,
            window: Duration::from_secs(300),
            backoff_base: Duration::from_millis(250),
            backoff_max: Duration::from_secs(5),
            healthy_after: Duration::from_secs(60),
        }
    }
}

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Start another child at this time.
    RetryAt(Instant),
    /// The budget is spent.
    GiveUp,
}

/// The failures that still count, and how long the next delay is.
#[derive(Debug)]
pub(crate) struct RestartBudget {
    policy: RestartPolicy,
    /// When the failures within the window happened, oldest first; at most one more than the budget.
    failures: VecDeque<Instant>,
    /// Failures since the last time of good health: the exponent of the next delay.
    in_a_row: u32,
    ready_since: Option<Instant>,
}

impl RestartBudget {
    pub(crate) fn new(policy: RestartPolicy) -> Self {
        Self { policy, failures: VecDeque::new(), in_a_row: 0, ready_since: None }
    }

    /// The child is ready. If it stays so for `healthy_after`, the next delay starts from the base again.
    pub(crate) fn on_ready(&mut self, now: Instant) {
        self.ready_since = Some(now);
    }

    /// A child failed. `uniform` in [0.5, 1.0] spreads the delay.
    ///
    /// A failure counts for as long as it is younger than the window.
    pub(crate) fn on_failure(&mut self, now: Instant, uniform: f64) -> Decision {
        let healthy = self
            .ready_since
            .take()
            .is_some_and(|since| now.saturating_duration_since(since) >= self.policy.healthy_after);
        if healthy {
            self.in_a_row = 0;
        }
        let window = self.policy.window;
        self.failures.retain(|at| now.saturating_duration_since(*at) < window);
        self.failures.push_back(now);
        if self.failures.len() > self.policy.max as usize {
            return Decision::GiveUp;
        }
        let doubled =
            self.policy.backoff_base.saturating_mul(1_u32.checked_shl(self.in_a_row).unwrap_or(u32::MAX));
        let longest = doubled.min(self.policy.backoff_max).min(NEVER);
        self.in_a_row = self.in_a_row.saturating_add(1);
        Decision::RetryAt(later(now, longest.mul_f64(uniform)))
    }

    /// Forgets every failure: after a stop on purpose, and when an operator lifts a crash loop.
    pub(crate) fn reset(&mut self) {
        self.failures.clear();
        self.in_a_row = 0;
        self.ready_since = None;
    }
}

/// The longest time that is added to a clock: what is longer never comes.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// `now + delay`, whatever the delay.
pub(crate) fn later(now: Instant, delay: Duration) -> Instant {
    now + delay.min(NEVER)
}

/// A small generator for the spread of delays: splitmix64. Nothing secret depends on it.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next factor, at least 0.5 and below 1.0.
    pub(crate) fn uniform(&mut self) -> f64 {
        const BITS: u32 = 53;
        0.5 + 0.5 * (self.next() >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests;
