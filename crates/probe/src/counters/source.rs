//! The files that counters come from, parsed from their text.
//!
//! Invariant: pure functions of the text. A line that cannot be parsed is ignored; a parsed one has the same name on every kernel.

use std::collections::BTreeMap;

/// A counter at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterValue {
    /// One number of 64 bits for the whole machine, which does not wrap.
    Total(u64),
    /// Numbers to be added up, by row and CPU. The kernel keeps many of them in 32 bits.
    Cells(Vec<CpuCell>),
    /// A present amount rather than a count of events.
    Gauge(u64),
}

/// A number of one CPU: row (0 if there is only one), CPU, and the number.
pub type CpuCell = (u32, u32, u64);

/// Counters by name.
pub type Values = BTreeMap<String, CounterValue>;

/// Files below /proc that are read when a window opens and when it closes.
pub const EDGES: [&str; 10] = [
    "vmstat",
    "stat",
    "softirqs",
    "interrupts",
    "schedstat",
    "diskstats",
    "pressure/cpu",
    "pressure/io",
    "pressure/memory",
    "pressure/irq",
];

/// Files that are read only when a window closes, because they hold amounts.
pub const END: [&str; 2] = ["meminfo", "slabinfo"];

/// Tells whether the scheduler keeps its costly statistics.
pub const SCHEDSTATS: &str = "sys/kernel/sched_schedstats";

/// Parses `text`, read from `file`.
pub fn parse(file: &str, text: &str, schedstats: bool, values: &mut Values) {
    match file {
        "vmstat" => vmstat(text, values),
        "stat" => stat(text, values),
        "softirqs" => softirqs(text, values),
        "interrupts" => interrupts(text, values),
        "schedstat" => schedstat(text, schedstats, values),
        "diskstats" => diskstats(text, values),
        "meminfo" => meminfo(text, values),
        "slabinfo" => slabinfo(text, values),
        _ => {
            if let Some(resource) = file.strip_prefix("pressure/") {
                pressure(resource, text, values);
            }
        }
    }
}

/// Lines of /proc/vmstat that begin like amounts but are events.
const EVENTS: [&str; 7] = [
    "nr_dirtied",
    "nr_written",
    "nr_throttled_written",
    "nr_vmscan_write",
    "nr_vmscan_immediate_reclaim",
    "nr_foll_pin_acquired",
    "nr_foll_pin_released",
];

/// Memory events: faults, allocations, reclaim, migration. Amounts begin with `nr_` and come from /proc/meminfo instead.
fn vmstat(text: &str, values: &mut Values) {
    for (name, n) in text.lines().filter_map(|line| line.split_once(' ')) {
        let is_amount = name.starts_with("nr_") && !name.starts_with("nr_tlb_") && !EVENTS.contains(&name);
        if !is_amount
            && name != "workingset_nodes"
            && let Ok(n) = n.trim().parse()
        {
            values.insert(format!("vm.{name}"), CounterValue::Total(n));
        }
    }
}

/// Nanoseconds of a tick in /proc/stat, whatever the kernel's own HZ.
const TICK_NS: u64 = 10_000_000;

fn stat(text: &str, values: &mut Values) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let label = words.next().unwrap_or("");
        let mut first = |name: &str| {
            if let Some(n) = words.next().and_then(|w| w.parse().ok()) {
                values.insert(name.to_owned(), CounterValue::Total(n));
            }
        };
        match label {
            "ctxt" => first("sched.context-switches"),
            "processes" => first("sched.forks"),
            "intr" => first("irq.all"),
            "cpu" => {
                let ticks: Vec<u64> = words.filter_map(|w| w.parse().ok()).collect();
                let names = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
                for (name, n) in names.iter().zip(ticks) {
                    values.insert(format!("cpu.{name}-ns"), CounterValue::Total(n.saturating_mul(TICK_NS)));
                }
            }
            _ => {}
        }
    }
}

/// The CPUs of a table's head: `CPU0 CPU1 …`.
fn head(line: &str) -> Vec<u32> {
    line.split_ascii_whitespace().filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect()
}

fn softirqs(text: &str, values: &mut Values) {
    let mut lines = text.lines();
    let cpus = head(lines.next().unwrap_or(""));
    for (name, numbers) in lines.filter_map(|line| line.split_once(':')) {
        if let Some(cells) = row(0, numbers, &cpus) {
            values.insert(format!("softirq.{}", name.trim()), CounterValue::Cells(cells));
        }
    }
}

/// A number for each CPU; `None` if there are fewer numbers.
fn row(number: u32, text: &str, cpus: &[u32]) -> Option<Vec<CpuCell>> {
    let numbers = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
    let cells: Vec<CpuCell> = cpus.iter().zip(numbers).map(|(cpu, n)| (number, *cpu, n)).collect();
    (!cells.is_empty() && cells.len() == cpus.len()).then_some(cells)
}

/// Interrupts by the kernel's letters (`TLB`, `RES`, `LOC` …); those of devices, which have numbers, are added up.
fn interrupts(text: &str, values: &mut Values) {
    let mut lines = text.lines();
    let cpus = head(lines.next().unwrap_or(""));
    let mut devices = Vec::new();
    for (name, numbers) in lines.filter_map(|line| line.split_once(':')) {
        let name = name.trim();
        match name.parse() {
            Ok(number) => devices.extend(row(number, numbers, &cpus).unwrap_or_default()),
            // ERR and MIS have one number for all CPUs.
            Err(_) if cpus.len() > 1 && numbers.split_ascii_whitespace().count() == 1 => {
                if let Ok(n) = numbers.trim().parse() {
                    values.insert(format!("irq.{name}"), CounterValue::Cells(vec![(0, 0, n)]));
                }
            }
            Err(_) => {
                if let Some(cells) = row(0, numbers, &cpus) {
                    values.insert(format!("irq.{name}"), CounterValue::Cells(cells));
                }
            }
        }
    }
    if !cpus.is_empty() {
        values.insert("irq.devices".to_owned(), CounterValue::Cells(devices));
    }
}

/// The counters of each CPU in /proc/schedstat. Its first six numbers, and those of domains, stay 0 unless the kernel keeps `statistics`.
fn schedstat(text: &str, statistics: bool, values: &mut Values) {
    let version: u32 = text.lines().find_map(|l| l.strip_prefix("version ")?.trim().parse().ok()).unwrap_or(0);
    let mut put = |name: &str, cell: CpuCell| match values.get_mut(name) {
        Some(CounterValue::Cells(cells)) => cells.push(cell),
        _ => drop(values.insert(name.to_owned(), CounterValue::Cells(vec![cell]))),
    };
    let mut cpu = 0;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let label = words.next().unwrap_or("");
        if let Some(number) = label.strip_prefix("cpu").and_then(|n| n.parse().ok()) {
            cpu = number;
            let fields: Vec<u64> = words.filter_map(|w| w.parse().ok()).collect();
            let names = [
                "yields",
                "",
                "schedules",
                "idle-picks",
                "wakeups",
                "wakeups-local",
                "run-ns",
                "run-queue-wait-ns",
                "timeslices",
            ];
            for (n, (name, value)) in names.iter().zip(fields).enumerate() {
                if !name.is_empty() && (n >= 6 || statistics) {
                    put(&format!("sched.{name}"), (0, cpu, value));
                }
            }
        } else if let Some(number) = label.strip_prefix("domain").and_then(|n| n.parse().ok())
            && statistics
        {
            let fields: Vec<&str> = words.collect();
            if let Some(pulled) = pulled(version, &fields) {
                put("sched.tasks-pulled", (number, cpu, pulled));
            }
        }
    }
}

/// Tasks that the load balancer moved in a domain, from the fields after its number: `lb_gained` of three kinds of idleness. Each kind has 8 numbers
/// up to version 16, and 11 in version 17, where the domain's name precedes its CPUs.
fn pulled(version: u32, fields: &[&str]) -> Option<u64> {
    let (skipped, each, gained) = match version {
        15 | 16 => (1, 8, 4),
        17 => (2, 11, 7),
        _ => return None,
    };
    (0..3).map(|kind| fields.get(skipped + kind * each + gained)?.parse::<u64>().ok()).sum()
}

/// Devices that pass their requests on to other devices, which count them again.
const STACKED: [&str; 3] = ["loop", "dm-", "md"];

/// Requests of all disks together, without partitions and stacked devices.
fn diskstats(text: &str, values: &mut Values) {
    const SECTOR: u64 = 512;
    const MS: u64 = 1_000_000;
    // Numbered from 1 as in Documentation/admin-guide/iostats.rst; requests in flight (9) are not a counter.
    let fields = [
        (1, "reads", 1),
        (2, "reads-merged", 1),
        (3, "read-bytes", SECTOR),
        (4, "read-time-ns", MS),
        (5, "writes", 1),
        (6, "writes-merged", 1),
        (7, "written-bytes", SECTOR),
        (8, "write-time-ns", MS),
        (10, "busy-ns", MS),
        (11, "queue-time-ns", MS),
        (12, "discards", 1),
        (14, "discarded-bytes", SECTOR),
        (16, "flushes", 1),
        (17, "flush-time-ns", MS),
    ];
    let mut disk = "";
    for (number, line) in (0..).zip(text.lines()) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some(name) = words.get(2) else { continue };
        if is_partition(name, disk) {
            continue;
        }
        disk = name;
        if STACKED.iter().any(|stacked| name.starts_with(stacked)) {
            continue;
        }
        for (field, name, unit) in fields {
            let Some(n) = words.get(2 + field).and_then(|w| w.parse::<u64>().ok()) else { continue };
            let cell = (number, 0, n.saturating_mul(unit));
            match values.entry(format!("block.{name}")).or_insert(CounterValue::Cells(Vec::new())) {
                CounterValue::Cells(cells) => cells.push(cell),
                _ => unreachable!("these are cells"),
            }
        }
    }
}

/// `sda1` is a partition of `sda`, `nvme0n1p2` of `nvme0n1`; but `loop10` is not a partition of `loop1`.
fn is_partition(name: &str, disk: &str) -> bool {
    let rest = name.strip_prefix(disk).filter(|_| !disk.is_empty());
    let number =
        rest.and_then(
            |rest| if disk.ends_with(|c: char| c.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) },
        );
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Time in which tasks were stalled, from `some avg10=… total=MICROSECONDS`.
fn pressure(resource: &str, text: &str, values: &mut Values) {
    for line in text.lines() {
        let kind = line.split(' ').next().unwrap_or("");
        if let Some(us) = line.rsplit_once("total=").and_then(|(_, n)| n.trim().parse::<u64>().ok()) {
            values.insert(format!("psi.{resource}-{kind}-ns"), CounterValue::Total(us.saturating_mul(1000)));
        }
    }
}

/// Amounts of memory that show how the kernel does its work; free and cached memory depend more on the workload.
const AMOUNTS: [&str; 15] = [
    "Cached",
    "Dirty",
    "Writeback",
    "AnonPages",
    "Mapped",
    "Shmem",
    "KReclaimable",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "KernelStack",
    "PageTables",
    "SecPageTables",
    "Percpu",
    "AnonHugePages",
];

fn meminfo(text: &str, values: &mut Values) {
    for (name, amount) in text.lines().filter_map(|line| line.split_once(':')) {
        let kib = amount.trim().strip_suffix(" kB").and_then(|n| n.trim().parse::<u64>().ok());
        if let Some(kib) = kib.filter(|_| AMOUNTS.contains(&name)) {
            values.insert(format!("mem.{name}"), CounterValue::Gauge(kib << 10));
        }
    }
}

/// Bytes of the objects in use, by cache.
fn slabinfo(text: &str, values: &mut Values) {
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("slabinfo")) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |n: usize| words.get(n)?.parse::<u64>().ok();
        if let (Some(name), Some(objects), Some(size)) = (words.first(), number(1), number(3)) {
            values.insert(format!("slab.{name}"), CounterValue::Gauge(objects.saturating_mul(size)));
        }
    }
}

#[cfg(test)]
mod tests;
