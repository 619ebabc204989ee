use super::*;
use crate::context_engine::{
    BoundaryFuture, Compressed, Compression, CompressionError, CompressionFuture, CompressionRequest,
    ContextEngine, HeadAndTail, SessionBoundary,
};
use crate::turn::context::TurnContext;
use crate::{Answer, AsyncAgent, BlockingAgent, TurnFuture};
use pretty_assertions::assert_eq;
use std::sync::{Arc, Mutex};
use turnhost_protocol::RawJson;

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// So many turns with long answers.
fn long_history(turns: usize) -> Value {
    let of_turn = |turn: usize| {
        [
            message("user", &format!("prompt {turn}")),
            message("assistant", &format!("answer {turn} ").repeat(50)),
        ]
    };
    Value::Array((1..=turns).flat_map(of_turn).collect())
}

/// Where a [`Recording`] engine fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    Nowhere,
    Compress,
    PanicsInCompress,
    /// Gives what is no history.
    Commit,
    /// Gives a key that another session has.
    Sync,
    PanicsWhenTold,
    HangsWhenTold,
}

/// Writes down what it is asked and told. A mutex, as the test looks into it from outside.
#[derive(Debug, Clone)]
struct Recording {
    log: Arc<Mutex<Vec<String>>>,
    fails: Arc<Mutex<Fails>>,
}

impl Recording {
    fn new(fails: Fails) -> Self {
        Self { log: Arc::default(), fails: Arc::new(Mutex::new(fails)) }
    }

    fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    fn say(&self, what: String) {
        self.log.lock().unwrap().push(what);
    }

    fn fails(&self) -> Fails {
        *self.fails.lock().unwrap()
    }
}

impl ContextEngine for Recording {
    fn compress(&self, request: CompressionRequest) -> CompressionFuture<'_> {
        Box::pin(async move {
            self.say(format!("compress {} {:?}", request.session_key, request.focus));
            let summary =
                if self.fails() == Fails::Commit { "7" } else { r#"{"role":"summary","content":"x"}"# };
            let key = if self.fails() == Fails::Sync { "taken" } else { "after-key" };
            match self.fails() {
                Fails::Compress => Err(CompressionError::new("no luck")),
                Fails::PanicsInCompress => panic!("boom"),
                Fails::Nowhere
                | Fails::Commit
                | Fails::Sync
                | Fails::PanicsWhenTold
                | Fails::HangsWhenTold => Ok(Compression::Compressed(Compressed {
                    messages: vec![RawJson::parse(summary).unwrap()],
                    summary: "x".to_owned(),
                    session_key: Some(key.to_owned()),
                })),
            }
        })
    }

    fn on_session_start(&self, boundary: SessionBoundary) -> BoundaryFuture<'_> {
        Box::pin(async move {
            let count = boundary.history.len();
            self.say(format!("notify {}<{} {count}", boundary.session_key, boundary.parent_session_key));
            match self.fails() {
                Fails::PanicsWhenTold => panic!("boom"),
                Fails::HangsWhenTold => std::future::pending().await,
                Fails::Nowhere | Fails::Compress | Fails::PanicsInCompress | Fails::Commit | Fails::Sync => {}
            }
        })
    }
}

/// A host with this engine, and a session `sid` whose history has two messages at version 2.
async fn recorded(fails: Fails) -> (Rig, Recording) {
    let engine = Recording::new(fails);
    let agents = builtin(None, &crate::config::Config::default()).with_context_engine(engine.clone());
    let mut rig = Setup { agents, ..Setup::default() }.start().await;
    rig.seed("other", json!({"session_key": "taken"})).await;
    rig.seed("sid", json!({"session_key": "before-key", "model": "host-model"})).await;
    rig.play("sid", "t1", json!([{"delta": "before"}])).await;
    rig.until("turn.end").await;
    rig.control(
        "sid",
        "session.history.reload",
        json!({"params": {"history":
        [message("user", "before"), message("assistant", "before")]}}),
    )
    .await;
    (rig, engine)
}

#[tokio::test(start_paused = true)]
async fn a_compress_control_commits_and_syncs_in_the_host_and_tells_the_session_as_it_is_then() {
    let (mut rig, engine) = recorded(Fails::Nowhere).await;
    let ack = rig.control("sid", "slash.compress", json!({"command": "/compress focus"})).await;
    assert_eq!(engine.take_log(), [r#"compress before-key Some("focus")"#, "notify after-key<before-key 1"]);
    assert_eq!((&ack["type"], &ack["route_name"]), (&json!("control.ack"), &json!("slash.compress")));
    assert_eq!((&ack["session_key"], &ack["history_version"]), (&json!("after-key"), &json!(3)));
    assert_eq!((&ack["message_count"], &ack["messages"]), (&json!(1), &json!([message("summary", "x")])));
    assert_eq!(ack["session_info"]["model"], "host-model");
    assert!(ack["output"].as_str().unwrap().starts_with("Compressed: 2 → 1 message\nAbout "), "{ack}");
    assert_eq!((&ack["result"]["status"], &ack["result"]["messages"]), (&json!("compressed"), &Value::Null));
    rig.play("sid", "t2", json!([{"delta": "x"}])).await;
    let end = rig.until("turn.end").await;
    assert_eq!((&end["session_key"], &end["message_count"]), (&json!("after-key"), &json!(3)));
    rig.close_stdin();
    rig.rest().await;
    assert_eq!(rig.records()[1]["parent_session_key"], "before-key");
}

#[tokio::test(start_paused = true)]
async fn a_compress_of_a_session_without_an_agent_gives_a_structured_result() {
    let mut rig = Rig::new().await;
    let history = json!([message("user", "preserved")]);
    let seed =
        json!({"agent": "nobody", "session_key": "host-key", "model": "host-model", "history": history});
    rig.seed("sid", seed).await;
    for route in ["session.compress", "slash.compress"] {
        let ack = rig.control("sid", route, json!({"command": "/compress auth"})).await;
        assert_eq!((&ack["type"], &ack["result"]["status"]), (&json!("control.ack"), &json!("aborted")));
        assert_eq!(ack["result"]["summary"]["aborted"], true);
        assert_eq!(ack["result"]["summary"]["headline"], "Compression aborted: 1 message kept");
        assert_eq!((&ack["session_key"], &ack["message_count"]), (&json!("host-key"), &json!(1)));
        assert_eq!(
            (&ack["history_version"], &ack["session_info"]["model"]),
            (&json!(0), &json!("host-model"))
        );
        let messages = if route == "slash.compress" { &ack["messages"] } else { &ack["result"]["messages"] };
        assert_eq!(messages, &history, "{route}");
        assert!(ack["output"].as_str().unwrap().ends_with("this session has no agent to write a summary"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_is_told_exactly_once_and_only_behind_the_commit() {
    let (mut rig, engine) = recorded(Fails::HangsWhenTold).await;
    rig.ask_control("sid", "c", "slash.compress", json!({"command": "/compress"})).await;
    settle().await;
    assert_eq!(engine.take_log(), ["compress before-key None", "notify after-key<before-key 1"]);
    // It is being told: what others see of the session is the committed one, and it takes no turn yet.
    let save = rig.control("sid", "session.save", json!({})).await;
    assert_eq!(
        (&save["session_key"], &save["history_version"], &save["message_count"]),
        (&json!("after-key"), &json!(3), &json!(1))
    );
    rig.play("sid", "early", json!([])).await;
    assert_eq!(rig.answer("early").await["reason"], "busy");
    let begun = Instant::now();
    rig.ask_control("sid", "c", "slash.compress", json!({"command": "/compress"})).await;
    assert_eq!(rig.answer("c").await["message"], "session busy");
    let ack = rig.answer("c").await;
    assert_eq!(
        (begun.elapsed().as_secs(), &ack["session_key"]),
        (4, &json!("after-key")),
        "5 s, less what passed"
    );
    assert_eq!(ack["result"]["summary"]["note"], "the context engine did not take the news within 5 s");
    assert_eq!(engine.take_log(), [""; 0], "nothing is left to be told");
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_commit_is_complete_discards_the_notification_for_good() {
    for (fails, reason) in [
        (Fails::Commit, "message 0 of the context engine is no object with role, a string"),
        (Fails::Sync, "the context engine's session key is in use"),
    ] {
        let (mut rig, engine) = recorded(fails).await;
        let ack = rig.control("sid", "slash.compress", json!({"command": "/compress"})).await;
        let output = ack["output"].as_str().unwrap();
        assert!(output.contains(&format!("live session sync failed: {reason}")), "{fails:?}: {output}");
        assert_eq!(engine.take_log(), ["compress before-key None"], "{fails:?}");
        assert_eq!(
            (&ack["session_key"], &ack["history_version"], &ack["message_count"]),
            (&json!("before-key"), &json!(2), &json!(2)),
            "{fails:?}: the session is as it was"
        );
        assert_eq!(ack["result"]["status"], "aborted");
        // A later one is told once, not twice.
        *engine.fails.lock().unwrap() = Fails::Nowhere;
        rig.control("sid", "slash.compress", json!({"command": "/compress"})).await;
        assert_eq!(engine.take_log(), ["compress before-key None", "notify after-key<before-key 1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn compact_is_another_name_of_compress() {
    let (mut rig, engine) = recorded(Fails::Nowhere).await;
    let ack = rig.control("sid", "slash.compress", json!({"command": "/compact focus topic"})).await;
    assert_eq!(
        engine.take_log(),
        [r#"compress before-key Some("focus topic")"#, "notify after-key<before-key 1"]
    );
    assert_eq!(ack["route_name"], "slash.compress");
    let error = rig.control("sid", "slash.compress", json!({"command": "/shrink"})).await;
    assert_eq!(
        error["message"],
        "slash.compress: unknown command `/shrink`; expected /compress [TOPIC] or /compact [TOPIC]"
    );
    assert_eq!(engine.take_log(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_or_panics_aborts_that_compression_and_nothing_else() {
    for (fails, status, note) in [
        (Fails::Compress, "aborted", "no luck"),
        (Fails::PanicsInCompress, "aborted", "the context engine panicked: boom"),
        (Fails::PanicsWhenTold, "compressed", "the context engine panicked: boom"),
    ] {
        let (mut rig, _) = recorded(fails).await;
        let ack = rig.control("sid", "session.compress", json!({"command": "/compress"})).await;
        assert_eq!(ack["result"]["status"], status);
        assert_eq!(ack["result"]["summary"]["note"], note);
        rig.play("sid", "t", json!([{"delta": "x"}])).await;
        rig.until("turn.end").await;
    }
}

/// Plays `script` in turns, and writes summaries as told.
struct Summarizes<F>(F);

impl<F: Fn(TurnContext) -> TurnFuture<'static> + Send + Sync + 'static> AsyncAgent for Summarizes<F> {
    fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
        (self.0)(turn)
    }
}

/// A host whose sessions are of an agent that summarizes like this, and a session with ten messages.
async fn summarizing(
    summarize: impl Fn(TurnContext) -> TurnFuture<'static> + Send + Sync + 'static,
    more: Setup,
) -> Rig {
    let agents =
        builtin(None, &crate::config::Config::default()).with_async("summarizes", Summarizes(summarize));
    let mut rig = Setup { agents, ..more }.start().await;
    let seed = json!({"session_key": "key", "agent": "summarizes", "history": long_history(5)});
    rig.seed("s", seed).await;
    rig
}

fn never(turn: TurnContext) -> TurnFuture<'static> {
    Box::pin(async move {
        let _turn = turn;
        std::future::pending().await
    })
}

fn obeys(turn: TurnContext) -> TurnFuture<'static> {
    Box::pin(async move {
        turn.interrupt.wait().await;
        Ok(Answer { text: Some("late".to_owned()), interrupted: true })
    })
}

#[tokio::test(start_paused = true)]
async fn the_sessions_own_agent_writes_the_summary_and_nothing_of_that_is_streamed() {
    let summarize = |turn: TurnContext| -> TurnFuture<'static> {
        Box::pin(async move {
            assert!(
                turn.prompt.contains("[assistant] answer 1 ") && turn.prompt.contains("[user] prompt 3\n")
            );
            assert!(!turn.prompt.contains("prompt 1\n") && !turn.prompt.contains("prompt 4"));
            assert!(turn.prompt.contains("Above all keep what has to do with: doors"));
            turn.sink.delta("what ").await.unwrap();
            let usage = json!({"kind": "usage", "input": 10, "output": 2, "total": 12, "calls": 1});
            let usage = RawJson::from_value(&usage).unwrap();
            turn.sink.send(crate::turn::context::WorkItem::Event(usage)).await.unwrap();
            turn.sink.delta("happened").await.unwrap();
            Ok(Answer::default())
        })
    };
    let mut rig = summarizing(summarize, Setup { rpc_events: true, ..Setup::default() }).await;
    rig.ask_control("s", "c", "session.compress", json!({"command": "/compress doors"})).await;
    let ack = rig.next().await.unwrap();
    assert_eq!(
        (&ack["type"], &ack["result"]["status"]),
        (&json!("control.ack"), &json!("compressed")),
        "{ack}"
    );
    let (before, after) = (&ack["result"]["before"], &ack["result"]["after"]);
    assert_eq!((&before["messages"], &after["messages"]), (&json!(10), &json!(6)));
    assert!(after["tokens"].as_u64() < before["tokens"].as_u64(), "{ack}");
    assert_eq!(ack["result"]["summary"]["text"], "what happened");
    let history = long_history(5);
    let mut expected = vec![history[0].clone()];
    expected.push(message("assistant", "[Summary of 5 earlier messages]\nwhat happened"));
    expected.extend_from_slice(&history.as_array().unwrap()[6..]);
    assert_eq!(ack["result"]["messages"], Value::Array(expected));
    assert_eq!((&ack["history_version"], &ack["message_count"]), (&json!(1), &json!(6)));
    assert_ne!(ack["session_key"], "key");
    assert_eq!(ack["session_info"]["usage"], json!({"input": 10, "output": 2, "total": 12, "calls": 1}));
}

#[tokio::test(start_paused = true)]
async fn a_history_with_nothing_to_gain_stays_and_its_key_too() {
    let wordy = |_| -> TurnFuture<'static> {
        Box::pin(async { Ok(Answer { text: Some("x".repeat(10_000)), interrupted: false }) })
    };
    let mut rig = summarizing(wordy, Setup::default()).await;
    rig.seed("short", json!({"session_key": "key", "agent": "summarizes", "history": long_history(2)})).await;
    for (sid, count, reason) in [
        ("short", 4, "there is too little between the first prompt and the last answers"),
        ("s", 10, "the summary is no shorter than what it would replace"),
    ] {
        let ack = rig.control(sid, "slash.compress", json!({})).await;
        assert_eq!(
            (&ack["result"]["status"], &ack["result"]["summary"]["noop"]),
            (&json!("unchanged"), &json!(true))
        );
        assert_eq!(ack["result"]["summary"]["note"], reason);
        assert_eq!(
            (&ack["session_key"], &ack["history_version"], &ack["message_count"]),
            (&json!("key"), &json!(0), &json!(count))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_session_is_compressed_it_is_busy_and_everything_else_goes_on() {
    let setup = Setup { heartbeat: Some(SECOND), workers: 1, ..Setup::default() };
    let mut rig = summarizing(never, setup).await;
    rig.ask_control("s", "compress", "slash.compress", json!({})).await;
    rig.play("s", "turn", json!([])).await;
    let error = rig.answer("turn").await;
    assert_eq!((&error["reason"], &error["message"]), (&json!("busy"), &json!("session busy")));
    for route in ["session.compress", "session.reset", "slash.retry", "slash.model"] {
        assert_eq!(rig.control("s", route, json!({})).await["message"], "session busy", "{route}");
    }
    rig.send(json!({"type": "session.seed", "sid": "s", "request_id": "seed"})).await;
    assert_eq!(rig.answer("seed").await["message"], "session busy");
    let save = rig.control("s", "session.save", json!({})).await;
    assert_eq!((&save["type"], &save["session_info"]["running"]), (&json!("control.ack"), &json!(false)));
    let heartbeat = rig.until("hb").await;
    assert_eq!(heartbeat["active_turns"], 0, "a compression is no turn");
    rig.play("other", "t", json!([{"delta": "x"}])).await;
    assert_eq!(rig.until("turn.end").await["request_id"], "t", "it takes no worker");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_stops_a_compression_and_the_history_stays() {
    for (turn_id, applied) in [(None, true), (Some("c"), true), (Some("x"), false)] {
        let mut rig = summarizing(obeys, Setup::default()).await;
        rig.ask_control("s", "c", "slash.compress", json!({})).await;
        rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i", "turn_id": turn_id})).await;
        let ack = rig.next().await.unwrap();
        assert_eq!((&ack["type"], &ack["applied"]), (&json!("interrupt.ack"), &json!(applied)));
        assert_eq!(ack["outcome"], if applied { "applied" } else { "not_found" });
        if applied {
            let ack = rig.next().await.unwrap();
            assert_eq!((&ack["request_id"], &ack["result"]["status"]), (&json!("c"), &json!("aborted")));
            assert_eq!(ack["result"]["summary"]["note"], "interrupted");
            assert_eq!((&ack["session_key"], &ack["history_version"]), (&json!("key"), &json!(0)));
            rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
            assert_eq!(rig.next().await.unwrap()["outcome"], "not_found", "nothing runs any more");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_compression_is_bounded_in_time_even_if_nobody_listens() {
    for (deaf, reason, seconds) in
        [(false, "it took longer than 120 s", 120), (true, "it took longer than 120 s", 130)]
    {
        let mut rig = summarizing(if deaf { never } else { obeys }, Setup::default()).await;
        let begun = Instant::now();
        let ack = rig.control("s", "slash.compress", json!({})).await;
        assert_eq!(
            (&ack["result"]["status"], &ack["result"]["summary"]["note"]),
            (&json!("aborted"), &json!(reason))
        );
        assert_eq!(begun.elapsed().as_secs(), seconds);
        assert_eq!(ack["history_version"], 0);
    }
    let mut rig = summarizing(never, Setup::default()).await;
    rig.ask_control("s", "c", "slash.compress", json!({})).await;
    rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
    rig.until("interrupt.ack").await;
    let told = Instant::now();
    let ack = rig.answer("c").await;
    assert_eq!((told.elapsed().as_secs(), &ack["result"]["summary"]["note"]), (10, &json!("interrupted")));
}

#[tokio::test(start_paused = true)]
async fn every_stop_of_the_host_ends_a_compression_in_its_time_and_answers_it() {
    let limit = |deaf: bool, seconds: u64| {
        if deaf { SECOND * u32::try_from(seconds).unwrap() } else { Duration::ZERO }
    };
    for deaf in [false, true] {
        let agent = if deaf { never } else { obeys };
        for stop in ["shutdown", "end of stdin", "parent gone", "signal"] {
            let mut rig = summarizing(agent, Setup::default()).await;
            rig.ask_control("s", "c", "slash.compress", json!({})).await;
            settle().await;
            let told = Instant::now();
            let within = match stop {
                "shutdown" => {
                    rig.send(json!({"type": "shutdown", "request_id": "bye"})).await;
                    limit(deaf, 1)
                }
                "signal" => {
                    rig.tell(Outside::Terminate).await;
                    SECOND * 10
                }
                "parent gone" => {
                    rig.tell(Outside::ParentGone { old: 1, new: 2 }).await;
                    limit(deaf, 1)
                }
                _ => {
                    rig.close_stdin();
                    // The parent may be seen to be gone a moment later.
                    limit(deaf, 1).max(Duration::from_millis(100))
                }
            };
            let frames = rig.rest().await;
            assert!(told.elapsed() <= within, "{stop}: {:?}", told.elapsed());
            let answers = of(&frames, "c");
            assert_eq!(answers.len(), 1, "{stop}: {frames:?}");
            assert_eq!(answers[0]["result"]["status"], "aborted", "{stop}");
            assert_eq!(answers[0]["result"]["summary"]["note"], "the host is shutting down", "{stop}");
            assert_eq!(
                (&rig.records()[0]["session_key"], &rig.records()[0]["history_version"]),
                (&json!("key"), &json!(0))
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_signal_a_compression_may_finish_as_a_turn_may() {
    let slow = |_| -> TurnFuture<'static> {
        Box::pin(async {
            tokio::time::sleep(SECOND * 5).await;
            Ok(Answer { text: Some("summary".to_owned()), interrupted: false })
        })
    };
    let mut rig = summarizing(slow, Setup::default()).await;
    rig.ask_control("s", "c", "slash.compress", json!({})).await;
    settle().await;
    rig.tell(Outside::Terminate).await;
    let frames = rig.rest().await;
    assert_eq!(of(&frames, "c")[0]["result"]["status"], "compressed");
    assert_eq!(rig.records()[0]["message_count"], 6);
}

#[tokio::test]
async fn an_agent_that_blocks_writes_summaries_too() {
    struct Blocks;
    impl BlockingAgent for Blocks {
        fn run(&self, turn: TurnContext) -> crate::AgentResult {
            assert!(std::thread::current().name().is_some_and(|name| name.starts_with("turn-")));
            Ok(Answer { text: Some(format!("{:?}", turn.purpose)), interrupted: false })
        }
    }
    let agents = Agents::new().with_blocking("blocks", Blocks);
    let mut rig = Setup { agents, ..Setup::default() }.start().await;
    rig.seed("s", json!({"history": long_history(5)})).await;
    let ack = rig.control("s", "session.compress", json!({})).await;
    assert_eq!(ack["result"]["summary"]["text"], "Summary", "{ack}");
}

#[tokio::test(start_paused = true)]
async fn the_built_in_engine_can_be_wrapped() {
    struct Wrapped;
    impl ContextEngine for Wrapped {
        fn compress(&self, request: CompressionRequest) -> CompressionFuture<'_> {
            HeadAndTail.compress(CompressionRequest { focus: Some("mine".to_owned()), ..request })
        }
    }
    let mut rig = Setup {
        agents: builtin(None, &crate::config::Config::default()).with_context_engine(Wrapped),
        ..Setup::default()
    }
    .start()
    .await;
    rig.seed("s", json!({"history": long_history(5)})).await;
    let ack = rig.control("s", "session.compress", json!({})).await;
    assert_eq!(ack["result"]["status"], "compressed");
    assert!(ack["result"]["summary"]["text"].as_str().unwrap().starts_with("s:summary of "), "{ack}");
}
