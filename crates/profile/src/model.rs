//! Feeds modelled cores with what the guest executes: blocks, accesses to memory, and moves.
//!
//! The plugin API tells virtual addresses. Physical ones, and the sizes of pages, are in the guest's page tables, which are read in QEMU's memory as a
//! processor's walker reads them. For that, two things are searched before the first window begins: where guest memory lies in QEMU's, as the mapping of
//! its size that contains an access; and CR3 in the CPU state, as the word by which walks arrive where the accesses do. The accesses for that are looked
//! up in QEMU's own TLB, whose size depends on the host's time: the search is over before the model runs, as a rule, so that counts do not depend on it.
//!
//! The model runs in samples from the first window's beginning on, and counts in windows alone.
//!
//! Invariant: the guest is only looked at; one thread makes all these calls.

use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::blocks::Blocks;
use crate::events::Event;
use crate::geometry::LINE;
use crate::guest::{Cr3, Guest, NODES, STATE};
use crate::kernel;
use crate::memory::{Access, Tables};
use crate::page_table::Walk;
use crate::plugin::{self, Block, Instruction};
use crate::processor::{Core, Need, Shared, World};
use crate::rows::{Counted, Rows};
use crate::sampler::{Mode, Sampler};
use crate::shape::Shape;
use crate::straight::{Part, Straight};

/// Most cores; further vCPUs share the last one.
const CORES: usize = 64;
/// Most addresses at which blocks begin that a window executes.
const ROWS: usize = 1 << 20;
/// Most accesses that are looked at: those of other devices' memory do not help.
const TRIES: u32 = 1 << 20;

/// When the model runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first window has not begun.
    Before,
    Between,
    Window,
}

struct Model {
    phase: Phase,
    cores: [Option<&'static mut Core>; CORES],
    straight: [Straight; CORES],
    /// The core that executes.
    current: usize,
    shared: Shared,
    rows: Rows,
    sampler: Sampler,
    mode: Mode,
    /// The block that is executing, by its counter and start.
    block: (usize, u64),
    blocks: Blocks,
    tables: Tables,
    guest: Guest,
}

struct Global(UnsafeCell<Option<Model>>);

// SAFETY: one thread uses it, see above.
unsafe impl Sync for Global {}

static MODEL: Global = Global(UnsafeCell::new(None));

/// # Safety
/// No other reference to it may live.
unsafe fn model() -> Option<&'static mut Model> {
    // SAFETY: the caller's word.
    unsafe { (*MODEL.0.get()).as_mut() }
}

/// Models a machine with `memory_bytes` of memory in `nodes` nodes; `None` without memory for the model.
///
/// # Safety
/// No other function of this module may be running.
pub(crate) unsafe fn install(memory_bytes: u64, nodes: u64, counters: usize) -> Option<()> {
    let node_bytes = memory_bytes / nodes.clamp(1, NODES as u64);
    // SAFETY: zeros are such rows, and numbers.
    let (rows, of_counter, touched) =
        unsafe { (kernel::zeroed::<Counted>(ROWS)?, kernel::zeroed::<u32>(counters)?, kernel::zeroed::<u32>(ROWS)?) };
    let guest = Guest {
        state: core::ptr::null(),
        cr3: Cr3::Searched { fits: [true; STATE / 8], accesses: 0, tries: 0 },
        memory_bytes,
        node_bytes,
        nodes: [None; NODES],
    };
    let model = Model {
        phase: Phase::Before,
        cores: [const { None }; CORES],
        straight: [const { Straight::new() }; CORES],
        current: 0,
        shared: Shared::new(if nodes > 1 { node_bytes } else { 0 })?,
        rows: Rows::new(rows, of_counter, touched),
        sampler: Sampler::new(),
        mode: Mode::Off,
        block: (0, 0),
        blocks: Blocks::new()?,
        tables: Tables::new(),
        guest,
    };
    model.look();
    // SAFETY: the caller's word.
    unsafe { *MODEL.0.get() = Some(model) };
    Some(())
}

/// A window begins or ends.
///
/// # Safety
/// No reference to the model may live.
pub(crate) unsafe fn window(open: bool) {
    // SAFETY: the caller's word.
    if let Some(model) = unsafe { model() } {
        if open {
            model.sampler.begin();
        }
        model.phase = match open {
            true => Phase::Window,
            false if model.phase == Phase::Before => Phase::Before,
            false => Phase::Between,
        };
        model.look();
    }
}

/// Code is no longer translated with calls of the model.
///
/// # Safety
/// No reference to the model may live.
pub(crate) unsafe fn rest() {
    // SAFETY: the caller's word.
    if let Some(model) = unsafe { model() } {
        model.mode = Mode::Off;
        model.look();
    }
}

/// Outputs the counts since the last cut, no rows if nothing is modelled.
///
/// # Safety
/// No reference to the model may live.
pub(crate) unsafe fn cut(word: &mut dyn FnMut(u64)) {
    // SAFETY: the caller's word.
    match unsafe { model() } {
        // Until page tables are known, addresses are not physical ones.
        Some(Model { guest: Guest { cr3: Cr3::Nowhere | Cr3::Searched { .. }, .. }, rows, sampler, .. }) => {
            rows.cut(&mut |_| {});
            sampler.cut();
            (0..3).for_each(|_| word(0));
        }
        Some(model) if !model.rows.full && !model.blocks.is_full() => {
            model.rows.cut(word);
            let (total, counted) = model.sampler.cut();
            word(total);
            word(counted);
        }
        Some(_) => word(crate::OVERFLOW),
        None => (0..3).for_each(|_| word(0)),
    }
}

/// Has a block and its accesses tell the model of their execution.
///
/// # Safety
/// QEMU must be translating the block now.
pub(crate) unsafe fn translated(block: *mut Block) {
    // SAFETY: the caller's word; the callbacks run later, with a shape that never moves.
    unsafe {
        let Some(model) = model() else { return };
        let mut shape = Shape::new(plugin::qemu_plugin_insn_vaddr(plugin::qemu_plugin_tb_get_insn(block, 0)));
        for k in 0..plugin::qemu_plugin_tb_n_insns(block) {
            let instruction: *mut Instruction = plugin::qemu_plugin_tb_get_insn(block, k);
            let Some(counter) = plugin::counter(instruction) else { return };
            let (bytes, size) = plugin::bytes(instruction);
            let event = shape.add(plugin::qemu_plugin_insn_vaddr(instruction), &bytes[..size], counter);
            if let Some(event) = event {
                // Of the instruction, because an exception may end the block before it.
                let data = core::ptr::without_provenance_mut(event as usize);
                plugin::qemu_plugin_register_vcpu_insn_exec_cb(instruction, happened, plugin::NO_REGISTERS, data);
            }
            let is_move = crate::strings::Move::of(&bytes[..size]).is_some();
            plugin::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                accessed,
                plugin::NO_REGISTERS,
                plugin::READS_AND_WRITES,
                core::ptr::without_provenance_mut(usize::from(is_move)),
            );
        }
        let Some(place) = plugin::place_of(shape.last_counter) else { return };
        shape.counted_at(place);
        let Some(shape) = model.blocks.translated(shape) else { return };
        let data = core::ptr::from_ref(shape).cast_mut();
        plugin::qemu_plugin_register_vcpu_tb_exec_cb(block, executed, plugin::NO_REGISTERS, data.cast());
    }
}

/// Whether accesses are looked at: most are not, so this is asked before a function is called.
static LOOKS: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// To be called by translated code when it has begun a block, with its shape.
    fn executed(vcpu: c_uint, shape: *mut c_void);
    /// To be called by translated code when it has accessed memory; not null says that a repeated move has.
    fn accessed(vcpu: c_uint, access: u32, address: u64, is_move: *mut c_void);
}

// The first passes on the CPU state's address as another argument.
core::arch::global_asm!(
    ".hidden executed",
    ".hidden accessed",
    ".globl executed",
    "executed:",
    "mov rdx, rbp",
    "jmp {executed}",
    ".globl accessed",
    "accessed:",
    "cmp byte ptr [rip + {looks}], 0",
    "jne {accessed}",
    "ret",
    looks = sym LOOKS,
    executed = sym executed_with_state,
    accessed = sym accessed_and_seen,
);

/// What a core works in.
struct View<'a> {
    guest: &'a Guest,
    rows: &'a mut Rows,
    /// The block that is executing, by its counter and start; none outside of windows.
    block: Option<(usize, u64)>,
}

impl World for View<'_> {
    fn walk(&mut self, address: u64) -> Option<Walk> {
        self.guest.walk(address)
    }

    fn register(&mut self, number: u8) -> u64 {
        // At the beginning of a block all registers are in the state, which begins with them.
        // SAFETY: there are sixteen.
        unsafe { self.guest.state.cast::<u64>().add(usize::from(number & 15)).read() }
    }

    fn count(&mut self, place: usize) {
        if let Some((counter, address)) = self.block
            && let Some(row) = self.rows.of(counter, address)
        {
            row[place] += 1;
        }
    }
}

/// Not a part of what calls it often: a core needs a large part of a stack until it is in its place.
#[cold]
#[inline(never)]
fn make_core() -> Option<&'static mut Core> {
    // SAFETY: it is written before it is read.
    let room = unsafe { kernel::zeroed::<MaybeUninit<Core>>(1) }?;
    Some(room[0].write(Core::new()?))
}

impl Model {
    /// A vCPU's core, and what it works in.
    #[inline]
    fn split(&mut self, vcpu: c_uint) -> Option<(&mut Core, &mut Shared, View<'_>)> {
        let core = &mut self.cores[(vcpu as usize).min(CORES - 1)];
        if core.is_none() {
            *core = make_core();
        }
        let block = (self.phase == Phase::Window && self.mode != Mode::Warming).then_some(self.block);
        Some((core.as_mut()?, &mut self.shared, View { guest: &self.guest, rows: &mut self.rows, block }))
    }

    /// Settles whether accesses are looked at.
    fn look(&self) {
        let looks = match self.guest.cr3 {
            Cr3::Searched { .. } => true,
            Cr3::At(_) => self.phase != Phase::Before && self.mode != Mode::Off,
            Cr3::Nowhere => false,
        };
        LOOKS.store(looks, Ordering::Relaxed);
    }

    /// Counts an event of the block that is executing, in windows.
    fn add(&mut self, place: usize, n: u64) {
        if self.phase == Phase::Window
            && self.guest.may_be_walked()
            && let Some(row) = self.rows.of(self.block.0, self.block.1)
        {
            row[place] += n;
        }
    }

    #[inline]
    fn access(&mut self, vcpu: c_uint, address: u64, bytes: u64, need: Need) {
        if let Some((core, shared, mut view)) = self.split(vcpu) {
            core.touch_all(shared, &mut view, (address, address + bytes - 1), need);
        }
    }
}

unsafe extern "C" fn executed_with_state(vcpu: c_uint, shape: *const Shape, state: *const u8) {
    // SAFETY: no other reference lives while the guest executes; the shape was made for this block, and stays.
    let (model, shape) = unsafe {
        match model() {
            Some(model) if model.guest.may_be_walked() => (model, &*shape),
            _ => return,
        }
    };
    model.guest.state = state;
    if model.phase == Phase::Before {
        return;
    }
    let core = (vcpu as usize).min(CORES - 1);
    if core != model.current {
        model.straight[model.current].pause(model.current);
        model.current = core;
    }
    let (part, before, unrolled) = model.straight[core].block(shape, core);
    if part == Part::Rest {
        return;
    }
    if part == Part::First {
        let mode = model.sampler.arrival(model.phase == Phase::Window);
        if mode != model.mode {
            model.mode = mode;
            model.look();
        }
        if unrolled.instructions > 0 {
            model.add(Event::Unrolled as usize, unrolled.instructions);
            model.add(Event::UnrolledWord as usize, unrolled.words);
        }
    }
    model.block = (shape.counter, shape.start);
    let is_off = model.mode == Mode::Off;
    if is_off && !before.is_some_and(|before| before.end.invalidates()) {
        return;
    }
    let Some((core, shared, mut view)) = model.split(vcpu) else { return };
    if let Some(before) = before {
        core.arrive(&mut view, before, shape.start);
    }
    if !is_off {
        core.fetch(shared, &mut view, (shape.start, shape.next - 1));
    }
}

/// An instruction executes that is an event of its own, by its number.
unsafe extern "C" fn happened(_vcpu: c_uint, event: *mut c_void) {
    // SAFETY: no other reference lives while the guest executes.
    if let Some(model) = unsafe { model() } {
        model.add(event.addr(), 1);
    }
}

unsafe extern "C" fn accessed_and_seen(vcpu: c_uint, access: u32, address: u64, is_move: *mut c_void) {
    // SAFETY: no other reference lives while the guest executes; QEMU's own functions, called in an access.
    unsafe {
        let Some(model) = model() else { return };
        if model.guest.state.is_null() {
            return;
        }
        if matches!(model.guest.cr3, Cr3::Searched { .. }) {
            return search(model, access, address);
        }
        let need = match () {
            () if !is_move.is_null() => Need::Move,
            () if plugin::qemu_plugin_mem_is_store(access) => Need::Store,
            () => Need::Data,
        };
        model.access(vcpu, address, 1 << plugin::qemu_plugin_mem_size_shift(access), need);
    }
}

/// Searches CR3 by an access.
///
/// # Safety
/// QEMU must be calling for the access.
#[cold]
unsafe fn search(model: &mut Model, access: u32, address: u64) {
    if let Cr3::Searched { tries, .. } = &mut model.guest.cr3 {
        *tries += 1;
        if *tries == TRIES {
            model.guest.cr3 = Cr3::Nowhere;
            return model.look();
        }
    }
    // SAFETY: the caller's word.
    unsafe {
        let place = plugin::qemu_plugin_get_hwaddr(access, address);
        let kind = if plugin::qemu_plugin_mem_is_store(access) { Access::Write } else { Access::Read };
        if place.is_null() || plugin::qemu_plugin_hwaddr_is_io(place) {
            return;
        }
        let offset = plugin::qemu_plugin_hwaddr_phys_addr(place);
        let Some(host) = model.tables.host(model.guest.state, address, kind) else { return };
        if model.guest.learn(address, offset, host) {
            // Until now addresses were taken for physical.
            model.cores.iter_mut().flatten().for_each(|core| core.forget_pages());
        }
        model.look();
    }
}

/// Adds the cycles that the clock has charged for a repeated move.
///
/// # Safety
/// No reference to the model may live.
pub(crate) unsafe fn charged(cycles: u64) {
    // SAFETY: the caller's word.
    if let Some(model) = unsafe { model() } {
        model.add(Event::MoveCycles as usize, cycles);
    }
}

/// A repeated move has executed iterations of `size` bytes each, without translated code, from an address if it copies, and to another one.
///
/// # Safety
/// No reference to the model may live.
pub(crate) unsafe fn moved(vcpu: c_uint, (from, to): (Option<u64>, u64), size: u64, iterations: u64) {
    // SAFETY: the caller's word.
    let Some(model) = (unsafe { model() }).filter(|model| model.mode != Mode::Off) else { return };
    // In the order in which translated code accesses them, since it executes as many of them as it happens to. Accesses to the lines that the iteration
    // before accessed would change nothing.
    let mut n = 0;
    while n < iterations {
        let mut same = iterations - n;
        for address in from.into_iter().chain([to]) {
            let (first, last) = (address + n * size, address + n * size + size - 1);
            model.access(vcpu, first, size, Need::Move);
            for at in [first, last] {
                same = same.min((LINE - at % LINE).div_ceil(size));
            }
        }
        n += same;
    }
}
