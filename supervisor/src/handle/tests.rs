//! The handle over its real thread, with hosts in memory: callbacks, the blocking facade, the drop.

use super::*;
use crate::actor::fake::{FakeHost, FakeHosts, config, fake_spawn};
use crate::blocking::{self, block_on};
use crate::machine::Exit;
use crate::turn::TurnOutcome;
use pretty_assertions::assert_eq;
use serde_json::Value;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

/// A supervisor on its own thread, whose hosts are right ones that live on another.
fn serve(config: Config) -> blocking::HostSupervisor {
    let (supervisor, hosts) = supervisor(config);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(hosts));
    });
    supervisor
}

fn supervisor(config: Config) -> (blocking::HostSupervisor, FakeHosts) {
    let (spawn, hosts) = fake_spawn(65_536);
    let supervisor = HostSupervisor::start_thread(config, None, Box::new(spawn)).unwrap();
    (supervisor.into(), hosts)
}

/// Every host says hello and answers everything; the text `hang` is begun and not ended, `die` kills the host.
async fn play(mut hosts: FakeHosts) {
    while let Some(mut host) = hosts.hosts.recv().await {
        host.hello(&format!("boot-{}", host.epoch)).await;
        let mut hanging = Vec::new();
        while let Some(frame) = host.read().await {
            if !answer(&mut host, &frame, &mut hanging).await {
                break;
            }
        }
        host.die(Exit::Code(0)).await;
    }
}

async fn answer(host: &mut FakeHost, frame: &Value, hanging: &mut Vec<Value>) -> bool {
    use serde_json::json;
    let id = &frame["request_id"];
    match (frame["type"].as_str().unwrap(), frame["text"].as_str()) {
        ("turn.start", Some("die")) => return false,
        ("turn.start", Some("hang")) => {
            host.begin_turn(frame, 1).await;
            hanging.push(frame.clone());
        }
        ("turn.start", _) => {
            host.begin_turn(frame, 3).await;
            host.end_turn(frame).await;
        }
        ("interrupt", _) => {
            let hung = hanging.pop();
            host.send(json!({"type": "interrupt.ack", "request_id": id, "applied": hung.is_some()})).await;
            if let Some(hung) = hung {
                host.send(json!({"type": "turn.end", "request_id": hung["request_id"], "interrupted": true}))
                    .await;
            }
        }
        ("session.seed", _) => host.send(json!({"type": "session.seeded", "request_id": id})).await,
        ("shutdown", _) => {
            host.send(json!({"type": "shutdown.ack", "request_id": id})).await;
            return false;
        }
        _ => host.send(json!({"type": "control.ack", "request_id": id})).await,
    }
    true
}

fn turn(sid: &str, text: &str) -> TurnStart {
    TurnStart { sid: Some(sid.into()), text: Some(text.to_owned()), ..TurnStart::default() }
}

fn save(sid: &str) -> Control {
    Control { sid: Some(sid.into()), route_name: Some("session.save".to_owned()), ..Control::default() }
}

/// Calls `act` on the delivery thread when the turn has ended, and gives what it gave.
fn on_end<T: Send + 'static>(
    supervisor: &blocking::HostSupervisor,
    text: &str,
    act: impl FnOnce() -> T + Send + 'static,
) -> Receiver<T> {
    let (tell, told): (SyncSender<T>, _) = sync_channel(1);
    let turn = supervisor.submit_turn(turn("s", text)).unwrap();
    let mut act = Some(act);
    supervisor
        .on_turn(turn, move |event| {
            if let TurnEvent::Ended(_) = event
                && let Some(act) = act.take()
            {
                tell.send(act()).unwrap();
            }
        })
        .unwrap();
    told
}

#[test]
fn the_blocking_facade_runs_a_turn_from_start_to_stop() {
    let supervisor = serve(config());
    assert_eq!(supervisor.start().unwrap().boot_id, "boot-1");
    let mut turn = supervisor.submit_turn(turn("s", "hello")).unwrap();
    let kinds: Vec<bool> = turn.by_ref().map(|event| matches!(event, TurnEvent::Delta(_))).collect();
    assert_eq!(kinds, [false, true, true, true, false]);
    assert!(matches!(turn.outcome(), TurnOutcome::Completed(_)));
    assert!(supervisor.control(save("s"), PATIENCE).is_ok());
    let summary = supervisor.shutdown(StopOptions::default()).unwrap();
    assert_eq!((summary.exit_code, supervisor.state().state), (Some(0), HostState::Stopped));
}

#[test]
fn the_blocking_facade_works_on_a_thread_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let supervisor = serve(config());
        let turn = supervisor.submit_turn(turn("s", "hello")).unwrap();
        assert!(matches!(turn.outcome(), TurnOutcome::Completed(_)));
    });
}

#[test]
fn a_task_of_a_runtime_may_make_any_number_of_blocking_calls() {
    let (tell, told) = sync_channel(1);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let supervisor = serve(config());
            // A task's budget in tokio is 128 steps; what is over it would wait for a scheduler that waits for us.
            for _ in 0..500 {
                supervisor.status().unwrap();
            }
            tell.send(()).unwrap();
        });
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn a_limit_that_no_clock_reaches_is_for_ever() {
    let supervisor = serve(config());
    let mut events = supervisor.events();
    let mut turn = supervisor.submit_turn(turn("s", "hello")).unwrap();
    assert!(turn.next_within(Duration::MAX).is_some());
    assert!(events.next_within(Duration::MAX).is_some());
    let stopped = supervisor.shutdown(StopOptions::default());
    assert!(stopped.is_ok());
    assert!(supervisor.wait_for_state(Duration::MAX, |state| state.state == HostState::Stopped).is_some());
}

#[test]
fn the_async_calls_need_no_runtime() {
    let supervisor = serve(config());
    let inner = supervisor.as_async().clone();
    block_on(async move {
        let mut turn = inner.submit_turn(turn("s", "hello")).await.unwrap();
        while turn.next().await.is_some() {}
        inner.shutdown(StopOptions::default()).await.unwrap();
    });
}

#[test]
fn a_callback_may_call_everything() {
    let supervisor = serve(config());
    let in_callback = supervisor.clone();
    let told = on_end(&supervisor, "hello", move || {
        in_callback.status().unwrap();
        in_callback.control(save("s"), PATIENCE).unwrap();
        in_callback.interrupt("s".into(), None).unwrap();
        let outcome = in_callback.submit_turn(turn("s", "again")).unwrap().outcome();
        assert!(matches!(outcome, TurnOutcome::Completed(_)));
        in_callback.shutdown(StopOptions::default()).unwrap();
        in_callback.state().state
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(HostState::Stopped));
}

#[test]
fn the_same_in_the_callback_of_the_hosts_events() {
    let supervisor = serve(config());
    let in_callback = supervisor.clone();
    let (tell, told) = sync_channel(1);
    supervisor
        .on_event(move |notice| {
            if let HostNotice::State(state) = notice
                && state.state == HostState::Ready
            {
                let _ = tell.try_send(in_callback.control(save("s"), PATIENCE).is_ok());
            }
        })
        .unwrap();
    supervisor.start().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
}

#[test]
fn the_last_handle_may_be_dropped_in_a_callback() {
    let supervisor = serve(config());
    let open = supervisor.submit_turn(turn("other", "hang")).unwrap();
    let last = supervisor.clone();
    let told = on_end(&supervisor, "hello", move || drop(last));
    drop(supervisor);
    told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(open.outcome().fail_reason(), Some(turnhost_protocol::FailReason::Dropped));
}

#[test]
fn a_callback_that_panics_or_is_slow_holds_up_no_turn() {
    let supervisor = serve(config());
    let (release, gate) = sync_channel::<()>(0);
    supervisor
        .on_turn(supervisor.submit_turn(turn("a", "hello")).unwrap(), |_| panic!("a callback may panic"))
        .unwrap();
    let slow = supervisor.submit_turn(turn("b", "hello")).unwrap();
    supervisor
        .on_turn(slow, move |_| {
            let _ = gate.recv();
        })
        .unwrap();
    let outcome = supervisor.submit_turn(turn("c", "hello")).unwrap().outcome();
    assert!(matches!(outcome, TurnOutcome::Completed(_)));
    drop(release);
}

#[test]
fn every_callback_has_run_when_a_stop_returns() {
    let supervisor = serve(config());
    let (tell, told) = sync_channel(100);
    for n in 0..20 {
        let turn = supervisor.submit_turn(turn(&n.to_string(), "hang")).unwrap();
        let tell = tell.clone();
        supervisor
            .on_turn(turn, move |event| {
                if let TurnEvent::Ended(outcome) = event {
                    tell.send(outcome.fail_reason()).unwrap();
                }
            })
            .unwrap();
    }
    supervisor.shutdown(StopOptions::default()).unwrap();
    let seen: Vec<_> = told.try_iter().collect();
    assert_eq!(seen, [Some(turnhost_protocol::FailReason::Shutdown); 20]);
}

#[test]
fn a_crash_ends_the_turn_and_the_next_one_works() {
    let supervisor = serve(config());
    let crashed = supervisor.submit_turn(turn("s", "die")).unwrap().outcome();
    assert_eq!(crashed.fail_reason(), Some(turnhost_protocol::FailReason::Crash));
    let next = supervisor.submit_turn(turn("s", "hello")).unwrap().outcome();
    assert!(matches!(next, TurnOutcome::Completed(_)), "{next:?}");
    let state = supervisor.wait_for_state(PATIENCE, |state| state.state == HostState::Ready).unwrap();
    assert_eq!((state.incarnation, state.restarts), (2, 1));
}

/// The host never says hello, and nobody watches it: the drop comes back all the same.
#[test]
fn a_drop_without_a_stop_is_short_and_settles_everything() {
    let (supervisor, _hosts) = supervisor(config());
    let waiting = supervisor.submit_turn(turn("s", "hello")).unwrap();
    let began = Instant::now();
    drop(supervisor);
    assert!(began.elapsed() < PATIENCE / 2);
    let TurnOutcome::Failed(error) = waiting.outcome() else { panic!("it did not fail") };
    assert_eq!((error.fail_reason().as_str(), error.turn_started), ("dropped", Some(false)));
}

#[test]
fn a_waiting_call_outlives_the_handle_it_was_made_with() {
    let (supervisor, _hosts) = supervisor(config());
    let inner = supervisor.as_async().clone();
    drop(supervisor);
    let mut call = Box::pin(inner.control(save("s"), Duration::from_millis(20)));
    let result = block_on(&mut call);
    assert_eq!(result.unwrap_err().kind, ErrorKind::Timeout);
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let kind = |config| HostSupervisor::new(config).unwrap_err().kind;
    assert_eq!(kind(Config::new(Vec::<String>::new())), ErrorKind::Usage);
    assert_eq!(kind(Config { max_frame_bytes: 10, ..config() }), ErrorKind::Usage);
}

#[test]
fn ten_thousand_turns_have_one_end_each() {
    let supervisor = serve(config());
    let (tell, told) = sync_channel(20_000);
    for n in 0..10_000 {
        let turn = supervisor.submit_turn(turn(&n.to_string(), "hello"));
        let turn = match turn {
            Ok(turn) => turn,
            // The host is slower than this loop; the bound is no ending.
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Overloaded);
                tell.send(n).unwrap();
                continue;
            }
        };
        let tell = tell.clone();
        supervisor
            .on_turn(turn, move |event| {
                if let TurnEvent::Ended(_) = event {
                    tell.send(n).unwrap();
                }
            })
            .unwrap();
    }
    let mut seen = vec![0; 10_000];
    for _ in 0..10_000 {
        seen[told.recv_timeout(PATIENCE).unwrap()] += 1;
    }
    assert!(told.try_recv().is_err());
    assert!(seen.iter().all(|count| *count == 1));
}

#[tokio::test]
async fn a_thread_that_cannot_be_started_is_an_error_inside_a_runtime_too() {
    let impossible = std::thread::Builder::new().stack_size(1 << 60);
    let (spawn, _hosts) = fake_spawn(65_536);
    let error = HostSupervisor::start_on(impossible, config(), None, Box::new(spawn)).err().unwrap();
    assert_eq!(error.kind, ErrorKind::SpawnFailed);
    assert!(error.message.contains("thread"), "{}", error.message);
}
