//! The idle connections of `c10k`. Each has sent one request before the window, and sends another one after it.
//!
//! Invariant: a connection that was lost in between is a fault, never a smaller number of connections.

use std::net::SocketAddrV4;

use bigiron_sys::load::now_ns;
use bigiron_sys::load::poll::{Poll, Stop};

use super::connection::{Connection, Fault, Request, Wants};
use crate::document::Documents;

/// Connections that wait for a response at the same time: fewer than fit into the server's queue of new ones, and than Apache has threads.
const BATCH: usize = 16;
const BUFFER: usize = 64 << 10;

pub(super) struct Idle<'a> {
    connections: Vec<Connection>,
    poll: Poll,
    documents: &'a Documents,
    /// The request that each sends.
    text: &'a [u8],
    buffer: Vec<u8>,
}

impl<'a> Idle<'a> {
    /// Opens `count` connections and sends one request on each.
    ///
    /// # Errors
    /// The server refuses or loses one, or answers wrongly.
    pub(super) fn connect(
        count: usize,
        address: SocketAddrV4,
        documents: &'a Documents,
        text: &'a [u8],
        stop: &Stop,
    ) -> Result<Self, Fault> {
        let poll = Poll::new(stop).map_err(|e| Fault::Server(format!("Cannot wait for connections: {e}")))?;
        let mut all = Self { connections: Vec::with_capacity(count), poll, documents, text, buffer: vec![0; BUFFER] };
        all.ask(count, Some(address)).map_err(lost)?;
        Ok(all)
    }

    /// Has each answered once more.
    ///
    /// # Errors
    /// The server has closed one, or answers wrongly.
    pub(super) fn prove(mut self) -> Result<(), Fault> {
        // Nothing has arrived on them but, perhaps, their end.
        let ready = self.wait(Some(now_ns()))?;
        ready.into_iter().try_for_each(|n| self.receive(n).map(drop)).map_err(lost)?;
        self.ask(self.connections.len(), None).map_err(lost)
    }

    fn ask(&mut self, count: usize, address: Option<SocketAddrV4>) -> Result<(), Fault> {
        let (mut next, mut outstanding) = (0, 0);
        while next < count || outstanding > 0 {
            while next < count && outstanding < BATCH {
                if let Some(address) = address {
                    let connection = Connection::begin(address, None)?;
                    self.poll.add(connection.fd(), next).map_err(cannot_wait)?;
                    self.connections.push(connection);
                }
                let wants = self.connections[next].send(Request::new(0, now_ns()), self.text)?;
                if wants == Wants::Output {
                    self.poll.output(self.connections[next].fd(), next, true).map_err(cannot_wait)?;
                }
                next += 1;
                outstanding += 1;
            }
            for n in self.wait(None)? {
                outstanding -= self.receive(n)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, deadline: Option<u64>) -> Result<Vec<usize>, Fault> {
        let mut ready = Vec::new();
        self.poll.wait(deadline, &mut ready).map_err(cannot_wait)?;
        Ok(ready)
    }

    /// Sends and reads what is possible; returns the number of responses.
    fn receive(&mut self, number: usize) -> Result<usize, Fault> {
        let connection = &mut self.connections[number];
        if connection.wants() == Wants::Output && connection.send_rest()? == Wants::Input {
            self.poll.output(connection.fd(), number, false).map_err(cannot_wait)?;
        }
        let mut answers = 0;
        connection.receive(&mut self.buffer, self.documents, &mut |_| answers += 1)?;
        Ok(answers)
    }
}

fn lost(fault: Fault) -> Fault {
    match fault {
        Fault::Server(what) => Fault::Server(format!("An idle connection was lost: {what}")),
        wrong => wrong,
    }
}

fn cannot_wait(error: std::io::Error) -> Fault {
    Fault::Server(format!("Cannot wait for a connection: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use rustix::event::{PollFd, PollFlags};

    use super::*;
    use crate::http;

    #[test]
    fn every_connection_is_answered_twice_and_a_lost_one_is_named() {
        for (loses, end) in [(false, None), (true, Some("An idle connection was lost: The server closed a connection"))]
        {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let (close, closes) = std::sync::mpsc::channel();
            let closes = std::sync::Arc::new(std::sync::Mutex::new(closes));
            thread::spawn(move || {
                for (number, stream) in listener.incoming().flatten().enumerate() {
                    let closes = std::sync::Arc::clone(&closes);
                    thread::spawn(move || {
                        let mut stream = stream;
                        let mut request = [0; 256];
                        while stream.read(&mut request).is_ok_and(|n| n > 0) {
                            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                            if stream.write_all(answer).is_err() {
                                return;
                            }
                            if loses && number == 150 {
                                return closes.lock().unwrap().recv().unwrap();
                            }
                        }
                    });
                }
            });
            let (documents, text) = (Documents::single("/x", b"hello".to_vec()), http::request("x", "/x", false));
            let stop = Stop::new().unwrap();
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            let idle = Idle::connect(300, address, &documents, &text, &stop).unwrap();
            assert_eq!(idle.connections.len(), 300);
            let _ = close.send(());
            if loses {
                // Otherwise it may still be open when it is asked again, and then it breaks with the request unread.
                let watched = idle.connections.iter().map(|c| PollFd::from_borrowed_fd(c.fd(), PollFlags::IN));
                let ended = rustix::event::poll(&mut watched.collect::<Vec<_>>(), None).unwrap();
                assert_eq!(ended, 1);
            }
            let said = idle.prove().err().map(|fault| fault.to_string());
            match end {
                None => assert_eq!(said, None),
                Some(end) => assert!(said.as_ref().is_some_and(|said| said.starts_with(end)), "{said:?}"),
            }
        }
    }
}
