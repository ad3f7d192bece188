//! What the executable does in a guest: it is PID 1, or a worker process of a workload.

use std::env;
use std::path::Path;
use std::process;

use bigiron_lab::protocol::JOB_PATH;

use crate::registry::WORKLOADS;
use crate::worker;

/// Does a guest's work, if this process is one of a guest, and ends it; returns otherwise.
pub fn run() {
    // A workload measures how long this takes, so nothing may come before it.
    let mut args = env::args_os().skip(1);
    if args.next().is_some_and(|a| a == "worker") {
        if args.next().is_some_and(|a| a == "exit") {
            process::exit(0);
        }
        let args: Vec<_> = env::args_os().skip(2).map(|a| a.to_string_lossy().into_owned()).collect();
        if let Some(status) = worker::run(&args) {
            process::exit(status);
        }
    }
    // The kernel passes words that it does not know to init as arguments. Being PID 1 is not enough: it may be a container's first process.
    if process::id() == 1 && Path::new(JOB_PATH).exists() {
        bigiron_lab::guest::main(WORKLOADS);
    }
}
