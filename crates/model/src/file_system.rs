//! The features of file systems in records.

/// The features' names, in the order of a table.
pub const FEATURES: [&str; 17] = [
    "largest file",
    "longest name",
    "links to a file",
    "inodes",
    "dates until",
    "direct I/O from",
    "preallocation",
    "punch a hole",
    "zero a range",
    "collapse a range",
    "find holes",
    "reflink",
    "attribute up to",
    "access lists",
    "nameless file",
    "exchange names",
    "birth time",
];

/// The name of the fact that stores a feature in a record.
pub fn fact(feature: &str) -> String {
    format!("file-system.{}", feature.replace([' ', '/'], "-"))
}
