//! The names of counters in sentences, and the units of their numbers.
//!
//! Invariant: a counter without words of its own has the kernel's name.

use crate::metric::Unit;

/// The unit of a counter's number, by its name.
pub fn unit(name: &str) -> Unit {
    match name {
        name if name.starts_with("block.bytes-per-") => Unit::Bytes,
        name if name.ends_with("-ns") => Unit::Ns,
        name if name.ends_with("-bytes") || name.starts_with("mem.") || name.starts_with("slab.") => Unit::Bytes,
        _ => Unit::Count,
    }
}

/// The smallest amount in one trial that is meaningful: fewer events, or less time or memory, differ between boots by chance.
pub fn floor(unit: Unit) -> f64 {
    match unit {
        Unit::Ns => 100_000.0,
        Unit::Bytes => 65_536.0,
        _ => 10.0,
    }
}

/// As in `3.1 context switches per operation`.
const WORDS: &[(&str, &str)] = &[
    ("sched.context-switches", "context switches"),
    ("sched.forks", "processes and threads started"),
    ("sched.run-queue-wait-ns", "waited for a CPU"),
    ("sched.run-ns", "run by tasks"),
    ("sched.timeslices", "times on a CPU"),
    ("sched.wakeups", "wake-ups"),
    ("sched.wakeups-local", "wake-ups on the same CPU"),
    ("sched.tasks-pulled", "tasks moved by the balancer"),
    ("sched.yields", "yields"),
    ("irq.all", "interrupts of devices and timers"),
    ("irq.devices", "interrupts of devices"),
    ("irq.LOC", "timer interrupts"),
    ("irq.RES", "rescheduling interrupts"),
    ("irq.CAL", "function call interrupts"),
    ("irq.TLB", "TLB shootdowns"),
    ("irq.IWI", "IRQ work interrupts"),
    ("softirq.TIMER", "timer softirqs"),
    ("softirq.HRTIMER", "high-resolution timer softirqs"),
    ("softirq.SCHED", "scheduler softirqs"),
    ("softirq.RCU", "RCU softirqs"),
    ("softirq.BLOCK", "block softirqs"),
    ("softirq.NET_RX", "network receive softirqs"),
    ("softirq.NET_TX", "network send softirqs"),
    ("softirq.TASKLET", "tasklets"),
    ("vm.pgfault", "page faults"),
    ("vm.pgmajfault", "major page faults"),
    ("vm.pgfree", "pages freed"),
    ("vm.pgactivate", "pages made active"),
    ("vm.pgdeactivate", "pages made inactive"),
    ("vm.pgreuse", "pages reused on copy-on-write"),
    ("vm.pgpgin", "KiB read from block devices"),
    ("vm.pgpgout", "KiB written to block devices"),
    ("vm.pswpin", "pages read from swap"),
    ("vm.pswpout", "pages written to swap"),
    ("vm.nr_dirtied", "pages made dirty"),
    ("vm.nr_written", "pages written back"),
    ("vm.numa_hint_faults", "NUMA hint faults"),
    ("vm.numa_pages_migrated", "pages moved between nodes"),
    ("vm.numa_pte_updates", "page table entries made to fault for NUMA balancing"),
    ("vm.thp_fault_alloc", "huge pages allocated by faults"),
    ("vm.compact_stall", "stalls for compaction"),
    ("vm.allocstall_normal", "stalls for reclaim"),
    ("vm.pgscan_kswapd", "pages scanned by kswapd"),
    ("vm.pgscan_direct", "pages scanned in direct reclaim"),
    ("vm.pgsteal_kswapd", "pages reclaimed by kswapd"),
    ("vm.pgsteal_direct", "pages reclaimed directly"),
    ("block.reads", "disk reads"),
    ("block.reads-merged", "merged reads"),
    ("block.writes", "disk writes"),
    ("block.writes-merged", "merged writes"),
    ("block.read-bytes", "read from disks"),
    ("block.written-bytes", "written to disks"),
    ("block.read-time-ns", "of reads' time"),
    ("block.write-time-ns", "of writes' time"),
    ("block.queue-time-ns", "of requests' time in queues and devices"),
    ("block.busy-ns", "of disks being busy"),
    ("block.flushes", "disk cache flushes"),
    ("block.bytes-per-read", "per disk read"),
    ("block.bytes-per-write", "per disk write"),
    ("own.voluntary-switches", "voluntary switches of the trial's own tasks"),
    ("own.involuntary-switches", "involuntary switches of the trial's own tasks"),
    ("own.run-queue-wait-ns", "waited for a CPU by the trial's own tasks"),
    ("own.minor-faults", "page faults of the trial's own processes"),
    ("own.major-faults", "major page faults of the trial's own processes"),
    ("mem.PageTables", "of page tables"),
    ("mem.Slab", "of slab memory"),
    ("mem.SUnreclaim", "of slab memory that cannot be reclaimed"),
    ("mem.SReclaimable", "of slab memory that can be reclaimed"),
    ("mem.KernelStack", "of kernel stacks"),
];

/// Sizes of requests: their name, the counter to divide, and its divisor.
pub const SIZES: [(&str, &str, &str); 2] = [
    ("block.bytes-per-read", "block.read-bytes", "block.reads"),
    ("block.bytes-per-write", "block.written-bytes", "block.writes"),
];

/// The words for a counter; `None` if only the kernel's name exists.
pub fn words(name: &str) -> Option<&'static str> {
    WORDS.iter().find(|(n, _)| *n == name).map(|(_, words)| *words)
}

/// Whether a counter is an amount at a window's end, which is not divided by operations.
pub fn is_amount(name: &str) -> bool {
    name.starts_with("mem.") || name.starts_with("slab.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_go_by_names() {
        assert_eq!(unit("sched.run-queue-wait-ns"), Unit::Ns);
        assert_eq!((unit("mem.PageTables"), unit("block.read-bytes")), (Unit::Bytes, Unit::Bytes));
        assert_eq!((unit("vm.pgfault"), unit("irq.TLB")), (Unit::Count, Unit::Count));
        assert!(is_amount("slab.dentry") && !is_amount("block.read-bytes"));
        assert_eq!(words("irq.TLB"), Some("TLB shootdowns"));
        assert_eq!(words("vm.pgalloc_dma32"), None);
    }
}
