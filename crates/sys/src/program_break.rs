//! Moves the program break up and down: the oldest way to get memory.
//!
//! Invariant: between the first move and the last nothing is allocated and no other thread runs, and the break ends where it began; memory that an
//! allocator keeps below it is never touched.

use std::fs;
use std::io;

/// Bytes by which the break moves up in one step.
pub const PIECE: usize = 4096;
/// Pieces given back in one step, then taken again one by one.
pub const PIECES: usize = 16;
/// Distance between writes in pages to be touched.
const STRIDE: usize = 128;
/// Added to the break first, so that only this memory is given back.
const ROOM: usize = 1 << 20;

/// The result of [`exercise`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Successful moves of the break, without the first and the last.
    pub moves: u64,
    /// Bytes written and read back.
    pub touched: u64,
}

/// Takes 1 MiB, then `rounds` times gives [`PIECES`] pieces back and takes them again one after the other, writing to each every 128 bytes if `touch`
/// is set; finally gives everything back.
///
/// # Errors
/// The kernel does not give the memory, or the process has several threads, which could allocate in the meantime.
pub fn exercise(rounds: u64, touch: bool) -> io::Result<Moves> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "Only a single-threaded process can move its program break",
        ));
    }
    let start = set(0)?;
    let result = up_and_down(start, rounds, touch);
    set(start)?;
    result.map_err(|e| io::Error::new(e.kind(), "The kernel did not move the program break to the requested address"))
}

/// Does not allocate.
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

/// Moves the break to `address` (0 leaves it) and returns its position.
fn set(address: usize) -> io::Result<usize> {
    // SAFETY: the callers move it between where it was and 1 MiB above, while nobody else moves it (single-threaded, nothing is allocated):
    // below `start` nothing is unmapped.
    let is = unsafe { libc::syscall(libc::SYS_brk, address) } as usize;
    if address == 0 || is == address {
        Ok(is)
    } else {
        // Without a text, which would have to be allocated.
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

/// Writes to the piece at `start` and counts the bytes read back.
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
            // The allocator still works.
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
