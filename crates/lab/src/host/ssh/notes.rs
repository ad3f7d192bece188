//! What this user's bigiron remembers of targets while it does not run: one file for each target, in its own state.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use bigiron_model::folder_files;

use crate::undo;

/// Notes of one kind.
pub(super) struct Notes {
    /// The name of their folder.
    pub folder: &'static str,
}

/// Targets that were told to reboot and have not been restored since: one that does not answer may be on its way.
pub(super) const BOOTED: Notes = Notes { folder: "booted" };

impl Notes {
    fn path(&self) -> anyhow::Result<PathBuf> {
        Ok(undo::folder()?.join(self.folder))
    }

    /// The note about the target `name`, if there is one.
    pub(super) fn of(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.path().ok()?.join(file(name))).ok()?.trim().to_owned())
    }

    pub(super) fn put(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let folder = self.path()?;
        fs::create_dir_all(&folder).with_context(|| format!("Cannot make {}", folder.display()))?;
        Ok(folder_files::write_whole(&folder, &file(name), format!("{text}\n").as_bytes(), 0o600)?)
    }

    /// Removes it; whether there was one.
    pub(super) fn end(&self, name: &str) -> anyhow::Result<bool> {
        match fs::remove_file(self.path()?.join(file(name))) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

/// The name of a target's file.
fn file(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-@".contains(c) { c } else { '_' }).collect()
}
