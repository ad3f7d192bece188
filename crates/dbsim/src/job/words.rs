//! The words of a job file for enumerated values.
//!
//! Invariant: every value has one word, and the word parses to the value.

use super::{DataSync, LogSync, Memory, Replacement, Transport, Wake, Wire};
use bigiron_model::size;
use bigiron_workload::keys::form::words_of;

words_of!(Replacement: "clock" => Clock, "lru" => Lru);
words_of!(DataSync: "dsync" => Dsync, "fdatasync" => Fdatasync);
words_of!(LogSync:
    "dsync" => Dsync,
    "rwf-dsync" => RwfDsync,
    "fdatasync" => Fdatasync,
    "fsync" => Fsync,
    "linked" => Linked,
);
words_of!(Wake: "post" => Post, "poll" => Poll);
words_of!(Transport: "socket" => Socket, "pipe" => Pipe, "memory" => Memory, "tcp" => Tcp);
words_of!(Wire: "loopback" => Loopback, "veth" => Veth);

/// The values of `cache.memory`, for messages.
pub const A_MEMORY: &str =
    "`mmap`, `thp`, `sysv`, or with reserved pages of a size `huge-2M`, `sysv-huge-2M` or `hugetlbfs-2M`";

/// Parses `mmap`, `thp`, `sysv`, `huge-2M`, `sysv-huge-1G`, `hugetlbfs-2M`.
pub fn memory(word: &str) -> Option<Memory> {
    let pages =
        |text: &str| size::parse_bytes(text).ok().filter(|n| n.is_power_of_two() && (1 << 16..=1 << 34).contains(n));
    match word {
        "mmap" => Some(Memory::Mmap),
        "thp" => Some(Memory::Thp),
        "sysv" => Some(Memory::Sysv),
        _ => {
            if let Some(size) = word.strip_prefix("huge-") {
                pages(size).map(Memory::Huge)
            } else if let Some(size) = word.strip_prefix("sysv-huge-") {
                pages(size).map(Memory::SysvHuge)
            } else {
                word.strip_prefix("hugetlbfs-").and_then(pages).map(Memory::Hugetlbfs)
            }
        }
    }
}

/// The inverse of [`memory`].
pub fn print_memory(memory: Memory) -> String {
    match memory {
        Memory::Mmap => "mmap".to_owned(),
        Memory::Thp => "thp".to_owned(),
        Memory::Sysv => "sysv".to_owned(),
        Memory::Huge(page) => format!("huge-{}", size::print_bytes(page)),
        Memory::SysvHuge(page) => format!("sysv-huge-{}", size::print_bytes(page)),
        Memory::Hugetlbfs(page) => format!("hugetlbfs-{}", size::print_bytes(page)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reads_back() {
        for word in ["mmap", "thp", "sysv", "huge-2M", "huge-1G", "sysv-huge-2M", "hugetlbfs-1G"] {
            assert_eq!(print_memory(memory(word).unwrap()), word);
        }
        for word in ["huge", "huge-", "huge-3M", "huge-4K", "brk"] {
            assert_eq!(memory(word), None, "{word}");
        }
    }
}
