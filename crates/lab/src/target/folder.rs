//! bigiron's own folder on a target.
//!
//! Invariant: a file there is whole or absent, also after a power cut.
//!
//! ```text
//! audit.jsonl            every command that changed something
//! turn.lock              held while something begins that other studies must not meet
//! undo.jsonl             the ledger of settings
//! bin/                   bigiron's executable
//! trials/STUDY/TRIAL/    a trial: job.json, boot.json, lock, phases, result.json, artifacts/
//! kernels/NAME/          a kernel that bigiron brought: image, initrd, brought.json
//! origin.json            the kernel to return to, and the machine's state before the first change
//! ```

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use bigiron_model::folder_files::{self, Access, Owner};

use super::messages::TrialKey;
use crate::undo;

const AUDIT: &str = "audit.jsonl";

/// The folder.
#[derive(Clone, Debug)]
pub struct TargetFolder(PathBuf);

/// A line of the audit log.
#[derive(Debug, Serialize, Deserialize)]
pub struct AuditLine {
    /// In UTC.
    pub at: String,
    /// Seconds since 1970.
    pub seconds: u64,
    pub study: String,
    pub what: String,
    /// The address that the connection came from, as sshd says.
    pub from: String,
}

/// The word with which the audit line of a reboot into a kernel under test begins.
pub const BOOT: &str = "boot";

/// The same of a reboot into the machine's own kernel.
pub const REBOOT: &str = "reboot";

impl TargetFolder {
    /// Opens or makes this machine's folder, which nobody else may have filled.
    pub fn open() -> anyhow::Result<Self> {
        Self::at(undo::folder()?)
    }

    /// The folder, if there is one.
    pub fn open_existing() -> Option<Self> {
        let folder = undo::folder().ok()?;
        folder_files::check_owner(&folder, Owner::User).ok()?;
        Some(Self(folder))
    }

    pub fn at(folder: PathBuf) -> anyhow::Result<Self> {
        let make = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            folder_files::check_owner(&folder, Owner::User)
        };
        make().with_context(|| format!("Cannot use the folder {}", folder.display()))?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn kernels(&self) -> PathBuf {
        self.0.join("kernels")
    }

    pub fn trials(&self, study: &str) -> PathBuf {
        self.0.join("trials").join(study)
    }

    /// The folder of one trial, which need not exist.
    pub fn trial(&self, key: &TrialKey) -> anyhow::Result<PathBuf> {
        folder_files::plain_name(&key.study).map_err(anyhow::Error::msg)?;
        Ok(self.trials(&key.study).join(key.name()))
    }

    /// Logs a command before it is run.
    pub fn audit(&self, study: &str, what: &str) -> anyhow::Result<()> {
        let line = AuditLine {
            at: bigiron_model::date::now(),
            seconds: seconds_now(),
            study: study.to_owned(),
            what: what.to_owned(),
            from: std::env::var("SSH_CONNECTION").unwrap_or_default(),
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        let append = || {
            let mut file = folder_files::open(&self.0, AUDIT, Access::Append, 0o600)?;
            file.write_all(&text)?;
            file.sync_all()
        };
        append().with_context(|| format!("Cannot write {}, so nothing is done", self.0.join(AUDIT).display()))
    }

    /// Reboots in the last 24 hours.
    pub fn reboots_today(&self) -> u32 {
        let text = fs::read_to_string(self.0.join(AUDIT)).unwrap_or_default();
        let since = seconds_now().saturating_sub(86_400);
        let lines = text.lines().filter_map(|line| serde_json::from_str::<AuditLine>(line).ok());
        let is_reboot = |what: &str| what.split(' ').next().is_some_and(|word| [BOOT, REBOOT].contains(&word));
        lines.filter(|line| line.seconds >= since && is_reboot(&line.what)).count() as u32
    }
}

fn seconds_now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Makes a folder and those above it; their entries are on the disk.
pub(super) fn make_durable(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("Cannot make {}", folder.display()))?;
    for dir in folder.ancestors().take(3) {
        File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| format!("Cannot sync {}", dir.display()))?;
    }
    Ok(())
}

/// Writes a message as a file.
pub(super) fn write(folder: &Path, name: &str, message: &impl Serialize) -> anyhow::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    folder_files::write_whole(folder, name, &bytes, 0o600)
        .with_context(|| format!("Cannot write {}", folder.join(name).display()))
}

/// Reads a file that [`write`] wrote; `None` if there is none.
pub(super) fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> anyhow::Result<Option<T>> {
    let path = folder.join(name);
    match fs::read(&path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(message) => Ok(Some(message)),
            Err(e) => bail!("{} is damaged: {e}", path.display()),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("Cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reboots_of_the_last_day_count() {
        let dir = tempfile::tempdir().unwrap();
        let folder = TargetFolder::at(dir.path().join("bigiron")).unwrap();
        assert_eq!(folder.reboots_today(), 0);
        folder.audit("s", "boot 6.1 by kexec").unwrap();
        folder.audit("s", "install 6.1").unwrap();
        assert_eq!(folder.reboots_today(), 1);
        // The way back is a reboot too.
        folder.audit("s", "reboot to 6.1, the boot loader's default").unwrap();
        folder.audit("s", "bootstrap").unwrap();
        assert_eq!(folder.reboots_today(), 2);
        let old = AuditLine {
            at: String::new(),
            seconds: seconds_now() - 90_000,
            study: String::new(),
            what: "boot 6.1 by kexec".to_owned(),
            from: String::new(),
        };
        let mut text = fs::read_to_string(folder.path().join(AUDIT)).unwrap();
        text.push_str(&format!("{}\n", serde_json::to_string(&old).unwrap()));
        fs::write(folder.path().join(AUDIT), text).unwrap();
        assert_eq!(folder.reboots_today(), 2);
    }
}
