//! Table tests of the machine, by the event they begin with. The rig plays the driver with a clock of its own.

mod crashes;
mod frames;
mod requests;
mod starting;
mod stops;
mod watch;

use super::*;
use crate::restart::RestartPolicy;
use pretty_assertions::assert_eq;
use std::time::Duration;
use turnhost_protocol::outcome::InterruptOutcome;
use turnhost_protocol::{ErrorKind, FailReason, SessionId};

type Effects = Vec<Effect<u32, &'static str>>;

const MS: Duration = Duration::from_millis(1);

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn policy() -> Policy {
    Policy {
        hello_timeout: secs(10),
        hang_after: Some(secs(45)),
        write_stall: secs(30),
        restart: RestartPolicy::default(),
        grace: secs(10),
        unavailable_after: secs(10),
        max_waiting: 100,
        max_waiting_bytes: 10_000,
        sweep_timeout: secs(2),
    }
}

/// A machine, the time, and the number of the last waiter.
struct Rig {
    machine: Machine<u32, &'static str>,
    now: Instant,
    t0: Instant,
    waiter: u32,
}

fn rig() -> Rig {
    rig_with(policy())
}

fn rig_with(policy: Policy) -> Rig {
    let t0 = Instant::now();
    Rig { machine: Machine::new(policy, 1), now: t0, t0, waiter: 0 }
}

/// A rig with a ready child of epoch 1.
fn ready() -> Rig {
    ready_with(policy())
}

fn ready_with(policy: Policy) -> Rig {
    let mut rig = rig_with(policy);
    rig.give(Input::Start);
    rig.hello();
    assert_eq!(rig.state(), HostState::Ready);
    rig
}

impl Rig {
    /// What an input brings about, but for publications, which have tests of their own.
    fn give(&mut self, input: Input<&'static str>) -> Effects {
        let mut out = self.give_all(input);
        out.retain(|effect| !matches!(effect, Effect::Publish(_)));
        out
    }

    fn give_all(&mut self, input: Input<&'static str>) -> Effects {
        let mut out = Vec::new();
        self.machine.handle(self.now, input, &mut out);
        out
    }

    /// Lets time pass without a tick.
    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Lets time pass from one deadline to the next, with a tick at each, as the driver does.
    fn wait(&mut self, time: Duration) -> Effects {
        let end = self.now + time;
        let mut out = Vec::new();
        while let Some(at) = self.machine.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            out.extend(self.give(Input::Tick));
        }
        self.now = end;
        out.extend(self.give(Input::Tick));
        out
    }

    fn state(&self) -> HostState {
        self.machine.state()
    }

    fn epoch(&self) -> u64 {
        self.machine.epoch()
    }

    /// Takes the child to readiness without seeds.
    fn hello(&mut self) {
        let epoch = self.epoch();
        self.give(Input::Hello { epoch, verdict: Ok(()) });
        self.give(Input::Reseeded { epoch, lines: Vec::new() });
    }

    fn exited(&mut self, exit: Exit) -> Effects {
        let epoch = self.epoch();
        self.give(Input::Exited { epoch, exit })
    }

    fn swept(&mut self) -> Effects {
        let epoch = self.epoch();
        self.give(Input::Swept { epoch, survivors: Vec::new() })
    }

    /// Exit, sweep, and the whole back-off; what the exit brought about.
    fn crash_and_respawn(&mut self) -> Effects {
        let out = self.exited(Exit::Code(1));
        self.swept();
        self.wait(secs(5));
        assert_eq!(self.state(), HostState::Starting);
        out
    }

    fn submit(&mut self, request: Request<u32>) -> (Result<SubmitPhase, Refused<u32>>, Effects) {
        let mut out = Vec::new();
        let taken = self.machine.request(self.now, request, &mut out);
        out.retain(|effect| !matches!(effect, Effect::Publish(_)));
        (taken, out)
    }

    fn request(&mut self, id: &str, sid: &str, kind: RequestKind) -> Request<u32> {
        self.waiter += 1;
        Request {
            id: id.into(),
            sid: sid.into(),
            kind,
            line: format!("{id}\n").into_bytes(),
            deadline: None,
            waiter: self.waiter,
        }
    }

    /// Submits a turn that is accepted without further effect than a spawn; its waiter.
    fn turn(&mut self, id: &str, sid: &str) -> u32 {
        self.accepted(id, sid, RequestKind::Turn)
    }

    fn call(&mut self, id: &str, sid: &str) -> u32 {
        self.accepted(id, sid, RequestKind::Call)
    }

    fn accepted(&mut self, id: &str, sid: &str, kind: RequestKind) -> u32 {
        let request = self.request(id, sid, kind);
        let (taken, _) = self.submit(request);
        taken.expect("accepted");
        self.waiter
    }

    fn call_until(&mut self, id: &str, deadline: Duration) -> u32 {
        let deadline = Some(self.now + deadline);
        let request = Request { deadline, ..self.request(id, "s", RequestKind::Call) };
        self.submit(request).0.expect("accepted");
        self.waiter
    }

    fn interrupt(&mut self, id: &str, sid: &str, turn: Option<&str>) -> (u32, Effects) {
        let kind = RequestKind::Interrupt { turn_id: turn.map(RequestId::from) };
        let request = self.request(id, sid, kind);
        let (taken, out) = self.submit(request);
        taken.expect("accepted");
        (self.waiter, out)
    }

    fn refused(&mut self, id: &str, kind: RequestKind) -> ErrorKind {
        let request = self.request(id, "s", kind);
        let waiter = request.waiter;
        let (taken, out) = self.submit(request);
        assert_eq!(out, []);
        let refused = taken.expect_err("refused");
        assert_eq!(refused.waiter, waiter, "the waiter comes back");
        refused.kind
    }

    fn outgoing(&self) -> String {
        let bytes: Vec<u8> = self.machine.outgoing().collect::<Vec<_>>().concat();
        assert_eq!(self.machine.has_outgoing(), !bytes.is_empty());
        String::from_utf8(bytes).expect("lines are text here")
    }

    fn wrote(&mut self, bytes: usize) {
        let epoch = self.epoch();
        assert_eq!(self.give(Input::Wrote { epoch, bytes }), []);
    }

    /// Everything there is goes into the pipe.
    fn write_all(&mut self) -> String {
        let text = self.outgoing();
        self.wrote(text.len());
        assert!(!self.machine.has_outgoing());
        text
    }

    fn started(&mut self, id: &str) -> Effects {
        let epoch = self.epoch();
        self.give(Input::TurnStarted { epoch, id: id.into() })
    }

    fn answer(&mut self, id: &str) -> Effects {
        let epoch = self.epoch();
        self.give(Input::Answer { epoch, id: id.into(), reply: "reply" })
    }

    fn heartbeat(&mut self) {
        let epoch = self.epoch();
        assert_eq!(self.give(Input::Heartbeat { epoch }), []);
    }

    fn alive(&mut self) {
        let epoch = self.epoch();
        assert_eq!(self.give(Input::Alive { epoch }), []);
    }

    fn open(&self) -> Vec<(String, OpenPhase)> {
        self.machine.open_requests().into_iter().map(|open| (open.id.to_string(), open.phase)).collect()
    }

    fn stop(&mut self, drain: Duration, budget: Duration) -> Effects {
        self.give(Input::Stop(StopPlan { drain, budget, restart: false }))
    }
}

fn reply(waiter: u32) -> Effect<u32, &'static str> {
    Effect::Resolve { waiter, ending: Ending::Reply("reply") }
}

/// What became of a waiter, in short; the words for people are left out.
#[derive(Debug, PartialEq, Eq)]
enum Short {
    Reply,
    InterruptedUnsent,
    Interrupt(InterruptOutcome, Option<String>),
    Turn(FailReason, Option<bool>, Option<Exit>, u64),
    Call(ErrorKind),
}

/// The endings among the effects.
fn endings(effects: &Effects) -> Vec<(u32, Short)> {
    let short = |ending: &Ending<&'static str>| match ending {
        Ending::Reply(_) => Short::Reply,
        Ending::InterruptedUnsent => Short::InterruptedUnsent,
        Ending::Interrupt { outcome, turn } => {
            Short::Interrupt(*outcome, turn.as_ref().map(ToString::to_string))
        }
        Ending::TurnFailed { reason, turn_started, exit, epoch, .. } => {
            Short::Turn(*reason, *turn_started, *exit, *epoch)
        }
        Ending::CallFailed { kind, .. } => Short::Call(*kind),
    };
    let ending = |effect: &Effect<u32, &'static str>| match effect {
        Effect::Resolve { waiter, ending } => Some((*waiter, short(ending))),
        _ => None,
    };
    effects.iter().filter_map(ending).collect()
}

/// The words for people of what failed.
fn details(effects: &Effects) -> Vec<&str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Resolve { ending: Ending::TurnFailed { detail, .. }, .. }
            | Effect::Resolve { ending: Ending::CallFailed { detail, .. }, .. } => Some(detail.as_str()),
            _ => None,
        })
        .collect()
}

/// What is left of the effects without endings.
fn orders(effects: Effects) -> Effects {
    effects.into_iter().filter(|effect| !matches!(effect, Effect::Resolve { .. })).collect()
}

fn fault(kind: ErrorKind) -> StartFault {
    StartFault::new(kind, "because".to_owned())
}

/// The kind by which starts were answered, `Ok` for a ready child.
fn start_answers(effects: &Effects) -> Vec<Result<u64, ErrorKind>> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Started(answer) => Some(answer.clone().map_err(|fault| fault.kind)),
            _ => None,
        })
        .collect()
}

fn steps(effects: &Effects) -> Vec<(&'static str, u64)> {
    report(effects).steps.iter().map(|step| (step.step, step.at_ms)).collect()
}

fn report(effects: &Effects) -> StopReport {
    let reports: Vec<&StopReport> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Stopped(report) => Some(report),
            _ => None,
        })
        .collect();
    assert_eq!(reports.len(), 1, "one report in {effects:?}");
    reports[0].clone()
}
