//! The request that a slot of the engine has in flight.
//!
//! Invariant: numbers of files are below 2^31, because the highest bit says whether the request is a write.

use super::super::super::block::Address;

/// A slot's request, in as few bytes as possible: memory that a batch touches displaces the kernel's from the CPU's caches.
#[derive(Clone, Copy)]
pub(super) struct Issued {
    /// When it was submitted, in ticks.
    pub(super) start: u64,
    block: u32,
    /// The file, and in the highest bit whether it is a write.
    file: u32,
}

impl Issued {
    const WRITE: u32 = 1 << 31;

    #[inline]
    pub(super) fn new(address: Address, write: bool, start: u64) -> Self {
        Self { start, block: address.block, file: address.file | if write { Self::WRITE } else { 0 } }
    }

    #[inline]
    pub(super) fn address(self) -> Address {
        Address { file: self.file & !Self::WRITE, block: self.block }
    }

    #[inline]
    pub(super) fn writes(self) -> bool {
        self.file & Self::WRITE != 0
    }
}
