//! One task per guarded host: passes orders on, insists on answers, tells what happened, and does the guard's work if
//! the guard dies.

use super::Orders;
use super::control::{Control, Received};
use super::tree::{ROUND, Tree};
use crate::child::ChildEvent;
use crate::guard::protocol::{FromGuard, Order, ToGuard};
use crate::machine::Exit;
use rustix::process::Signal;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

/// From an order to its acknowledgement, and from CONT to KILL if there is none.
const ACK_TIME: Duration = Duration::from_secs(1);
/// How long our own host may flush when its guard has died.
const FLUSH_TIME: Duration = Duration::from_millis(1200);
/// KILL takes effect at once but for a process in uninterruptible sleep.
const KILL_TIME: Duration = Duration::from_secs(2);

/// Attends one guard: passes orders on, insists on answers, and does the guard's work if the guard dies.
pub(super) struct Attendant {
    control: Control,
    guard_pidfd: AsyncFd<OwnedFd>,
    host_ended: AsyncFd<OwnedFd>,
    tree: Tree,
    ordered: watch::Receiver<Orders>,
    sent: Orders,
    number: u32,
    unanswered: Option<Unanswered>,
    tell: mpsc::Sender<ChildEvent>,
    exited: bool,
}

/// An order that the guard has not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unanswered {
    number: u32,
    deadline: Instant,
    /// It was sent CONT already.
    continued: bool,
}

/// Why the attendant stopped listening to the guard.
enum Ended {
    /// It has told that the tree is gone.
    Swept,
    /// It is dead, or as good as dead.
    GuardDied,
    /// Nobody wants the child any more.
    Dropped,
}

impl Attendant {
    pub(super) fn new(
        control: Control,
        guard_pidfd: AsyncFd<OwnedFd>,
        host_ended: AsyncFd<OwnedFd>,
        tree: Tree,
        ordered: watch::Receiver<Orders>,
        tell: mpsc::Sender<ChildEvent>,
    ) -> Self {
        Self {
            control,
            guard_pidfd,
            host_ended,
            tree,
            ordered,
            sent: Orders::default(),
            number: 0,
            unanswered: None,
            tell,
            exited: false,
        }
    }

    pub(super) async fn run(mut self) {
        match self.listen().await {
            Ended::Swept => {
                if timeout(ACK_TIME, self.guard_pidfd.readable()).await.is_ok() {
                    self.tree.reap();
                }
            }
            Ended::GuardDied => self.end_the_tree().await,
            Ended::Dropped => {}
        }
    }

    async fn listen(&mut self) -> Ended {
        loop {
            let deadline = self.unanswered.map(|unanswered| unanswered.deadline);
            tokio::select! {
                received = self.control.receive() => match received {
                    Ok(received) => {
                        if self.hear(received) {
                            return Ended::Swept;
                        }
                    }
                    Err(_) => {
                        let _ = timeout(ACK_TIME, self.guard_pidfd.readable()).await;
                        return Ended::GuardDied;
                    }
                },
                _ = self.guard_pidfd.readable() => {
                    // What it said before it died is still in the socket.
                    while let Some(received) = self.control.receive_now() {
                        if self.hear(received) {
                            return Ended::Swept;
                        }
                    }
                    return Ended::GuardDied;
                }
                changed = self.ordered.changed() => {
                    if changed.is_err() {
                        return Ended::Dropped;
                    }
                    self.pass_on().await;
                }
                () = sleep_until(deadline) => {
                    if self.insist() {
                        let _ = timeout(KILL_TIME, self.guard_pidfd.readable()).await;
                        return Ended::GuardDied;
                    }
                }
            }
        }
    }

    /// True if it was the last word.
    fn hear(&mut self, received: Received) -> bool {
        match received.message {
            Some(FromGuard::Ack { number }) => {
                if self.unanswered.is_some_and(|unanswered| unanswered.number == number) {
                    self.unanswered = None;
                }
            }
            Some(FromGuard::Exit(exit)) => self.tell_exit(exit),
            Some(FromGuard::Swept(survivors)) => {
                self.tell_exit(Exit::Unknown);
                let _ = self.tell.try_send(ChildEvent::Swept(survivors));
                return true;
            }
            // Said once, before this attendant began; or nothing of this version.
            Some(FromGuard::Ready { .. } | FromGuard::Started { .. } | FromGuard::SpawnFailed { .. })
            | None => {}
        }
        false
    }

    /// At most once; the channel holds more than can ever be told.
    fn tell_exit(&mut self, exit: Exit) {
        if !self.exited {
            self.exited = true;
            let _ = self.tell.try_send(ChildEvent::Exited(exit));
        }
    }

    async fn pass_on(&mut self) {
        let orders = *self.ordered.borrow_and_update();
        let mut pending = Vec::new();
        if orders.terms != self.sent.terms {
            pending.push(Order::Term);
        }
        if orders.kill && !self.sent.kill {
            pending.push(Order::Kill);
        }
        self.sent = orders;
        for order in pending {
            self.number = self.number.wrapping_add(1);
            // A guard that does not read is stopped or dead: either is found by the missing answer.
            let message = ToGuard::Order { number: self.number, order };
            let _ = timeout(ACK_TIME, self.control.send(&message, &[])).await;
            let continued = self.unanswered.is_some_and(|unanswered| unanswered.continued);
            let deadline =
                self.unanswered.map_or_else(|| Instant::now() + ACK_TIME, |earlier| earlier.deadline);
            self.unanswered = Some(Unanswered { number: self.number, deadline, continued });
        }
    }

    /// The answer is overdue: CONT first, since the guard may be stopped. True if it has been killed.
    fn insist(&mut self) -> bool {
        match &mut self.unanswered {
            Some(unanswered) if !unanswered.continued => {
                unanswered.continued = true;
                unanswered.deadline = Instant::now() + ACK_TIME;
                self.tree.signal_child(Signal::CONT);
                false
            }
            Some(_) => {
                self.tree.signal_child(Signal::KILL);
                true
            }
            None => false,
        }
    }

    /// The guard is dead. Our own host sees that and flushes, a foreign one is dead by its death signal already.
    async fn end_the_tree(&mut self) {
        if !self.exited {
            if !self.sent.kill {
                let _ = timeout(FLUSH_TIME, self.host_gone_or_kill_ordered()).await;
            }
            self.tree.signal_host(Signal::KILL);
            let _ = timeout(KILL_TIME, self.host_ended.readable()).await;
            self.tell_exit(Exit::Unknown);
        }
        let deadline = Instant::now() + KILL_TIME;
        while !self.tree.signal_strays(Signal::KILL).is_empty() && Instant::now() < deadline {
            tokio::time::sleep(ROUND).await;
        }
        let _ = self.tell.try_send(ChildEvent::Swept(self.tree.survivors()));
        if self.tree.child_exit().is_some() {
            self.tree.reap();
        }
    }

    async fn host_gone_or_kill_ordered(&mut self) {
        let Self { host_ended, ordered, .. } = self;
        tokio::select! {
            _ = host_ended.readable() => {}
            // An error is the end of the last owner: nobody waits for a flush then.
            _ = ordered.wait_for(|orders| orders.kill) => {}
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
