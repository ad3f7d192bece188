//! The libc functions that QEMU finds here instead of in libc.
//!
//! Invariant: each calls the real function exactly once, with its own arguments, and returns its result.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::pause::Pause;
use crate::quanta::Quanta;
use crate::thread;
use crate::turn::Turn;
use crate::{NO_QUANTA, ONE_VCPU, OUT_OF_TURN, PATIENCE, QUANTUM, THREAD_NAME, kernel, layout, text};

unsafe extern "C" {
    // Not linked: a linked symbol would require at run time the libc version of the build.
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    fn abort() -> !;
}

/// The next object after this one.
const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;

static TURN: Turn = Turn::new();
/// The mutex with which the main thread waits until the vCPU thread has started: QEMU's big lock.
static BIG_LOCK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The condition on which the vCPU thread waits when all vCPUs are idle.
static HALT_COND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The main thread, by its thread pointer; 0 until it has waited for the vCPU thread to start.
static MAIN: AtomicUsize = AtomicUsize::new(0);
/// Whether a signal ended the main thread's last poll.
static SIGNALLED: AtomicBool = AtomicBool::new(false);
static NAMED: AtomicBool = AtomicBool::new(false);

static PAUSE: Pause = Pause::new();
/// The address of `cpu_loop_exit` and the code that contains it; the address is 0 if PAUSE is not handled, and [`UNKNOWN`] until that is decided.
static LOOP_EXIT: AtomicUsize = AtomicUsize::new(UNKNOWN);
static TEXT: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
const UNKNOWN: usize = usize::MAX;

/// The vCPU thread, by its thread pointer; 0 until it has first waited.
static VCPUS: AtomicUsize = AtomicUsize::new(0);
static QUANTA: Shared = Shared(UnsafeCell::new(None));

/// What the vCPU thread alone uses.
struct Shared(UnsafeCell<Option<Quanta>>);

// SAFETY: see above.
unsafe impl Sync for Shared {}

type Condition = *mut c_void;
type Mutex = *mut c_void;

/// A function of libc, looked up once.
struct Real {
    name: &'static CStr,
    /// The version for today's structures: libc also has `pthread_cond_*` for old structures, and plain dlsym may find those.
    version: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr, version: &'static CStr) -> Self {
        Real { name, version, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = self.look_up();
            if address.is_null() {
                // SAFETY: ends the process.
                unsafe { abort() };
            }
            self.address.store(address, Ordering::Relaxed);
        }
        address
    }

    /// Null if it does not exist.
    fn look_up(&self) -> *mut c_void {
        // SAFETY: both strings end with a zero.
        unsafe { dlvsym(RTLD_NEXT, self.name.as_ptr(), self.version.as_ptr()) }
    }
}

static MUTEX_LOCK: Real = Real::new(c"pthread_mutex_lock", c"GLIBC_2.2.5");
static COND_WAIT: Real = Real::new(c"pthread_cond_wait", c"GLIBC_2.3.2");
static COND_SIGNAL: Real = Real::new(c"pthread_cond_signal", c"GLIBC_2.3.2");
static COND_BROADCAST: Real = Real::new(c"pthread_cond_broadcast", c"GLIBC_2.3.2");
static PPOLL: Real = Real::new(c"ppoll", c"GLIBC_2.4");
static MUTEX_UNLOCK: Real = Real::new(c"pthread_mutex_unlock", c"GLIBC_2.2.5");
static SIGSETJMP: Real = Real::new(c"__sigsetjmp", c"GLIBC_2.2.5");
static LONGJMP_CHK: Real = Real::new(c"__longjmp_chk", c"GLIBC_2.11");
static SIGLONGJMP: Real = Real::new(c"siglongjmp", c"GLIBC_2.2.5");
static DLSYM: Real = Real::new(c"dlsym", c"GLIBC_2.2.5");
static DLADDR: Real = Real::new(c"dladdr", c"GLIBC_2.2.5");
static GETENV: Real = Real::new(c"getenv", c"GLIBC_2.2.5");

/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condition: Condition, mutex: Mutex) -> c_int {
    // SAFETY: this is its type.
    let real: unsafe extern "C" fn(Condition, Mutex) -> c_int = unsafe { core::mem::transmute(COND_WAIT.address()) };
    if BIG_LOCK.load(Ordering::SeqCst).is_null() && thread::is_first() {
        // qemu_init_vcpu() waits for `cpu->created`, before any vCPU thread can wait for anything.
        MAIN.store(thread::pointer(), Ordering::SeqCst);
        BIG_LOCK.store(mutex, Ordering::SeqCst);
    } else if BIG_LOCK.load(Ordering::SeqCst) == mutex && !is_main() {
        HALT_COND.store(condition, Ordering::SeqCst);
        if VCPUS.swap(thread::pointer(), Ordering::SeqCst) == 0 {
            // SAFETY: this is the vCPU thread, which has not executed anything yet.
            unsafe { *QUANTA.0.get() = share_time() };
        }
        // Both hooks work: one has seen the vCPU thread wait, and the other has made the main loop wait for it.
        let parked = TURN.park();
        if parked.awaited && !NAMED.swap(true, Ordering::Relaxed) {
            thread::name(THREAD_NAME);
        }
        if parked.is_inexact {
            kernel::say(OUT_OF_TURN);
        }
        // SAFETY: the caller's arguments.
        let result = unsafe { real(condition, mutex) };
        TURN.unpark();
        return result;
    }
    // SAFETY: the caller's arguments.
    unsafe { real(condition, mutex) }
}

/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: Condition) -> c_int {
    // SAFETY: the caller's argument, to the function of that name.
    unsafe { waking(&COND_BROADCAST, condition) }
}

/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(condition: Condition) -> c_int {
    // SAFETY: the caller's argument, to the function of that name.
    unsafe { waking(&COND_SIGNAL, condition) }
}

/// # Safety
/// `real` takes a condition and returns a number; `condition` is a condition.
unsafe fn waking(real: &Real, condition: Condition) -> c_int {
    if HALT_COND.load(Ordering::SeqCst) == condition {
        TURN.unpark();
    }
    // SAFETY: this is its type.
    let real: unsafe extern "C" fn(Condition) -> c_int = unsafe { core::mem::transmute(real.address()) };
    // SAFETY: the caller's argument.
    unsafe { real(condition) }
}

/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: Mutex) -> c_int {
    // The main loop takes the big lock when it returns from polling, but only if it does not have it: it also polls while holding it, and then the
    // vCPU thread may be waiting for the lock.
    if BIG_LOCK.load(Ordering::Relaxed) == mutex && is_main() {
        if SIGNALLED.swap(false, Ordering::Relaxed) {
            TURN.intrude();
        } else {
            TURN.wait(PATIENCE);
        }
    }
    if BIG_LOCK.load(Ordering::Relaxed) == mutex {
        // SAFETY: it is called only on the vCPU thread.
        on_vcpu_thread(|quanta| unsafe { quanta.locks() });
    }
    // SAFETY: this is its type.
    let real: unsafe extern "C" fn(Mutex) -> c_int = unsafe { core::mem::transmute(MUTEX_LOCK.address()) };
    // SAFETY: the caller's argument.
    unsafe { real(mutex) }
}

/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: Mutex) -> c_int {
    if BIG_LOCK.load(Ordering::Relaxed) == mutex {
        // SAFETY: it is called only on the vCPU thread.
        on_vcpu_thread(|quanta| unsafe { quanta.unlocks() });
    }
    // SAFETY: this is its type.
    let real: unsafe extern "C" fn(Mutex) -> c_int = unsafe { core::mem::transmute(MUTEX_UNLOCK.address()) };
    // SAFETY: the caller's argument.
    unsafe { real(mutex) }
}

/// What QEMU calls before it executes a vCPU.
///
/// # Safety
/// As for libc's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigsetjmp(buffer: *mut u8, signals: c_int) -> c_int {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {entering}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        entering = sym entering,
    )
}

/// Called before a buffer for jumps is filled; returns the address of the function that fills it.
///
/// # Safety
/// `buffer` must be the caller's.
unsafe extern "C" fn entering(buffer: *mut u8) -> *mut c_void {
    // SAFETY: it is called only on the vCPU thread.
    on_vcpu_thread(|quanta| unsafe { quanta.begin(buffer) });
    SIGSETJMP.address()
}

/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    files: *mut c_void,
    number: usize,
    timeout: *const c_void,
    signals: *const c_void,
) -> c_int {
    type Ppoll = unsafe extern "C" fn(*mut c_void, usize, *const c_void, *const c_void) -> c_int;
    // SAFETY: this is its type.
    let real: Ppoll = unsafe { core::mem::transmute(PPOLL.address()) };
    if is_main() {
        TURN.end_pass();
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real(files, number, timeout, signals) };
    if result < 0 && is_main() {
        // QEMU is being told to end, and must not wait for a guest that computes.
        SIGNALLED.store(true, Ordering::Relaxed);
    }
    result
}

/// The function that QEMU calls if it was compiled with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    files: *mut c_void,
    number: usize,
    timeout: *const c_void,
    signals: *const c_void,
    _size: usize,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { ppoll(files, number, timeout, signals) }
}

/// The jump by which QEMU leaves an instruction (compiled with `_FORTIFY_SOURCE`).
///
/// # Safety
/// As for libc's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __longjmp_chk(buffer: *mut u8, value: c_int) -> ! {
    naked_asm!(
        "push rdi",
        "push rsi",
        "lea rsi, [rsp + 16]", // the return address and what lies above it
        "lea rdx, [rip + {real}]",
        "sub rsp, 8",
        "call {look}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        real = sym LONGJMP_CHK,
        look = sym leaving,
    )
}

/// The same jump without `_FORTIFY_SOURCE`.
///
/// # Safety
/// As for libc's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siglongjmp(buffer: *mut u8, value: c_int) -> ! {
    naked_asm!(
        "push rdi",
        "push rsi",
        "lea rsi, [rsp + 16]",
        "lea rdx, [rip + {real}]",
        "sub rsp, 8",
        "call {look}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        real = sym SIGLONGJMP,
        look = sym leaving,
    )
}

/// Called before a jump; returns the address of the function that makes the jump.
///
/// # Safety
/// `buffer` must be the jump's, and `stack` the calling thread's.
unsafe extern "C" fn leaving(buffer: *mut u8, stack: *const usize, real: &Real) -> *mut c_void {
    let mut exit = LOOP_EXIT.load(Ordering::Acquire);
    if exit == UNKNOWN {
        exit = loop_exit();
        LOOP_EXIT.store(exit, Ordering::Release);
    }
    if exit != 0 {
        let text = (TEXT[0].load(Ordering::Relaxed), TEXT[1].load(Ordering::Relaxed));
        // SAFETY: the text is mapped for good; the rest is the caller's word.
        unsafe { PAUSE.look(buffer, stack, exit, text) };
    }
    real.address()
}

/// The value of an environment variable.
fn variable(name: &CStr) -> Option<&'static CStr> {
    type Getenv = unsafe extern "C" fn(*const c_char) -> *const c_char;
    let getenv = GETENV.look_up();
    if getenv.is_null() {
        return None;
    }
    // SAFETY: this is its type; the name ends with a zero, and nobody changes the environment by then.
    unsafe {
        let value = core::mem::transmute::<*mut c_void, Getenv>(getenv)(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// The times of several vCPUs, if they are to run in parallel.
fn share_time() -> Option<Quanta> {
    let quantum = variable(QUANTUM)?.to_bytes().iter().fold(0, |n, digit| 10 * n + i64::from(digit - b'0'));
    let dlsym = DLSYM.address();
    // SAFETY: this is its type, names end with a zero, and no handle stands for all that is loaded; what is found is QEMU's.
    unsafe {
        let dlsym = core::mem::transmute::<*mut c_void, text::Dlsym>(dlsym);
        let symbol = |name: &CStr| dlsym(core::ptr::null_mut(), name.as_ptr());
        let (vcpus, clock) = (symbol(c"cpus"), symbol(c"timers_state"));
        if vcpus.is_null() || clock.is_null() || !layout::fits(|name| symbol(name), clock.cast()) {
            kernel::say(NO_QUANTA);
            kernel::exit(1);
        }
        Some(Quanta::new(vcpus.cast(), clock.cast(), quantum))
    }
}

/// Calls `act` if this is the vCPU thread and its vCPUs share time.
fn on_vcpu_thread(act: impl FnOnce(&mut Quanta)) {
    if VCPUS.load(Ordering::Relaxed) == thread::pointer() {
        // SAFETY: no other thread uses it, and no two of these calls overlap.
        if let Some(quanta) = unsafe { (*QUANTA.0.get()).as_mut() } {
            act(quanta);
        }
    }
}

/// The address of `cpu_loop_exit`; 0 if it cannot be found, or other vCPUs need their turn.
fn loop_exit() -> usize {
    let (dlsym, dladdr) = (DLSYM.look_up(), DLADDR.look_up());
    if dlsym.is_null() || dladdr.is_null() || variable(ONE_VCPU).or_else(|| variable(QUANTUM)).is_none() {
        return 0;
    }
    // SAFETY: these are their types.
    let (dlsym, dladdr) = unsafe {
        (
            core::mem::transmute::<*mut c_void, text::Dlsym>(dlsym),
            core::mem::transmute::<*mut c_void, text::Dladdr>(dladdr),
        )
    };
    // SAFETY: both are libc's.
    let Some((exit, (start, end))) = (unsafe { text::of(c"cpu_loop_exit", dlsym, dladdr) }) else { return 0 };
    TEXT[0].store(start, Ordering::Relaxed);
    TEXT[1].store(end, Ordering::Relaxed);
    exit
}

fn is_main() -> bool {
    MAIN.load(Ordering::Relaxed) == thread::pointer()
}

/// The unwind tables of Rust's core library name it, but it is never called: a panic ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { abort() }
}
