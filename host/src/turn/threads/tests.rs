use super::*;
use crate::agent::testing::turn;
use crate::turn::{AgentError, Answer};
use crossbeam_channel::RecvTimeoutError;
use std::time::Duration;
use turnhost_protocol::FailReason;

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

struct Does<F>(F);

impl<F: Fn() -> AgentResult + Send + Sync + 'static> BlockingAgent for Does<F> {
    fn run(&self, _: TurnContext) -> AgentResult {
        (self.0)()
    }
}

fn agent(does: impl Fn() -> AgentResult + Send + Sync + 'static) -> Arc<dyn BlockingAgent> {
    Arc::new(Does(does))
}

/// Says on which thread it runs.
fn names_thread() -> Arc<dyn BlockingAgent> {
    agent(|| Ok(Answer { text: std::thread::current().name().map(str::to_owned), interrupted: false }))
}

/// Runs until `release` is dropped.
fn held(release: &Receiver<()>) -> Arc<dyn BlockingAgent> {
    let release = release.clone();
    agent(move || {
        let _ = release.recv();
        Ok(Answer::default())
    })
}

type Running = oneshot::Receiver<Result<AgentResult, String>>;

fn start(threads: &mut Threads, agent: Arc<dyn BlockingAgent>) -> Result<Running, String> {
    threads.run(agent, turn(&serde_json::json!({"sid": "s", "request_id": "t"}), 1).0)
}

async fn end(running: Running) -> Result<AgentResult, String> {
    tokio::time::timeout(DEADLINE, running).await.expect("the turn does not end").expect("its thread is gone")
}

async fn thread_of_next(threads: &mut Threads) -> String {
    let running = start(threads, names_thread()).unwrap();
    end(running).await.unwrap().unwrap().text.unwrap()
}

#[tokio::test]
async fn a_thread_is_made_when_it_is_needed_and_used_again() {
    let mut threads = Threads::new(8, Handle::current());
    assert_eq!(threads.made.load(Ordering::Acquire), 0);
    for _ in 0..100 {
        assert_eq!(thread_of_next(&mut threads).await, "turn-1");
    }
    assert_eq!(threads.made.load(Ordering::Acquire), 1);
}

#[tokio::test]
async fn turns_at_once_have_a_thread_each_and_later_ones_take_those() {
    let mut threads = Threads::new(3, Handle::current());
    for _ in 0..20 {
        let together = Arc::new(std::sync::Barrier::new(3));
        let running: Vec<Running> = (0..3)
            .map(|_| {
                let together = Arc::clone(&together);
                let meets = agent(move || {
                    together.wait();
                    Ok(Answer { text: std::thread::current().name().map(str::to_owned), interrupted: false })
                });
                start(&mut threads, meets).unwrap()
            })
            .collect();
        let mut names = Vec::new();
        for running in running {
            names.push(end(running).await.unwrap().unwrap().text.unwrap());
        }
        names.sort_unstable();
        assert_eq!(names, ["turn-1", "turn-2", "turn-3"]);
    }
    assert_eq!(threads.made.load(Ordering::Acquire), 3);
}

#[tokio::test]
async fn an_error_of_an_agent_is_its_result() {
    let mut threads = Threads::new(1, Handle::current());
    let failing = agent(|| Err(AgentError::bad_request("no")));
    let result = end(start(&mut threads, failing).unwrap()).await.unwrap();
    assert_eq!(result.unwrap_err().reason, FailReason::BadRequest);
}

#[tokio::test]
async fn a_panic_is_the_result_of_its_turn_and_the_thread_goes_on() {
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("in drop");
            }
        }
    }
    let mut threads = Threads::new(1, Handle::current());
    let panics = [
        (agent(|| panic!("a {}", "text")), "the agent panicked: a text"),
        (agent(|| panic!("static")), "the agent panicked: static"),
        (agent(|| std::panic::panic_any(7)), "the agent panicked"),
        (agent(|| std::panic::panic_any(PanicsWhenDropped)), "the agent panicked"),
    ];
    for (panicking, message) in panics {
        let running = start(&mut threads, panicking).unwrap();
        assert_eq!(end(running).await, Err(message.to_owned()));
        assert_eq!(thread_of_next(&mut threads).await, "turn-1", "after {message:?}");
    }
    let owned = PanicsWhenDropped;
    let dropped = agent(move || {
        let _ = &owned;
        Ok(Answer::default())
    });
    assert_eq!(end(start(&mut threads, dropped).unwrap()).await, Ok(Ok(Answer::default())));
    assert_eq!(thread_of_next(&mut threads).await, "turn-1", "after an agent that panics when it is dropped");
    assert_eq!(threads.made.load(Ordering::Acquire), 1);
}

#[tokio::test]
async fn turns_that_do_not_end_cost_their_threads_and_there_is_a_limit_to_them() {
    let (let_go, release) = bounded::<()>(0);
    let mut threads = Threads::new(1, Handle::current());
    let stuck: Vec<Running> =
        (0..2 + SPARE_THREADS).map(|_| start(&mut threads, held(&release)).unwrap()).collect();
    let refused = start(&mut threads, names_thread()).unwrap_err();
    assert!(refused.starts_with("no thread left for the turn: all 66 are held"), "{refused}");
    drop(let_go);
    for running in stuck {
        end(running).await.unwrap().unwrap();
    }
    assert!(thread_of_next(&mut threads).await.starts_with("turn-"), "they came back");
    assert_eq!(threads.made.load(Ordering::Acquire), 2 + SPARE_THREADS);
}

#[tokio::test]
async fn any_number_of_workers_may_be_set() {
    let mut threads = Threads::new(usize::MAX, Handle::current());
    assert_eq!(thread_of_next(&mut threads).await, "turn-1");
}

#[tokio::test]
async fn a_turn_may_use_the_runtime_of_the_host() {
    let mut threads = Threads::new(1, Handle::current());
    let asks = agent(|| {
        let answer = Handle::current().block_on(async { tokio::spawn(async { "from a task" }).await });
        Ok(Answer { text: answer.ok().map(str::to_owned), interrupted: false })
    });
    let answer = end(start(&mut threads, asks).unwrap()).await.unwrap().unwrap();
    assert_eq!(answer.text.as_deref(), Some("from a task"));
}

#[tokio::test]
async fn the_end_waits_for_no_turn_and_ends_the_threads_that_are_idle() {
    thread_local! {
        static ALIVE: std::cell::RefCell<Option<Sender<()>>> = const { std::cell::RefCell::new(None) };
    }
    let (alive, seen) = bounded::<()>(0);
    let mut threads = Threads::new(2, Handle::current());
    let (let_go, release) = bounded::<()>(0);
    let stuck = start(&mut threads, held(&release)).unwrap();
    let marks = agent(move || {
        ALIVE.with_borrow_mut(|here| *here = Some(alive.clone()));
        Ok(Answer::default())
    });
    end(start(&mut threads, marks).unwrap()).await.unwrap().unwrap();
    assert_eq!(seen.try_recv(), Err(crossbeam_channel::TryRecvError::Empty), "idle, and alive");
    drop(threads);
    assert_eq!(seen.recv_timeout(DEADLINE), Err(RecvTimeoutError::Disconnected), "the idle one ends");
    drop(let_go);
    assert_eq!(end(stuck).await, Ok(Ok(Answer::default())), "the busy one ended its turn in peace");
}
