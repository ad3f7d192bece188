//! Processes and threads: made and waited for.

use super::bench::{Bench, Window};
use crate::sys::process::{Program, fork_exit};

/// Arguments that make this executable a program which does nothing: what `fork-exec` runs.
pub const EXIT_ARGUMENTS: [&str; 2] = ["worker", "exit"];

pub fn fork(b: &Bench<'_>) -> anyhow::Result<Window> {
    b.time(|| fork_exit()?.wait()?.success("The forked child"))
}

pub fn exec(b: &Bench<'_>) -> anyhow::Result<Window> {
    let program = Program::new(b.executable, &EXIT_ARGUMENTS)?;
    let name = format!("`{} worker exit`", b.executable.display());
    b.time(|| program.fork_exec()?.wait()?.success(&name))
}

pub fn thread(b: &Bench<'_>) -> anyhow::Result<Window> {
    b.time(|| {
        let thread = std::thread::Builder::new().spawn(|| ())?;
        thread.join().map_err(|_| std::io::Error::other("The thread panicked"))
    })
}
