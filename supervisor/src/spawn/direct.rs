use super::Launch;
use crate::child::{Spawn, SpawnError, SpawnFuture};
use crate::machine::StartFault;

use turnhost_protocol::ErrorKind;

#[derive(Debug)]
pub(crate) struct DirectSpawn {
    launch: Launch,
}

impl DirectSpawn {
    pub(crate) fn new(launch: Launch) -> Self {
        Self { launch }
    }
}

impl Spawn for DirectSpawn {
    fn spawn(&mut self, _epoch: u64) -> SpawnFuture<'_> {
        Box::pin(async {
            let fault = StartFault { kind: ErrorKind::SpawnFailed, detail: "not built yet".to_owned() };
            Err(SpawnError { permanent: true, fault })
        })
    }
}
