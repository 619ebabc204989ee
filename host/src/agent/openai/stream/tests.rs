//! On a paused clock: no wait of these tests takes time.

use super::*;
use crate::turn::context::{Work, WorkItem};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::collections::VecDeque;
use tokio::sync::mpsc;

const IDLE: Duration = Duration::from_secs(60);

/// What the connection does next.
enum Step {
    Bytes(Vec<u8>),
    Wait(Duration),
    Break(&'static str),
    Silence,
}

use Step::{Break, Silence, Wait};

struct Script {
    steps: VecDeque<Step>,
    /// The end of the wait that has begun.
    until: Option<Instant>,
}

impl Script {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), until: None }
    }
}

impl Body for Script {
    async fn piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            match self.steps.front() {
                Some(Wait(pause)) => {
                    let until = *self.until.get_or_insert_with(|| Instant::now() + *pause);
                    tokio::time::sleep_until(until).await;
                    self.until = None;
                }
                Some(Silence) => std::future::pending().await,
                Some(Step::Bytes(_) | Break(_)) | None => {}
            }
            // Only now is it over: whoever stopped waiting before finds it again.
            match self.steps.pop_front() {
                Some(Step::Bytes(bytes)) => return Ok(Some(bytes)),
                Some(Break(problem)) => return Err(problem.to_owned()),
                Some(Wait(_) | Silence) => {}
                None => return Ok(None),
            }
        }
    }
}

fn bytes(text: &str) -> Step {
    Step::Bytes(text.as_bytes().to_vec())
}

fn content(text: &str) -> Step {
    bytes(&format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]})))
}

fn reasoning(text: &str) -> Step {
    bytes(&format!("data: {}\n\n", json!({"choices": [{"delta": {"reasoning": text}}]})))
}

fn finish() -> Step {
    bytes("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n")
}

fn done() -> Step {
    bytes("data: [DONE]\n\n")
}

/// What was sent, with the milliseconds since the beginning; deltas as `{"delta":…}`.
async fn passed_on(
    steps: impl IntoIterator<Item = Step>,
) -> (Vec<(u128, Value)>, Result<(), String>, Duration) {
    let (sender, mut work) = mpsc::channel::<Work>(1);
    let sink = Sink::new(1, sender);
    let key = ApiKey::new(Some("sk-0123456789".to_owned()));
    let mut body = Script::new(steps);
    let start = Instant::now();
    let stream = Stream { sink: &sink, key: &key, server: "http://server", idle_timeout: IDLE };
    let sending =
        stream.pass_on(Answer::new(Some("text/event-stream")), Some(b": begin\n\n".to_vec()), &mut body);
    tokio::pin!(sending);
    let mut sent = Vec::new();
    let result = loop {
        tokio::select! {
            biased;
            work = work.recv() => {
                let item = match work.expect("the sink stands").item {
                    WorkItem::Delta(text) => json!({"delta": text}),
                    WorkItem::Event(body) => body.read().unwrap(),
                    other => panic!("{other:?}"),
                };
                sent.push((start.elapsed().as_millis(), item));
            }
            result = &mut sending => break result,
        }
    };
    while let Ok(work) = work.try_recv() {
        match work.item {
            WorkItem::Delta(text) => sent.push((start.elapsed().as_millis(), json!({"delta": text}))),
            WorkItem::Event(body) => sent.push((start.elapsed().as_millis(), body.read().unwrap())),
            other => panic!("{other:?}"),
        }
    }
    let result = result.map_err(|stopped| match stopped {
        Stopped::Over => "over".to_owned(),
        Stopped::Failed(error) => error.message,
    });
    (sent, result, start.elapsed())
}

fn thought(text: &str) -> Value {
    json!({"kind": "thought", "text": text})
}

fn delta(text: &str) -> Value {
    json!({"delta": text})
}

#[tokio::test(start_paused = true)]
async fn text_goes_out_as_it_comes_and_thoughts_in_batches() {
    let tick = || Wait(Duration::from_millis(100));
    let (sent, result, _) = passed_on([
        reasoning("Let "),
        tick(),
        reasoning("me "),
        tick(),
        reasoning("see."),
        content("a"),
        tick(),
        content("b"),
        done(),
    ])
    .await;
    assert_eq!(result, Ok(()));
    assert_eq!(
        sent,
        [(150, thought("Let me ")), (200, thought("see.")), (200, delta("a")), (300, delta("b"))]
    );
}

#[tokio::test(start_paused = true)]
async fn silence_for_the_idle_timeout_cuts_the_answer_and_keeps_what_came() {
    let (sent, result, took) = passed_on([content("a"), reasoning("hm"), Silence]).await;
    let message = result.unwrap_err();
    assert!(message.contains("cut off") && message.contains("60 s (idle_timeout_s)"), "{message}");
    assert_eq!(sent, [(0, delta("a")), (150, thought("hm"))]);
    assert_eq!(took, IDLE);
}

#[tokio::test(start_paused = true)]
async fn a_comment_is_a_sign_of_life() {
    let nearly = || Wait(IDLE - Duration::from_millis(1));
    let (sent, result, took) = passed_on([
        nearly(),
        bytes(": keep-alive\n\n"),
        nearly(),
        bytes(":"),
        nearly(),
        bytes("\n\n"),
        content("a"),
        done(),
    ])
    .await;
    assert_eq!(result, Ok(()));
    assert_eq!(sent.len(), 1);
    assert!(took > IDLE * 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_cuts_the_answer_unless_its_text_is_whole() {
    let (sent, result, _) = passed_on([content("a"), Break("it broke")]).await;
    assert_eq!(
        (sent, result),
        (vec![(0, delta("a"))], Err("openai: the answer was cut off: it broke".to_owned()))
    );
    let (sent, result, _) = passed_on([content("a"), finish(), Break("it broke")]).await;
    assert_eq!((sent, result), (vec![(0, delta("a"))], Ok(())));
    let (_, result, _) = passed_on([content("a")]).await;
    assert!(result.unwrap_err().contains("cut off"));
}

#[tokio::test(start_paused = true)]
async fn after_the_end_of_the_text_only_a_moment_is_waited_for_the_tokens() {
    let usage =
        || bytes("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n");
    let (sent, result, took) =
        passed_on([content("a"), finish(), Wait(LAST_WORDS / 2), usage(), Silence]).await;
    assert_eq!(result, Ok(()));
    let counted = json!({"kind": "usage", "input": 1, "output": 2, "total": 3, "calls": 1});
    assert_eq!(sent.last().map(|(_, event)| event), Some(&counted));
    assert_eq!(took, LAST_WORDS / 2 + LAST_WORDS);
    let (_, result, took) = passed_on([content("a"), done(), Silence]).await;
    assert_eq!((result, took), (Ok(()), Duration::ZERO), "[DONE] needs no end of the connection");
}

#[tokio::test(start_paused = true)]
async fn a_long_text_goes_out_in_pieces_that_are_whole_characters() {
    let text = "\u{20ac}".repeat(MAX_DELTA_BYTES);
    let (sent, result, _) = passed_on([content(&text), done()]).await;
    assert_eq!(result, Ok(()));
    let pieces: Vec<&str> = sent.iter().map(|(_, delta)| delta["delta"].as_str().unwrap()).collect();
    assert_eq!(pieces.concat(), text);
    assert!(pieces.len() >= 3 && pieces.iter().all(|piece| piece.len() <= MAX_DELTA_BYTES));
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_in_its_stream_is_shown_without_the_key() {
    let error = || bytes("data: {\"error\":{\"message\":\"bad\\nkey sk-0123456789\"}}\n\n");
    let (sent, result, _) = passed_on([content("a"), reasoning("hm"), error(), done()]).await;
    assert_eq!(sent, [(0, delta("a")), (0, thought("hm"))]);
    let message = result.unwrap_err();
    assert_eq!(message, "openai: http://server: the server failed in its answer: bad key [the API key]");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_over_takes_nothing_more() {
    let (sender, work) = mpsc::channel::<Work>(1);
    drop(work);
    let sink = Sink::new(1, sender);
    let stream = Stream { sink: &sink, key: &ApiKey::default(), server: "s", idle_timeout: IDLE };
    let mut body = Script::new([content("a"), Silence]);
    let result = stream.pass_on(Answer::new(Some("text/event-stream")), Some(Vec::new()), &mut body).await;
    assert!(matches!(result, Err(Stopped::Over)));
}
