//! Bytes copied: in memory, between processes, out of the page cache.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::fs::OFlags;

use super::bench::{Bench, DATA_BYTES, Window, whole};
use bigiron_sys::process::fork_child;

/// Bytes of one operation of `copy-memory`.
pub const MEMORY_BYTES: usize = 1 << 20;

/// Bytes of one operation of the others: a pipe's capacity.
pub const TRANSFER_BYTES: usize = 64 << 10;

/// Source and destination together exceed the last-level cache share of one core.
const BUFFER: usize = 8 << 20;

pub fn memory(b: &Bench<'_>) -> anyhow::Result<Window> {
    let (source, mut target) = (vec![5u8; BUFFER], vec![6u8; BUFFER]);
    let mut at = 0;
    let window = b.time(|| {
        black_box(&mut target)[at..at + MEMORY_BYTES].copy_from_slice(&black_box(&source)[at..at + MEMORY_BYTES]);
        at = (at + MEMORY_BYTES) % BUFFER;
        io::Result::Ok(())
    })?;
    whole(target[..MEMORY_BYTES].iter().filter(|t| **t == 5).count(), MEMORY_BYTES)?;
    Ok(window)
}

/// Reads what a child writes without end.
fn receive(b: &Bench<'_>, mut input: impl Read) -> anyhow::Result<Window> {
    let mut buffer = vec![0; TRANSFER_BYTES];
    b.time(|| input.read_exact(&mut buffer))
}

fn send(mut output: impl Write) -> i32 {
    let buffer = vec![9; TRANSFER_BYTES];
    while output.write_all(&buffer).is_ok() {}
    1
}

pub fn pipe(b: &Bench<'_>) -> anyhow::Result<Window> {
    let (reader, writer) = io::pipe()?;
    let _child = fork_child(move || send(writer))?;
    receive(b, reader)
}

pub fn unix(b: &Bench<'_>) -> anyhow::Result<Window> {
    let (ours, theirs) = UnixStream::pair()?;
    let _child = fork_child(move || send(theirs))?;
    receive(b, ours)
}

pub fn file(b: &Bench<'_>) -> anyhow::Result<Window> {
    let file = b.open_cached(OFlags::RDONLY)?;
    let mut buffer = vec![0; TRANSFER_BYTES];
    let mut at = 0;
    b.time(|| {
        whole(rustix::io::pread(file.as_fd(), &mut buffer, at)?, TRANSFER_BYTES)?;
        at = (at + TRANSFER_BYTES as u64) % DATA_BYTES;
        io::Result::Ok(())
    })
}
