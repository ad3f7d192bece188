//! The command line of `bigiron upgrade-check`.

use std::path::PathBuf;

use bigiron_model::qemu::QemuSource;
use clap::Args;

use super::number::whole;
use super::qemu_source;
use crate::complete;

/// Compare this machine's kernel with the newest one available to it, and print advice
///
/// bigiron chooses the workloads by the servers that run on this machine. It installs and changes nothing: both kernels boot in virtual
/// machines.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bigiron upgrade-check --dry-run\n  bigiron upgrade-check --quick\n  \
    bigiron upgrade-check --to debian:6.12 oltp\n\n\
    `bigiron doc upgrade` describes how to choose a workload and what a guest cannot show.")]
pub struct UpgradeCheck {
    /// Workloads to run instead of those chosen by this machine's servers
    #[arg(value_name = "WORKLOAD", add = complete::workload())]
    pub workloads: Vec<String>,
    /// Kernel to upgrade to [default: the newest in this machine's package sources, else the newest in the archive]
    #[arg(long, value_name = "KERNEL", add = complete::kernel())]
    pub to: Option<String>,
    /// Only print the comparison, as sentences and as a command
    #[arg(long)]
    pub dry_run: bool,
    /// Screen for large changes: four pairs of boots, too few for a decision
    #[arg(long)]
    pub quick: bool,
    /// Random seed [default: drawn and kept in the plan]
    #[arg(value_parser = whole::<u64>(), allow_negative_numbers = true, long, value_name = "N")]
    pub seed: Option<u64>,
    /// QEMU, as for `bigiron compare` [default: pinned]
    #[arg(long, value_name = "QEMU", value_parser = qemu_source())]
    pub qemu: Option<QemuSource>,
    /// Folder of the study [default: one in bigiron-results/, named after the question]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Begin a new study in a new folder, even if the question has been answered
    #[arg(long)]
    pub fresh: bool,
}
