//! Page tables: their cost for each process, counted by the kernel and computed.
//!
//! Invariant: measured for the processes themselves while they live, not estimated from samples.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;

use anyhow::{Context as _, Result, bail};

use bigiron_sys::memory::{BASE_PAGE, PMD_PAGE};

use super::instance::Instance;
use super::memory::CacheMemory;

/// Bytes of one table of any level on x86-64: 512 entries of 8 bytes.
const TABLE: u64 = 4096;
const ENTRIES: u64 = 512;

/// The page tables of a run's processes.
pub struct PageTables {
    /// All processes together, in bytes.
    pub total: u64,
    pub facts: BTreeMap<String, String>,
}

impl PageTables {
    /// The result of `measured` (process number and bytes). `private` is this process's size before it mapped the cache.
    pub fn new(instance: &Instance<'_>, memory: &CacheMemory, private: u64, measured: &[(usize, u64)]) -> Result<Self> {
        let sum =
            |of: &dyn Fn(usize) -> bool| measured.iter().filter(|(p, _)| of(*p)).map(|(_, bytes)| bytes).sum::<u64>();
        let transactors = instance.job.transactors() as u64;
        let foregrounds = sum(&|p| instance.class(p).kind.transacts());
        let arithmetic = arithmetic(&memory.segment().memory().addresses(), memory.entry_bytes()?);
        let mut facts: BTreeMap<_, _> = [
            ("page-table-bytes-per-foreground", foregrounds / transactors.max(1)),
            ("page-table-arithmetic-bytes", arithmetic),
            ("page-table-private-bytes", private),
            ("page-table-machine-bytes", of_machine()?),
        ]
        .map(|(name, bytes)| (name.to_owned(), bytes.to_string()))
        .into();
        for (class, spec) in instance.job.classes.iter().enumerate() {
            let bytes = sum(&|p| instance.roles[p].class == class);
            facts.insert(format!("page-table-bytes-{}", spec.name), bytes.to_string());
        }
        Ok(Self { total: sum(&|_| true), facts })
    }
}

/// Bytes of all page tables of a process, given as a number or `self` (`VmPTE`: all levels except the topmost).
pub fn of_process(process: impl std::fmt::Display) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("Cannot read {path}"))?;
    kib_line(&status, "VmPTE").with_context(|| format!("Cannot read {path}"))
}

/// Bytes of all page tables of the machine.
pub fn of_machine() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("Cannot read /proc/meminfo")?;
    kib_line(&text, "PageTables").context("Cannot read /proc/meminfo")
}

/// The line `NAME: N kB`, in bytes.
fn kib_line(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    let line = line.with_context(|| format!("It has no line {name}"))?;
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [n, "kB"] => Ok(n.parse::<u64>()? * 1024),
        _ => bail!("Not a size: `{line}`"),
    }
}

/// Bytes of page tables of a process that has touched every page of `addresses`, mapped by entries for `page` bytes each.
///
/// An entry takes 8 bytes, so base pages cost 8 bytes for 4 KiB, a 512th of the memory, in every process. Entries come in tables
/// of 512; the upper levels have one table for 1 GiB and one for 512 GiB, and entries for huge pages are in those.
pub fn arithmetic(addresses: &Range<u64>, page: u64) -> u64 {
    let tables = |span: u64| addresses.end.div_ceil(span) - addresses.start / span;
    let mut bytes = 0;
    // The span of one table of each level: 2 MiB, 1 GiB. Every process already has the table above, for 512 GiB.
    for span in [BASE_PAGE * ENTRIES, PMD_PAGE * ENTRIES] {
        if page < span {
            bytes += tables(span) * TABLE;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_workload::testing::skipped;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    use crate::huge_pages::{Permission, Refused};
    use crate::memory::CacheMemory;
    use bigiron_sys::latch::EventCount;
    use bigiron_sys::memory::Memory;
    use bigiron_sys::process::{Exit, fork_child};
    use bigiron_sys::segment::Segment;

    const MIB: u64 = 1 << 20;

    #[test]
    fn eight_bytes_for_each_base_page() {
        assert_eq!(arithmetic(&(0..1 << 30), 4096), (1 << 30) / 512 + TABLE);
        assert_eq!(arithmetic(&(MIB..3 * MIB), 4096), 2 * TABLE + TABLE, "begins and ends in the middle of a table");
        assert_eq!(arithmetic(&(0..4 << 30), 2 * MIB), 4 * TABLE);
        assert_eq!(arithmetic(&(0..4 << 30), 1 << 30), 0);
    }

    #[test]
    fn lines_are_read_in_bytes() {
        assert_eq!(kib_line("Name:\tx\nVmPTE:\t     132 kB\nVmSwap:\t 0 kB\n", "VmPTE").unwrap(), 132 * 1024);
        assert!(kib_line("Name:\tx\n", "VmPTE").is_err());
        assert!(of_machine().unwrap() >= of_process("self").unwrap());
    }

    /// The growth of the page tables of `processes` processes when each touches all of `memory`.
    fn growth(memory: &CacheMemory, processes: usize) -> u64 {
        let control = Segment::new(1 << 16).unwrap();
        let (touched, all) = (control.many::<AtomicU64>(processes), control.one::<EventCount>());
        let done = || touched.iter().all(|t| t.load(SeqCst) > 0);
        let children: Vec<_> = touched
            .iter()
            .map(|own| {
                fork_child(|| {
                    // Reading it allocates further tables: for the code, the heap and the stack.
                    of_process("self").unwrap();
                    let before = of_process("self").unwrap();
                    memory.segment().memory().touch();
                    // Plus one, to show that it has been measured.
                    own.store(of_process("self").unwrap() - before + 1, SeqCst);
                    all.signal();
                    // All at once, as in a run: shared tables would show.
                    all.wait_until(done);
                    0
                })
                .unwrap()
            })
            .collect();
        for c in children {
            assert_eq!(c.wait().unwrap(), Exit::Status(0));
        }
        touched.iter().map(|t| t.load(SeqCst) - 1).sum()
    }

    #[test]
    fn page_tables_grow_as_arithmetic_says() {
        const BYTES: u64 = 64 * MIB;
        for kind in [Memory::Mmap, Memory::Sysv, Memory::Thp, Memory::Huge(2 * MIB), Memory::SysvHuge(2 * MIB)] {
            let memory = match CacheMemory::new(kind, BYTES as usize, Permission::of_this_machine()) {
                Ok(memory) => memory,
                Err(e) => {
                    skipped(kind, e.downcast::<Refused>().unwrap());
                    continue;
                }
            };
            // Filled by the parent, as a run does.
            memory.segment().memory().touch();
            let expected = arithmetic(&memory.segment().memory().addresses(), kind.page());
            for processes in [1, 4, 16] {
                let measured = growth(&memory, processes);
                // Upper tables may exist already, and code that has not run yet may allocate another table meanwhile.
                let tolerance = 3 * TABLE * processes as u64;
                let all = expected * processes as u64;
                eprintln!("{kind}: {processes} processes, {measured} bytes, by arithmetic {all}");
                assert!(measured.abs_diff(all) <= tolerance, "{kind}: {measured} bytes, by arithmetic {all}");
            }
        }
    }
}
