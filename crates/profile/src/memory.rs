//! Guest memory as translated code reaches it: through the tables in which QEMU keeps the host addresses of the pages that a vCPU used last, one table
//! for each kind of access (kernel, user …).
//!
//! A pair of words below the CPU state, a mask and a table's address, describes each table; entries have 32 bytes and contain the guest addresses
//! that may be read and written there without further ado, and what to add for the host's address. It has been so since QEMU 4.0, but the pairs
//! are not always as far below the state: they are searched when they are needed.
//!
//! Invariant: an address is passed on only where translated code would access it directly, too.

use crate::kernel;

pub(crate) const PAGE: u64 = 4096;

/// Bytes below the CPU state that are searched.
const WINDOW: usize = 1024;

/// Most kinds of access.
const KINDS: usize = 16;

/// Most searches, so that a QEMU without such tables is not searched for ever.
const SEARCHES: u32 = 4096;

#[derive(Clone, Copy)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The tables.
pub(crate) struct Tables {
    /// Where the pairs are, in bytes below the CPU state.
    below: [usize; KINDS],
    known: usize,
    searches: u32,
}

impl Tables {
    pub(crate) const fn new() -> Self {
        Self { below: [0; KINDS], known: 0, searches: 0 }
    }

    /// The host's address of the guest's `address`, which the vCPU with that state has just accessed.
    ///
    /// # Safety
    /// `state` must be the CPU state, and its thread the caller.
    pub(crate) unsafe fn host(&mut self, state: *const u8, address: u64, access: Access) -> Option<*mut u8> {
        // SAFETY: the caller's word; known pairs are of QEMU's tables, and an entry lies in its table.
        let entry = |below: &usize| unsafe {
            let [mask, table] = state.sub(*below).cast::<[u64; 2]>().read();
            core::ptr::with_exposed_provenance::<[u64; 4]>((table + place(mask, address)) as usize).read()
        };
        let known = self.below[..self.known].iter().map(entry).find_map(|entry| reached(entry, address, access));
        // SAFETY: the caller's word.
        known
            .or_else(|| unsafe { self.search(state, address, access) })
            .map(|at| core::ptr::with_exposed_provenance_mut(at as usize))
    }

    /// Looks for another pair.
    ///
    /// # Safety
    /// As for [`Tables::host`].
    #[cold]
    unsafe fn search(&mut self, state: *const u8, address: u64, access: Access) -> Option<u64> {
        if self.searches == SEARCHES || self.known == KINDS {
            return None;
        }
        self.searches += 1;
        for below in (16..=WINDOW).step_by(8) {
            // SAFETY: more than this of QEMU's own lies below the state.
            let [mask, table] = unsafe { state.sub(below).cast::<[u64; 2]>().read() };
            let is_pair = mask & 31 == 0 && (mask >> 5).count_ones() == (mask >> 5).trailing_ones() && mask >> 32 == 0;
            if !is_pair || mask == 0 || table & 7 != 0 || self.below[..self.known].contains(&below) {
                continue;
            }
            let Some(entry) = table.checked_add(place(mask, address)).and_then(kernel::peek::<4>) else { continue };
            let Some(at) = reached(entry, address, access).filter(|at| kernel::peek::<1>(at & !7).is_some()) else {
                continue;
            };
            self.below[self.known] = below;
            self.known += 1;
            return Some(at);
        }
        None
    }
}

/// The place of an address's entry in its table, in bytes.
fn place(mask: u64, address: u64) -> u64 {
    (address / PAGE * size_of::<[u64; 4]>() as u64) & mask
}

/// The host's address by an entry, if it is of the address's page, which then has no other flags.
fn reached([read, write, _, add]: [u64; 4], address: u64, access: Access) -> Option<u64> {
    let page = match access {
        Access::Read => read,
        Access::Write => write,
    };
    (page == address & !(PAGE - 1)).then(|| address.wrapping_add(add))
}
