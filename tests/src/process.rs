//! One process under test.

use crate::reader::{Reader, stderr_bytes, stdout_bytes};
use crate::transcript::Transcript;
use crate::wait::{DEADLINE, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A started process with its standard streams. Dropping it kills it; a test that ends well waits for its end first.
pub struct Process {
    child: Child,
    stdin: Option<OwnedFd>,
    transcript: Arc<Transcript>,
    unread: Option<OwnedFd>,
    stdout: Option<Reader>,
    stderr: Option<Reader>,
    ended: Option<Ended>,
}

impl Process {
    #[track_caller]
    pub(crate) fn over(mut child: Child, reads_stdout: bool) -> Self {
        let transcript = Arc::new(Transcript::new());
        let stdin = child.stdin.take().map(OwnedFd::from);
        if let Some(stdin) = &stdin {
            // A child that does not read must fail the test at the deadline, not hold it for ever.
            if let Err(error) = rustix::io::ioctl_fionbio(stdin, true) {
                panic!("cannot make the child's stdin non-blocking: {error}");
            }
        }
        let unread = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(|stderr| {
            let transcript = Arc::clone(&transcript);
            Reader::start("stderr", stderr.into(), move |bytes| stderr_bytes(&transcript, bytes))
        });
        let mut process = Self { child, stdin, transcript, unread, stdout: None, stderr, ended: None };
        if reads_stdout {
            process.read_stdout();
        }
        process
    }

    /// Its pid, which names it until [`Process::wait_exit`] has returned.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// Writes a frame and its newline to its stdin.
    ///
    /// # Panics
    /// As [`Process::send_bytes`].
    #[track_caller]
    pub fn send(&self, frame: &Value) {
        self.send_bytes(format!("{frame}\n").as_bytes());
    }

    /// Writes bytes to its stdin.
    ///
    /// # Panics
    /// If the pipe is closed, or stays full until the deadline.
    #[track_caller]
    pub fn send_bytes(&self, bytes: &[u8]) {
        if let Err(error) = self.try_send_bytes(bytes) {
            self.fail(&format!("cannot write to its stdin: {error}"));
        }
    }

    /// [`Process::send_bytes`] for a process that may be gone.
    ///
    /// # Errors
    /// `BrokenPipe` if nobody reads; `TimedOut` if the pipe stays full.
    pub fn try_send_bytes(&self, bytes: &[u8]) -> std::io::Result<()> {
        let stdin = self.stdin.as_ref().ok_or(std::io::ErrorKind::BrokenPipe)?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let shown = line.strip_suffix(b"\n").unwrap_or(line);
            self.transcript.change(|held| self.transcript.show(held, "in ", shown));
        }
        let end = Instant::now() + DEADLINE;
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(stdin, rest) {
                Ok(count) => rest = &rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))
                        .map_err(std::io::Error::other)?;
                    if poll(&mut [PollFd::new(stdin, PollFlags::OUT)], Some(&left))? == 0 {
                        return Err(std::io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Closes its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Begins to read its stdout, after [`crate::Launch::stdout_unread`].
    pub fn read_stdout(&mut self) {
        if let Some(fd) = self.unread.take() {
            let transcript = Arc::clone(&self.transcript);
            let mut cut = Vec::new();
            self.stdout =
                Some(Reader::start("stdout", fd, move |bytes| stdout_bytes(&transcript, &mut cut, bytes)));
        }
    }

    /// Closes the reading end of its stdout.
    pub fn close_stdout(&mut self) {
        self.unread = None;
        self.stdout = None;
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it has been waited for.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        assert!(self.ended.is_none(), "it has ended; its pid may name another process");
        if let Err(errno) = kill(Pid::from_raw(self.pid()), signal) {
            self.fail(&format!("cannot send {signal}: {errno}"));
        }
    }

    /// The first frame of its stdout, from the start of its life, that `wanted` picks; waits for it.
    ///
    /// # Panics
    /// With the transcript, if it does not come until the deadline or the end of stdout.
    #[track_caller]
    pub fn wait_for(&self, what: &str, wanted: impl FnMut(&Value) -> bool) -> Value {
        self.wait_for_after(0, what, wanted).1
    }

    /// [`Process::wait_for`] among the frames from the `start`th on; gives its index as well.
    ///
    /// # Panics
    /// As [`Process::wait_for`].
    #[track_caller]
    pub fn wait_for_after(
        &self,
        start: usize,
        what: &str,
        mut wanted: impl FnMut(&Value) -> bool,
    ) -> (usize, Value) {
        let mut looked_at = start;
        let found = self.transcript.wait(
            DEADLINE,
            |held| {
                let found = held.frames.iter().enumerate().skip(looked_at).find(|(_, frame)| wanted(frame));
                looked_at = held.frames.len().max(start);
                found.map(|(index, frame)| (index, frame.clone()))
            },
            |held| held.stdout_ended,
        );
        found.unwrap_or_else(|transcript| panic!("waited in vain for {what}\n{transcript}"))
    }

    /// Waits for the first frame of this type with this `request_id`.
    #[track_caller]
    pub fn answer(&self, request_id: &str, frame_type: &str) -> Value {
        self.wait_for(&format!("{frame_type} of request {request_id}"), |frame| {
            frame["request_id"] == request_id && frame["type"] == frame_type
        })
    }

    /// Waits for the first frame that ends this turn: `turn.end` or `turn.error`.
    #[track_caller]
    pub fn ending(&self, request_id: &str) -> Value {
        self.wait_for(&format!("the end of turn {request_id}"), |frame| {
            frame["request_id"] == request_id
                && (frame["type"] == "turn.end" || frame["type"] == "turn.error")
        })
    }

    /// Waits until its stdout ends.
    ///
    /// # Panics
    /// With the transcript, at the deadline.
    #[track_caller]
    pub fn wait_stdout_end(&self) {
        self.transcript
            .wait(DEADLINE, |held| held.stdout_ended.then_some(()), |_| false)
            .unwrap_or_else(|transcript| panic!("its stdout did not end\n{transcript}"));
    }

    /// Waits until its stderr holds `text`.
    ///
    /// # Panics
    /// With the transcript, if it does not come until the deadline or the end of stderr.
    #[track_caller]
    pub fn wait_stderr(&self, text: &str) {
        self.transcript
            .wait(
                DEADLINE,
                |held| String::from_utf8_lossy(&held.stderr).contains(text).then_some(()),
                |held| held.stderr_ended,
            )
            .unwrap_or_else(|transcript| panic!("`{text}` never came on stderr\n{transcript}"));
    }

    /// Every frame of its stdout so far.
    pub fn frames(&self) -> Vec<Value> {
        self.transcript.lock().frames.clone()
    }

    /// How many there are: where [`Process::wait_for_after`] should start to see only later ones.
    pub fn frame_count(&self) -> usize {
        self.transcript.lock().frames.len()
    }

    /// The frames so far with this `request_id`.
    pub fn frames_of(&self, request_id: &str) -> Vec<Value> {
        self.frames().into_iter().filter(|frame| frame["request_id"] == request_id).collect()
    }

    /// The types of the frames so far with this `request_id`, in order.
    pub fn types_of(&self, request_id: &str) -> Vec<String> {
        let text = |frame: &Value| frame["type"].as_str().unwrap_or_default().to_owned();
        self.frames_of(request_id).iter().map(text).collect()
    }

    /// Where the first frame of this type with this `request_id` stands among all frames so far.
    ///
    /// # Panics
    /// With the transcript, if there is none.
    #[track_caller]
    pub fn position(&self, request_id: &str, frame_type: &str) -> usize {
        let at = |frame: &Value| frame["request_id"] == request_id && frame["type"] == frame_type;
        match self.frames().iter().position(at) {
            Some(position) => position,
            None => self.fail(&format!("no {frame_type} of request {request_id}")),
        }
    }

    /// Lines of its stdout that are no JSON objects, so far.
    pub fn strays(&self) -> Vec<String> {
        let held = self.transcript.lock();
        held.strays.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }

    /// Bytes of its stdout so far, whole lines only.
    pub fn stdout_bytes(&self) -> u64 {
        self.transcript.lock().stdout_bytes
    }

    /// Its stderr so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.transcript.lock().stderr).into_owned()
    }

    /// Waits for its end, and for all that its stdout and stderr held if nobody else keeps them open.
    ///
    /// # Panics
    /// With the transcript, if it does not end until the deadline.
    #[track_caller]
    pub fn wait_exit(&mut self) -> Ended {
        if let Some(ended) = self.ended {
            return ended;
        }
        let end = Instant::now() + DEADLINE;
        let status = wait_until(DEADLINE + Duration::from_secs(5), "the end of a process", || {
            if Instant::now() > end {
                self.fail("it does not end");
            }
            self.child.try_wait().ok().flatten()
        });
        let ended = match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code(code),
            (None, signal) => Ended::Signal(signal.unwrap_or_default()),
        };
        self.ended = Some(ended);
        for reader in [self.stdout.as_mut(), self.stderr.as_mut()].into_iter().flatten() {
            reader.rest();
        }
        ended
    }

    /// Fails the test with the transcript.
    ///
    /// # Panics
    /// Always.
    #[track_caller]
    pub fn fail(&self, complaint: &str) -> ! {
        let text = Transcript::text(&self.transcript.lock());
        panic!("process {}: {complaint}\n{text}", self.pid());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Not waited for yet, so the pid is still its own.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let held = self.transcript.lock();
            // A process that said nothing since its hello explains nothing.
            let text = String::from_utf8_lossy(&held.stderr).into_owned();
            drop(held);
            if !text.is_empty() {
                complain(&format!("stderr of process {}:\n{text}", self.child.id()));
            }
        }
    }
}

#[expect(clippy::print_stderr, reason = "the report of a test that has failed")]
fn complain(text: &str) {
    eprintln!("{text}");
}

/// Sends a signal to a process that the test did not start itself, by its identity.
///
/// # Panics
/// If it is gone.
#[track_caller]
pub fn signal(pid: i32, signal: rustix::process::Signal) {
    let process = turnhost_os::ProcessIdentity::of(pid).map(|identity| identity.open());
    match process {
        Some(Ok(handle)) => {
            if let Err(error) = handle.signal(signal) {
                panic!("cannot send {signal:?} to process {pid}: {error}");
            }
        }
        Some(Err(error)) => panic!("cannot open process {pid}: {error}"),
        None => panic!("there is no process {pid}"),
    }
}
