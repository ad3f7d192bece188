//! What the kernel's NFS server and client expect of user space while they start: a portmapper that takes registrations, and a mount daemon that
//! hands out the handle of the exported directory.
//!
//! Invariant: it answers on 127.0.0.1 only, and only while the closure of [`answering`] runs.

use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use rustix::event::{PollFd, PollFlags, poll};

/// The portmapper's port, which the kernel does not look up; the mount daemon has the same.
pub const PORT: u16 = 111;
/// RFC 1833 and RFC 1813.
const PORTMAPPER: u32 = 100_000;
const MOUNT: u32 = 100_005;
/// Procedures: 0 does nothing in any program.
const NOTHING: u32 = 0;
const SET: u32 = 1;
const UNSET: u32 = 2;
const MNT: u32 = 1;
/// `AUTH_SYS`
const AUTH_SYS: u32 = 1;
/// RFC 5531: the reply accepts the call and has a result; there is no such procedure.
const SUCCESS: u32 = 0;
const NO_PROCEDURE: u32 = 3;
/// Longest call that is read.
const LONGEST: usize = 64 << 10;
/// The bit of a record's length that marks its last part.
const LAST: u32 = 1 << 31;

/// Answers while `work` runs, which gets nothing from here but answers to the kernel's calls. `handle` is asked for the exported directory's handle.
///
/// # Errors
/// Those of `work`; or the port is taken.
pub fn answering<T>(handle: &(dyn Fn() -> Result<Vec<u8>> + Sync), work: impl FnOnce() -> Result<T>) -> Result<T> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).with_context(|| {
        format!("Cannot listen on 127.0.0.1:{PORT}, where the kernel expects the portmapper; end what listens there, such as rpcbind")
    })?;
    let (stop, go_on) = io::pipe().context("Cannot make a pipe")?;
    thread::scope(|scope| {
        let answers = scope.spawn(|| serve(&listener, &stop, handle));
        let result = work();
        drop(go_on);
        let served = answers.join().map_err(|_| anyhow!("The portmapper's thread has panicked"))?;
        let result = result?;
        served.map(|()| result).context("The portmapper cannot go on")
    })
}

fn serve(listener: &TcpListener, stop: &PipeReader, handle: &dyn Fn() -> Result<Vec<u8>>) -> io::Result<()> {
    let mut callers: Vec<TcpStream> = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(stop, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        fds.extend(callers.iter().map(|caller| PollFd::new(caller, PollFlags::IN)));
        poll(&mut fds, None)?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return Ok(());
        }
        let mut waiting = ready[2..].iter();
        // The end of a caller is the end of its connection, no failure.
        callers.retain_mut(|caller| !waiting.next().is_some_and(|ready| *ready) || answer(caller, handle).is_ok());
        if ready[1] {
            callers.push(listener.accept()?.0);
        }
    }
}

/// Reads a call and answers it.
fn answer(caller: &mut TcpStream, handle: &dyn Fn() -> Result<Vec<u8>>) -> io::Result<()> {
    let mut call = Vec::new();
    loop {
        let mut mark = [0; 4];
        caller.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let start = call.len();
        let end = start + (mark & !LAST) as usize;
        if end > LONGEST {
            return Err(ErrorKind::InvalidData.into());
        }
        call.resize(end, 0);
        caller.read_exact(&mut call[start..])?;
        if mark & LAST != 0 {
            break;
        }
    }
    let reply = reply(&call, handle).ok_or(ErrorKind::InvalidData)?;
    let mut record = (reply.len() as u32 | LAST).to_be_bytes().to_vec();
    record.extend(reply);
    caller.write_all(&record)
}

/// The reply to a call; `None` if it is not one.
fn reply(call: &[u8], handle: &dyn Fn() -> Result<Vec<u8>>) -> Option<Vec<u8>> {
    let word = |n: usize| Some(u32::from_be_bytes(call.get(4 * n..4 * n + 4)?.try_into().ok()?));
    let (id, kind, program, procedure) = (word(0)?, word(1)?, word(3)?, word(5)?);
    if kind != 0 {
        return None;
    }
    let mut result = Words::default();
    // A reply, accepted, with an empty verifier.
    [id, 1, 0, 0, 0].into_iter().for_each(|word| result.word(word));
    match (program, procedure) {
        (PORTMAPPER | MOUNT, NOTHING) => result.word(SUCCESS),
        (PORTMAPPER, SET | UNSET) => [SUCCESS, 1].into_iter().for_each(|word| result.word(word)),
        (MOUNT, MNT) => {
            result.word(SUCCESS);
            match handle() {
                Ok(handle) => {
                    result.word(0);
                    result.bytes(&handle);
                    [1, AUTH_SYS].into_iter().for_each(|word| result.word(word));
                }
                // MNT3ERR_SERVERFAULT
                Err(_) => result.word(10_006),
            }
        }
        _ => result.word(NO_PROCEDURE),
    }
    Some(result.0)
}

/// Data as XDR.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn word(&mut self, word: u32) {
        self.0.extend(word.to_be_bytes());
    }

    /// Bytes with their length, padded to whole words.
    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(program: u32, procedure: u32) -> Vec<u8> {
        [7, 0, 2, program, 3, procedure, 0, 0, 0, 0].into_iter().flat_map(u32::to_be_bytes).collect()
    }

    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn calls_are_answered_as_the_kernel_expects() {
        let handle = || Ok(vec![1, 0, 7, 0, 9]);
        let said = |program, procedure| words(&reply(&call(program, procedure), &handle).unwrap());
        assert_eq!(said(PORTMAPPER, NOTHING), [7, 1, 0, 0, 0, 0]);
        assert_eq!(said(PORTMAPPER, SET), [7, 1, 0, 0, 0, 0, 1]);
        assert_eq!(said(MOUNT, MNT), [7, 1, 0, 0, 0, 0, 0, 5, 0x0100_0700, 0x0900_0000, 1, 1]);
        assert_eq!(said(MOUNT, 5), [7, 1, 0, 0, 0, NO_PROCEDURE]);
        let refused = reply(&call(MOUNT, MNT), &|| Err(anyhow!("no"))).unwrap();
        assert_eq!(words(&refused)[5..], [0, 10_006]);
        assert_eq!(reply(&call(MOUNT, MNT)[..20], &handle), None);
    }

    #[test]
    fn a_connection_may_carry_several_calls_in_parts() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, go_on) = io::pipe().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &stop, &|| Ok(vec![1, 2, 3, 4])).unwrap());
            let mut caller = TcpStream::connect(address).unwrap();
            let call = call(PORTMAPPER, SET);
            for _ in 0..2 {
                for (part, last) in [(&call[..12], 0), (&call[12..], LAST)] {
                    caller.write_all(&(part.len() as u32 | last).to_be_bytes()).unwrap();
                    caller.write_all(part).unwrap();
                }
                let mut said = [0; 4 + 28];
                caller.read_exact(&mut said).unwrap();
                assert_eq!(words(&said), [28 | LAST, 7, 1, 0, 0, 0, 0, 1]);
            }
            drop(go_on);
        });
    }
}
