//! The libc functions that QEMU finds here instead of in libc.
//!
//! Invariant: each calls the real function exactly once, with its own arguments, and returns its result.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::pause::Pause;
use crate::thread;
use crate::turn::Turn;
use crate::{ONE_VCPU, OUT_OF_TURN, PATIENCE, THREAD_NAME, kernel, text};

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
    // SAFETY: this is its type.
    let real: unsafe extern "C" fn(Mutex) -> c_int = unsafe { core::mem::transmute(MUTEX_LOCK.address()) };
    // SAFETY: the caller's argument.
    unsafe { real(mutex) }
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

/// The address of `cpu_loop_exit`; 0 if it cannot be found, or other vCPUs need their turn.
fn loop_exit() -> usize {
    let (getenv, dlsym, dladdr) = (GETENV.look_up(), DLSYM.look_up(), DLADDR.look_up());
    if getenv.is_null() || dlsym.is_null() || dladdr.is_null() {
        return 0;
    }
    type Getenv = unsafe extern "C" fn(*const c_char) -> *const c_char;
    // SAFETY: these are their types.
    let (getenv, dlsym, dladdr) = unsafe {
        (
            core::mem::transmute::<*mut c_void, Getenv>(getenv),
            core::mem::transmute::<*mut c_void, text::Dlsym>(dlsym),
            core::mem::transmute::<*mut c_void, text::Dladdr>(dladdr),
        )
    };
    // SAFETY: the name ends with a zero, and nobody changes the environment by then.
    if unsafe { getenv(ONE_VCPU.as_ptr()) }.is_null() {
        return 0;
    }
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
