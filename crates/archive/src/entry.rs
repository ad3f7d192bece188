//! A kernel in the cache, and the small TOML file that describes it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::error::{KernelError, doing};
use super::{Kernel, hash};
use bigiron_model::identity::Identity;

/// The description's file name in an entry's folder. It is written last, so a folder without it is not an entry.
const FILE: &str = "entry.toml";

/// A kernel in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedKernel {
    /// Its name when it was stored.
    pub spec: String,
    pub release: String,
    /// Package and version, if it came in a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Its name in a distribution's archive, if it came from one. Earlier builds wrote only Debian's.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "debian")]
    pub origin: Option<Origin>,
    /// The source: a suite of the archive, or a path.
    pub from: String,
    /// When it was stored, seconds since 1970.
    pub added: u64,
    /// Bytes on disk, all files together.
    pub bytes: u64,
    /// Number of modules.
    pub modules: usize,
    pub image_sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// State of the source (hashes, or sizes and times of its files): if it is unchanged, the kernel need not be stored again.
    pub source_sha256: String,
    /// Names given by `kernel add`.
    #[serde(skip)]
    pub names: Vec<String>,
    /// The entry's folder.
    #[serde(skip)]
    pub dir: PathBuf,
}

/// A distribution's name for a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    #[serde(default)]
    pub distribution: Distribution,
    pub version: String,
    pub flavour: String,
}

impl CachedKernel {
    /// The entry in `dir`; `None` if the folder is not (or no longer) one.
    pub(super) fn read(dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(dir.join(FILE)).ok()?;
        let entry: Self = toml::from_str(&text).ok()?;
        Some(Self { dir: dir.to_path_buf(), ..entry })
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), KernelError> {
        let path = dir.join(FILE);
        let text = toml::to_string(self).expect("an entry is plain data");
        fs::write(&path, text).and_then(|()| fs::File::open(&path)?.sync_all()).map_err(doing("Cannot write", &path))
    }

    /// Hashes the image and configuration again and compares.
    pub(super) fn verify(&self) -> Result<(), KernelError> {
        let files = [("image", Some(&self.image_sha256)), ("config", self.config_sha256.as_ref())];
        for (name, wanted) in files {
            let Some(wanted) = wanted else { continue };
            let path = self.dir.join(name);
            let found = hash::of_file(&path).map_err(doing("Cannot read", &path))?;
            if found != *wanted {
                return Err(KernelError::Changed {
                    path,
                    found,
                    wanted: wanted.clone(),
                    release: self.release.clone(),
                });
            }
        }
        Ok(())
    }

    /// The kernel, as requested by `spec`.
    pub(super) fn kernel(&self, spec: &str) -> Kernel {
        let present = |name: &str| Some(self.dir.join(name)).filter(|p| p.exists());
        Kernel {
            identity: Identity {
                spec: spec.to_owned(),
                release: self.release.clone(),
                package: self.package.clone(),
                image_sha256: self.image_sha256.clone(),
                config_sha256: self.config_sha256.clone(),
            },
            image: self.dir.join("image"),
            modules: present("modules"),
            config: present("config"),
            symbols: present("System.map"),
        }
    }
}
