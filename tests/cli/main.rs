//! The executable as a user meets it: what it prints, what it refuses, its exit status; and, in `boot`, real kernels.

mod bad_inputs;
mod bisect;
mod bisect_config;
mod bisect_git;
#[path = "../boot/mod.rs"]
mod boot;
mod builder;
mod clocks;
mod command;
mod completions;
mod dbsim;
mod docs;
mod dss;
mod environment;
mod exit_status;
mod fleet;
mod java;
mod kernels;
mod kills;
mod lever;
mod limits;
mod local;
mod machines;
mod multiuser;
mod nightly;
mod oltp;
mod packages;
mod rebuilds;
mod refusals;
mod security;
mod site;
mod sizing;
mod slurm;
mod ssh;
mod studies;
mod test_script;
