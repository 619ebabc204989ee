//! Everything that can happen to a machine, at any time, stale and doubled as well.

use super::*;

impl World {
    pub(super) fn submit(&mut self) {
        let kind = match self.below(10) {
            0..=4 => RequestKind::Turn,
            5..=6 => RequestKind::Call,
            7 => RequestKind::Seed,
            _ => {
                let named = self.chance(60);
                RequestKind::Interrupt { turn_id: named.then(|| self.some_id()) }
            }
        };
        let waiter = self.given.len();
        let id = self.some_id();
        let sid = SessionId::from(format!("s{}", self.below(4)));
        let padding = "x".repeat(self.below(30) as usize);
        let line = format!("{waiter}:{padding}\n").into_bytes();
        let deadline = self.chance(40).then(|| self.now + Duration::from_millis(self.random.next() % 8_000));
        let given = Given {
            id: id.clone(),
            kind: kind.clone(),
            line: line.clone(),
            deadline,
            at: self.now,
            fate: Fate::Pending,
            handed: None,
            started: false,
        };
        self.log.push(format!("{:?} submit {given:?} {sid:?}", self.machine.state()));
        let expected = self.expected_refusal(&given);
        let duplicate = self.open_ids.contains_key(&id);
        self.given.push(given);
        if !duplicate {
            self.open_ids.insert(id.clone(), waiter);
        }
        let request = Request { id: id.clone(), sid, kind: kind.clone(), line, deadline, waiter };
        let mut out = Vec::new();
        let taken = self.machine.request(self.now, request, &mut out);
        let interrupt = matches!(kind, RequestKind::Interrupt { .. });
        match taken {
            Ok(phase) => {
                assert_eq!(expected.filter(|kind| !interrupt || *kind == ErrorKind::DuplicateRequest), None);
                let ready = self.machine.has_outgoing();
                let answered = out.iter().any(|effect| matches!(effect, Effect::Resolve { .. }));
                assert_eq!(phase == SubmitPhase::Sent, ready && !(interrupt && answered), "{phase:?}");
            }
            Err(refused) => {
                assert_eq!(refused.waiter, waiter, "the waiter of somebody else came back");
                assert!(out.is_empty(), "refused, but {out:?}");
                if !interrupt || expected.is_some() {
                    assert_eq!(Some(refused.kind), expected);
                }
                self.given[waiter].fate = Fate::Refused;
                if !duplicate {
                    self.open_ids.remove(&id);
                }
                self.seen.note(format!("refused {}", refused.kind));
            }
        }
        self.perform(&out);
        self.check();
    }

    /// Why a request must be refused, as far as the world knows; an interrupt may still be answered at once.
    pub(super) fn expected_refusal(&self, given: &Given) -> Option<ErrorKind> {
        if self.open_ids.contains_key(&given.id) {
            return Some(ErrorKind::DuplicateRequest);
        }
        let interrupt = matches!(given.kind, RequestKind::Interrupt { .. });
        if self.stop_end.is_some() {
            let drains = matches!(&self.machine.phase, Phase::Stopping(stop) if stop.is_draining());
            let helps = interrupt || given.kind == RequestKind::Call;
            if !(drains && helps) {
                return Some(ErrorKind::Shutdown);
            }
        }
        if self.machine.state() == HostState::CrashLooped && !interrupt {
            return Some(ErrorKind::CrashLoop);
        }
        if self.machine.state() == HostState::Stopped && self.stopped_on_purpose && !interrupt {
            return Some(ErrorKind::Shutdown);
        }
        let unsent = self.given.iter().filter(|g| g.fate == Fate::Pending && g.handed.is_none());
        let (count, bytes) = unsent.fold((0, 0), |(n, bytes), given| (n + 1, bytes + given.line.len()));
        let full =
            count >= self.policy.max_waiting || bytes + given.line.len() > self.policy.max_waiting_bytes;
        full.then_some(ErrorKind::Overloaded)
    }

    /// Ids are few, so that they are used again, doubled, and asked for after their end.
    pub(super) fn some_id(&mut self) -> RequestId {
        RequestId::from(format!("r{}", self.below(24)))
    }

    pub(super) fn some_handed(&mut self) -> Option<usize> {
        let handed: Vec<usize> = (0..self.given.len())
            .filter(|n| self.given[*n].fate == Fate::Pending && self.given[*n].handed.is_some())
            .collect();
        if handed.is_empty() { None } else { Some(handed[self.below(handed.len() as u64) as usize]) }
    }

    /// An id and, if a frame of `epoch` may touch it, whose it is.
    pub(super) fn some_target(&mut self, epoch: u64) -> (RequestId, Option<usize>) {
        let handed = if self.chance(70) { self.some_handed() } else { None };
        let id = match handed {
            Some(waiter) => self.given[waiter].id.clone(),
            None => self.some_id(),
        };
        let owner = self.open_ids.get(&id).copied();
        (id, owner.filter(|owner| self.is_live(epoch) && self.given[*owner].handed == Some(epoch)))
    }

    pub(super) fn answer(&mut self) {
        let epoch = self.some_epoch();
        let (id, owner) = self.some_target(epoch);
        let out = self.give_of(epoch, Input::Answer { epoch, id, reply: epoch });
        self.assert_ended(owner, &out);
    }

    pub(super) fn break_answer(&mut self) {
        let epoch = self.some_epoch();
        let (id, owner) = self.some_target(epoch);
        let reason = FailReason::Protocol;
        let out = self.give_of(epoch, Input::TurnFailed { epoch, id, reason, detail: String::new() });
        self.assert_ended(owner, &out);
    }

    /// A terminal frame ends the request it belongs to, or is counted once.
    pub(super) fn assert_ended(&self, owner: Option<usize>, out: &Effects) {
        let counted = out.iter().filter(|effect| matches!(effect, Effect::Count(_))).count();
        match owner {
            Some(owner) => {
                assert_eq!(self.given[owner].fate, Fate::Resolved, "its answer did not end it");
                assert_eq!(counted, 0, "{out:?}");
            }
            None => assert!(counted == 1 && out.len() == 1, "{out:?}"),
        }
    }

    pub(super) fn start_turn(&mut self) {
        let epoch = self.some_epoch();
        let (id, owner) = self.some_target(epoch);
        if let Some(owner) = owner.filter(|owner| self.given[*owner].kind == RequestKind::Turn) {
            self.given[owner].started = true;
        }
        self.give_of(epoch, Input::TurnStarted { epoch, id });
    }

    pub(super) fn tick_at_deadline(&mut self) {
        if let Some(at) = self.machine.next_deadline() {
            self.now = self.now.max(at);
        }
        self.give(Input::Tick);
    }

    pub(super) fn pass_time(&mut self) {
        let most = [10, 700, 3_000, 120_000][self.below(4) as usize];
        let time = self.below(most);
        self.now += Duration::from_millis(time);
        if self.chance(70) {
            self.give(Input::Tick);
        }
    }

    pub(super) fn sign_of_life(&mut self) {
        let epoch = self.some_epoch();
        let input = if self.chance(30) { Input::Alive { epoch } } else { Input::Heartbeat { epoch } };
        self.give_of(epoch, input);
    }

    /// A piece of what is outgoing goes into the pipe, of any length.
    pub(super) fn write(&mut self) {
        let lines: Vec<Vec<u8>> = self.machine.outgoing().map(<[u8]>::to_vec).collect();
        let total: usize = lines.iter().map(Vec::len).sum();
        let epoch = self.some_epoch();
        if total == 0 || epoch != self.machine.epoch() {
            // A child that takes nothing, or an old one, wrote something: nobody may believe it.
            if !self.is_live(epoch) {
                self.give_of(epoch, Input::Wrote { epoch, bytes: 5 });
            }
            return;
        }
        let bytes = if self.chance(30) { total } else { 1 + self.below(total as u64) as usize };
        let mut left = bytes;
        for (n, line) in lines.iter().enumerate() {
            let rest = std::mem::take(&mut self.live().rest);
            if n == 0 && !rest.is_empty() {
                assert_eq!(*line, rest, "a line that has begun goes on as it began");
            } else {
                assert!(rest.is_empty() && line.ends_with(b"\n"), "whole lines only");
                self.first_byte_of(line, epoch);
            }
            let taken = left.min(line.len());
            self.live().rest = line[taken..].to_vec();
            left -= taken;
            if left == 0 {
                break;
            }
        }
        self.give(Input::Wrote { epoch, bytes });
        let remains: usize = self.machine.outgoing().map(<[u8]>::len).sum();
        assert_eq!(remains, total - bytes);
    }

    pub(super) fn first_byte_of(&mut self, line: &[u8], epoch: u64) {
        let text = std::str::from_utf8(line).expect("lines are text here");
        assert!(!self.live().asked, "a line behind shutdown: {text:?}");
        if text.contains("shutdown") {
            self.live().asked = true;
        } else if let Some(of) = text.strip_prefix("seed ") {
            assert_eq!(of.trim_end(), epoch.to_string(), "a seed of another incarnation");
            assert_eq!(self.live().last_owner, None, "a seed behind a request");
        } else if text == "\n" {
            self.seen.note("cut line crossed a restart");
        } else {
            let owner: usize = text.split(':').next().expect("a waiter").parse().expect("a number");
            assert!(self.live().last_owner < Some(owner), "out of order");
            self.live().last_owner = Some(owner);
            let given = &mut self.given[owner];
            assert_eq!(given.line, line, "a changed line");
            assert_eq!((given.fate, given.handed), (Fate::Pending, None), "sent twice, or after its end");
            given.handed = Some(epoch);
        }
    }

    pub(super) fn hello(&mut self) {
        let epoch = self.some_epoch();
        let verdict = if self.chance(90) {
            Ok(())
        } else {
            Err(StartFault::new(ErrorKind::BuildMismatch, "another build".to_owned()))
        };
        self.give_of(epoch, Input::Hello { epoch, verdict });
    }

    pub(super) fn reseeded(&mut self) {
        let epoch = self.some_epoch();
        let lines = (0..self.below(3)).map(|_| format!("seed {epoch}\n").into_bytes()).collect();
        if self.is_live(epoch) && std::mem::take(&mut self.live().reseed_due) {
            self.live().seeded = true;
        }
        self.give_of(epoch, Input::Reseeded { epoch, lines });
    }

    pub(super) fn write_failed(&mut self) {
        let epoch = self.some_epoch();
        if self.is_live(epoch) {
            self.live().rest.clear();
        }
        self.give_of(epoch, Input::WriteFailed { epoch });
    }

    pub(super) fn host_restarted(&mut self) {
        let epoch = self.some_epoch();
        let before = self.machine.epoch();
        self.give_of(epoch, Input::HostRestarted { epoch });
        if self.machine.epoch() != before {
            self.seen.note("host restarted");
            let child = self.live();
            child.last_owner = None;
            child.asked = false;
            child.rest.clear();
        }
    }

    pub(super) fn exit(&mut self) {
        let epoch = self.some_epoch();
        let exit = [Exit::Code(0), Exit::Code(7), Exit::Signal(9), Exit::Unknown][self.below(4) as usize];
        self.exited(epoch, exit);
    }

    pub(super) fn exited(&mut self, epoch: u64, exit: Exit) {
        if self.is_live(epoch) {
            self.child = None;
            self.unswept_since = Some(self.now);
            let input = Input::Exited { epoch, exit };
            self.give(input);
            if self.machine.pending.unsent_count() > 0 {
                self.seen.note("carried over a crash");
            }
            assert_eq!(self.registered, None, "a child that is gone stayed registered");
        } else {
            self.give_of(epoch, Input::Exited { epoch, exit });
        }
    }

    pub(super) fn swept(&mut self) {
        let epoch = self.some_epoch();
        let survivors = if self.chance(20) { vec![4711] } else { Vec::new() };
        if self.child.is_none() && epoch == self.machine.epoch() {
            self.unswept_since = None;
            self.give(Input::Swept { epoch, survivors });
        } else {
            self.give(Input::Swept { epoch, survivors });
        }
    }

    /// Only a child that has not said hello can turn out not to be there.
    pub(super) fn spawn_failed(&mut self) {
        let epoch = self.some_epoch();
        let fault = StartFault::new(ErrorKind::SpawnFailed, "no memory".to_owned());
        let permanent = self.chance(40);
        if !self.is_live(epoch) {
            self.give_of(epoch, Input::SpawnFailed { epoch, fault, permanent });
        } else if !self.live().said_hello {
            self.child = None;
            self.give(Input::SpawnFailed { epoch, fault, permanent });
        }
    }

    pub(super) fn start(&mut self) {
        self.start_waits = true;
        self.stopped_on_purpose = false;
        self.starts_again = true;
        self.give(Input::Start);
    }

    /// An operator lifts a crash loop, and often wants the host at once: the old child may still be dying.
    pub(super) fn reset(&mut self) {
        self.give(Input::Reset);
        if self.chance(50) {
            self.start();
        }
    }

    pub(super) fn stop(&mut self) {
        let millis = |n| Duration::from_millis(n);
        let drain = millis([0, 1_000, 20_000][self.below(3) as usize]);
        let budget = millis([0, 2_000, 25_000][self.below(3) as usize]);
        let restart = self.chance(30);
        self.stop_with(StopPlan { drain, budget, restart });
    }

    pub(super) fn stop_with(&mut self, plan: StopPlan) {
        let end = self.now + plan.budget;
        self.stop_end = Some(self.stop_end.map_or(end, |old| old.min(end)));
        self.starts_again = plan.restart;
        self.give(Input::Stop(plan));
    }
}
