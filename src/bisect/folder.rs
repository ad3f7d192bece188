//! A bisection's folder: `bisect.toml`, and a study's folder for each test.
//!
//! Invariant: the description is written once, before the first boot, and never changed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::config::OptionChange;
use super::git::Commit;
use crate::study::arm::ArmText;
use bigiron_model::clock::Clock;
use bigiron_model::folder_files;
use bigiron_model::identity::Identity;
use bigiron_model::metric::MetricDef;
use bigiron_model::provenance::Provenance;
use bigiron_model::setting::Setting;
use bigiron_model::store::folder::write_whole;
use bigiron_model::store::{Folder, SlotTally, StoreError};

/// Version of the description's format.
pub const SCHEMA: u32 = 1;

const FILE: &str = "bisect.toml";

/// The folder of the study of the two ends.
pub const ENDS: &str = "ends";
/// The folder of the study that switches every lever alone.
pub const EACH: &str = "each";

/// The description of a bisection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bisection {
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
    /// Hash of the question, by which a bisection to resume is found.
    pub question_sha256: String,
    /// UTC.
    pub begun: String,
    /// The command that repeats the question.
    pub repeat: String,
    /// Its options, as passed on to a bisection of a part.
    pub options: String,
    pub clock: Clock,
    pub seed: u64,
    pub what: SearchKind,
    /// Accepted probability of naming the wrong place.
    pub error: f64,
    /// Pairs of a test.
    pub pairs_per_step: u32,
    /// Maximum number of tests.
    pub steps: u32,
    pub workload: String,
    pub metric: MetricDef,
    /// The source of the kernels, if they are built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Kernels in order, the good one first and the bad one last; for levers, the two arms.
    pub candidates: Vec<Candidate>,
}

/// What a bisection searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchKind {
    /// The place among kernels in their order.
    Kernels,
    /// The place among the commits of a source tree.
    Commits,
    /// The place among configurations of one source tree.
    Configs,
    /// The levers among those that differ between two arms.
    Levers,
}

/// The source of the kernels, and how they are built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The repository, as named on the command line.
    pub tree: PathBuf,
    /// The origin of the configuration; if configurations are searched, of the good one.
    pub config: String,
    /// The origin of the bad configuration, if configurations are searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_config: Option<String>,
    /// The commit whose configurations are searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub make: Vec<String>,
    /// Commits that touch none of these paths are not candidates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// A link of a chain of configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainLink {
    /// How many of the differences have the bad configuration's value.
    pub switched: usize,
    /// The options that it switches relative to the candidate before it; until Kconfig has run, some may have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionChange>,
}

impl Candidate {
    /// The key of its build record, if it is built.
    pub fn build(&self) -> Option<&str> {
        match (&self.commit, &self.link) {
            (Some(commit), _) => Some(&commit.hash),
            (None, Some(_)) => Some(&self.name),
            (None, None) => None,
        }
    }

    /// A short description of the difference from the candidate before it.
    pub fn subject(&self) -> Option<String> {
        let short = |change: &OptionChange| format!("{}={}", change.option, change.to);
        let of_link = |link: &ChainLink| link.options.iter().map(short).collect::<Vec<_>>().join(", ");
        self.commit.as_ref().map(|commit| commit.subject.clone()).or_else(|| self.link.as_ref().map(of_link))
    }

    /// As typed on the command line.
    pub fn text(&self) -> String {
        ArmText { name: None, kernel: self.kernel.clone(), settings: self.settings.clone() }.to_string()
    }
}

/// A kernel that may be tested, with its levers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Unique in the bisection.
    pub name: String,
    /// As typed, or an exact version.
    pub kernel: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
    /// The kernel's identity, if it was determined before the first boot; otherwise the study of its first test has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The commit that it is built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// The configuration that it is built with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<ChainLink>,
}

/// The errors of a bisection's folder that a study's folder cannot have.
#[derive(Debug, thiserror::Error)]
pub enum BisectError {
    #[error("`{}` is not a bisection that this bigiron can read: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes `known` as the file `name` in a bisection's folder `dir`.
pub(super) fn write<T: Serialize>(dir: &Path, name: &str, known: &T) -> Result<(), BisectError> {
    let unreadable = |e: toml::ser::Error| BisectError::Unreadable { path: dir.join(name), why: e.to_string() };
    write_whole(dir, name, toml::to_string(known).map_err(unreadable)?.as_bytes())?;
    Ok(())
}

/// Reads a file written by [`write`]; `None` if there is no such file.
pub(super) fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, BisectError> {
    let path = dir.join(name);
    match folder_files::read(dir, name).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other)) {
        Ok(text) => match toml::from_str(&text) {
            Ok(known) => Ok(Some(known)),
            Err(e) => Err(BisectError::Unreadable { path, why: e.message().to_owned() }),
        },
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(StoreError::io("read", &path, e).into()),
    }
}

impl Bisection {
    /// Writes the description into `dir`, which is created if necessary.
    pub fn create(&self, dir: &Path) -> Result<(), BisectError> {
        fs::create_dir_all(dir).map_err(|e| StoreError::io("create the folder", dir, e))?;
        write(dir, FILE, self)
    }

    /// Reads the description in `dir`; `None` if it holds none.
    pub fn open(dir: &Path) -> Result<Option<Bisection>, BisectError> {
        let unreadable = |why: String| BisectError::Unreadable { path: dir.join(FILE), why };
        let Some(read) = read::<Bisection>(dir, FILE)? else { return Ok(None) };
        if read.schema != SCHEMA {
            return Err(unreadable(format!("it has format {}, this bigiron reads format {SCHEMA}", read.schema)));
        }
        // They name files.
        for key in read.candidates.iter().filter_map(Candidate::build) {
            folder_files::plain_name(key).map_err(&unreadable)?;
        }
        if read.candidates.len() < 2 {
            return Err(unreadable("it names fewer than two arms".to_owned()));
        }
        Ok(Some(read))
    }

    /// The programs that run its trials.
    pub fn provenance(&self) -> Provenance {
        Provenance { executable: self.executable.clone(), qemu: self.qemu.clone(), qemu_build: self.qemu_build.clone() }
    }

    /// Writes `report.json` and the like.
    pub fn write_report(dir: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        write_whole(dir, name, bytes)
    }

    /// The name of the folder of test `number`, from 1.
    pub fn step(number: usize) -> String {
        format!("step-{number:02}")
    }
}

/// The study in `folder` below `dir`, if it was started.
pub fn study(dir: &Path, folder: &str) -> Result<Option<Folder>, StoreError> {
    StoreError::refuse_link(dir, folder)?;
    match Folder::open(&dir.join(folder)) {
        Ok(study) => Ok(Some(study)),
        Err(StoreError::NoStudy { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The same, if every slot has its record.
pub fn finished(dir: &Path, folder: &str) -> Result<Option<Folder>, StoreError> {
    let Some(study) = study(dir, folder)? else { return Ok(None) };
    let done = SlotTally::of(study.plan(), &study.records()?.records).missing().is_empty();
    Ok(done.then_some(study))
}
