//! Child processes that must not outlive us: QEMU, apt, make.

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
