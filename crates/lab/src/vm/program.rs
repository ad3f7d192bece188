//! The QEMU program: how it is found and started.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::pinned::{self, PinnedError};
use bigiron_archive::Store;
use bigiron_image::find_tool;
use bigiron_model::qemu::QemuSource;

/// The name of the program for x86-64 guests.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// Version of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A QEMU that runs here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// The program itself, not the loader that starts it.
    pub program: PathBuf,
    pub version: Version,
    /// The package that it was built for, as QEMU prints it: `Debian 1:7.2+dfsg-7+deb12u18+b3`.
    pub build: Option<String>,
    /// Its folder in the cache, if it is not installed.
    tree: Option<PathBuf>,
}

/// Why there is no usable QEMU.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    #[error("QEMU is not installed: no `{PROGRAM}` in PATH; `apt-get install qemu-system-x86` installs it")]
    Missing,
    #[error("`{program}` cannot be run: {cause}")]
    Broken { program: String, cause: io::Error },
    #[error("`{program} --version` prints `{said}`, which is not a version of QEMU; 7.2 or newer is needed")]
    Unknown { program: String, said: String },
    #[error("QEMU is {0}; 7.2 or newer is needed")]
    TooOld(Version),
    #[error(transparent)]
    Pinned(#[from] PinnedError),
}

impl Qemu {
    /// The QEMU that `source` names; `store` keeps the pinned one, and `note` receives messages about its download.
    ///
    /// # Errors
    /// There is no QEMU, it does not run, it is older than 7.2, or the pinned one is not available.
    pub fn of(source: QemuSource, store: &Store, note: &dyn Fn(&str)) -> Result<Self, QemuError> {
        match source {
            QemuSource::Pinned => Ok(pinned::find(store, note)?),
            QemuSource::System => Self::find(),
        }
    }

    /// The QEMU in PATH.
    ///
    /// # Errors
    /// There is no QEMU in PATH, it does not run, or it is older than 7.2.
    pub fn find() -> Result<Self, QemuError> {
        Self::at(find_tool(PROGRAM).ok_or(QemuError::Missing)?, None)
    }

    /// The QEMU at `program`; with `tree`, it is started by the loader in that folder, with its libraries, modules and firmware.
    ///
    /// # Errors
    /// It does not run, or is older than 7.2.
    pub(super) fn at(program: PathBuf, tree: Option<PathBuf>) -> Result<Self, QemuError> {
        let name = program.display().to_string();
        let mut qemu = Self { program, version: Version(0, 0, 0), build: None, tree };
        let output = qemu.command().arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|cause| QemuError::Broken { program: name.clone(), cause })?;
        let said = String::from_utf8_lossy(&output.stdout);
        let said = said.lines().next().unwrap_or("");
        (qemu.version, qemu.build) =
            parse_version(said).ok_or_else(|| QemuError::Unknown { program: name, said: said.to_owned() })?;
        if qemu.version < Version(7, 2, 0) {
            return Err(QemuError::TooOld(qemu.version));
        }
        Ok(qemu)
    }

    /// A program with this version, which is not run.
    #[cfg(test)]
    pub fn named(program: PathBuf, version: Version) -> Self {
        Self { program, version, build: None, tree: None }
    }

    /// Whether it is installed on this machine, not in bigiron's cache.
    pub fn is_installed(&self) -> bool {
        self.tree.is_none()
    }

    /// The command that starts it, without its arguments.
    pub fn command(&self) -> Command {
        let Some(tree) = &self.tree else { return Command::new(&self.program) };
        let mut command = Command::new(tree.join(pinned::LOADER));
        // Without the machine's cache of libraries, a library that is missing in the folder is an error.
        command.args(["--inhibit-cache", "--library-path"]).arg(tree.join(pinned::LIBRARIES));
        command.args(["--argv0", PROGRAM]).arg(&self.program).arg("-L").arg(tree.join(pinned::FIRMWARE));
        command.env("QEMU_MODULE_DIR", tree.join(pinned::MODULES));
        command
    }
}

/// The version and the build (in parentheses) from the first line of `--version`.
fn parse_version(said: &str) -> Option<(Version, Option<String>)> {
    let said = said.strip_prefix("QEMU emulator version ")?;
    let (number, rest) = said.split_once(' ').unwrap_or((said, ""));
    let mut parts = number.split('.').map(|p| p.parse().ok());
    let version = Version(parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0));
    let build = rest.trim().strip_prefix('(').and_then(|r| r.strip_suffix(')'));
    Some((version, build.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_builds_are_read() {
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)";
        let build = Some("Debian 1:7.2+dfsg-7+deb12u18+b3".to_owned());
        assert_eq!(parse_version(debian), Some((Version(7, 2, 22), build)));
        assert_eq!(parse_version("QEMU emulator version 10.0.2"), Some((Version(10, 0, 2), None)));
        assert_eq!(parse_version("QEMU emulator version 9.1"), Some((Version(9, 1, 0), None)));
        assert_eq!(parse_version("QEMU emulator version "), None);
        assert_eq!(parse_version("bash: no such thing"), None);
    }
}
