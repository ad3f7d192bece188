//! The jobs that come with bigiron.
//!
//! Invariant: each of them is a job: the tests build every one.

/// A job file by its name.
pub struct Shipped {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../../../../jobs/", $name, ".toml")) }),+]
    };
}

/// All of them, the default first.
pub const ALL: &[Shipped] = shipped![
    "orasim-2004",
    "oltp",
    "oltp-cached",
    "oltp-uncached",
    "batch-writer",
    "dss-scan",
    "mixed",
    "redo-only",
    "large-io",
    "read-under-write",
    "read-during-stream",
    "users",
];

/// The job of that name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    ALL.iter().find(|job| job.name == name)
}
