//! Makes hosts: under a guard, or directly with the weaker promise.

use crate::child::Spawn;
use crate::config::{Config, Guard};
use std::ffi::OsString;
use std::path::PathBuf;

mod direct;
mod guarded;

/// What is started, complete: nothing of the embedder's process is added to it later.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// Program and arguments; a program without a slash is looked up in the host's own `PATH`.
    pub argv: Vec<OsString>,
    /// Working directory; `None` = the embedder's at the time of the spawn.
    pub cwd: Option<PathBuf>,
    /// The environment from [`crate::environment::host_environment`].
    pub environment: Vec<(OsString, OsString)>,
}

/// The spawn that a configuration asks for. `environment` is that of the host.
pub(crate) fn from_config(config: &Config, environment: Vec<(OsString, OsString)>) -> Box<dyn Spawn + Send> {
    let launch = Launch { argv: config.argv.clone(), cwd: config.cwd.clone(), environment };
    match &config.guard {
        Guard::CurrentExe => Box::new(guarded::GuardSpawn::new(None, launch)),
        Guard::Program(path) => Box::new(guarded::GuardSpawn::new(Some(path.clone()), launch)),
        Guard::None => Box::new(direct::DirectSpawn::new(launch)),
    }
}
