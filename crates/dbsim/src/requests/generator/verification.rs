//! Verifiable requests: each holds its block from before its submission until it has been checked.
//!
//! Invariant: a process never sleeps for a block while it holds another.

use anyhow::{Context as _, Result};

use bigiron_sys::async_io::Engine;
use bigiron_sys::latch::Held;

use super::super::super::block::Address;
use super::super::super::job::RequestSpec;
use super::super::{check_block, page};
use super::issued::Issued;
use super::{Generator, request};

impl<'a, E: Engine> Generator<'a, E> {
    /// Draws `size` verifiable requests and prepares them: each holds its block, and the data to write are filled in.
    #[inline(never)]
    pub(super) fn draw_verifiable(&mut self, size: usize) -> Result<()> {
        for _ in 0..size {
            let (address, write) = self.draws.draw(&mut self.at);
            let held = self.take(address)?;
            let slot = self.free.pop().context("A batch larger than the depth")?.into();
            self.held[slot] = Some(held);
            if write {
                self.seal(slot, address);
            }
            self.issued[slot] = Issued::new(address, write, 0);
            // On the list but not yet in the engine, whose buffers are used for the requests to come.
            let RequestSpec { bytes, dsync, .. } = *self.spec;
            self.lists.requests.push(request(bytes, dsync, self.files, slot, address, write));
        }
        self.start_now();
        Ok(())
    }

    /// Latches a block for this process. It never sleeps for a block while it holds another: requests in flight are completed
    /// first.
    fn take(&mut self, address: Address) -> Result<Held<'a>> {
        if let Some(held) = self.board.try_lock(address) {
            return Ok(held);
        }
        self.start_now();
        self.drain()?;
        Ok(self.board.lock(address))
    }

    /// Starts the batch now. With verification there were blocks to fill and check since the last reading.
    fn start_now(&mut self) {
        let start = self.board.ticks.now();
        for r in &self.lists.requests {
            self.issued[r.slot].start = start;
        }
    }

    fn seal(&mut self, slot: usize, address: Address) {
        let version = self.board.version(address) + 1;
        self.sequence += 1;
        let label = page::Label { address, version, process: self.process as u32, sequence: self.sequence };
        page::seal(&mut self.engine.buffer(slot)[..self.spec.bytes], &label);
    }

    /// The requests of the free slots from `first` on have completed: reads are checked, writes are recorded, and the blocks are
    /// released.
    #[inline(never)]
    pub(super) fn verify(&mut self, first: usize) -> Result<()> {
        for &slot in &self.free[first..] {
            let slot = usize::from(slot);
            let (address, write) = (self.issued[slot].address(), self.issued[slot].writes());
            let version = self.board.version(address);
            if write {
                self.board.written(address, version + 1);
            } else {
                check_block(&self.engine.buffer(slot)[..self.spec.bytes], address, version)?;
            }
            self.held[slot] = None;
        }
        Ok(())
    }
}
