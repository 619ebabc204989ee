//! Which turn or control may begin on a session now. Pure: no clock, no I/O.
//!
//! ```text
//!             begin_turn(id)                    finish(id)
//!   Idle ───────────────────────▶ Turn{id, interrupted} ───────▶ Idle
//!    │ begin_control(id, IdleGated)        │ interrupt() marks it
//!    ▼                                     │ IdleGated or begin_turn -> Busy
//!   Mutating{id} ── finish(id) ──▶ Idle    │ RunConcurrent -> allowed, counted
//! ```

use turnhost_protocol::RouteClass;

/// Names one turn or control that was let in; never used twice in the life of a host.
pub(crate) type EntryId = u64;

/// Why something was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A turn or a mutating control has the session.
    Busy,
    /// The host is stopping.
    Closing,
    /// The route goes by frames of its own, not by `control`.
    TurnPath,
}

/// Who has the session to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Idle,
    Turn { id: EntryId, interrupted: bool },
    Mutating { id: EntryId },
}

/// The gate of one session. `Mutating` is a state of its own, so no turn can begin inside an idle-gated control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gate {
    holder: Holder,
    concurrent: Vec<EntryId>,
    closed: bool,
}

impl Gate {
    /// An open gate that nobody holds.
    pub(crate) fn new() -> Self {
        Self { holder: Holder::Idle, concurrent: Vec::new(), closed: false }
    }

    /// Lets a turn in, if the session is idle.
    pub(crate) fn begin_turn(&mut self, id: EntryId) -> Result<(), Refusal> {
        self.take(Holder::Turn { id, interrupted: false })
    }

    /// Lets a control of this class in.
    pub(crate) fn begin_control(&mut self, id: EntryId, class: RouteClass) -> Result<(), Refusal> {
        match class {
            RouteClass::TurnPath => Err(Refusal::TurnPath),
            RouteClass::IdleGated => self.take(Holder::Mutating { id }),
            RouteClass::RunConcurrent if self.closed => Err(Refusal::Closing),
            RouteClass::RunConcurrent => {
                self.concurrent.push(id);
                Ok(())
            }
        }
    }

    /// Marks the turn that runs as interrupted, and names it. `None` if no turn runs.
    pub(crate) fn interrupt(&mut self) -> Option<EntryId> {
        match &mut self.holder {
            Holder::Turn { id, interrupted } => {
                *interrupted = true;
                Some(*id)
            }
            Holder::Idle | Holder::Mutating { .. } => None,
        }
    }

    /// Lets out what was let in under `id`. An id that is not inside changes nothing, so a late worker cannot free a
    /// newer turn. True if it was inside.
    pub(crate) fn finish(&mut self, id: EntryId) -> bool {
        match self.holder {
            Holder::Turn { id: held, .. } | Holder::Mutating { id: held } if held == id => {
                self.holder = Holder::Idle;
                true
            }
            Holder::Turn { .. } | Holder::Mutating { .. } | Holder::Idle => {
                let before = self.concurrent.len();
                self.concurrent.retain(|inside| *inside != id);
                self.concurrent.len() < before
            }
        }
    }

    /// Lets nothing in any more; what is inside finishes.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// The turn that has the session.
    pub(crate) fn turn(&self) -> Option<EntryId> {
        match self.holder {
            Holder::Turn { id, .. } => Some(id),
            Holder::Idle | Holder::Mutating { .. } => None,
        }
    }

    /// The mutating control that has the session.
    pub(crate) fn mutation(&self) -> Option<EntryId> {
        match self.holder {
            Holder::Mutating { id } => Some(id),
            Holder::Idle | Holder::Turn { .. } => None,
        }
    }

    /// True if neither a turn nor a mutating control has the session.
    pub(crate) fn is_idle(&self) -> bool {
        self.holder == Holder::Idle
    }

    fn take(&mut self, holder: Holder) -> Result<(), Refusal> {
        match self.holder {
            // Closing wins over busy: the caller may not come back in either case.
            _ if self.closed => Err(Refusal::Closing),
            Holder::Idle => {
                self.holder = holder;
                Ok(())
            }
            Holder::Turn { .. } | Holder::Mutating { .. } => Err(Refusal::Busy),
        }
    }
}

#[cfg(test)]
mod tests;
