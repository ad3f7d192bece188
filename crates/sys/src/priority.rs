//! The priority of a process over others.

use std::io;

/// Priority among real-time processes: the lowest.
const PRIORITY: libc::c_int = 1;

/// `PR_SET_IO_FLUSHER` of `linux/prctl.h`.
const IO_FLUSHER: libc::c_int = 57;

/// Makes this process one on which devices depend: it runs as soon as it can (SCHED_FIFO, also its later threads), its memory is never swapped, and
/// when memory is short it does not wait for the devices that wait for it (PR_SET_IO_FLUSHER, since Linux 5.6).
///
/// # Errors
/// Missing permission (root, or CAP_SYS_NICE, CAP_IPC_LOCK and CAP_SYS_RESOURCE).
pub fn serve_devices() -> io::Result<()> {
    before_all_others()?;
    rustix::mm::mlockall(
        rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE | rustix::mm::MlockAllFlags::ONFAULT,
    )?;
    // SAFETY: takes numbers only.
    let flusher = unsafe { libc::prctl(IO_FLUSHER, 1, 0, 0, 0) };
    if flusher != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes this thread, and those that it starts, run as soon as they can and until they sleep (SCHED_FIFO).
///
/// # Errors
/// Missing permission (root, or CAP_SYS_NICE).
pub fn before_all_others() -> io::Result<()> {
    // The kernel's layout; musl's sched_param has additional fields.
    #[repr(C)]
    struct Parameter {
        priority: libc::c_int,
    }
    let parameter = Parameter { priority: PRIORITY };
    // SAFETY: the kernel reads one sched_param, an int. The system call itself: musl's function only ever fails.
    let set = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const parameter) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
