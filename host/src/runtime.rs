//! The loop: waits for whatever comes first and hands it to [`Host`]. Control before work before writing, and nothing
//! in it ever blocks: a full stdout holds up the agents, never the reading of stdin.

use crate::event::{Event, Outside};
use crate::host::Host;
use crate::io::stdout::Writer;
use crate::options::HostOptions;
use crate::turn::Agents;
use crate::turn::context::Work;
use rustix::process::Signal;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use turnhost_os::identity::ProcessHandle;
use turnhost_protocol::LineDecoder;

/// Read at once; a pipe holds 64 KiB.
const READ_BYTES: usize = 32 * 1024;
/// Items of agents that may be on their way to the loop. Each counts at least 64 of the bytes that may wait, so this
/// never fills before those do.
const WORK_ITEMS: usize = 1024;
/// Items handled before the loop looks at stdin again.
const WORK_BATCH: usize = 128;

/// Where the loop's turns run, and what it may do to the process.
pub(crate) struct Surroundings {
    /// Runs the agents.
    pub(crate) agents_on: Handle,
    /// Signals and the parent's end.
    pub(crate) outside: mpsc::Receiver<Outside>,
    /// True if every descendant of the process is the host's.
    pub(crate) owns_process: bool,
    /// Continued once a pipe of the host is gone, because then its supervisor may be.
    pub(crate) process_guard: Option<ProcessHandle>,
}

/// Runs a host until it stops. What is left of the turns' processes at the end is the caller's matter.
pub(crate) async fn run(
    agents: Agents,
    options: HostOptions,
    mut input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    surroundings: Surroundings,
) {
    let Surroundings { agents_on, mut outside, owns_process, process_guard } = surroundings;
    let options = options.within_limits();
    let (work, mut working) = mpsc::channel::<Work>(WORK_ITEMS);
    let mut batch = Vec::with_capacity(WORK_BATCH);
    let mut decoder = LineDecoder::new(options.max_frame_bytes);
    let mut host = Host::new(agents, options, agents_on, work, owns_process);
    let mut writer = Writer::new(output);
    let (mut input_open, mut output_open, mut outside_open) = (true, true, true);
    let far = Instant::now() + Duration::from_secs(365 * 24 * 3600);
    let mut alarm = pin!(sleep_until(far));

    host.say_hello();
    loop {
        let to_write = output_open && writer.load(&mut host.out.lanes);
        host.step(Instant::now(), !to_write);
        if host.is_over() {
            return;
        }
        // Whatever the step queued is found by the next round; only the end of the host may not wait for it.
        let to_write = output_open && writer.load(&mut host.out.lanes);
        let deadline = host.next_deadline().unwrap_or(far);
        if alarm.deadline() != deadline {
            alarm.as_mut().reset(deadline);
        }
        let reading = input_open && host.takes_input();
        let written = tokio::select! {
            biased;
            event = outside.recv(), if outside_open => {
                match event {
                    Some(event) => host.handle(Instant::now(), Event::Outside(event)),
                    None => outside_open = false,
                }
                Ok(())
            }
            read = input.read(decoder.space(READ_BYTES)), if reading => {
                input_open = take_lines(&mut host, &mut decoder, read.unwrap_or(0));
                if !input_open {
                    wake(process_guard.as_ref());
                }
                // Commands come first, but a flood of them must not starve the answers.
                match output_open && writer.load(&mut host.out.lanes) {
                    true => writer.write_if_ready().await,
                    false => Ok(()),
                }
            }
            finished = host.pool.next(), if !host.pool.is_empty() => {
                // What the agent sent before it ended stands in front of its end.
                while let Ok(work) = working.try_recv() {
                    host.handle(Instant::now(), Event::Work(work));
                }
                host.handle(Instant::now(), Event::Finished(finished));
                Ok(())
            }
            _ = working.recv_many(&mut batch, WORK_BATCH) => {
                let now = Instant::now();
                batch.drain(..).for_each(|work| host.handle(now, Event::Work(work)));
                Ok(())
            }
            written = writer.write(), if to_write => written,
            () = alarm.as_mut() => {
                host.handle(Instant::now(), Event::Tick);
                Ok(())
            }
        };
        if let Err(error) = written {
            tracing::info!(%error, "stdout takes nothing any more: the host ends");
            output_open = false;
            wake(process_guard.as_ref());
            host.handle(Instant::now(), Event::OutputGone);
        }
    }
}

fn wake(process_guard: Option<&ProcessHandle>) {
    // A guard that is gone needs no waking, and the parent guard tells of it.
    let _ = process_guard.map(|guard| guard.signal(Signal::CONT));
}

/// Handles every line that the last read completed. False at the end of the input.
fn take_lines(host: &mut Host, decoder: &mut LineDecoder, read: usize) -> bool {
    let now = Instant::now();
    if read > 0 {
        decoder.commit(read);
        while let Some(line) = decoder.next_line() {
            host.handle(now, Event::Line(line));
        }
        return true;
    }
    while let Some(line) = decoder.finish() {
        host.handle(now, Event::Line(line));
    }
    host.handle(now, Event::InputEnded);
    false
}

#[cfg(test)]
mod tests;
