//! The command line of `bigiron bisect`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::number::whole;
use super::{Design, FailOn};
use crate::complete;

/// Find the kernel, option or lever that causes a difference
///
/// The search runs over a list of kernels between a good one and a bad one (either may be the faster one): all Debian kernels of
/// one flavour in the order of their versions, a list that you give, or the commits of a source tree, which bigiron builds. It
/// compares the ends first. It then tests one kernel at a time, always the one whose test is expected to be most informative, until
/// one place is certain enough. The same command resumes an interrupted bisection.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
    bigiron bisect --good debian:6.1 --bad debian:6.12 micro:fork-exit\n  \
    bigiron bisect --kernels debian:5.10,debian:6.1,debian:6.12,debian:6.18 micro:mmap --clock exact --seed 7\n  \
    bigiron bisect --kernels ./builds/ dbsim\n  \
    bigiron bisect --git linux --good v6.11 --bad v6.12 --config guest.config micro:page-fault -- mm kernel\n  \
    bigiron bisect config --git linux --good good.config --bad bad.config micro:null-call\n  \
    bigiron bisect levers debian:6.12 debian:6.12,boot.mitigations=off,boot.preempt=full micro:null-call\n\n\
    `bigiron doc bisect` describes the method and how to read the result."
)]
pub struct Bisect {
    #[command(subcommand)]
    pub action: Option<BisectAction>,
    /// A workload, or a metric of one as WORKLOAD:METRIC [default metric: the workload's primary]
    #[arg(value_name = "WORKLOAD[:METRIC]", required = true, add = complete::workload_metric())]
    pub what: Option<String>,
    /// The older side: an arm as `bigiron compare` takes it, or with --git a revision [default: the first of --kernels]
    #[arg(long, value_name = "ARM", required_unless_present = "kernels", add = complete::arm())]
    pub good: Option<String>,
    /// The newer side [default: the last of --kernels]
    #[arg(long, value_name = "ARM", required_unless_present = "kernels", add = complete::arm())]
    pub bad: Option<String>,
    /// The list in order: arms, or folders of builds, separated by commas; may be repeated [default: all kernels between two
    /// Debian kernels]
    #[arg(long, value_name = "ARM,ARM…|DIR", add = complete::arms())]
    pub kernels: Vec<String>,
    /// A repository of kernel sources. bigiron builds the commits from --good to --bad as it needs them, and writes nothing to it
    #[arg(long, value_name = "DIR", requires_all = ["good", "bad"], conflicts_with = "kernels", help_heading = "Commits")]
    pub git: Option<PathBuf>,
    /// Configuration of the kernels: a file, or a make target of the tree such as `defconfig`; options that guests need are added
    /// [default: .config of the tree, else that of this machine's kernel, else defconfig]
    #[arg(long, value_name = "FILE|TARGET", requires = "git", help_heading = "Commits")]
    pub config: Option<String>,
    /// An argument for make, such as CC=gcc-12 or -j8; may be repeated
    #[arg(long, value_name = "ARG", requires = "git", allow_hyphen_values = true, help_heading = "Commits")]
    pub make_arg: Vec<String>,
    /// Keep sources and object files after the search; the next search in this repository starts from them
    #[arg(long, requires = "git", help_heading = "Commits")]
    pub keep_build: bool,
    /// Only commits that touch one of these paths, as `git log -- PATH` takes them
    #[arg(last = true, value_name = "PATH", requires = "git", help_heading = "Commits")]
    pub paths: Vec<String>,
    #[command(flatten)]
    pub bounds: BisectBounds,
    #[command(flatten)]
    pub common: BisectCommon,
}

/// When a search for a place ends.
#[derive(Debug, Args)]
pub struct BisectBounds {
    /// Accepted probability of naming the wrong place
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub error: f64,
    /// Maximum number of tests
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N", default_value_t = 50)]
    pub steps: u32,
}

#[derive(Debug, Subcommand)]
pub enum BisectAction {
    Levers(BisectLevers),
    Config(BisectConfig),
}

/// Find which of the options that differ between two kernel configurations causes the difference
///
/// `make olddefconfig` writes both configurations in one source tree, with the options that guests need built in. A chain of
/// configurations leads from one to the other; each link takes one more option from the bad configuration. bigiron searches
/// the links like kernels, and builds them as it needs them. The same command resumes an interrupted bisection.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron bisect config --git linux --at v6.12 --good good.config --bad bad.config micro:null-call --clock exact --seed 7")]
pub struct BisectConfig {
    /// A workload, or a metric of one as WORKLOAD:METRIC [default metric: the workload's primary]
    #[arg(value_name = "WORKLOAD[:METRIC]", add = complete::workload_metric())]
    pub what: String,
    /// A repository of kernel sources; bigiron writes nothing to it
    #[arg(long, value_name = "DIR")]
    pub git: PathBuf,
    /// The commit from which all kernels are built
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    pub at: String,
    /// The baseline configuration: a file, or a make target of the tree such as `defconfig`
    #[arg(long, value_name = "FILE|TARGET")]
    pub good: String,
    /// The other configuration, which may be the better one
    #[arg(long, value_name = "FILE|TARGET")]
    pub bad: String,
    /// An argument for make, such as CC=gcc-12 or -j8; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub make_arg: Vec<String>,
    /// Keep sources and object files after the search; the next search in this repository starts from them
    #[arg(long)]
    pub keep_build: bool,
    #[command(flatten)]
    pub bounds: BisectBounds,
    #[command(flatten)]
    pub common: BisectCommon,
}

/// Find which of the levers that differ between two arms causes the difference
///
/// Each lever is switched alone from the first arm's value to the second's; if no single lever causes half of the difference,
/// several are switched together.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron bisect levers debian:6.12 debian:6.12,boot.mitigations=off,boot.preempt=full micro:null-call")]
pub struct BisectLevers {
    /// The first arm: KERNEL[,LEVER=VALUE]…
    #[arg(add = complete::arm())]
    pub a: String,
    /// The second arm, of the same kernel with other levers
    #[arg(add = complete::arm())]
    pub b: String,
    /// A workload, or a metric of one as WORKLOAD:METRIC [default metric: the workload's primary]
    #[arg(value_name = "WORKLOAD[:METRIC]", add = complete::workload_metric())]
    pub what: String,
    #[command(flatten)]
    pub common: BisectCommon,
}

/// The options that all bisections share.
#[derive(Debug, Args)]
pub struct BisectCommon {
    /// The design; `--pairs` applies to the ends
    #[command(flatten)]
    pub design: Design,
    /// Pairs for each test, even [default: 2 for a kernel on the exact clock, else 4]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N", help_heading = "Study")]
    pub pairs_per_step: Option<u32>,
    /// Play this script of the host `sim` instead of booting guests (see `bigiron doc sim`)
    #[arg(long, value_name = "FILE", help_heading = "Study")]
    pub sim: Option<PathBuf>,
    /// Folder of the bisection [default: one in bigiron-results/, named after the question]
    #[arg(long, value_name = "DIR", help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Number of trials to run in parallel, on the exact clock only [default: as many as CPUs and memory allow]
    #[arg(value_parser = whole::<usize>(), allow_negative_numbers = true, long, value_name = "N", help_heading = "Result")]
    pub jobs: Option<usize>,
    /// Format of the report on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = BisectFormat::Text, help_heading = "Result")]
    pub format: BisectFormat,
    /// Exit with 3 if the bad end is worse, with 4 if the search is inconclusive (implies worse), or with 5 if it is unfinished
    #[arg(long, value_name = "VERDICT", value_enum, help_heading = "Result")]
    pub fail_on: Vec<FailOn>,
}

/// Formats of a bisection's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BisectFormat {
    Text,
    Json,
}
