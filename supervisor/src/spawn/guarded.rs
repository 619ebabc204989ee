use super::Launch;
use crate::child::{Spawn, SpawnError, SpawnFuture};
use crate::machine::StartFault;
use std::path::PathBuf;
use turnhost_protocol::ErrorKind;

#[derive(Debug)]
pub(crate) struct GuardSpawn {
    program: Option<PathBuf>,
    launch: Launch,
}

impl GuardSpawn {
    pub(crate) fn new(program: Option<PathBuf>, launch: Launch) -> Self {
        Self { program, launch }
    }
}

impl Spawn for GuardSpawn {
    fn spawn(&mut self, _epoch: u64) -> SpawnFuture<'_> {
        Box::pin(async {
            let fault = StartFault { kind: ErrorKind::SpawnFailed, detail: "not built yet".to_owned() };
            Err(SpawnError { permanent: true, fault })
        })
    }
}
