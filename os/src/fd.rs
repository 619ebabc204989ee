//! Descriptors: what is waiting in a pipe, and keeping the protocol's stdout private.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes that a pipe or socket holds now (FIONREAD); 0 if the kernel does not say.
pub fn bytes_available(fd: impl AsFd) -> usize {
    rustix::io::ioctl_fionread(fd).ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

/// Moves the process's stdout to a private close-on-exec descriptor and points fd 1 at stderr, so that a stray print
/// of a library, an agent or a grandchild cannot get between frames. Call it once, before any thread starts.
///
/// # Errors
/// What `dup` says.
pub fn take_stdout() -> io::Result<OwnedFd> {
    let stdout = io::stdout();
    let private = rustix::io::fcntl_dupfd_cloexec(stdout.as_fd(), 3)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(private)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_in_a_pipe_is_counted_also_after_its_writer_has_gone() {
        let (read, write) = std::io::pipe().unwrap();
        assert_eq!(bytes_available(&read), 0);
        std::io::Write::write_all(&mut &write, b"last words").unwrap();
        assert_eq!(bytes_available(&read), 10);
        drop(write);
        assert_eq!(bytes_available(&read), 10);
    }

    #[test]
    fn what_cannot_say_has_nothing() {
        assert_eq!(bytes_available(std::fs::File::open("/").unwrap()), 0);
    }
}
