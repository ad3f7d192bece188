//! Whether code is translated with what counts.
//!
//! A change takes effect when the vCPU leaves the block that executes the mark: QEMU then drops all callbacks and all translated code, as it does when
//! its room for code is full.
//!
//! Invariant: one thread makes all these calls.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::plugin::Id;

unsafe extern "C" {
    /// Before version 7 of the interface it takes no data, and does not look at the register in which they are.
    fn qemu_plugin_reset(id: Id, then: unsafe extern "C" fn(), data: *mut c_void);
}

static ID: AtomicU64 = AtomicU64::new(0);
static INSTRUMENTED: AtomicBool = AtomicBool::new(false);

/// The number by which QEMU knows this plugin.
pub(crate) fn id() -> Id {
    ID.load(Ordering::Relaxed)
}

pub(crate) fn install(id: Id) {
    ID.store(id, Ordering::Relaxed);
}

pub(crate) fn is_instrumented() -> bool {
    INSTRUMENTED.load(Ordering::Relaxed)
}

/// Has all code translated again, with what counts or without; `register` registers the callbacks for it.
///
/// # Safety
/// The guest must be executing.
pub(crate) unsafe fn change(instrumented: bool, register: unsafe extern "C" fn()) {
    if INSTRUMENTED.swap(instrumented, Ordering::Relaxed) != instrumented {
        // SAFETY: the caller's word; QEMU calls it when nothing executes.
        unsafe { qemu_plugin_reset(id(), register, core::ptr::null_mut()) };
    }
}
