//! System calls made without a libc: with none linked, the plugin cannot need a newer libc than QEMU's.

use core::arch::asm;

const SYS_READ: usize = 0;
const SYS_WRITE: usize = 1;
const SYS_OPEN: usize = 2;
const SYS_CLOSE: usize = 3;
const SYS_MMAP: usize = 9;
const SYS_GETPID: usize = 39;
const SYS_EXIT_GROUP: usize = 231;
const SYS_PROCESS_VM_READV: usize = 310;

const CLOSE_ON_EXEC: usize = 0o2_000_000;

/// # Safety
/// The requirements of the kernel's call `number` on its arguments.
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the calling convention of x86-64; the rest is the caller's word.
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Zeroed memory for `n` values of `T`, allocated by the kernel page by page when touched; all bytes of a `T` may be zero.
///
/// # Safety
/// All zeros must be a valid `T`.
pub(crate) unsafe fn zeroed<T>(n: usize) -> Option<&'static mut [T]> {
    const PROT_READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x2 | 0x20 | 0x4000;
    let bytes = n * size_of::<T>();
    // SAFETY: a new mapping, wherever the kernel likes.
    let at = unsafe { call(SYS_MMAP, [0, bytes, PROT_READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0]) };
    if at < 0 && at > -4096 {
        return None;
    }
    // SAFETY: as many bytes as that were mapped, all zero, aligned to a page, and never unmapped.
    Some(unsafe { core::slice::from_raw_parts_mut(at as *mut T, n) })
}

/// Creates the file whose path, ended by a zero, begins at `path`.
///
/// # Safety
/// `path` must point to such a string.
pub(crate) unsafe fn create(path: *const u8) -> Option<i32> {
    const WRITE_CREATE_TRUNCATE_CLOEXEC: usize = 0o1 | 0o100 | 0o1000 | 0o2_000_000;
    // SAFETY: the caller's word.
    let fd = unsafe { call(SYS_OPEN, [path as usize, WRITE_CREATE_TRUNCATE_CLOEXEC, 0o644, 0, 0, 0]) };
    (fd >= 0).then_some(fd as i32)
}

/// Writes all of `bytes`; tells whether it could.
pub(crate) fn write(fd: i32, mut bytes: &[u8]) -> bool {
    const EINTR: isize = -4;
    while !bytes.is_empty() {
        // SAFETY: the kernel reads these bytes.
        match unsafe { call(SYS_WRITE, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) } {
            EINTR => {}
            n if n <= 0 => return false,
            n => bytes = &bytes[n as usize..],
        }
    }
    true
}

/// Passes each line of the file whose path, ended by a zero, begins at `path`, without its end and up to 256 bytes of it, until `line` says that it has seen
/// enough.
///
/// # Safety
/// `path` must point to such a string.
pub(crate) unsafe fn lines(path: *const u8, line: &mut dyn FnMut(&[u8]) -> bool) {
    let (mut text, mut used, mut chunk) = ([0_u8; 256], 0, [0_u8; 4096]);
    // SAFETY: the caller's word; the kernel writes into `chunk`.
    unsafe {
        let fd = call(SYS_OPEN, [path as usize, CLOSE_ON_EXEC, 0, 0, 0, 0]);
        if fd < 0 {
            return;
        }
        'file: loop {
            let n = call(SYS_READ, [fd as usize, chunk.as_mut_ptr() as usize, chunk.len(), 0, 0, 0]);
            if n <= 0 {
                break;
            }
            for byte in &chunk[..n as usize] {
                if *byte != b'\n' {
                    if used < text.len() {
                        text[used] = *byte;
                        used += 1;
                    }
                } else {
                    if line(&text[..used]) {
                        break 'file;
                    }
                    used = 0;
                }
            }
        }
        call(SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
    }
}

/// The `N` words at `address`, if there is memory that can be read.
pub(crate) fn peek<const N: usize>(address: u64) -> Option<[u64; N]> {
    let mut words = [0_u64; N];
    let (to, from) = ([words.as_mut_ptr() as usize, 8 * N], [address as usize, 8 * N]);
    // SAFETY: the kernel reads two descriptions of memory, and writes as many bytes as there are, or says that it cannot.
    let copied = unsafe {
        let this = call(SYS_GETPID, [0; 6]) as usize;
        call(SYS_PROCESS_VM_READV, [this, to.as_ptr() as usize, 1, from.as_ptr() as usize, 1, 0])
    };
    (copied == 8 * N as isize).then_some(words)
}

/// Ends QEMU.
pub(crate) fn exit(status: usize) -> ! {
    loop {
        // SAFETY: it does not come back.
        unsafe { call(SYS_EXIT_GROUP, [status, 0, 0, 0, 0, 0]) };
    }
}
