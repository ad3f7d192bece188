//! The interface to QEMU: its plugin API, versions 1 (QEMU 4.2 to 8.2), 2 to 5 (QEMU 9.0 to 10.2) and 7 (QEMU 11.1), but not 6 (QEMU 11.0);
//! include/plugins/qemu-plugin.h in its source lists each version's changes.
//!
//! Invariant: one thread makes all these calls, because under `-icount` one thread runs all vCPUs. bigiron loads the plugin only there.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::counts::Counts;
use crate::instruction::is_wide_exchange;
use crate::scores::Scores;
use crate::strings::Move;
use crate::table::{Counter, Table};
use crate::{MAGIC, Mark, Weights, clock, kernel, model, stage};

/// The start of the kernel's half of the address space (x86-64).
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// Most distinct instructions that one boot may execute; a kernel and its programs have a few hundred thousand.
const COUNTERS: usize = 4 << 20;

/// QEMU reads it after loading the plugin, and refuses a version that is older or newer than those it supports.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(FIRST);

/// The first version, in which code adds to a number at any address.
const FIRST: c_int = 1;

/// From this version on, code adds to a per-vCPU number in a scoreboard.
const SCOREBOARDS: c_int = 2;

/// From this version on, an instruction's bytes are copied.
const COPIES: c_int = 3;

/// From this version on, callbacks get data and not the plugin's number; QEMU 11.1 accepts no older one.
const DATA: c_int = 7;

/// Sets the version before QEMU asks for it.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    // This one came with version 6, which 11.0 alone has; nothing tells that from 7, so QEMU 11.0 refuses the plugin.
    if function(c"qemu_plugin_set_pc").is_some() {
        qemu_plugin_version.store(DATA, Ordering::Relaxed);
    } else if Scores::new(0).is_some() {
        qemu_plugin_version.store(SCOREBOARDS, Ordering::Relaxed);
    }
}

pub(crate) type Id = u64;

#[repr(C)]
pub struct Block {
    _private: [u8; 0],
}

#[repr(C)]
pub struct Instruction {
    _private: [u8; 0],
}

/// `QEMU_PLUGIN_CB_NO_REGS` and `QEMU_PLUGIN_MEM_RW`.
pub(crate) const NO_REGISTERS: c_int = 0;
pub(crate) const READS_AND_WRITES: c_int = 3;

unsafe extern "C" {
    /// Before [`DATA`] it takes no data, and does not look at the register in which they are.
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, cb: *const c_void, data: *mut c_void);
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const Block, n: usize) -> *mut Instruction;
    /// Before [`COPIES`] it takes only the instruction and returns the address of the bytes; later it returns the number of copied bytes. The
    /// arguments are in the same registers either way.
    fn qemu_plugin_insn_data(instruction: *const Instruction, to: *mut u8, room: usize) -> usize;
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub(crate) fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        cb: unsafe extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        cb: unsafe extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        cb: unsafe extern "C" fn(c_uint, u32, u64, *mut c_void),
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_mem_size_shift(access: u32) -> c_uint;
    pub(crate) fn qemu_plugin_mem_is_store(access: u32) -> bool;
    pub(crate) fn qemu_plugin_get_hwaddr(access: u32, address: u64) -> *mut c_void;
    pub(crate) fn qemu_plugin_hwaddr_is_io(place: *const c_void) -> bool;
    pub(crate) fn qemu_plugin_hwaddr_phys_addr(place: *const c_void) -> u64;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The QEMU function called `name`, if it exists.
pub(crate) fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero; no handle stands for all that is loaded (RTLD_DEFAULT).
    let found = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The required part of QEMU's `qemu_info_t`: the oldest plugin version that it accepts, its own version, and the number of vCPUs.
#[repr(C)]
pub struct Info {
    target_name: *const c_char,
    least_version: c_int,
    version: c_int,
    system_emulation: bool,
    vcpus: c_int,
}

struct Profile {
    table: Table,
    counts: Counts,
    file: Output,
}

/// Whether an instruction's bytes are copied.
static COPIED: AtomicBool = AtomicBool::new(false);

/// Whether the machine has several vCPUs.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Whether several vCPUs share time by turns that may end after any instruction.
static PARALLEL: AtomicBool = AtomicBool::new(false);

impl Profile {
    /// The number of an instruction's counter, if there is room for it.
    ///
    /// # Safety
    /// QEMU must be translating it now.
    unsafe fn counter(&mut self, instruction: *mut Instruction) -> Option<usize> {
        // SAFETY: the caller's word.
        self.table.counter(place(unsafe { qemu_plugin_insn_vaddr(instruction) }))
    }
}

/// The number of an instruction's counter, if it is counted.
///
/// # Safety
/// QEMU must be translating it now, and no other reference to the profile may live.
pub(crate) unsafe fn counter(instruction: *mut Instruction) -> Option<usize> {
    // SAFETY: the caller's word.
    unsafe { profile()?.counter(instruction) }
}

/// Where executions are added to a counter, see [`Counts::place`].
///
/// # Safety
/// No other reference to the profile may live.
pub(crate) unsafe fn place_of(counter: usize) -> Option<(*const u64, usize)> {
    // SAFETY: the caller's word, and one thread calls all of this.
    unsafe { profile().and_then(|Profile { counts, table, .. }| counts.place(counter, table)) }
}

/// Counts an instruction, which translated code has counted once for each execution, as `cycles` more.
///
/// # Safety
/// No other reference to the profile may live.
pub(crate) unsafe fn count_also(counter: usize, cycles: i64) {
    // SAFETY: the caller's word.
    if let Some(profile) = unsafe { profile() } {
        profile.table.adjust(counter, cycles);
    }
}

struct Shared(UnsafeCell<Option<Profile>>);

// SAFETY: one thread calls all of this, see above.
unsafe impl Sync for Shared {}

static PROFILE: Shared = Shared(UnsafeCell::new(None));

/// # Safety
/// No other reference to it may live.
unsafe fn profile() -> Option<&'static mut Profile> {
    // SAFETY: the caller's word, and one thread calls all of this.
    unsafe { (*PROFILE.0.get()).as_mut() }
}

/// Called by QEMU before the machine is switched on; a status other than 0 ends QEMU.
///
/// # Safety
/// QEMU must be the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // The zero stays at the end of the value.
    let value = |name: &[u8]| {
        (0..argc as usize).find_map(|n| {
            // SAFETY: there are `argc` of them, all strings that end with a zero.
            unsafe { CStr::from_ptr(*argv.add(n)) }.to_bytes_with_nul().strip_prefix(name)
        })
    };
    // SAFETY: QEMU's own description of itself, for the time of this call.
    let (copies, vcpus) = unsafe { ((*info).version >= COPIES, (*info).vcpus) };
    if let Some(name) = value(b"moves=") {
        let named = |weights: &Weights| name.strip_suffix(b"\0") == Some(weights.name.as_bytes());
        let Some(weights) = Weights::ALL.into_iter().find(named) else { return 1 };
        // SAFETY: nothing else of this runs yet.
        unsafe { clock::install(weights, value(b"one-by-one=").is_none()) };
    }
    let installed = match value(b"out=") {
        // SAFETY: QEMU is the caller.
        Some(path) => unsafe { profile_into(path, info) },
        None => Some(()),
    };
    if installed.is_none() {
        return 1;
    }
    if let Some(memory) = value(b"model=") {
        let number = |digits: &[u8]| {
            digits.iter().take_while(|b| b.is_ascii_digit()).fold(0, |n, b| 10 * n + u64::from(b - b'0'))
        };
        let nodes = value(b"nodes=").map_or(1, number);
        // SAFETY: nothing else of this runs yet.
        if unsafe { model::install(number(memory), nodes, COUNTERS) }.is_none() {
            return 1;
        }
    }
    if value(b"parallel=").is_some() {
        if !clock::flags_fit() {
            kernel::write(2, b"bigiron-profile: this QEMU computes the guest's flags in another way than 7.2\n");
            return 1;
        }
        PARALLEL.store(true, Ordering::Relaxed);
    }
    COPIED.store(copies, Ordering::Relaxed);
    SEVERAL.store(vcpus > 1, Ordering::Relaxed);
    stage::install(id);
    // SAFETY: the number is set.
    unsafe { register() };
    0
}

/// Has QEMU call for each block that it translates.
unsafe extern "C" fn register() {
    let with_data = qemu_plugin_version.load(Ordering::Relaxed) >= DATA;
    let callback = if with_data { translated_with_data as *const c_void } else { translated as *const c_void };
    // SAFETY: the callback is one of this version.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(stage::id(), callback, core::ptr::null_mut()) };
}

/// Prepares the profile.
///
/// # Safety
/// The path must end with a zero, and `info` be QEMU's.
unsafe fn profile_into(path: &[u8], info: *const Info) -> Option<()> {
    // SAFETY: it ends with a zero.
    let fd = unsafe { kernel::create(path.as_ptr()) }?;
    // SAFETY: the caller's word.
    let counts = Counts::find(unsafe { (*info).vcpus } as u32)?;
    // SAFETY: both are numbers.
    let (counters, index) = unsafe { (kernel::zeroed::<Counter>(COUNTERS)?, kernel::zeroed::<u32>(2 * COUNTERS)?) };
    let mut file = Output { fd, bytes: [0; 4096], used: 0 };
    file.word(MAGIC);
    file.flush();
    // SAFETY: nothing else of this runs yet.
    unsafe { *PROFILE.0.get() = Some(Profile { table: Table::new(counters, index), counts, file }) };
    Some(())
}

/// Called when QEMU has translated a block.
unsafe extern "C" fn translated(_id: Id, block: *mut Block) {
    // SAFETY: QEMU's own block, for the time of this call.
    unsafe {
        // In this order a mark is not of the window that it begins, and the model knows of a block before iterations in it are executed at once.
        look_for_marks(block);
        if stage::is_instrumented() {
            count(block);
            model::translated(block);
        }
        charge(block);
        if PARALLEL.load(Ordering::Relaxed) {
            settle_flags(block);
        }
    }
}

/// The same from [`DATA`] on.
unsafe extern "C" fn translated_with_data(block: *mut Block, _data: *mut c_void) {
    // SAFETY: QEMU's own block, for the time of this call.
    unsafe { translated(0, block) }
}

/// The most bytes of an instruction.
const LONGEST: usize = 15;

/// Has the block look for the counter of virtual time, or, if it ends with a repeated move, as such blocks do, charge for it.
///
/// # Safety
/// QEMU must be translating the block now.
unsafe fn charge(block: *mut Block) {
    // SAFETY: the caller's word; the callbacks run later.
    unsafe {
        if !clock::is_installed() {
            return;
        }
        let instructions = qemu_plugin_tb_n_insns(block);
        if clock::searches() {
            let data = core::ptr::without_provenance_mut(instructions);
            qemu_plugin_register_vcpu_tb_exec_cb(block, clock::block_executed, NO_REGISTERS, data);
        }
        let last = qemu_plugin_tb_get_insn(block, instructions - 1);
        let (bytes, size) = bytes(last);
        if let Some(repeated) = Move::of(&bytes[..size]) {
            // A profile counts cycles, not iterations.
            let counter = counter(last);
            let data = core::ptr::without_provenance_mut(clock::data(repeated, counter));
            if SEVERAL.load(Ordering::Relaxed) {
                qemu_plugin_register_vcpu_tb_exec_cb(block, clock::entered, NO_REGISTERS, data);
            }
            // Alone in its block, it has executed before, as a rule.
            if instructions == 1 && clock::hurries() {
                qemu_plugin_register_vcpu_tb_exec_cb(block, clock::repeats, NO_REGISTERS, data);
            }
            qemu_plugin_register_vcpu_mem_cb(last, clock::moved, NO_REGISTERS, READS_AND_WRITES, data);
        }
    }
}

/// Has the block's instructions that compare and exchange 8 or 16 bytes start from defined flags.
///
/// # Safety
/// QEMU must be translating the block now.
unsafe fn settle_flags(block: *mut Block) {
    // SAFETY: the caller's word; the callbacks run later.
    unsafe {
        for n in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, n);
            let (bytes, size) = bytes(instruction);
            if is_wide_exchange(&bytes[..size]) {
                let none = core::ptr::null_mut();
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, clock::exchanges, NO_REGISTERS, none);
            }
        }
    }
}

/// The bytes of an instruction and their number.
///
/// # Safety
/// QEMU must be translating it now.
pub(crate) unsafe fn bytes(instruction: *mut Instruction) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    // SAFETY: the caller's word; there are as many bytes as QEMU says.
    unsafe {
        let size = qemu_plugin_insn_size(instruction).min(LONGEST);
        let at = qemu_plugin_insn_data(instruction, bytes.as_mut_ptr(), size);
        if !COPIED.load(Ordering::Relaxed) {
            core::ptr::copy_nonoverlapping(core::ptr::with_exposed_provenance(at), bytes.as_mut_ptr(), size);
        }
        (bytes, size)
    }
}

/// Has the block's marks call [`marked`].
///
/// Without a profile, code is translated again all the same where it would be with one. For that QEMU leaves translated code and refills the counter of
/// virtual time; a move that finds too little in the counter is charged later ([`Debt`](crate::icount::Debt)), so that a guest without a profile would
/// differ from one with it, by chance and by a few cycles.
///
/// # Safety
/// QEMU must be translating the block now.
unsafe fn look_for_marks(block: *mut Block) {
    // SAFETY: the caller's word; the callbacks run later.
    unsafe {
        let is_profiled = profile().is_some();
        if !is_profiled && !clock::is_installed() {
            return;
        }
        for n in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, n);
            if qemu_plugin_insn_size(instruction) != Mark::LEN {
                continue;
            }
            let mark = Mark::of(&bytes(instruction).0[..Mark::LEN]);
            if let Some(mark) = mark.filter(|mark| is_profiled || [Mark::Instrument, Mark::Release].contains(mark)) {
                let data = core::ptr::without_provenance_mut(mark as usize);
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS, data);
            }
        }
    }
}

/// Has each of the block's instructions add to its counter.
///
/// # Safety
/// QEMU must be translating the block now.
unsafe fn count(block: *mut Block) {
    // SAFETY: the caller's word; the callbacks below run later.
    unsafe {
        let Some(profile) = profile() else { return };
        for n in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, n);
            if let Some(number) = profile.counter(instruction) {
                profile.counts.add(instruction, number, &mut profile.table);
            }
        }
    }
}

/// The address under which an instruction is counted: programs are counted by page, because only their file is reported, and each start of a program
/// may have new pages.
fn place(address: u64) -> u64 {
    if address >= KERNEL { address } else { address & !0xfff }
}

/// Called when the guest executes a mark.
unsafe extern "C" fn marked(_vcpu: c_uint, data: *mut c_void) {
    // SAFETY: no other reference lives while the guest executes.
    let Some(Profile { table, counts, file, .. }) = (unsafe { profile() }) else {
        // SAFETY: the guest is executing this mark.
        return unsafe { stage::change(data.addr() == Mark::Instrument as usize, register) };
    };
    if let Counts::Scores(scores) = counts {
        scores.gather(table);
    }
    // SAFETY: no reference to the model lives here.
    let window = |open| unsafe { model::window(open) };
    match data.addr() {
        n if n == Mark::Begin as usize => {
            table.begin();
            window(true);
        }
        n if n == Mark::End as usize => {
            table.end();
            window(false);
        }
        // SAFETY: the guest is executing this mark, and no reference to the model lives here.
        n if n == Mark::Instrument as usize => unsafe { stage::change(true, register) },
        n if n == Mark::Release as usize => unsafe {
            model::rest();
            stage::change(false, register);
        },
        _ => {
            let file = core::cell::RefCell::new(file);
            table.cut(&mut |n| file.borrow_mut().word(n), &mut |address, count| {
                file.borrow_mut().word(address);
                file.borrow_mut().word(count);
            });
            // SAFETY: no reference to the model lives here.
            unsafe { model::cut(&mut |word| file.borrow_mut().word(word)) };
            file.borrow_mut().flush();
        }
    }
}

/// The output file, written in pieces.
struct Output {
    fd: c_int,
    bytes: [u8; 4096],
    used: usize,
}

impl Output {
    fn word(&mut self, word: u64) {
        self.bytes[self.used..self.used + 8].copy_from_slice(&word.to_le_bytes());
        self.used += 8;
        if self.used == self.bytes.len() {
            self.flush();
        }
    }

    /// An incomplete profile is useless: QEMU ends, and bigiron reports why.
    fn flush(&mut self) {
        if !kernel::write(self.fd, &self.bytes[..self.used]) {
            kernel::write(2, b"bigiron-profile: cannot write the profile; is the disk full?\n");
            kernel::exit(1);
        }
        self.used = 0;
    }
}

/// The unwind tables of Rust's core library name it, but it is never called: a panic ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    kernel::write(2, b"bigiron-profile: a defect of the plugin\n");
    kernel::exit(1)
}
