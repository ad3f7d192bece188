//! Drives the guest's virtual time: each iteration of a repeated move is given back to the counter, and the move's cost taken from it.
//!
//! QEMU's plugin API has no function for this. Translated code keeps the address of the CPU state in RBP, and calls a plugin's functions directly, so
//! these find it there. QEMU 7.2 also calls a move's function, from elsewhere, for accesses of other instructions that follow it: only an access
//! to the address in the move's register counts, with the state in RBP that blocks of that vCPU have there.
//!
//! A move's iterations within a page are executed at once (see [`hurry`]), because QEMU takes as long for each as for ten other instructions. The guest
//! cannot tell: memory, registers and time are those that the iterations would have left.
//!
//! Invariant: as for the rest of the plugin, one thread makes all these calls.

use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};

use crate::Weights;
use crate::icount::{Debt, Found, Search, WINDOW};
use crate::kernel;
use crate::memory::{Access, PAGE, Tables};
use crate::model;
use crate::plugin::{count_also, function, qemu_plugin_mem_is_store, qemu_plugin_mem_size_shift};
use crate::strings::{Meter, Move};

struct Clock {
    search: Search,
    /// Where the counter is, in bytes below the CPU state; 0 until it has been found.
    below: usize,
    /// Whether iterations are executed at once where they can be.
    hurries: bool,
    tables: Tables,
    vcpus: [Vcpu; VCPUS],
}

/// What is known of a vCPU. A move that is interrupted by another vCPU's turn shares nothing with that one's moves.
struct Vcpu {
    /// The CPU state, once known.
    state: *mut u8,
    meter: Meter,
    debt: Debt,
    last: Iteration,
}

impl Vcpu {
    const fn new(weights: Weights) -> Self {
        Self { state: core::ptr::null_mut(), meter: Meter::new(weights), debt: Debt::none(), last: Iteration::NONE }
    }
}

/// Most vCPUs of a machine of QEMU's for which moves are charged.
const VCPUS: usize = 256;

impl Clock {
    /// Takes `state` for that of the vCPU, of which a block says so.
    fn learn(&mut self, vcpu: c_uint, state: *mut u8) {
        if let Some(known) = self.vcpus.get_mut(vcpu as usize) {
            known.state = state;
        }
    }
}

/// The iteration executed last.
#[derive(Clone, Copy)]
struct Iteration {
    /// Of which instruction: its [`data`].
    data: usize,
    size: u64,
    /// Addresses that it read, of a copy, and wrote.
    from: u64,
    to: u64,
    /// RCX before it.
    count: u64,
}

impl Iteration {
    const NONE: Self = Self { data: 0, size: 0, from: 0, to: 0, count: 0 };
}

/// The registers at the beginning of the CPU state, in QEMU's order.
#[derive(Clone, Copy)]
#[repr(C)]
struct Registers {
    rax: u64,
    rcx: u64,
    rdx: u64,
    rbx: u64,
    rsp: u64,
    rbp: u64,
    rsi: u64,
    rdi: u64,
}

/// Addresses below are not taken for those of 32-bit or 64-bit code, the only ones in which a segment begins at 0 and registers do not wrap at 64 KiB.
const REAL_MODE: u64 = 2 << 20;

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
pub(crate) unsafe fn install(weights: Weights, hurries: bool) {
    let clock = Clock {
        search: Search::new(),
        below: 0,
        hurries,
        tables: Tables::new(),
        vcpus: core::array::from_fn(|_| Vcpu::new(weights)),
    };
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

/// Whether blocks that consist of a repeated move must call [`repeats`].
pub(crate) fn hurries() -> bool {
    // SAFETY: the reference ends here.
    unsafe { clock() }.is_some_and(|clock| clock.hurries)
}

/// What the callbacks of a repeated move get, given the number of the counter that counts its executions.
pub(crate) fn data(repeated: Move, counter: Option<usize>) -> usize {
    repeated.number() | counter.map_or(0, |number| number + 1) << 2
}

/// Counts a move as `cycles` more than its executions.
///
/// # Safety
/// No reference to the profile may live.
unsafe fn count(data: usize, cycles: i64) {
    if let Some(counter) = (data >> 2).checked_sub(1) {
        // SAFETY: the caller's word.
        unsafe { count_also(counter, cycles) };
    }
}

/// Where the CPU state of QEMU 7.2 has the operation from whose operands the flags follow, and the operation that has none: ZF and PF set.
const FLAGS_OPERATION: usize = 168;
const CLEAR: i32 = 49;
const ZF_AND_PF: u32 = 0x44;

/// Whether [`exchanges`] works in this QEMU. It is needed because QEMU 7.2 computes the flags that `cmpxchg8b` and `cmpxchg16b` keep from an operation
/// that may not be the last: then it takes an operand, such as a pointer, for the flags. They last only until the next comparison, but if the
/// vCPU's turn ends before, bits of that operand become its flags for good, the trap flag and that of interrupts among them, and the kernel dies.
pub(crate) fn flags_fit() -> bool {
    let Some(compute) = function(c"cpu_cc_compute_all") else { return false };
    let state = [0_u64; 1024];
    // SAFETY: QEMU's function of that name is one of that type, and reads the beginning of a CPU state.
    unsafe {
        let compute: unsafe extern "C" fn(*const u64, i32) -> u32 = core::mem::transmute(compute);
        compute(state.as_ptr(), CLEAR) == ZF_AND_PF
    }
}

unsafe extern "C" {
    /// To be called by translated code when it has begun a block, with the block's number of instructions.
    pub(crate) fn block_executed(vcpu: c_uint, instructions: *mut c_void);
    /// To be called by translated code when it has begun a block that ends with a repeated move, if there are several vCPUs.
    pub(crate) fn entered(vcpu: c_uint, data: *mut c_void);
    /// To be called by translated code when it has begun a block of nothing but a repeated move, with its [`data`].
    pub(crate) fn repeats(vcpu: c_uint, data: *mut c_void);
    /// To be called by translated code when a repeated move has read or written, with its [`data`].
    pub(crate) fn moved(vcpu: c_uint, access: u32, address: u64, data: *mut c_void);
    /// To be called by translated code before it compares and exchanges 8 or 16 bytes: gives the flags a defined value, see [`flags_fit`].
    pub(crate) fn exchanges(vcpu: c_uint, data: *mut c_void);
}

// They pass on the CPU state's address as another argument.
core::arch::global_asm!(
    ".hidden block_executed",
    ".hidden entered",
    ".hidden repeats",
    ".hidden moved",
    ".hidden exchanges",
    ".globl block_executed",
    "block_executed:",
    "mov rdx, rbp",
    "jmp {block_executed}",
    ".globl entered",
    "entered:",
    "mov rdx, rbp",
    "jmp {entered}",
    ".globl repeats",
    "repeats:",
    "mov rdx, rbp",
    "jmp {repeats}",
    ".globl moved",
    "moved:",
    "mov r8, rbp",
    "jmp {moved}",
    ".globl exchanges",
    "exchanges:",
    "mov dword ptr [rbp + {operation}], {clear}",
    "ret",
    operation = const FLAGS_OPERATION,
    clear = const CLEAR,
    block_executed = sym block_executed_with_state,
    entered = sym entered_with_state,
    repeats = sym repeats_with_state,
    moved = sym moved_with_state,
);

unsafe extern "C" fn block_executed_with_state(vcpu: c_uint, instructions: *mut c_void, state: *mut u8) {
    // SAFETY: no other reference lives while the guest executes.
    let Some(clock) = (unsafe { clock() }) else { return };
    clock.learn(vcpu, state);
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

unsafe extern "C" fn entered_with_state(vcpu: c_uint, _data: *mut c_void, state: *mut u8) {
    // SAFETY: no other reference lives while the guest executes.
    if let Some(clock) = unsafe { clock() } {
        clock.learn(vcpu, state);
    }
}

unsafe extern "C" fn moved_with_state(vcpu: c_uint, access: u32, address: u64, data: *mut c_void, state: *mut u8) {
    // SAFETY: no other reference lives while the guest executes.
    let Some(clock) = (unsafe { clock() }) else { return };
    if clock.below == 0 || state.is_null() {
        return;
    }
    let Some(this) = clock.vcpus.get_mut(vcpu as usize).filter(|this| this.state == state) else { return };
    let data = data.addr();
    let short_count = Move::from_number(data).short_count;
    let value = |register: u64| if short_count { u64::from(register as u32) } else { register };
    // SAFETY: QEMU's own functions; the CPU state begins with the registers, and the counter was found where it is. Translated code has stored the
    // registers before the access, which might have failed.
    unsafe {
        let Registers { rcx, rsi, rdi, .. } = *state.cast::<Registers>();
        let (writes, size) = (qemu_plugin_mem_is_store(access), 1 << qemu_plugin_mem_size_shift(access));
        if !writes {
            this.last.from = if address == value(rsi) { address } else { 0 };
            return;
        }
        if address != value(rdi) || value(rcx) == 0 {
            return;
        }
        let cycles = this.meter.iteration(size, value(rcx) == 1);
        let counter = state.sub(clock.below).cast::<u16>();
        counter.write(this.debt.charge(counter.read(), cycles));
        count(data, cycles as i64 - 1);
        model::charged(cycles);
        this.last = Iteration { data, size, to: address, count: rcx, ..this.last };
    }
}

unsafe extern "C" fn repeats_with_state(vcpu: c_uint, data: *mut c_void, state: *mut u8) {
    // SAFETY: no other reference lives while the guest executes; at the beginning of a block all registers are in the state.
    unsafe {
        let Some(clock) = clock() else { return };
        let Some(this) = clock.vcpus.get(vcpu as usize) else { return };
        if this.state == state && this.last.data == data.addr() && this.last.size > 0 && this.debt.is_paid() {
            hurry(clock, vcpu, &mut *state.cast::<Registers>());
        }
    }
}

/// Executes iterations that would follow the last one up to the end of its pages, but for the move's last and as far as QEMU would get without leaving
/// translated code: those for which translated code would write memory directly.
///
/// # Safety
/// The registers must be those of the vCPU that is executing now, at the beginning of a block of a repeated move.
unsafe fn hurry(clock: &mut Clock, vcpu: c_uint, registers: &mut Registers) {
    let Clock { vcpus, tables, below, .. } = clock;
    let Some(Vcpu { state, meter, last, .. }) = vcpus.get_mut(vcpu as usize) else { return };
    let (state, Iteration { size, data, from, to, count: before }) = (*state, *last);
    let repeated = Move::from_number(data);
    // The same move goes on, forwards.
    let follows = registers.rcx > 1
        && !repeated.short_count
        && registers.rcx.wrapping_add(1) == before
        && registers.rdi == to.wrapping_add(size)
        && (!repeated.copies || registers.rsi == from.wrapping_add(size) && from >= REAL_MODE)
        && to >= REAL_MODE;
    if !follows {
        return;
    }
    let room = |address: u64| ((PAGE - address % PAGE) / size).saturating_sub(1);
    let mut iterations = (registers.rcx - 1).min(room(to));
    if repeated.copies {
        iterations = iterations.min(room(from));
    }
    if iterations == 0 {
        return;
    }
    let (bytes, step) = ((iterations * size) as usize, size as usize);
    // SAFETY: the caller's word; all these bytes lie in the pages of the last iteration, which translated code may access directly, as the tables say.
    unsafe {
        let Some(to) = tables.host(state, to, Access::Write) else { return };
        let from = match repeated.copies {
            true => tables.host(state, from, Access::Read),
            // What was written last is written again.
            false => Some(to),
        };
        let Some(from) = from else { return };
        // An iteration would read what one before it wrote.
        if repeated.copies && to.addr().wrapping_sub(from.addr()) < bytes + step {
            return;
        }
        let counter = state.sub(*below).cast::<u16>();
        let Some(cycles) = meter.iterations(iterations, size, u64::from(counter.read())) else { return };
        counter.write(counter.read() - cycles as u16);
        count(data, cycles as i64);
        model::charged(cycles);
        let from_there = repeated.copies.then_some(registers.rsi);
        model::moved(vcpu, (from_there, registers.rdi), size, iterations);
        match (repeated.copies, step) {
            (true, _) => core::ptr::copy(from.add(step), to.add(step), bytes),
            (false, 1) => core::ptr::write_bytes(to.add(step), to.read(), bytes),
            (false, _) => (1..=iterations as usize).for_each(|n| core::ptr::copy(to, to.add(n * step), step)),
        }
    }
    registers.rcx -= iterations;
    registers.rdi += bytes as u64;
    if repeated.copies {
        registers.rsi += bytes as u64;
    }
}
