//! Worker processes of workloads: this executable, started again as `bigiron worker NAME …`.

use bigiron_lab::host::local;
use bigiron_workloads::multiuser::work::shell;
use bigiron_workloads::{build, micro};

use crate::conduct::signals;
use crate::registry::WORKLOADS;

/// The first argument of a worker's command line.
pub const WORKER: &str = "worker";

/// Runs the worker; returns the process's exit status.
pub fn run(args: &[String]) -> i32 {
    let name = args.first().map_or("", String::as_str);
    if name == "exit" {
        return micro::worker_exit();
    }
    if let Err(error) = signals::survive_file_size_limit() {
        eprintln!("{error:#}");
        return 1;
    }
    match name {
        "trial" => local::worker(WORKLOADS),
        shell::SHELL_WORKER => shell::worker(&args[1..]),
        shell::COMMAND_WORKER => shell::command(&args[1..]),
        "build-tree" => build::worker_tree(&args[1..]),
        _ => {
            eprintln!("No worker `{name}`");
            2
        }
    }
}
