//! Messages of 1 byte to 4 KiB that a process writes to itself: pipes, sockets, a segment of shared memory.
//!
//! Invariant: a message is read completely and compared byte for byte before the next one is written; consecutive messages
//! differ.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::UserContext;
use super::verdict::received;
use bigiron_sys::guarded_segment::GuardedSegment;

/// Sizes of the messages, in turn: small ones, those of a window system, those of a database.
const SIZES: [usize; 37] = [
    1, 3, 5, 7, 16, 32, 64, 512, 1024, 2048, 4096, 1, 3, 5, 7, 16, 32, 64, 512, 1024, 2048, 4096, 32, 32, 32, 32, 32,
    32, 512, 512, 512, 512, 512, 2048, 2048, 2048, 2048,
];
const LARGEST: usize = 4096;
/// Bytes of the shared segment.
const SEGMENT: usize = 64 << 10;

/// Fills in the next message of this user.
#[inline]
fn fill(place: &mut UserContext<'_>, buffer: &mut [u8; LARGEST]) -> usize {
    let at = &mut place.kept.message;
    let size = SIZES[*at];
    *at = if *at + 1 < SIZES.len() { *at + 1 } else { 0 };
    // The first byte differs from message to message; so does the last, if it is another byte.
    place.kept.mark = place.kept.mark.wrapping_add(1);
    buffer[size - 1] = !place.kept.mark;
    buffer[0] = place.kept.mark;
    size
}

fn write_all(to: impl AsFd, mut bytes: &[u8]) -> anyhow::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e).context("Cannot write a message"),
        }
    }
    Ok(())
}

fn read_all(from: impl AsFd, mut bytes: &mut [u8]) -> anyhow::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::read(&from, &mut *bytes) {
            Ok(0) => bail!("A message ended early"),
            Ok(n) => bytes = &mut bytes[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e).context("Cannot read a message"),
        }
    }
    Ok(())
}

/// Writes and reads this many messages.
fn exchange(place: &mut UserContext<'_>, what: &str, count: u64, from: impl AsFd, to: impl AsFd) -> anyhow::Result<()> {
    let (mut sent, mut found) = ([b'.'; LARGEST], [0; LARGEST]);
    for _ in 0..place.times(count) {
        let size = fill(place, &mut sent);
        write_all(&to, &sent[..size])?;
        read_all(&from, &mut found[..size])?;
        received(what, &found[..size], &sent[..size])?;
    }
    Ok(())
}

pub fn pipe(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let (from, to) = rustix::pipe::pipe().context("Cannot create a pipe")?;
    exchange(place, "A message through a pipe", 100, from, to)
}

/// A FIFO in the directory, removed afterwards.
pub fn fifo(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let path = place.own("fifo");
    let run = |place: &mut UserContext<'_>| {
        let at = || format!("Cannot create the FIFO `{}`", path.display());
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).with_context(at)?;
        // Opened for reading without waiting for a writer; then for both, so that there is a writer.
        let from = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).with_context(at)?;
        let to = rustix::fs::open(&path, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).with_context(at)?;
        exchange(place, "A message through a FIFO", 100, from, to)
    };
    let result = run(place);
    let removed = fs::remove_file(&path);
    result?;
    removed.with_context(|| format!("Cannot remove `{}`", path.display()))
}

pub fn stream_pair(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let (from, to) = UnixStream::pair().context("Cannot create a pair of sockets")?;
    exchange(place, "A message through a pair of stream sockets", 100, from, to)
}

pub fn datagram_pair(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let (from, to) = UnixDatagram::pair().context("Cannot create a pair of sockets")?;
    exchange(place, "A message through a pair of datagram sockets", 100, from, to)
}

/// The likely cause of a socket error.
const LOOPBACK: &str = "Cannot talk over the loopback interface; is `lo` up?";

/// TCP over the loopback interface without Nagle's delay. The connection is reset at the end: otherwise thousands of connections
/// in TIME_WAIT would use up the ports.
pub fn tcp(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let connect = || -> io::Result<_> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let from = TcpStream::connect(listener.local_addr()?)?;
        let (to, _) = listener.accept()?;
        to.set_nodelay(true)?;
        from.set_nodelay(true)?;
        rustix::net::sockopt::set_socket_linger(&from, Some(Duration::ZERO))?;
        Ok((from, to))
    };
    let (from, to) = connect().context(LOOPBACK)?;
    exchange(place, "A message over TCP", 90, &from, &to)?;
    // In this order: the end that resets the connection closes first.
    drop(from);
    drop(to);
    Ok(())
}

/// UDP over the loopback interface.
pub fn udp(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let connect = || -> io::Result<_> {
        let (from, to) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
        to.connect(from.local_addr()?)?;
        Ok((from, to))
    };
    let (from, to) = connect().context(LOOPBACK)?;
    exchange(place, "A datagram over UDP", 100, from, to)
}

/// Messages copied into a System V segment and out again, each time under a System V semaphore.
pub fn shared_memory(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let mut segment = segment()?;
    let (mut sent, mut found) = ([b'.'; LARGEST], [0; LARGEST]);
    for _ in 0..place.times(100) {
        let size = fill(place, &mut sent);
        segment.put(&sent[..size])?;
        segment.get(&mut found[..size])?;
        received("A message through shared memory", &found[..size], &sent[..size])?;
    }
    Ok(())
}

/// Gets a segment as soon as one is available: thousands of users may want one at a time, and a kernel has 4096 by default.
fn segment() -> anyhow::Result<GuardedSegment> {
    const TRIES: u32 = 600;
    for _ in 0..TRIES {
        match GuardedSegment::new(SEGMENT) {
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => std::thread::sleep(Duration::from_millis(100)),
            other => return other.context("Cannot create a System V segment and semaphore"),
        }
    }
    bail!(
        "No System V segment or semaphore was free for a minute; sysctl `kernel.shmmni` and `kernel.sem` set their number"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiuser::work::TestDirectory;
    use bigiron_workload::WrongData;
    use std::path::Path;

    fn with_place<T>(act: impl FnOnce(&mut UserContext<'_>) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let disk = TestDirectory::lay_out(dir.path(), 0, []).unwrap();
        act(&mut UserContext::new(&disk, Path::new("/bin/true"), 0, 1))
    }

    #[test]
    fn sizes_go_round_and_messages_differ() {
        with_place(|place| {
            let mut buffer = [0; LARGEST];
            let sizes: Vec<_> = (0..74).map(|_| fill(place, &mut buffer)).collect();
            assert_eq!(sizes[..37], sizes[37..]);
            assert_eq!(sizes[..37], SIZES);
            let first = buffer[0];
            fill(place, &mut buffer);
            assert_ne!(buffer[0], first);
        });
    }

    #[test]
    fn what_comes_out_otherwise_is_wrong_data() {
        // Reads zeros, whatever was written.
        let (zero, null) = (fs::File::open("/dev/zero").unwrap(), fs::File::create("/dev/null").unwrap());
        let error = with_place(|place| exchange(place, "A message", 100, zero, null)).unwrap_err();
        assert!(error.is::<WrongData>(), "{error:#}");
    }

    #[test]
    fn what_ends_early_is_an_error() {
        let (end, null) = (fs::File::open("/dev/null").unwrap(), fs::File::create("/dev/null").unwrap());
        let error = with_place(|place| exchange(place, "A message", 100, end, null)).unwrap_err();
        assert_eq!(error.to_string(), "A message ended early");
    }
}
