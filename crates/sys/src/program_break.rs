//! The program break, moved to and fro: the oldest way to get memory.
//!
//! Invariant: between the first move and the last nothing is allocated and no other thread runs, and the break ends where it began; what an
//! allocator keeps below it is never touched.

use std::fs;
use std::io;

/// Bytes that the break moves up by at a time.
pub const PIECE: usize = 4096;
/// Pieces given back at once, then taken again one by one.
pub const PIECES: usize = 16;
/// Bytes from one write to the next where pages are to be touched.
const STRIDE: usize = 128;
/// What is added to the break first, so that what is given back is never anybody else's.
const ROOM: usize = 1 << 20;

/// What [`exercise`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Times that the break was moved and found where it was to be, without the first and the last.
    pub moves: u64,
    /// Bytes written and read back.
    pub touched: u64,
}

/// Takes 1 MiB, then `rounds` times gives [`PIECES`] pieces back and takes them again one after the other, writing to each (if it is to `touch`
/// them) every 128 bytes; in the end everything is given back.
///
/// # Errors
/// Memory that the kernel does not give; a process with threads, which could allocate meanwhile.
pub fn exercise(rounds: u64, touch: bool) -> io::Result<Moves> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "Only a process of one thread can move its program break",
        ));
    }
    let start = set(0)?;
    let result = up_and_down(start, rounds, touch);
    set(start)?;
    result.map_err(|e| io::Error::new(e.kind(), "The kernel has not moved the program break to where it was to be"))
}

/// Allocates nothing.
fn up_and_down(start: usize, rounds: u64, touch: bool) -> io::Result<Moves> {
    let top = start + ROOM;
    set(top)?;
    let mut done = Moves::default();
    for _ in 0..rounds {
        set(top - PIECE * PIECES)?;
        done.moves += 1;
        for piece in (0..PIECES).rev() {
            let end = top - PIECE * piece;
            set(end)?;
            done.moves += 1;
            if touch {
                done.touched += write(end - PIECE);
            }
        }
    }
    Ok(done)
}

/// Moves the break to `address` (0 leaves it) and returns where it is.
fn set(address: usize) -> io::Result<usize> {
    // SAFETY: the callers move it between where it was and 1 MiB above, while nobody else moves it (single-threaded, nothing is allocated):
    // below `start` nothing is unmapped.
    let is = unsafe { libc::syscall(libc::SYS_brk, address) } as usize;
    if address == 0 || is == address {
        Ok(is)
    } else {
        // Without words: they would be allocated.
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

/// Writes to the piece at `start` and counts what is there then.
fn write(start: usize) -> u64 {
    let mut found = 0;
    for at in (start..start + PIECE).step_by(STRIDE) {
        let byte = at as *mut u8;
        // SAFETY: below the break that `set` has just confirmed and above `start` of `exercise`: memory that nobody else uses.
        unsafe {
            byte.write_volatile(b' ');
            found += u64::from(byte.read_volatile() == b' ');
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, fork_child};

    #[test]
    fn the_break_comes_back() {
        let child = fork_child(|| {
            let before = set(0).unwrap();
            let plain = exercise(3, false).unwrap();
            let touched = exercise(3, true).unwrap();
            // The allocator goes on as if nothing had been.
            let kept: Vec<u64> = (0..100_000).collect();
            let right = plain == Moves { moves: 51, touched: 0 }
                && touched == Moves { moves: 51, touched: 3 * 16 * 32 }
                && set(0).unwrap() >= before
                && kept.iter().sum::<u64>() == 4_999_950_000;
            i32::from(!right)
        });
        assert_eq!(child.unwrap().wait().unwrap(), Exit::Status(0));
    }

    #[test]
    fn threads_are_refused() {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv().unwrap_err());
        assert_eq!(exercise(1, false).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(end);
        thread.join().unwrap();
    }
}
