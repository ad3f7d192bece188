//! The memory that the processes of a run need in addition to what they share.
//!
//! Invariant: from the kernel's own statistics of the whole machine, before the first fork and when the window has closed: accurate if nothing else
//! runs, as in a guest.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};

/// Lines of /proc/meminfo that grow with processes, and their names in the record: private memory, kernel stacks, page tables, the kernel's own
/// structures.
const PARTS: [(&str, &str); 4] =
    [("AnonPages", "private"), ("KernelStack", "kernel-stack"), ("PageTables", "page-table"), ("SUnreclaim", "slab")];

/// Bytes of each part at one moment.
pub struct Footprint([u64; PARTS.len()]);

impl Footprint {
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/meminfo").context("Cannot read /proc/meminfo")?;
        Ok(Self(PARTS.map(|(line, _)| bytes(&text, line))))
    }

    /// The growth in bytes since then, by parts.
    pub fn grown(&self) -> Result<Vec<u64>> {
        let Self(now) = Self::now()?;
        Ok(now.iter().zip(self.0).map(|(now, before)| now.saturating_sub(before)).collect())
    }

    /// The growth since then, in total and by parts for each of `processes`.
    pub fn facts_since(&self, processes: usize) -> Result<BTreeMap<String, String>> {
        let grown = self.grown()?;
        let each = |n: u64| (n / processes.max(1) as u64).to_string();
        let all = ("process-memory-bytes".to_owned(), each(grown.iter().sum()));
        let parts = PARTS.iter().zip(&grown).map(|((_, name), n)| (format!("process-memory-bytes-{name}"), each(*n)));
        Ok(parts.chain([all]).collect())
    }
}

/// Bytes that the kernel itself uses now: for the whole machine, as [`Footprint`].
///
/// # Errors
/// /proc/meminfo cannot be read.
pub fn of_kernel() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("Cannot read /proc/meminfo")?;
    Ok(["Slab", "KernelStack", "PageTables"].iter().map(|line| bytes(&text, line)).sum())
}

/// A line of /proc/meminfo; 0 on kernels that do not have it.
fn bytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_share_of_what_has_come() {
        assert_eq!(bytes("MemTotal: 9 kB\nAnonPages:     12 kB\n", "AnonPages"), 12 << 10);
        assert_eq!(bytes("MemTotal: 9 kB\n", "AnonPages"), 0);
        let facts = Footprint([0; 4]).facts_since(2).unwrap();
        let number = |name: &str| facts[name].parse::<u64>().unwrap();
        let parts: u64 = PARTS.iter().map(|(_, part)| number(&format!("process-memory-bytes-{part}"))).sum();
        assert!(number("process-memory-bytes").abs_diff(parts) <= 4 && parts > 0, "{facts:?}");
    }
}
