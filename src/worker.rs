//! Worker processes of workloads: this executable, started again as `bigiron worker NAME …`. `agent.rs` answers `worker exit` itself. With any other
//! word the command line has the subcommand `worker`, which runs trials of a study.

use bigiron_lab::host::local;
use bigiron_web::page;
use bigiron_workloads::build;
use bigiron_workloads::multiuser::work::shell;

use crate::conduct::signals;
use crate::registry::WORKLOADS;

/// Runs the worker; returns the process's exit status, or `None` if there is no such worker.
pub fn run(args: &[String]) -> Option<i32> {
    if let Err(error) = signals::survive_file_size_limit() {
        eprintln!("{error:#}");
        return Some(1);
    }
    Some(match args.first().map_or("", String::as_str) {
        "trial" => local::worker(WORKLOADS),
        shell::SHELL_WORKER => shell::worker(&args[1..]),
        shell::COMMAND_WORKER => shell::command(&args[1..]),
        page::WORKER => page::worker(&args[1..]),
        "build-tree" => build::worker_tree(&args[1..]),
        _ => return None,
    })
}
