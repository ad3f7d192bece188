//! The executable: a guest's agent as PID 1, otherwise the command line.

use std::process::ExitCode;

use bigiron::cli::Cli;
use bigiron_lab::protocol::JOB_PATH;
use clap::Parser;

fn main() -> ExitCode {
    // A workload measures how long this takes, so nothing may come before it.
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|a| a == "worker") && args.next().is_some_and(|a| a == "exit") {
        return ExitCode::SUCCESS;
    }
    // The kernel passes words that it does not know to init as arguments. Being PID 1 is not enough: it may be a container's
    // first process.
    if std::process::id() == 1 && std::path::Path::new(JOB_PATH).exists() {
        bigiron_lab::guest::main(bigiron::registry::WORKLOADS);
    }
    bigiron::commands::main(Cli::parse())
}
