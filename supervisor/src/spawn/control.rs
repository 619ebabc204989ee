//! The supervisor's end of the control socket, on a reactor.

use crate::guard::protocol::{FromGuard, MAX_MESSAGE, ToGuard};
use crate::sys;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Messages to and from one guard. Dropping it tells the guard that the supervisor is gone.
#[derive(Debug)]
pub(super) struct Control {
    socket: AsyncFd<OwnedFd>,
    buffer: Vec<u8>,
}

/// What came.
#[derive(Debug)]
pub(super) struct Received {
    /// `None` if it is no message of this version.
    pub message: Option<FromGuard>,
    /// The descriptor that came with it.
    pub descriptor: Option<OwnedFd>,
}

impl Control {
    /// Both ends: ours, and the one that becomes descriptor 0 of the guard.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // Every call here says DONTWAIT; the guard's end shares no flags with ours.
        Ok((
            Self {
                socket: sys::watch(ours, Interest::READABLE | Interest::WRITABLE)?,
                buffer: vec![0; MAX_MESSAGE],
            },
            theirs,
        ))
    }

    /// Sends one message; waits while the socket is full.
    pub(super) async fn send(&self, message: &ToGuard, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = message.encode();
        loop {
            let mut ready = self.socket.writable().await?;
            if let Ok(sent) = ready.try_io(|socket| send_now(socket.get_ref(), &bytes, descriptors)) {
                return sent;
            }
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// `UnexpectedEof` once the guard is gone.
    pub(super) async fn receive(&mut self) -> io::Result<Received> {
        let Self { socket, buffer } = self;
        loop {
            let mut ready = socket.readable().await?;
            if let Ok(received) = ready.try_io(|socket| receive_now(socket.get_ref(), buffer)) {
                return received;
            }
        }
    }

    /// A message that has come already.
    pub(super) fn receive_now(&mut self) -> Option<Received> {
        receive_now(self.socket.get_ref(), &mut self.buffer).ok()
    }
}

fn send_now(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
    Ok(())
}

fn receive_now(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut receive = || recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags);
    let length = match receive() {
        // The guard left something of ours unread. The kernel says so once, ahead of what the guard had said before.
        Err(Errno::CONNRESET) => receive()?.bytes,
        received => received?.bytes,
    };
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(Received { message: buffer.get(..length).and_then(FromGuard::decode), descriptor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::protocol::Order;
    use crate::machine::Exit;
    use pretty_assertions::assert_eq;

    #[tokio::test]
    async fn the_last_words_of_a_guard_that_left_an_order_unread_are_heard() {
        let (mut control, guard) = Control::pair().unwrap();
        control.send(&ToGuard::Order { number: 1, order: Order::Term }, &[]).await.unwrap();
        let said = [FromGuard::Exit(Exit::Code(7)), FromGuard::Swept(vec![])];
        for message in &said {
            rustix::net::send(&guard, &message.encode(), SendFlags::NOSIGNAL).unwrap();
        }
        drop(guard);
        for message in said {
            assert_eq!(control.receive().await.unwrap().message, Some(message));
        }
        let end = control.receive().await.map(|received| received.message);
        assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
    }
}
