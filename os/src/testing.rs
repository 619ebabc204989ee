//! Processes and patience for the tests of this crate.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For a machine that is very slow; no test depends on its speed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until the condition holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A shell script as a child of the test; killed with all its descendants, and reaped, with it.
pub(crate) struct Process(Child);

impl Process {
    #[expect(clippy::disallowed_methods, reason = "the one place where a test starts a process")]
    pub(crate) fn start(script: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    pub(crate) fn reap(&mut self) {
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for pid in crate::tree::descendants(self.pid()) {
            if let Ok(process) = crate::identity::ProcessHandle::open(pid) {
                let _ = process.signal(rustix::process::Signal::KILL);
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
