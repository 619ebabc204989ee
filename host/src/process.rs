//! A host as a process of its own: its streams, its signals, its parent, what is below it.

use crate::agent::scripted::{Script, parse_script};
use crate::config::{ConfigError, ConfigFile, Resolved, Settings, Source};
use crate::io::{signals::Signals, stdin, stdout};
use crate::options::{HostArgs, HostOptions, settings_of_this_process};
use crate::runtime::{self, Surroundings};
use crate::turn::Agents;
use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser as _};
use nix::sys::signal::{SigSet, Signal};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

/// Threads for what blocks beside the turns: files, kills, stray prints that nobody reads.
const SPARE_THREADS: usize = 64;
/// What a thread that copies stdout to a file may take at the end.
const LAST_COPY: Duration = Duration::from_secs(1);

/// Runs a host with these agents until it stops: the whole `main` of a host of your own. Reads the options from the
/// process's own command line ([`HostArgs`]; a wrong one ends the process with code 2), and logs to stderr as
/// `RUST_LOG` says (default: `warn`).
///
/// Call it first thing in `main`, before any thread: it moves the protocol's stdout away from descriptor 1, takes the
/// signals SIGTERM, SIGINT and SIGHUP, and makes the process a child sub-reaper.
///
/// # Errors
/// What prevented the start. A host that stopped for any of its reasons is no error.
///
/// # Example
/// ```no_run
/// use turnhost_host::{Agents, Answer, BlockingAgent, AgentResult};
/// use turnhost_host::turn::context::{TurnContext, WorkItem};
///
/// struct Echo;
/// impl BlockingAgent for Echo {
///     fn run(&self, turn: TurnContext) -> AgentResult {
///         let _ = turn.sink.send_blocking(WorkItem::Delta(turn.prompt.clone()));
///         Ok(Answer::default())
///     }
/// }
///
/// fn main() -> anyhow::Result<std::process::ExitCode> {
///     turnhost_host::run(Agents::new().with_blocking("echo", Echo))
/// }
/// ```
pub fn run(agents: Agents) -> anyhow::Result<ExitCode> {
    let args = HostArgs::parse();
    anyhow::ensure!(
        args.script.is_none(),
        "--script is for the built-in agents; a host of its own passes a script to `agent::builtin`"
    );
    log_to_stderr();
    let (settings, file) = configured(&args)?;
    let name = match &settings.agent.source {
        // A config that is shared with other hosts may name an agent of theirs.
        Source::File { .. } if agents.find(&settings.agent.value).is_none() => {
            tracing::warn!(
                agent = settings.agent.value,
                "agent.name of the config is no agent of this host; turns that name none get its own default"
            );
            None
        }
        Source::Flag(_) | Source::File { .. } => Some(&settings.agent),
        Source::Variable(_) | Source::Because(_) | Source::Default => None,
    };
    run_with(chosen(agents, name)?, HostOptions::of(settings, file.config))
}

/// [`run`] with the built-in agents, as `compute-host` and `turnhost host` do.
///
/// # Errors
/// As [`run`], and a script that cannot be read.
pub fn run_builtin(args: &HostArgs) -> anyhow::Result<ExitCode> {
    let script = args.script.as_deref().map(read_script).transpose()?;
    let (settings, file) = configured(args)?;
    let agents = chosen(crate::agent::builtin(script, &file.config), Some(&settings.agent))?;
    run_with(agents, HostOptions::of(settings, file.config))
}

/// What holds for this process; what was probably meant otherwise is logged.
fn configured(args: &HostArgs) -> anyhow::Result<(Settings, ConfigFile)> {
    let (settings, file) = settings_of_this_process(args)?;
    for warning in file.warnings().chain(settings.ignored.iter().cloned()) {
        tracing::warn!("{warning}");
    }
    Ok((settings, file))
}

/// [`run`] with options made by the caller, who also sees to logging.
///
/// # Errors
/// As [`run`].
pub fn run_with(agents: Agents, options: HostOptions) -> anyhow::Result<ExitCode> {
    let stdout = turnhost_os::fd::take_stdout().context("stdout could not be taken over")?;
    own_descendants();
    unblock_signals();
    panics_go_to_the_log();

    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let agents_runtime = started(|| {
        Builder::new_multi_thread()
            .worker_threads(options.workers.min(cores).max(2))
            .max_blocking_threads(options.workers.saturating_add(SPARE_THREADS).min(32 * 1024))
            .thread_name("host-turns")
            .enable_all()
            .build()
    })
    .context("the agents' threads could not be started; free some threads or raise ulimit -u")?;
    let agents_on = agents_runtime.handle().clone();
    let io = std::thread::Builder::new()
        .name("host-io".to_owned())
        .spawn(move || io_thread(agents, options, stdout, agents_on))
        .context("the I/O thread could not be started")?;
    let result = io.join();
    // Turns that listen to nobody end with the process.
    agents_runtime.shutdown_background();
    result.map_err(|panic| said(&*panic).context("the I/O thread panicked"))??;
    Ok(ExitCode::SUCCESS)
}

/// A runtime panics when the system gives it no thread; the reason must reach stderr before the host ends.
fn started(build: impl FnOnce() -> std::io::Result<Runtime>) -> anyhow::Result<Runtime> {
    let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(build));
    Ok(built.map_err(|panic| said(&*panic))??)
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    anyhow::anyhow!("{}", text.unwrap_or("?"))
}

fn io_thread(agents: Agents, options: HostOptions, stdout: OwnedFd, agents_on: Handle) -> anyhow::Result<()> {
    let runtime =
        Builder::new_current_thread().enable_all().build().context("the reactor could not be started")?;
    let copier = runtime.block_on(async {
        let input = stdin::open().context("stdin cannot be read")?;
        let (output, copier) = stdout::open(stdout).context("stdout cannot be written")?;
        let (tell, outside) = mpsc::channel(8);
        let signals = Signals::take().context("signals cannot be taken")?;
        tokio::spawn(signals.forward(tell.clone()));
        tokio::spawn(crate::parent::of_this_process().forward(tell));
        let process_guard = crate::parent::process_guard();
        let surroundings = Surroundings { agents_on, outside, owns_process: true, process_guard };
        runtime::run(agents, options, input, output, surroundings).await;
        anyhow::Ok(copier)
    })?;
    runtime.shutdown_background();
    let survivors = crate::reap::end_all_descendants();
    if !survivors.is_empty() {
        tracing::warn!(?survivors, "processes of this host are left");
    }
    if let Some(copier) = copier {
        join_for(copier, LAST_COPY);
    }
    Ok(())
}

/// Waits for a thread, but not for ever: a terminal may be held with Ctrl+S.
fn join_for(thread: std::thread::JoinHandle<()>, limit: Duration) {
    let (done, ended) = crossbeam_channel::bounded::<()>(1);
    let waiter = std::thread::Builder::new().name("host-join".to_owned()).spawn(move || {
        let _ = thread.join();
        drop(done);
    });
    if waiter.is_ok() {
        let _ = ended.recv_timeout(limit);
    }
}

/// Whatever is started below this process stays below it, and the host outlives its parent's thread.
fn own_descendants() {
    // Some parents arm this signal, and it fires when the thread that started us ends; the parent guard does better.
    if let Err(error) = nix::sys::prctl::set_pdeathsig(None) {
        tracing::warn!(%error, "the parent-death signal could not be cleared");
    }
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::warn!(%error, "no child sub-reaper: processes that detach themselves may outlive the host");
    }
}

/// A parent may hand down blocked signals; the threads that are started from here on must get them.
fn unblock_signals() {
    let mut stops = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        stops.add(signal);
    }
    if let Err(error) = stops.thread_unblock() {
        tracing::warn!(%error, "signals that the parent blocked stay blocked");
    }
}

/// The agents with this one as the default.
fn chosen(agents: Agents, name: Option<&Resolved<String>>) -> anyhow::Result<Agents> {
    let Some(Resolved { value: name, source }) = name else { return Ok(agents) };
    let known: Vec<&str> = agents.names().collect();
    anyhow::ensure!(
        agents.find(name).is_some(),
        "unknown agent: {name} ({source}); this host has: {}",
        known.join(", ")
    );
    Ok(agents.with_default(name))
}

fn read_script(path: &Path) -> anyhow::Result<Script> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the script {} cannot be read", path.display()))?;
    parse_script(&text).with_context(|| format!("the script {} is wrong", path.display()))
}

fn panics_go_to_the_log() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let (thread, place) = (thread.name().unwrap_or("?"), panic.location());
        tracing::error!(
            thread,
            place = place.map(tracing::field::display),
            "panic: {}",
            panic.payload_as_str().unwrap_or("?")
        );
    }));
}

/// Logs to stderr as `RUST_LOG` says (default: `warn`), unless the program logs already. A stderr that nobody reads
/// costs log lines and never stops the host.
pub fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let Ok(writer) = crate::io::stderr::Lines::start() else { return };
    let logging = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(writer);
    if logging.try_init().is_err() {
        tracing::debug!("the program logs already");
    }
}

/// For the end of `compute-host --help`.
const HELP: &str = "\
Frames come on stdin and go out on stdout, one JSON object a line; docs/protocol.md has them. Its
agents are scripted, exec and openai, the default if a base URL or OPENAI_API_KEY is set, else
scripted; docs/agents.md has their options. Here is a turn by hand:

  (echo '{\"type\":\"turn.start\",\"sid\":\"s\",\"request_id\":\"t\",\"text\":\"hello\"}'; sleep 1) | compute-host";

/// The `main` of `compute-host`.
///
/// # Errors
/// As [`run`].
#[doc(hidden)]
pub fn compute_host() -> anyhow::Result<ExitCode> {
    log_to_stderr();
    let matches = HostArgs::command().after_help(HELP).get_matches();
    run_builtin(&HostArgs::from_arg_matches(&matches)?).or_else(|error| {
        if !error.is::<ConfigError>() {
            return Err(error);
        }
        let line = format!("compute-host: {error}\n");
        if std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).is_err() {
            // Nobody can be told.
        }
        // As for a wrong command line.
        Ok(ExitCode::from(2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_panics_for_want_of_a_thread_is_an_error_that_says_so() {
        let error = started(|| panic!("OS can't spawn worker thread")).unwrap_err();
        assert_eq!(error.to_string(), "OS can't spawn worker thread");
        let error = started(|| Err(std::io::ErrorKind::OutOfMemory.into())).unwrap_err();
        assert_eq!(error.to_string(), "out of memory");
    }
}
