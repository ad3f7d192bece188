//! Kernels built from the commits of a source tree: the commits between two, and how each becomes a kernel.
//!
//! Invariant: the user's tree is only read. Sources are checked out and built in a folder of the cache.

pub mod built;
pub mod config;
pub mod history;
pub mod make;
pub mod recipe;
pub(crate) mod step;
pub mod touched;
pub mod workspace;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub use built::{BuildOutcome, Built};
pub use history::{Commit, SourceTree};
pub use recipe::Recipe;
pub use touched::Touched;
pub use workspace::Workspace;

use bigiron_model::refusal::Refusal;

/// Characters of a commit's hash in names: enough to be unique in the largest trees.
pub const SHORT: usize = 12;

/// The first characters of a commit's hash.
pub fn short(hash: &str) -> &str {
    hash.get(..SHORT).unwrap_or(hash)
}

/// Runs git in `dir`, ignoring environment variables that point to another repository.
fn git<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Result<Output, Refusal> {
    command("git")
        .arg("-C")
        .arg(dir)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Refusal::new(format!("git cannot be run: {e}")).hint("`apt-get install git` installs it"))
}

/// A command without environment variables of another repository or another make.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let foreign = |name: &str| {
        name.starts_with("GIT_") && !name.starts_with("GIT_CONFIG")
            || name.starts_with("KBUILD_")
            || ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "CROSS_COMPILE", "ARCH", "LOCALVERSION"]
                .contains(&name)
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(foreign)) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C");
    command
}

/// The first line of a program's error output.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("no error message");
    line.trim_start_matches("fatal: ").to_owned()
}
