//! The command line of `bigiron nightly` and `bigiron history`.

use std::path::PathBuf;

use bigiron_model::qemu::QemuSource;
use clap::{Args, ValueEnum};

use super::number::whole;
use super::{FailOn, clock_names, qemu_source};
use crate::complete;

/// Run the nightly grid: every workload on two or more kernels, with failures, improvements and regressions
///
/// The first kernel is the baseline. A night is a folder of studies; the same command resumes an interrupted one. The results are
/// added to the history, and the newest kernel that the history has from an earlier night is compared as well.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron nightly debian:6.1 debian:6.12 --quick\n  \
    bigiron nightly release snapshot --fail-on worse\n  \
    bigiron nightly debian:6.1 debian:6.12 micro dbsim --quick\n\n\
    `bigiron doc nightly` describes the grid; `bigiron history` shows metrics over the nights' kernels.")]
pub struct Nightly {
    /// Two or more kernels; also workloads, to run only these
    #[arg(value_name = "KERNEL|WORKLOAD", required = true, add = complete::kernel_or_workload())]
    pub words: Vec<String>,
    /// Four boots of each kernel and seconds for each workload: a screening that detects large changes
    #[arg(long, help_heading = "Study")]
    pub quick: bool,
    /// Clock that times the trials
    #[arg(long, value_name = "CLOCK", value_parser = clock_names(&["wall", "exact"]), default_value = "exact", help_heading = "Study")]
    pub clock: String,
    /// Number of pairs, even [default: 4 with --quick, else enough for a verdict on every row]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N", help_heading = "Study")]
    pub pairs: Option<u32>,
    /// CPUs of a guest [default: 1]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N", help_heading = "Study")]
    pub cpus: Option<u32>,
    /// Memory of a guest, such as 512M or 2G
    #[arg(long, allow_negative_numbers = true, value_name = "SIZE", default_value = "2G", help_heading = "Study")]
    pub memory: String,
    /// Storage, as for `bigiron compare`
    #[arg(long, value_name = "NAME", help_heading = "Study", add = complete::storage())]
    pub storage: Option<String>,
    /// QEMU, as for `bigiron compare` [default: pinned]
    #[arg(long, value_name = "QEMU", value_parser = qemu_source(), help_heading = "Study")]
    pub qemu: Option<QemuSource>,
    /// Random seed; nights with the same seed can be compared
    #[arg(value_parser = whole::<u64>(), allow_negative_numbers = true, long, value_name = "N", default_value_t = 1, help_heading = "Study")]
    pub seed: u64,
    /// Set a lever on all kernels; may be repeated
    #[arg(long, value_name = "LEVER=VALUE", help_heading = "Study", add = complete::setting())]
    pub set: Vec<String>,
    /// Play this script of the host `sim` instead of booting guests (see `bigiron doc sim`)
    #[arg(long, value_name = "FILE", help_heading = "Study")]
    pub sim: Option<PathBuf>,
    /// Folder of the night [default: one in bigiron-results/, named after the question]
    #[arg(long, value_name = "DIR", help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Folder of the history [default: $XDG_DATA_HOME/bigiron/history or ~/.local/share/bigiron/history]
    #[arg(long, value_name = "DIR", help_heading = "Result")]
    pub history: Option<PathBuf>,
    /// Number of trials to run in parallel, on the exact clock only [default: as many as CPUs and memory allow]
    #[arg(value_parser = whole::<usize>(), allow_negative_numbers = true, long, value_name = "N", help_heading = "Result")]
    pub jobs: Option<usize>,
    /// Format of the grid on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = HistoryFormat::Text, help_heading = "Result")]
    pub format: HistoryFormat,
    /// Exit with 3 if a kernel is worse, with 4 if it is inconclusive (implies worse), or with 5 if there is no valid result; not
    /// with `--quick`
    #[arg(long, value_name = "VERDICT", value_enum, help_heading = "Result")]
    pub fail_on: Vec<FailOn>,
}

/// Show the results of nights over many kernels, with change points
///
/// Kernels are in the order of their versions. A change point lies between two kernels (found by E-divisive on the logarithms of
/// the boots' values).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron history\n  \
    bigiron history micro\n  \
    bigiron history micro.fork-exit --format html > fork.html")]
pub struct History {
    /// A row of the grid, or one of its metrics as ROW.METRIC [default: the primary metrics of all rows]
    #[arg(value_name = "ROW|METRIC", add = complete::row_metric())]
    pub what: Option<String>,
    /// Folder of the history [default: $XDG_DATA_HOME/bigiron/history or ~/.local/share/bigiron/history]
    #[arg(long, value_name = "DIR")]
    pub history: Option<PathBuf>,
    /// Also show change points smaller than the metric's margin
    #[arg(long)]
    pub all: bool,
    /// Significance level of a change point
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub significance: f64,
    /// Format on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = HistoryFormat::Text)]
    pub format: HistoryFormat,
}

/// Formats of the grid and the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryFormat {
    Text,
    Json,
    Html,
}
