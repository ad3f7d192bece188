//! The kernel's log: which of its lines are complaints.

use std::collections::BTreeMap;

use bigiron_model::record::Complaint;

/// The texts that put a line into a class. The first match wins, so the more serious classes come first.
const CLASSES: &[(&str, &[&str])] = &[
    ("oom", &["Out of memory: Killed process", "invoked oom-killer", "Memory cgroup out of memory"]),
    ("hung-task", &["blocked for more than"]),
    (
        "rcu-stall",
        &["rcu_preempt detected stalls", "rcu_sched detected stalls", "rcu: INFO: ", "self-detected stall on CPU"],
    ),
    (
        "oops",
        &[
            "Oops: ",
            "BUG: unable to handle",
            "general protection fault",
            "kernel NULL pointer dereference",
            "soft lockup",
            "hard LOCKUP",
        ],
    ),
    ("bug", &["kernel BUG at", "BUG: "]),
    (
        "io-error",
        &[
            "I/O error",
            "JBD2: Error",
            "EXT2-fs",
            "EXT4-fs error",
            "XFS (",
            "F2FS-fs",
            "BTRFS error",
            "BTRFS critical",
            "BTRFS alert",
            "BTRFS emergency",
            "BTRFS warning",
            "BTRFS: error",
            "BTRFS: Transaction aborted",
        ],
    ),
    ("warning", &["WARNING: "]),
];

/// Advice that the kernel logs about the CPU's vulnerabilities; not a WARN_ON.
const ADVICE: &str = "WARNING: See ";

/// Prefixes that also begin harmless messages of a file system (`XFS (nullb0): Mounting V5 Filesystem`), and the words that identify its errors.
const ERRORS: &[(&str, &[&str])] = &[
    ("XFS (", &["Corruption", "error", "Internal error", "Shutting down", "shut down", "Metadata I/O"]),
    ("EXT2-fs", &["error"]),
    (
        "F2FS-fs",
        &[
            "rror",
            "orrupt",
            "nconsistent",
            "ismatch",
            "wrongly",
            "nvalid blkaddr",
            "nvalid namelen",
            "ailed to",
            "an't find valid",
            "annot recover",
            "Stopped filesystem",
            "run fsck",
        ],
    ),
    // Btrfs logs failed checksums and lost writes as warnings, like mere advice.
    ("BTRFS warning", &["csum failed", "checksum", "IO error", "I/O error", "IO failure", "lost page write"]),
];

/// The class of a line of the kernel's log; `None` if the line is not a complaint.
pub fn class(line: &str) -> Option<&'static str> {
    let (class, pattern) = CLASSES
        .iter()
        .find_map(|(class, patterns)| patterns.iter().find(|p| line.contains(**p)).map(|p| (*class, *p)))?;
    let words = ERRORS.iter().find(|(of, _)| *of == pattern);
    if words.is_some_and(|(_, words)| !words.iter().any(|word| line.contains(word))) {
        return None;
    }
    if line.contains(ADVICE) {
        return None;
    }
    Some(class)
}

/// The complaints among the lines of a kernel log, in order; at most `limit` of each class, so that no class hides another.
pub fn complaints<'a>(lines: impl IntoIterator<Item = &'a str>, limit: usize) -> Vec<Complaint> {
    let mut kept = BTreeMap::<&str, usize>::new();
    let mut all = Vec::new();
    for line in lines {
        let Some(class) = class(line) else { continue };
        let kept = kept.entry(class).or_default();
        if *kept < limit {
            *kept += 1;
            all.push(Complaint { class: class.to_owned(), line: line.trim().to_owned() });
        }
    }
    all
}

/// The message of a line of the console (`[    8.512345] message`).
pub fn console_message(line: &str) -> &str {
    let stamped = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let is_time = |text: &str| text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ' '));
    stamped.filter(|(time, _)| is_time(time)).map_or(line, |(_, message)| message).trim()
}

/// The message of a record of /dev/kmsg (`priority,sequence,microseconds,flags;message\n` and continuation lines).
pub fn kmsg_message(record: &str) -> &str {
    let text = record.split_once(';').map_or(record, |(_, text)| text);
    text.lines().next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_classed() {
        for (line, want) in [
            ("Out of memory: Killed process 71 (bigiron) total-vm:1kB", Some("oom")),
            ("INFO: task jbd2/nullb0-8:77 blocked for more than 120 seconds.", Some("hung-task")),
            ("rcu: INFO: rcu_preempt self-detected stall on CPU", Some("rcu-stall")),
            ("BUG: unable to handle page fault for address: ffff8", Some("oops")),
            ("Oops: 0002 [#1] PREEMPT SMP NOPTI", Some("oops")),
            ("kernel BUG at mm/slub.c:400!", Some("bug")),
            ("BUG: sleeping function called from invalid context", Some("bug")),
            ("blk_update_request: I/O error, dev nullb0, sector 0", Some("io-error")),
            ("XFS (nullb0): Mounting V5 Filesystem", None),
            ("XFS (nullb0): Metadata I/O Error (0x1) detected", Some("io-error")),
            ("Speculative Return Stack Overflow: WARNING: See https://kernel.org/doc", None),
            ("WARNING: CPU: 0 PID: 1 at kernel/x.c:1", Some("warning")),
            ("EXT4-fs (nullb0): mounted filesystem with ordered data mode", None),
            ("EXT2-fs (nullb0): error: ext2_lookup: deleted inode referenced: 12", Some("io-error")),
            ("EXT2-fs (nullb0): warning: mounting unchecked fs, running e2fsck is recommended", None),
            ("BTRFS error (device nullb0: state EA): parent transid verify failed on 30408704", Some("io-error")),
            ("BTRFS: error (device nullb0) in btrfs_commit_transaction:2280: errno=-5 IO failure", Some("io-error")),
            ("BTRFS critical (device nullb0): corrupt leaf: root=1 block=30408704", Some("io-error")),
            (
                "BTRFS warning (device nullb0): csum failed root 5 ino 257 off 0 csum 0x1 expected csum 0x2",
                Some("io-error"),
            ),
            ("BTRFS warning (device nullb0): device size differs; shrink it", None),
            ("BTRFS info (device nullb0): using crc32c (crc32c-intel) checksum algorithm", None),
            ("BTRFS: device fsid 62696769 devid 1 transid 6 /dev/nullb0 scanned by bigiron (1)", None),
            ("F2FS-fs (nullb0): Inconsistent error blkaddr:4107, sit bitmap:0", Some("io-error")),
            ("F2FS-fs (nullb0): Corrupted inode: ino=4, run fsck to fix.", Some("io-error")),
            ("F2FS-fs (nullb0): Stopped filesystem due to reason: 3", Some("io-error")),
            ("F2FS-fs (nullb0): Mounted with checkpoint version = 3a827dde", None),
            ("F2FS-fs (nullb0): Found nat_bits in checkpoint", None),
            ("PCI: Using configuration type 1 for base access", None),
        ] {
            assert_eq!(class(line), want, "{line}");
        }
    }

    #[test]
    fn a_flood_of_warnings_hides_no_bug() {
        let warning = "WARNING: CPU: 0 PID: 1 at kernel/x.c:1";
        let log = [[warning; 100].as_slice(), &["kernel BUG at mm/slub.c:400!", warning]].concat();
        let kept = complaints(log, 20);
        assert_eq!(kept.iter().filter(|c| c.class == "warning").count(), 20);
        assert_eq!(kept.last().map(|c| c.class.as_str()), Some("bug"));
        assert_eq!(kept.len(), 21);
    }

    #[test]
    fn a_line_of_the_console_gives_its_message() {
        assert_eq!(console_message("[    8.512345] BUG: scheduling while atomic\r"), "BUG: scheduling while atomic");
        assert_eq!(console_message("[drm] Initialized"), "[drm] Initialized");
        assert_eq!(console_message("Decompressing Linux"), "Decompressing Linux");
    }

    #[test]
    fn a_kmsg_record_gives_its_message() {
        assert_eq!(kmsg_message("6,339,5140900,-;NET: Registered\n SUBSYSTEM=x\n"), "NET: Registered");
        assert_eq!(kmsg_message("no prefix"), "no prefix");
    }
}
