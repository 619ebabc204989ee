//! Stdin for a reactor. Never `tokio::io::stdin`: its read runs on a thread and cannot be cancelled, so a host could
//! not end while its parent keeps the pipe open.

use rustix::fs::{FileType, OFlags, fstat, open as open_path};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use tokio::io::AsyncRead;
use tokio::net::unix::pipe;

/// What a descriptor is, as far as a reactor cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A pipe or fifo.
    Pipe,
    /// A socket, which some parents give instead of pipes.
    Socket,
    /// A file, a terminal, a device.
    Other,
}

/// Asks the kernel.
pub(super) fn kind(fd: impl AsFd) -> io::Result<Kind> {
    Ok(match FileType::from_raw_mode(fstat(fd)?.st_mode) {
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Socket,
        FileType::RegularFile
        | FileType::Directory
        | FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Kind::Other,
    })
}

/// The same pipe under a file description of our own: the one that was given is shared with whoever gave it, and our
/// O_NONBLOCK would surprise them. Where /proc is missing the given one has to do.
pub(super) fn reopen(pipe: OwnedFd, for_writing: bool) -> OwnedFd {
    let way = if for_writing { OFlags::WRONLY } else { OFlags::RDONLY };
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let own = open_path(&path, way | OFlags::NONBLOCK | OFlags::CLOEXEC, rustix::fs::Mode::empty());
    own.unwrap_or(pipe)
}

/// Stdin for the loop's reactor: a pipe or socket as it is; a file or a terminal behind a pipe that a thread fills.
/// That thread ends with the process.
///
/// # Errors
/// What the kernel or the reactor says. Call it inside the loop's runtime.
pub(crate) fn open() -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    match kind(&stdin)? {
        Kind::Pipe => Ok(Box::new(pipe::Receiver::from_owned_fd(reopen(stdin, false))?)),
        Kind::Socket => {
            let socket = std::os::unix::net::UnixStream::from(stdin);
            socket.set_nonblocking(true)?;
            Ok(Box::new(tokio::net::UnixStream::from_std(socket)?))
        }
        Kind::Other => {
            let (from, mut to) = io::pipe()?;
            let mut file = std::fs::File::from(stdin);
            std::thread::Builder::new().name("host-stdin".to_owned()).spawn(move || {
                if let Err(error) = io::copy(&mut file, &mut to) {
                    tracing::debug!(%error, "stdin ended");
                }
            })?;
            Ok(Box::new(pipe::Receiver::from_owned_fd(from.into())?))
        }
    }
}
