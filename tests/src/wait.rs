//! Waiting for what nobody announces.

use std::time::{Duration, Instant};

/// How long a test waits for anything: far longer than it takes, so that a slow machine fails no test.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Asks `f` again and again until it gives something.
///
/// # Panics
/// If it gave nothing within `deadline`, with `what` was waited for.
#[track_caller]
pub fn wait_until<T>(deadline: Duration, what: &str, f: impl FnMut() -> Option<T>) -> T {
    poll_until(deadline, f).unwrap_or_else(|| panic!("waited {deadline:?} in vain for {what}"))
}

/// [`wait_until`] that gives `None` at the deadline; the only place where tests poll.
pub(crate) fn poll_until<T>(deadline: Duration, mut f: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = f() {
            return Some(found);
        }
        if started.elapsed() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
