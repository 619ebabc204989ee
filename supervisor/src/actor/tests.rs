//! The driver over hosts in memory, on a clock that only moves when everybody waits.

mod crash;
mod hostile;
mod reseeding;
mod starts;
mod stops;
mod turns;

use super::fake::{FakeHost, Fate, Plan, Rig, config, pipe, rig};
use crate::config::{Config, Registry};
use crate::events::{HostNotice, ProtocolErrorKind};
use crate::handle::StopOptions;
use crate::machine::{Exit, HostState, StartFault};
use crate::reseed::ReseedSource;
use crate::restart::RestartPolicy;
use crate::status::TurnPhase;
use crate::turn::{TurnEvent, TurnHandle, TurnOutcome};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::{LocalSet, spawn_local};
use turnhost_protocol::frame::{Control, SessionSeed, TurnStart};
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{ErrorKind, FailReason, RawJson};

fn turn(sid: &str, id: &str) -> TurnStart {
    TurnStart {
        sid: Some(sid.into()),
        request_id: Some(id.into()),
        text: Some("hello".to_owned()),
        ..TurnStart::default()
    }
}

fn fields(value: Value) -> RawJson {
    RawJson::from_value(&value).unwrap()
}

fn control(sid: &str, id: &str, route: &str) -> Control {
    Control {
        sid: Some(sid.into()),
        request_id: Some(id.into()),
        route_name: Some(route.to_owned()),
        ..Control::default()
    }
}

/// Every event of a turn as its frame or a word.
async fn all(mut turn: TurnHandle) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(event) = turn.next().await {
        seen.push(word(&event));
    }
    seen
}

fn word(event: &TurnEvent) -> String {
    match event {
        TurnEvent::Started(_) => "started".to_owned(),
        TurnEvent::Delta(delta) => format!("delta {}", delta.text.trim()),
        TurnEvent::Event(event) => format!("event {}", event.kind),
        TurnEvent::Lagged { .. } => "lagged".to_owned(),
        TurnEvent::SessionLost { .. } => "session_lost".to_owned(),
        TurnEvent::Ended(TurnOutcome::Completed(_)) => "completed".to_owned(),
        TurnEvent::Ended(TurnOutcome::Interrupted(_)) => "interrupted".to_owned(),
        TurnEvent::Ended(TurnOutcome::Failed(error)) => format!("failed {}", error.fail_reason()),
    }
}

async fn error_of(turn: TurnHandle) -> Value {
    match turn.outcome().await {
        TurnOutcome::Failed(error) => serde_json::from_str(error.to_json()).unwrap(),
        TurnOutcome::Completed(end) | TurnOutcome::Interrupted(end) => panic!("it ended: {}", end.to_json()),
    }
}

async fn reason_of(turn: TurnHandle) -> FailReason {
    turn.outcome().await.fail_reason().expect("the turn failed")
}

async fn reaches(rig: &Rig, state: HostState) {
    let mut watch = rig.supervisor.watch();
    while watch.current().state != state {
        let waited = tokio::time::timeout(Duration::from_secs(10), watch.changed()).await;
        assert!(waited.is_ok(), "{:?}", watch.current());
    }
}

/// Asks until the counters are as wanted: what the host wrote is read in its own time.
async fn after(rig: &Rig, wanted: impl Fn(&crate::Counters) -> bool) -> crate::Counters {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let counters = rig.supervisor.status().await.unwrap().counters;
        if wanted(&counters) {
            return counters;
        }
        assert!(tokio::time::Instant::now() < deadline, "{counters:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Seeds in the background, for the host to answer.
fn seed(rig: &Rig, sid: &str, contents: &[&str]) -> tokio::task::JoinHandle<()> {
    let history: Vec<RawJson> = contents
        .iter()
        .map(|content| RawJson::from_value(&json!({"role": "user", "content": content})).unwrap())
        .collect();
    let seed = SessionSeed { sid: Some(sid.into()), history: Some(history), ..SessionSeed::default() };
    let supervisor = rig.supervisor.clone();
    spawn_local(async move {
        supervisor.seed(seed).await.unwrap();
    })
}

async fn answer_seed(host: &mut FakeHost) -> Value {
    let frame = host.expect("session.seed").await;
    assert_eq!(frame["report_messages"], true);
    let (sid, id) = (&frame["sid"], &frame["request_id"]);
    host.send(json!({"type": "session.seeded", "sid": sid, "request_id": id})).await;
    frame
}
