//! A connection to the server: its outstanding requests and their responses.
//!
//! Invariant: responses belong to requests in the order in which these were sent, and every byte of a body is compared.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use thiserror::Error;

use bigiron_sys::load::compare::same;
use bigiron_sys::load::now_ns;
use bigiron_tls::Encryption;

use crate::call::{Awaited, Said};
use crate::document::Documents;
use crate::encryption::Encryptor;
use crate::http::response::Head;
use crate::http::{Malformed, Piece, ResponseReader, response};
use crate::web99::request::{Dynamic, Page};

/// After how long without a sign of the server's machine a connection is lost, and the interval of probes.
const LOSS: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_secs(5);

/// Why the run cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The server is gone, refuses connections, or does not speak HTTP.
    #[error("{0}")]
    Server(String),
    /// A response differs from the document.
    #[error("{0}")]
    Wrong(String),
}

impl From<Malformed> for Fault {
    fn from(error: Malformed) -> Self {
        Self::Server(error.to_string())
    }
}

/// The body of a response.
#[derive(Clone, Debug)]
enum Expected {
    Document,
    Page(Box<Page>),
    /// Whatever begins with what was done.
    Call(Box<Awaited>),
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub struct Request {
    pub document: usize,
    expected: Expected,
    /// When it should have been sent, in nanoseconds of [`now_ns`].
    pub intended: u64,
    pub sent: u64,
    first_byte: Option<u64>,
    /// Bytes of the body that have been compared.
    compared: usize,
}

impl Request {
    pub fn new(document: usize, intended: u64) -> Self {
        Self { document, expected: Expected::Document, intended, sent: intended, first_byte: None, compared: 0 }
    }

    /// One that is answered with this page of the document.
    #[must_use]
    pub fn with(self, page: Page) -> Self {
        Self { expected: Expected::Page(Box::new(page)), ..self }
    }

    /// One for an operation of this kind and name.
    pub fn call(kind: usize, name: &'static str, intended: u64) -> Self {
        Self { expected: Expected::Call(Box::new(Awaited::new(kind, name))), ..Self::new(0, intended) }
    }
}

/// The socket as a session sees it: its input has been read already.
struct Wire<'a, 'b> {
    socket: &'a OwnedFd,
    input: &'a mut &'b [u8],
}

impl Read for Wire<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { self.input.read(bytes) }
    }
}

impl Write for Wire<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.socket, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A request that was answered with the right bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub bytes: usize,
    pub intended: u64,
    pub sent: u64,
    pub first_byte: u64,
    pub ended: u64,
    /// `None`: it is the document as it is.
    pub dynamic: Option<Dynamic>,
    /// What the page of a call says.
    pub said: Option<Said>,
}

/// What a connection waits for after it was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    Input,
    /// The socket takes no more output.
    Output,
}

/// An open connection.
pub struct Connection {
    socket: OwnedFd,
    session: Option<Box<dyn Encryption>>,
    /// Whether the session holds encrypted bytes that the socket has not taken.
    is_behind: bool,
    /// When it was begun, until its first request is accepted.
    began: Option<u64>,
    outstanding: VecDeque<Request>,
    /// Bytes of requests that the socket has not taken.
    unsent: Vec<u8>,
    reader: ResponseReader,
    /// Requests so far.
    pub asked: u32,
    /// Whether the server ends the connection after the present response.
    pub ends: bool,
}

impl Connection {
    /// Begins a connection; it need not be established when this returns.
    ///
    /// # Errors
    /// It is refused, or the machine has no socket or port left.
    pub fn begin(address: SocketAddrV4, encryptor: Option<&dyn Encryptor>) -> Result<Self, Fault> {
        let began = now_ns();
        let cannot = |e: Errno| match e {
            Errno::ADDRNOTAVAIL => Fault::Server(format!(
                "Cannot connect to {address}: all ports of this machine are in use; keep connections (`web.keep-alive`), or widen `net.ipv4.ip_local_port_range`"
            )),
            e => Fault::Server(format!("Cannot connect to {address}: {}", io::Error::from(e))),
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).map_err(cannot)?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(cannot)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(e) => return Err(cannot(e)),
        }
        let session = encryptor.map(Encryptor::begin).transpose().map_err(Fault::Server)?;
        Ok(Self {
            socket,
            // Its greeting is due as soon as the connection is there.
            is_behind: session.is_some(),
            session,
            began: Some(began),
            outstanding: VecDeque::new(),
            unsent: Vec::new(),
            reader: ResponseReader::default(),
            asked: 0,
            ends: false,
        })
    }

    /// Makes the connection fail when the server's machine has not answered for half a minute.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn expect_loss(&self) -> Result<(), Fault> {
        let socket = &self.socket;
        let set = || {
            sockopt::set_tcp_user_timeout(socket, LOSS.as_millis() as u32)?;
            sockopt::set_tcp_keepidle(socket, PROBE)?;
            sockopt::set_tcp_keepintvl(socket, PROBE)?;
            sockopt::set_tcp_keepcnt(socket, (LOSS.as_secs() / PROBE.as_secs()) as u32 - 1)?;
            sockopt::set_socket_keepalive(socket, true)
        };
        set().map_err(|e| Fault::Server(format!("Cannot set up a connection: {}", io::Error::from(e))))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Requests without their response.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Sends `bytes`, which are `request`.
    ///
    /// # Errors
    /// The server is gone, or refuses the connection.
    pub fn send(&mut self, mut request: Request, bytes: &[u8]) -> Result<Wants, Fault> {
        request.sent = now_ns();
        self.outstanding.push_back(request);
        self.asked += 1;
        let taken = if self.unsent.is_empty() { self.write(bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[taken..]);
        Ok(self.wants())
    }

    /// What it waits for.
    pub fn wants(&self) -> Wants {
        if self.unsent.is_empty() && !self.is_behind { Wants::Input } else { Wants::Output }
    }

    /// Sends what is left when the socket takes output again.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_rest(&mut self) -> Result<Wants, Fault> {
        let unsent = std::mem::take(&mut self.unsent);
        let taken = self.write(&unsent)?;
        self.unsent = unsent[taken..].to_vec();
        Ok(self.wants())
    }

    /// Bytes that the socket, or the session on it, has taken.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut wire = Wire { socket: &self.socket, input: &mut &[][..] };
        let taken = match &mut self.session {
            None => wire.write(bytes),
            Some(session) => {
                let taken = if bytes.is_empty() { Ok(0) } else { session.send(&mut wire, bytes) };
                taken.and_then(|taken| {
                    self.is_behind = !session.flush(&mut wire)?;
                    Ok(taken)
                })
            }
        };
        match taken {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            Err(e) if self.began.is_some() => Err(Fault::Server(format!("Cannot connect: {e}"))),
            taken => taken.map_err(|e| Fault::Server(format!("Cannot send a request: {e}"))),
        }
    }

    /// The time that the connection took to be established, once, when its first request was accepted by the socket, or by a session that both ends
    /// have agreed on.
    pub fn established(&mut self, now: u64) -> Option<u64> {
        if !self.unsent.is_empty() || self.session.as_ref().is_some_and(|session| session.is_handshaking()) {
            return None;
        }
        self.began.take().map(|began| now.saturating_sub(began))
    }

    /// Reads once, and passes on each request that was answered.
    ///
    /// # Errors
    /// The server is gone; its response is not HTTP, has another status than 200, or differs from the document.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        documents: &Documents,
        answered: &mut dyn FnMut(Answer),
    ) -> Result<(), Fault> {
        // The second half of the buffer is for what a session decrypts.
        let half = if self.session.is_some() { buffer.len() / 2 } else { buffer.len() };
        let (input, plain) = buffer.split_at_mut(half);
        let length = match rustix::net::recv(&self.socket, &mut *input, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(Fault::Server(self.closed("The server closed a connection"))),
            Ok((length, _)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(e) => {
                return Err(Fault::Server(self.closed(&format!("A connection broke: {}", io::Error::from(e)))));
            }
        };
        let now = now_ns();
        let Some(mut session) = self.session.take() else {
            return self.read(&input[..length], now, documents, answered);
        };
        let result = self.decrypt(&mut *session, (&input[..length], plain), now, documents, answered);
        self.session = Some(session);
        result
    }

    /// Decrypts what has arrived, and sends what the session has to say.
    fn decrypt(
        &mut self,
        session: &mut dyn Encryption,
        (mut input, plain): (&[u8], &mut [u8]),
        now: u64,
        documents: &Documents,
        answered: &mut dyn FnMut(Answer),
    ) -> Result<(), Fault> {
        loop {
            match session.receive(&mut Wire { socket: &self.socket, input: &mut input }, plain) {
                Ok(0) if self.ends && self.outstanding.is_empty() => return Ok(()),
                Ok(0) => return Err(Fault::Server(self.closed("The server closed a connection"))),
                Ok(length) => self.read(&plain[..length], now, documents, answered)?,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if self.began.is_some() => return Err(Fault::Server(format!("Cannot connect: {e}"))),
                Err(e) => return Err(Fault::Server(self.closed(&format!("A connection broke: {e}")))),
            }
        }
        let flushed = session.flush(&mut Wire { socket: &self.socket, input: &mut input });
        self.is_behind = !flushed.map_err(|e| Fault::Server(format!("Cannot send a request: {e}")))?;
        Ok(())
    }

    /// Reads decrypted bytes, or all that have arrived.
    fn read(
        &mut self,
        mut input: &[u8],
        now: u64,
        documents: &Documents,
        answered: &mut dyn FnMut(Answer),
    ) -> Result<(), Fault> {
        if let Some(first) = self.outstanding.front_mut() {
            first.first_byte.get_or_insert(now);
        }
        loop {
            let piece = self.reader.next(&mut input)?;
            if piece == Piece::More {
                return Ok(());
            }
            let Some(request) = self.outstanding.front_mut() else {
                return Err(Fault::Server("The server sent a response without a request".to_owned()));
            };
            let Request { document, expected, first_byte, compared, .. } = request;
            let (body, path, page) = match expected {
                Expected::Call(call) => {
                    match piece {
                        Piece::Head(head) => {
                            first_byte.get_or_insert(now);
                            check_status(head, call.name)?;
                            self.ends |= head.close;
                        }
                        Piece::Body(part) => {
                            *compared += part.len();
                            call.take(part);
                        }
                        Piece::End => {
                            let said = call.said().ok_or_else(|| says_nothing(call))?;
                            let (bytes, first_byte) = (*compared, first_byte.unwrap_or(now));
                            let (intended, sent) = (request.intended, request.sent);
                            self.outstanding.pop_front();
                            let said = Some(said);
                            answered(Answer { bytes, intended, sent, first_byte, ended: now, dynamic: None, said });
                        }
                        Piece::More => {}
                    }
                    continue;
                }
                Expected::Page(page) => (&page.body[..], page.target.as_str(), Some(&**page)),
                Expected::Document => (documents.body(*document), documents.path(*document), None),
            };
            match piece {
                Piece::Head(head) => {
                    first_byte.get_or_insert(now);
                    check_head(head, body.len(), path)?;
                    if let Some(right) = page.and_then(|page| page.cookie.as_deref())
                        && head.cookie != Some(response::digest(right))
                    {
                        return Err(Fault::Wrong(format!("The server was to set the cookie `{right}` for `{path}`")));
                    }
                    self.ends |= head.close;
                }
                Piece::Body(part) => compare(body, compared, part, path)?,
                Piece::End => {
                    let bytes = *compared;
                    if bytes != body.len() {
                        return Err(wrong_length(path, bytes as u64, body.len()));
                    }
                    let dynamic = page.map(|page| page.dynamic);
                    let (intended, sent, first_byte) = (request.intended, request.sent, first_byte.unwrap_or(now));
                    self.outstanding.pop_front();
                    answered(Answer { bytes, intended, sent, first_byte, ended: now, dynamic, said: None });
                }
                Piece::More => {}
            }
        }
    }

    fn closed(&self, what: &str) -> String {
        match self.outstanding.front() {
            Some(request) if request.first_byte.is_some() => format!("{what} in the middle of a response"),
            Some(_) => format!("{what} without answering a request"),
            None => format!("{what} that was idle"),
        }
    }
}

fn check_status(head: Head, path: &str) -> Result<(), Fault> {
    if head.status == 200 {
        return Ok(());
    }
    Err(Fault::Server(format!("The server answered a request for `{path}` with status {}", head.status)))
}

fn says_nothing(call: &Awaited) -> Fault {
    let (name, text) = (call.name, call.beginning());
    Fault::Server(format!("The server's page for `{name}` does not begin with what was done: `{text}`"))
}

fn check_head(head: Head, length: usize, path: &str) -> Result<(), Fault> {
    check_status(head, path)?;
    match head.length {
        Some(announced) if announced != length as u64 => Err(wrong_length(path, announced, length)),
        _ => Ok(()),
    }
}

fn wrong_length(path: &str, found: u64, right: usize) -> Fault {
    Fault::Wrong(format!("`{path}` has {right} bytes, but the server sent {found}"))
}

/// Compares the next part of a body.
#[inline]
fn compare(body: &[u8], compared: &mut usize, part: &[u8], path: &str) -> Result<(), Fault> {
    let (begin, end) = (*compared, *compared + part.len());
    let Some(right) = body.get(begin..end) else { return Err(wrong_length(path, end as u64, body.len())) };
    if !same(right, part) {
        let at = right.iter().zip(part).position(|(right, found)| right != found).unwrap_or(0);
        return Err(Fault::Wrong(format!(
            "Byte {} of `{path}` is {:#04x}, but the server sent {:#04x}",
            begin + at,
            right[at],
            part[at]
        )));
    }
    *compared = end;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    /// What a driver says of a page that is `hello` and sets the cookie `a=1`, if the server sends this.
    fn said_of(answer: &'static str) -> Result<usize, Fault> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        let mut connection = Connection::begin(address, None).unwrap();
        let (body, cookie) = (b"hello".to_vec(), Some("a=1".to_owned()));
        let page = Page { body, cookie, target: "/ads?/x".to_owned(), dynamic: Dynamic::Ad };
        let server = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            stream
        });
        connection.send(Request::new(0, now_ns()).with(page), b"?").unwrap();
        let _open = server.join().unwrap();
        let (mut buffer, mut bytes) = (vec![0; 4096], 0);
        let documents = Documents::single("/x", b"other".to_vec());
        while bytes == 0 {
            connection.receive(&mut buffer, &documents, &mut |answer| {
                assert_eq!(answer.dynamic, Some(Dynamic::Ad));
                bytes = answer.bytes;
            })?;
        }
        Ok(bytes)
    }

    #[test]
    fn a_page_is_compared_with_what_was_asked_for_and_its_cookie_too() {
        let cookie = || Err(Fault::Wrong("The server was to set the cookie `a=1` for `/ads?/x`".to_owned()));
        for (answer, right) in [
            ("HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nContent-Length: 5\r\n\r\nhello", Ok(5)),
            ("HTTP/1.1 200 OK\r\nset-cookie:a=1\r\nContent-Length: 5\r\n\r\nhello", Ok(5)),
            ("HTTP/1.1 200 OK\r\nSet-Cookie: a=2\r\nContent-Length: 5\r\n\r\nhello", cookie()),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", cookie()),
            (
                "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nContent-Length: 5\r\n\r\nother",
                Err(Fault::Wrong("Byte 0 of `/ads?/x` is 0x68, but the server sent 0x6f".to_owned())),
            ),
        ] {
            assert_eq!(said_of(answer), right, "{answer}");
        }
    }

    #[test]
    fn a_wrong_byte_is_named() {
        let right: Vec<u8> = (0..300).map(|n| n as u8).collect();
        let mut part = right[100..200].to_vec();
        part[50] = 0;
        let mut compared = 100;
        let said = compare(&right, &mut compared, &part, "/a").unwrap_err();
        assert_eq!(said, Fault::Wrong("Byte 150 of `/a` is 0x96, but the server sent 0x00".to_owned()));
        assert!(matches!(compare(&right, &mut 250, &part, "/a"), Err(Fault::Wrong(_))), "too long");
    }
}
