//! The executable: the command line, and what the agent does.

use std::process::ExitCode;

use bigiron::cli;

fn main() -> ExitCode {
    bigiron_oltp::pg::encryption::install();
    bigiron::agent::run();
    bigiron::commands::main(cli::parse())
}
