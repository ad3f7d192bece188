//! The disk tests with `io_submit`: 32 requests in flight at random places of the user's own file.
//!
//! Invariant: when a call returns, every request has completed and transferred a whole block.

use std::os::fd::AsFd as _;

use anyhow::Context as _;

use super::UserContext;
use super::block::{AGAIN, Block, Buffer, FIRST};
use super::disk::{OpenMode, Opened, UserFile};
use super::user_context::BLOCK;
use super::verdict::expect;
use bigiron_sys::async_io::{Completion, Engine as _, LibAio, Request};

/// Maximum requests in flight.
const DEPTH: usize = 32;

struct Flight {
    engine: LibAio,
    /// The block of each slot's request.
    numbers: [u64; DEPTH],
    free: Vec<usize>,
    done: Vec<Completion>,
}

impl Flight {
    /// Waits for at least one request and checks all completed ones.
    fn land(&mut self, opened: &Opened, write: bool) -> anyhow::Result<()> {
        self.engine.wait(1, &mut self.done).context("Cannot wait for asynchronous I/O")?;
        for i in 0..self.done.len() {
            let completion = self.done[i];
            let (slot, number) = (completion.slot, self.numbers[completion.slot]);
            let bytes = completion.result().with_context(|| format!("Asynchronous I/O of block {number} failed"))?;
            if write {
                expect("Writing a block", bytes, BLOCK)?;
            } else {
                let stamp = opened.check(Block(self.engine.buffer(slot)), bytes, number)?;
                expect("Reading a block", stamp, FIRST)?;
            }
            self.free.push(slot);
        }
        self.done.clear();
        Ok(())
    }
}

fn random(place: &mut UserContext<'_>, way: OpenMode, write: bool) -> anyhow::Result<()> {
    let blocks = place.disk().blocks();
    let own = UserFile::new(place);
    own.fill(blocks)?;
    place.sync();
    let opened = own.open(way, write)?;
    let engine = LibAio::new(DEPTH, BLOCK).context("Cannot set up asynchronous I/O")?;
    let mut flight = Flight { engine, numbers: [0; DEPTH], free: (0..DEPTH).rev().collect(), done: Vec::new() };
    for slot in 0..DEPTH {
        Block(flight.engine.buffer(slot)).text();
    }
    let mut last = 0;
    for _ in 0..blocks {
        if flight.free.is_empty() {
            flight.land(&opened, write)?;
        }
        let slot = flight.free.pop().context("Asynchronous I/O has no free slot")?;
        let number = place.below(blocks);
        flight.numbers[slot] = number;
        if write {
            Block(flight.engine.buffer(slot)).stamped(number, AGAIN);
            last = number;
        }
        let offset = number * BLOCK as u64;
        let request =
            Request { slot, fd: opened.file.as_fd(), offset, len: BLOCK, write, dsync: false, dontcache: false };
        flight.engine.submit(&[request]).context("Cannot submit asynchronous I/O")?;
    }
    while flight.free.len() < DEPTH {
        flight.land(&opened, write)?;
    }
    if write {
        opened.verify(&mut Buffer::aligned(), blocks, last, AGAIN)?;
    }
    drop((flight, opened, own));
    place.sync();
    Ok(())
}

pub fn cached_read(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    random(place, OpenMode::Cached, false)
}

pub fn cached_write(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    random(place, OpenMode::Cached, true)
}

pub fn direct_read(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    random(place, OpenMode::Direct, false)
}

pub fn direct_write(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    random(place, OpenMode::Direct, true)
}
