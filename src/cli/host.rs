//! The command line of `bigiron host`.

use bigiron_model::host::HostName;
use clap::{Args, Subcommand};

use super::ssh_host;

/// Check another machine before you run trials on it
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bigiron host check ssh:db-test-3")]
pub struct Host {
    #[command(subcommand)]
    pub action: HostAction,
}

#[derive(Debug, Subcommand)]
pub enum HostAction {
    /// Show the state of another machine and what a study would change there; changes nothing
    ///
    /// Exits with 1 if the machine's administrator allows no trials. `bigiron doc confirm` describes the file that allows them.
    #[command(after_help = "Examples:\n  bigiron host check ssh:db-test-3")]
    Check {
        /// The machine: ssh:NAME, where NAME is a host for OpenSSH
        #[arg(value_name = "HOST", value_parser = ssh_host)]
        host: HostName,
    },
}
