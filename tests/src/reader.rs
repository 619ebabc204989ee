//! Reads the pipes of a process under test.

use crate::transcript::Transcript;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;

/// Takes bytes of stdout; none is its end. `cut` keeps the line that has begun.
pub(crate) fn stdout_bytes(transcript: &Transcript, cut: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        cut.extend_from_slice(piece);
        if cut.pop_if(|byte| *byte == b'\n').is_some() {
            transcript.stdout_line(cut);
            cut.clear();
        }
    }
    if bytes.is_empty() {
        if !cut.is_empty() {
            transcript.stdout_line(cut);
        }
        transcript.change(|held| held.stdout_ended = true);
    }
}

/// Takes bytes of stderr; none is its end.
pub(crate) fn stderr_bytes(transcript: &Transcript, bytes: &[u8]) {
    transcript.change(|held| {
        held.stderr.extend_from_slice(bytes);
        held.stderr_ended |= bytes.is_empty();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            transcript.show(held, "err", line);
        }
    });
}

/// A thread that reads a pipe until its end or until it is let go of.
pub(crate) struct Reader {
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub(crate) fn start(name: &str, fd: OwnedFd, mut take: impl FnMut(&[u8]) + Send + 'static) -> Self {
        let (woken, wake) = match rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) {
            Ok(pipe) => pipe,
            Err(error) => panic!("cannot make a pipe: {error}"),
        };
        let body = move || {
            let mut chunk = vec![0; 64 * 1024];
            let mut rest_only = false;
            loop {
                let count = if wait_readable(&fd, &woken, &mut rest_only) {
                    match rustix::io::read(&fd, &mut chunk) {
                        Err(rustix::io::Errno::INTR) => continue,
                        read => read.unwrap_or(0),
                    }
                } else {
                    0
                };
                take(&chunk[..count]);
                if count == 0 {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("harness-{name}")).spawn(body);
        match thread {
            Ok(thread) => Self { wake, thread: Some(thread) },
            Err(error) => panic!("cannot start a thread: {error}"),
        }
    }

    /// Reads what the pipe holds now, then lets go of it.
    pub(crate) fn rest(&mut self) {
        let _ = rustix::io::write(&self.wake, b"!");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.rest();
    }
}

/// True once there is something to read, or the end; false if the reader was told to go and the pipe is empty.
fn wait_readable(fd: &OwnedFd, woken: &OwnedFd, rest_only: &mut bool) -> bool {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN),
        ];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if *rest_only { Some(&none) } else { None };
        if poll(if *rest_only { &mut fds[..1] } else { &mut fds[..] }, timeout).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            return true;
        }
        if *rest_only {
            return false;
        }
        *rest_only = !fds[1].revents().is_empty();
    }
}
