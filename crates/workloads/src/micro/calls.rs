//! Single system calls and signals.

use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use anyhow::ensure;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{getpid, getppid};

use super::bench::{Bench, Window, open, whole, with_warm_up};
use bigiron_sys::select::ReadSet;
use bigiron_sys::signal::SignalCounter;

pub fn null_call(b: &Bench<'_>) -> anyhow::Result<Window> {
    b.time(|| {
        black_box(getpid());
        Ok::<_, Errno>(())
    })
}

pub fn parent_id(b: &Bench<'_>) -> anyhow::Result<Window> {
    b.time(|| {
        black_box(getppid());
        Ok::<_, Errno>(())
    })
}

pub fn read_byte(b: &Bench<'_>) -> anyhow::Result<Window> {
    let zero = open("/dev/zero".as_ref(), OFlags::RDONLY)?;
    let mut byte = [0];
    b.time(|| whole(rustix::io::read(&zero, &mut byte)?, 1))
}

pub fn write_byte(b: &Bench<'_>) -> anyhow::Result<Window> {
    let null = open("/dev/null".as_ref(), OFlags::WRONLY)?;
    b.time(|| whole(rustix::io::write(&null, &[1])?, 1))
}

/// A file in the directory under test, removed when dropped.
struct TempFile(std::ffi::CString, std::path::PathBuf);

impl TempFile {
    fn new(b: &Bench<'_>) -> anyhow::Result<Self> {
        let path = b.dir.join(b.name);
        open(&path, OFlags::CREATE | OFlags::WRONLY)?;
        // As a C string, so that the loop does not convert it each time.
        Ok(Self(std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?, path))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1);
    }
}

pub fn stat(b: &Bench<'_>) -> anyhow::Result<Window> {
    let file = TempFile::new(b)?;
    b.time(|| {
        black_box(rustix::fs::stat(&file.0)?);
        Ok::<_, Errno>(())
    })
}

pub fn open_close(b: &Bench<'_>) -> anyhow::Result<Window> {
    let file = TempFile::new(b)?;
    b.time(|| {
        drop(rustix::fs::openat(CWD, &file.0, OFlags::RDONLY, Mode::empty())?);
        Ok::<_, Errno>(())
    })
}

/// Connections that `select` and `epoll` watch, as many as a small server has.
const CONNECTIONS: usize = 100;

/// 100 accepted TCP connections, on the last of which a byte waits to be read.
struct Connections {
    accepted: Vec<TcpStream>,
    _clients: Vec<TcpStream>,
}

impl Connections {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (mut accepted, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let client = TcpStream::connect(listener.local_addr()?)?;
            let (server, _) = listener.accept()?;
            // Closing the client resets the connection: none is left in TIME_WAIT for later tests to walk over.
            rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO))?;
            clients.push(client);
            accepted.push(server);
        }
        let last = &accepted[CONNECTIONS - 1];
        rustix::io::write(&clients[CONNECTIONS - 1], &[1])?;
        // Waits until the byte has arrived.
        last.peek(&mut [0])?;
        Ok(Self { accepted, _clients: clients })
    }
}

pub fn select(b: &Bench<'_>) -> anyhow::Result<Window> {
    let connections = Connections::new()?;
    let mut set = ReadSet::new(connections.accepted.iter().map(AsFd::as_fd).collect());
    b.time(|| whole(set.poll()?, 1))
}

pub fn epoll(b: &Bench<'_>) -> anyhow::Result<Window> {
    let connections = Connections::new()?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (n, socket) in connections.accepted.iter().enumerate() {
        epoll::add(&set, socket, epoll::EventData::new_u64(n as u64), epoll::EventFlags::IN)?;
    }
    let mut events = Vec::with_capacity(CONNECTIONS);
    let now = rustix::event::Timespec::default();
    b.time(|| {
        events.clear();
        epoll::wait(&set, spare_capacity(&mut events), Some(&now))?;
        whole(events.len(), 1)
    })
}

pub fn signal_install(b: &Bench<'_>) -> anyhow::Result<Window> {
    let counter = SignalCounter::install()?;
    b.time(|| counter.install_again())
}

pub fn signal_handle(b: &Bench<'_>) -> anyhow::Result<Window> {
    let counter = SignalCounter::install()?;
    let (pid, thread) = (getpid(), rustix::thread::gettid());
    let window = b.time(|| counter.raise(pid, thread))?;
    let sent = with_warm_up(b.ops);
    ensure!(counter.handled() == sent, "{} of {sent} signals were handled", counter.handled());
    Ok(window)
}
