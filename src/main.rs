//! The executable: the command line, and what the agent does.

use std::process::ExitCode;

// Its functions take the place of musl's.
use bigiron_copy as _;

use bigiron::{cli, complete, target};

fn main() -> ExitCode {
    bigiron_sql::pg::encryption::install();
    bigiron_web::encryption::install();
    bigiron_workloads::jvm::install(include_bytes!("../java/bigiron-java.jar"));
    bigiron::agent::run();
    target::answer();
    complete::answer();
    bigiron::commands::main(cli::parse())
}
