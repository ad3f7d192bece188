//! The mount table.

use std::fs;
use std::path::Path;

/// A line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The type of the file system.
    pub kind: String,
    /// The mounted source: a device's path, or the file system's own name.
    pub source: String,
}

/// The mount that contains `path`.
pub fn of(path: &Path) -> Option<Mount> {
    let at = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // proc(5): … root, mount point (octal escapes), options, then ` - `, type and source. A later line covers an earlier one.
    let parsed = mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?.replace("\\040", " ");
        let mut right = right.split(' ').map(str::to_owned);
        Some((point, Mount { kind: right.next()?, source: right.next().unwrap_or_default() }))
    });
    let longest = parsed.filter(|(point, _)| at.starts_with(point)).max_by_key(|(point, _)| point.len());
    longest.map(|(_, mount)| mount)
}
