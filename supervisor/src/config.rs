//! What an embedder can choose, with the defaults of the specification.

use crate::restart::RestartPolicy;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use turnhost_protocol::limits;

/// How to run and watch a host.
#[derive(Debug, Clone)]
pub struct Config {
    /// Program and arguments of the host.
    pub argv: Vec<OsString>,
    /// Its working directory; `None` = the embedder's.
    pub cwd: Option<PathBuf>,
    /// What it inherits.
    pub env_policy: EnvPolicy,
    /// Variables passed by name whatever the policy says.
    pub env_pass: Vec<OsString>,
    /// Variables set for the host, last.
    pub env_set: Vec<(OsString, OsString)>,
    /// Who ends the host's tree.
    pub guard: Guard,
    /// Where the host is recorded.
    pub registry: Registry,
    /// From spawn to hello.
    pub hello_timeout: Duration,
    /// Heartbeat period asked of the host, whole seconds; zero = none.
    pub heartbeat: Duration,
    /// Heartbeats missed until the host is hung; 0 = never.
    pub hang_after_heartbeats: u32,
    /// A write without progress for this long makes the host hung.
    pub write_stall: Duration,
    /// Back-off and budget.
    pub restart: RestartPolicy,
    /// Largest frame in bytes, both ways.
    pub max_frame_bytes: usize,
    /// Each of the two waits of a stop.
    pub grace: Duration,
    /// How long a request waits for a child.
    pub unavailable_after: Duration,
    /// Requests that may wait unsent.
    pub max_waiting: usize,
    /// Build that the host must have; `None` = any.
    pub expected_build_sha: Option<String>,
    /// Home that the host must name; `None` = `HERMES_HOME` as given to the host.
    pub expected_home: Option<String>,
    /// Events of one turn that its mailbox holds before deltas merge.
    pub mailbox_events: usize,
    /// Bytes of them.
    pub mailbox_bytes: usize,
    /// How long a [`crate::ReseedSource`] may take for all sessions of a new host; nothing else is sent meanwhile.
    pub reseed_timeout: Duration,
}

/// What a host inherits of the embedder's environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EnvPolicy {
    /// Everything but loader and interpreter hooks and names that look like secrets; the list is at the
    /// top of `supervisor/src/environment.rs`.
    #[default]
    Scrubbed,
    /// Everything.
    Inherit,
    /// PATH, HOME, LANG, TMPDIR and HERMES_* only.
    Allow,
}

/// Who ends the host's tree, whatever happens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Guard {
    /// The embedder's own program, which calls [`crate::guard_main`] first thing in `main`.
    #[default]
    CurrentExe,
    /// Any installed `turnhost`, started as `PROGRAM guard`.
    Program(PathBuf),
    /// Nobody: the host gets a session of its own and a group kill is all. The weaker promise is written in
    /// `docs/embedding.md`.
    None,
}

/// Where a host is recorded, so that the next start finds an orphan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Registry {
    /// Nowhere; any number of supervisors run side by side.
    #[default]
    Off,
    /// In this file, or the start fails.
    Required(PathBuf),
    /// In this file if it can be had, else the host runs unregistered and the status says so.
    Optional(PathBuf),
}

impl Config {
    /// The defaults for a host of these words.
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: None,
            env_policy: EnvPolicy::default(),
            env_pass: Vec::new(),
            env_set: Vec::new(),
            guard: Guard::default(),
            registry: Registry::default(),
            hello_timeout: Duration::from_secs(10),
            heartbeat: limits::DEFAULT_HEARTBEAT,
            hang_after_heartbeats: 3,
            write_stall: Duration::from_secs(30),
            restart: RestartPolicy::default(),
            max_frame_bytes: limits::MAX_FRAME_BYTES,
            grace: Duration::from_secs(10),
            unavailable_after: Duration::from_secs(10),
            max_waiting: 1024,
            expected_build_sha: None,
            expected_home: None,
            mailbox_events: 4096,
            mailbox_bytes: 4 * 1024 * 1024,
            reseed_timeout: Duration::from_secs(5),
        }
    }
}
