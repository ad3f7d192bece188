//! The command line of `bigiron lever`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::complete;

/// List the levers, and check which of them this machine has
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron lever list\n  \
    bigiron lever show block.scheduler\n  \
    bigiron lever check running,block.scheduler=bfq,mm.thp=always\n\n\
    `bigiron doc FAMILY` describes a family of levers, for example `bigiron doc block`.")]
pub struct Lever {
    #[command(subcommand)]
    pub action: LeverAction,
}

#[derive(Debug, Subcommand)]
pub enum LeverAction {
    /// List the levers, or those of one family
    #[command(after_help = "Examples:\n  bigiron lever list\n  bigiron lever list block")]
    List {
        #[arg(value_name = "FAMILY", add = complete::family())]
        family: Option<String>,
    },
    /// Describe a lever, its values and its setting on this machine
    #[command(after_help = "Examples:\n  bigiron lever show mm.thp\n  bigiron lever show oltp.mode")]
    Show {
        #[arg(value_name = "LEVER", add = complete::lever())]
        name: String,
    },
    /// Check whether settings are available on this machine; exits with 1 if one is not
    #[command(after_help = "Examples:\n  \
        bigiron lever check running,block.scheduler=bfq\n  \
        bigiron lever check mm.thp=always --apply")]
    Check {
        /// An arm (KERNEL,LEVER=VALUE…) or a setting (LEVER=VALUE)
        #[arg(value_name = "ARM|SETTING", required = true, add = complete::arm_or_setting())]
        settings: Vec<String>,
        /// Apply the settings, read them back, print what changed, and restore the old values
        #[arg(long)]
        apply: bool,
        /// Folder whose disks the `block.` levers act on
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
}
