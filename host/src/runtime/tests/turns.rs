use super::*;
use crate::turn::context::{TurnContext, WorkItem};
use crate::{AgentError, Answer, AsyncAgent, TurnFuture};
use turnhost_protocol::RawJson;

#[tokio::test(start_paused = true)]
async fn a_three_delta_turn_gives_exactly_the_documented_frames() {
    let mut rig = Setup::default().start().await;
    rig.send(json!({"type": "session.seed", "sid": "alpha", "request_id": "seed", "history": []})).await;
    rig.send(json!({"type": "turn.start", "sid": "alpha", "request_id": "turn-1", "prompt": "hello",
        "delta_count": 3, "delay_s": 0}))
        .await;
    let frames = rig.through("turn.end").await;
    let expected = ["hello", "session.seeded", "turn.started", "delta", "delta", "delta", "turn.end"];
    assert_eq!(types(&frames), expected);
    for frame in &frames {
        assert!(frame["host_ns"].is_u64(), "{frame}");
    }
    let hello = &frames[0];
    assert_eq!(hello["host_pid"], std::process::id());
    assert_eq!(hello["boot_id"].as_str().map(str::len), Some(32));
    assert_eq!((&hello["protocol"], &hello["build_sha"]), (&json!(1), &json!("unknown")));
    assert_eq!((&hello["cwd"], &hello["hermes_home"]), (&json!("/project"), &json!("/home/of/tests")));
    assert_eq!(hello["max_frame_bytes"], 1024 * 1024);
    assert_eq!((&frames[1]["history_version"], &frames[1]["message_count"]), (&json!(0), &json!(0)));
    assert!(frames[2]["started_ns"].is_u64());
    for (index, delta) in frames[3..6].iter().enumerate() {
        assert_eq!(delta["text"], format!("alpha:hello:{index:04} "));
        assert_eq!(delta["seq"], index);
        assert!(delta["emitted_ns"].is_u64());
    }
    let mut end = frames[6].clone();
    for clock in ["ended_ns", "host_ns"] {
        assert!(end.as_object_mut().unwrap().remove(clock).unwrap().is_u64());
    }
    let expected = json!({
        "type": "turn.end", "sid": "alpha", "request_id": "turn-1", "history_version": 1, "session_key": "alpha",
        "message_count": 2, "interrupted": false,
        "final_response": "alpha:hello:0000 alpha:hello:0001 alpha:hello:0002 ",
        "session_info": {"model": null, "provider": null, "agent": "scripted", "cwd": "/project", "running": false,
            "usage": {"input": 0, "output": 0, "total": 0, "calls": 0}},
    });
    assert_eq!(end, expected);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_is_acked_before_the_turn_it_stops_ends() {
    let mut rig = Setup { workers: 1, ..Setup::default() }.start().await;
    rig.send(json!({"type": "turn.start", "sid": "alpha", "request_id": "turn-slow", "prompt": "hello",
        "delta_count": 200, "delay_s": 0.01}))
        .await;
    rig.until("delta").await;
    rig.send(json!({"type": "interrupt", "sid": "alpha", "request_id": "stop-1"})).await;
    let ack = rig.until("interrupt.ack").await;
    assert_eq!((&ack["applied"], &ack["outcome"]), (&json!(true), &json!("applied")));
    assert_eq!((&ack["turn"], &ack["request_id"]), (&json!("turn-slow"), &json!("stop-1")));
    assert!(ack["applied_ns"].is_u64());
    let end = rig.until("turn.end").await;
    assert_eq!(end["interrupted"], true);
    assert!(end["final_response"].as_str().unwrap().ends_with("[interrupted]"));
    assert_eq!((&end["history_version"], &end["message_count"]), (&json!(1), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_in_the_same_write_as_its_turn_is_not_lost() {
    let mut rig = Rig::new().await;
    let start = json!({"type": "turn.start", "sid": "s", "request_id": "t", "delta_count": 100_000});
    let stop = json!({"type": "interrupt", "sid": "s", "request_id": "i"});
    rig.send_raw(format!("{start}\n{stop}\n").as_bytes()).await;
    let frames = rig.through("turn.end").await;
    assert_eq!(frames.last().unwrap()["interrupted"], true);
    assert_eq!(of(&frames, "i")[0]["applied"], true);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_turn_is_interrupted_without_having_started() {
    let mut rig = Setup { workers: 1, ..Setup::default() }.start().await;
    rig.play("a", "runs", json!([{"sleep_ms": 5000}])).await;
    rig.play("b", "waits", json!([{"delta": "never"}])).await;
    rig.send(json!({"type": "interrupt", "sid": "b", "request_id": "i", "turn_id": "waits"})).await;
    let frames = rig.through("turn.end").await;
    let of_waits: Vec<_> = of(&frames, "waits").iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(of_waits, ["turn.end"]);
    let end = frames.last().unwrap();
    assert_eq!((&end["interrupted"], &end["history_version"]), (&json!(true), &json!(0)), "nothing was run");
    assert_eq!(of(&frames, "i")[0]["outcome"], "applied");
    assert_eq!(rig.until("turn.end").await["request_id"], "runs", "the other one never notices");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_says_what_came_of_it() {
    let mut rig = Rig::new().await;
    let interrupt =
        |sid: &str, turn: Value| json!({"type": "interrupt", "sid": sid, "request_id": "i", "turn_id": turn});
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed"})).await;
    rig.play("s", "first", json!([{"delta": "x"}])).await;
    rig.until("turn.end").await;
    let idle = [
        ("unknown", json!(null), "not_found", json!(null)),
        ("s", json!(null), "not_found", json!(null)),
        ("s", json!("never"), "not_found", json!(null)),
        ("s", json!("first"), "already_ended", json!(null)),
    ];
    for (sid, turn, outcome, running) in idle {
        rig.send(interrupt(sid, turn.clone())).await;
        let ack = rig.until("interrupt.ack").await;
        assert_eq!((&ack["outcome"], &ack["applied"]), (&json!(outcome), &json!(false)), "{sid} {turn}");
        assert_eq!(ack["turn"], running, "{sid} {turn}");
    }
    rig.play("s", "second", json!([{"sleep_ms": 60_000}])).await;
    let running = [("never", "superseded"), ("first", "already_ended"), ("second", "applied")];
    for (turn, outcome) in running {
        rig.send(interrupt("s", json!(turn))).await;
        let ack = rig.until("interrupt.ack").await;
        assert_eq!((&ack["outcome"], &ack["turn"]), (&json!(outcome), &json!("second")), "{turn}");
    }
    rig.until("turn.end").await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_of_an_idle_session_does_not_touch_its_next_turn() {
    let mut rig = Rig::new().await;
    rig.play("s", "first", json!([])).await;
    rig.until("turn.end").await;
    rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
    rig.play("s", "second", json!([{"delta": "whole"}])).await;
    let end = rig.until("turn.end").await;
    assert_eq!((&end["interrupted"], &end["final_response"]), (&json!(false), &json!("whole")));
}

#[tokio::test(start_paused = true)]
async fn a_turn_sent_on_reading_the_end_of_the_last_is_never_busy() {
    let mut rig = Rig::new().await;
    for number in 0..50 {
        rig.play("s", &format!("t{number}"), json!([{"delta": "x"}])).await;
        assert_eq!(rig.until("turn.end").await["history_version"], number + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_fails_or_panics_ends_only_its_turn() {
    let mut rig = Rig::new().await;
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed", "report_messages": true}))
        .await;
    rig.play("other", "long", json!([{"sleep_ms": 1000}, {"delta": "fine"}])).await;
    for (version, (step, message)) in
        [(json!({"error": "no model"}), "no model"), (json!({"panic": "boom"}), "the agent panicked: boom")]
            .into_iter()
            .enumerate()
    {
        rig.play("s", "t", json!([{"delta": "half"}, step])).await;
        let error = rig.until("turn.error").await;
        assert_eq!((&error["reason"], &error["message"]), (&json!("exception"), &json!(message)));
        assert_eq!(error["history_version"], version + 1);
        let kept = json!([{"role": "user", "content": "prompt"}, {"role": "assistant", "content": "half"}]);
        assert_eq!(error["messages_appended"], kept);
    }
    rig.play("s", "silent", json!([{"error": "at once"}])).await;
    let error = rig.until("turn.error").await;
    assert_eq!(error["messages_appended"], json!([{"role": "user", "content": "prompt"}]));
    rig.play("s", "next", json!([{"delta": "works"}])).await;
    let frames = rig.through("turn.end").await;
    assert_eq!(frames.last().unwrap()["final_response"], "works");
    assert_eq!(rig.until("turn.end").await["final_response"], "fine");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ignores_its_interrupt_loses_its_turn_after_10_seconds() {
    let mut rig = Setup { workers: 1, ..Setup::default() }.start().await;
    rig.play("s", "deaf", json!([{"delta": "so far"}, {"hang": true}])).await;
    rig.until("delta").await;
    rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
    rig.until("interrupt.ack").await;
    let told = Instant::now();
    let end = rig.until("turn.end").await;
    assert_eq!(told.elapsed().as_secs(), 10);
    assert_eq!((&end["interrupted"], &end["final_response"]), (&json!(true), &json!("so far")));
    rig.play("s", "next", json!([{"delta": "x"}])).await;
    assert_eq!(rig.until("turn.end").await["final_response"], "x", "its worker is free");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_never_seeded_is_made_from_its_first_turn() {
    let mut rig = Rig::new().await;
    rig.send(
        json!({"type": "turn.start", "sid": "s", "text": "wins", "prompt": "loses", "session_key": "key",
        "history": [{"role": "user", "content": "before"}], "cwd": "sub", "delta_count": 1, "delay_s": 0,
        "model_override": {"model": "m", "provider": "p"}}),
    )
    .await;
    let frames = rig.through("turn.end").await;
    let end = frames.last().unwrap();
    assert_eq!((&end["session_key"], &end["message_count"]), (&json!("key"), &json!(3)));
    assert_eq!(end["final_response"], "s:wins:0000 ");
    let info = &end["session_info"];
    assert_eq!((&info["model"], &info["provider"]), (&json!("m"), &json!("p")));
    assert_eq!(info["cwd"], "/project/sub");
    let id = end["request_id"].as_str().unwrap();
    assert!(!id.is_empty(), "a turn without an id gets one");
    assert_eq!(of(&frames, id).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_sends_before_it_ends_stands_in_front_of_its_end() {
    struct Quick;
    impl AsyncAgent for Quick {
        fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
            Box::pin(async move {
                for _ in 0..100 {
                    turn.sink.delta("x").await.map_err(|over| AgentError::exception(over.to_string()))?;
                }
                Ok(Answer { text: Some("own".to_owned()), interrupted: false })
            })
        }
    }
    let agents = Agents::new().with_async("quick", Quick);
    let mut rig = Setup { agents, ..Setup::default() }.start().await;
    for _ in 0..10 {
        rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t"})).await;
        let frames = rig.through("turn.end").await;
        assert_eq!(of(&frames, "t").len(), 102);
        assert_eq!(frames.last().unwrap()["final_response"], "own");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_send_of_an_ended_turn_is_refused_and_reaches_nobody() {
    struct Detached(mpsc::Sender<crate::turn::context::Sink>);
    impl AsyncAgent for Detached {
        fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
            Box::pin(async move {
                let _ = self.0.send(turn.sink).await;
                Ok(Answer::default())
            })
        }
    }
    let (give, mut sinks) = mpsc::channel(1);
    let agents = Agents::new().with_async("detached", Detached(give));
    let mut rig = Setup { agents, ..Setup::default() }.start().await;
    rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t"})).await;
    let sink = sinks.recv().await.unwrap();
    rig.until("turn.end").await;
    assert!(sink.delta("late").await.is_err());
    rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t2"})).await;
    let frames = rig.through("turn.end").await;
    assert_eq!(types(&frames), ["turn.started", "turn.end"]);
}

#[tokio::test(start_paused = true)]
async fn usage_events_add_up_in_the_session_info() {
    let mut rig = Rig::new().await;
    let usage = json!({"event": {"kind": "usage", "input": 10, "output": 5, "total": 15, "calls": 1}});
    rig.play("s", "t", json!([usage, usage])).await;
    let frames = rig.through("turn.end").await;
    assert_eq!(types(&frames), ["turn.started", "event", "event", "turn.end"]);
    assert_eq!((&frames[1]["kind"], &frames[2]["seq"]), (&json!("usage"), &json!(1)));
    let sum = json!({"input": 20, "output": 10, "total": 30, "calls": 2});
    assert_eq!(frames[3]["session_info"]["usage"], sum);
}

#[tokio::test(start_paused = true)]
async fn an_event_cannot_speak_for_the_host() {
    struct Forger;
    impl AsyncAgent for Forger {
        fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
            Box::pin(async move {
                let forged = "{\"kind\":\"own\",\"type\":\"turn.end\",\"sid\":\"x\",\"request_id\":\"y\",\n\"seq\":9,\
                    \"host_ns\":77,\"text\":\"line\\nbreak\"}";
                for body in ["[1]", "{}", "{\"kind\":7}", forged] {
                    let body =
                        RawJson::parse(body).map_err(|error| AgentError::exception(error.to_string()))?;
                    let _ = turn.sink.send(WorkItem::Event(body)).await;
                }
                Ok(Answer::default())
            })
        }
    }
    let mut rig =
        Setup { agents: Agents::new().with_async("forger", Forger), ..Setup::default() }.start().await;
    rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t"})).await;
    let event = rig.until("event").await;
    assert_eq!((&event["sid"], &event["request_id"], &event["seq"]), (&json!("s"), &json!("t"), &json!(0)));
    assert_eq!((&event["kind"], &event["text"]), (&json!("own"), &json!("line\nbreak")));
    assert_ne!(event["host_ns"], 77);
    assert_eq!(rig.next().await.unwrap()["type"], "turn.end", "what is no event was left out");
}

#[tokio::test(start_paused = true)]
async fn a_session_reports_the_messages_of_each_turn_if_it_was_asked_to() {
    let mut rig = Rig::new().await;
    let history = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed", "history": history,
        "session_key": "k", "report_messages": true}))
        .await;
    let seeded = rig.until("session.seeded").await;
    assert_eq!((&seeded["history_version"], &seeded["message_count"]), (&json!(0), &json!(2)));
    rig.play("s", "t", json!([{"delta": "x"}])).await;
    let end = rig.until("turn.end").await;
    let added = json!([{"role": "user", "content": "prompt"}, {"role": "assistant", "content": "x"}]);
    assert_eq!(end["messages_appended"], added);
    assert_eq!((&end["message_count"], &end["session_key"]), (&json!(4), &json!("k")));
}

#[tokio::test(start_paused = true)]
async fn with_rpc_events_each_turn_is_mirrored_in_its_own_order() {
    let mut rig = Setup { rpc_events: true, ..Setup::default() }.start().await;
    let call = json!({"event": {"kind": "tool_call", "tool_call_id": "c", "name": "sh", "title": "ls",
        "args": {}, "status": "running"}});
    let done = json!({"event": {"kind": "tool_call_update", "tool_call_id": "c", "status": "completed",
        "content": "out", "exit_code": 0}});
    rig.play("s", "t", json!([{"delta": "one "}, call, done, {"delta": "two"}])).await;
    let frames = rig.through("turn.end").await;
    let shown: Vec<String> = frames[1..]
        .iter()
        .map(|frame| match frame["type"].as_str().unwrap() {
            "rpc" => frame["message"]["params"]["type"].as_str().unwrap().to_owned(),
            own => own.to_uppercase(),
        })
        .collect();
    let expected = [
        "TURN.STARTED",
        "message.start",
        "DELTA",
        "message.delta",
        "EVENT",
        "tool.start",
        "EVENT",
        "tool.complete",
        "DELTA",
        "message.delta",
        "message.complete",
        "TURN.END",
    ];
    assert_eq!(shown, expected);
    let complete = &frames[frames.len() - 2];
    let expected = json!({"jsonrpc": "2.0", "method": "event", "params": {"type": "message.complete",
        "session_id": "s", "payload": {"text": "one two", "status": "complete",
            "usage": {"input": 0, "output": 0, "total": 0, "calls": 0}}}});
    assert_eq!((&complete["sid"], &complete["message"]), (&json!("s"), &expected));

    rig.play("s", "t2", json!([{"error": "no"}])).await;
    let frames = rig.through("turn.error").await;
    let complete = &frames[frames.len() - 2]["message"]["params"]["payload"];
    assert_eq!((&complete["status"], &complete["text"]), (&json!("error"), &json!("Error: no")));
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_interrupt_was_applied_ends_as_interrupted_whatever_its_agent_says() {
    struct Obeys;
    impl AsyncAgent for Obeys {
        fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
            Box::pin(async move {
                turn.interrupt.wait().await;
                Ok(Answer { text: Some("partial".to_owned()), interrupted: false })
            })
        }
    }
    let mut rig =
        Setup { agents: Agents::new().with_async("obeys", Obeys), ..Setup::default() }.start().await;
    rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t"})).await;
    rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
    let end = rig.until("turn.end").await;
    assert_eq!((&end["interrupted"], &end["final_response"]), (&json!(true), &json!("partial")));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_its_turn_leaves_open_is_denied_before_the_end() {
    use crate::turn::context::Question;
    struct Leaves;
    impl AsyncAgent for Leaves {
        fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
            Box::pin(async move {
                let question = Question {
                    command: "c".to_owned(),
                    description: String::new(),
                    choices: vec![],
                    allow_permanent: false,
                    timeout_ms: 60_000,
                };
                let (reply, _) = tokio::sync::oneshot::channel();
                let _ = turn.sink.send(WorkItem::Ask(question, reply)).await;
                Ok(Answer::default())
            })
        }
    }
    let mut rig =
        Setup { agents: Agents::new().with_async("leaves", Leaves), ..Setup::default() }.start().await;
    rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t"})).await;
    let frames = rig.through("turn.end").await;
    let kinds: Vec<_> = frames.iter().filter_map(|frame| frame["kind"].as_str()).collect();
    assert_eq!(kinds, ["approval_request", "approval_resolved"]);
}

#[tokio::test(start_paused = true)]
async fn turns_beyond_those_that_may_wait_are_refused_as_busy() {
    let mut rig = Setup { workers: 1, ..Setup::default() }.start().await;
    for number in 0..=crate::turn::table::MAX_WAITING + 1 {
        rig.play(&format!("s{number}"), &format!("t{number}"), json!([{"sleep_ms": 3_600_000}])).await;
    }
    let error = rig.until("turn.error").await;
    assert_eq!((&error["reason"], &error["request_id"]), (&json!("busy"), &json!("t4097")));
    rig.send(json!({"type": "interrupt", "sid": "s9", "request_id": "i"})).await;
    rig.until("turn.end").await;
    rig.play("again", "fits", json!([])).await;
    rig.send(json!({"type": "interrupt", "sid": "again", "request_id": "i"})).await;
    assert_eq!(rig.until("turn.end").await["request_id"], "fits", "one left, so one may come");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_leaves_the_queue_and_the_order_of_the_others() {
    let mut rig = Setup { workers: 1, ..Setup::default() }.start().await;
    rig.play("run", "run", json!([{"sleep_ms": 1000}])).await;
    for sid in ["a", "b", "c", "d"] {
        rig.play(sid, sid, json!([{"delta": "x"}])).await;
    }
    for sid in ["c", "a"] {
        rig.send(json!({"type": "interrupt", "sid": sid, "request_id": "i"})).await;
        let end = rig.until("turn.end").await;
        assert_eq!((&end["request_id"], &end["interrupted"]), (&json!(sid), &json!(true)));
    }
    rig.play("c", "c again", json!([{"delta": "x"}])).await;
    let mut started = Vec::new();
    for _ in 0..4 {
        let frames = rig.through("turn.end").await;
        started.extend(
            frames
                .iter()
                .filter(|frame| frame["type"] == "turn.started")
                .map(|frame| frame["request_id"].clone()),
        );
    }
    assert_eq!(started, ["b", "d", "c again"]);
    rig.send(json!({"type": "shutdown"})).await;
    assert_eq!(types(&rig.rest().await), ["shutdown.ack"], "nothing of them is left to be ended");
}
