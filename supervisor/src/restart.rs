//! Restart budget and back-off: pure.

use std::time::Duration;

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
