//! The delivery thread: runs an embedder's callbacks, so that none ever runs on the I/O thread. A callback may be slow,
//! call back into the supervisor, or panic; it only ever delays other callbacks.

use crate::error::CallError;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use tokio::sync::oneshot;
use turnhost_protocol::ErrorKind;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the jobs run. The thread begins with the first job and ends when the last is done and this is gone.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// A mutex: the first of several callers starts the thread.
    queue: Mutex<Option<Arc<Queue>>>,
}

#[derive(Debug)]
struct Queue {
    /// A mutex and a condition variable and no channel: a waker must not wait, and a job is in it at most once.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Arc<Task>>,
    /// Jobs that are not done.
    alive: usize,
    /// The `Delivery` is gone.
    closed: bool,
    thread: Option<ThreadId>,
}

struct Task {
    job: Mutex<Option<Job>>,
    queued: AtomicBool,
    queue: Weak<Queue>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}

impl Delivery {
    /// Runs `job` on the delivery thread until it is done or panics.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) -> Result<(), CallError> {
        let queue = self.queue()?;
        queue.lock().alive += 1;
        let task = Arc::new(Task {
            job: Mutex::new(Some(Box::pin(job))),
            queued: AtomicBool::new(false),
            queue: Arc::downgrade(&queue),
        });
        queue.push(task);
        Ok(())
    }

    /// Resolves once every callback that is due now has returned. `None` if nothing is due, or on the delivery thread
    /// itself.
    pub(crate) fn marker(&self) -> Option<oneshot::Receiver<()>> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        if queue.lock().thread == Some(std::thread::current().id()) {
            return None;
        }
        let (passed, marker) = oneshot::channel();
        // Jobs are polled in the order in which they became ready, each until it waits.
        self.spawn(async move { drop(passed) }).ok()?;
        Some(marker)
    }

    fn queue(&self) -> Result<Arc<Queue>, CallError> {
        let mut slot = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = &*slot {
            return Ok(Arc::clone(queue));
        }
        let queue = Arc::new(Queue { state: Mutex::new(State::default()), changed: Condvar::new() });
        let run = Arc::clone(&queue);
        std::thread::Builder::new()
            .name("supervisor-callbacks".to_owned())
            .spawn(move || run.run())
            .map_err(|error| {
                let text = format!("cannot start the thread for callbacks: {error}; free some threads");
                CallError::new(ErrorKind::SpawnFailed, text)
            })?;
        *slot = Some(Arc::clone(&queue));
        Ok(queue)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            queue.lock().closed = true;
            queue.changed.notify_one();
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, task: Arc<Task>) {
        if !task.queued.swap(true, Ordering::AcqRel) {
            self.lock().ready.push_back(task);
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        self.lock().thread = Some(std::thread::current().id());
        while let Some(task) = self.next() {
            task.queued.store(false, Ordering::Release);
            if poll_once(&task) {
                self.lock().alive -= 1;
            }
        }
    }

    fn next(&self) -> Option<Arc<Task>> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.ready.pop_front() {
                return Some(task);
            }
            if state.closed && state.alive == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// True if the job is over.
fn poll_once(task: &Arc<Task>) -> bool {
    let mut slot = task.job.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(job) = slot.as_mut() else { return false };
    let waker = Waker::from(Arc::clone(task));
    let mut context = Context::from_waker(&waker);
    let polled = catch_unwind(AssertUnwindSafe(|| job.as_mut().poll(&mut context)));
    if matches!(polled, Ok(Poll::Pending)) {
        return false;
    }
    if polled.is_err() {
        tracing::error!("a callback of the embedder panicked; it gets no more events");
    }
    // Dropping what the callback owns is foreign code as well.
    let _ = catch_unwind(AssertUnwindSafe(|| *slot = None));
    true
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if let Some(queue) = self.queue.upgrade() {
            queue.push(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_job_that_panics_ends_alone() {
        let delivery = Delivery::default();
        let (tell, told) = sync_channel(1);
        delivery.spawn(async { panic!("a callback may panic") }).unwrap();
        delivery.spawn(async move { tell.send(1).unwrap() }).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(1));
    }

    #[test]
    fn a_marker_resolves_after_every_job_that_was_ready_before_it() {
        let delivery = Delivery::default();
        let (go, gate) = oneshot::channel::<()>();
        let (tell, told) = sync_channel(100);
        let waiting = tell.clone();
        delivery
            .spawn(async move {
                gate.await.unwrap();
                for n in 0..50 {
                    waiting.send(n).unwrap();
                }
            })
            .unwrap();
        go.send(()).unwrap();
        drop(tell);
        let _ = block_on(delivery.marker().expect("the thread runs"));
        assert_eq!(told.try_iter().count(), 50);
    }

    #[test]
    fn a_marker_asked_for_by_a_callback_is_not_waited_for() {
        let delivery = Arc::new(Delivery::default());
        let (tell, told) = sync_channel(1);
        let inner = Arc::clone(&delivery);
        delivery.spawn(async move { tell.send(inner.marker().is_none()).unwrap() }).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
    }

    #[test]
    fn the_thread_ends_when_its_owner_and_its_jobs_are_gone() {
        let delivery = Delivery::default();
        let (finish, gate) = oneshot::channel::<()>();
        let (alive, ended) = sync_channel::<()>(0);
        delivery
            .spawn(async move {
                let _ = gate.await;
                drop(alive);
            })
            .unwrap();
        let queue = Arc::downgrade(delivery.queue.lock().unwrap().as_ref().unwrap());
        drop(delivery);
        assert!(queue.upgrade().is_some(), "a job is left");
        finish.send(()).unwrap();
        assert!(ended.recv_timeout(PATIENCE).is_err(), "the job is done");
        let deadline = std::time::Instant::now() + PATIENCE;
        while queue.upgrade().is_some() {
            assert!(std::time::Instant::now() < deadline, "the thread does not end");
            std::thread::yield_now();
        }
    }
}
