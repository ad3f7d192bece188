//! `bigiron target VERB`: what another bigiron asks for over SSH. No part of the command line, and not in the agent.

use std::env;
use std::process;

use bigiron_lab::target;

use crate::conduct::signals;
use crate::registry::WORKLOADS;

/// Serves a verb, if this process was started for one, and ends it; returns otherwise.
pub fn answer() {
    let mut args = env::args_os().skip(1);
    if args.next().is_some_and(|word| word == target::SUBCOMMAND) {
        let args: Vec<String> = args.map(|word| word.to_string_lossy().into_owned()).collect();
        if let [word, name] = &args[..]
            && word == bigiron_app::WORKER
        {
            process::exit(bigiron_app::worker(&|| target::allows_trials(name)));
        }
        process::exit(target::serve(&args, WORKLOADS, signals::cancelled_by_signals));
    }
}
