//! Reasoning comes token by token; people read it in sentences.

use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Longest wait of a thought for what follows it.
const PATIENCE: Duration = Duration::from_millis(150);
/// As much as goes out at once.
const ENOUGH_BYTES: usize = 1024;

/// Reasoning that was not passed on yet.
#[derive(Debug, Default)]
pub(super) struct Thoughts {
    held: String,
    since: Option<Instant>,
}

impl Thoughts {
    /// Adds a piece. True if it should be passed on now: it is much, or a line is whole.
    pub(super) fn push(&mut self, text: &str) -> bool {
        if text.is_empty() {
            return false;
        }
        self.since.get_or_insert_with(Instant::now);
        self.held.push_str(text);
        text.contains('\n') || self.held.len() >= ENOUGH_BYTES
    }

    /// Everything that is held.
    pub(super) fn take(&mut self) -> String {
        self.since = None;
        std::mem::take(&mut self.held)
    }

    /// Ends once what is held has waited long enough; never if nothing is.
    pub(super) async fn due(&self) {
        match self.since {
            Some(since) => sleep_until(since + PATIENCE).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[tokio::test(start_paused = true)]
    async fn thoughts_wait_for_a_line_for_much_or_for_a_moment() {
        let start = Instant::now();
        let mut thoughts = Thoughts::default();
        assert!(!thoughts.push("one "));
        tokio::time::advance(PATIENCE / 2).await;
        assert!(!thoughts.push("two "));
        thoughts.due().await;
        assert_eq!(Instant::now() - start, PATIENCE, "the first piece counts");
        assert_eq!(thoughts.take(), "one two ");
        assert!(thoughts.push("a line\nand more"));
        assert_eq!(thoughts.take(), "a line\nand more");
        assert!(!thoughts.push(&"x".repeat(ENOUGH_BYTES - 1)));
        assert!(thoughts.push("x"));
        assert_eq!(thoughts.take().len(), ENOUGH_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_due_while_nothing_is_held() {
        let mut thoughts = Thoughts::default();
        assert!(!thoughts.push(""));
        let limit = Duration::from_secs(3600);
        assert!(tokio::time::timeout(limit, thoughts.due()).await.is_err());
        thoughts.push("x");
        thoughts.take();
        assert!(tokio::time::timeout(limit, thoughts.due()).await.is_err());
    }
}
