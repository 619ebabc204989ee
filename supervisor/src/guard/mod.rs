//! The guard: parent of the host, sub-reaper of everything that the host starts. Single-threaded, no runtime, no log.
//!
//! A supervisor starts its own program (or an installed `turnhost`) again with `TURNHOST_GUARD` set and one SEQPACKET
//! socket as descriptor 0. [`guard_main`] sees that, becomes the guard and never returns. The guard forks the host,
//! reaps everything below it, obeys the socket, and ends the whole tree when the host has died, when it is told to, or
//! when the supervisor is gone: nothing is left two seconds later.
//!
//! `plan` decides when and how hard; `sweep` finds and signals; `start` forks; `protocol` is the wire.

pub(crate) mod pid1;
mod plan;
pub(crate) mod protocol;
mod start;
mod sweep;

use crate::environment::GUARD_VARIABLE;
use crate::sys;
use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use plan::{Fact, Plan, Step};
use protocol::{FromGuard, HostImage, MAX_LAUNCH, MAX_MESSAGE, Order, Stage, ToGuard, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketType, recvmsg, sendmsg, sockopt,
};
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open};
use start::{StartFailed, Started, Starting, Stdio};
use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;
use sweep::Reap;

/// Exit codes of a guard, for the supervisor that started it.
pub(crate) mod exit {
    /// The tree is gone.
    pub(crate) const DONE: i32 = 0;
    /// `TURNHOST_GUARD` names another version.
    pub(crate) const WRONG_VERSION: i32 = 71;
    /// Descriptor 0 is not the control socket of a supervisor.
    pub(crate) const NO_SOCKET: i32 = 72;
    /// The system refused what a guard needs.
    pub(crate) const NO_SETUP: i32 = 73;
    /// The supervisor was gone before a host was started, or no host could be started.
    pub(crate) const NO_HOST: i32 = 74;
}

/// Becomes the guard if this process was started as one; else returns at once.
///
/// Call it first thing in `main` of a program that embeds a supervisor with [`crate::config::Guard::CurrentExe`],
/// before any thread starts and before arguments are read. A process is a guard if `TURNHOST_GUARD` is set in its
/// environment; only a supervisor sets it. Then this never returns, touches no other code of the program, and exits
/// with 0 once the host's tree is gone, 71 if the variable names another version, 72 if descriptor 0 is no control
/// socket, 73 if the system refused the set-up, 74 if no host was started.
///
/// # Example
/// ```
/// turnhost_supervisor::guard_main();
/// // … the rest of the program
/// ```
pub fn guard_main() {
    let Some(version) = std::env::var_os(GUARD_VARIABLE) else { return };
    let code = match run(&version) {
        Ok(()) => exit::DONE,
        Err(code) => code,
    };
    sys::exit_now(code)
}

fn run(version: &OsStr) -> Result<(), i32> {
    sys::reset_signals();
    let Some(socket) = take_socket() else {
        explain_stray_variable();
        return Err(exit::NO_SOCKET);
    };
    if version != VERSION {
        return Err(exit::WRONG_VERSION);
    }
    let mut guard = Guard::set_up(socket).map_err(|_| exit::NO_SETUP)?;
    guard.send(&FromGuard::Ready { version: VERSION.to_owned() }, None);
    let (image, stdio) = match guard.receive_launch() {
        Ok(Some(launch)) => launch,
        Ok(None) => return Err(exit::NO_HOST),
        Err(failed) => return guard.give_up(failed),
    };
    match start::start(image, stdio) {
        Ok(starting) => guard.attend(starting),
        Err(failed) => guard.give_up(failed),
    }
}

/// Somebody has the variable in a shell: no supervisor listens, so a word on stderr is the only answer there is.
fn explain_stray_variable() {
    let text =
        b"TURNHOST_GUARD is set, but no supervisor started this process as a guard; unset the variable\n";
    let _ = rustix::io::write(io::stderr(), text);
}

/// Moves the control socket from descriptor 0 to a close-on-exec one. `None` if it is none.
fn take_socket() -> Option<OwnedFd> {
    let stdin = io::stdin();
    if sockopt::socket_type(&stdin).ok()? != SocketType::SEQPACKET {
        return None;
    }
    sys::close_from(3);
    let socket = rustix::io::fcntl_dupfd_cloexec(&stdin, 3).ok()?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).ok()?;
    rustix::stdio::dup2_stdin(&null).ok()?;
    Some(socket)
}

/// Everything the guard holds.
struct Guard {
    socket: OwnedFd,
    signals: SignalFd,
    /// The supervisor, and its pid, since a forked copy of it may keep the other end of the socket open.
    supervisor: OwnedFd,
    supervisor_pid: Option<Pid>,
    supervisor_lives: bool,
}

/// What a wait ended with.
#[derive(Default)]
struct Woken {
    socket: bool,
    signals: bool,
}

impl Guard {
    fn set_up(socket: OwnedFd) -> io::Result<Self> {
        let mut read = SigSet::empty();
        for signal in
            [NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP, NixSignal::SIGPIPE, NixSignal::SIGCHLD]
        {
            read.add(signal);
        }
        read.thread_block()?;
        let signals = SignalFd::with_flags(&read, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        rustix::process::chdir("/")?;
        rustix::process::setsid()?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let _ = nix::sys::prctl::set_name(&std::ffi::CString::new(turnhost_os::GUARD_NAME)?);
        let supervisor_pid = getppid();
        let gone = || io::Error::from_raw_os_error(nix::libc::ESRCH);
        let supervisor = pidfd_open(supervisor_pid.ok_or_else(gone)?, PidfdFlags::empty())?;
        // The socket remembers who made it; another parent means that the supervisor died before we looked.
        let maker = sockopt::socket_peercred(&socket)?.pid;
        if getppid() != Some(maker) {
            return Err(gone());
        }
        Ok(Self { socket, signals, supervisor, supervisor_pid, supervisor_lives: true })
    }

    /// Sends a message; a supervisor that is gone or stopped reading is noticed elsewhere.
    fn send(&self, message: &FromGuard, descriptor: Option<&OwnedFd>) {
        let bytes = message.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The next message, with its descriptors. `Ok(None)` if there is none now; an error is the end of the socket.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Ok(received) if received.bytes == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => {
                let descriptors = ancillary
                    .drain()
                    .filter_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                        _ => None,
                    })
                    .flatten()
                    .collect();
                Ok(Some((received.bytes, descriptors)))
            }
            // A reset is said once, ahead of what the supervisor had said before it was gone.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {
                Ok(None)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for anything to happen, at most until `deadline`. Learns here that the supervisor is gone.
    fn wait(&mut self, starting: Option<&Starting>, deadline: Option<Instant>) -> Woken {
        let mut polled = vec![PollFd::new(&self.signals, PollFlags::IN)];
        // A dead supervisor's socket and pidfd would be ready for ever.
        if self.supervisor_lives {
            polled.push(PollFd::new(&self.socket, PollFlags::IN));
            polled.push(PollFd::new(&self.supervisor, PollFlags::IN));
        }
        if let Some(starting) = starting {
            polled.push(PollFd::from_borrowed_fd(starting.fd(), PollFlags::IN));
        }
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
        });
        if poll(&mut polled, timeout.as_ref()).is_err() {
            return Woken::default();
        }
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        let mut woken = Woken { signals: ready[0], ..Woken::default() };
        let mut supervisor_died = false;
        if self.supervisor_lives {
            woken.socket = ready[1];
            supervisor_died = ready[2] || getppid() != self.supervisor_pid;
        }
        self.supervisor_lives &= !supervisor_died;
        woken
    }

    /// True if a signal asked the guard to end its tree.
    fn read_signals(&self) -> bool {
        let mut told_to_end = false;
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = signal.ssi_signo.cast_signed();
            told_to_end |= [nix::libc::SIGTERM, nix::libc::SIGINT, nix::libc::SIGHUP].contains(&number);
        }
        told_to_end
    }

    /// The launch, once all of it has come. `Ok(None)` if the supervisor went away or called it off.
    fn receive_launch(&mut self) -> Result<Option<(HostImage, Stdio)>, StartFailed> {
        let malformed = || StartFailed::new(Stage::Launch, nix::libc::EPROTO);
        let mut buffer = vec![0; MAX_MESSAGE];
        let mut stdio: Option<Stdio> = None;
        let mut image = Vec::new();
        let mut missing = None;
        loop {
            let woken = self.wait(None, None);
            if !self.supervisor_lives || (woken.signals && self.read_signals()) {
                return Ok(None);
            }
            if !woken.socket {
                continue;
            }
            let (length, descriptors) = match self.receive(&mut buffer) {
                Ok(Some(received)) => received,
                Ok(None) => continue,
                Err(_) => return Ok(None),
            };
            let message = buffer.get(..length).and_then(ToGuard::decode).ok_or_else(malformed)?;
            match (message, &mut missing) {
                (ToGuard::Launch { bytes }, None) => {
                    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_LAUNCH);
                    let bytes = bytes.ok_or_else(|| StartFailed::new(Stage::Exec, nix::libc::E2BIG))?;
                    image
                        .try_reserve_exact(bytes)
                        .map_err(|_| StartFailed::new(Stage::Launch, nix::libc::ENOMEM))?;
                    // The kernel drops what it has no number for.
                    let short = |_| StartFailed::new(Stage::Launch, nix::libc::EMFILE);
                    stdio = Some(descriptors.try_into().map_err(short)?);
                    missing = Some(bytes);
                }
                (ToGuard::Chunk(chunk), Some(left)) => {
                    *left = left.checked_sub(chunk.len()).ok_or_else(malformed)?;
                    image.extend_from_slice(&chunk);
                }
                // No host, nothing to end: the supervisor has changed its mind.
                (ToGuard::Order { .. }, _) => return Ok(None),
                (ToGuard::Launch { .. }, Some(_)) | (ToGuard::Chunk(_), None) => return Err(malformed()),
            }
            if missing == Some(0) {
                let image = HostImage::decode(&image).ok_or_else(malformed)?;
                return stdio.map(|stdio| Some((image, stdio))).ok_or_else(malformed);
            }
        }
    }

    /// There will be no host. What was forked of it is ended.
    fn give_up(&mut self, failed: StartFailed) -> Result<(), i32> {
        self.send(&FromGuard::SpawnFailed { stage: failed.stage, errno: failed.errno }, None);
        loop {
            match sweep::reap() {
                Reap::Empty => return Err(exit::NO_HOST),
                Reap::One(_) => {}
                Reap::Later => {
                    sweep::kill_children();
                    self.wait(None, Some(Instant::now() + plan::ROUND));
                    self.read_signals();
                }
            }
        }
    }

    /// From the fork to the end of the tree.
    fn attend(&mut self, mut starting: Starting) -> Result<(), i32> {
        let mut told_to_end = false;
        let host = loop {
            match starting.verdict() {
                Some(Ok(started)) => break started,
                Some(Err(failed)) => return self.give_up(failed),
                None => {}
            }
            let woken = self.wait(Some(&starting), None);
            told_to_end |= woken.signals && self.read_signals();
            // Exec can take long on a slow file system; nobody needs it any more then.
            // A supervisor sends nothing before `started`, so a word from it means that the socket was closed.
            if !self.supervisor_lives || told_to_end || woken.socket {
                return self.give_up(StartFailed::new(Stage::Exec, nix::libc::EINTR));
            }
        };
        drop(starting);
        let Started { pid, start_ticks, pidfd } = host;
        self.send(&FromGuard::Started { pid, start_ticks }, Some(&pidfd));
        // Only the supervisor needs it: our own child's pid is its own until we reap it.
        drop(pidfd);
        self.end_well(pid);
        Ok(())
    }

    /// Watches the host, then ends its tree.
    fn end_well(&mut self, host: i32) {
        let mut plan = Plan::new();
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            // Reap first: children may have ended before the first wait.
            if self.reap_all(&mut plan, host) {
                return;
            }
            let woken = self.wait(None, plan.next_deadline());
            let gone = woken.signals && self.read_signals();
            if woken.socket {
                self.obey(&mut plan, &mut buffer);
            }
            if (gone || !self.supervisor_lives) && self.act(&mut plan, Fact::SupervisorGone) {
                return;
            }
            if self.act(&mut plan, Fact::Tick) {
                return;
            }
        }
    }

    /// Reaps whatever has ended. True when the guard's work is done.
    fn reap_all(&self, plan: &mut Plan, host: i32) -> bool {
        let mut reaped_any = false;
        loop {
            match sweep::reap() {
                Reap::One(reaped) => {
                    reaped_any = true;
                    if reaped.pid == host {
                        self.send(&FromGuard::Exit(reaped.exit), None);
                        self.act(plan, Fact::HostExited);
                    }
                }
                Reap::Later => return reaped_any && self.act(plan, Fact::ChildReaped),
                Reap::Empty => return self.act(plan, Fact::TreeEmpty),
            }
        }
    }

    /// Carries out the orders that have come, or learns that the socket has ended.
    fn obey(&mut self, plan: &mut Plan, buffer: &mut [u8]) {
        loop {
            let length = match self.receive(buffer) {
                Ok(Some((length, _descriptors))) => length,
                Ok(None) => return,
                Err(_) => {
                    self.supervisor_lives = false;
                    return;
                }
            };
            if let Some(ToGuard::Order { number, order }) = buffer.get(..length).and_then(ToGuard::decode) {
                match order {
                    Order::Term => self.act(plan, Fact::TermOrdered),
                    Order::Kill => self.act(plan, Fact::KillOrdered),
                    Order::Cont => {
                        sweep::signal_descendants(&[Signal::CONT]);
                        false
                    }
                };
                self.send(&FromGuard::Ack { number }, None);
            }
        }
    }

    /// Tells the plan and does what it says. True when the guard's work is done.
    fn act(&self, plan: &mut Plan, fact: Fact) -> bool {
        let mut done = false;
        for step in plan.handle(Instant::now(), fact) {
            match step {
                // A stopped process keeps a TERM pending; CONT lets it act.
                Step::TermTree => sweep::signal_descendants(&[Signal::TERM, Signal::CONT]),
                Step::KillChildren => sweep::kill_children(),
                Step::Report => self.send(&FromGuard::Swept(sweep::survivors()), None),
                Step::Leave => done = true,
            }
        }
        done
    }
}
