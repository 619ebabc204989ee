//! The invariants: every effect against what the world knows.

use super::*;

impl World {
    pub(super) fn perform(&mut self, out: &Effects) {
        for effect in out {
            self.log.push(format!("    {effect:?}"));
            match effect {
                Effect::Spawn { epoch } => {
                    assert!(self.child.is_none(), "two children at once");
                    assert!(*epoch > self.last_epoch, "spawned under an old number");
                    self.last_epoch = *epoch;
                    assert!(self.stop_end.is_none(), "spawned during a stop");
                    assert!(!self.stopped_on_purpose, "spawned after a stop on purpose");
                    if let Some(since) = self.unswept_since {
                        assert!(self.now >= since + self.policy.sweep_timeout, "spawned beside an old tree");
                    }
                    self.unswept_since = None;
                    self.child = Some(Child { epoch: *epoch, ..Child::default() });
                }
                Effect::Register { epoch } => {
                    assert!(self.is_live(*epoch), "registered a child that does not live");
                    self.registered = Some(*epoch);
                    self.live().said_hello = true;
                }
                Effect::Unregister { epoch } => {
                    assert!(self.child.is_none(), "unregistered a child that lives");
                    assert!(self.registered.take().is_some(), "unregistered {epoch} without need");
                }
                Effect::Reseed { epoch } => {
                    assert_eq!(self.registered, Some(*epoch), "seeded before it was registered");
                    self.live().reseed_due = true;
                    self.live().seeded = false;
                }
                Effect::Term { epoch } => {
                    assert!(self.is_live(*epoch) && self.stop_end.is_some(), "a TERM out of place");
                    assert!(!self.live().termed, "a second TERM");
                    self.live().termed = true;
                    self.seen.note("term");
                }
                Effect::Kill { epoch } => {
                    assert!(self.is_live(*epoch), "killed a child that does not live");
                    self.live().doomed = true;
                    self.seen.note("kill");
                }
                Effect::Abandon { epoch } => {
                    assert!(self.is_live(*epoch) && self.live().doomed, "abandoned before it was killed");
                    self.child = None;
                    self.registered = None;
                    self.unswept_since = Some(self.now);
                    self.seen.note("abandon");
                }
                Effect::Resolve { waiter, ending } => self.resolved(*waiter, ending),
                Effect::Started(answer) => {
                    assert!(std::mem::take(&mut self.start_waits), "nobody waits for a start");
                    match answer {
                        Ok(epoch) => {
                            assert!(
                                self.is_live(*epoch) && self.live().seeded,
                                "started before it was ready"
                            );
                            self.seen.note("started ok");
                        }
                        Err(_) => self.seen.note("started err"),
                    }
                }
                Effect::Stopped(report) => {
                    assert!(self.stop_end.take().is_some(), "nobody waits for a stop");
                    assert!(self.child.is_none(), "stopped, but the child lives");
                    assert!(
                        self.given.iter().all(|given| given.fate != Fate::Pending),
                        "stopped with open requests"
                    );
                    assert!(report.steps.is_sorted_by_key(|step| step.at_ms), "{report:?}");
                    self.stopped_on_purpose = !self.starts_again;
                    self.start_waits |= self.starts_again;
                    self.seen.note("stopped");
                }
                Effect::Count(counted) => self.seen.note(format!("count {counted:?}")),
                Effect::Publish(snapshot) => {
                    assert_ne!(*snapshot, self.published, "published without a change");
                    self.published = *snapshot;
                    let state = serde_json::to_value(snapshot.state).expect("a state is a word");
                    self.seen.note(format!("state {}", state.as_str().unwrap_or_default()));
                }
            }
        }
    }

    pub(super) fn live(&mut self) -> &mut Child {
        self.child.as_mut().expect("a child lives")
    }

    pub(super) fn resolved(&mut self, waiter: usize, ending: &Ending<u64>) {
        let given = &mut self.given[waiter];
        assert_eq!(given.fate, Fate::Pending, "resolved twice");
        given.fate = Fate::Resolved;
        assert_eq!(self.open_ids.remove(&given.id), Some(waiter));
        let turn = given.kind == RequestKind::Turn;
        let interrupt = matches!(given.kind, RequestKind::Interrupt { .. });
        match ending {
            Ending::Reply(epoch) => {
                assert_eq!(given.handed, Some(*epoch), "answered by a child that never had it");
                self.seen.note("reply");
            }
            Ending::InterruptedUnsent => {
                assert!(turn && given.handed.is_none(), "not unsent");
                self.seen.note("interrupted unsent");
            }
            Ending::Interrupt { outcome, turn } => {
                assert!(interrupt && given.handed.is_none(), "not an interrupt that was answered here");
                assert_eq!(turn.is_some(), *outcome == InterruptOutcome::Applied);
                self.seen.note(format!("interrupt {outcome}"));
            }
            Ending::TurnFailed { reason, turn_started, exit, .. } => {
                assert!(turn, "a call ended like a turn");
                let known = match given.handed {
                    None => Some(false),
                    Some(_) => given.started.then_some(true),
                };
                assert_eq!(*turn_started, known, "turn_started of {reason}");
                match reason {
                    FailReason::Crash | FailReason::Hung => {
                        assert!(given.handed.is_some(), "{reason}, but not a byte was handed over");
                        assert!(*reason == FailReason::Crash || exit.is_some(), "hung without an exit");
                    }
                    FailReason::Unavailable | FailReason::CrashLoop => {
                        assert!(given.handed.is_none() && exit.is_none(), "{reason}, but it was handed over");
                    }
                    FailReason::Shutdown => assert!(self.stop_end.is_some(), "no stop is under way"),
                    FailReason::Protocol => {}
                    FailReason::Busy
                    | FailReason::BadRequest
                    | FailReason::Exception
                    | FailReason::AgentExit
                    | FailReason::FrameTooLarge
                    | FailReason::Dropped => panic!("{reason} is not the machine's"),
                }
                self.seen.note(format!("turn {reason}"));
            }
            Ending::CallFailed { kind, .. } => {
                assert!(!turn, "a turn ended like a call");
                let due = given.deadline.is_some_and(|at| at <= self.now);
                match *kind {
                    ErrorKind::Crash | ErrorKind::Hung => assert!(given.handed.is_some() || interrupt),
                    ErrorKind::Unavailable | ErrorKind::CrashLoop => assert!(given.handed.is_none()),
                    ErrorKind::Timeout => assert!(due, "timed out before its time"),
                    ErrorKind::Shutdown => assert!(self.stop_end.is_some(), "no stop is under way"),
                    ErrorKind::ControlFailed => assert!(given.handed.is_some()),
                    other => panic!("{other} does not end a call"),
                }
                self.seen.note(format!("call {kind}"));
            }
        }
    }

    /// What holds after every step.
    pub(super) fn check(&mut self) {
        let open = self.machine.open_requests();
        let pending: Vec<&RequestId> =
            self.given.iter().filter(|given| given.fate == Fate::Pending).map(|given| &given.id).collect();
        let shown: Vec<&RequestId> = open.iter().map(|open| open.id).collect();
        assert_eq!(shown, pending, "given = resolved + refused + open, in order of arrival");
        assert_eq!(self.machine.snapshot(), self.published, "a change was not published");
        let turns = open.iter().filter(|open| *open.kind == RequestKind::Turn).count();
        assert_eq!(self.machine.pending.turns(), turns);
        let unsent: Vec<&Given> =
            self.given.iter().filter(|g| g.fate == Fate::Pending && g.handed.is_none()).collect();
        assert_eq!(self.machine.pending.unsent_count(), unsent.len());
        for open in &open {
            let given = &self.given[self.open_ids[open.id]];
            match given.handed {
                Some(epoch) => assert!(self.is_live(epoch), "sent to a child that is gone"),
                None if matches!(given.kind, RequestKind::Interrupt { .. }) => {
                    assert!(self.child.is_some(), "an interrupt waits for the next child");
                }
                None => {}
            }
            let taken = self.machine.open(self.machine.epoch(), open.id);
            assert_eq!(taken.map(|(_, waiter)| *waiter), given.handed.map(|_| self.open_ids[open.id]));
            let phase = match given.handed {
                Some(_) if given.started => OpenPhase::Started,
                Some(_) => OpenPhase::Sent,
                None => OpenPhase::Waiting,
            };
            assert_eq!(open.phase, phase, "{open:?}");
            assert_eq!(open.since, given.at);
        }
        let state = self.machine.state();
        match state {
            HostState::Stopped | HostState::CrashLooped => {
                assert!(open.is_empty(), "{state:?} holds requests")
            }
            HostState::Starting | HostState::Ready => {
                assert!(self.child.is_some(), "{state:?} without a child")
            }
            HostState::BackingOff | HostState::Draining => {
                assert!(self.machine.next_deadline().is_some(), "{state:?} for ever");
            }
        }
        assert_eq!(state == HostState::Draining, self.stop_end.is_some());
        assert_eq!(
            self.machine.snapshot().next_start_at.is_some(),
            matches!(self.machine.phase, Phase::BackingOff { .. })
        );
        if !unsent.is_empty() && !self.machine.has_outgoing() {
            assert!(self.machine.next_deadline().is_some(), "requests wait for ever");
        }
        if let Some(child) = &self.child
            && (child.doomed || !child.said_hello)
        {
            let deadline = self.machine.next_deadline();
            assert!(deadline.is_some(), "a child that will never be ready is waited for without a limit");
        }
        assert_eq!(self.machine.has_outgoing(), !self.outgoing().is_empty());
        if self.machine.has_outgoing() {
            let child = self.child.as_ref().expect("input for a child that lives");
            assert!(child.said_hello && !child.doomed && !child.termed, "input for a child that takes none");
            assert!(child.seeded || self.stop_end.is_some(), "input before the seeds");
        }
        if self.start_waits {
            assert!(
                self.stop_end.is_some() || matches!(state, HostState::Starting | HostState::BackingOff),
                "a start waits in {state:?}"
            );
        }
    }
}
