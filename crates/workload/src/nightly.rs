//! A workload's rows in the grid of `bigiron nightly`.
//!
//! Invariant: a row is only a workload with a file system and options; which rows share a boot is decided elsewhere.

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NightlyRow {
    /// What distinguishes it from the workload's other rows, such as the file system; empty for the only one.
    pub label: &'static str,
    pub filesystem: &'static str,
    /// Options (without the workload's name) that differ from the defaults in every night.
    pub options: &'static [(&'static str, &'static str)],
    /// Options that override them with `--quick`: a few seconds of CPU time for each boot.
    pub quick: &'static [(&'static str, &'static str)],
}

impl NightlyRow {
    /// A row with the workload's defaults, on the usual file system.
    pub const PLAIN: NightlyRow = NightlyRow { label: "", filesystem: "ext4", options: &[], quick: &[] };

    /// The plain row on another file system, named after it.
    pub const fn on(filesystem: &'static str) -> NightlyRow {
        NightlyRow { label: filesystem, filesystem, ..NightlyRow::PLAIN }
    }

    /// The same row with other options under `--quick`.
    pub const fn quick(self, quick: &'static [(&'static str, &'static str)]) -> NightlyRow {
        NightlyRow { quick, ..self }
    }
}
