//! The kernel's log: which of its lines are findings.

use crate::store::record::Complaint;

/// What a line must contain to belong to a class. First match wins: the classes that mean more stand first.
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
    ("io-error", &["I/O error", "EXT4-fs error", "XFS (", "Buffer I/O error", "JBD2: Error"]),
    ("warning", &["WARNING: "]),
];

/// Words of advice that the kernel logs about the CPU's vulnerabilities; no WARN_ON.
const ADVICE: &str = "WARNING: See ";

/// `XFS (nullb0): Mounting V5 Filesystem` and its like are news, not errors.
const XFS_ERRORS: &[&str] = &["Corruption", "error", "Internal error", "Shutting down", "shut down", "Metadata I/O"];

/// The class of a line of the kernel's log, or `None` if it is of no interest.
pub fn class(line: &str) -> Option<&'static str> {
    let (class, pattern) = CLASSES
        .iter()
        .find_map(|(class, patterns)| patterns.iter().find(|p| line.contains(**p)).map(|p| (*class, *p)))?;
    if pattern == "XFS (" && !XFS_ERRORS.iter().any(|e| line.contains(e)) {
        return None;
    }
    if line.contains(ADVICE) {
        return None;
    }
    Some(class)
}

/// The complaints among the lines of a kernel log, in order; at most `limit`.
pub fn complaints<'a>(lines: impl IntoIterator<Item = &'a str>, limit: usize) -> Vec<Complaint> {
    lines
        .into_iter()
        .filter_map(|line| class(line).map(|class| Complaint { class: class.to_owned(), line: line.trim().to_owned() }))
        .take(limit)
        .collect()
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
            ("PCI: Using configuration type 1 for base access", None),
        ] {
            assert_eq!(class(line), want, "{line}");
        }
    }

    #[test]
    fn a_kmsg_record_gives_its_message() {
        assert_eq!(kmsg_message("6,339,5140900,-;NET: Registered\n SUBSYSTEM=x\n"), "NET: Registered");
        assert_eq!(kmsg_message("no prefix"), "no prefix");
    }
}
