//! The command line of `bigiron oltp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::DbsimFormat;

/// Run transactions on PostgreSQL or SQLite on this machine, load and check their database
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron oltp jobs\n  \
    bigiron oltp run cached --set warehouses=4 --seconds 30\n  \
    bigiron oltp run --set url=postgresql://me@db.example/bench --set mode=pipelined\n  \
    bigiron oltp check postgresql://me@db.example/bench\n  \
    bigiron oltp crash-test debian:6.12 --rounds 10\n\n\
    `bigiron doc oltp` describes the workload.")]
pub struct Oltp {
    #[command(subcommand)]
    pub action: OltpAction,
}

#[derive(Debug, Subcommand)]
pub enum OltpAction {
    Run(OltpRun),
    CrashTest(OltpCrashTest),
    /// Load the tables into a database, with indexes, statistics and procedures
    Load {
        /// The database: `postgresql://USER@HOST/DATABASE`
        url: String,
        /// Warehouses, about 125 MB each
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        warehouses: u32,
    },
    /// Check TPC-C's consistency conditions on a database; exits with 1 if one does not hold
    Check {
        /// The database: `postgresql://USER@HOST/DATABASE`
        url: String,
        /// Also what holds only right after a load
        #[arg(long)]
        fresh: bool,
    },
    /// Look for every commit that a run with `--set acks=FILE` was told of, after a crash of the server; exits with 1 if one is missing
    Prove {
        /// The database, recovered: `postgresql://USER@HOST/DATABASE`
        url: String,
        /// What has received the acknowledgements
        acks: PathBuf,
    },
    /// List the jobs that come with bigiron
    Jobs {
        /// Print this one
        name: Option<String>,
    },
}

/// Run a job on this machine: a private server and its data are made, driven, checked and removed
#[derive(Debug, Args)]
pub struct OltpRun {
    /// The name of a shipped job (see `bigiron oltp jobs`), or a job file
    #[arg(default_value = "default")]
    pub job: String,
    /// Set an option, such as `warehouses` or `postgres.shared_buffers`; may be repeated
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Length of the measured window, in place of the job's; a quarter as much comes before it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400 * 30))]
    pub seconds: Option<u64>,
    /// Directory on the file system to be tested
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Random seed [default: drawn, and printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Format of the result on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = DbsimFormat::Text)]
    pub format: DbsimFormat,
}

/// Take the power from a machine in the middle of a run, again and again, and look for what clients were told of
///
/// Boots a guest that runs transactions and kills it at a random moment. Its disk is left with what the guest had flushed, and a random part of
/// what it had only written. The next guest boots on that disk: the engine recovers, every acknowledged commit is looked for, and the consistency
/// conditions are checked. Then it works until it is killed in its turn. Exits with 1 if anything is lost or half-done.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron oltp crash-test debian:6.12 --rounds 20\n  \
    bigiron oltp crash-test debian:6.12 --filesystem xfs --set oltp.postgres.wal_sync_method=open_datasync\n  \
    bigiron oltp crash-test debian:6.12 --set oltp.postgres.fsync=off")]
pub struct OltpCrashTest {
    /// Kernel, with levers if any, as in `bigiron compare`
    pub arm: String,
    /// Losses of power
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Acknowledged commits before a loss of power, at the most; how many is drawn
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub commits: u64,
    /// Set a lever, such as an option of `oltp` (see `bigiron doc oltp`); may be repeated
    #[arg(long, value_name = "LEVER=VALUE")]
    pub set: Vec<String>,
    /// CPUs of the guest [default: 1]
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory of the guest, such as 512M or 2G [default: 1G]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// File system of the data [default: ext4]
    #[arg(long, value_name = "NAME")]
    pub filesystem: Option<String>,
    /// Random seed [default: drawn, and printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Folder with room for the disk, twice what is loaded and a GiB
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Rehearse a disk that acknowledges flushes and does not do them: the test has to fail
    #[arg(long)]
    pub lying_disk: bool,
    /// Leave console, disk and acknowledgements where they are
    #[arg(long)]
    pub keep: bool,
    /// Format of the result on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = DbsimFormat::Text)]
    pub format: DbsimFormat,
}
