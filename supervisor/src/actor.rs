//! The driver.
use crate::child::Spawn;
use crate::command::Command;
use crate::config::Config;
use crate::events::Subscribers;
use crate::reseed::ReseedSource;
use crate::status::StateSnapshot;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The actor's ends of a handle's channels.
pub(crate) struct Parts {
    pub orders: mpsc::Receiver<Command>,
    pub publish: watch::Sender<StateSnapshot>,
    pub subscribers: Arc<Subscribers>,
}

pub(crate) struct Actor {
    parts: Parts,
}

impl Actor {
    pub(crate) fn new(_: Config, _: Option<ReseedSource>, _: Box<dyn Spawn + Send>, parts: Parts) -> Self {
        Self { parts }
    }
}

pub(crate) fn run_thread(make: impl FnOnce() -> Actor) {
    let actor = make();
    let _ = (actor.parts.orders, actor.parts.publish);
    actor.parts.subscribers.close();
}
