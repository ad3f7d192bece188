//! The command line, from which the parser, the man page and the completions are generated.

mod bisect;
mod dbsim;
mod diff;
mod display;
mod dss;
mod fleet;
pub mod help;
mod host;
mod kernel;
mod lever;
mod nightly;
mod number;
mod oltp;
mod site;
mod sizing;
mod studies;
mod upgrade_check;

use std::path::PathBuf;

use bigiron_model::host::{HostKind, HostName};
use bigiron_model::qemu::QemuSource;
use number::whole;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::complete;

pub use bisect::{Bisect, BisectAction, BisectCommon, BisectConfig, BisectFormat, BisectLevers};
pub use dbsim::{Dbsim, DbsimAction, DbsimJob, DbsimRun};
pub use diff::Diff;
pub use display::{Color, Display, RunFormat};
pub use dss::{Dss, DssAction, DssRun};
pub use fleet::{Fleet, FleetEngine, Kubernetes, Worker};
pub use host::{Host, HostAction};
pub use kernel::{Kernel, KernelAction};
pub use lever::{Lever, LeverAction};
pub use nightly::{History, HistoryFormat, Nightly};
pub use oltp::{Oltp, OltpAction, OltpCrashTest, OltpRun};
pub use site::Site;
pub use sizing::Sizing;
pub use studies::{Schema, SchemaOf, Studies};
pub use upgrade_check::UpgradeCheck;

/// Measure whether a kernel or a setting helps a server, by how much, and how certain the answer is
#[derive(Debug, Parser)]
#[command(
    name = "bigiron",
    version,
    arg_required_else_help = true,
    long_about = "Boots two or more kernels in virtual machines, in random balanced pairs, runs server workloads in them, and \
                  prints a verdict with its evidence.\n\n\
                  bigiron compares kernels and settings, not hardware or database products.",
    after_help = help::main()
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
    Diff(Diff),
    Kernel(Kernel),
    Lever(Lever),
    Undo(Undo),
    Doctor(Doctor),
    Host(Host),
    Selftest(Selftest),
    Nightly(Nightly),
    History(History),
    Site(Site),
    Worker(Worker),
    Fleet(Fleet),
    Bisect(Box<Bisect>),
    Studies(Studies),
    Schema(Schema),
    Doc(Doc),
    Dbsim(Dbsim),
    Oltp(Oltp),
    Dss(Dss),
}

/// Compare kernels or settings; the first arm is the baseline
///
/// Each argument is an arm or a workload. An arm is KERNEL[,LEVER=VALUE]…; KERNEL is `debian:SERIES[/FLAVOUR]`, a name given with
/// `bigiron kernel add`, a path (.deb, bzImage, build tree), or `running`. Any other word is a workload (see `bigiron doc`). If an
/// unfinished study of the same question exists, the command resumes it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron compare\n  \
    bigiron compare debian:6.1 debian:6.12 --quick\n  \
    bigiron compare debian:6.1 debian:6.12 micro --clock exact --pairs 8 --seed 7 --out DIR\n  \
    bigiron compare debian:6.12 debian:6.12,boot.mitigations=off micro\n  \
    bigiron compare mine debian:6.12 --fail-on worse\n  \
    bigiron compare --on local running running,mm.thp=never micro --budget 2h\n  \
    bigiron compare --on local running running -- ./my-benchmark --json")]
pub struct Compare {
    /// Two or more arms, and the workloads to run [default workloads: micro dbsim]; without arguments, bigiron asks for them on a terminal
    #[arg(value_name = "ARM|WORKLOAD", add = complete::arm_or_workload())]
    pub words: Vec<String>,
    #[command(flatten)]
    pub design: Design,
    #[command(flatten)]
    pub sizing: Sizing,
    /// Screen for large changes: four pairs of boots, too few for a decision
    #[arg(long, help_heading = "Study")]
    pub quick: bool,
    /// Number of images to link from each arm's objects, each with a different layout, so that the verdict is about the sources
    /// and not about two images; at least 6. Every arm must be a build tree [default: boot the image that `make` linked]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N", help_heading = "Study")]
    pub rebuilds: Option<u32>,
    #[command(flatten)]
    pub outcome: ResultOptions,
    /// A metric that the program after `--` prints: NAME,unit=UNIT,better=higher|lower,json=POINTER or …,regex=PATTERN; may be repeated
    #[arg(long, value_name = "METRIC", help_heading = "Study")]
    pub metric: Vec<String>,
    /// Your own program to compare, with its arguments (workload `command`)
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// Names of clocks; the names of the exact clock's versions are accepted, but not shown.
fn clock_names(shown: &[&'static str]) -> PossibleValuesParser {
    let versions = ["exact/1", "exact/2", "exact/3"].map(|name| PossibleValue::new(name).hide(true));
    PossibleValuesParser::new(shown.iter().map(|name| PossibleValue::new(*name)).chain(versions))
}

/// The hosts that `--on` accepts; `sim` needs a script and therefore a study file.
fn trial_host(word: &str) -> Result<HostName, String> {
    match word.parse::<HostName>() {
        Ok(host) if host.kind != HostKind::Sim => Ok(host),
        Err(refusal) if is_elsewhere(word) => Err(refusal.message),
        _ => Err("possible values: vm, local, ssh:NAME[,ssh:NAME…], slurm[:PARTITION]".to_owned()),
    }
}

/// Whether a word was meant to name Slurm or other machines.
fn is_elsewhere(word: &str) -> bool {
    word.starts_with("ssh") || word.starts_with("slurm") || word.contains(',')
}

/// Slurm, or other machines.
fn elsewhere(word: &str) -> Result<HostName, String> {
    match word.parse::<HostName>() {
        Ok(host) if host.slurm.is_some() || !host.targets.is_empty() => Ok(host),
        Err(refusal) if is_elsewhere(word) => Err(refusal.message),
        _ => Err("possible values: slurm[:PARTITION], ssh:NAME[,ssh:NAME…]".to_owned()),
    }
}

/// Another machine.
fn ssh_host(word: &str) -> Result<HostName, String> {
    match word.parse::<HostName>() {
        Ok(host) if host.targets.len() == 1 => Ok(host),
        Err(refusal) if word.starts_with("ssh") => Err(refusal.message),
        _ => Err("name another machine, as in `ssh:db-test-3`".to_owned()),
    }
}

/// The hosts of this machine.
fn own_host() -> impl TypedValueParser<Value = HostKind> {
    PossibleValuesParser::new([HostKind::Vm, HostKind::Local].map(HostKind::name))
        .map(|word| word.parse().expect("both are hosts"))
}

/// `pinned` or `system`.
fn qemu_source() -> impl TypedValueParser<Value = QemuSource> {
    PossibleValuesParser::new(QemuSource::ALL.map(QemuSource::name)).map(|word| word.parse().expect("both are sources"))
}

/// The design of a study, as options.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Study")]
pub struct Design {
    /// Where trials run: in guests (vm); in processes on this machine's running kernel (local), where every arm's kernel is
    /// `running`; on another machine (ssh:NAME, where NAME is a host for OpenSSH), which can boot other kernels too; on several
    /// machines at once, each with its own pairs (ssh:NAME,ssh:NAME); or in guests on the nodes of a Slurm cluster
    /// (slurm[:PARTITION]) [default: vm]
    #[arg(long, value_name = "HOST", value_parser = trial_host, add = complete::host())]
    pub on: Option<HostName>,
    /// Reboot the other machine even if no power command is configured for it. If a kernel does not boot, you may lose access to
    /// the machine
    #[arg(long)]
    pub no_way_back: bool,
    /// Boot kernels on another machine that have not booted in a VM here first, for example because they have drivers of that machine only
    #[arg(long)]
    pub no_vm_gate: bool,
    /// Hold CPU frequencies steady during each trial (governor performance, boost off) and restore them afterwards; only with `--on local`
    #[arg(long)]
    pub quiet_machine: bool,
    /// Clock that times the trials [default: wall if guests run under KVM, else exact]
    #[arg(long, value_name = "CLOCK", value_parser = clock_names(&["wall", "exact", "none"]))]
    pub clock: Option<String>,
    /// Number of pairs, even and at least 8 (6 with `--rebuilds`); each pair boots every arm once [default: 12 on the wall clock, else
    /// 10; more if the verdicts need them]
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
    #[arg(long, value_name = "NAME", add = complete::storage())]
    pub storage: Option<String>,
    /// File system: ext4, xfs, ext2, ext3, btrfs, f2fs, jfs or reiserfs, if the kernels support it [default: ext4]
    #[arg(long, value_name = "NAME", add = complete::filesystem())]
    pub filesystem: Option<String>,
    /// QEMU that runs the guests: the same build on every machine, fetched from Debian's archive unless it is installed (pinned), or
    /// the QEMU installed on this machine (system) [default: pinned]
    #[arg(long, value_name = "QEMU", value_parser = qemu_source())]
    pub qemu: Option<QemuSource>,
    /// Set a lever or a workload's option, such as `oltp.engine=mariadb`, on all arms; may be repeated (see `bigiron lever list`)
    #[arg(long, value_name = "LEVER=VALUE", add = complete::setting())]
    pub set: Vec<String>,
    /// Smallest change that matters, in percent, for throughput, cost, p50, p99, p99.9, amount or usage; may be repeated
    #[arg(long, value_name = "KIND=PERCENT", add = complete::margin())]
    pub margin: Vec<String>,
    /// CPU seconds without progress after which a trial counts as hung [default: 120 for each CPU; with `--on local`, plus
    /// the time that the workload may take]
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
    /// Begin a new study in a new folder, even if the question has been answered
    #[arg(long)]
    pub fresh: bool,
    /// Number of trials to run in parallel, on the exact clock only [default: as many as CPUs and memory allow]
    #[arg(value_parser = whole::<usize>(), allow_negative_numbers = true, long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Write the study's folder and stop before the first trial. Then run `bigiron worker` on any number of machines to run the
    /// trials. To print the report, repeat this command without `--prepare`
    #[arg(long, conflicts_with = "fail_on")]
    pub prepare: bool,
    /// Pairs to rerun with profiling if the arms differ: the exact clock counts every instruction by function, the wall clock
    /// samples functions. On the exact clock, a number given here also reruns and models arms that do not differ [default: 1,
    /// or 2 with sampling]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "PAIRS")]
    pub why: Option<u32>,
    /// Model processors' caches, TLBs and branch prediction in every judged trial, on the exact clock only; trials take 1.6
    /// to 2.6 times the CPU time. Without this option, bigiron models only the trials that it reruns for `--why`
    #[arg(long)]
    pub model: bool,
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
    #[arg(value_name = "STUDY", add = complete::study())]
    pub study: PathBuf,
    /// Seed to use instead of the study file's
    #[arg(value_parser = whole::<u64>(), allow_negative_numbers = true, long, value_name = "N")]
    pub seed: Option<u64>,
    /// Number of pairs to use instead of the study file's
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N")]
    pub pairs: Option<u32>,
    #[command(flatten)]
    pub sizing: Sizing,
    /// QEMU that runs the guests, pinned or system; overrides the study file (see `bigiron compare --help`)
    #[arg(long, value_name = "QEMU", value_parser = qemu_source())]
    pub qemu: Option<QemuSource>,
    /// Run the trials on Slurm's nodes, on the exact clock (slurm[:PARTITION], see `bigiron doc fleets`), or run the study on
    /// another machine or several, whatever host the file names (ssh:NAME[,ssh:NAME…], see `bigiron doc confirm`)
    #[arg(long, value_name = "HOST", value_parser = elsewhere)]
    pub on: Option<HostName>,
    #[command(flatten)]
    pub outcome: ResultOptions,
}

/// Regenerate a study's report; boots nothing
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron report DIR\n  \
    bigiron report DIR --format html > report.html\n  \
    bigiron report DIR --fail-on worse\n\n\
    `bigiron doc report` describes the report and its formats.")]
pub struct Report {
    /// The folder of a study, a night or a bisection
    #[arg(add = complete::study_folder())]
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
#[command(after_help = "Examples:\n  bigiron show DIR\n  bigiron show DIR 3")]
pub struct Show {
    /// The study's folder
    #[arg(add = complete::study_folder())]
    pub dir: PathBuf,
    /// Number of the trial, as listed
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true)]
    pub trial: Option<u32>,
}

/// Undo the changes that a killed bigiron left on this machine or on another one
///
/// bigiron logs each change before it makes it, and undoes it at the end; only a killed run leaves changes behind. Exits with 1 if
/// anything could not be restored; its log entry is kept for another try.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bigiron undo --dry-run\n  bigiron undo\n  bigiron undo --on ssh:db-test-3")]
pub struct Undo {
    /// Only list what would be restored
    #[arg(long)]
    pub dry_run: bool,
    /// Clean up another machine (ssh:NAME): end its trials, restore its settings, boot its own kernel and remove bigiron's kernels
    #[arg(long, value_name = "HOST", value_parser = ssh_host)]
    pub on: Option<HostName>,
}

/// Check what bigiron needs on this machine; exits with 1 if the default comparison cannot run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bigiron doctor\n  bigiron doctor --on local")]
pub struct Doctor {
    /// Host to check: guests on this machine (vm), or this machine itself, graded for measuring (local)
    #[arg(long, value_name = "HOST", value_parser = own_host(), default_value_t)]
    pub on: HostKind,
    /// QEMU to check: bigiron's own build, fetched unless it is installed (pinned), or the QEMU installed on this machine (system)
    /// [default: pinned]
    #[arg(long, value_name = "QEMU", value_parser = qemu_source())]
    pub qemu: Option<QemuSource>,
}

/// Compare a kernel with itself to measure this machine's noise floor
///
/// Fails if any primary metric differs, or if its estimate is off by half its margin or more. Prints the measured noise and stores
/// it for later studies.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron selftest --aa\n  \
    bigiron selftest --aa debian:6.1 micro --clock exact\n  \
    bigiron selftest --aa --on local micro --pairs 8")]
pub struct Selftest {
    /// The A/A comparison (the default, and the only self-test)
    #[arg(long)]
    pub aa: bool,
    /// A kernel [default: debian:6.12, or `running` with `--on local` and `--on ssh:NAME`] and the workloads to run
    #[arg(value_name = "KERNEL|WORKLOAD", add = complete::kernel_or_workload())]
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
#[command(after_help = "Examples:\n  \
    bigiron doc\n  \
    bigiron doc first-steps\n  \
    bigiron doc block.scheduler\n\n\
    On a terminal, bigiron formats the page and shows it in a pager; otherwise it prints Markdown.")]
pub struct Doc {
    /// Name of a page, such as a workload, a guide or a concept, or of a lever [default: list the pages]
    #[arg(add = complete::page())]
    pub name: Option<String>,
}
