//! What the machine wants done to the world.

use super::view::LastHello;
use super::{Actor, HostReply, SpawnJob, Spawned, Waiter};
use crate::child::{Spawn, SpawnError};
use crate::config::Registry;
use crate::error::CallError;
use crate::io::Running;
use crate::machine::{Counted, Effect, Input, StartFault};
use crate::registry::{Entry, Reconciled, RegistryError, RegistryFile};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use turnhost_protocol::ErrorKind;

/// What has become of the registry.
#[derive(Debug, Default)]
pub(super) enum RegistryState {
    /// It was not asked for yet, or could not be had and may be the next time.
    #[default]
    Untried,
    /// There is none, or it could not be had and the embedder runs without it.
    Off,
    /// Its lock is held.
    Held { file: Box<RegistryFile>, path: PathBuf, reconciled: Reconciled },
}

impl RegistryState {
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Untried | Self::Off => None,
            Self::Held { path, .. } => Some(path),
        }
    }

    pub(super) fn reconciled(&self) -> Option<&'static str> {
        match self {
            Self::Untried | Self::Off => None,
            Self::Held { reconciled, .. } => Some(reconciled.as_str()),
        }
    }

    /// Gives the lock back. The file stays while a host may live: the next supervisor finds it.
    pub(super) fn release(&mut self) {
        *self = Self::Off;
    }
}

impl Actor {
    pub(super) fn perform_one(&mut self, effect: Effect<Waiter, HostReply>) {
        match effect {
            Effect::Spawn { epoch } => self.spawn(epoch),
            Effect::Register { epoch } => self.register(epoch),
            Effect::Unregister { .. } => {
                if let RegistryState::Held { file, .. } = &mut self.registry {
                    file.remove();
                }
            }
            Effect::Reseed { epoch } => self.reseed(epoch),
            Effect::Term { epoch } => {
                if let Some(running) = self.of_epoch(epoch) {
                    running.stdin = None;
                    running.control.term();
                } else {
                    self.cancel_spawn(epoch);
                }
            }
            Effect::Kill { epoch } => {
                if let Some(running) = self.of_epoch(epoch) {
                    running.diagnose();
                    running.stdin = None;
                    running.control.kill();
                } else {
                    self.cancel_spawn(epoch);
                }
            }
            Effect::Abandon { epoch } => {
                if self.of_epoch(epoch).is_some() {
                    tracing::error!(epoch, "the host could not be killed and is left to itself");
                    self.running = None;
                }
            }
            Effect::Resolve { waiter, ending } => self.resolve(waiter, ending),
            Effect::Started(result) => self.answer_starts(result),
            Effect::Stopped(report) => self.answer_stops(&report),
            Effect::Count(counted) => self.count(counted),
            Effect::Publish(snapshot) => self.publish(snapshot),
        }
    }

    fn of_epoch(&mut self, epoch: u64) -> Option<&mut Running> {
        self.running.as_mut().filter(|running| running.epoch == epoch)
    }

    fn spawn(&mut self, epoch: u64) {
        // Whatever is left of the last child is nobody's any more.
        self.running = None;
        self.reseeding = None;
        self.reseeds.clear();
        self.stderr.clear();
        self.last_hello = LastHello::default();
        let registry = match (&self.registry, &self.config.registry) {
            (RegistryState::Untried, Registry::Off) => {
                self.registry = RegistryState::Off;
                None
            }
            (RegistryState::Untried, wanted) => Some(wanted.clone()),
            (RegistryState::Off | RegistryState::Held { .. }, _) => None,
        };
        let job: SpawnJob = Box::pin(spawn_job(Rc::clone(&self.spawner), epoch, registry));
        self.spawning = Some((epoch, job));
    }

    /// Cancelling leaves no process behind; the machine hears that none came of it.
    fn cancel_spawn(&mut self, epoch: u64) {
        if self.spawning.as_ref().is_none_or(|(spawning, _)| *spawning != epoch) {
            return;
        }
        self.spawning = None;
        let detail = "it was stopped while it was being started".to_owned();
        let fault = StartFault::new(ErrorKind::SpawnFailed, detail);
        let input = Input::SpawnFailed { epoch, fault, permanent: false };
        self.machine.handle(Self::now(), input, &mut self.effects);
    }

    pub(super) fn on_spawned(&mut self, epoch: u64, spawned: Spawned) {
        self.spawning = None;
        if let Some(registry) = spawned.registry {
            self.registry = registry;
        }
        match spawned.child {
            Ok(child) => {
                tracing::debug!(epoch, pid = child.identity.pid, "host started");
                self.running = Some(Running::new(epoch, Self::now(), child, self.config.max_frame_bytes));
                self.note_pid();
            }
            Err(SpawnError { permanent, fault }) => {
                self.input(Input::SpawnFailed { epoch, fault, permanent });
            }
        }
    }

    fn register(&mut self, epoch: u64) {
        let argv = self.config.argv.clone();
        let (RegistryState::Held { file, .. }, Some(running)) = (&mut self.registry, &self.running) else {
            return;
        };
        let Some(hello) = &running.hello else { return };
        let entry = Entry {
            host: running.identity.clone(),
            guard: running.guard.clone(),
            boot_id: hello.boot_id.as_str().to_owned(),
            build_sha: hello.build_sha.clone().unwrap_or_default(),
            argv,
        };
        if let Err(error) = file.write(&entry) {
            // It could be written when the lock was taken, and the host runs: it goes on without.
            tracing::error!(epoch, %error, "the host runs unregistered");
        }
    }

    fn count(&mut self, counted: Counted) {
        use crate::events::ProtocolErrorKind as Kind;
        match counted {
            Counted::LateAck => {
                self.counters.late_acks += 1;
                self.protocol_error(Kind::LateFrame, "an answer to a call that had timed out".to_owned());
            }
            Counted::DuplicateTerminal => {
                self.counters.duplicate_terminals += 1;
                self.protocol_error(Kind::DuplicateTerminal, "a turn was ended again".to_owned());
            }
            Counted::LateFrame => self.late("a frame"),
            Counted::UnknownRequest => {
                self.protocol_error(
                    Kind::UnknownRequest,
                    "an answer to a request that was never open".to_owned(),
                );
            }
        }
    }

    pub(super) fn answer_starts(&mut self, result: Result<u64, StartFault>) {
        let answer = match result {
            Ok(_) => Ok(self.ready()),
            Err(fault) => {
                let mut error = CallError::new(fault.kind, self.start_message(&fault));
                (error.errno, error.pid) = (fault.errno, fault.pid);
                Err(error)
            }
        };
        for reply in std::mem::take(&mut self.starts) {
            let _ = reply.send(answer.clone());
        }
    }
}

/// Lock and file of the registry are tried before anything is spawned.
async fn spawn_job(
    spawner: Rc<AsyncMutex<Box<dyn Spawn>>>,
    epoch: u64,
    registry: Option<Registry>,
) -> Spawned {
    let registry = match registry {
        None => None,
        Some(wanted) => match open_registry(wanted).await {
            Ok(state) => Some(state),
            Err(fault) => {
                let child = Err(SpawnError { permanent: true, fault });
                return Spawned { registry: None, child };
            }
        },
    };
    let child = spawner.lock().await.spawn(epoch).await;
    Spawned { registry, child }
}

async fn open_registry(wanted: Registry) -> Result<RegistryState, StartFault> {
    let (path, optional) = match wanted {
        Registry::Off => return Ok(RegistryState::Off),
        Registry::Required(path) => (path, false),
        Registry::Optional(path) => (path, true),
    };
    // On a thread of its own: ending an orphan takes seconds.
    let (done, opened) = oneshot::channel();
    let thread = std::thread::Builder::new().name("supervisor-registry".to_owned());
    let started = thread.spawn(move || {
        let _ = done.send(take_registry(path));
    });
    if let Err(error) = started {
        let detail = format!("cannot start a thread for the registry: {error}; free some threads");
        return Err(StartFault::new(ErrorKind::SpawnFailed, detail));
    }
    match opened.await {
        Ok(Ok(state)) => Ok(state),
        Ok(Err(error)) if optional => {
            tracing::warn!(%error, "the host runs unregistered");
            Ok(RegistryState::Off)
        }
        Ok(Err(error)) => Err(error.fault()),
        Err(_) => Err(StartFault::new(
            ErrorKind::RegistryUnwritable,
            "the registry could not be looked at; report this as a bug".to_owned(),
        )),
    }
}

fn take_registry(path: PathBuf) -> Result<RegistryState, RegistryError> {
    let mut file = RegistryFile::open(&path)?;
    let reconciled = file.reconcile()?;
    Ok(RegistryState::Held { file: Box::new(file), path, reconciled })
}
