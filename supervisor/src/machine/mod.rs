//! Every decision about one host: when it is started, given up, stopped; what each open request ends with.
//! No clock, no I/O, no locks: `now` comes in, effects go out. The driver is `actor.rs`.
//!
//! `W` is what waits for a request: in production the terminal permit of a turn's mailbox or a call's reply channel,
//! an integer in tests. It is moved in with the request and moved out with its ending, so that exactly one ending is
//! a matter of ownership. `R` is a host's answer, opaque here.

mod types;

pub(crate) use types::{
    Counted, Effect, Ending, Exit, Input, Lookup, OpenRequest, Policy, Refused, Request, RequestKind,
    Snapshot, StartFault, StopPlan, StopReport,
};
pub use types::{HostState, OpenPhase, StopStep, SubmitPhase};

use std::marker::PhantomData;
use std::time::Instant;
use turnhost_protocol::RequestId;

/// The supervisor's decisions about one host. Dropping it drops every waiter.
#[derive(Debug)]
pub(crate) struct Machine<W, R> {
    _types: PhantomData<fn(W) -> R>,
}

impl<W, R> Machine<W, R> {
    /// A machine without a child. `seed` spreads the back-off of machines that fail together.
    pub(crate) fn new(_policy: Policy, _seed: u64) -> Self {
        todo!()
    }

    /// Takes a request, or gives it back with the reason. It never blocks.
    pub(crate) fn request(
        &mut self,
        _now: Instant,
        _request: Request<W>,
        _out: &mut Vec<Effect<W, R>>,
    ) -> Result<SubmitPhase, Refused<W>> {
        todo!()
    }

    /// Takes one fact or order and says what must be done. Timers run only in [`Input::Tick`]: the driver gives one
    /// as soon as [`Machine::next_deadline`] has come.
    ///
    /// After [`Input::HostRestarted`] the same child has another epoch: whatever it does next carries
    /// [`Machine::epoch`] as it is then.
    pub(crate) fn handle(&mut self, _now: Instant, _input: Input<R>, _out: &mut Vec<Effect<W, R>>) {
        todo!()
    }

    /// When the next [`Input::Tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        todo!()
    }

    /// What the child's stdin shall get next, in order: whole lines but for the first, which may have begun. Empty
    /// unless a child takes input. What went out is told by [`Input::Wrote`].
    pub(crate) fn outgoing(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::empty()
    }

    /// True if [`Machine::outgoing`] has anything.
    pub(crate) fn has_outgoing(&self) -> bool {
        todo!()
    }

    /// Whose frame a `delta` or `event` of turn `id` is.
    pub(crate) fn turn(&self, _epoch: u64, _id: &RequestId) -> Lookup<'_, W> {
        todo!()
    }

    /// Whose frame an answer to `id` is, whatever kind of request it was.
    pub(crate) fn open(&self, _epoch: u64, _id: &RequestId) -> Option<(&RequestKind, &W)> {
        todo!()
    }

    /// Where the machine is.
    pub(crate) fn state(&self) -> HostState {
        todo!()
    }

    /// The incarnation that lives, or the last one; 0 before the first.
    pub(crate) fn epoch(&self) -> u64 {
        todo!()
    }

    /// All of the public state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        todo!()
    }

    /// Every open request, in order of arrival.
    pub(crate) fn open_requests(&self) -> Vec<OpenRequest<'_>> {
        todo!()
    }

    /// Open turns.
    pub(crate) fn open_turns(&self) -> usize {
        todo!()
    }

    /// Open requests of which no byte was handed to a pipe.
    pub(crate) fn unsent(&self) -> usize {
        todo!()
    }
}
