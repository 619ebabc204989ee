use super::*;
use crate::agent::testing::{Sent, ended, run, start, text, turn};
use crate::turn::context::{ApprovalAnswer, Question};
use crate::turn::{AgentResult, Answer};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use turnhost_protocol::FailReason;

fn frame(script: &Value) -> Value {
    json!({"sid": "s1", "request_id": "r1", "text": "hi", "script": script})
}

fn delta(text: &str) -> Sent {
    Sent::Delta(text.to_owned())
}

fn complete(text: &str) -> AgentResult {
    Ok(Answer { text: Some(text.to_owned()), interrupted: false })
}

fn interrupted(text: &str) -> AgentResult {
    Ok(Answer { text: Some(text.to_owned()), interrupted: true })
}

async fn play(script: &Value) -> (AgentResult, Vec<Sent>) {
    let (result, sent, host) = run(Scripted::default(), &frame(script)).await;
    host.assert_nothing_left();
    (result, sent)
}

#[tokio::test(start_paused = true)]
async fn without_a_script_numbered_chunks_are_streamed() {
    let start = tokio::time::Instant::now();
    let (result, sent, _) = run(Scripted::default(), &json!({"sid": "s1", "text": "hi"})).await;
    let expected: Vec<String> = (0..24).map(|index| format!("s1:hi:{index:04} ")).collect();
    assert_eq!(sent, expected.iter().map(|chunk| delta(chunk)).collect::<Vec<_>>());
    assert_eq!(sent[0], delta("s1:hi:0000 "));
    assert_eq!(result, complete(&expected.concat()));
    assert_eq!(start.elapsed().as_millis(), 24);
}

#[tokio::test(start_paused = true)]
async fn count_and_delay_come_from_the_frame() {
    for (count, delay, chunks, millis) in
        [(3, 0.5, 3, 1500), (3, 0.0, 3, 0), (2, -1.0, 2, 0), (0, 1.0, 0, 0), (-5, 1.0, 0, 0)]
    {
        let start = tokio::time::Instant::now();
        let frame = json!({"sid": "s", "prompt": "p", "delta_count": count, "delay_s": delay});
        let (result, sent, _) = run(Scripted::default(), &frame).await;
        assert_eq!(sent.len(), chunks);
        assert_eq!(result, complete(&text(&sent)));
        assert_eq!(start.elapsed().as_millis(), millis);
    }
}

#[tokio::test(start_paused = true)]
async fn the_hosts_own_count_and_delay_hold_where_the_frame_says_neither() {
    let agent = || Scripted::default().with_chunks(Some(2), Some(Duration::from_secs(3)));
    for (frame, chunks, millis) in [
        (json!({"sid": "s"}), 2, 6000),
        (json!({"sid": "s", "delta_count": 1}), 1, 3000),
        (json!({"sid": "s", "delay_s": 0.5}), 2, 1000),
        (json!({"sid": "s", "delta_count": -1}), 0, 0),
    ] {
        let start = tokio::time::Instant::now();
        let (_, sent, _) = run(agent(), &frame).await;
        assert_eq!((sent.len(), start.elapsed().as_millis()), (chunks, millis), "{frame}");
    }
    let (_, sent, _) = run(Scripted::default().with_chunks(None, None), &json!({"sid": "s"})).await;
    assert_eq!(sent.len(), 24);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_all_bounds_still_obeys_the_interrupt() {
    let (context, mut host) = turn(&json!({"sid": "s", "text": "p", "delay_s": 1e300}), 1);
    let task = start(Scripted::default(), context);
    assert_eq!(host.next_delta().await, "s:p:0000 ");
    host.interrupt.send_replace(true);
    assert_eq!(ended(task).await, interrupted("s:p:0000 [interrupted]"));
}

#[tokio::test]
async fn the_frames_script_wins_over_the_hosts_and_that_over_the_count() {
    let agent = || Scripted::new(Some(parse_script(r#"{"delta":"default"}"#).unwrap()));
    let (result, ..) = run(agent(), &frame(&json!([{"delta": "frame"}]))).await;
    assert_eq!(result, complete("frame"));
    let (result, ..) = run(agent(), &json!({"sid": "s", "delta_count": 3})).await;
    assert_eq!(result, complete("default"));
    let (result, ..) = run(agent(), &frame(&json!([]))).await;
    assert_eq!(result, complete(""));
}

#[tokio::test]
async fn a_mistake_anywhere_is_a_bad_request_and_nothing_runs() {
    let (result, sent) = play(&json!([{"delta": "a"}, {"sleep_ms": "long"}])).await;
    let error = result.unwrap_err();
    assert_eq!((error.reason, sent), (FailReason::BadRequest, vec![]));
    assert!(error.message.starts_with("script step 2, field sleep_ms: "), "{}", error.message);
    let (result, _) = play(&json!("delta")).await;
    assert_eq!(result.unwrap_err().reason, FailReason::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn deltas_events_raw_frames_and_pauses_come_in_their_order() {
    let script = json!([
        {"delta": "a"},
        {"event": {"kind": "status", "text": "t"}},
        {"deltas": 2, "bytes": 12, "delay_ms": 5},
        {"raw_frame": "not a frame\\xff\n"},
        {"sleep_ms": 1000},
        {"deltas": 1, "bytes": 4},
        {"alloc_mb": 2},
        {"spin_ms": 1},
    ]);
    let start = tokio::time::Instant::now();
    let (result, sent) = play(&script).await;
    let expected = [
        delta("a"),
        Sent::Event(r#"{"kind":"status","text":"t"}"#.to_owned()),
        delta("00000000 ..."),
        delta("00000001 ..."),
        Sent::Raw(b"not a frame\xff\n".to_vec()),
        delta("0000"),
    ];
    assert_eq!(sent, expected);
    assert_eq!(result, complete("a00000000 ...00000001 ...0000"));
    assert_eq!(start.elapsed().as_millis(), 1010);
}

#[tokio::test]
async fn a_question_is_asked_and_its_answer_streamed() {
    let script =
        json!([{"ask": {"command": "rm", "choices": ["once", "deny"], "timeout_ms": 9}}, {"delta": "."}]);
    for (answer, shown) in [
        (ApprovalAnswer::Choice("once".to_owned()), "[approval: once]."),
        (ApprovalAnswer::Choice("deny".to_owned()), "[approval: deny]."),
        (ApprovalAnswer::Denied, "[approval: denied]."),
    ] {
        let (context, mut host) = turn(&frame(&script), 4);
        host.answer = answer;
        let task = start(Scripted::default(), context);
        let sent = host.rest().await;
        let question = Question {
            command: "rm".to_owned(),
            description: String::new(),
            choices: vec!["once".to_owned(), "deny".to_owned()],
            allow_permanent: false,
            timeout_ms: 9,
        };
        assert_eq!(sent[0], Sent::Asked(question));
        assert_eq!(text(&sent), shown);
        assert_eq!(ended(task).await, complete(shown));
    }
}

#[tokio::test]
async fn a_script_that_streams_without_end_keeps_no_more_than_one_frame_could_carry() {
    const MIB: usize = 1024 * 1024;
    let (context, mut host) = turn(&frame(&json!([{"deltas": 40, "bytes": MIB}])), 1);
    let task = start(Scripted::default(), context);
    let mut streamed = 0;
    while host.next().await.is_some() {
        streamed += 1;
    }
    assert_eq!(streamed, 40);
    let text = ended(task).await.unwrap().text.unwrap();
    assert!(
        text.ends_with(&format!("\n[{} more bytes were streamed and not kept]", 24 * MIB)),
        "{}",
        text.len()
    );
    assert!(text.len() < 17 * MIB);
}

#[tokio::test]
async fn an_error_ends_the_turn_with_its_message() {
    let (result, sent) =
        play(&json!([{"delta": "a"}, {"error": "the model went away"}, {"delta": "b"}])).await;
    assert_eq!(sent, [delta("a")]);
    assert_eq!(result, Err(AgentError::exception("the model went away")));
}

#[tokio::test]
async fn a_panic_panics() {
    let (context, mut host) = turn(&frame(&json!([{"delta": "a"}, {"panic": "on purpose"}])), 4);
    let task = start(Scripted::default(), context);
    assert_eq!(host.rest().await, [delta("a")]);
    let panic = task.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("on purpose"));
}

#[tokio::test]
async fn the_same_script_gives_the_same_every_time() {
    let script =
        json!([{"deltas": 50, "bytes": 10}, {"event": {"kind": "usage", "z": 1, "a": 2}}, {"delta": "end"}]);
    let first = play(&script).await;
    assert_eq!(first.1.len(), 52);
    assert_eq!(play(&script).await, first);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_at_any_point_ends_the_turn_with_what_was_streamed() {
    let script = json!([
        {"delta": "a"},
        {"sleep_ms": 20_000},
        {"deltas": 5, "bytes": 3, "delay_ms": 20_000},
        {"event": {"kind": "status", "text": "t"}},
        {"ask": {"command": "rm"}},
        {"alloc_mb": 3},
        {"deltas": 5, "bytes": 3},
        {"delta": "z"},
    ]);
    let (result, all) = play(&script).await;
    assert_eq!(result, complete(&text(&all)));
    for taken in 0..all.len() {
        for capacity in [1, 64] {
            let (context, mut host) = turn(&frame(&script), capacity);
            let flag = host.interrupt.clone();
            let task = start(Scripted::default(), context);
            let mut sent = Vec::new();
            for _ in 0..taken {
                sent.extend(host.next().await);
            }
            flag.send_replace(true);
            sent.extend(host.rest().await);
            assert_eq!(sent, all[..sent.len()]);
            let Answer { text: answer, interrupted } = ended(task).await.unwrap();
            // With room in the pipe the script may be over before the interrupt comes.
            assert!(interrupted || (capacity == 64 && sent == all), "after {taken}");
            let mark = if interrupted { "[interrupted]" } else { "" };
            assert_eq!(answer, Some(text(&sent) + mark), "after {taken}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_that_is_already_there_streams_nothing() {
    for frame in [frame(&json!([{"delta": "a"}])), json!({"sid": "s", "text": "p"})] {
        let (context, mut host) = turn(&frame, 4);
        host.interrupt.send_replace(true);
        let task = start(Scripted::default(), context);
        assert_eq!(host.rest().await, []);
        assert_eq!(ended(task).await, interrupted("[interrupted]"));
    }
}

#[tokio::test]
async fn an_interrupt_ends_a_turn_whose_output_nobody_takes() {
    let (context, host) = turn(&frame(&json!([{"deltas": 1_000_000_000}])), 1);
    let task = start(Scripted::default(), context);
    wait_until_full(&host.work).await;
    host.interrupt.send_replace(true);
    let answer = ended(task).await.unwrap();
    assert_eq!(answer, Answer { text: Some("00000000 .......[interrupted]".to_owned()), interrupted: true });
}

async fn wait_until_full(work: &tokio::sync::mpsc::Receiver<crate::turn::context::Work>) {
    while work.len() < work.max_capacity() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hang_is_deaf_to_the_interrupt() {
    let (context, mut host) = turn(&frame(&json!([{"delta": "a"}, {"hang": true}])), 4);
    let task = start(Scripted::default(), context);
    assert_eq!(host.next_delta().await, "a");
    host.interrupt.send_replace(true);
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert!(!task.is_finished());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_turn_that_is_over_for_the_host_ends_its_script() {
    let (context, mut host) = turn(&frame(&json!([{"deltas": 1_000_000_000}])), 1);
    let task = start(Scripted::default(), context);
    host.next_delta().await;
    host.work.close();
    assert!(ended(task).await.unwrap().interrupted);
}

#[tokio::test]
async fn a_spawned_program_is_registered_reaped_and_not_waited_for() {
    for detach in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let script =
            json!([{"spawn": ["sh", "-c", format!("read x <{}", fifo.display())], "detach": detach}]);
        let (result, sent, host) = run(Scripted::default(), &frame(&script)).await;
        // It still waits for its word.
        assert_eq!((result, sent), (complete(""), vec![]));
        let [pid] = host.processes.pids()[..] else { panic!("not registered") };
        let stat = turnhost_os::identity::stat(pid).unwrap();
        assert_eq!(stat.session == pid, detach);
        tokio::task::spawn_blocking(move || std::fs::write(fifo, "word\n")).await.unwrap().unwrap();
        let gone = async {
            while !host.processes.pids().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
        assert_eq!(turnhost_os::identity::stat(pid), None, "a zombie");
        host.assert_nothing_left();
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_spawned_names_its_step() {
    let (result, _) = play(&json!([{"delta": "a"}, {"spawn": ["/turnhost/no/such/program"]}])).await;
    let message = result.unwrap_err().message;
    assert!(message.contains("step 2") && message.contains("/turnhost/no/such/program"), "{message}");
}

/// Plays `script` in a process of its own: this very test, run again. Gives its output and how it ended, or plays and
/// does not return if this is that process.
async fn in_a_process(test: &str, script: &Value) -> std::process::Output {
    const SCRIPT: &str = "TURNHOST_TEST_SCRIPT";
    if let Ok(script) = std::env::var(SCRIPT) {
        let _ = run(Scripted::default(), &frame(&serde_json::from_str(&script).unwrap())).await;
        std::process::exit(100);
    }
    let name = format!("agent::scripted::tests::{test}");
    let argv = [
        std::env::current_exe().unwrap().into_os_string(),
        "--exact".into(),
        name.into(),
        "--nocapture".into(),
    ];
    let mut command =
        crate::agent::command::command(&argv, &std::env::temp_dir(), crate::agent::command::Place::OwnGroup)
            .unwrap();
    let child = command
        .env(SCRIPT, script.to_string())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await.unwrap().unwrap()
}

fn contains(output: &[u8], text: &[u8]) -> bool {
    output.windows(text.len()).any(|window| window == text)
}

#[tokio::test]
async fn exit_ends_the_process_with_its_code_and_stray_prints_reach_its_descriptors() {
    let script = json!([{"stdout": "to\\xff1"}, {"stderr": "to\\xfe2"}, {"exit": 42}, {"delta": "never"}]);
    let output =
        in_a_process("exit_ends_the_process_with_its_code_and_stray_prints_reach_its_descriptors", &script)
            .await;
    assert_eq!(output.status.code(), Some(42));
    assert!(contains(&output.stdout, b"to\xff1"), "{:?}", output.stdout);
    assert!(contains(&output.stderr, b"to\xfe2"), "{:?}", output.stderr);
}

#[tokio::test]
async fn a_signal_ends_the_process_whatever_its_handlers() {
    // The standard library handles SEGV itself, for stack overflows.
    let output =
        in_a_process("a_signal_ends_the_process_whatever_its_handlers", &json!([{"signal": "SEGV"}])).await;
    assert_eq!(output.status.signal(), Some(nix::libc::SIGSEGV));
    assert!(!output.status.core_dumped());
}

#[tokio::test]
async fn what_was_streamed_is_written_before_the_process_ends() {
    // Nobody answers the flush: the turn waits for it, and so the process still lives.
    let (context, mut host) = turn(&frame(&json!([{"delta": "a"}, {"exit": 1}])), 4);
    let task = start(Scripted::default(), context);
    assert_eq!(host.next_delta().await, "a");
    let work = host.work.recv().await.unwrap();
    assert!(matches!(work.item, crate::turn::context::WorkItem::Flush(_)));
    host.interrupt.send_replace(true);
    assert_eq!(ended(task).await, interrupted("a[interrupted]"));
}
