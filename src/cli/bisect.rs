//! The command line of `bigiron bisect`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Design, FailOn};

/// Find the kernel, the option or the lever that makes a difference
///
/// Between a good kernel and a bad one (either may be the faster) lies a list of kernels: all that Debian has of one flavour, by their versions, the
/// list that is given, or the commits of a source tree, which are built. The ends are compared first; then kernel after kernel is tested, each time the one whose test is expected to tell
/// most, until one place is certain enough. The same command goes on with a bisection that was interrupted.
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
    #[arg(value_name = "WORKLOAD[:METRIC]", required = true)]
    pub what: Option<String>,
    /// The older side: an arm as `bigiron compare` takes it, or with --git a revision [default: the first of --kernels]
    #[arg(long, value_name = "ARM", required_unless_present = "kernels")]
    pub good: Option<String>,
    /// The newer side [default: the last of --kernels]
    #[arg(long, value_name = "ARM", required_unless_present = "kernels")]
    pub bad: Option<String>,
    /// The list in its order: arms, or folders of builds, separated by commas; may be repeated [default: all between two Debian kernels]
    #[arg(long, value_name = "ARM,ARM…|DIR")]
    pub kernels: Vec<String>,
    /// A repository of kernel sources: the commits from --good to --bad are built, each when its turn comes; nothing is written there
    #[arg(long, value_name = "DIR", requires_all = ["good", "bad"], conflicts_with = "kernels", help_heading = "Commits")]
    pub git: Option<PathBuf>,
    /// Configuration of the kernels: a file, or a target of the tree's such as `defconfig`; what a guest needs is added [default: .config of the tree, else
    /// that of this machine's kernel, else defconfig]
    #[arg(long, value_name = "FILE|TARGET", requires = "git", help_heading = "Commits")]
    pub config: Option<String>,
    /// An argument for make, such as CC=gcc-12 or -j8; may be repeated
    #[arg(long, value_name = "ARG", requires = "git", allow_hyphen_values = true, help_heading = "Commits")]
    pub make_arg: Vec<String>,
    /// Keep sources and object files after the search; the next one in this repository starts from them
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

/// When a search for a place has its answer, or gives up.
#[derive(Debug, Args)]
pub struct BisectBounds {
    /// Accepted probability of naming the wrong place
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub error: f64,
    /// Maximum number of tests
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub steps: u32,
}

#[derive(Debug, Subcommand)]
pub enum BisectAction {
    Levers(BisectLevers),
    Config(BisectConfig),
}

/// Find which of the options in which two kernel configurations differ makes the difference
///
/// Both are laid out in one source tree by `make olddefconfig`, with what a guest needs built in. From one to the other leads a chain of configurations, each
/// with one more option as the bad one has it. They are searched as kernels are, and built when their turn comes; the same command goes on with a
/// bisection that was interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    bigiron bisect config --git linux --at v6.12 --good good.config --bad bad.config micro:null-call --clock exact --seed 7")]
pub struct BisectConfig {
    /// A workload, or a metric of one as WORKLOAD:METRIC [default metric: the workload's primary]
    #[arg(value_name = "WORKLOAD[:METRIC]")]
    pub what: String,
    /// A repository of kernel sources; nothing is written there
    #[arg(long, value_name = "DIR")]
    pub git: PathBuf,
    /// The commit of which all kernels are built
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    pub at: String,
    /// The configuration that is compared against: a file, or a target of the tree's such as `defconfig`
    #[arg(long, value_name = "FILE|TARGET")]
    pub good: String,
    /// The other one, which may be the better
    #[arg(long, value_name = "FILE|TARGET")]
    pub bad: String,
    /// An argument for make, such as CC=gcc-12 or -j8; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub make_arg: Vec<String>,
    /// Keep sources and object files after the search; the next one in this repository starts from them
    #[arg(long)]
    pub keep_build: bool,
    #[command(flatten)]
    pub bounds: BisectBounds,
    #[command(flatten)]
    pub common: BisectCommon,
}

/// Find which of the levers in which two arms differ makes the difference
///
/// Each lever is switched alone, from what the first arm has to what the second has; where none alone makes half of the difference, several together.
#[derive(Debug, Args)]
pub struct BisectLevers {
    /// The first arm: KERNEL[,LEVER=VALUE]…
    pub a: String,
    /// The second, of the same kernel with other levers
    pub b: String,
    /// A workload, or a metric of one as WORKLOAD:METRIC [default metric: the workload's primary]
    #[arg(value_name = "WORKLOAD[:METRIC]")]
    pub what: String,
    #[command(flatten)]
    pub common: BisectCommon,
}

/// What all bisections are told.
#[derive(Debug, Args)]
pub struct BisectCommon {
    /// `--pairs` is for the ends
    #[command(flatten)]
    pub design: Design,
    /// Pairs of each test, even [default: 2 for a kernel on the exact clock, else 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Study")]
    pub pairs_per_step: Option<u32>,
    /// Play this script of the host `sim` instead of booting guests (see `bigiron doc sim`)
    #[arg(long, value_name = "FILE", help_heading = "Study")]
    pub sim: Option<PathBuf>,
    /// Folder of the bisection [default: one in bigiron-results/, named after the question]
    #[arg(long, value_name = "DIR", help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Trials side by side, on the exact clock only [default: as many as CPUs and memory allow]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Result")]
    pub jobs: Option<usize>,
    /// Format of the report on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = BisectFormat::Text, help_heading = "Result")]
    pub format: BisectFormat,
    /// Exit with 3 if the bad end is worse, or with 4 if nothing was found though it may be there (implies worse)
    #[arg(long, value_name = "VERDICT", value_enum, help_heading = "Result")]
    pub fail_on: Vec<FailOn>,
}

/// Formats of a bisection's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BisectFormat {
    Text,
    Json,
}
