//! A night's folder: `night.toml`, and a study's folder for each group of rows that share a boot.
//!
//! Invariant: the description is written once, before the first boot, and never changed; a resumed night uses the kernels that it
//! names.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::rows::{Budget, LeftOut, Row};
use bigiron_model::clock::Clock;
use bigiron_model::folder_files;
use bigiron_model::identity::Identity;
use bigiron_model::provenance::Provenance;
use bigiron_model::record::Outcome;
use bigiron_model::store::folder::write_whole;
use bigiron_model::store::line::sha256_hex;
use bigiron_model::store::{Folder, SlotTally, StoreError};

/// Version of the description's format.
const SCHEMA: u32 = 1;

const FILE: &str = "night.toml";

/// The description of a night.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Night {
    pub schema: u32,
    /// Version of bigiron that started it.
    pub bigiron: String,
    /// Hash of that executable's file.
    pub executable: String,
    /// QEMU's version, if its trials run in guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<String>,
    /// QEMU's build, as in [`Provenance`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_build: Option<String>,
    /// Hash of the question, by which a night to resume is found.
    pub question_sha256: String,
    /// UTC.
    pub begun: String,
    pub budget: Budget,
    /// Of each study.
    pub pairs: u32,
    pub clock: Clock,
    /// The command that repeats the question.
    pub repeat: String,
    /// The first is the baseline.
    pub arms: Vec<NightArm>,
    pub groups: Vec<Group>,
    /// Rows that could not run on the machine that started the night.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// A kernel of the night.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NightArm {
    pub name: String,
    pub kernel: Identity,
}

/// Rows that share a boot: a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Below the night's folder.
    pub folder: String,
    pub rows: Vec<Row>,
}

/// The errors of a night's folder that a study's folder cannot have.
#[derive(Debug, thiserror::Error)]
pub enum NightError {
    #[error("`{}` is not a night that this bigiron can read: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Night {
    /// The groups of `boots`, with folder names: that of the file system, numbered if it has several groups.
    pub fn groups(boots: &[Vec<&Row>]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for boot in boots {
            let filesystem = boot.first().map_or("", |r| r.filesystem.as_str());
            let same = groups.iter().filter(|g| g.rows.first().is_some_and(|r| r.filesystem == filesystem)).count();
            let folder = if same == 0 { filesystem.to_owned() } else { format!("{filesystem}-{}", same + 1) };
            groups.push(Group { folder, rows: boot.iter().map(|r| (*r).clone()).collect() });
        }
        groups
    }

    /// The night of this version.
    pub fn schema() -> u32 {
        SCHEMA
    }

    /// Whether `dir` holds a night.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// Writes the description into `dir`, which is created if necessary.
    pub fn create(&self, dir: &Path) -> Result<(), NightError> {
        let path = dir.join(FILE);
        let unreadable = |why: String| NightError::Unreadable { path: path.clone(), why };
        fs::create_dir_all(dir).map_err(|e| StoreError::io("create the folder", dir, e))?;
        let text = toml::to_string(self).map_err(|e| unreadable(e.to_string()))?;
        write_whole(dir, FILE, text.as_bytes())?;
        Ok(())
    }

    /// Reads the description of the night in `dir`; `None` if it holds none.
    pub fn open(dir: &Path) -> Result<Option<Night>, NightError> {
        let path = dir.join(FILE);
        let read = folder_files::read(dir, FILE).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = match read {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(e) => return Err(StoreError::io("read", &path, e).into()),
        };
        let night: Night = toml::from_str(&text)
            .map_err(|e| NightError::Unreadable { path: path.clone(), why: e.message().to_owned() })?;
        if night.schema != SCHEMA {
            let why = format!("it has format {}, this bigiron reads format {SCHEMA}", night.schema);
            return Err(NightError::Unreadable { path, why });
        }
        // They are opened, written to, and linked to from the report.
        let rows = night.groups.iter().flat_map(|g| &g.rows);
        for folder in night.groups.iter().map(|g| g.folder.clone()).chain(rows.map(Group::alone)) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
            folder_files::plain_name(&folder)
                .and_then(|()| match folder.chars().all(plain) {
                    true => Ok(()),
                    false => Err(format!(
                        "the folder `{}` has other characters than bigiron gives one",
                        folder.escape_debug()
                    )),
                })
                .map_err(|why| NightError::Unreadable { path: path.clone(), why })?;
        }
        Ok(Some(night))
    }

    /// Whether nothing of the night in `dir` is left to boot.
    pub fn is_finished(&self, dir: &Path) -> Result<bool, StoreError> {
        for group in &self.groups {
            if !Group::is_finished(dir, &group.folder)? {
                return Ok(false);
            }
            let alone = if group.must_split(dir)? { &group.rows[..] } else { &[] };
            for row in alone {
                if !Group::is_finished(dir, &Group::alone(row))? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The programs that run its trials.
    pub fn provenance(&self) -> Provenance {
        Provenance { executable: self.executable.clone(), qemu: self.qemu.clone(), qemu_build: self.qemu_build.clone() }
    }

    /// An identifier unique to this night.
    pub fn id(&self) -> String {
        let mut id = sha256_hex(format!("{} {}", self.question_sha256, self.begun).as_bytes());
        id.truncate(16);
        id
    }

    /// Writes `report.html` and the like.
    pub fn write_report(dir: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        write_whole(dir, name, bytes)
    }
}

impl Group {
    /// The folder of the study that runs one of its rows alone.
    pub fn alone(row: &Row) -> String {
        format!("alone-{}", row.name)
    }

    /// Whether a boot with several rows failed: only separate boots can show which row caused it.
    pub fn must_split(&self, dir: &Path) -> Result<bool, StoreError> {
        let Some(study) = Group::study(dir, &self.folder)? else { return Ok(false) };
        let failed = study.records()?.records.iter().any(|r| matches!(r.outcome, Outcome::Failed { .. }));
        Ok(failed && self.rows.len() > 1)
    }

    /// Whether every slot of the study of `folder` below `dir` has its record.
    fn is_finished(dir: &Path, folder: &str) -> Result<bool, StoreError> {
        let Some(study) = Group::study(dir, folder)? else { return Ok(false) };
        Ok(SlotTally::of(study.plan(), &study.records()?.records).missing().is_empty())
    }

    /// The study of `folder` below `dir`, if it was started.
    pub fn study(dir: &Path, folder: &str) -> Result<Option<Folder>, StoreError> {
        StoreError::refuse_link(dir, folder)?;
        match Folder::open(&dir.join(folder)) {
            Ok(study) => Ok(Some(study)),
            Err(StoreError::NoStudy { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
