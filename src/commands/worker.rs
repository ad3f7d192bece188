//! Workload worker processes: this executable, started again as `bigiron worker NAME …`.

use bigiron_lab::host::local;
use bigiron_workloads::multiuser::work::shell;
use bigiron_workloads::{build, micro};

use crate::registry::WORKLOADS;

/// Runs the worker; returns the process's exit status.
pub(super) fn run(args: &[String]) -> i32 {
    match args.first().map_or("", String::as_str) {
        "exit" => micro::worker_exit(),
        "trial" => local::worker(WORKLOADS),
        shell::SHELL_WORKER => shell::worker(&args[1..]),
        shell::COMMAND_WORKER => shell::command(&args[1..]),
        "build-tree" => build::worker_tree(&args[1..]),
        name => {
            eprintln!("No worker `{name}`");
            2
        }
    }
}
