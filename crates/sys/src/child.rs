//! Child processes that must not outlive us: QEMU, apt, make.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the kernel kill the child when the thread that starts it ends, so that even `kill -9` of bigiron leaves no VM behind. The child gets a
/// process group of its own, so that Ctrl-C at the terminal reaches only bigiron, which then ends its children.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    told_of_death(command, libc::SIGKILL)
}

/// Like [`die_with_parent`] but with SIGTERM, for a child that ends its own children and cleans up when asked to.
pub fn end_with_parent(command: &mut Command) -> &mut Command {
    told_of_death(command, libc::SIGTERM)
}

/// Leaves `file` open in the child and its descendants, but not in children that other threads start. A lock on the file is held until the last of
/// these processes ends.
pub fn leave_open(command: &mut Command, file: OwnedFd) -> &mut Command {
    // SAFETY: between fork and exec only an async-signal-safe system call is made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        })
    }
}

/// Lays out the child's memory as each time, not at random: what it makes may depend on addresses.
pub fn fixed_addresses(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only a system call is made, and nothing is allocated.
    unsafe {
        command.pre_exec(|| match libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        })
    }
}

fn told_of_death(command: &mut Command, signal: libc::c_int) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe system calls are made, and nothing is allocated.
    unsafe {
        command.process_group(0).pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before prctl; then the signal would never arrive.
            if libc::getppid() as u32 != parent {
                libc::_exit(127);
            }
            Ok(())
        })
    }
}
