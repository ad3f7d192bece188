//! Processes created, programs loaded, signals handled, jumps out of nested calls.
//!
//! Invariant: every child is reaped, and ends as expected.

use anyhow::Context as _;

use super::UserContext;
use super::shell::{self, ShellScript};
use super::verdict::expect;
use bigiron_sys::jump;
use bigiron_sys::process::fork_exit;
use bigiron_sys::signal::SignalCounter;

/// Calls that a jump leaves at once.
const NESTED: u64 = 10;

/// 100 times: a process that ends at once.
pub fn forks(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    for _ in 0..place.times(100) {
        fork_exit()
            .and_then(|child| child.wait())
            .and_then(|end| end.success("A child"))
            .context("Cannot create a process")?;
    }
    Ok(())
}

/// 5 times: a process that loads a shell, which lists a directory.
pub fn programs(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    for _ in 0..place.times(5) {
        shell::run(place, &ShellScript::List)?;
    }
    Ok(())
}

/// A shell that becomes another, which lists a directory.
pub fn lists(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    shell::run(place, &ShellScript::ListTwice)
}

/// A shell that waits for 5 s.
pub fn pauses(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    shell::run(place, &ShellScript::Pause { milliseconds: place.times(5000) })
}

/// 1000 times: a signal to the process itself, whose handler counts; the handler is installed again each time, as with System V.
pub fn signals(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let counter = SignalCounter::install().context("Cannot install a handler")?;
    let (pid, thread) = (rustix::process::getpid(), rustix::thread::gettid());
    let times = place.times(1000);
    for _ in 0..times {
        counter.raise(pid, thread)?;
        counter.install_again()?;
    }
    expect("Handling signals", counter.handled(), times)
}

/// 1000 times: sets a mark, nests 10 calls, and leaves them all at once.
pub fn jumps(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let times = place.times(1000);
    expect("Jumping out of nested calls", jump::jumps(times, NESTED), times)
}
