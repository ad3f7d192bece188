//! The command line of `bigiron dbsim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::RunFormat;
use super::number::{between, whole};
use crate::complete;

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
    #[command(after_help = "Examples:\n  \
        bigiron dbsim check mine.toml\n  \
        bigiron dbsim check oltp --set cache.size=32M --print > mine.toml")]
    Check {
        #[command(flatten)]
        job: DbsimJob,
        /// Print the job as a complete job file instead
        #[arg(long)]
        print: bool,
    },
    /// Check the data and the log left by a run with `--keep`
    #[command(after_help = "Examples:\n  bigiron dbsim verify DIR\n  bigiron dbsim verify DIR --acks acknowledged")]
    Verify {
        /// The run's directory
        dir: PathBuf,
        /// File with the acknowledgements received from the job's `run.acks`, to check after a crash of the machine
        #[arg(long, value_name = "FILE")]
        acks: Option<PathBuf>,
    },
    /// List the jobs that come with bigiron
    #[command(after_help = "Examples:\n  bigiron dbsim jobs\n  bigiron dbsim jobs oltp > mine.toml")]
    Jobs {
        /// Print the job of this name
        #[arg(add = complete::dbsim_job_name())]
        name: Option<String>,
    },
    /// Turn a fio job file into a dbsim job, on standard output
    ///
    /// An option that a dbsim job cannot express is rejected with its line; none is ignored.
    #[command(after_help = "Examples:\n  bigiron dbsim import-fio randwrite.fio > mine.toml")]
    ImportFio {
        /// The fio job file
        file: PathBuf,
    },
}

/// A job and the settings that override its keys.
#[derive(Debug, Args)]
pub struct DbsimJob {
    /// The name of a shipped job (see `bigiron dbsim jobs`), or a job file
    #[arg(add = complete::dbsim_job())]
    pub job: String,
    /// Set a key of the job by its dotted name, or a shorthand such as `io`; may be repeated
    #[arg(long, value_name = "KEY=VALUE", add = complete::dbsim_key())]
    pub set: Vec<String>,
}

/// Run a job on this machine
///
/// Works in its own directory below `--dir` and removes it at the end. The result is written to standard output.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron dbsim run oltp --seconds 10 --dir /mnt/test --validate\n  \
    bigiron dbsim run mine.toml --set run.time=60s --format json\n\n\
    `bigiron doc dbsim-job` describes the language of jobs.")]
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
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = RunFormat::Text)]
    pub format: RunFormat,
    /// Check every block and all redo afterwards; exits with 1 if anything is lost or wrong
    #[arg(long)]
    pub validate: bool,
    /// Keep the data and the log, for `bigiron dbsim verify`
    #[arg(long)]
    pub keep: bool,
}
