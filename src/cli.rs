//! The command line, from which the parser, the man page and the completions are generated.

mod bisect;
mod display;
mod nightly;
mod number;
mod oltp;
mod site;
mod studies;
mod upgrade_check;

use std::path::PathBuf;

use bigiron_model::host::HostKind;
use number::{between, whole};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use bisect::{Bisect, BisectAction, BisectCommon, BisectConfig, BisectFormat, BisectLevers};
pub use display::{Color, Display};
pub use nightly::{History, HistoryFormat, Nightly};
pub use oltp::{Oltp, OltpAction, OltpCrashTest, OltpRun};
pub use site::Site;
pub use studies::{Schema, SchemaOf, Studies};
pub use upgrade_check::UpgradeCheck;

/// Does this kernel, or this setting, help my database server, by how much, and how sure are we?
#[derive(Debug, Parser)]
#[command(
    name = "bigiron",
    version,
    arg_required_else_help = true,
    long_about = "Boots two or more kernels in virtual machines, in random balanced pairs, runs database-shaped work in them and \
                  prints a verdict with its evidence.\n\n\
                  For comparing kernels and settings; not for comparing hardware or database products.",
    after_help = "First steps:\n  bigiron doctor\n  bigiron compare debian:6.1 debian:6.12\n\n\
                  Exit status: 0 success, 1 failure, 2 refusal (the command line or the study is wrong; nothing was booted);\n\
                  with --fail-on: 3 worse, 4 inconclusive, 5 unfinished or invalid; after a signal: 128 plus its number."
)]
pub struct Cli {
    #[command(flatten)]
    pub display: Display,
    #[command(subcommand)]
    pub command: Command,
}

/// Parses the command line; ends the process if it is wrong.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|mut error| {
        // "To pass '--paris' as a value, use '-- --paris'" would give the word to a user's program.
        if error.kind() == ErrorKind::UnknownArgument {
            error.remove(ContextKind::Suggested);
        }
        error.exit()
    })
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Compare(Compare),
    UpgradeCheck(UpgradeCheck),
    Run(Run),
    Report(Report),
    Show(Show),
    Kernel(Kernel),
    Lever(Lever),
    Undo(Undo),
    Doctor(Doctor),
    Selftest(Selftest),
    Nightly(Nightly),
    History(History),
    Site(Site),
    Bisect(Box<Bisect>),
    Studies(Studies),
    Schema(Schema),
    Doc(Doc),
    Dbsim(Dbsim),
    Oltp(Oltp),
}

/// Compare kernels or settings; the first arm is the baseline
///
/// The form of a word decides its meaning: an arm is KERNEL[,LEVER=VALUE]…, where KERNEL is `debian:SERIES[/FLAVOUR]`, a name
/// given by `bigiron kernel add`, a path (.deb, bzImage, build tree) or `running`; any other word is a workload (see `bigiron
/// doc`). The same command finds an unfinished study of the same question and resumes it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron compare\n  \
    bigiron compare debian:6.1 debian:6.12 --quick\n  \
    bigiron compare debian:6.1 debian:6.12 micro --clock exact --pairs 8 --seed 7 --out DIR\n  \
    bigiron compare debian:6.12 debian:6.12,boot.mitigations=off micro\n  \
    bigiron compare mine debian:6.12 --fail-on worse\n  \
    bigiron compare --on local running running -- ./my-benchmark --json")]
pub struct Compare {
    /// Two or more arms, and the workloads to run [default workloads: micro dbsim]; without any, bigiron asks on a terminal
    #[arg(value_name = "ARM|WORKLOAD")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub design: Design,
    /// Screen for large changes: four pairs of boots; decides nothing
    #[arg(long, help_heading = "Study")]
    pub quick: bool,
    #[command(flatten)]
    pub outcome: ResultOptions,
    /// A metric that the program after `--` prints: NAME,unit=UNIT,better=higher|lower,json=POINTER or …,regex=PATTERN; may be repeated
    #[arg(long, value_name = "METRIC", help_heading = "Study")]
    pub metric: Vec<String>,
    /// Your own program to compare, with its arguments (workload `command`)
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// The hosts that `--on` accepts; `sim` needs a script and therefore a study file.
fn trial_host() -> impl TypedValueParser<Value = HostKind> {
    PossibleValuesParser::new([HostKind::Vm, HostKind::Local].map(HostKind::name))
        .map(|word| word.parse().expect("both are hosts"))
}

/// The design of a study, as options.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Study")]
pub struct Design {
    /// Where trials run: in guests (vm), or in processes on this machine's own kernel (local), where every arm is `running` [default: vm]
    #[arg(long, value_name = "HOST", value_parser = trial_host())]
    pub on: Option<HostKind>,
    /// Hold CPU frequencies steady during each trial (governor performance, boost off) and restore them afterwards; only with `--on local`
    #[arg(long)]
    pub quiet_machine: bool,
    /// Clock that times the trials [default: wall if guests run under KVM, else exact]
    #[arg(long, value_name = "CLOCK", value_parser = ["wall", "exact", "none"])]
    pub clock: Option<String>,
    /// Number of pairs, even and at least 8; each pair boots every arm once [default: 12 on the wall clock, else 10; more if the
    /// verdicts need them]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N")]
    pub pairs: Option<u32>,
    /// CPUs of a guest [default: 1]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory of a guest, such as 512M or 2G [default: 1G, or what the workloads need]
    #[arg(long, allow_negative_numbers = true, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Random seed [default: drawn and kept in the plan]
    #[arg(value_parser = whole::<u64>(), allow_negative_numbers = true, long, value_name = "N")]
    pub seed: Option<u64>,
    /// Storage: nvme, ssd, hdd or hdd-15k (models), ram, or host-file (a virtio disk on a file, not on the exact clock) [default: nvme on
    /// the exact clock, else host-file]
    #[arg(long, value_name = "NAME")]
    pub storage: Option<String>,
    /// File system: ext4, xfs, ext2, ext3, btrfs, f2fs, jfs or reiserfs, if the kernels support it [default: ext4]
    #[arg(long, value_name = "NAME")]
    pub filesystem: Option<String>,
    /// Set a lever on all arms; may be repeated
    #[arg(long, value_name = "LEVER=VALUE")]
    pub set: Vec<String>,
    /// Smallest change that matters, in percent, for throughput, cost, p50, p99, p99.9, amount or usage; may be repeated
    #[arg(long, value_name = "KIND=PERCENT")]
    pub margin: Vec<String>,
    /// CPU seconds without progress after which a trial counts as hung [default: 120 for each CPU; with `--on local` plus the
    /// time that its workload may take]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "SECONDS")]
    pub hang_limit: Option<u32>,
    /// Idle seconds before each boot, on the wall clock only [default: 2]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "SECONDS")]
    pub idle_gap: Option<u32>,
}

/// Where results go, and how they set the exit status.
#[derive(Debug, Args)]
#[command(next_help_heading = "Result")]
pub struct ResultOptions {
    /// Folder of the study [default: one in bigiron-results/, named after the question]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Begin a new study in a folder of its own, even if the question has been answered
    #[arg(long)]
    pub fresh: bool,
    /// Number of trials to run in parallel, on the exact clock only [default: as many as CPUs and memory allow]
    #[arg(value_parser = whole::<usize>(), allow_negative_numbers = true, long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Pairs to rerun with profiling if the arms differ: the exact clock counts every instruction by function, `--on local`
    /// samples functions [default: 1, or 2 with sampling]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "PAIRS")]
    pub why: Option<u32>,
    /// Pairs to rerun with lock tracing if the arms differ: kernel locks (since 5.19) and futexes [default: as `--why` if guests
    /// have two or more CPUs or with `--on local`; else 0]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "PAIRS")]
    pub locks: Option<u32>,
    /// Format of the report on standard output; text is a summary
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Print the whole report as text, as `bigiron report` does
    #[arg(long)]
    pub full: bool,
    /// Exit with 3 if an arm is worse, with 4 if it is inconclusive (implies worse), or with 5 if there is no valid result
    #[arg(long, value_name = "VERDICT", value_enum)]
    pub fail_on: Vec<FailOn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Html,
    Csv,
    /// For a comment on a pull request
    Markdown,
    /// Test results in XML, for a CI server
    Junit,
    /// JSON Lines: one object a line (`bigiron schema lines`)
    Jsonl,
    /// Plain text for a mailing list, with a subject
    Mail,
    /// For Prometheus
    Openmetrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Worse,
    Inconclusive,
}

/// Run a study file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bigiron run kernel-upgrade\n  bigiron run mine.toml --seed 7 --out DIR\n\n\
    `bigiron doc study-file` describes study files.")]
pub struct Run {
    /// A study file, or the name of a ready-made study (see `bigiron studies`)
    #[arg(value_name = "STUDY")]
    pub study: PathBuf,
    /// Seed to use instead of the study file's
    #[arg(value_parser = whole::<u64>(), allow_negative_numbers = true, long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub outcome: ResultOptions,
}

/// Regenerate a study's report; boots nothing
#[derive(Debug, Args)]
pub struct Report {
    /// The study's folder
    pub dir: PathBuf,
    /// Format of the report
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Print a flame graph (SVG) of a sampled line instead of the report: the baseline's (a), the other arm's (b), or their
    /// difference (diff)
    #[arg(long, value_name = "WHAT", value_enum, ignore_case = true, conflicts_with = "format")]
    pub flame: Option<Flame>,
    /// The line of the flame graph, as WORKLOAD or WORKLOAD.METRIC [default: the first]
    #[arg(long, value_name = "LINE", requires = "flame")]
    pub line: Option<String>,
    /// Counters in the text report: those that differ, or all
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Counters::Differing)]
    pub counters: Counters,
    /// Exit with 3 if an arm is worse, with 4 if it is inconclusive (implies worse), or with 5 if there is no valid result
    #[arg(long, value_name = "VERDICT", value_enum)]
    pub fail_on: Vec<FailOn>,
}

/// Which counters the text report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Counters {
    Differing,
    All,
}

/// What a flame graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flame {
    A,
    B,
    Diff,
}

/// List the trials of a study, or show one in full
#[derive(Debug, Args)]
pub struct Show {
    /// The study's folder
    pub dir: PathBuf,
    /// Number of the trial, as listed
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true)]
    pub trial: Option<u32>,
}

/// Fetch, add, list and remove kernels
#[derive(Debug, Args)]
pub struct Kernel {
    #[command(subcommand)]
    pub action: KernelAction,
}

#[derive(Debug, Subcommand)]
pub enum KernelAction {
    /// Fetch kernels into the cache
    Fetch {
        /// For example `debian:6.12` or `debian:6.12/amd64`
        #[arg(value_name = "KERNEL", required = true)]
        kernels: Vec<String>,
    },
    /// Keep a kernel under a name
    Add {
        /// The name for use in arms
        name: String,
        /// A .deb, a bzImage, a build tree, `running` or `debian:VERSION`
        #[arg(value_name = "KERNEL", required_unless_present = "image", conflicts_with = "image")]
        kernel: Option<String>,
        /// Boot image (bzImage)
        #[arg(long, value_name = "FILE")]
        image: Option<PathBuf>,
        /// Folder with the image's modules
        #[arg(long, value_name = "DIR", requires = "image")]
        modules: Option<PathBuf>,
        /// Configuration that the image was built with
        #[arg(long, value_name = "FILE", requires = "image")]
        config: Option<PathBuf>,
    },
    /// List the kernels in the cache
    List,
    /// Remove a kernel, by its name, its release or the words it was fetched with
    Remove {
        #[arg(value_name = "KERNEL", required = true)]
        kernels: Vec<String>,
    },
}

/// List the levers, and check which of them this machine has
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron lever list\n  \
    bigiron lever show block.scheduler\n  \
    bigiron lever check running,block.scheduler=bfq,mm.thp=always\n\n\
    `bigiron doc FAMILY` describes a family of levers, as `bigiron doc block`.")]
pub struct Lever {
    #[command(subcommand)]
    pub action: LeverAction,
}

#[derive(Debug, Subcommand)]
pub enum LeverAction {
    /// List the levers, or those of one family
    List {
        #[arg(value_name = "FAMILY")]
        family: Option<String>,
    },
    /// Describe a lever, its values and its setting on this machine
    Show {
        #[arg(value_name = "LEVER")]
        name: String,
    },
    /// Check whether settings are available on this machine; exits with 1 if one is not
    Check {
        /// An arm (KERNEL,LEVER=VALUE…) or a setting (LEVER=VALUE)
        #[arg(value_name = "ARM|SETTING", required = true)]
        settings: Vec<String>,
        /// Apply the settings, read them back, print what changed, and restore the old values
        #[arg(long)]
        apply: bool,
        /// Folder whose disks the `block.` levers act on
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
}

/// Restore what a killed bigiron left changed on this machine
///
/// bigiron logs every change before making it and undoes it when it ends; only a killed run leaves changes behind. Exits with 1
/// if anything could not be restored; it is kept for another try.
#[derive(Debug, Args)]
pub struct Undo {
    /// Only list what would be restored
    #[arg(long)]
    pub dry_run: bool,
}

/// Check what this machine has and lacks; exits with 1 if the default comparison could not run
#[derive(Debug, Args)]
pub struct Doctor {
    /// Host to check: guests on this machine (vm), or this machine itself, graded for measuring (local)
    #[arg(long, value_name = "HOST", value_parser = trial_host(), default_value_t)]
    pub on: HostKind,
}

/// Compare a kernel with itself to measure this machine's noise floor
///
/// Fails if any primary metric differs, or if its estimate is off by half its margin or more. The noise found is kept and
/// printed.
#[derive(Debug, Args)]
pub struct Selftest {
    /// The A/A comparison (the default, and the only self-test)
    #[arg(long)]
    pub aa: bool,
    /// A kernel [default: debian:6.12] and the workloads to run
    #[arg(value_name = "KERNEL|WORKLOAD")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub design: Design,
    /// Folder of the study [default: one in bigiron-results/, named after the question]
    #[arg(long, value_name = "DIR", help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Number of trials to run in parallel, on the exact clock only [default: as many as CPUs and memory allow]
    #[arg(value_parser = whole::<usize>(), allow_negative_numbers = true, long, value_name = "N", help_heading = "Result")]
    pub jobs: Option<usize>,
}

/// Print a page of the documentation, or list the pages
#[derive(Debug, Args)]
pub struct Doc {
    /// A workload, a lever, a concept
    pub name: Option<String>,
}

/// Run, explain and check jobs of the workload `dbsim` on this machine
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron dbsim jobs\n  \
    bigiron dbsim check oltp --set cache.size=32M\n  \
    bigiron dbsim run oltp --seconds 10 --dir /mnt/test --validate\n\n\
    `bigiron doc dbsim` describes the workload, `bigiron doc dbsim-job` the language of jobs.")]
pub struct Dbsim {
    #[command(subcommand)]
    pub action: DbsimAction,
}

#[derive(Debug, Subcommand)]
pub enum DbsimAction {
    Run(DbsimRun),
    /// Explain a job in words, or report its errors; runs nothing
    Check {
        #[command(flatten)]
        job: DbsimJob,
        /// Print the job as a complete job file instead
        #[arg(long)]
        print: bool,
    },
    /// Check the data and the log left by a run with `--keep`
    Verify {
        /// The run's directory
        dir: PathBuf,
        /// File of the acknowledgements received from the job's `run.acks`, to check after a crash of the machine
        #[arg(long, value_name = "FILE")]
        acks: Option<PathBuf>,
    },
    /// List the jobs that come with bigiron
    Jobs {
        /// Print the job of this name
        name: Option<String>,
    },
    /// Turn a fio job file into a dbsim job, on standard output
    ///
    /// An option that a dbsim job cannot express is rejected with its line; none is ignored.
    ImportFio {
        /// The fio job file
        file: PathBuf,
    },
}

/// A job and the settings that override its keys.
#[derive(Debug, Args)]
pub struct DbsimJob {
    /// The name of a shipped job (see `bigiron dbsim jobs`), or a job file
    pub job: String,
    /// Set a key of the job by its dotted name, or a shorthand such as `io`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Run a job on this machine
///
/// Works in its own directory below `--dir` and removes it at the end. The result is written to standard output.
#[derive(Debug, Args)]
pub struct DbsimRun {
    #[command(flatten)]
    pub job: DbsimJob,
    /// Length of the measured window, instead of the job's; a ramp of a quarter of it comes first
    #[arg(long, value_name = "N", value_parser = between::<u64>(1, 86_400 * 30), allow_negative_numbers = true)]
    pub seconds: Option<u64>,
    /// Directory on the file system to test
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Random seed [default: drawn and printed]
    #[arg(value_parser = whole::<u64>(), allow_negative_numbers = true, long, value_name = "N")]
    pub seed: Option<u64>,
    /// Format of the result on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = DbsimFormat::Text)]
    pub format: DbsimFormat,
    /// Check every block and all redo afterwards; exits with 1 if anything is lost or wrong
    #[arg(long)]
    pub validate: bool,
    /// Keep the data and the log, for `bigiron dbsim verify`
    #[arg(long)]
    pub keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DbsimFormat {
    Text,
    Json,
}
