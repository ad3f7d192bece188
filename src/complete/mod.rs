//! Completion of command lines in bash, zsh and fish, by the executable itself: a small script of the shell runs `bigiron` with `COMPLETE=SHELL` at
//! each Tab, so that it offers the present kernels, levers and studies.
//!
//! Invariant: completion fetches, writes and boots nothing and waits for nothing. It skips what it cannot read; a broken cache is no error.

mod folders;
mod kernels;
mod levers;
mod shells;
mod words;

use clap::CommandFactory as _;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use crate::cli::Cli;

/// Answers a shell that asks for completions or for its script, and ends the process; returns if this is no such call.
pub fn answer() {
    CompleteEnv::with_factory(Cli::command)
        .bin("bigiron")
        .shells(Shells(&[&shells::Bash, &shells::Zsh, &shells::Fish]))
        .complete();
}

/// A completer of one word. `of` gets the typed part; candidates that do not begin with it are dropped.
fn completer(of: fn(&str) -> Vec<CompletionCandidate>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &std::ffi::OsStr| {
        let Some(typed) = typed.to_str() else { return Vec::new() };
        let continues = |c: &CompletionCandidate| c.get_value().to_str().is_some_and(|value| value.starts_with(typed));
        of(typed).into_iter().filter(continues).collect()
    })
}

/// A candidate with its description.
fn candidate(value: impl Into<String>, about: impl Into<String>) -> CompletionCandidate {
    let about: String = about.into();
    let about = Some(about).filter(|about| !about.is_empty());
    CompletionCandidate::new(value.into()).help(about.map(Into::into))
}

/// The candidates with `prefix`, which the user has typed, before each.
fn after(prefix: &str, candidates: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    candidates.into_iter().map(|candidate| candidate.add_prefix(prefix)).collect()
}

/// A kernel.
pub fn kernel() -> ArgValueCompleter {
    completer(kernels::kernels)
}

/// A kernel of the cache, by any of its names.
pub fn cached_kernel() -> ArgValueCompleter {
    completer(|_| kernels::cached())
}

/// `KERNEL[,LEVER=VALUE]…`.
pub fn arm() -> ArgValueCompleter {
    completer(kernels::arm)
}

/// Arms separated by commas, or a folder.
pub fn arms() -> ArgValueCompleter {
    completer(kernels::arms)
}

/// An arm or a workload.
pub fn arm_or_workload() -> ArgValueCompleter {
    completer(|typed| [kernels::arm(typed), words::workloads()].concat_all())
}

/// A kernel or a workload.
pub fn kernel_or_workload() -> ArgValueCompleter {
    completer(|typed| [kernels::kernels(typed), words::workloads()].concat_all())
}

/// A host for trials.
pub fn host() -> ArgValueCompleter {
    completer(|_| {
        [candidate("vm", "guests"), candidate("local", "this machine"), candidate("ssh:", "another machine")].into()
    })
}

/// A workload.
pub fn workload() -> ArgValueCompleter {
    completer(|_| words::workloads())
}

/// `LEVER=VALUE`.
pub fn setting() -> ArgValueCompleter {
    completer(levers::setting)
}

/// An arm or `LEVER=VALUE`.
pub fn arm_or_setting() -> ArgValueCompleter {
    completer(|typed| {
        let settings = if typed.contains(',') { Vec::new() } else { levers::setting(typed) };
        [kernels::arm(typed), settings].concat_all()
    })
}

/// A lever.
pub fn lever() -> ArgValueCompleter {
    completer(levers::lever)
}

/// A family of levers.
pub fn family() -> ArgValueCompleter {
    completer(|_| levers::families(""))
}

/// A setting of a dbsim job.
pub fn dbsim_key() -> ArgValueCompleter {
    completer(|typed| levers::option_of("dbsim", typed))
}

/// An option of dss.
pub fn dss_option() -> ArgValueCompleter {
    completer(|typed| levers::option_of("dss", typed))
}

/// A setting of an oltp job.
pub fn oltp_option() -> ArgValueCompleter {
    completer(|typed| levers::option_of("oltp", typed))
}

/// A job of dbsim, or a file.
pub fn dbsim_job() -> ArgValueCompleter {
    completer(|typed| words::job("dbsim", typed))
}

/// The name of a dbsim job.
pub fn dbsim_job_name() -> ArgValueCompleter {
    completer(|_| words::jobs("dbsim"))
}

/// A job of oltp, or a file.
pub fn oltp_job() -> ArgValueCompleter {
    completer(|typed| words::job("oltp", typed))
}

/// The name of an oltp job.
pub fn oltp_job_name() -> ArgValueCompleter {
    completer(|_| words::jobs("oltp"))
}

/// `WORKLOAD[:METRIC]`.
pub fn workload_metric() -> ArgValueCompleter {
    completer(words::workload_metric)
}

/// A row of the nightly grid, or `ROW.METRIC`.
pub fn row_metric() -> ArgValueCompleter {
    completer(words::row_metric)
}

/// `KIND=PERCENT`.
pub fn margin() -> ArgValueCompleter {
    completer(|_| words::margins())
}

/// A storage.
pub fn storage() -> ArgValueCompleter {
    completer(|_| words::storage())
}

/// A file system.
pub fn filesystem() -> ArgValueCompleter {
    completer(|_| words::filesystems())
}

/// A ready-made study, or a study file.
pub fn study() -> ArgValueCompleter {
    completer(words::study)
}

/// The name of a ready-made study.
pub fn study_name() -> ArgValueCompleter {
    completer(|_| words::studies())
}

/// A page of the documentation.
pub fn page() -> ArgValueCompleter {
    completer(words::page)
}

/// The folder of a study, a night or a bisection.
pub fn study_folder() -> ArgValueCompleter {
    completer(folders::studies)
}

/// Joins lists of candidates, which cannot be cloned.
trait ConcatAll {
    fn concat_all(self) -> Vec<CompletionCandidate>;
}

impl<const N: usize> ConcatAll for [Vec<CompletionCandidate>; N] {
    fn concat_all(self) -> Vec<CompletionCandidate> {
        self.into_iter().flatten().collect()
    }
}
