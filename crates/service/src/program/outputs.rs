//! The output of a command, run by run, kept with the trial.
//!
//! Invariant: standard error is always there after a failed run; empty files are removed.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use bigiron_workload::ARTIFACTS;

/// Lines and bytes from the end of standard error in a failed trial's message.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: u64 = 16 << 10;
/// Most bytes of an output that are searched for a metric: its end.
const SEARCHED_BYTES: u64 = 256 << 20;

/// The outputs of a trial's runs.
pub struct Outputs {
    dir: PathBuf,
}

impl Outputs {
    /// Creates the outputs in the trial's own folder.
    pub fn make(trial: &Path) -> anyhow::Result<Self> {
        let dir = trial.join(ARTIFACTS);
        fs::create_dir_all(&dir).with_context(|| format!("Cannot make {}", dir.display()))?;
        Ok(Self { dir })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The output of the run `name`.
    pub fn read(&self, name: &str, stream: &str) -> anyhow::Result<String> {
        self.end(name, stream, SEARCHED_BYTES)
    }

    /// The last lines of its standard error.
    pub fn tail(&self, name: &str) -> String {
        let text = self.end(name, "stderr", TAIL_BYTES).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn end(&self, name: &str, stream: &str, most: u64) -> anyhow::Result<String> {
        let path = self.dir.join(format!("{name}.{stream}"));
        let read = || {
            let mut file = File::open(&path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
            let mut bytes = Vec::new();
            file.take(most).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        let bytes = read().with_context(|| format!("Cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Removes the outputs of the run `name` that are empty.
    pub fn tidy(&self, name: &str) {
        for stream in ["stdout", "stderr"] {
            let path = self.dir.join(format!("{name}.{stream}"));
            if fs::metadata(&path).is_ok_and(|m| m.len() == 0) {
                let _ = fs::remove_file(path);
            }
        }
    }
}
