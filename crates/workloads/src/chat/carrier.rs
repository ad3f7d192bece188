//! The connections that carry messages: pairs of sockets, pipes, TCP connections over the loopback.
//!
//! Invariant: a send returns when the kernel has taken the whole message, a receive when a whole message has arrived; both sleep
//! in the kernel until then.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The kinds of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// AF_UNIX streams.
    Socketpair,
    Pipe,
    /// Over the loopback, without Nagle's delay.
    Tcp,
}

/// One end of a bidirectional connection.
pub struct ConnectionEnd {
    from: OwnedFd,
    /// The write end of a pipe; a socket has only one descriptor.
    to: Option<OwnedFd>,
}

impl ConnectionEnd {
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    pub fn writer(&self) -> BorrowedFd<'_> {
        self.to.as_ref().unwrap_or(&self.from).as_fd()
    }
}

impl Carrier {
    pub const WORDS: [(&'static str, Carrier); 3] =
        [("socketpair", Carrier::Socketpair), ("pipe", Carrier::Pipe), ("tcp", Carrier::Tcp)];

    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, c)| *c == self).map_or("", |(word, _)| word)
    }

    /// Whether a message may be torn apart when several writers use one connection: TCP lets another writer in while one waits
    /// for room.
    pub fn tears(self) -> bool {
        self == Carrier::Tcp
    }

    /// A unidirectional connection: its read end and its write end.
    ///
    /// # Errors
    /// If no descriptor, memory or port is left.
    pub fn one_way(self) -> io::Result<(OwnedFd, OwnedFd)> {
        match self {
            Carrier::Pipe => Ok(pipe_with(PipeFlags::CLOEXEC)?),
            Carrier::Socketpair => UnixStream::pair().map(|(a, b)| (a.into(), b.into())),
            Carrier::Tcp => tcp().map(|(a, b)| (a.into(), b.into())),
        }
    }

    /// A bidirectional connection: its two ends.
    ///
    /// # Errors
    /// As [`Carrier::one_way`].
    pub fn both_ways(self) -> io::Result<(ConnectionEnd, ConnectionEnd)> {
        if self == Carrier::Pipe {
            let (here, there_to) = pipe_with(PipeFlags::CLOEXEC)?;
            let (there, here_to) = pipe_with(PipeFlags::CLOEXEC)?;
            return Ok((
                ConnectionEnd { from: here, to: Some(here_to) },
                ConnectionEnd { from: there, to: Some(there_to) },
            ));
        }
        let (a, b) = self.one_way()?;
        Ok((ConnectionEnd { from: a, to: None }, ConnectionEnd { from: b, to: None }))
    }

    /// Number of descriptors of a bidirectional connection.
    pub fn descriptors(self) -> u64 {
        if self == Carrier::Pipe { 4 } else { 2 }
    }
}

/// Two connected TCP sockets. The kernel completes the connection before anybody accepts it, so one process can do both.
fn tcp() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, _) = listener.accept()?;
    for socket in [&ours, &theirs] {
        socket.set_nodelay(true)?;
    }
    Ok((ours, theirs))
}

/// Sends a whole message.
#[inline]
pub fn send(fd: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < message.len() {
        match rustix::io::write(fd, &message[done..]) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Receives a whole message.
///
/// # Errors
/// `UnexpectedEof` if the other end was closed.
#[inline]
pub fn receive(fd: BorrowedFd<'_>, message: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < message.len() {
        match rustix::io::read(fd, &mut message[done..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_carrier_carries_both_ways() {
        for (word, carrier) in Carrier::WORDS {
            let (reader, writer) = carrier.one_way().unwrap();
            send(writer.as_fd(), b"hello").unwrap();
            let mut heard = [0; 5];
            receive(reader.as_fd(), &mut heard).unwrap();
            assert_eq!((&heard, carrier.word()), (b"hello", word));
            drop(writer);
            assert_eq!(receive(reader.as_fd(), &mut heard).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);

            let (a, b) = carrier.both_ways().unwrap();
            for (from, to) in [(&a, &b), (&b, &a)] {
                send(from.writer(), b"there").unwrap();
                receive(to.reader(), &mut heard).unwrap();
                assert_eq!(&heard, b"there");
            }
        }
    }
}
