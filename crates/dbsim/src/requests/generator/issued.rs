//! The request that a slot of the engine has in flight.
//!
//! Invariant: numbers of files are below 2^31, since the highest bit says whether the request is a write.

use super::super::super::block::Address;

/// A slot's request, in as few bytes as can be: what a batch touches is what the kernel finds missing in the CPU's caches.
#[derive(Clone, Copy)]
pub(super) struct Issued {
    /// When it was handed over, in ticks.
    pub(super) start: u64,
    block: u32,
    /// The file, and in the highest bit whether it is written.
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
