//! Why a session stopped before every slot had its record. In every case all finished trials are kept.

use std::path::PathBuf;

use bigiron_model::store::StoreError;

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("Interrupted with {done} of {total} trials done; they are kept in `{}`, and the same command resumes", dir.display())]
    Interrupted { done: u32, total: u32, dir: PathBuf },
    #[error("Stopped with {done} of {total} trials done; fix this, and the same command resumes: {why}")]
    Host { why: String, done: u32, total: u32 },
    #[error(
        "Arm `{arm}` was to boot release `{asked}`, its guest says `{said}`: this is another kernel than the plan's. \
         Nothing of this boot was recorded; check what `{spec}` points to"
    )]
    WrongKernel { arm: String, spec: String, asked: String, said: String },
    #[error(
        "{void} pairs went void through the host's fault, {limit} of {pairs} are allowed (a quarter); the last cause: {cause}. {next}"
    )]
    TooManyVoid { void: u32, limit: u32, pairs: u32, cause: String, next: &'static str },
    #[error(
        "The workload failed in the first trial of every arm, so nothing can be compared. Mend it and add `--fresh`; the same command goes on with the \
         study in `{}` as it is. It failed so: {message}",
        dir.display()
    )]
    AllAlike { message: String, dir: PathBuf },
    #[error("The plan is not the one in `{}`", dir.display())]
    OtherPlan { dir: PathBuf },
    #[error("The study is finished, but the search for causes stopped; fix this, and the same command resumes: {why}")]
    Look { why: String },
    #[error(
        "Interrupted while looking for causes; the study in `{}` is finished: `bigiron report` has its verdict, and the same command resumes the search",
        dir.display()
    )]
    LookInterrupted { dir: PathBuf },
}
