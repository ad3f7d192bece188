//! Why a session stopped before every slot had its record. In every case all finished trials are kept.

use std::path::PathBuf;

use bigiron_model::store::StoreError;

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("Interrupted with {done} of {total} trials done; they are kept in `{}`, and the same command resumes the study", dir.display())]
    Interrupted { done: u32, total: u32, dir: PathBuf },
    #[error("Stopped with {done} of {total} trials done; fix this, and the same command resumes the study: {why}")]
    Host { why: String, done: u32, total: u32 },
    #[error(
        "{done} of {total} trials are done; the other machines have run all of theirs, and once the machine is well, the same command resumes. {why}"
    )]
    Machines { done: u32, total: u32, why: String },
    #[error(
        "Arm `{arm}` must boot release `{asked}`, but its guest reports `{said}`: this is not the kernel in the plan. \
         bigiron did not record this boot; check which kernel `{spec}` names"
    )]
    WrongKernel { arm: String, spec: String, asked: String, said: String },
    #[error(
        "{void} pairs are void because the host failed; the limit is {limit} of {pairs} (a quarter). The last cause: {cause}. {next}"
    )]
    TooManyVoid { void: u32, limit: u32, pairs: u32, cause: String, next: &'static str },
    #[error(
        "The workload failed in the first trial of every arm, so nothing can be compared. Fix the workload and add `--fresh`; without `--fresh`, \
         the same command resumes the study in `{}`. The last failure: {message}",
        dir.display()
    )]
    AllArmsFailed { message: String, dir: PathBuf },
    #[error(
        "`{machine}` cannot run trial {slot} and delivered no result; another machine may be able to run it: {why}"
    )]
    CannotRun { slot: u32, machine: String, why: String },
    #[error(
        "`{machine}` and another machine ran trial {slot} with different results: {what}. One of the two does not execute the exact clock exactly. \
         The study cannot be judged now; do not use this machine until you know why"
    )]
    Differs { slot: u32, what: String, machine: String },
    #[error("The plan differs from the one in `{}`", dir.display())]
    OtherPlan { dir: PathBuf },
    #[error(
        "The study is finished, but the search for causes stopped; fix this, and the same command resumes the search: {why}"
    )]
    Causes { why: String },
    #[error(
        "Interrupted during the search for causes; the study in `{}` is finished: `bigiron report` prints its verdict, and the same command resumes the search",
        dir.display()
    )]
    CausesInterrupted { dir: PathBuf },
}
