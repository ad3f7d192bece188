//! The command line of `bigiron oltp`.

use std::path::PathBuf;

use bigiron_model::qemu::QemuSource;
use clap::{Args, Subcommand};

use super::number::{between, whole};
use super::{RunFormat, qemu_source};
use crate::complete;

/// Run transactions on PostgreSQL, MariaDB or SQLite on this machine; load and check databases
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
    #[command(after_help = "Examples:\n  bigiron oltp load postgresql://me@db.example/bench --warehouses 10")]
    Load {
        /// The database: `postgresql://USER@HOST/DATABASE`
        url: String,
        /// Number of warehouses, about 125 MB each
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = between::<u32>(1, 100_000), allow_negative_numbers = true)]
        warehouses: u32,
    },
    /// Check TPC-C's consistency conditions on a database; exits with 1 if one does not hold
    #[command(after_help = "Examples:\n  bigiron oltp check postgresql://me@db.example/bench")]
    Check {
        /// The database: `postgresql://USER@HOST/DATABASE`
        url: String,
        /// Also check conditions that hold only right after a load
        #[arg(long)]
        fresh: bool,
    },
    /// After a crash of the server, look for every commit that was acknowledged to a run with `--set acks=FILE`; exits with 1 if one
    /// is missing
    #[command(after_help = "Examples:\n  bigiron oltp prove postgresql://me@db.example/bench acknowledged")]
    Prove {
        /// The recovered database: `postgresql://USER@HOST/DATABASE`
        url: String,
        /// The file that received the acknowledgements
        acks: PathBuf,
    },
    /// List the jobs that come with bigiron
    #[command(after_help = "Examples:\n  bigiron oltp jobs\n  bigiron oltp jobs cached > mine.toml")]
    Jobs {
        /// Print the job of this name
        #[arg(add = complete::oltp_job_name())]
        name: Option<String>,
    },
}

/// Run a job on this machine, on a private server whose data are loaded, checked and removed
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron oltp run cached --set warehouses=4 --seconds 30\n  \
    bigiron oltp run --set engine=sqlite --dir /mnt/test\n  \
    bigiron oltp run --set url=postgresql://me@db.example/bench --set mode=pipelined")]
pub struct OltpRun {
    /// The name of a shipped job (see `bigiron oltp jobs`), or a job file
    #[arg(default_value = "default", add = complete::oltp_job())]
    pub job: String,
    /// Set an option, such as `warehouses` or `postgres.shared_buffers`; may be repeated
    #[arg(long, value_name = "OPTION=VALUE", add = complete::oltp_option())]
    pub set: Vec<String>,
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
}

/// Repeatedly cut a machine's power during a run, and look for every acknowledged commit
///
/// Boots a guest that runs transactions and kills it at a random moment. Its disk keeps everything that the guest had flushed and
/// a random part of what it had only written. The next guest boots on that disk: the engine recovers, and bigiron looks for
/// every acknowledged commit and checks the consistency conditions. Then that guest runs transactions until it is killed in turn. Exits
/// with 1 if anything is lost or half-done.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron oltp crash-test debian:6.12 --rounds 20\n  \
    bigiron oltp crash-test debian:6.12 --filesystem xfs --set oltp.postgres.wal_sync_method=open_datasync\n  \
    bigiron oltp crash-test debian:6.12 --set oltp.postgres.fsync=off")]
pub struct OltpCrashTest {
    /// Kernel, optionally with levers, as in `bigiron compare`
    #[arg(add = complete::arm())]
    pub arm: String,
    /// Number of power losses
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = between::<u32>(1, 10_000), allow_negative_numbers = true)]
    pub rounds: u32,
    /// Maximum number of acknowledged commits before a power loss; the actual number is drawn
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = between::<u64>(1, 10_000_000), allow_negative_numbers = true)]
    pub commits: u64,
    /// Set a lever, such as an option of `oltp` (see `bigiron doc oltp`); may be repeated
    #[arg(long, value_name = "LEVER=VALUE", add = complete::setting())]
    pub set: Vec<String>,
    /// CPUs of the guest [default: 1]
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory of the guest, such as 512M or 2G [default: 1G]
    #[arg(long, allow_negative_numbers = true, value_name = "SIZE")]
    pub memory: Option<String>,
    /// File system of the data [default: ext4]
    #[arg(long, value_name = "NAME", add = complete::filesystem())]
    pub filesystem: Option<String>,
    /// QEMU, as for `bigiron compare` [default: pinned]
    #[arg(long, value_name = "QEMU", value_parser = qemu_source())]
    pub qemu: Option<QemuSource>,
    /// Random seed [default: drawn and printed]
    #[arg(value_parser = whole::<u64>(), allow_negative_numbers = true, long, value_name = "N")]
    pub seed: Option<u64>,
    /// Folder with room for the disk: twice the loaded data plus 1 GiB
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Check the test itself: use a disk that acknowledges flushes but does not perform them; the test must fail
    #[arg(long)]
    pub lying_disk: bool,
    /// Keep the console, the disk and the acknowledgements
    #[arg(long)]
    pub keep: bool,
    /// Format of the result on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = RunFormat::Text)]
    pub format: RunFormat,
}
