//! Random commands, stale and repeated ones too, to a host whose stdout is now read and now not.

use super::*;
use std::collections::HashMap;

/// xorshift: the same walk for the same seed on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// What a request must be answered by, exactly once.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Asked {
    Turn,
    Interrupt,
    Control,
    Seed,
    Respond,
    Nonsense,
}

fn answers(asked: Asked) -> &'static [&'static str] {
    match asked {
        Asked::Turn => &["turn.end", "turn.error"],
        Asked::Interrupt => &["interrupt.ack"],
        Asked::Control => &["control.ack", "control.error"],
        Asked::Seed => &["session.seeded", "error"],
        Asked::Respond => &["respond.ack", "respond.error"],
        Asked::Nonsense => &["error"],
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_is_asked_is_answered_once_and_each_turn_keeps_its_order() {
    for seed in 1..=60 {
        walk(seed).await;
    }
}

async fn walk(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let setup = Setup {
        workers: 1 + usize::try_from(random.below(3)).unwrap(),
        rpc_events: random.below(3) == 0,
        heartbeat: (random.below(2) == 0).then_some(SECOND),
        stdout_bytes: *random.pick(&[256, 4096, 1024 * 1024]),
        ..Setup::default()
    };
    let mut rig = setup.start().await;
    let mut asked: HashMap<String, Asked> = HashMap::new();
    let mut turns = vec!["never".to_owned()];
    let mut frames = Vec::new();
    for step in 0..60 {
        let id = format!("r{step}");
        let sid = *random.pick(&["a", "b", "c", "d"]);
        let (kind, frame) = command(&mut random, &id, sid, &turns, &frames);
        if kind == Asked::Turn {
            turns.push(id.clone());
        }
        asked.insert(id, kind);
        rig.send(frame).await;
        match random.below(4) {
            0 => tokio::time::sleep(Duration::from_millis(random.below(300))).await,
            1 => {
                for _ in 0..random.below(20) {
                    match tokio::time::timeout(Duration::from_millis(1), rig.next()).await {
                        Ok(Some(frame)) => frames.push(frame),
                        Ok(None) | Err(_) => break,
                    }
                }
            }
            _ => {}
        }
    }
    rig.send(json!({"type": "shutdown", "request_id": "bye"})).await;
    frames.extend(rig.rest().await);
    check(seed, &asked, &frames);
}

fn command(random: &mut Random, id: &str, sid: &str, turns: &[String], frames: &[Value]) -> (Asked, Value) {
    match random.below(12) {
        0..=4 => {
            let scripts = [
                json!([{"delta": "x"}]),
                json!([{"deltas": 20, "bytes": 300}, {"sleep_ms": 50}, {"deltas": 3}]),
                json!([{"sleep_ms": 200}, {"error": "no"}]),
                json!([{"panic": "boom"}]),
                json!([{"hang": true}]),
                json!([{"ask": {"command": "c", "timeout_ms": 400}}]),
                json!([{"event": {"kind": "status", "text": "t"}}]),
                json!([{"wrong": true}]),
            ];
            let script = random.pick(&scripts).clone();
            (Asked::Turn, json!({"type": "turn.start", "sid": sid, "request_id": id, "script": script}))
        }
        5 | 6 => {
            let turn = (random.below(2) == 0).then(|| random.pick(turns).clone());
            (Asked::Interrupt, json!({"type": "interrupt", "sid": sid, "request_id": id, "turn_id": turn}))
        }
        7 | 8 => {
            let (route, more) = random
                .pick(&[
                    ("session.reset", json!(null)),
                    ("session.save", json!(null)),
                    ("session.compress", json!("/compress")),
                    ("slash.compress", json!("/compact topic")),
                    ("slash.model", json!("/model m")),
                    ("slash.model", json!(null)),
                    ("slash.prompt", json!("/prompt")),
                    ("slash.retry", json!("/retry")),
                    ("prompt.submit.truncate", json!({"before_user_ordinal": 1})),
                    ("nope", json!(null)),
                    ("prompt.submit", json!(null)),
                ])
                .clone();
            let (command, params) = if more.is_object() { (json!(null), more) } else { (more, json!(null)) };
            let frame = json!({"type": "control", "sid": sid, "request_id": id, "route_name": route,
                "command": command, "params": params});
            (Asked::Control, frame)
        }
        9 => (Asked::Seed, json!({"type": "session.seed", "sid": sid, "request_id": id})),
        10 => {
            // One that is open, one that is settled, or one that never was.
            let question = frames.iter().rev().find_map(|frame| frame["approval_id"].as_str());
            let question = question.unwrap_or("never");
            let frame =
                json!({"type": "respond", "request_id": id, "approval_id": question, "choice": "once"});
            (Asked::Respond, frame)
        }
        _ => (Asked::Nonsense, json!({"type": "nonsense", "request_id": id})),
    }
}

fn check(seed: u64, asked: &HashMap<String, Asked>, frames: &[Value]) {
    let last = frames.last().unwrap();
    assert_eq!((&last["type"], &last["request_id"]), (&json!("shutdown.ack"), &json!("bye")), "seed {seed}");
    for (id, kind) in asked {
        let own = of(frames, id);
        let names: Vec<&str> = own.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
        let ends: Vec<_> = names.iter().filter(|name| answers(*kind).contains(name)).collect();
        assert_eq!(ends.len(), 1, "seed {seed} {id} {kind:?}: {names:?}");
        assert_eq!(
            names.last(),
            ends.first().copied(),
            "seed {seed} {id}: nothing follows an end: {names:?}"
        );
        if *kind == Asked::Turn {
            check_turn(seed, id, &own);
        } else {
            assert_eq!(names.len(), 1, "seed {seed} {id} {kind:?}: {names:?}");
        }
    }
    check_interrupts(seed, frames);
    check_versions(seed, frames);
}

fn check_turn(seed: u64, id: &str, own: &[&Value]) {
    let (end, rest) = own.split_last().unwrap();
    let Some((first, rest)) = rest.split_first() else {
        let refused =
            ["busy", "shutdown"].contains(&end["reason"].as_str().unwrap_or("interrupted while waiting"));
        assert!(refused || end["interrupted"] == true, "seed {seed} {id}: {end}");
        return;
    };
    assert_eq!(first["type"], "turn.started", "seed {seed} {id}");
    let numbers: Vec<_> = rest.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..rest.len() as u64).collect::<Vec<_>>(), "seed {seed} {id}");
    let questions = |kind: &str| rest.iter().filter(|frame| frame["kind"] == kind).count();
    assert_eq!(questions("approval_request"), questions("approval_resolved"), "seed {seed} {id}");
}

/// An interrupt that was applied is followed by the end of that turn, which is an interrupted one or a failed one.
fn check_interrupts(seed: u64, frames: &[Value]) {
    for (at, ack) in frames.iter().enumerate().filter(|(_, frame)| frame["applied"] == true) {
        let is_end = |frame: &&Value| {
            frame["request_id"] == ack["turn"]
                && ["turn.end", "turn.error"].contains(&frame["type"].as_str().unwrap())
        };
        let end = frames[at..].iter().find(is_end);
        let end = end.unwrap_or_else(|| panic!("seed {seed}: the end came before {ack}"));
        assert!(end["interrupted"] == true || end["type"] == "turn.error", "seed {seed}: {ack} {end}");
    }
}

/// The version of a history only grows, and a seed begins anew.
fn check_versions(seed: u64, frames: &[Value]) {
    let mut versions: HashMap<&str, u64> = HashMap::new();
    for frame in frames {
        let (Some(sid), Some(version)) = (frame["sid"].as_str(), frame["history_version"].as_u64()) else {
            continue;
        };
        // A save may overtake the ends of turns that it already counts.
        if frame["route_name"] == "session.save" {
            continue;
        }
        let before = versions.insert(sid, version).unwrap_or(0);
        assert!(
            version >= before || frame["type"] == "session.seeded",
            "seed {seed}: {before} before {frame}"
        );
    }
}
