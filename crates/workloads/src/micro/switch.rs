//! Context switches: a token goes round a ring of processes on one CPU, each of which walks its own array when it gets it.
//!
//! What a hop costs: a pipe write, the switch, a pipe read, the walk. Nothing is subtracted: the walk and the pipe are the same
//! work in both arms, and a difference of two measurements would be noisier than either.

use std::hint::black_box;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fd::OwnedFd;

use super::bench::{Bench, Window, timed, whole};
use bigiron_sys::process::{Child, fork_child};

/// One number on each 64-byte cache line.
#[repr(align(64))]
#[derive(Clone)]
struct Line(u64);

fn array(kib: usize) -> Vec<Line> {
    vec![Line(1); kib * 1024 / 64]
}

/// Adds up the numbers: brings every line of the array into the cache, as summing all of it would, in an eighth of the
/// instructions (under the exact clock an instruction costs the same whether it misses or not).
fn walk(array: &[Line]) {
    black_box(black_box(array).iter().fold(0, |sum: u64, line| sum.wrapping_add(line.0)));
}

fn hop(input: BorrowedFd<'_>, output: BorrowedFd<'_>, array: &[Line], token: &mut [u8; 1]) -> std::io::Result<()> {
    whole(rustix::io::read(input, &mut *token)?, 1)?;
    walk(array);
    whole(rustix::io::write(output, token)?, 1)
}

/// Cost of one hop in a ring of `processes`, each with an array of `kib` KiB.
pub fn ring(b: &Bench<'_>, processes: usize, kib: usize) -> anyhow::Result<Window> {
    // pipes[n] leads to process n; process 0 is this one.
    let mut pipes: Vec<(OwnedFd, OwnedFd)> = Vec::new();
    for _ in 0..processes {
        pipes.push(rustix::pipe::pipe()?);
    }
    let mut children: Vec<Child> = Vec::new();
    for n in 1..processes {
        let (input, output) = (pipes[n].0.as_fd(), pipes[(n + 1) % processes].1.as_fd());
        children.push(fork_child(move || {
            // Allocated here, so that no two processes share a page of it.
            let (array, mut token) = (array(kib), [0]);
            while hop(input, output, &array, &mut token).is_ok() {}
            1
        })?);
    }
    let (input, output) = (pipes[0].0.as_fd(), pipes[1].1.as_fd());
    let (array, mut token) = (array(kib), [1]);
    let laps = b.ops.div_ceil(processes as u64);
    whole(rustix::io::write(output, &token)?, 1)?;
    for _ in 0..laps.div_ceil(20) {
        hop(input, output, &array, &mut token)?;
    }
    let ns = timed(laps, || hop(input, output, &array, &mut token))?;
    drop(children);
    Ok(Window { ops: laps * processes as u64, ns })
}
