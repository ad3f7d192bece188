//! The agent: the part of bigiron that guests get, as their PID 1 and as worker processes of their workloads. It has no command line, judge or report.

use std::process::ExitCode;

fn main() -> ExitCode {
    bigiron::agent::run();
    eprintln!("This is the agent of bigiron's guests, where it runs as the first process; run `bigiron` instead");
    ExitCode::from(2)
}
