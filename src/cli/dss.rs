//! The command line of `bigiron dss`.

use std::path::PathBuf;

use bigiron_dss::Scale;
use clap::{Args, Subcommand};

use super::RunFormat;
use super::number::between;
use crate::complete;

/// Run decision-support queries on this machine; load a database; print the queries
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron dss run --set engine=sqlite\n  \
    bigiron dss run --set engine=postgres --set scale=1 --dir /mnt/test\n  \
    bigiron dss load postgresql://me@db.example/bench --scale 10\n  \
    bigiron dss queries 6 --set engine=postgres\n\n\
    `bigiron doc dss` describes the workload.")]
pub struct Dss {
    #[command(subcommand)]
    pub action: DssAction,
}

#[derive(Debug, Subcommand)]
pub enum DssAction {
    Run(DssRun),
    /// Load the tables into a database, with indexes and statistics
    #[command(after_help = "Examples:\n  bigiron dss load postgresql://me@db.example/bench --scale 10")]
    Load {
        /// The database: `postgresql://USER@HOST/DATABASE`
        url: String,
        /// Scale factor, 0.001 to 1000; 1 is about 1 GB of raw data
        #[arg(long, value_name = "FACTOR", default_value = "0.01", allow_negative_numbers = true)]
        scale: Scale,
    },
    /// Print the SQL text of the queries, as the engine receives it
    #[command(
        after_help = "Examples:\n  bigiron dss queries\n  bigiron dss queries 6 --set engine=sqlite --set parameters=7"
    )]
    Queries {
        /// The query, 1 to 22 [default: all, in ascending order]
        #[arg(value_parser = between::<u32>(1, 22), allow_negative_numbers = true)]
        query: Option<u32>,
        /// Set an option, such as `engine`, `scale` or `parameters` (see `bigiron doc dss`); may be repeated
        #[arg(long, value_name = "OPTION=VALUE", add = complete::dss_option())]
        set: Vec<String>,
    },
}

/// Run the queries once on this machine and check their answers
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron dss run --set engine=sqlite\n  \
    bigiron dss run --set engine=postgres --set scale=1 --dir /mnt/test\n  \
    bigiron dss run --set engine=postgres --set url=postgresql://me@db.example/bench --set run=throughput")]
pub struct DssRun {
    /// Set an option, such as `engine` or `scale` (see `bigiron doc dss`); may be repeated
    #[arg(long, value_name = "OPTION=VALUE", add = complete::dss_option())]
    pub set: Vec<String>,
    /// Directory on the file system to test
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Format of the result on standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = RunFormat::Text)]
    pub format: RunFormat,
}
