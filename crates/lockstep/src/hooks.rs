//! The functions of libc that QEMU finds here instead.
//!
//! Invariant: each calls the real one exactly once, with the arguments it got, and returns what that returned.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::thread;
use crate::turn::Turn;
use crate::{PATIENCE_S, THREAD_NAME};

unsafe extern "C" {
    // Not linked against: a version of libc that it was built with would be asked for where it runs.
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    fn abort() -> !;
}

/// The next object's, after this one.
const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;

static TURN: Turn = Turn::new();
/// The mutex on which the main thread waits for the vCPU thread to come up: QEMU's big lock.
static BIG_LOCK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The condition on which the vCPU thread waits when all vCPUs are idle.
static HALT_COND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The main thread, by its thread pointer; 0 until it has waited for the vCPU thread to come up.
static MAIN: AtomicUsize = AtomicUsize::new(0);
/// Whether the main thread's last poll ended by a signal.
static SIGNALLED: AtomicBool = AtomicBool::new(false);
static NAMED: AtomicBool = AtomicBool::new(false);

type Condition = *mut c_void;
type Mutex = *mut c_void;

/// A function of libc, looked up once.
struct Real {
    name: &'static CStr,
    /// That of today's structures: libc also keeps `pthread_cond_*` of a time with others, and plain dlsym may find those.
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
            // SAFETY: both strings end with a zero.
            address = unsafe { dlvsym(RTLD_NEXT, self.name.as_ptr(), self.version.as_ptr()) };
            if address.is_null() {
                // SAFETY: ends the process.
                unsafe { abort() };
            }
            self.address.store(address, Ordering::Relaxed);
        }
        address
    }
}

static MUTEX_LOCK: Real = Real::new(c"pthread_mutex_lock", c"GLIBC_2.2.5");
static COND_WAIT: Real = Real::new(c"pthread_cond_wait", c"GLIBC_2.3.2");
static COND_SIGNAL: Real = Real::new(c"pthread_cond_signal", c"GLIBC_2.3.2");
static COND_BROADCAST: Real = Real::new(c"pthread_cond_broadcast", c"GLIBC_2.3.2");
static PPOLL: Real = Real::new(c"ppoll", c"GLIBC_2.4");

/// # Safety
/// As libc's.
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
        // Both hooks work: one has seen the vCPU thread wait, and the other has made the main loop wait for that.
        if TURN.park() && !NAMED.swap(true, Ordering::Relaxed) {
            thread::name(THREAD_NAME);
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
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: Condition) -> c_int {
    // SAFETY: the caller's argument, to the function of that name.
    unsafe { waking(&COND_BROADCAST, condition) }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(condition: Condition) -> c_int {
    // SAFETY: the caller's argument, to the function of that name.
    unsafe { waking(&COND_SIGNAL, condition) }
}

/// # Safety
/// `real` takes a condition and returns a number; `condition` is one.
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
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: Mutex) -> c_int {
    // The main loop takes the big lock when it comes back from polling, and only when it does not have it: it polls inside of it, too,
    // when the vCPU thread may be waiting for the lock.
    if BIG_LOCK.load(Ordering::Relaxed) == mutex && is_main() && !SIGNALLED.swap(false, Ordering::Relaxed) {
        TURN.wait(PATIENCE_S);
    }
    // SAFETY: this is its type.
    let real: unsafe extern "C" fn(Mutex) -> c_int = unsafe { core::mem::transmute(MUTEX_LOCK.address()) };
    // SAFETY: the caller's argument.
    unsafe { real(mutex) }
}

/// # Safety
/// As libc's.
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
    // SAFETY: the caller's arguments.
    let result = unsafe { real(files, number, timeout, signals) };
    if result < 0 && is_main() {
        // QEMU is told to end, and must not wait for a guest that computes.
        SIGNALLED.store(true, Ordering::Relaxed);
    }
    result
}

/// What QEMU calls if it was compiled with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As libc's.
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

fn is_main() -> bool {
    MAIN.load(Ordering::Relaxed) == thread::pointer()
}

/// Named by the unwind tables of Rust's core library and never called: a panic ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { abort() }
}
