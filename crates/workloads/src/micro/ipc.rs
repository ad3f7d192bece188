//! Round trips of one byte between two processes on one CPU: each costs two wake-ups and two context switches.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::bench::{Bench, Window, whole};
use bigiron_sys::futex;
use bigiron_sys::futex::Scope;
use bigiron_sys::process::fork_child;
use bigiron_sys::shared_memory::SharedMemory;

/// Sends back every byte; the body of the child, which is killed when its handle is dropped.
fn echo(input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> i32 {
    let mut byte = [0];
    while matches!(rustix::io::read(input, &mut byte), Ok(1)) {
        if rustix::io::write(output, &byte) != Ok(1) {
            return 1;
        }
    }
    1
}

fn ping(b: &Bench<'_>, output: BorrowedFd<'_>, input: BorrowedFd<'_>) -> anyhow::Result<Window> {
    let mut byte = [7];
    b.time(|| {
        whole(rustix::io::write(output, &byte)?, 1)?;
        whole(rustix::io::read(input, &mut byte)?, 1)
    })
}

/// Forks an echo on `theirs`, of which no copy stays here, and talks to it on `ours`.
fn ping_socket<S: AsFd>(b: &Bench<'_>, ours: S, theirs: S) -> anyhow::Result<Window> {
    let _child = fork_child(move || echo(theirs.as_fd(), theirs.as_fd()))?;
    ping(b, ours.as_fd(), ours.as_fd())
}

pub fn pipe(b: &Bench<'_>) -> anyhow::Result<Window> {
    let (there_out, there_in) = rustix::pipe::pipe()?;
    let (back_out, back_in) = rustix::pipe::pipe()?;
    let _child = fork_child(|| echo(there_out.as_fd(), back_in.as_fd()))?;
    drop((there_out, back_in));
    ping(b, there_in.as_fd(), back_out.as_fd())
}

pub fn unix(b: &Bench<'_>) -> anyhow::Result<Window> {
    let (ours, theirs) = UnixStream::pair()?;
    ping_socket(b, ours, theirs)
}

pub fn udp(b: &Bench<'_>) -> anyhow::Result<Window> {
    let (ours, theirs) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
    ours.connect(theirs.local_addr()?)?;
    theirs.connect(ours.local_addr()?)?;
    ping_socket(b, ours, theirs)
}

/// Two connected TCP sockets over the loopback interface, without Nagle's delay. Closing the first resets the connection, so
/// that nothing stays in TIME_WAIT.
fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, _) = listener.accept()?;
    for socket in [&ours, &theirs] {
        socket.set_nodelay(true)?;
    }
    rustix::net::sockopt::set_socket_linger(&ours, Some(Duration::ZERO))?;
    Ok((ours, theirs))
}

pub fn tcp(b: &Bench<'_>) -> anyhow::Result<Window> {
    let (ours, theirs) = tcp_pair()?;
    ping_socket(b, ours, theirs)
}

/// Connect, accept, close both ends, in one process: the kernel ends the handshake without help, so no process is woken.
pub fn tcp_connect(b: &Bench<'_>) -> anyhow::Result<Window> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    b.time(|| {
        let client = TcpStream::connect(address)?;
        let (server, _) = listener.accept()?;
        // A reset instead of TIME_WAIT: thousands of connections a second would use up the ports, and the walk over
        // those in TIME_WAIT would make each connect dearer than the one before.
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO))?;
        drop(server);
        drop(client);
        io::Result::Ok(())
    })
}

/// Whose turn it is.
const PARENT: u32 = 0;
const CHILD: u32 = 1;

fn pass_turn(turn: &AtomicU32, me: u32, other: u32) -> io::Result<()> {
    turn.store(other, Ordering::SeqCst);
    futex::wake(turn, 1, Scope::Shared)?;
    await_turn(turn, me, other)
}

fn await_turn(turn: &AtomicU32, me: u32, other: u32) -> io::Result<()> {
    while turn.load(Ordering::SeqCst) != me {
        futex::wait(turn, other, Scope::Shared, None)?;
    }
    Ok(())
}

pub fn futex_turns(b: &Bench<'_>) -> anyhow::Result<Window> {
    let memory = SharedMemory::new(4096)?;
    let turn = memory.at::<AtomicU32>(0);
    let _child = fork_child(|| {
        let mut passed = await_turn(turn, CHILD, PARENT);
        while passed.is_ok() {
            passed = pass_turn(turn, CHILD, PARENT);
        }
        1
    })?;
    b.time(|| pass_turn(turn, PARENT, CHILD))
}
