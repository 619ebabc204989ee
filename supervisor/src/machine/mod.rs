//! Every decision about one host: when it is started, given up, stopped; what each open request ends with.
//! No clock, no I/O, no locks: `now` comes in, effects go out. The driver is `actor.rs`.
//!
//! `W` is what waits for a request: in production the terminal permit of a turn's mailbox or a call's reply channel,
//! an integer in tests. It is moved in with the request and moved out with its ending, so that exactly one ending is
//! a matter of ownership. `R` is a host's answer, opaque here.
//!
//! | file | decides |
//! |---|---|
//! | `lifecycle.rs` | when a child is spawned, accepted, killed, and what its end means |
//! | `requests.rs` | what is accepted, which frame ends what, what each loss ends with |
//! | `stopping.rs` | the steps of a stop, over the arithmetic in `stop.rs` |
//! | `incarnation.rs` | whether a child is late, silent or stuck |
//! | `outbox.rs` | what stdin gets next |

mod incarnation;
mod lifecycle;
mod outbox;
mod requests;
mod stop;
mod stopping;
mod types;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;

pub(crate) use types::{
    Counted, Effect, Ending, Exit, Input, Lookup, OpenPhase, OpenRequest, Policy, Refused, Request,
    RequestKind, Snapshot, StartFault, StopPlan, StopReport, SubmitPhase,
};
pub use types::{HostState, StopStep};

use crate::pending::{Ended, EndedRequests, Pending};
use crate::restart::{Jitter, RestartBudget};
use incarnation::{Cause, Incarnation, Stage};
use outbox::Outbox;
use std::marker::PhantomData;
use std::time::Instant;
use stop::{Step, Stop};
use turnhost_protocol::RequestId;

/// Ended requests that are remembered, to tell a late frame from one that names nothing.
const ENDED_REMEMBERED: usize = 4096;

/// The supervisor's decisions about one host. Dropping it drops every waiter.
#[derive(Debug)]
pub(crate) struct Machine<W, R> {
    policy: Policy,
    phase: Phase,
    epoch: u64,
    /// The one child, of `epoch`, in whatever phase the machine is.
    child: Option<Incarnation>,
    /// No child is spawned before this time, unless the tree of the last one is gone earlier.
    sweep_until: Option<Instant>,
    pending: Pending<W>,
    ended: EndedRequests,
    outbox: Outbox,
    budget: RestartBudget,
    jitter: Jitter,
    restarts: u64,
    /// What went wrong since a child was ready, for people.
    last_failure: Option<String>,
    /// Somebody waits for `Started`.
    start_wanted: bool,
    published: Option<Snapshot>,
    reply: PhantomData<fn() -> R>,
}

/// What the machine is about. A child can be there in any phase but [`Phase::Running`], where there is one.
#[derive(Debug)]
enum Phase {
    /// No child is wanted.
    Down(Down),
    /// There is a child, and it is wanted.
    Running,
    /// A child is wanted at `until`, as soon as the last one and its tree are gone.
    BackingOff {
        until: Instant,
        /// The last one failed: the next one is a restart.
        failed: bool,
    },
    /// The budget is spent.
    CrashLooped,
    /// A stop is under way.
    Stopping(Stop),
}

/// Why no child is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Down {
    /// None was ever asked for, a crash loop was lifted, or the last start failed for good: a request starts one.
    Idle,
    /// It was stopped on purpose: only a start starts one.
    OnPurpose,
}

impl<W, R> Machine<W, R> {
    /// A machine without a child. `seed` spreads the back-off of machines that fail together.
    pub(crate) fn new(policy: Policy, seed: u64) -> Self {
        let mut machine = Self {
            budget: RestartBudget::new(policy.restart),
            policy,
            phase: Phase::Down(Down::Idle),
            epoch: 0,
            child: None,
            sweep_until: None,
            pending: Pending::new(),
            ended: EndedRequests::new(ENDED_REMEMBERED),
            outbox: Outbox::default(),
            jitter: Jitter::new(seed),
            restarts: 0,
            last_failure: None,
            start_wanted: false,
            published: None,
            reply: PhantomData,
        };
        machine.published = Some(machine.snapshot());
        machine
    }

    /// Takes a request, or gives it back with the reason. It never blocks.
    ///
    /// A turn, seed or call starts a stopped host unless it was stopped on purpose. An interrupt never starts one and
    /// never waits for one: with no child ready it removes a turn that waits, or is answered `not_found`. While a
    /// stop drains, interrupts and calls are taken (a turn may need its approval answered to finish), turns and
    /// seeds are refused.
    pub(crate) fn request(
        &mut self,
        now: Instant,
        request: Request<W>,
        out: &mut Vec<Effect<W, R>>,
    ) -> Result<SubmitPhase, Refused<W>> {
        let taken = self.take_request(now, request, out);
        self.settle(now, out);
        taken
    }

    /// Takes one fact or order and says what must be done. Timers run only in [`Input::Tick`]: the driver gives one
    /// as soon as [`Machine::next_deadline`] has come.
    ///
    /// After [`Input::HostRestarted`] the same child has another epoch: whatever it does next carries
    /// [`Machine::epoch`] as it is then.
    pub(crate) fn handle(&mut self, now: Instant, input: Input<R>, out: &mut Vec<Effect<W, R>>) {
        match input {
            Input::Start => self.on_start(now, out),
            Input::Stop(plan) => self.on_stop(now, plan, out),
            Input::Reset => self.on_reset(out),
            Input::SpawnFailed { epoch, fault, permanent } => {
                if self.is_live(epoch) {
                    self.on_spawn_failed(now, fault, permanent, out);
                }
            }
            Input::Hello { epoch, verdict } => {
                if self.is_live(epoch) {
                    self.on_hello(now, verdict, out);
                }
            }
            Input::HostRestarted { epoch } => {
                if self.is_live(epoch) {
                    self.on_host_restarted(now, out);
                }
            }
            Input::Reseeded { epoch, lines } => {
                if self.is_live(epoch) {
                    self.on_reseeded(now, lines, out);
                }
            }
            Input::Alive { epoch } => {
                if let Some(child) = self.live(epoch) {
                    child.last_alive = now;
                }
            }
            Input::Heartbeat { epoch } => {
                if let Some(child) = self.live(epoch) {
                    child.last_alive = now;
                    child.armed = !matches!(child.stage, Stage::Starting { .. });
                }
            }
            Input::TurnStarted { epoch, id } => self.on_turn_started(epoch, &id, out),
            Input::Answer { epoch, id, reply } => self.on_answer(epoch, id, Ending::Reply(reply), out),
            Input::TurnFailed { epoch, id, reason, detail } => {
                self.on_turn_failed(epoch, id, reason, detail, out);
            }
            Input::Wrote { epoch, bytes } => {
                if self.is_live(epoch) {
                    self.on_wrote(now, bytes);
                }
            }
            Input::WriteFailed { epoch } => {
                if self.is_live(epoch) {
                    self.on_write_failed(now, out);
                }
            }
            Input::Exited { epoch, exit } => {
                if self.is_live(epoch) {
                    self.on_exited(now, exit, out);
                }
            }
            Input::Swept { epoch, survivors } => self.on_swept(now, epoch, survivors, out),
            Input::Tick => self.on_tick(now, out),
        }
        self.settle(now, out);
    }

    /// When the next [`Input::Tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        [self.pending.next_expiry(), self.child_deadline(), self.phase_deadline()].into_iter().flatten().min()
    }

    /// What the child's stdin shall get next, in order: whole lines but for the first, which may have begun. Empty
    /// unless a child takes input. What went out is told by [`Input::Wrote`].
    pub(crate) fn outgoing(&self) -> impl Iterator<Item = &[u8]> {
        self.takes_input()
            .then(|| self.outbox.slices().chain(self.pending.unsent_lines()))
            .into_iter()
            .flatten()
    }

    /// True if [`Machine::outgoing`] has anything.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.takes_input() && !(self.outbox.is_empty() && self.pending.unsent_count() == 0)
    }

    /// Whose frame a `delta` or `event` of turn `id` is.
    pub(crate) fn turn(&self, epoch: u64, id: &RequestId) -> Lookup<'_, W> {
        match self.open(epoch, id) {
            Some((RequestKind::Turn, waiter)) => Lookup::Open(waiter),
            Some(_) => Lookup::Unknown,
            None if !self.is_live(epoch) || self.ended.get(id).is_some() => Lookup::Late,
            None => Lookup::Unknown,
        }
    }

    /// The open request that an answer with this id would end, if it was handed to the child of `epoch`.
    pub(crate) fn open(&self, epoch: u64, id: &RequestId) -> Option<(&RequestKind, &W)> {
        let entry = self.pending.get(id).filter(|entry| self.is_live(epoch) && !entry.is_unsent())?;
        Some((&entry.kind, &entry.waiter))
    }

    /// True for the answer, from the child of `epoch`, to a call that ended without it.
    pub(crate) fn is_late_call(&self, epoch: u64, id: &RequestId) -> bool {
        self.is_live(epoch) && matches!(self.ended.get(id), Some(Ended::Call))
    }

    /// Where the machine is.
    pub(crate) fn state(&self) -> HostState {
        match &self.phase {
            Phase::Down(_) => HostState::Stopped,
            Phase::Running => match self.child.as_ref().map(|child| &child.stage) {
                Some(Stage::Ready) => HostState::Ready,
                Some(Stage::Starting { .. } | Stage::Reseeding) => HostState::Starting,
                Some(Stage::Dying { cause: Cause::Refused(_), .. }) => HostState::Starting,
                Some(Stage::Dying {
                    cause: Cause::Hung { .. } | Cause::BrokenPipe | Cause::NoHello | Cause::Settled,
                    ..
                })
                | None => HostState::BackingOff,
            },
            Phase::BackingOff { .. } => HostState::BackingOff,
            Phase::CrashLooped => HostState::CrashLooped,
            Phase::Stopping(_) => HostState::Draining,
        }
    }

    /// The incarnation that lives, or the last one; 0 before the first.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// All of the public state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state(),
            epoch: self.epoch,
            restarts: self.restarts,
            next_start_at: self.next_start_at(),
        }
    }

    /// Every open request, in order of arrival.
    pub(crate) fn open_requests(&self) -> Vec<OpenRequest<'_>> {
        self.pending.describe()
    }

    fn is_live(&self, epoch: u64) -> bool {
        self.child.is_some() && epoch == self.epoch
    }

    fn live(&mut self, epoch: u64) -> Option<&mut Incarnation> {
        self.child.as_mut().filter(|_| epoch == self.epoch)
    }

    /// True if what is unsent may go to the child now.
    fn takes_input(&self) -> bool {
        let Some(child) = &self.child else { return false };
        match (&self.phase, &child.stage) {
            (Phase::Running, Stage::Ready) => true,
            (Phase::Stopping(stop), Stage::Ready | Stage::Reseeding) => match stop.step {
                Step::Drain { .. } | Step::Ask { .. } => true,
                Step::Term { .. } | Step::Kill { .. } | Step::Sweep { .. } => false,
            },
            (Phase::Running, Stage::Starting { .. } | Stage::Reseeding | Stage::Dying { .. })
            | (Phase::Stopping(_), Stage::Starting { .. } | Stage::Dying { .. })
            | (Phase::Down(_) | Phase::BackingOff { .. } | Phase::CrashLooped, _) => false,
        }
    }

    fn enter(&mut self, phase: Phase, out: &mut Vec<Effect<W, R>>) {
        self.phase = phase;
        self.publish(out);
    }

    fn publish(&mut self, out: &mut Vec<Effect<W, R>>) {
        let snapshot = self.snapshot();
        if self.published != Some(snapshot) {
            self.published = Some(snapshot);
            out.push(Effect::Publish(snapshot));
        }
    }

    /// What every input ends with: a drain that has nothing left goes on, and the clock of a stuck pipe runs
    /// exactly while there is something to write.
    fn settle(&mut self, now: Instant, out: &mut Vec<Effect<W, R>>) {
        self.end_idle_drain(now, out);
        let outgoing = self.has_outgoing();
        if let Some(child) = &mut self.child {
            match (outgoing, child.stalled_since) {
                (true, None) => child.stalled_since = Some(now),
                (true, Some(_)) => {}
                (false, _) => child.stalled_since = None,
            }
        }
        self.publish(out);
    }
}
