//! Everything that a program started, found again after it moved to another group or session or lost its parent.

use rustix::process::Signal;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;
use turnhost_os::ProcessIdentity;
use turnhost_os::tree::{descendants, with_environment};

/// Names the program's processes in their environment, for those that no longer descend from it.
const MARKER: &str = "TURNHOST_PROGRAM";
/// How often leftovers are looked at: ending them is all that the turn waits for.
const POLL: Duration = Duration::from_millis(10);
/// How long a killed process may take to vanish: one in an uninterruptible wait must not hold the turn.
const VANISH: Duration = Duration::from_secs(1);

/// The processes below a program.
#[derive(Debug)]
pub(super) struct Tree {
    /// The program, until it is reaped.
    root: Option<i32>,
    marker: String,
    /// Those that were seen below it: they stay ours when their parent dies.
    known: Vec<ProcessIdentity>,
}

impl Tree {
    /// Name and value of an environment variable that marks one program's processes.
    pub(super) fn marker() -> (&'static str, String) {
        (MARKER, uuid::Uuid::new_v4().to_string())
    }

    pub(super) fn new(root: i32, marker: String) -> Self {
        Self { root: Some(root), marker, known: Vec::new() }
    }

    /// The program was reaped; its pid means nothing any more.
    pub(super) fn root_is_gone(&mut self) {
        self.root = None;
    }

    /// Remembers every process that can be found now, and forgets those that ended.
    pub(super) fn look(&mut self) {
        let found: Vec<ProcessIdentity> = self.list().into_iter().filter_map(ProcessIdentity::of).collect();
        // Listed again after the identities were taken: one that lives and is listed still is the one that was meant,
        // and not another that got its pid in between.
        let again = self.list();
        self.known = found.into_iter().filter(|one| again.contains(&one.pid) && one.is_alive()).collect();
    }

    fn list(&self) -> HashSet<i32> {
        let mut list: HashSet<i32> = self.root.into_iter().flat_map(descendants).collect();
        for known in self.known.iter().filter(|known| known.is_alive()) {
            list.insert(known.pid);
            list.extend(descendants(known.pid));
        }
        list.extend(with_environment(MARKER, &self.marker));
        // The program itself is not below itself; its own signals go to its group.
        list.retain(|pid| Some(*pid) != self.root);
        list
    }

    /// Kills every process that is known or can be found. They may take a moment to vanish.
    pub(super) fn kill(&mut self) {
        self.look();
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        for known in &self.known {
            // Gone in between, or not ours to signal (setuid): nothing to do about either.
            let _ = known.open().and_then(|handle| handle.signal(signal));
        }
    }

    /// Ends what is left: a request first, `grace` later by force, again and again until nothing is found.
    pub(super) async fn end_leftovers(&mut self, grace: Duration) {
        self.look();
        self.signal(Signal::TERM);
        let forced = Instant::now() + grace;
        while !self.known.is_empty() && Instant::now() < forced + VANISH {
            tokio::time::sleep(POLL).await;
            if Instant::now() < forced { self.look() } else { self.kill() }
        }
    }
}
