//! The socket under a connection: TCP, encrypted or not, or Unix.
//!
//! Invariant: a send never raises SIGPIPE, and neither direction allocates on an unencrypted socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::url::{Host, Url};
use bigiron_tls::Encryption;

pub(super) struct Socket {
    socket: OwnedFd,
    tls: Option<Box<dyn Encryption>>,
}

/// The socket as TLS sees it.
struct Raw<'s>(&'s OwnedFd);

impl From<OwnedFd> for Socket {
    fn from(socket: OwnedFd) -> Socket {
        Socket { socket, tls: None }
    }
}

/// When to give up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    pub(super) fn after(limit: Option<Duration>) -> Deadline {
        Deadline(limit.map(|l| Instant::now() + l))
    }

    /// The time left; `Ok(None)` without a limit.
    pub(super) fn left(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        let left = end.saturating_duration_since(Instant::now());
        // A time limit of zero would mean none.
        if left < Duration::from_millis(1) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Socket {
    /// # Errors
    /// Those of resolving the name and of `connect`; with several addresses that of the last.
    pub(super) fn connect(url: &Url, deadline: Deadline) -> io::Result<Socket> {
        let socket = match &url.host {
            Host::Tcp(host) => tcp(host, url.port, deadline)?,
            Host::Unix(folder) => unix(&folder.join(format!(".s.PGSQL.{}", url.port)), deadline)?,
        };
        Ok(Socket::from(socket))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.socket, on)?)
    }

    /// How long a blocking send or receive waits before it fails with `WouldBlock`.
    pub(super) fn set_time_limit(&self, limit: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.socket, Timeout::Recv, limit)?;
        sockopt::set_socket_timeout(&self.socket, Timeout::Send, limit)?;
        Ok(())
    }

    /// Encrypts from here on.
    ///
    /// # Errors
    /// Those of the socket, `TimedOut`, and `InvalidData` if the server's identity cannot be verified.
    pub(super) fn encrypt(&mut self, mut tls: Box<dyn Encryption>, deadline: Deadline) -> io::Result<()> {
        let late =
            |e: io::Error| if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e };
        loop {
            self.set_time_limit(deadline.left()?)?;
            if !tls.flush(&mut Raw(&self.socket))? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !tls.is_handshaking() {
                self.tls = Some(tls);
                return Ok(());
            }
            tls.pull(&mut Raw(&self.socket)).map_err(late)?;
        }
    }

    /// Whether what is sent leaves this machine unencrypted; also true if nothing tells.
    pub(super) fn is_exposed(&self) -> bool {
        if self.is_encrypted() {
            return false;
        }
        match rustix::net::getpeername(&self.socket).map(|peer| peer.and_then(|peer| SocketAddr::try_from(peer).ok())) {
            Ok(Some(peer)) => !peer.ip().to_canonical().is_loopback(),
            // A Unix socket has no such address.
            Ok(None) => false,
            Err(_) => true,
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether a receive would return data although the socket has nothing to read.
    pub(super) fn has_plaintext(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_plaintext())
    }

    /// Sends; returns the number of bytes accepted.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => Raw(&self.socket).write(bytes),
            Some(tls) => tls.send(&mut Raw(&self.socket), bytes),
        }
    }

    /// Sends data accepted earlier; returns whether all of it has left.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.flush(&mut Raw(&self.socket)),
        }
    }

    /// Receives; 0 at the end.
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => Raw(&self.socket).read(bytes),
            Some(tls) => tls.receive(&mut Raw(&self.socket), bytes),
        }
    }
}

impl Read for Raw<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        retry(|| rustix::net::recv(self.0, &mut *bytes, RecvFlags::empty()).map(|(_, count)| count))
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        retry(|| rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn tcp(host: &str, port: u16, deadline: Deadline) -> io::Result<OwnedFd> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = match deadline.left()? {
            Some(left) => TcpStream::connect_timeout(&address, left),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream.into());
            }
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

fn unix(path: &Path, deadline: Deadline) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of a Unix socket has at most 107 bytes; use a shorter folder",
        )
    })?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // With a busy server's full queue connect waits; Linux limits that wait by the send timeout.
    sockopt::set_socket_timeout(&socket, Timeout::Send, deadline.left()?)?;
    match retry(|| rustix::net::connect(&socket, &address)) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        other => other.map(|()| socket),
    }
}
