//! Signal handlers for measuring signals and protection faults.
//!
//! Invariant: one of these handlers at a time is installed in the whole process (under a lock), and dropping it restores the previous action.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mapping::{Mapping, PAGE};

static INSTALLED: Mutex<()> = Mutex::new(());
static HANDLED: AtomicU64 = AtomicU64::new(0);
static GUARDED_START: AtomicUsize = AtomicUsize::new(0);
static GUARDED_LEN: AtomicUsize = AtomicUsize::new(0);

/// An installed action; dropping it restores the previous one.
struct InstalledAction {
    signal: i32,
    former: libc::sigaction,
    _alone: MutexGuard<'static, ()>,
}

impl InstalledAction {
    fn install(signal: i32, action: &libc::sigaction) -> io::Result<Self> {
        let alone = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        HANDLED.store(0, Ordering::SeqCst);
        // SAFETY: all-zero bytes are a valid sigaction, and it is written before it is used.
        let mut former = unsafe { std::mem::zeroed() };
        // SAFETY: `action` holds one of this file's handlers, which make only async-signal-safe calls.
        match unsafe { libc::sigaction(signal, action, &raw mut former) } {
            0 => Ok(Self { signal, former, _alone: alone }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for InstalledAction {
    fn drop(&mut self) {
        // SAFETY: puts back the action that was in place before.
        unsafe { libc::sigaction(self.signal, &raw const self.former, std::ptr::null_mut()) };
    }
}

fn action(handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)) -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid sigaction: no flags, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    action
}

extern "C" fn count(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// A handler of `SIGUSR1` that counts.
pub struct SignalCounter {
    installed: InstalledAction,
    action: libc::sigaction,
}

impl SignalCounter {
    pub fn install() -> io::Result<Self> {
        let action = action(count);
        Ok(Self { installed: InstalledAction::install(libc::SIGUSR1, &action)?, action })
    }

    /// Installs the same handler again: one `rt_sigaction`.
    pub fn install_again(&self) -> io::Result<()> {
        // SAFETY: the counting handler, async-signal-safe.
        match unsafe { libc::sigaction(self.installed.signal, &raw const self.action, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends the signal to this thread (given its process and thread numbers); it is handled before this returns.
    pub fn raise(&self, pid: rustix::process::Pid, thread: rustix::process::Pid) -> io::Result<()> {
        let (pid, thread) = (pid.as_raw_nonzero().get(), thread.as_raw_nonzero().get());
        // SAFETY: no memory is passed.
        match unsafe { libc::syscall(libc::SYS_tgkill, pid, thread, self.installed.signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Signals handled since installation.
    pub fn handled(&self) -> u64 {
        HANDLED.load(Ordering::Relaxed)
    }
}

extern "C" fn make_writable(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo; a SIGSEGV carries an address.
    let address = unsafe { (*info).si_addr() } as usize;
    if address.wrapping_sub(GUARDED_START.load(Ordering::Relaxed)) < GUARDED_LEN.load(Ordering::Relaxed) {
        let page = address & !(PAGE - 1);
        // SAFETY: a page of the guarded mapping, to which no reference exists; mprotect is a bare system call.
        if unsafe { libc::mprotect(page as *mut libc::c_void, PAGE, libc::PROT_READ | libc::PROT_WRITE) } == 0 {
            HANDLED.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // Not a measured fault: with the default action the instruction faults again and ends the process, as it should.
    // SAFETY: signal is async-signal-safe.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// A handler of `SIGSEGV` that makes a page of one mapping writable when it is written to.
pub struct WriteFaults<'m> {
    _installed: InstalledAction,
    mapping: &'m Mapping,
}

impl<'m> WriteFaults<'m> {
    /// Handles write faults in `mapping`.
    pub fn install(mapping: &'m Mapping) -> io::Result<Self> {
        let installed = InstalledAction::install(libc::SIGSEGV, &action(make_writable))?;
        GUARDED_START.store(mapping.start(), Ordering::SeqCst);
        GUARDED_LEN.store(mapping.len(), Ordering::SeqCst);
        Ok(Self { _installed: installed, mapping })
    }

    /// The mapping whose faults are handled.
    pub fn mapping(&self) -> &Mapping {
        self.mapping
    }

    /// Faults handled since installation.
    pub fn handled(&self) -> u64 {
        HANDLED.load(Ordering::Relaxed)
    }
}

impl Drop for WriteFaults<'_> {
    fn drop(&mut self) {
        GUARDED_LEN.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Sharing;

    #[test]
    fn each_raise_is_counted() {
        let counter = SignalCounter::install().unwrap();
        let (pid, thread) = (rustix::process::getpid(), rustix::thread::gettid());
        for n in 1..=3 {
            counter.install_again().unwrap();
            counter.raise(pid, thread).unwrap();
            assert_eq!(counter.handled(), n);
        }
    }

    #[test]
    fn each_protected_page_faults_once() {
        let mapping = Mapping::anonymous(4 * PAGE, Sharing::Private).unwrap();
        let faults = WriteFaults::install(&mapping).unwrap();
        mapping.write(0, 1);
        assert_eq!(faults.handled(), 0);
        mapping.protect().unwrap();
        for _ in 0..2 {
            mapping.write(0, 2);
            mapping.write(3 * PAGE + 5, 3);
        }
        assert_eq!(faults.handled(), 2);
        assert_eq!((mapping.read(0), mapping.read(3 * PAGE + 5)), (2, 3));
    }
}
