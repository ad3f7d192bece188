//! Finds QEMU's code.

use core::ffi::{CStr, c_char, c_int, c_void};

/// `Dl_info` of dlfcn.h.
#[repr(C)]
pub(crate) struct DlInfo {
    file: *const c_char,
    /// The start of the object that contains the address.
    base: *const u8,
    name: *const c_char,
    address: *const c_void,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    in_file: u64,
    in_memory: u64,
    alignment: u64,
}

const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub(crate) type Dladdr = unsafe extern "C" fn(*const c_void, *mut DlInfo) -> c_int;

/// The address of QEMU's function `name`, and the first and last byte of its segment; `None` if it cannot be found.
///
/// # Safety
/// Both functions must be libc's.
pub(crate) unsafe fn of(name: &CStr, dlsym: Dlsym, dladdr: Dladdr) -> Option<(usize, (usize, usize))> {
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    // SAFETY: the name ends with a zero.
    let function = unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) };
    let mut found = DlInfo {
        file: core::ptr::null(),
        base: core::ptr::null(),
        name: core::ptr::null(),
        address: core::ptr::null(),
    };
    // SAFETY: it writes into `found` alone.
    if function.is_null() || unsafe { dladdr(function, &raw mut found) } == 0 {
        return None;
    }
    let (function, base) = (function as usize, found.base);
    // SAFETY: an object begins with its ELF header, and its program headers are loaded: `e_phoff` at byte 32, `e_phnum` at 56.
    let segments = unsafe {
        let offset = base.add(32).cast::<u64>().read() as usize;
        let number = base.add(56).cast::<u16>().read();
        core::slice::from_raw_parts(base.add(offset).cast::<Segment>(), number.into())
    };
    segments.iter().find_map(|segment| {
        let start = base as usize + segment.address as usize;
        let end = start + segment.in_memory as usize;
        let is = segment.kind == PT_LOAD && segment.flags & PF_X != 0 && (start..end).contains(&function);
        is.then_some((function, (start, end)))
    })
}
