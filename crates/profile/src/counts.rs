//! How translated code counts executions: inline, in the table itself or in scoreboards, by the version of QEMU's plugin API.
//!
//! Invariant: an instruction adds 1 to its counter when it begins to execute, also if it then causes an exception.

use core::ffi::{c_int, c_void};

use crate::plugin::{Instruction, function};
use crate::scores::Scores;
use crate::table::Table;

/// `qemu_plugin_register_vcpu_insn_exec_inline`, which exists only in version 1 of the API.
type Inline = unsafe extern "C" fn(*mut Instruction, c_int, *mut c_void, u64);

/// `QEMU_PLUGIN_INLINE_ADD_U64`.
const ADD_U64: c_int = 0;

pub(crate) enum Counts {
    Inline(Inline),
    Scores(Scores),
}

impl Counts {
    /// For a machine with that many vCPUs; `None` if this QEMU supports neither way.
    pub(crate) fn find(vcpus: u32) -> Option<Self> {
        if let Some(scores) = Scores::new(vcpus) {
            return Some(Counts::Scores(scores));
        }
        let inline = function(c"qemu_plugin_register_vcpu_insn_exec_inline")?;
        // SAFETY: QEMU's function of that name is one of that type.
        Some(Counts::Inline(unsafe { core::mem::transmute::<*mut c_void, Inline>(inline) }))
    }

    /// Has each execution of an instruction add to the counter with that number.
    ///
    /// # Safety
    /// QEMU must be translating the instruction now.
    pub(crate) unsafe fn add(&mut self, instruction: *mut Instruction, number: usize, table: &mut Table) {
        // SAFETY: the caller's word; a counter never moves.
        unsafe {
            match self {
                Counts::Inline(add) => add(instruction, ADD_U64, table.executed(number).cast(), 1),
                Counts::Scores(scores) => scores.add(instruction, ADD_U64, number),
            }
        }
    }

    /// Where the first vCPU's code adds to a counter, if it does, and how many bytes from there each further vCPU's code does.
    ///
    /// # Safety
    /// The caller must be the thread that runs the vCPUs.
    pub(crate) unsafe fn place(&self, number: usize, table: &mut Table) -> Option<(*const u64, usize)> {
        match self {
            Counts::Inline(_) => Some((table.executed(number), 0)),
            // SAFETY: the caller's word.
            Counts::Scores(scores) => unsafe { scores.place(number) },
        }
    }
}
