//! The socket under a connection: TCP or Unix.
//!
//! Invariant: a send never raises SIGPIPE, and neither direction allocates.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::url::{Host, Url};

pub(super) struct Wire {
    socket: OwnedFd,
}

impl From<OwnedFd> for Wire {
    fn from(socket: OwnedFd) -> Wire {
        Wire { socket }
    }
}

/// When to give up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    pub(super) fn after(limit: Option<Duration>) -> Deadline {
        Deadline(limit.map(|l| Instant::now() + l))
    }

    /// What is left; `Ok(None)` without a limit.
    pub(super) fn left(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        let left = end.saturating_duration_since(Instant::now());
        // A socket's time limit of zero would be none.
        if left < Duration::from_millis(1) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Wire {
    /// # Errors
    /// Those of resolving the name and of `connect`; of several addresses the last one's.
    pub(super) fn connect(url: &Url, deadline: Deadline) -> io::Result<Wire> {
        let socket = match &url.host {
            Host::Tcp(host) => tcp(host, url.port, deadline)?,
            Host::Unix(folder) => unix(&folder.join(format!(".s.PGSQL.{}", url.port)), deadline)?,
        };
        Ok(Wire::from(socket))
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

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        retry(|| rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL))
    }

    /// 0 is the end.
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        retry(|| rustix::net::recv(&self.socket, &mut *bytes, RecvFlags::empty()).map(|(_, count)| count))
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
    // A full queue of a busy server makes connect wait; Linux ends that wait by the time limit for sending.
    sockopt::set_socket_timeout(&socket, Timeout::Send, deadline.left()?)?;
    match retry(|| rustix::net::connect(&socket, &address)) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        other => other.map(|()| socket),
    }
}
