//! Agents that block. Their threads run in real time, so the clock of these tests does too wherever a thread is waited
//! for.

use super::*;
use crate::turn::context::{TurnContext, WorkItem};
use crate::{AgentResult, Answer, BlockingAgent};
use crossbeam_channel::{Receiver, Sender, bounded};

/// Does what its prompt says: answers with its thread, panics, or waits until it is let go.
struct Told {
    release: Receiver<()>,
}

impl BlockingAgent for Told {
    fn run(&self, turn: TurnContext) -> AgentResult {
        match turn.prompt.as_str() {
            "panic" => panic!("as told"),
            "hang" => {
                let _ = self.release.recv();
            }
            _ => {
                let name = std::thread::current().name().unwrap_or_default().to_owned();
                let _ = turn.sink.send_blocking(WorkItem::Delta(name));
            }
        }
        Ok(Answer::default())
    }
}

async fn start(workers: usize) -> (Rig, Sender<()>) {
    let (let_go, release) = bounded(0);
    let agents = builtin(None, &Default::default()).with_blocking("told", Told { release });
    let mut rig = Setup { workers, agents, ..Setup::default() }.start().await;
    rig.until("hello").await;
    (rig, let_go)
}

async fn tell(rig: &mut Rig, sid: &str, prompt: &str) {
    let frame = json!({"type": "turn.start", "sid": sid, "request_id": sid, "text": prompt, "agent": "told"});
    rig.send(frame).await;
}

#[tokio::test]
async fn turns_beyond_the_workers_wait_in_order_whatever_their_kind() {
    let (mut rig, _let_go) = start(2).await;
    for sid in ["a", "b", "c", "d"] {
        let agent = if sid == "c" { "told" } else { "scripted" };
        rig.send(json!({"type": "turn.start", "sid": sid, "request_id": sid, "agent": agent, "text": "name",
            "script": [{"sleep_ms": 50}]}))
            .await;
    }
    let mut running = 0;
    let mut started = Vec::new();
    while started.len() < 4 || running > 0 {
        let frame = rig.next().await.unwrap();
        match frame["type"].as_str().unwrap() {
            "turn.started" => {
                running += 1;
                started.push(frame["request_id"].clone());
            }
            "turn.end" => running -= 1,
            _ => {}
        }
        assert!(running <= 2, "{frame}");
    }
    assert_eq!(started, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_panic_of_a_blocking_agent_ends_its_turn_and_its_thread_takes_the_next() {
    let (mut rig, _let_go) = start(1).await;
    for _ in 0..3 {
        tell(&mut rig, "s", "panic").await;
        let error = rig.until("turn.error").await;
        assert_eq!(
            (&error["reason"], &error["message"]),
            (&json!("exception"), &json!("the agent panicked: as told"))
        );
        tell(&mut rig, "s", "name").await;
        assert_eq!(rig.until("turn.end").await["final_response"], "turn-1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocking_agent_that_listens_to_nobody_loses_its_turn_and_the_worker_is_free() {
    let (mut rig, _let_go) = start(1).await;
    tell(&mut rig, "s", "hang").await;
    rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
    rig.until("interrupt.ack").await;
    let told = Instant::now();
    assert_eq!(rig.until("turn.end").await["interrupted"], true);
    assert_eq!(told.elapsed().as_secs(), 10);
    tokio::time::resume();
    tell(&mut rig, "s", "name").await;
    let end = rig.until("turn.end").await;
    assert!(
        end["final_response"].as_str().unwrap().starts_with("turn-"),
        "the first one is still held: {end}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stuck_thread_never_holds_up_the_end_of_the_host() {
    let (mut rig, let_go) = start(2).await;
    tell(&mut rig, "a", "hang").await;
    tell(&mut rig, "b", "hang").await;
    rig.send(json!({"type": "shutdown", "request_id": "bye"})).await;
    let told = Instant::now();
    let frames = rig.rest().await;
    assert_eq!(told.elapsed(), SECOND);
    for turn in ["a", "b"] {
        assert_eq!(of(&frames, turn).last().unwrap()["reason"], "shutdown");
    }
    assert_eq!(frames.last().unwrap()["type"], "shutdown.ack");
    drop(let_go);
}
