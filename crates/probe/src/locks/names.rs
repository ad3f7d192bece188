//! Names for waits: the lock's class from the tracepoint's flags, the caller from the call chain, and the lock's name from its symbol or its caller.
//!
//! Invariant: an address is resolved and never shown. A lock that is not a kernel variable has the name of the lock that its caller is known to take,
//! or none.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::symbols::Symbols;

/// Bits of `contention_begin`'s flags (include/trace/events/lock.h).
pub const SPIN: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const RT: u32 = 8;
const PERCPU: u32 = 16;
pub const MUTEX: u32 = 32;

/// The class of a lock.
pub fn class(flags: u32) -> String {
    let side = match flags & (READ | WRITE) {
        READ => ":R",
        WRITE => ":W",
        _ => "",
    };
    let kind = match flags & !(READ | WRITE) {
        f if f & MUTEX != 0 => return "mutex".to_owned(),
        f if f & PERCPU != 0 => "percpu-rwsem",
        f if f & RT != 0 && side.is_empty() => return "rtmutex".to_owned(),
        f if f & RT != 0 => "rwlock-rt",
        SPIN if side.is_empty() => return "spinlock".to_owned(),
        SPIN => "rwlock",
        0 if side.is_empty() => return "semaphore".to_owned(),
        0 => "rwsem",
        other => return format!("flags {other:#x}{side}"),
    };
    format!("{kind}{side}")
}

/// The first address of the kernel's image and modules (Documentation/arch/x86/x86_64/mm.rst).
pub const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Addresses of the kernel's locking code and variables.
#[derive(Debug, Default)]
pub struct LockSymbols {
    /// `.sched.text`, with mutexes and semaphores, and `.spinlock.text`.
    locking: Vec<Range<u64>>,
    /// All symbols by address: a variable with its name, code without one.
    variables: BTreeMap<u64, Option<String>>,
}

impl LockSymbols {
    /// Parses `/proc/kallsyms`. Kernels without CONFIG_KALLSYMS_ALL name no variables.
    pub fn new(kallsyms: &str) -> Self {
        let mut places = Self::default();
        let mut bounds: BTreeMap<&str, u64> = BTreeMap::new();
        for line in kallsyms.lines() {
            let mut words = line.split_whitespace();
            let address = words.next().and_then(|a| u64::from_str_radix(a, 16).ok()).filter(|a| *a >= IMAGE);
            let (Some(address), Some(kind), Some(name)) = (address, words.next(), words.next()) else { continue };
            if let Some(bound) = BOUNDS.iter().flatten().find(|bound| **bound == name) {
                bounds.insert(bound, address);
            }
            let is_variable =
                matches!(kind, "d" | "D" | "b" | "B") && !LABELS.iter().any(|label| name.starts_with(label));
            let entry = places.variables.entry(address).or_default();
            if is_variable && entry.is_none() {
                *entry = Some(name.to_owned());
            }
        }
        // Without CONFIG_KALLSYMS_ALL only a few variables are named, and all others would seem to belong to them.
        if places.variables.values().flatten().count() < places.variables.len() / FEW {
            places.variables.clear();
        }
        for [begin, end] in BOUNDS {
            places.locking.extend(bounds.get(begin).zip(bounds.get(end)).map(|(begin, end)| *begin..*end));
        }
        places
    }

    /// The kernel variable that contains `lock`.
    pub fn variable(&self, lock: u64) -> Option<&str> {
        let (_, name) = self.variables.range(..=lock).next_back().filter(|_| lock >= IMAGE)?;
        name.as_deref()
    }

    /// The caller that wanted the lock: the innermost function of `stack` that is not locking code.
    pub fn caller(&self, stack: &[u64], symbols: &Symbols) -> String {
        let is_locking = |address: u64, name: &str| {
            self.locking.iter().any(|range| range.contains(&address)) || LOCKING.iter().any(|p| name.starts_with(p))
        };
        let named = stack.iter().map(|address| (*address, symbols.name(*address)));
        let caller = named.filter(|(address, name)| !is_locking(*address, name)).map(|(_, name)| name).next();
        caller.unwrap_or_else(|| "caller not known".to_owned())
    }
}

/// Prefixes of the labels that linkers place among variables.
const LABELS: [&str; 7] = ["__start_", "__stop_", "__end_", "__bss_", "_sdata", "_edata", "__init_"];

/// If fewer than one symbol in this number is a variable, most variables have no symbol.
const FEW: usize = 10;

const BOUNDS: [[&str; 2]; 2] = [["__sched_text_start", "__sched_text_end"], ["__lock_text_start", "__lock_text_end"]];

/// Prefixes of lock functions that lie in other sections.
const LOCKING: [&str; 24] = [
    "__down_",
    "__mutex_lock",
    "__percpu_down_",
    "__pv_queued_spin_lock",
    "__raw_callee_save___pv_queued",
    "__rt_mutex_",
    "__traceiter_contention_",
    "_raw_read_lock",
    "_raw_spin_lock",
    "_raw_write_lock",
    "down_read",
    "down_write",
    "mutex_lock",
    "native_queued_spin_lock",
    "osq_lock",
    "percpu_down_",
    "percpu_rwsem_wait",
    "perf_trace_",
    "pv_native_queued",
    "queued_read_lock_slowpath",
    "queued_spin_lock_slowpath",
    "queued_write_lock_slowpath",
    "rwsem_",
    "trace_contention_",
];

/// The locks that callers take: class, name, and prefixes of functions as in Linux 5.19 to 7.x (mm/, fs/, kernel/, net/, ipc/).
const TAKEN: [(&str, &str, &[&str]); 21] = [
    (
        "rwsem",
        "mmap_lock",
        &[
            "__do_munmap",
            "__do_sys_brk",
            "__mm_populate",
            "__vm_munmap",
            "__x64_sys_brk",
            "__x64_sys_mremap",
            "do_madvise",
            "do_mprotect_pkey",
            "do_user_addr_fault",
            "exit_mm",
            "gup_fast_fallback",
            "internal_get_user_pages_fast",
            "ksys_shmdt",
            "do_shmat",
            "lock_mm_and_find_vma",
            "madvise_lock",
            "mmap_read_lock",
            "mmap_write_lock",
            "pin_user_pages",
            "task_numa_work",
            "vm_mmap_pgoff",
            "vm_munmap",
            "__access_remote_vm",
            "vma_start_write",
            "exc_page_fault",
            "mlock",
            "do_mlock",
            "do_vmi_align_munmap",
        ],
    ),
    (
        "rwsem",
        "inode i_rwsem",
        &[
            "btrfs_inode_lock",
            "do_rmdir",
            "do_truncate",
            "do_unlinkat",
            "do_last",
            "ext4_buffered_write_iter",
            "ext4_dio_",
            "ext4_file_",
            "f2fs_file_",
            "filename_create",
            "generic_file_write_iter",
            "generic_file_llseek",
            "iterate_dir",
            "lock_rename",
            "lock_two_",
            "open_last_lookups",
            "path_openat",
            "start_dirop",
            "start_creating",
            "lookup_slow",
            "shmem_file_",
            "vfs_rename",
            "vfs_unlink",
            "walk_component",
            "xfs_ilock",
            "xfs_file_",
            "do_open",
            "inode_lock",
            "ovl_write_iter",
            "ovl_create",
            "ovl_do_remove",
            "ext4_llseek",
            "notify_change",
            "chmod_common",
            "chown_common",
            "vfs_fsync",
        ],
    ),
    ("rwsem", "ext4 i_data_sem", &["ext4_map_", "ext4_da_", "ext4_truncate", "ext4_punch_hole", "ext4_get_block"]),
    (
        "rwsem",
        "mapping i_mmap_rwsem",
        &["unlink_file_vma", "vma_link", "vma_prepare", "rmap_walk_file", "unmap_mapping", "__vma_adjust", "i_mmap_"],
    ),
    (
        "rwsem",
        "anon_vma rwsem",
        &["anon_vma_", "unlink_anon_vmas", "rmap_walk_anon", "__put_anon_vma", "folio_lock_anon_vma"],
    ),
    ("rwsem", "superblock s_umount", &["super_lock", "grab_super", "iterate_supers", "trylock_super"]),
    ("mutex", "file f_pos_lock", &["__fdget_pos", "fdget_pos", "__f_unlock_pos", "file_ppos"]),
    ("mutex", "pipe mutex", &["pipe_", "anon_pipe_", "splice_", "do_splice", "wait_for_space"]),
    ("mutex", "unix socket iolock", &["unix_stream_", "__unix_dgram", "unix_dgram_"]),
    ("mutex", "epoll mutex", &["ep_", "do_epoll", "eventpoll_", "__ep_"]),
    ("mutex", "io_uring uring_lock", &["io_", "__io_", "__do_sys_io_uring", "__x64_sys_io_uring"]),
    ("mutex", "ext4 s_orphan_lock", &["ext4_orphan_"]),
    ("mutex", "jbd2 j_checkpoint_mutex", &["jbd2_log_", "__jbd2_log_"]),
    (
        "spinlock",
        "zone lock",
        &[
            "rmqueue",
            "free_pcppages_bulk",
            "free_one_page",
            "get_page_from_freelist",
            "free_unref",
            "__rmqueue",
            "free_frozen",
        ],
    ),
    (
        "spinlock",
        "lruvec lock",
        &["folio_lruvec_lock", "lock_page_lruvec", "pagevec_lru", "folio_batch_move_lru", "release_pages", "lru_"],
    ),
    (
        "spinlock",
        "run-queue lock",
        &[
            "raw_spin_rq_lock",
            "__schedule",
            "try_to_wake_up",
            "ttwu_",
            "task_rq_lock",
            "__task_rq_lock",
            "scheduler_tick",
            "sched_tick",
            "load_balance",
            "sched_balance",
            "sched_ttwu",
            "wake_up_new_task",
            "double_rq_lock",
            "newidle_balance",
        ],
    ),
    (
        "spinlock",
        "slab node list_lock",
        &[
            "___slab_alloc",
            "__slab_free",
            "get_partial",
            "__unfreeze_partials",
            "put_cpu_partial",
            "__slab_alloc",
            "get_from_partial",
            "barn_",
            "__put_partials",
        ],
    ),
    ("spinlock", "futex hash bucket", &["futex_", "do_futex", "__futex"]),
    (
        "spinlock",
        "dentry lock",
        &[
            "lockref_",
            "dput",
            "d_alloc",
            "d_lookup",
            "__d_lookup",
            "d_invalidate",
            "d_delete",
            "dget_parent",
            "shrink_dentry",
            "d_walk",
            "fast_dput",
        ],
    ),
    (
        "spinlock",
        "socket or its queue",
        &["lock_sock", "release_sock", "skb_queue", "sock_def_", "__lock_sock", "tcp_v4_rcv", "__skb_", "unix_"],
    ),
    (
        "spinlock",
        "wait queue",
        &["__wake_up", "prepare_to_wait", "finish_wait", "add_wait_queue", "remove_wait_queue", "autoremove_wake"],
    ),
];

/// The lock of this class that `caller` is known to take.
pub fn taken(class: &str, caller: &str) -> Option<&'static str> {
    let kind = class.split(':').next().unwrap_or(class);
    let fits = |beginnings: &[&str]| beginnings.iter().any(|beginning| caller.starts_with(beginning));
    TAKEN.iter().find(|(of, _, beginnings)| *of == kind && fits(beginnings)).map(|(_, lock, _)| *lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_classes() {
        for (flags, is) in [
            (SPIN, "spinlock"),
            (SPIN | READ, "rwlock:R"),
            (SPIN | WRITE, "rwlock:W"),
            (READ, "rwsem:R"),
            (WRITE, "rwsem:W"),
            (MUTEX, "mutex"),
            (MUTEX | SPIN, "mutex"),
            (RT, "rtmutex"),
            (RT | WRITE, "rwlock-rt:W"),
            (PERCPU | READ, "percpu-rwsem:R"),
            (PERCPU | WRITE, "percpu-rwsem:W"),
            (0, "semaphore"),
            (64, "flags 0x40"),
        ] {
            assert_eq!(class(flags), is, "{flags}");
        }
    }

    const KALLSYMS: &str = "ffffffff81000000 T ext4_buffered_write_iter\nffffffff81000100 t native_queued_spin_lock_slowpath\n\
        ffffffff81001000 T __sched_text_start\nffffffff81001000 T mutex_lock\nffffffff81001100 t rwsem_down_write_slowpath.constprop.0\n\
        ffffffff81002000 T __sched_text_end\nffffffff81002000 T __lock_text_start\nffffffff81002000 T _raw_spin_lock\n\
        ffffffff81003000 T __lock_text_end\nffffffff81003100 T free_pcppages_bulk\n\
        ffffffff82000000 D tasklist_lock\nffffffff82000040 d rename_lock\nffffffff82000080 T code_again\n";

    #[test]
    fn the_caller_is_the_first_function_that_is_no_locking_code() {
        let (places, symbols) = (LockSymbols::new(KALLSYMS), Symbols::new(KALLSYMS, Vec::new()).unwrap());
        let write = [0xffff_ffff_8100_1110, 0xffff_ffff_8100_1010, 0xffff_ffff_8100_0020, 0xffff_ffff_8100_3110];
        assert_eq!(places.caller(&write, &symbols), "ext4_buffered_write_iter");
        let spin = [0xffff_ffff_8100_0110, 0xffff_ffff_8100_2010, 0xffff_ffff_8100_3120];
        assert_eq!(places.caller(&spin, &symbols), "free_pcppages_bulk");
        assert_eq!(places.caller(&spin[..2], &symbols), "caller not known");
    }

    #[test]
    fn a_variable_has_its_own_name_and_other_locks_what_their_caller_takes() {
        let places = LockSymbols::new(KALLSYMS);
        assert_eq!(places.variable(0xffff_ffff_8200_0008), Some("tasklist_lock"));
        assert_eq!(places.variable(0xffff_ffff_8200_0047), Some("rename_lock"));
        for none in [0xffff_ffff_8200_0090, 0xffff_8880_0123_4568, 0xffff_ffff_8000_0000] {
            assert_eq!(places.variable(none), None, "{none:x}");
        }
        let mut without = "ffffffff82000000 D __start_init_stack\nffffffff82000800 D one_of_few\n".to_owned();
        (0..40).for_each(|n| without += &format!("ffffffff8100{n:02x}00 T function_{n}\n"));
        assert_eq!(LockSymbols::new(&without).variable(0xffff_ffff_8200_0900), None);
        assert_eq!(taken("rwsem:W", "ext4_buffered_write_iter"), Some("inode i_rwsem"));
        assert_eq!(taken("rwsem:R", "lock_mm_and_find_vma"), Some("mmap_lock"));
        assert_eq!(taken("mutex", "lock_mm_and_find_vma"), None);
        assert_eq!(taken("spinlock", "free_pcppages_bulk"), Some("zone lock"));
    }
}
