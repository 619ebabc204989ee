//! What one test starts, and the proof that nothing of it is left.

use crate::launch::Launch;
use crate::wait::{DEADLINE, poll_until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use turnhost_os::ProcessIdentity;

/// The environment variable that everything of a scenario carries.
pub const MARKER: &str = "TURNHOST_TEST_MARKER";

/// Variables of whoever runs the tests that would change what is tested.
const UNSET: &[&str] = &[
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HERMES_COMPUTE_HOST_CHILD",
    "HERMES_COMPUTE_HOST_HEARTBEAT_SECS",
    "HERMES_COMPUTE_HOST_MAX_FRAME_BYTES",
    "HERMES_TUI_RPC_POOL_WORKERS",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "RUST_LOG",
    "TURNHOST_GUARD",
];

/// A marker and a home of its own for everything that a test starts. Declare it first: it is dropped last, and then
/// no process with its marker may be left.
#[derive(Debug)]
pub struct Scenario {
    marker: String,
    home: TempDir,
}

impl Scenario {
    /// A scenario with an empty home.
    ///
    /// # Panics
    /// If the home cannot be made.
    #[expect(clippy::new_without_default, reason = "it makes a folder, which a default value should not")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let home = tempfile::Builder::new().prefix("turnhost-test-").tempdir();
        let home = home.unwrap_or_else(|error| panic!("cannot make a home for the test: {error}"));
        let ticks = ProcessIdentity::of(own_pid()).map_or(0, |identity| identity.start_ticks);
        let marker = format!("{}-{ticks}-{}", own_pid(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { marker, home }
    }

    /// The value of [`MARKER`] here.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// `HERMES_HOME` of everything started here; removed at the end.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A program about to be started with the marker and the home in its environment.
    pub fn launch(&self, program: &Path) -> Launch {
        let launch = Launch::new(program)
            .env(MARKER, &self.marker)
            .env("HERMES_HOME", self.home())
            .env("XDG_STATE_HOME", self.home().join("state"));
        UNSET.iter().fold(launch, |launch, name| launch.env_remove(name))
    }

    /// Living processes of this scenario, whoever their parent is.
    pub fn processes(&self) -> Vec<i32> {
        turnhost_os::tree::with_environment(MARKER, &self.marker)
    }

    /// Waits until `wanted` accepts the living processes of this scenario, and gives their pids.
    ///
    /// # Panics
    /// At the deadline, naming those that are there.
    #[track_caller]
    pub fn wait_processes(&self, what: &str, wanted: impl Fn(&[i32]) -> bool) -> Vec<i32> {
        let found = poll_until(DEADLINE, || Some(self.processes()).filter(|alive| wanted(alive)));
        found.unwrap_or_else(|| panic!("waited in vain for {what}; alive:\n{}", describe(&self.processes())))
    }

    /// Waits until no process of this scenario is left, and gives how long that took.
    ///
    /// # Panics
    /// At the deadline, naming those that are left.
    #[track_caller]
    pub fn wait_nothing_left(&self) -> Duration {
        let started = Instant::now();
        self.wait_processes("the end of every process of the test", <[i32]>::is_empty);
        started.elapsed()
    }

    /// Arguments that make `faulty-host` play these steps, program first.
    pub fn faulty_argv(&self, steps: &[Value]) -> Vec<String> {
        let program = crate::binaries::binary("faulty-host").display().to_string();
        std::iter::once(program).chain(step_arguments(steps)).collect()
    }
}

pub(crate) fn step_arguments(steps: &[Value]) -> impl Iterator<Item = String> + '_ {
    std::iter::once("--step".to_owned()).chain(steps.iter().map(Value::to_string))
}

impl Scenario {
    /// What the drop does, with a deadline of its own: waits for the end of every process, else ends them and fails.
    ///
    /// # Panics
    /// If processes were left, naming them.
    #[track_caller]
    pub fn expect_nothing_left_within(self, deadline: Duration) {
        self.end_what_is_left(deadline);
    }

    #[track_caller]
    fn end_what_is_left(&self, deadline: Duration) {
        let gone = || self.processes().is_empty().then_some(());
        // What a failing test leaves is only cleaned up; it has its own complaint.
        let failing = std::thread::panicking();
        if !failing && poll_until(deadline, gone).is_some() {
            return;
        }
        let named = describe(&self.processes());
        let killed = poll_until(DEADLINE, || {
            for left in self.processes().into_iter().filter_map(ProcessIdentity::of) {
                let _ = left.open().and_then(|handle| handle.signal(Signal::KILL));
            }
            gone()
        });
        let word = if killed.is_some() { "killed now" } else { "and they cannot be killed" };
        assert!(failing, "the test left processes behind ({word}):\n{named}");
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        self.end_what_is_left(DEADLINE);
    }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}

/// One line per process: pid, state, parent, session, command line.
fn describe(pids: &[i32]) -> String {
    pids.iter()
        .map(|pid| {
            let stat = turnhost_os::identity::stat(*pid);
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command: String =
                String::from_utf8_lossy(&command).replace('\0', " ").chars().take(300).collect();
            format!("  {pid} {stat:?} {command}\n")
        })
        .collect()
}
