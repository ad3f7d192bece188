//! Drives the guest's virtual time: each iteration of a repeated move is given back to the counter, and the move's cost taken from it.
//!
//! QEMU's plugin API has no function for this. Translated code keeps the address of the CPU state in RBP, and calls a plugin's functions directly, so
//! these find it there.
//!
//! Invariant: as for the rest of the plugin, one thread makes all these calls.

use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};

use crate::icount::{Debt, Found, Search, WINDOW};
use crate::kernel;
use crate::plugin::{qemu_plugin_mem_is_store, qemu_plugin_mem_size_shift};
use crate::strings::{Count, Meter, Weights};

struct Clock {
    meter: Meter,
    debt: Debt,
    search: Search,
    /// Where the counter is, in bytes below the CPU state; 0 until it has been found.
    below: usize,
}

struct Shared(UnsafeCell<Option<Clock>>);

// SAFETY: one thread uses it, see above.
unsafe impl Sync for Shared {}

static CLOCK: Shared = Shared(UnsafeCell::new(None));

/// # Safety
/// No other reference to it may live.
unsafe fn clock() -> Option<&'static mut Clock> {
    // SAFETY: the caller's word.
    unsafe { (*CLOCK.0.get()).as_mut() }
}

/// Moves are charged with these weights from when the counter has been found.
///
/// # Safety
/// No other function of this module may be running.
pub(crate) unsafe fn install(weights: Weights) {
    let clock = Clock { meter: Meter::new(weights), debt: Debt::none(), search: Search::new(), below: 0 };
    // SAFETY: the caller's word.
    unsafe { *CLOCK.0.get() = Some(clock) };
}

pub(crate) fn is_installed() -> bool {
    // SAFETY: the reference ends here.
    unsafe { clock() }.is_some()
}

/// Whether blocks must still call [`block_executed`].
pub(crate) fn searches() -> bool {
    // SAFETY: the reference ends here.
    unsafe { clock() }.is_some_and(|clock| clock.below == 0)
}

unsafe extern "C" {
    /// To be called by translated code when it has begun a block, with the block's number of instructions.
    pub(crate) fn block_executed(vcpu: c_uint, instructions: *mut c_void);
    /// To be called by translated code when a repeated move has written, with the move's [`Count`].
    pub(crate) fn moved(vcpu: c_uint, access: u32, address: u64, count: *mut c_void);
}

// They pass on the CPU state's address as another argument.
core::arch::global_asm!(
    ".hidden block_executed",
    ".hidden moved",
    ".globl block_executed",
    "block_executed:",
    "mov rdx, rbp",
    "jmp {block_executed}",
    ".globl moved",
    "moved:",
    "mov r8, rbp",
    "jmp {moved}",
    block_executed = sym block_executed_with_state,
    moved = sym moved_with_state,
);

unsafe extern "C" fn block_executed_with_state(vcpu: c_uint, instructions: *mut c_void, state: *mut u8) {
    // SAFETY: no other reference lives while the guest executes.
    let Some(clock) = (unsafe { clock() }) else { return };
    if clock.below != 0 || vcpu != 0 {
        return;
    }
    // SAFETY: more than this of QEMU's own lies below the state.
    let now = unsafe { &*state.sub(size_of::<[u16; WINDOW]>()).cast::<[u16; WINDOW]>() };
    match clock.search.block(now, instructions.addr() as u16) {
        Found::NotYet => {}
        Found::Below(bytes) => clock.below = bytes,
        Found::Nothing => {
            kernel::write(2, b"bigiron-profile: this QEMU keeps its count of instructions where it cannot be found\n");
            kernel::exit(1);
        }
    }
}

unsafe extern "C" fn moved_with_state(_vcpu: c_uint, access: u32, _address: u64, count: *mut c_void, state: *mut u8) {
    // SAFETY: no other reference lives while the guest executes.
    let Some(clock) = (unsafe { clock() }) else { return };
    // QEMU 7.2 calls it for the reads of a `movs` too.
    // SAFETY: QEMU's own function.
    if clock.below == 0 || !unsafe { qemu_plugin_mem_is_store(access) } {
        return;
    }
    // SAFETY: the CPU state begins with its general registers, of which RCX is the second; the counter was found where it is. Translated code has
    // stored the registers before the access, which might have failed.
    unsafe {
        let rcx = state.add(8).cast::<u64>().read();
        let last = if count.addr() == Count::Low as usize { rcx as u32 == 1 } else { rcx == 1 };
        let cycles = clock.meter.iteration(1 << qemu_plugin_mem_size_shift(access), last);
        let counter = state.sub(clock.below).cast::<u16>();
        counter.write(clock.debt.charge(counter.read(), cycles));
    }
}
