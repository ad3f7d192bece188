//! Worker processes of workloads: this executable, started again as `bigiron worker NAME …`. `agent.rs` answers `worker exit` itself.

use bigiron_lab::host::local;
use bigiron_web::page;
use bigiron_workloads::build;
use bigiron_workloads::multiuser::work::shell;

use crate::conduct::signals;
use crate::registry::WORKLOADS;

/// Runs the worker; returns the process's exit status.
pub fn run(args: &[String]) -> i32 {
    if let Err(error) = signals::survive_file_size_limit() {
        eprintln!("{error:#}");
        return 1;
    }
    match args.first().map_or("", String::as_str) {
        "trial" => local::worker(WORKLOADS),
        shell::SHELL_WORKER => shell::worker(&args[1..]),
        shell::COMMAND_WORKER => shell::command(&args[1..]),
        page::WORKER => page::worker(&args[1..]),
        "build-tree" => build::worker_tree(&args[1..]),
        name => {
            eprintln!("No worker `{name}`");
            2
        }
    }
}
