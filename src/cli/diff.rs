//! The command line of `bigiron diff`.

use std::path::PathBuf;

use clap::Args;

use super::BisectFormat;
use crate::complete;

/// Show how two studies differ: plans, programs, kernels, and the environments of their trials
///
/// Measurements are not compared: only pairs of one study are. The environment is what the machine and the kernel were like:
/// microcode, mitigations in force, preemption mode, clock source, firmware, frequency governor, module parameters and more.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron diff bigiron-results/monday bigiron-results/tuesday\n  \
    bigiron diff A B --format json\n\n\
    `bigiron doc environment` lists the facts. `bigiron report` shows what else differs between the arms of one study.")]
pub struct Diff {
    /// The folder of the first study (A)
    #[arg(add = complete::study_folder())]
    pub a: PathBuf,
    /// The folder of the second study (B)
    #[arg(add = complete::study_folder())]
    pub b: PathBuf,
    /// Format on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = BisectFormat::Text)]
    pub format: BisectFormat,
}
