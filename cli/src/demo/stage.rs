//! The play: two supervisors, and the clock for what is shown. What is done next is [`super::plot`]'s to say, and
//! whether it was right [`super::claims`]'.

use crate::demo::cast::{HostName, Session, Turn};
use crate::demo::claims::Claim;
use crate::demo::line;
use crate::demo::observed::{Event, Observed, State};
use crate::demo::plot::{Act, Plot};
use crate::demo::screen::Screen;
use crate::supervise::event;
use rustix::process::Signal;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};
use turnhost_os::ProcessIdentity;
use turnhost_protocol::frame::{Respond, SessionSeed};
use turnhost_protocol::{RawJson, RequestId};
use turnhost_supervisor::{
    CallError, Config, EventStream, HostNotice, HostState, HostSupervisor, RestartPolicy, StopOptions,
    StopSummary, TurnEvent, TurnHandle,
};

/// The longest time until the killed host is started again; it is half of it at least.
const BACKOFF: Duration = Duration::from_secs(2);
/// What each wait for a host may take: a machine may be slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two pictures.
const FRAME: Duration = Duration::from_millis(100);
/// Between two numbers of the countdown.
const COUNT: Duration = Duration::from_millis(300);
/// What a stop may take.
const STOP_BUDGET: Duration = Duration::from_secs(10);
/// What the last processes may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Things seen that wait to be looked at.
const QUEUE: usize = 1024;
/// Things seen in all: many times what the play has.
const SEEN: usize = 16 * 1024;

/// Something that came from a host.
enum Happening {
    Notice(HostName, HostNotice),
    Turn(Turn, RequestId, TurnEvent),
}

struct Host {
    name: HostName,
    /// `None` once it was stopped.
    supervisor: Option<HostSupervisor>,
    process: Option<ProcessIdentity>,
    next_start: Option<Instant>,
    counted: Option<Instant>,
}

/// Two hosts, what was seen of them, and where it is shown.
pub(super) struct Stage {
    hosts: [Host; HostName::ALL.len()],
    screen: Screen,
    plot: Plot,
    seen: Vec<Observed>,
    sender: Option<mpsc::Sender<Happening>>,
    happenings: mpsc::Receiver<Happening>,
    /// Every process that a supervisor named.
    processes: Vec<ProcessIdentity>,
    /// Children that this process had before.
    inherited: Vec<i32>,
}

impl Stage {
    pub(super) fn new(screen: Screen) -> anyhow::Result<Self> {
        let (sender, happenings) = mpsc::channel(QUEUE);
        let program = std::env::current_exe()?;
        let host = |name| -> Result<Host, CallError> {
            let mut config = Config::new([program.as_os_str(), "host".as_ref()]);
            config.restart = RestartPolicy { backoff_base: BACKOFF, ..RestartPolicy::default() };
            config.hello_timeout = PATIENCE;
            config.unavailable_after = PATIENCE;
            let supervisor = Some(HostSupervisor::new(config)?);
            Ok(Host { name, supervisor, process: None, next_start: None, counted: None })
        };
        Ok(Self {
            hosts: [host(HostName::North)?, host(HostName::South)?],
            screen,
            plot: Plot::default(),
            seen: Vec::new(),
            sender: Some(sender),
            happenings,
            processes: Vec::new(),
            inherited: children(),
        })
    }

    /// From the first start to the point where the plot stops.
    pub(super) async fn play(&mut self) -> Result<(), CallError> {
        let [north, south] = &self.hosts;
        for host in [north, south] {
            if let (Some(supervisor), Some(sender)) = (&host.supervisor, &self.sender) {
                tokio::spawn(forward_notices(host.name, supervisor.events(), sender.clone()));
            }
        }
        self.screen.draw().await;
        let (one, other) = tokio::join!(start(north), start(south));
        one.and(other)?;
        for name in HostName::ALL {
            self.know_processes(name).await;
        }
        let mut acts = VecDeque::new();
        for session in Session::ALL {
            let seeded = self.seed(session).await;
            acts.extend(self.observe(seeded, None).await);
        }
        let mut frames = interval(FRAME);
        loop {
            while let Some(act) = acts.pop_front() {
                if act == Act::Stop {
                    return Ok(());
                }
                for observed in self.act(act).await {
                    acts.extend(self.observe(observed, None).await);
                }
            }
            tokio::select! {
                biased;
                Some(happening) = self.happenings.recv() => acts.extend(self.take(happening).await),
                _ = frames.tick() => {
                    acts.extend(self.count_down().await);
                    self.screen.draw().await;
                }
            }
        }
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> &[Observed] {
        &self.seen
    }

    /// Shows the claims, as the last thing.
    pub(super) async fn show_claims(&mut self, claims: &[Claim]) {
        self.screen.claims(claims).await;
    }

    async fn take(&mut self, happening: Happening) -> Vec<Act> {
        let at = self.screen.at();
        match happening {
            Happening::Notice(host, notice) => {
                let json = event::notice(&notice).map(|supervised| line::passed(at, host, &supervised));
                let HostNotice::State(snapshot) = &notice else { return Vec::new() };
                let state = State::of(snapshot);
                let on_stage = self.host_mut(host);
                if on_stage.next_start != snapshot.next_start_at {
                    on_stage.next_start = snapshot.next_start_at;
                    on_stage.counted = None;
                }
                if state.state == HostState::Ready {
                    self.know_processes(host).await;
                }
                let mut acts = self.observe(Observed::State { host, state }, json).await;
                acts.extend(self.count_down().await);
                acts
            }
            Happening::Turn(turn, id, event) => {
                let host = turn.session.host();
                let json = event::turn(&id, &event).map(|supervised| line::passed(at, host, &supervised));
                self.observe(Observed::Turn { turn, event: Event::of(&event) }, json).await
            }
        }
    }

    async fn observe(&mut self, observed: Observed, json: Option<Vec<u8>>) -> Vec<Act> {
        self.screen.observe(&observed, json).await;
        let acts = self.plot.observe(&observed);
        self.seen.push(observed);
        // More than this is no play of ours.
        if self.seen.len() == SEEN { vec![Act::Stop] } else { acts }
    }

    /// Does it; gives what there is to see of that at once.
    async fn act(&mut self, act: Act) -> Vec<Observed> {
        let observed = match act {
            Act::Submit(turn) => self.submit(turn).await,
            Act::Kill(name) => self.kill(name),
            Act::Allow { session, question } => self.allow(session, question).await,
            Act::Stop => return Vec::new(),
        };
        vec![observed]
    }

    async fn seed(&self, session: Session) -> Observed {
        let history = session.history();
        let history = history.iter().filter_map(|message| RawJson::from_value(message).ok()).collect();
        let seed = SessionSeed {
            sid: Some(session.as_str().into()),
            history: Some(history),
            ..SessionSeed::default()
        };
        match self.supervisor(session.host()) {
            Some(supervisor) => match supervisor.seed(seed).await {
                Ok(seeded) => Observed::Seeded { session, messages: seeded.message_count },
                Err(error) => Observed::Refused(format!("the seed of {session}: {error}")),
            },
            None => Observed::Refused(format!("the seed of {session}: its host was stopped")),
        }
    }

    async fn submit(&self, turn: Turn) -> Observed {
        let fields = RawJson::from_value(&turn.frame());
        let (Some(supervisor), Some(sender), Ok(fields)) =
            (self.supervisor(turn.session.host()), &self.sender, fields)
        else {
            return Observed::Refused(format!("{turn}: its host was stopped"));
        };
        match supervisor.submit_turn_json(fields).await {
            Ok(handle) => {
                tokio::spawn(forward_turn(turn, handle, sender.clone()));
                Observed::Submitted(turn)
            }
            Err(error) => Observed::Refused(format!("{turn}: {error}")),
        }
    }

    fn kill(&self, name: HostName) -> Observed {
        let process = self.host(name).process.as_ref().ok_or(std::io::ErrorKind::NotFound);
        let killed = process.map_err(std::io::Error::from).and_then(|process| {
            process.open()?.signal(Signal::KILL)?;
            Ok(process.pid)
        });
        match killed {
            Ok(pid) => Observed::Killed { host: name, pid },
            Err(error) => Observed::Refused(format!("kill -9 of the host of {name}: {error}")),
        }
    }

    async fn allow(&self, session: Session, question: String) -> Observed {
        let answer = Respond {
            sid: Some(session.as_str().into()),
            approval_id: Some(question),
            choice: Some("once".into()),
            ..Respond::default()
        };
        match self.supervisor(session.host()) {
            Some(supervisor) => match supervisor.respond(answer, PATIENCE).await {
                Ok(_) => Observed::Allowed(session),
                Err(error) => Observed::Refused(format!("the answer to {session}: {error}")),
            },
            None => Observed::Refused(format!("the answer to {session}: its host was stopped")),
        }
    }

    /// The next number for each host that waits for its start.
    async fn count_down(&mut self) -> Vec<Act> {
        let now = Instant::now();
        let mut counted = Vec::new();
        for host in &mut self.hosts {
            let due = host.counted.is_none_or(|last| now.duration_since(last) >= COUNT);
            if let Some(start) = host.next_start.filter(|_| due) {
                host.counted = Some(now);
                let left = start.saturating_duration_since(now);
                counted.push(Observed::Countdown { host: host.name, left });
            }
        }
        let mut acts = Vec::new();
        for observed in counted {
            acts.extend(self.observe(observed, None).await);
        }
        acts
    }

    /// Stops both hosts, looks at the rest of what they say, and looks for what is left of them.
    pub(super) async fn stop(&mut self) {
        self.observe(Observed::Stopping, None).await;
        let [north, south] = &self.hosts;
        let (one, other) = tokio::join!(stop(north), stop(south));
        let mut stopped = Vec::new();
        for (name, summary) in HostName::ALL.into_iter().zip([one, other]) {
            stopped.push(match summary {
                Ok(summary) => Observed::Stopped { host: name, survivors: summary.survivors },
                Err(error) => Observed::Refused(format!("the stop of {name}: {error}")),
            });
        }
        // With the supervisors their events end.
        for host in &mut self.hosts {
            host.supervisor = None;
        }
        self.sender = None;
        let rest = async {
            while let Some(happening) = self.happenings.recv().await {
                self.take(happening).await;
            }
        };
        let _ = timeout(GONE_WITHIN, rest).await;
        for observed in stopped {
            self.observe(observed, None).await;
        }
        let left = self.left_behind().await;
        self.observe(Observed::Left(left), None).await;
        self.screen.draw().await;
    }

    /// Processes of ours that still live, after they had their time to go.
    async fn left_behind(&self) -> Vec<i32> {
        let alive = || {
            let known = self.processes.iter().filter(|process| process.is_alive()).map(|process| process.pid);
            let children = children().into_iter().filter(|child| !self.inherited.contains(child));
            let mut alive: Vec<i32> = known.chain(children).collect();
            alive.sort_unstable();
            alive.dedup();
            alive
        };
        let gone = async {
            while !alive().is_empty() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        match timeout(GONE_WITHIN, gone).await {
            Ok(()) => Vec::new(),
            Err(_) => alive(),
        }
    }

    /// Notes who the host and its guard are.
    async fn know_processes(&mut self, name: HostName) {
        let Some(supervisor) = self.supervisor(name) else { return };
        let Ok(status) = supervisor.status().await else { return };
        let process = status.pid.and_then(ProcessIdentity::of);
        for known in process.iter().cloned().chain(status.guard_pid.and_then(ProcessIdentity::of)) {
            if !self.processes.contains(&known) {
                self.processes.push(known);
            }
        }
        self.host_mut(name).process = process;
    }

    fn supervisor(&self, name: HostName) -> Option<&HostSupervisor> {
        self.host(name).supervisor.as_ref()
    }

    fn host(&self, name: HostName) -> &Host {
        let [north, south] = &self.hosts;
        match name {
            HostName::North => north,
            HostName::South => south,
        }
    }

    fn host_mut(&mut self, name: HostName) -> &mut Host {
        let [north, south] = &mut self.hosts;
        match name {
            HostName::North => north,
            HostName::South => south,
        }
    }
}

async fn start(host: &Host) -> Result<(), CallError> {
    match &host.supervisor {
        Some(supervisor) => supervisor.start().await.map(drop),
        None => Ok(()),
    }
}

async fn stop(host: &Host) -> Result<StopSummary, CallError> {
    match &host.supervisor {
        Some(supervisor) => {
            supervisor.shutdown(StopOptions { drain: Duration::ZERO, budget: STOP_BUDGET }).await
        }
        None => Ok(StopSummary::default()),
    }
}

fn children() -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let dead = |pid| turnhost_os::identity::stat(pid).is_none_or(|stat| stat.is_dead());
    turnhost_os::tree::children(own).into_iter().filter(|pid| !dead(*pid)).collect()
}

async fn forward_notices(host: HostName, mut events: EventStream, sender: mpsc::Sender<Happening>) {
    while let Some(notice) = events.next().await {
        if sender.send(Happening::Notice(host, notice)).await.is_err() {
            return;
        }
    }
}

async fn forward_turn(turn: Turn, mut handle: TurnHandle, sender: mpsc::Sender<Happening>) {
    while let Some(event) = handle.next().await {
        let id = handle.request_id().clone();
        if sender.send(Happening::Turn(turn, id, event)).await.is_err() {
            return;
        }
    }
}
