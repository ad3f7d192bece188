//! The guest's memory and page tables, as they lie in QEMU's memory.

use crate::mapping;
use crate::page_table::{self, Walk};

/// Most NUMA nodes.
pub(crate) const NODES: usize = 16;
/// Bytes of the CPU state in which CR3 is searched, and accesses by which it is.
pub(crate) const STATE: usize = 4096;
const ACCESSES: u32 = 512;
/// Guest memory beyond the hole below 4 GiB lies there, and what lies below it, where memory is so large that there is a hole (QEMU's machine `pc`).
const HOLE_END: u64 = 4 << 30;
const BELOW_HOLE: u64 = 3 << 30;
const WITH_HOLE: u64 = 0xe000_0000;

/// How far the search for CR3 is.
pub(crate) enum Cr3 {
    /// It was not found: nothing is modelled.
    Nowhere,
    /// Offsets in the CPU state that fitted all accesses so far, as bits by words.
    Searched {
        fits: [bool; STATE / 8],
        accesses: u32,
        tries: u32,
    },
    At(usize),
}

/// The guest's memory in QEMU's, and its CR3.
pub(crate) struct Guest {
    /// The state of the vCPU that is executing.
    pub(crate) state: *const u8,
    pub(crate) cr3: Cr3,
    pub(crate) memory_bytes: u64,
    pub(crate) node_bytes: u64,
    /// Where each node's memory lies, once known.
    pub(crate) nodes: [Option<*const u8>; NODES],
}

impl Guest {
    pub(crate) fn may_be_walked(&self) -> bool {
        !matches!(self.cr3, Cr3::Nowhere)
    }

    /// The place of a physical address in QEMU's memory.
    fn host(&self, physical: u64) -> Option<*const u8> {
        let offset = match physical {
            p if self.memory_bytes < WITH_HOLE || p < BELOW_HOLE => p,
            p => p.checked_sub(HOLE_END)? + BELOW_HOLE,
        };
        if offset >= self.memory_bytes {
            return None;
        }
        let base = (*self.nodes.get((offset / self.node_bytes) as usize)?)?;
        Some(base.wrapping_add((offset % self.node_bytes) as usize))
    }

    fn walk_from(&self, cr3: u64, address: u64) -> Option<Walk> {
        page_table::walk(cr3, address, |at| {
            let at = self.host(at)?;
            // SAFETY: it is a word of the guest's memory, which QEMU has mapped.
            Some(unsafe { at.cast::<u64>().read() })
        })
    }

    pub(crate) fn walk(&self, address: u64) -> Option<Walk> {
        let Cr3::At(offset) = self.cr3 else { return None };
        // SAFETY: CR3 was found there, in the state of a vCPU.
        self.walk_from(unsafe { self.state.add(offset).cast::<u64>().read() }, address)
    }

    /// Learns from an access where memory and CR3 are: QEMU says that `address` is `offset` bytes from the start of all memory, and `host` is where
    /// translated code has accessed it. Tells whether all is known now.
    pub(crate) fn learn(&mut self, address: u64, offset: u64, host: *const u8) -> bool {
        // QEMU adds a node's place to that of its memory.
        let node = match self.node_bytes < self.memory_bytes {
            true => offset / (2 * self.node_bytes),
            false => 0,
        };
        let Some(base) = self.nodes.get_mut(node as usize) else { return false };
        let start = match *base {
            Some(start) if (host as u64).wrapping_sub(start as u64) < self.node_bytes => start as u64,
            _ => match mapping::anonymous(host as u64) {
                Some((start, bytes)) if bytes == self.node_bytes => start,
                // Another device's memory, or a file that the guest sees as persistent memory.
                _ => return false,
            },
        };
        *base = Some(core::ptr::with_exposed_provenance(start as usize));
        // Page tables may be in any of them.
        let n_nodes = self.memory_bytes.div_ceil(self.node_bytes) as usize;
        if self.nodes.iter().take(n_nodes).any(Option::is_none) {
            return false;
        }
        let physical = node * self.node_bytes + (host as u64 - start);
        let state = self.state;
        let mut cr3 = core::mem::replace(&mut self.cr3, Cr3::At(0));
        if let Cr3::Searched { fits, accesses, .. } = &mut cr3 {
            for (n, fits) in fits.iter_mut().enumerate().filter(|(_, fits)| **fits) {
                // SAFETY: the CPU state is larger.
                let word = unsafe { state.add(8 * n).cast::<u64>().read() };
                let walked = (word & 0xfff & !0x18 == 0 && word != 0).then(|| self.walk_from(word, address)).flatten();
                *fits = walked.is_some_and(|walk| self.host(walk.page.physical(address)) == self.host_of(physical));
            }
            *accesses += 1;
            let first = fits.iter().position(|fits| *fits);
            match first {
                Some(n) if *accesses == ACCESSES => cr3 = Cr3::At(8 * n),
                Some(_) => {}
                None => cr3 = Cr3::Nowhere,
            }
        }
        self.cr3 = cr3;
        matches!(self.cr3, Cr3::At(_))
    }

    /// The place of a byte of all memory, without holes.
    fn host_of(&self, offset: u64) -> Option<*const u8> {
        let base = (*self.nodes.get((offset / self.node_bytes) as usize)?)?;
        Some(base.wrapping_add((offset % self.node_bytes) as usize))
    }
}
