//! The words of a job file for what can be one of a few things.
//!
//! Invariant: every value has one word, and the word reads back as the value.

use super::{DataSync, LogSync, Memory, Method, Replacement, Transport, Wake, Wire};
use crate::size;

/// Something that can be one of a closed list.
pub trait Word: Copy + PartialEq + 'static {
    const ALL: &'static [(&'static str, Self)];

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(w, _)| *w == word).map(|(_, value)| *value)
    }

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

impl Word for Method {
    const ALL: &'static [(&'static str, Self)] = &[
        ("sync", Method::Sync),
        ("vectored", Method::Vectored),
        ("threads", Method::Threads),
        ("libaio", Method::Libaio),
        ("uring", Method::Uring),
        ("null", Method::Null),
    ];
}

impl Word for Replacement {
    const ALL: &'static [(&'static str, Self)] = &[("clock", Replacement::Clock), ("lru", Replacement::Lru)];
}

impl Word for DataSync {
    const ALL: &'static [(&'static str, Self)] = &[("dsync", DataSync::Dsync), ("fdatasync", DataSync::Fdatasync)];
}

impl Word for LogSync {
    const ALL: &'static [(&'static str, Self)] = &[
        ("dsync", LogSync::Dsync),
        ("rwf-dsync", LogSync::RwfDsync),
        ("fdatasync", LogSync::Fdatasync),
        ("fsync", LogSync::Fsync),
        ("linked", LogSync::Linked),
    ];
}

impl Word for Wake {
    const ALL: &'static [(&'static str, Self)] = &[("post", Wake::Post), ("poll", Wake::Poll)];
}

impl Word for Transport {
    const ALL: &'static [(&'static str, Self)] = &[
        ("socket", Transport::Socket),
        ("pipe", Transport::Pipe),
        ("memory", Transport::Memory),
        ("tcp", Transport::Tcp),
    ];
}

impl Word for Wire {
    const ALL: &'static [(&'static str, Self)] = &[("loopback", Wire::Loopback), ("veth", Wire::Veth)];
}

/// What `cache.memory` may be, for messages.
pub const A_MEMORY: &str =
    "`mmap`, `thp`, `sysv`, or with reserved pages of a size `huge-2M`, `sysv-huge-2M` or `hugetlbfs-2M`";

/// Reads `mmap`, `thp`, `sysv`, `huge-2M`, `sysv-huge-1G`, `hugetlbfs-2M`.
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

/// As [`memory`] reads it.
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

    fn words_read_back<W: Word + std::fmt::Debug>() {
        for (word, value) in W::ALL {
            assert_eq!(W::from_word(word), Some(*value));
            assert_eq!(value.word(), *word);
        }
        assert_eq!(W::from_word("other"), None);
    }

    #[test]
    fn every_word_reads_back() {
        words_read_back::<Method>();
        words_read_back::<Replacement>();
        words_read_back::<DataSync>();
        words_read_back::<LogSync>();
        words_read_back::<Wake>();
        words_read_back::<Transport>();
        words_read_back::<Wire>();
    }

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
