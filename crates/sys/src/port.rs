//! x86 port I/O from user space: the way for a guest to talk to QEMU's debug devices without a driver.

use std::arch::asm;
use std::io;

/// Writes `bytes` to `port`, one `outb` each. The permission is held only during the call: a process with an I/O bitmap pays for it at every context
/// switch, and its children inherit it.
///
/// # Errors
/// `EPERM` without CAP_SYS_RAWIO; the kernel's `ioperm` errors.
pub fn write(port: u16, bytes: &[u8]) -> io::Result<()> {
    ioperm(port, true)?;
    // SAFETY: ioperm has just allowed the port; `rep outsb` reads exactly bytes.len() bytes from the slice and changes only
    // its own operands.
    unsafe {
        asm!(
            "rep outsb",
            inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _,
            in("dx") port,
            options(readonly, nostack, preserves_flags)
        );
    }
    ioperm(port, false)
}

fn ioperm(port: u16, on: bool) -> io::Result<()> {
    // SAFETY: changes this thread's I/O permission bitmap and touches no memory.
    let result =
        unsafe { libc::syscall(libc::SYS_ioperm, libc::c_ulong::from(port), 1 as libc::c_ulong, i32::from(on)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
