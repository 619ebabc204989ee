use super::*;
use crate::agent::testing::wait_for;
use crate::turn::context::Question;
use crate::turn::{Answer, AsyncAgent, BlockingAgent, TurnFuture};
use pretty_assertions::assert_eq;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// For things that happen at once on any machine that is not stuck.
const DEADLINE: Duration = Duration::from_secs(60);

struct Does<F>(F);

impl<F: Fn(TurnContext) -> TurnFuture<'static> + Send + Sync + 'static> AsyncAgent for Does<F> {
    fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
        (self.0)(turn)
    }
}

impl<F: Fn(TurnContext) -> AgentResult + Send + Sync + 'static> BlockingAgent for Does<F> {
    fn run(&self, turn: TurnContext) -> AgentResult {
        (self.0)(turn)
    }
}

fn awaits(does: impl Fn(TurnContext) -> TurnFuture<'static> + Send + Sync + 'static) -> Agent {
    Agent::Async(Arc::new(Does(does)))
}

fn blocks(does: impl Fn(TurnContext) -> AgentResult + Send + Sync + 'static) -> Agent {
    Agent::Blocking(Arc::new(Does(does)))
}

struct Rig {
    request: Arc<CompressionRequest>,
    stop: watch::Sender<bool>,
    work: mpsc::Receiver<Work>,
}

fn rig(agent: Agent, at_once: &Arc<Semaphore>) -> Rig {
    let (stop, flag) = watch::channel(false);
    let (sender, work) = mpsc::channel(16);
    let agent = SessionAgent {
        id: 7,
        agent,
        threads: Threads::new(1, Handle::current()),
        at_once: Arc::clone(at_once),
        request_id: "c".into(),
        cwd: "/project".into(),
        env: BTreeMap::from([("NAME".to_owned(), "value".to_owned())]),
        provider: Some("provider".to_owned()),
        base_url: Some("http://x".to_owned()),
        options: None,
        processes: TurnProcesses::default(),
        work: sender,
    };
    let request = CompressionRequest {
        sid: "s".into(),
        session_key: "k".to_owned(),
        history: Arc::default(),
        focus: None,
        model: Some("model".to_owned()),
        interrupt: Interrupt::new(flag),
        agent: Some(agent),
    };
    Rig { request: Arc::new(request), stop, work }
}

fn one() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

async fn ask(agent: Agent) -> Result<String, String> {
    let rig = rig(agent, &one());
    tokio::time::timeout(DEADLINE, rig.request.ask_agent("prompt"))
        .await
        .expect("no answer")
        .map_err(|error| error.to_string())
}

fn said(text: &str) -> AgentResult {
    Ok(Answer { text: Some(text.to_owned()), interrupted: false })
}

#[tokio::test]
async fn the_answer_is_what_the_agent_says_or_streams_without_white_space_around_it() {
    let says = awaits(|_| Box::pin(async { said(" \nsaid\n") }));
    assert_eq!(ask(says).await, Ok("said".to_owned()));
    let streams = awaits(|turn| {
        Box::pin(async move {
            for _ in 0..1000 {
                turn.sink.delta("x").await.unwrap();
            }
            turn.sink.flush().await.unwrap();
            Ok(Answer::default())
        })
    });
    assert_eq!(ask(streams).await, Ok("x".repeat(1000)));
    let on_a_thread = blocks(|turn| {
        turn.sink.send_blocking(WorkItem::Delta("from a thread".to_owned())).unwrap();
        Ok(Answer::default())
    });
    assert_eq!(ask(on_a_thread).await, Ok("from a thread".to_owned()));
}

#[tokio::test]
async fn the_agent_gets_the_prompt_alone_and_the_sessions_surroundings() {
    let looks = awaits(|turn| {
        Box::pin(async move {
            assert_eq!((turn.prompt.as_str(), turn.purpose), ("prompt", Purpose::Summary));
            assert_eq!((turn.sid.as_str(), turn.request_id.as_str()), ("s", "c"));
            assert_eq!((turn.model.as_deref(), turn.provider.as_deref()), (Some("model"), Some("provider")));
            assert_eq!((turn.base_url.as_deref(), turn.env["NAME"].as_str()), (Some("http://x"), "value"));
            assert_eq!((turn.history.len(), turn.system_prompt), (0, None));
            said("ok")
        })
    });
    assert_eq!(ask(looks).await, Ok("ok".to_owned()));
}

#[tokio::test]
async fn an_agent_that_fails_panics_says_nothing_or_too_much_gives_no_summary() {
    let too_long = "the summary is over 64 KiB".to_owned();
    let table: Vec<(Agent, String)> = vec![
        (awaits(|_| Box::pin(async { Err(AgentError::exception("no model")) })), "no model".to_owned()),
        (awaits(|_| Box::pin(async { panic!("boom") })), "the agent panicked: boom".to_owned()),
        (blocks(|_| panic!("boom")), "the agent panicked: boom".to_owned()),
        (awaits(|_| Box::pin(async { said(" \n") })), "the agent wrote an empty summary".to_owned()),
        (
            awaits(|_| Box::pin(async { Ok(Answer { text: Some("x".to_owned()), interrupted: true }) })),
            "interrupted".to_owned(),
        ),
        (awaits(|_| Box::pin(async { said(&"x".repeat(SUMMARY_BYTES + 1)) })), too_long.clone()),
        (
            awaits(|turn| {
                Box::pin(async move {
                    while turn.sink.delta("x".repeat(1000)).await.is_ok() {}
                    said("x")
                })
            }),
            too_long,
        ),
    ];
    for (number, (agent, message)) in table.into_iter().enumerate() {
        assert_eq!(ask(agent).await, Err(message), "case {number}");
    }
}

#[tokio::test]
async fn questions_are_denied_and_what_was_used_goes_to_the_loop() {
    let asks = awaits(|turn| {
        Box::pin(async move {
            let question = Question {
                command: "rm".to_owned(),
                description: String::new(),
                choices: Vec::new(),
                allow_permanent: false,
                timeout_ms: 1000,
            };
            assert_eq!(turn.ask_approval(question).await, ApprovalAnswer::Denied);
            let usage = RawJson::parse(r#"{"kind":"usage","total":3}"#).unwrap();
            turn.sink.send(WorkItem::Event(usage)).await.unwrap();
            turn.sink.send(WorkItem::RawBytes(b"raw".to_vec())).await.unwrap();
            said("ok")
        })
    });
    let mut rig = rig(asks, &one());
    assert_eq!(rig.request.ask_agent("p").await, Ok("ok".to_owned()));
    let work = rig.work.try_recv().unwrap();
    assert_eq!(work.turn, 7);
    assert!(matches!(&work.item, WorkItem::Event(body) if body.as_str().contains("usage")), "{work:?}");
    assert!(rig.work.try_recv().is_err(), "raw bytes go nowhere");
}

#[tokio::test]
async fn an_interrupt_reaches_the_agent_and_one_that_waits_for_its_place() {
    let at_once = one();
    let obeys = || {
        awaits(|turn| {
            Box::pin(async move {
                turn.interrupt.wait().await;
                // It finished all the same: too late for whoever interrupted.
                said("x")
            })
        })
    };
    let (first, second) = (rig(obeys(), &at_once), rig(obeys(), &at_once));
    let spawn = |request: Arc<CompressionRequest>| tokio::spawn(async move { request.ask_agent("p").await });
    let (running, waiting) = (spawn(first.request), spawn(second.request));
    second.stop.send_replace(true);
    let interrupted = Err(CompressionError::new("interrupted"));
    assert_eq!(tokio::time::timeout(DEADLINE, waiting).await.unwrap().unwrap(), interrupted);
    assert!(!running.is_finished());
    first.stop.send_replace(true);
    assert_eq!(tokio::time::timeout(DEADLINE, running).await.unwrap().unwrap(), interrupted);
    assert_eq!(at_once.available_permits(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_that_is_dropped_ends_the_agent() {
    struct Ends(Arc<AtomicBool>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let (begun, began) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let ended = Arc::new(AtomicBool::new(false));
    let (tell, ends) = (Arc::clone(&begun), Arc::clone(&ended));
    let deaf = awaits(move |_| {
        let (tell, ends) = (Arc::clone(&tell), Ends(Arc::clone(&ends)));
        Box::pin(async move {
            let _ends = ends;
            tell.store(true, Ordering::Release);
            std::future::pending().await
        })
    });
    let (tell, told) = (Arc::clone(&began), Arc::new(AtomicBool::new(false)));
    let sees = Arc::clone(&told);
    let blocking = blocks(move |turn| {
        tell.store(true, Ordering::Release);
        while !turn.interrupt.is_set() {
            std::thread::yield_now();
        }
        sees.store(true, Ordering::Release);
        said("late")
    });
    for (agent, begun, ended) in [(deaf, begun, ended), (blocking, began, told)] {
        let request = rig(agent, &one()).request;
        let task = tokio::spawn(async move { request.ask_agent("p").await });
        wait_for("the agent to begin", || begun.load(Ordering::Acquire));
        task.abort();
        wait_for("the agent to end", || ended.load(Ordering::Acquire));
    }
}
