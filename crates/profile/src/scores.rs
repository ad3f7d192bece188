//! Counters as QEMU keeps them from 9.0 on: one for each vCPU, in scoreboards that the plugin creates and translated code adds to.
//!
//! A scoreboard initially has room for 16 vCPUs and is zeroed as a whole, so there is not one for all counters but as many as needed.
//!
//! Invariant: counter `n` of the table is number `n % GROUP` in scoreboard `n / GROUP`.

use core::ffi::{c_int, c_uint, c_void};

use crate::plugin::{Instruction, function};
use crate::table::Table;

/// Counters in a scoreboard: 4 MiB.
const GROUP: usize = 32 << 10;

/// Most scoreboards: enough for all counters of the table.
const SCOREBOARDS: usize = 128;

/// A number in a scoreboard, `qemu_plugin_u64`.
#[repr(C)]
struct Entry {
    scoreboard: *mut c_void,
    offset: usize,
}

type New = unsafe extern "C" fn(usize) -> *mut c_void;
type Find = unsafe extern "C" fn(*mut c_void, c_uint) -> *mut c_void;
type Add = unsafe extern "C" fn(*mut Instruction, c_int, Entry, u64);

/// The scoreboards.
pub(crate) struct Scores {
    new: New,
    find: Find,
    add: Add,
    made: [*mut c_void; SCOREBOARDS],
    /// Number of vCPUs of the machine.
    vcpus: u32,
}

impl Scores {
    /// Creates the list, without a scoreboard yet, for a machine with `vcpus` vCPUs; `None` if this QEMU has no scoreboards.
    pub(crate) fn new(vcpus: u32) -> Option<Self> {
        let [new, find, add] = [
            c"qemu_plugin_scoreboard_new",
            c"qemu_plugin_scoreboard_find",
            c"qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu",
        ]
        .map(function);
        // SAFETY: QEMU's functions of these names are of these types.
        unsafe {
            Some(Self {
                new: core::mem::transmute::<*mut c_void, New>(new?),
                find: core::mem::transmute::<*mut c_void, Find>(find?),
                add: core::mem::transmute::<*mut c_void, Add>(add?),
                made: [core::ptr::null_mut(); SCOREBOARDS],
                vcpus,
            })
        }
    }

    /// Makes each execution of `instruction` apply `op` with 1 to the counter with that number.
    ///
    /// # Safety
    /// QEMU must be translating the instruction now.
    pub(crate) unsafe fn add(&mut self, instruction: *mut Instruction, op: c_int, number: usize) {
        let Some(scoreboard) = self.made.get_mut(number / GROUP) else { return };
        // SAFETY: QEMU's own functions, called while it translates; the number lies in the scoreboard.
        unsafe {
            if scoreboard.is_null() {
                *scoreboard = (self.new)(GROUP * size_of::<u64>());
            }
            let offset = number % GROUP * size_of::<u64>();
            (self.add)(instruction, op, Entry { scoreboard: *scoreboard, offset }, 1);
        }
    }

    /// Where the first vCPU's counter of that number is, if it was ever asked for, and how far from there each further vCPU's is, in bytes. It moves
    /// only when the machine gets another vCPU.
    ///
    /// # Safety
    /// The caller must be the thread that runs the vCPUs.
    pub(crate) unsafe fn place(&self, number: usize) -> Option<(*const u64, usize)> {
        let scoreboard = self.made.get(number / GROUP).filter(|made| !made.is_null())?;
        // SAFETY: QEMU's own function; the number lies in the vCPU's part of the scoreboard.
        let first = unsafe { (self.find)(*scoreboard, 0).cast::<u64>().add(number % GROUP) };
        Some((first, GROUP * size_of::<u64>()))
    }

    /// Passes the counts so far to the table.
    pub(crate) fn gather(&self, table: &mut Table) {
        table.gather(GROUP, &mut |group, add| {
            let Some(scoreboard) = self.made.get(group).filter(|made| !made.is_null()) else { return };
            for vcpu in 0..self.vcpus {
                // SAFETY: QEMU's own function; a vCPU's part of the scoreboard is as long as it was asked for, and only this thread adds to it.
                let counts =
                    unsafe { core::slice::from_raw_parts((self.find)(*scoreboard, vcpu).cast::<u64>(), GROUP) };
                counts.iter().enumerate().filter(|(_, count)| **count > 0).for_each(|(at, count)| add(at, *count));
            }
        });
    }
}
