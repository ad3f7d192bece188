//! The connection between a client and its server: whole messages back and forth, one at a time, over the chosen transport.
//!
//! Invariant: a message arrives whole or not at all, and receiving sleeps in the kernel until it does.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use bigiron_sys::latch::EventCount;
use bigiron_sys::network;
use bigiron_sys::network::VethPair;
use bigiron_sys::segment::{LatchedBytes, PAGE, Segment, shared_struct};

use super::job::Transport;

shared_struct! {
    struct Flag {
        /// 1 while a message is waiting to be taken.
        full: AtomicU32,
        unused: AtomicU32,
        changed: EventCount,
    }
}

/// One direction of a connection in shared memory.
pub struct Mailbox<'s> {
    flag: &'s Flag,
    bytes: LatchedBytes<'s>,
}

impl<'s> Mailbox<'s> {
    /// Bytes of segment for a mailbox for messages of `len` bytes.
    pub fn segment_bytes(len: usize) -> usize {
        len + PAGE + 4 * 64
    }

    /// An empty mailbox for messages of up to `len` bytes in a new part of `segment`.
    pub fn new(segment: &'s Segment, len: usize) -> Self {
        Self { flag: segment.one(), bytes: segment.latched(len) }
    }

    fn put(&self, message: &[u8]) {
        self.flag.changed.wait_until(|| self.flag.full.load(SeqCst) == 0);
        self.bytes.lock()[..message.len()].copy_from_slice(message);
        self.flag.full.store(1, SeqCst);
        self.flag.changed.signal();
    }

    fn take(&self, message: &mut [u8]) {
        self.flag.changed.wait_until(|| self.flag.full.load(SeqCst) == 1);
        message.copy_from_slice(&self.bytes.lock()[..message.len()]);
        self.flag.full.store(0, SeqCst);
        self.flag.changed.signal();
    }
}

/// A connection's mailboxes: from the client to the server, and back.
pub struct Mailboxes<'s> {
    pub request: Mailbox<'s>,
    pub reply: Mailbox<'s>,
}

/// One end of a connection.
pub enum Link<'s> {
    Socket(UnixStream),
    Pipe { from: PipeReader, to: PipeWriter },
    Memory { from: &'s Mailbox<'s>, to: &'s Mailbox<'s> },
    Tcp(TcpStream),
}

/// The two ends of a connection.
pub struct Ends<'s> {
    client: Link<'s>,
    server: Link<'s>,
}

impl<'s> Ends<'s> {
    /// Creates a connection. `mailboxes` are its parts in shared memory; other transports have none. `pair` carries TCP, if not
    /// the loopback; the calling thread then lives among the servers.
    pub fn connect(
        transport: Transport,
        mailboxes: Option<&'s Mailboxes<'s>>,
        pair: Option<&VethPair>,
    ) -> io::Result<Self> {
        Ok(match transport {
            Transport::Socket => {
                let (client, server) = UnixStream::pair()?;
                Self { client: Link::Socket(client), server: Link::Socket(server) }
            }
            Transport::Pipe => {
                let (requests, request) = io::pipe()?;
                let (replies, reply) = io::pipe()?;
                Self {
                    client: Link::Pipe { from: replies, to: request },
                    server: Link::Pipe { from: requests, to: reply },
                }
            }
            Transport::Memory => {
                let m = mailboxes.ok_or(io::ErrorKind::InvalidInput)?;
                Self {
                    client: Link::Memory { from: &m.reply, to: &m.request },
                    server: Link::Memory { from: &m.request, to: &m.reply },
                }
            }
            Transport::Tcp => {
                let (client, server) = network::connect(pair)?;
                Self { client: Link::Tcp(client), server: Link::Tcp(server) }
            }
        })
    }
}

impl<'s> Ends<'s> {
    /// The client's end. The server's end is closed in this process, so that its loss can be detected.
    pub fn into_client(self) -> Link<'s> {
        self.client
    }

    /// The server's end, with the client's closed.
    pub fn into_server(self) -> Link<'s> {
        self.server
    }
}

impl Link<'_> {
    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Link::Socket(s) => s.write_all(message),
            Link::Pipe { to, .. } => to.write_all(message),
            Link::Tcp(s) => s.write_all(message),
            Link::Memory { to, .. } => {
                to.put(message);
                Ok(())
            }
        }
    }

    /// Receives a message of exactly the length of `message`. Fails with `UnexpectedEof` if the other end was closed (which
    /// cannot be detected in shared memory).
    pub fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        match self {
            Link::Socket(s) => s.read_exact(message),
            Link::Pipe { from, .. } => from.read_exact(message),
            Link::Tcp(s) => s.read_exact(message),
            Link::Memory { from, .. } => {
                from.take(message);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_sys::process::{Exit, fork_child};

    #[test]
    fn messages_of_any_size_arrive_whole_over_every_transport() {
        for transport in [Transport::Socket, Transport::Pipe, Transport::Memory, Transport::Tcp] {
            for (request, reply) in [(16, 16), (100, 70_000), (300_000, 1)] {
                let segment =
                    Segment::new(Mailbox::segment_bytes(request) + Mailbox::segment_bytes(reply) + PAGE).unwrap();
                let boxes =
                    Mailboxes { request: Mailbox::new(&segment, request), reply: Mailbox::new(&segment, reply) };
                let mut ends = Some(Ends::connect(transport, Some(&boxes), None).unwrap());
                let server = fork_child(|| {
                    let mut server = ends.take().unwrap().into_server();
                    let (mut asked, mut answer) = (vec![0; request], vec![0; reply]);
                    for i in 0..50u8 {
                        if server.receive(&mut asked).is_err() || asked.iter().any(|b| *b != i) {
                            return 1;
                        }
                        answer.fill(i + 100);
                        if server.send(&answer).is_err() {
                            return 2;
                        }
                    }
                    0
                })
                .unwrap();
                let mut client = ends.take().unwrap().into_client();
                let mut answer = vec![0; reply];
                for i in 0..50 {
                    client.send(&vec![i; request]).unwrap();
                    client.receive(&mut answer).unwrap();
                    assert!(answer.iter().all(|b| *b == i + 100), "{transport:?}");
                }
                assert_eq!(server.wait().unwrap(), Exit::Status(0), "{transport:?}");
            }
        }
    }

    #[test]
    fn an_end_that_has_gone_is_noticed() {
        for transport in [Transport::Socket, Transport::Pipe, Transport::Tcp] {
            let Ends { mut client, server } = Ends::connect(transport, None, None).unwrap();
            drop(server);
            let error = client.receive(&mut [0; 16]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{transport:?}");
        }
    }
}
