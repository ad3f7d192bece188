//! One process's part of a cell: its engine, with all slots in flight until each has done its share.
//!
//! Invariant: data read are checked to belong to their place, and data written identify theirs.

use std::os::fd::AsFd;

use anyhow::{Context as _, Result, ensure};
use rustix::fd::OwnedFd;

use super::block_sequence::{BlockSequence, generation};
use super::options::{Cell, Matrix};
use bigiron_sys::async_io;
use bigiron_sys::async_io::{Completion, Engine, Request};
use bigiron_sys::load::stamp::{BLOCK, Stamp};

/// A process in a cell.
pub struct CellProcess<'a> {
    cell: &'a Cell,
    number: usize,
    disk: &'a OwnedFd,
    stamp: &'a Stamp,
    engine: Box<dyn Engine>,
    slots: Vec<Slot>,
    done: Vec<Completion>,
}

struct Slot {
    places: BlockSequence,
    /// The offset of the request in flight.
    at: u64,
    /// Number of requests begun.
    begun: u64,
}

impl<'a> CellProcess<'a> {
    /// Opens the engine and fills its buffers.
    ///
    /// # Errors
    /// If this kernel lacks the engine.
    pub fn new(
        (matrix, number): (&'a Matrix, usize),
        seed: u64,
        process: usize,
        disk: &'a OwnedFd,
        stamp: &'a Stamp,
    ) -> Result<Self> {
        let cell = &matrix.cells[number];
        let mut engine = async_io::open(&cell.engine, cell.block, &[disk.as_fd()])
            .with_context(|| format!("Cannot open the engine of cell `{}`", cell.name))?;
        let filled = stamp.filled();
        for slot in 0..cell.engine.depth {
            engine.buffer(slot).chunks_exact_mut(BLOCK).for_each(|page| page.copy_from_slice(&filled.0));
        }
        let slot = |slot| Slot { places: BlockSequence::new(matrix, cell, seed, process, slot), at: 0, begun: 0 };
        let slots = (0..cell.engine.depth).map(slot).collect();
        Ok(Self { cell, number, disk, stamp, engine, slots, done: Vec::new() })
    }

    /// Completes `each` requests on each slot.
    ///
    /// # Errors
    /// If one fails, or reads data that do not belong there.
    pub fn requests(&mut self, each: u64) -> Result<()> {
        let ends: Vec<_> = self.slots.iter().map(|s| s.begun + each).collect();
        for slot in 0..self.slots.len() {
            self.begin(slot)?;
        }
        let mut in_flight = self.slots.len();
        while in_flight > 0 {
            let mut done = std::mem::take(&mut self.done);
            self.engine.wait(1, &mut done)?;
            for completion in done.drain(..) {
                let slot = completion.slot;
                self.end(slot, completion.result()?)?;
                if self.slots[slot].begun < ends[slot] {
                    self.begin(slot)?;
                } else {
                    in_flight -= 1;
                }
            }
            self.done = done;
        }
        Ok(())
    }

    fn begin(&mut self, slot: usize) -> Result<()> {
        let s = &mut self.slots[slot];
        s.at = s.places.take();
        if self.cell.write {
            let generation = generation(self.number, slot, s.begun);
            for (n, page) in self.engine.buffer(slot).chunks_exact_mut(BLOCK).enumerate() {
                self.stamp.put(page, s.at + (n * BLOCK) as u64, generation);
            }
        }
        s.begun += 1;
        let request = Request {
            slot,
            fd: self.disk.as_fd(),
            offset: s.at,
            len: self.cell.block,
            write: self.cell.write,
            dsync: false,
            dontcache: false,
        };
        self.engine.submit(&[request]).with_context(|| format!("Cannot submit a request of cell `{}`", self.cell.name))
    }

    fn end(&mut self, slot: usize, bytes: usize) -> Result<()> {
        let at = self.slots[slot].at;
        ensure!(bytes == self.cell.block, "{bytes} of {} bytes were transferred at byte {at}", self.cell.block);
        if !self.cell.write {
            for (n, page) in self.engine.buffer(slot).chunks_exact(BLOCK).enumerate() {
                let at = at + (n * BLOCK) as u64;
                ensure!(self.stamp.belongs(page, at), "Byte {at} of the disk holds wrong data");
            }
        }
        Ok(())
    }
}
