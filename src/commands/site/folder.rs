//! A site's folder: the list of the files that `bigiron site` wrote, by which it knows its own.
//!
//! Invariant: every file that it writes is in the list before, so a killed run leaves nothing that the next one does not know; all other files
//! are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use bigiron_model::folder_files;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::Folder;

/// The list's file.
const LIST: &str = "bigiron-site.json";

/// Version of its format.
const SCHEMA: u32 = 1;

/// Files may be read by everybody, as the umask allows.
const MODE: u32 = 0o666;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    schema: u32,
    /// Below the site's folder.
    files: BTreeSet<String>,
}

/// A folder that a site may be written into.
#[derive(Debug)]
pub struct SiteFolder {
    dir: PathBuf,
    /// What an earlier run wrote.
    known: BTreeSet<String>,
}

impl SiteFolder {
    /// The site in `dir`, which may be new.
    ///
    /// # Errors
    /// `dir` holds other things, or a site of another version.
    pub fn open(dir: &Path) -> anyhow::Result<SiteFolder> {
        let path = dir.join(LIST);
        let known = match folder_files::read(dir, LIST) {
            Ok(bytes) => {
                let list: List = serde_json::from_slice(&bytes)
                    .map_err(|e| Refusal::new(format!("`{}` is not a list of a site's files: {e}", path.display())))?;
                if list.schema != SCHEMA {
                    let message = format!("`{}` was written by another version of bigiron", path.display());
                    return Err(Refusal::new(message).hint("Name a new folder with `--out SITE`").into());
                }
                list.files
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if Folder::holds_other_things(dir) {
                    let message = format!("`{}` is not empty and is not a site that bigiron wrote", dir.display());
                    return Err(Refusal::new(message).hint("Name a new or empty folder with `--out SITE`").into());
                }
                BTreeSet::new()
            }
            Err(e) => return Err(e).with_context(|| format!("Cannot read `{}`", path.display())),
        };
        Ok(SiteFolder { dir: dir.to_owned(), known })
    }

    /// Writes the site's files and removes those of the earlier run that it no longer has.
    pub fn write(self, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| format!("Cannot create the folder `{}`", self.dir.display()))?;
        let new: BTreeSet<String> = files.keys().cloned().collect();
        self.list(self.known.union(&new).cloned().collect())?;
        for (name, bytes) in files {
            self.file(name, bytes).with_context(|| format!("Cannot write `{}`", self.dir.join(name).display()))?;
        }
        for name in self.known.difference(&new) {
            self.remove(name).with_context(|| format!("Cannot remove `{}`", self.dir.join(name).display()))?;
        }
        self.list(new)
    }

    fn list(&self, files: BTreeSet<String>) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(&List { schema: SCHEMA, files })?;
        text.push('\n');
        folder_files::write_whole(&self.dir, LIST, text.as_bytes(), MODE)
            .with_context(|| format!("Cannot write `{}`", self.dir.join(LIST).display()))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match name.rsplit_once('/') {
            Some((folders, name)) => {
                let dir = folder_files::make_folders(&self.dir, folders)?;
                folder_files::write_whole(&dir, name, bytes, MODE)
            }
            None => folder_files::write_whole(&self.dir, name, bytes, MODE),
        }
    }

    /// Removes a file, and the folders that it leaves empty.
    fn remove(&self, name: &str) -> io::Result<()> {
        folder_files::remove_all(&self.dir, name)?;
        for folder in Path::new(name).ancestors().skip(1).filter(|f| !f.as_os_str().is_empty()) {
            // It fails for a folder with other files, which stays.
            if fs::remove_dir(self.dir.join(folder)).is_err() {
                break;
            }
        }
        Ok(())
    }
}
