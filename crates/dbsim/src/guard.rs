//! A process that restores the machine's settings if the run is killed before it can restore them itself.
//!
//! Invariant: it outlives every process of the run, does nothing while one of them lives, and ends with the run.

use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Read, Write};

use anyhow::{Context as _, Result};

use bigiron_sys::process::{Child, fork_child};

/// The guard process. It waits for the end of a pipe whose other end the run's processes hold, so that it acts when the last one
/// is gone.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    run: PipeWriter,
}

const STANDING: u8 = b'!';
const CHANGED: u8 = b'+';
const DISMISSED: u8 = b'.';

impl Guard {
    /// Starts it before the change. `undo` is told whether the change is known to have been made.
    pub fn start(undo: impl FnOnce(bool) -> Result<()>) -> Result<Self> {
        let (end, run) = std::io::pipe()?;
        let (mut standing, stands) = std::io::pipe()?;
        let run = Cell::new(Some(run));
        let child = fork_child(|| {
            // The child's own copy of the writing end; the parent's cell keeps its own.
            drop(run.take());
            // It must outlive the parent, and ignore a Ctrl-C meant for the parent.
            let alone =
                rustix::process::set_parent_process_death_signal(None).is_ok() && rustix::process::setsid().is_ok();
            let alone = alone && (&stands).write_all(&[STANDING]).is_ok();
            let undone = alone.then(|| watch(end)).and_then(Result::ok).map(|changed| changed.map_or(Ok(()), undo));
            i32::from(!matches!(undone, Some(Ok(()))))
        })?;
        // Until it reports that it is ready it dies with its parent: nothing may be changed before.
        drop(stands);
        standing.read_exact(&mut [0]).context("The guard of the machine's settings ended at once")?;
        Ok(Self { child, run: run.into_inner().context("The pipe is gone")? })
    }

    /// Tells it that the change has been made.
    pub fn changed(&self) -> Result<()> {
        self.tell(CHANGED)
    }

    /// Dismisses the guard: there is nothing left to restore.
    pub fn dismiss(self) -> Result<()> {
        self.tell(DISMISSED)?;
        Ok(self.child.wait()?.success("The guard of the machine's settings")?)
    }

    fn tell(&self, word: u8) -> Result<()> {
        (&self.run).write_all(&[word]).context("The guard of the machine's settings is gone")
    }
}

/// Waits for the run's end: `None` if the run has restored everything, else whether it is known to have changed anything.
fn watch(mut end: PipeReader) -> Result<Option<bool>> {
    let (mut word, mut changed) = ([0], false);
    while end.read(&mut word)? == 1 {
        match word[0] {
            DISMISSED => return Ok(None),
            _ => changed = true,
        }
    }
    Ok(Some(changed))
}
