//! The subsystems of kernel functions, by name: readers think of schedulers and page caches, and so do configurations.
//!
//! For an address, the kernel gives only the symbol, not the source file, so the first pattern in the table that matches the name decides. Invariant:
//! every name belongs to one subsystem, at least to [`OTHER`], so the subsystems of a difference add up to it.

use std::collections::BTreeMap;

use super::kconfig::Difference;
use super::row::COPIES_MARK;
use super::why::signed;
use bigiron_judge::causes::{Causes, WAITING};

/// The subsystem of functions that match no pattern.
pub const OTHER: &str = "other functions";

/// A subsystem with a smaller share of the difference is not mentioned.
const WORTH: f64 = 0.03;
/// Most subsystems mentioned.
const MOST: usize = 6;

/// A part of the kernel.
struct Subsystem {
    name: &'static str,
    /// Names of functions; one that ends in `*` is a prefix.
    functions: &'static [&'static str],
    /// Configuration options and levers that affect these functions; prefixes as above.
    options: &'static [&'static str],
    levers: &'static [&'static str],
}

const fn subsystem(
    name: &'static str,
    functions: &'static [&'static str],
    options: &'static [&'static str],
    levers: &'static [&'static str],
) -> Subsystem {
    Subsystem { name, functions, options, levers }
}

/// The first match decides, so narrow patterns stand before wide ones.
#[rustfmt::skip]
const SUBSYSTEMS: &[Subsystem] = &[
    subsystem("waiting", &[WAITING], &[], &[]),
    subsystem("programs", &["user: *"], &[], &["command.*", "dbsim.*", "oltp.*", "postgres.*"]),
    subsystem("mitigations of CPU flaws", &["srso_*", "retbleed_*", "__x86_return_thunk", "__x86_indirect_*", "entry_untrain_ret", "clear_bhb*", "its_*", "entry_ibpb", "write_ibpb"],
        &["MITIGATION_*", "CPU_MITIGATIONS"],
        &["boot.mitigations", "boot.pti", "boot.nopti", "boot.spec*", "boot.retbleed", "boot.srso", "boot.l1tf", "boot.mds"]),
    subsystem("entry and exit", &["entry_*", "do_syscall_64", "x64_sys_call", "syscall_*", "asm_*", "exc_*", "irqentry_*", "ret_from_fork*", "error_entry", "error_return", "native_irq_return*", "native_iret", "sync_regs", "swapgs*", "common_interrupt*", "sysvec_*", "paranoid_*", "restore_regs*", "exit_to_user_mode*", "fred_*", "arch_exit_to_user*", "fpregs_*", "save_fpregs*", "__do_sys_getppid", "__x64_sys_*", "__do_sys_*", "__se_sys_*"],
        &["RANDOMIZE_KSTACK_OFFSET*", "X86_FRED", "GENERIC_ENTRY", "VMAP_STACK", "AUDITSYSCALL"], &["boot.randomize_kstack_offset", "boot.audit"]),
    subsystem("checks of memory", &["__list_add_valid*", "__list_del_entry_valid*", "__check_object_size*", "__check_heap_object", "check_stack_object*", "check_heap*", "stackleak_*", "kfence_*", "__kasan*", "kasan_*", "kmsan_*", "__ubsan*", "page_table_check*", "__page_table_check*", "check_object", "check_slab", "check_bytes*", "init_object", "on_freelist", "slab_pad_check", "alloc_debug_processing", "free_debug_processing", "set_track*", "stack_depot*", "__stack_depot*", "kmemleak*", "debug_*", "__debug_*"],
        &["HARDENED_USERCOPY", "LIST_HARDENED", "DEBUG_LIST", "FORTIFY_SOURCE", "STACKLEAK*", "KFENCE*", "KASAN*", "PAGE_TABLE_CHECK*", "SLUB_DEBUG*", "DEBUG_*", "UBSAN*"], &["boot.slub_debug", "boot.slab_debug", "boot.page_poison", "boot.kfence*", "boot.hardened_usercopy"]),
    subsystem(COPIES, &["memcpy*", "__memcpy*", "memmove*", "__memmove*", "memset*", "__memset*", "clear_page*", "clear_user_page*", "__clear_user*", "copy_user*", "_copy_*", "__copy_*", "rep_movs*", "rep_stos*", "copy_page*", "copy_mc*", "copy_from_*", "copy_to_*", "__get_user*", "__put_user*"],
        &["INIT_ON_*", "INIT_STACK_*"], &["boot.init_on_alloc", "boot.init_on_free"]),
    subsystem("NFS and its remote calls", &["nfsd*", "nfs_*", "nfs2*", "nfs3*", "nfs4*", "_nfs*", "__nfs*", "svc_*", "__svc*", "svcauth_*", "rpc_*", "__rpc*", "rpcauth_*", "xprt_*", "__xprt*", "xs_*", "xdr_*", "__xdr*", "unx_*", "nlm*", "lockd*", "exportfs_*", "fh_*", "call_start", "call_reserve*", "call_refresh*", "call_allocate", "call_encode", "call_transmit*", "call_status", "call_decode", "call_bind*", "call_connect*"],
        &["NFS_*", "NFSD*", "SUNRPC*", "LOCKD*"], &["files.nfs*", "files.export", "files.connections"]),
    subsystem("pressure accounting", &["psi_*", "__psi_*", "record_times"], &["PSI*"], &["boot.psi"]),
    subsystem("scheduler", &["sched_*", "__sched_*", "pick_*", "__pick_*", "enqueue_*", "__enqueue_*", "dequeue_*", "__dequeue_*", "update_curr*", "update_load*", "__update_load*", "__update_curr*", "update_rq_clock*", "update_min_vruntime", "update_cfs*", "__schedule", "schedule*", "try_to_wake_up", "ttwu_*", "wake_up_*", "__wake_up*", "set_next_*", "put_prev_*", "select_task_rq*", "select_idle*", "vruntime_eligible", "place_entity", "check_preempt*", "wakeup_preempt*", "avg_vruntime*", "reweight_*", "finish_task_switch", "switch_mm*", "switch_fpu*", "__switch_to*", "prepare_task_switch", "context_switch", "cpuacct_*", "newidle*", "sched_balance*", "load_balance*", "resched_*", "__resched_*", "task_tick*", "dl_server*", "dl_*", "rt_*", "yield_*", "do_task_dead", "default_wake_function", "autoremove_wake_function", "prepare_to_wait*", "finish_wait", "activate_task", "deactivate_task", "cpu_util*", "attach_entity*", "detach_entity*", "set_task_cpu", "propagate_entity*", "update_entity*", "requeue_delayed*", "entity_eligible", "calc_delta*", "__calc_delta", "cpuidle_*", "do_idle", "default_idle*", "scheduler_tick", "clear_buddies", "check_spread", "update_deadline", "idle_cpu", "get_nohz_timer*", "arch_scale_*"],
        &["PREEMPT*", "SCHED_*", "FAIR_GROUP_SCHED", "CFS_BANDWIDTH", "RT_GROUP_SCHED", "NUMA_BALANCING*", "UCLAMP*"], &["boot.preempt", "cpu.sched.*", "cpu.autogroup", "sysctl.kernel.sched*", "boot.isolcpus", "boot.nohz_full"]),
    subsystem("preemption", &["preempt_*", "__cond_resched*", "dynamic_*", "migrate_disable", "migrate_enable", "preempt_schedule*"], &["PREEMPT*"], &["boot.preempt"]),
    subsystem("locks", &["_raw_*", "__raw_*", "native_queued_*", "queued_*", "mutex_*", "__mutex_*", "ww_mutex*", "down_*", "up_*", "rwsem_*", "__down_*", "__up_*", "osq_*", "lock_*", "rt_mutex*", "percpu_down*", "percpu_up*", "lockref_*", "do_raw_*", "lockdep_*"], &["LOCK*", "PROVE_LOCKING", "DEBUG_SPINLOCK", "DEBUG_MUTEXES", "PARAVIRT_SPINLOCKS"], &[]),
    subsystem("RCU", &["rcu_*", "__rcu_*", "call_rcu*", "__call_rcu*", "note_gp_changes", "srcu_*", "__srcu_*", "synchronize_rcu*", "kvfree_call_rcu", "kfree_rcu*", "get_state_synchronize*", "force_qs*"], &["RCU_*", "PREEMPT_RCU", "TREE_RCU", "TASKS_RCU*"], &["boot.rcu*"]),
    subsystem("NUMA placement and migration", &["migrate_*", "try_to_migrate*", "rmap_walk*", "remove_migration*", "page_vma_mapped_walk", "check_pte", "node_is_toptier", "__migrate*", "change_protection*", "change_prot*", "change_pte_range", "task_numa*", "numa_*", "mpol_*", "policy_*", "alloc_pages_mpol*", "vma_alloc_folio*", "interleave_*", "weighted_interleave*", "do_numa_page"], &["NUMA*"], &["cpu.numa-balancing", "cpu.sched.numa*", "memory.policy", "vm.numa"]),
    subsystem("maple tree of memory areas", &["mas_*", "mt_*", "mtree_*", "mab_*", "ma_*", "mte_*"], &[], &[]),
    subsystem("huge pages", &["hugetlb*", "alloc_huge*", "thp_*", "do_huge_*", "khugepaged*", "collapse_*", "__split_huge*", "split_huge*", "huge_*"], &["TRANSPARENT_HUGEPAGE*", "HUGETLB*", "READ_ONLY_THP_FOR_FS"], &["mm.thp*", "mm.huge*", "boot.transparent_hugepage", "boot.hugepages", "memory.huge*"]),
    subsystem("control groups of memory", &["mem_cgroup*", "__mem_cgroup*", "memcg_*", "__memcg_*", "charge_memcg", "obj_cgroup*", "get_obj_cgroup*", "refill_*", "uncharge_*", "try_charge*", "drain_obj*", "drain_stock*", "get_mem_cgroup*", "consume_stock", "mod_memcg*", "__mod_memcg*", "mod_objcg*", "propagate_protected*", "page_counter_*", "current_obj_cgroup", "lruvec_stat*", "lruvec_page*", "__cgroup_rstat*", "cgroup_rstat*", "css_rstat*", "__count_memcg*", "count_memcg*", "__mod_lruvec*", "mod_lruvec*"], &["MEMCG*"], &["boot.cgroup*", "memory.limit"]),
    subsystem("slab allocator", &["kmem_cache*", "kmalloc*", "__kmalloc*", "kfree*", "___slab*", "__slab*", "slab_*", "get_partial*", "put_cpu_partial", "deactivate_slab", "get_any_partial", "new_slab*", "allocate_slab", "___cache*", "do_slab*", "kmem_*", "__kmem*", "kvmalloc*", "__kvmalloc*", "kvfree*", "cache_from_obj", "build_detached*", "__pcs_*", "alloc_from_pcs*", "free_to_pcs*", "memdup*"], &["SLUB*", "SLAB*", "RANDOM_KMALLOC_CACHES"], &["boot.slab*", "boot.slub*"]),
    subsystem("page allocator", &["get_page_from_freelist", "rmqueue*", "__rmqueue*", "__alloc_*", "alloc_page*", "free_unref*", "free_pcp*", "__free_*", "free_pages*", "free_page*", "free_frozen*", "post_alloc*", "prep_new*", "check_new_pages", "zone_*", "__zone*", "free_one_page", "page_frag*", "get_pfnblock*", "set_pfnblock*", "__list_*", "release_pages", "folios_put*", "__folio_put*", "folio_batch*", "node_page_state*", "__mod_zone*", "__mod_node*", "mod_node*", "mod_zone*", "inc_node*", "prep_compound*", "kernel_init_pages", "free_tail*", "cond_accept*", "expand"], &["INIT_ON_*", "SHUFFLE_PAGE_ALLOCATOR", "PAGE_POISONING", "ARCH_FORCE_MAX_ORDER", "COMPACTION"], &["boot.init_on_alloc", "boot.init_on_free", "boot.page_alloc*"]),
    subsystem("reclaim and swap", &["shrink_*", "lru_gen*", "lru_add*", "lru_*", "__lru*", "workingset*", "mark_page_accessed", "folio_mark_accessed", "folio_activate*", "isolate_*", "kswapd*", "swap_*", "__swap*", "do_swap*", "zram_*", "zswap*", "folio_referenced*", "balance_pgdat", "try_to_unmap*", "evict_folios", "walk_*", "scan_folios", "__remove_mapping", "do_shrink*", "list_lru*", "super_cache*", "drop_buffers", "prune_*", "folio_add_lru*", "move_folios*", "try_to_free*"], &["LRU_GEN*", "ZSWAP*", "SWAP", "ZRAM*"], &["mm.mglru", "mm.swap*", "memory.limit", "sysctl.vm.*"]),
    subsystem("page faults and address spaces", &["handle_mm_fault", "__handle_mm_fault", "do_user_addr_fault", "do_anonymous*", "do_fault*", "__do_fault", "do_wp_page", "wp_page*", "do_cow*", "do_read_fault*", "do_shared*", "do_set_pte", "set_pte_range", "finish_fault", "filemap_map*", "next_uptodate*", "vma_*", "__vma_*", "lock_vma*", "mmap_*", "__mmap*", "do_mmap*", "vm_mmap*", "do_munmap*", "do_vmi*", "do_brk*", "unmap_*", "zap_*", "tlb_*", "__tlb*", "flush_tlb*", "native_flush*", "load_new_mm_cr3", "free_pgtables", "free_pgd*", "find_vma*", "anon_vma*", "__anon_vma*", "unlink_*", "dup_mm*", "copy_p*_range", "copy_present*", "__pte*", "pte_*", "pmd_*", "__pmd*", "__pud*", "__p4d*", "pud_*", "p4d_*", "pgd_*", "___pte*", "page_add_*", "page_remove*", "folio_add_*", "folio_remove_rmap*", "__folio_rmap*", "__folio_add*", "__folio_remove*", "perf_event_mmap*", "get_unmapped*", "arch_get_unmapped*", "vm_*", "mm_*", "exit_mmap", "mmput", "__mmput", "mprotect*", "mremap*", "move_*", "ptep_*", "vmf_*", "remove_vma*", "can_vma*", "is_vma*", "init_multi_vma*", "__split_vma", "split_vma", "vm_area*", "gup_*", "pin_user*", "follow_*", "internal_get_user*", "__get_user_pages*", "get_user_pages*", "unpin_*", "try_get_folio", "try_grab*", "gup_put*", "sanity_check_pinned*"], &["PER_VMA_LOCK", "TRANSPARENT_HUGEPAGE*", "PAGE_TABLE_*", "LRU_GEN*"], &["mm.thp*", "boot.transparent_hugepage"]),
    subsystem("page cache", &["mpage_*", "read_pages", "wbc_*", "tag_pages*", "__mark_inode*", "alloc_buffer_head", "free_buffer_head", "wake_page*", "fprop_*", "__fprop*", "domain_dirty*", "__read_end_io", "filemap_*", "__filemap*", "generic_file*", "generic_perform*", "generic_write*", "xas_*", "xa_*", "__xa*", "page_cache*", "folio_*", "__folio*", "page_*", "pagecache*", "readahead*", "ondemand*", "force_page*", "writeback*", "__writeback*", "balance_dirty*", "wb_*", "write_cache*", "set_page*", "clear_page_dirty*", "invalidate_*", "truncate_*", "find_get*", "find_lock*", "copy_page_to_iter*", "copy_folio*", "fault_in*", "iov_iter*", "__iov_iter*", "__getblk*", "grab_cache*", "buffer_*", "__bread*", "__find_get*", "mark_buffer*", "block_*", "__block*", "ll_rw*", "create_empty*", "shmem_*"], &["LRU_GEN*"], &["block.read-ahead*", "sysctl.vm.dirty*"]),
    subsystem("direct I/O", &["iomap_*", "__iomap*", "dio_*", "__blkdev_direct*", "blkdev_direct*", "blkdev_*", "bio_iov*", "__bio_iov*", "bio_release*", "bio_set_pages*"], &[], &["dbsim.direct", "dbsim.io"]),
    subsystem("block layer", &["bvec_*", "__rq_*", "blk_*", "__blk_*", "bio_*", "__bio*", "submit_bio*", "__submit_bio*", "elv_*", "dd_*", "bfq_*", "kyber_*", "sbitmap*", "__sbitmap*", "wbt_*", "__wbt*", "rq_*", "part_*", "__part*", "disk_*", "blkcg_*", "blkg_*", "update_io_ticks", "iocg_*", "throtl_*", "__blkdev*", "bdev_*", "mempool_*", "ioc_*", "should_fail_bio"], &["BLK_*", "MQ_IOSCHED_*", "IOSCHED_*", "BFQ_*"], &["block.*"]),
    subsystem("block drivers", &["null_*", "__null_*", "nvme_*", "virtblk*", "scsi_*", "sd_*", "loop_*", "resp_*", "sdebug_*", "schedule_resp", "end_cmd", "brd_*", "zram*", "nbd_*"], &["BLK_DEV_*"], &["vm.*"]),
    subsystem("virtio", &["virtio*", "virtqueue*", "vring*", "vp_*", "iowrite*", "ioread*"], &["VIRTIO*"], &[]),
    subsystem("asynchronous I/O", &["aio_*", "io_submit*", "lookup_ioctx", "read_events", "io_getevents*", "io_*", "__io_*"], &["IO_URING", "AIO"], &["dbsim.io"]),
    subsystem("file systems", &["ext4_*", "__ext4*", "jbd2_*", "__jbd2*", "mb_*", "xfs_*", "__xfs*", "btrfs_*", "__btrfs*", "jfs_*", "reiserfs_*", "f2fs_*", "ext2_*", "crc32c*", "crypto_*", "start_this_handle", "do_get_write_access", "add_transaction*", "fscrypt*", "check_leaf", "check_prev_ino", "read_extent*", "write_extent*", "free_extent*", "release_extent*", "alloc_extent*", "add_extent*", "find_extent*", "copy_extent*", "memzero_extent*", "memcmp_extent*", "memmove_extent*", "set_extent*", "submit_extent*", "extent_*", "__set_extent*", "__clear_extent*", "__lookup_extent*", "lookup_extent*", "search_by_key", "search_for_position*", "_get_block_create*", "get_third*", "pathrelse", "leaf_*", "setup_items*", "__push_leaf*", "push_leaf*", "split_leaf*", "unlock_up", "read_block_for_search", "verify_parent*", "assert_eb*", "__reserve_bytes", "clear_state_bit", "check_buffer_tree*", "crc_*", "crc32*", "chksum*", "__dquot*", "dquot_*", "tmpfs*", "ramfs*", "kernfs*", "proc_*", "seq_*"], &["EXT4_*", "XFS_*", "BTRFS_*", "JBD2*", "QUOTA*", "FS_*"], &["fs.*"]),
    subsystem("files and paths", &["vfs_*", "__vfs*", "do_sys_open*", "do_filp*", "do_open*", "path_*", "lookup_*", "link_path*", "walk_component", "step_into*", "fget*", "__fget*", "fput*", "__fput*", "dput", "dget*", "d_*", "__d_*", "dentry_*", "inode_*", "iput", "iget*", "rw_verify*", "ksys_*", "file_*", "__file*", "filp_*", "new_sync*", "fsnotify*", "__fsnotify*", "getname*", "putname*", "mnt_*", "mntput*", "mntget", "complete_walk", "terminate_walk", "set_root", "nd_*", "may_open", "alloc_file*", "alloc_empty*", "alloc_fd*", "close_fd*", "do_dentry*", "generic_permission", "generic_*", "touch_atime", "atime_*", "timestamp_*", "current_time", "cp_new_stat*", "do_statx", "getattr*", "notify_change", "simple_*", "iterate_*", "fdget*", "strncpy_from_user*", "build_open*", "legitimize*", "try_to_unlazy*", "__legitimize*", "fasync*", "locks_*", "do_unlinkat", "do_renameat*", "do_fsync", "__mnt*", "init_file", "do_*read*", "do_*write*", "do_iter*"], &["FANOTIFY", "INOTIFY_USER", "FSNOTIFY"], &[]),
    subsystem("security modules", &["security_*", "apparmor_*", "aa_*", "__aa_*", "selinux_*", "bpf_lsm*", "landlock*", "cap_*", "hook_*", "tomoyo*", "yama_*", "ima_*", "evm_*", "common_*perm*", "begin_current_label*", "audit_*", "__audit*", "profile_*", "label_*", "ns_capable*", "capable*"], &["SECURITY*", "LSM", "BPF_LSM", "AUDIT*", "DEFAULT_SECURITY*"], &["boot.security", "boot.lsm", "boot.apparmor", "boot.selinux", "boot.audit"]),
    subsystem("tracing and seccomp", &["ftrace*", "__ftrace*", "__fentry__", "trace_*", "__trace*", "bpf_*", "__bpf*", "___bpf*", "kprobe*", "perf_*", "__perf*", "uprobe*", "seccomp*", "__seccomp*", "ring_buffer*", "function_trace*", "event_*", "tracing_*"], &["FTRACE*", "FUNCTION_TRACER", "BPF_*", "SECCOMP*"], &["file./sys/kernel/tracing*", "file./sys/kernel/debug*"]),
    subsystem("futexes", &["futex_*", "__futex*", "do_futex", "get_futex*", "plist_*", "hash_futex"], &["FUTEX*"], &[]),
    subsystem("pipes, polling and signals", &["pipe_*", "anon_pipe*", "ep_*", "do_epoll*", "select_*", "do_select*", "core_sys_select", "poll_*", "do_sys_poll*", "do_poll*", "__pollwait", "eventfd*", "signalfd*", "timerfd*", "signal_*", "__send_signal*", "send_signal*", "do_send*", "complete_signal", "get_signal*", "dequeue_signal*", "recalc_sigpending*", "do_sigaction", "__set_task_blocked", "set_current_blocked", "sigprocmask", "collect_signal", "handle_signal", "setup_rt_frame", "x64_setup*", "copy_fpstate*", "fpu*", "restore_*", "do_notify*", "prepare_signal", "group_send*", "kill_*", "check_kill*"], &[], &[]),
    subsystem("network", &["tcp_*", "__tcp*", "ip_*", "__ip_*", "ipv4_*", "ipv6_*", "sock_*", "__sock*", "inet_*", "__inet*", "skb_*", "__skb*", "___skb*", "napi_*", "__napi*", "net_*", "__net*", "dev_*", "__dev*", "netif_*", "process_backlog", "nf_*", "unix_*", "udp_*", "sk_*", "__sk*", "release_sock", "__release_sock", "alloc_skb*", "__alloc_skb", "kfree_skb*", "consume_skb", "loopback_*", "eth_*", "veth_*", "qdisc_*", "__qdisc*", "sch_*", "fq_*", "rt_*", "fib_*", "bbr_*", "cubictcp*", "bictcp*", "scm_*", "maybe_*", "wait_for_unix*", "enqueue_to_backlog", "neigh_*", "lock_sock*", "import_iovec", "csum_*", "simple_copy*", "__local_bh*", "gro_*", "____sys_*", "___sys_*", "__sys_*"], &["NET_*", "TCP_*", "NETFILTER*", "INET_*", "BQL", "RPS", "XPS"], &["net.*", "sysctl.net*"]),
    subsystem("timers and clocks", &["hrtimer_*", "__hrtimer*", "tick_*", "ktime_*", "timer_*", "timerqueue*", "put_timespec*", "get_timespec*", "set_normalized*", "ns_to_timespec*", "__timer*", "mod_timer", "__mod_timer", "add_timer*", "clockevents_*", "read_hpet", "read_tsc", "timekeeping*", "calc_global*", "calc_load*", "run_timer*", "__run_*", "update_wall*", "update_process_times", "account_*", "irqtime*", "vtime*", "getrawmono*", "do_nanosleep", "nanosleep*", "clock_*", "do_clock*", "next_*", "get_next_timer*", "lapic_*", "native_apic*", "apic_*", "delay_tsc", "native_sched_clock", "local_clock*", "sched_clock*", "posix_*", "update_vsyscall"], &["HZ*", "NO_HZ*", "HIGH_RES_TIMERS", "TICK_*", "VIRT_CPU_ACCOUNTING*", "IRQ_TIME_ACCOUNTING"], &["boot.nohz*", "boot.clocksource", "boot.tsc", "boot.hz"]),
    subsystem("interrupts", &["irq_*", "__irq*", "handle_*irq*", "handle_edge*", "handle_softirq*", "__do_softirq", "do_softirq*", "raise_softirq*", "__raise_softirq*", "note_interrupt", "tasklet*", "softirq*", "native_send*", "generic_exec*", "smp_call*", "flush_smp*", "__handle_irq*", "add_interrupt*", "ack_*", "mask_*", "unmask_*", "generic_handle*", "default_send*"], &["IRQ_*", "GENERIC_IRQ*"], &["boot.threadirqs"]),
    subsystem("work queues", &["queue_work*", "__queue_work*", "process_one_work", "worker_*", "queue_delayed*", "kick_pool", "insert_work", "pwq_*", "flush_work*", "__flush_work*", "mod_delayed*", "wq_*", "kthread_*"], &["WQ_*"], &[]),
    subsystem("trees and bits", &["__radix_tree*", "radix_tree*", "rb_*", "__rb_*", "_find_*", "find_next*", "find_first*", "__bitmap*", "llist_*"], &[], &[]),
    subsystem("printing", &["vsnprintf", "snprintf", "number", "format_decode", "string*", "put_dec*", "num_to_str", "scnprintf", "printk*", "_printk", "vprintk*", "console_*"], &[], &[]),
    subsystem("processes: fork, exec, exit", &["copy_*", "kernel_clone", "dup_*", "do_exit", "release_task", "exit_*", "__exit*", "wait_*", "__wait*", "do_wait*", "begin_new_exec", "load_elf*", "bprm_*", "exec_*", "alloc_thread*", "alloc_pid*", "alloc_bprm", "free_bprm", "__put_task*", "put_task*", "delayed_put*", "cgroup_*", "css_*", "pid_*", "put_pid*", "get_pid*", "free_pid*", "attach_pid", "detach_pid", "__change_pid", "free_task*", "account_kernel_stack", "set_binfmt*", "search_binary*", "setup_arg*", "shift_arg*", "create_elf*", "do_group*", "mm_release", "do_execveat*", "task_*", "__task*", "arch_dup*", "prepare_creds", "commit_creds", "put_cred*", "__put_cred", "sched_fork", "idr_*", "ptrace_*", "taskstats*", "proc_flush*", "kstat*", "find_*", "thread_*", "vmalloc*", "vmap_*", "__vmalloc*", "__vmap*", "alloc_vmap*", "percpu_*", "__percpu*", "pcpu_*", "futex_exit*", "acct_*", "add_device_randomness", "get_random*", "chacha*", "crng*", "_get_random*"], &["CGROUP*", "VMAP_STACK", "TASKSTATS", "BSD_PROCESS_ACCT"], &[]),
];

/// Functions that show a change between kernel series: the change, and the Linux version that brought it.
const CAME: &[(&[&str], &str, (u32, u32))] = &[
    (&["pick_eevdf", "__pick_eevdf", "vruntime_eligible"], "the EEVDF scheduler came with", (6, 6)),
    (&["dl_server_update", "dl_server_start"], "the deadline server for ordinary tasks came with", (6, 12)),
    (&["mas_walk", "mas_store_prealloc", "mt_find"], "memory areas are kept in a maple tree since", (6, 1)),
    (&["lock_vma_under_rcu"], "page faults take locks of one memory area since", (6, 4)),
    (&["lru_gen_add_folio", "lru_gen_look_around"], "the multi-generational LRU came with", (6, 1)),
    (&["alloc_from_pcs", "__pcs_replace_empty_main"], "the slab allocator has sheaves for each CPU since", (6, 18)),
    (&["futex_private_hash"], "futexes have a hash table for each process since", (6, 16)),
];

pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((prefix, "")) => name.starts_with(prefix),
        Some((prefix, rest)) => {
            // One star in the middle, as in `copy_p*_range`, and possibly one more at the end.
            let inner = rest.strip_suffix('*');
            name.strip_prefix(prefix).is_some_and(|tail| match inner {
                Some(inner) => tail.contains(inner),
                None => tail.ends_with(rest),
            })
        }
    }
}

fn of(name: &str) -> Option<&'static Subsystem> {
    SUBSYSTEMS.iter().find(|s| s.functions.iter().any(|pattern| fits(pattern, name)))
}

/// A subsystem's part of a difference.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsystemShare {
    pub name: &'static str,
    /// Nanoseconds per operation by which B takes longer in it.
    pub delta: f64,
    /// Its share of the difference.
    pub share: f64,
}

/// The subsystems in which a difference lies, largest first; they add up to the difference.
pub fn parts(causes: &Causes) -> Vec<SubsystemShare> {
    let mut sums: BTreeMap<&'static str, f64> = BTreeMap::new();
    for cause in &causes.causes {
        *sums.entry(of(&cause.name).map_or(OTHER, |s| s.name)).or_default() += cause.delta();
    }
    let share = |delta: f64| if causes.delta() == 0.0 { 0.0 } else { delta / causes.delta() };
    let mut parts: Vec<SubsystemShare> =
        sums.into_iter().map(|(name, delta)| SubsystemShare { name, delta, share: share(delta) }).collect();
    parts.sort_by(|x, y| y.delta.abs().total_cmp(&x.delta.abs()).then_with(|| x.name.cmp(y.name)));
    parts
}

/// The subsystems worth mentioning.
pub fn worth_mentioning(parts: &[SubsystemShare]) -> impl Iterator<Item = &SubsystemShare> {
    parts.iter().filter(|p| p.share.abs() >= WORTH).take(MOST)
}

/// `the page allocator +58 %, the scheduler -3 %`, of the subsystems worth mentioning; `None` if one of them is the whole difference.
pub fn summary(causes: &Causes) -> Option<String> {
    let parts = parts(causes);
    let said: Vec<String> =
        worth_mentioning(&parts).map(|p| format!("{} {}", p.name, super::why::share(p.share))).collect();
    (!said.is_empty()).then(|| format!("By subsystem: {}.", said.join(", ")))
}

const PROGRAM: &str = "user: ";
/// All that no program does itself.
const KERNEL: &str = "kernel and waiting";

/// The program of a function outside the kernel: `java` of `user: libjvm.so (java)`.
fn program(name: &str) -> &str {
    let Some(file) = name.strip_prefix(PROGRAM) else { return KERNEL };
    let Some((_, rest)) = file.rsplit_once('(') else { return file };
    rest.strip_suffix(')').unwrap_or(file)
}

/// `By program: java 40 %, postgres 25 %, kernel and waiting 35 %.`; `None` unless two programs are worth mentioning.
pub fn by_program(causes: &Causes) -> Option<String> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for cause in &causes.causes {
        *sums.entry(program(&cause.name)).or_default() += cause.delta();
    }
    let whole = Some(causes.delta()).filter(|whole| *whole != 0.0)?;
    let mut parts: Vec<(&str, f64)> = sums.into_iter().map(|(name, delta)| (name, delta / whole)).collect();
    parts.retain(|(_, share)| share.abs() >= WORTH);
    parts.sort_by(|x, y| y.1.abs().total_cmp(&x.1.abs()).then_with(|| x.0.cmp(y.0)));
    let programs = parts.iter().filter(|(name, _)| *name != KERNEL).count();
    let said: Vec<String> =
        parts.iter().take(MOST).map(|(name, share)| format!("{name} {}", super::why::share(*share))).collect();
    (programs > 1).then(|| format!("By program: {}.", said.join(", ")))
}

/// The subsystem of memory copies.
const COPIES: &str = "copies of memory";

/// A difference under the exact clock without copies of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WithoutCopies {
    pub rest_ns: f64,
    pub percent: f64,
    /// Whether the rest has the opposite sign: then the sign of the difference depends on how the clock counts copies.
    pub flips: bool,
}

impl WithoutCopies {
    pub fn sentence(&self) -> String {
        let mark = if self.flips { format!(", of the opposite sign ({COPIES_MARK})") } else { String::new() };
        format!("Without copies of memory the change is {} ns ({:+.1} %){mark}.", signed(self.rest_ns), self.percent)
    }
}

/// The rest of a difference under the exact clock without memory copies, if the copies matter and the arms use different copy routines: a loop of
/// loads and stores executes more instructions than `rep movsq`, while processors with fast string instructions take the same time for either.
pub fn without_copies(causes: &Causes) -> Option<WithoutCopies> {
    let copies = || causes.causes.iter().filter(|c| of(&c.name).is_some_and(|s| s.name == COPIES));
    let other_routine = copies().any(|c| (c.a == 0.0) != (c.b == 0.0) || c.formerly.is_some());
    let (a, b) = copies().fold((0.0, 0.0), |sum, c| (sum.0 + c.a, sum.1 + c.b));
    let rest = causes.delta() - (b - a);
    if !other_routine || causes.delta() == 0.0 || ((b - a) / causes.delta()).abs() < 0.1 || causes.a <= a {
        return None;
    }
    let percent = 100.0 * rest / (causes.a - a);
    // A rest that is printed as 0 has no sign.
    let flips = rest * causes.delta() < 0.0 && percent.abs() >= 0.05;
    Some(WithoutCopies { rest_ns: rest, percent, flips })
}

/// The known differences between the arms of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Arms<'a> {
    pub config: &'a [Difference],
    /// Settings that only one arm has.
    pub settings: &'a [(char, &'a str, &'a str)],
    /// Major and minor version of both kernels, if known.
    pub releases: Option<[(u32, u32); 2]>,
}

/// The differences between the arms that affect the subsystems in which a difference lies, one clause for each subsystem.
pub fn touching(causes: &Causes, arms: Arms<'_>) -> Vec<String> {
    let parts = parts(causes);
    let mut said = Vec::new();
    for part in worth_mentioning(&parts) {
        let Some(subsystem) = SUBSYSTEMS.iter().find(|s| s.name == part.name) else { continue };
        let option = |d: &&Difference| subsystem.options.iter().any(|pattern| fits(pattern, &d.option));
        let mut found: Vec<String> = arms
            .settings
            .iter()
            .filter(|(_, lever, _)| subsystem.levers.iter().any(|pattern| fits(pattern, lever)))
            .map(|(arm, lever, value)| format!("{lever}={value} (in {arm})"))
            .collect();
        found.extend(arms.config.iter().filter(option).map(|d| {
            format!("{}: {} → {}", d.option, Difference::shown(d.a.as_deref()), Difference::shown(d.b.as_deref()))
        }));
        let more = found.len().saturating_sub(FEW);
        found.truncate(FEW);
        if more > 0 {
            found.push(format!("{more} more"));
        }
        if !found.is_empty() {
            said.push(format!("{}: {}", part.name, found.join(", ")));
        }
    }
    let only_one_has =
        |names: &[&str]| causes.causes.iter().any(|c| names.contains(&c.name.as_str()) && (c.a == 0.0) != (c.b == 0.0));
    // If both arms are equally old or new, one of them simply does not call the function.
    let came = |with: (u32, u32)| arms.releases.is_none_or(|[a, b]| (a < with) != (b < with));
    said.extend(
        CAME.iter()
            .filter(|(names, _, with)| only_one_has(names) && came(*with))
            .map(|(_, what, (major, minor))| format!("{what} Linux {major}.{minor}")),
    );
    said
}

/// Most configuration options named for one subsystem.
const FEW: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_judge::causes::Cause;

    fn causes(list: &[(&str, f64, f64)]) -> Causes {
        let causes: Vec<Cause> = list
            .iter()
            .map(|(name, a, b)| Cause { name: (*name).to_owned(), formerly: None, a: *a, b: *b, se: None })
            .collect();
        let (a, b) = causes.iter().fold((0.0, 0.0), |sum, c| (sum.0 + c.a, sum.1 + c.b));
        let listed = causes.len();
        Causes {
            comparison: 0,
            workload: "micro".into(),
            metric: "x".into(),
            window: "x".into(),
            pairs: 1,
            cpus: 1.0,
            a,
            b,
            causes,
            listed,
            gone: 0.0,
            new: 0.0,
            sampled: None,
            modelled: None,
        }
    }

    fn name(function: &str) -> &'static str {
        of(function).map_or(OTHER, |s| s.name)
    }

    #[test]
    fn functions_belong_where_they_are_known_to() {
        for (function, subsystem) in [
            ("waiting", "waiting"),
            ("user: /init", "programs"),
            ("srso_safe_ret", "mitigations of CPU flaws"),
            ("do_syscall_64", "entry and exit"),
            ("__list_add_valid_or_report", "checks of memory"),
            ("memcpy_orig", "copies of memory"),
            ("pick_eevdf", "scheduler"),
            ("psi_group_change", "pressure accounting"),
            ("mas_next_slot", "maple tree of memory areas"),
            ("get_obj_cgroup_from_current", "control groups of memory"),
            ("kmem_cache_alloc", "slab allocator"),
            ("get_page_from_freelist", "page allocator"),
            ("copy_pte_range", "page faults and address spaces"),
            ("filemap_get_pages", "page cache"),
            ("blk_mq_flush_plug_list", "block layer"),
            ("null_process_cmd", "block drivers"),
            ("ext4_file_read_iter", "file systems"),
            ("vfs_read", "files and paths"),
            ("tcp_sendmsg_locked", "network"),
            ("hrtimer_interrupt", "timers and clocks"),
            ("page_vma_mapped_walk", "NUMA placement and migration"),
            ("copy_process", "processes: fork, exec, exit"),
            ("__rcu_read_unlock", "RCU"),
            ("a_driver_nobody_knows", OTHER),
        ] {
            assert_eq!(name(function), subsystem, "{function}");
        }
    }

    #[test]
    fn parts_add_up_to_the_difference() {
        let c = causes(&[
            ("pick_eevdf", 0.0, 30.0),
            ("memcpy_orig", 10.0, 80.0),
            ("schedule", 20.0, 10.0),
            ("zzz", 5.0, 6.0),
        ]);
        let parts = parts(&c);
        assert_eq!(parts.iter().map(|p| p.delta).sum::<f64>(), c.delta());
        let mentioned: Vec<_> = worth_mentioning(&parts).map(|p| (p.name, p.delta)).collect();
        assert_eq!(mentioned, [("copies of memory", 70.0), ("scheduler", 20.0)]);
    }

    #[test]
    fn programs_are_told_apart_with_their_libraries() {
        let c = causes(&[
            ("user: postgres", 10.0, 30.0),
            ("user: libc.so.6 (postgres)", 0.0, 10.0),
            ("user: libjvm.so (java)", 0.0, 30.0),
            ("user: compiled code (java)", 5.0, 25.0),
            ("user: init", 5.0, 6.0),
            ("schedule", 0.0, 19.0),
        ]);
        let said = by_program(&c).unwrap();
        assert_eq!(said, "By program: java 50 %, postgres 30 %, kernel and waiting 19 %.");
        assert_eq!(by_program(&causes(&[("user: init", 1.0, 3.0), ("schedule", 1.0, 2.0)])), None);
    }

    #[test]
    fn only_differences_that_touch_what_differs_are_named() {
        let c = causes(&[("pick_eevdf", 0.0, 30.0), ("memcpy_orig", 0.0, 80.0), ("__memcpy", 20.0, 0.0)]);
        let differs = |option: &str, a: Option<&str>, b: Option<&str>| Difference {
            option: option.to_owned(),
            a: a.map(str::to_owned),
            b: b.map(str::to_owned),
        };
        let config = [differs("PREEMPT_DYNAMIC", None, Some("y")), differs("XFS_FS", Some("m"), None)];
        let said = touching(&c, Arms { config: &config, settings: &[('B', "boot.preempt", "full")], releases: None });
        assert_eq!(said[0], "scheduler: boot.preempt=full (in B), PREEMPT_DYNAMIC: off → y");
        assert_eq!(said[1], "the EEVDF scheduler came with Linux 6.6");
        assert_eq!(said.len(), 2);
        // Both arms have the function, so nothing new came.
        let both = causes(&[("pick_eevdf", 10.0, 30.0)]);
        let alike = |releases| Arms { config: &[], settings: &[], releases };
        assert!(touching(&both, alike(None)).is_empty());
        // Nothing came between two kernels that could both have the function either.
        assert!(touching(&c, alike(Some([(6, 12), (7, 2)]))).is_empty());
        assert_eq!(touching(&c, alike(Some([(6, 5), (6, 6)]))).len(), 1);
    }

    #[test]
    fn copies_by_other_routines_are_taken_out() {
        let c = causes(&[
            ("copy_user_generic_unrolled", 60.0, 0.0),
            ("rep_movs_alternative", 0.0, 20.0),
            ("vfs_read", 40.0, 42.0),
        ]);
        let without = without_copies(&c).unwrap();
        assert!(without.flips);
        assert_eq!(
            without.sentence(),
            "Without copies of memory the change is +2.0 ns (+5.0 %), of the opposite sign (†)."
        );
        let faster = causes(&[
            ("copy_user_generic_unrolled", 60.0, 0.0),
            ("rep_movs_alternative", 0.0, 20.0),
            ("vfs_read", 40.0, 30.0),
        ]);
        let without = without_copies(&faster).unwrap();
        assert_eq!(without.sentence(), "Without copies of memory the change is -10.0 ns (-25.0 %).");
        // The same routine called more often is a finding.
        assert_eq!(without_copies(&causes(&[("memcpy_orig", 10.0, 90.0), ("vfs_read", 40.0, 42.0)])), None);
    }

    #[test]
    fn a_pattern_has_its_star_where_it_may() {
        assert!(fits("a*", "abc") && !fits("a", "abc") && fits("copy_p*_range", "copy_pte_range"));
        assert!(!fits("copy_p*_range", "copy_pte") && fits("handle_*irq*", "handle_edge_irq_x"));
        for subsystem in SUBSYSTEMS {
            assert!(
                subsystem.functions.iter().all(|f| !f.starts_with('*')),
                "{} would take everything",
                subsystem.name
            );
        }
    }
}
