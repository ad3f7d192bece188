//! The command line of `bigiron host`.

use bigiron_model::host::HostName;
use clap::{Args, Subcommand};

use super::ssh_host;

/// Look at another machine on which trials may run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bigiron host check ssh:db-test-3")]
pub struct Host {
    #[command(subcommand)]
    pub action: HostAction,
}

#[derive(Debug, Subcommand)]
pub enum HostAction {
    /// Show what a study would find and do on another machine; changes nothing
    ///
    /// Exits with 1 if the machine's administrator allows no trials. `bigiron doc confirm` describes the file that allows them.
    #[command(after_help = "Examples:\n  bigiron host check ssh:db-test-3")]
    Check {
        /// The machine, as OpenSSH names it
        #[arg(value_name = "HOST", value_parser = ssh_host)]
        host: HostName,
    },
}
