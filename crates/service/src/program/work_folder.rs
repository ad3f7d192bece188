//! The working folder of a workload's programs: a folder of the trial, or in a guest a folder in a root made of this machine's files.
//!
//! Invariant: programs get the same environment on this machine and in a guest, except for `PATH`; their files stay in the trial's folder.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::root::{self, enter};
use bigiron_image::find_tool;
use bigiron_sys::launch::Program;
use bigiron_workload::Context;

/// A folder that programs work in.
#[derive(Clone, Debug)]
pub struct WorkFolder {
    root: Option<PathBuf>,
    /// As programs see it.
    inside: PathBuf,
}

impl WorkFolder {
    /// The trial's work folder, called `name`. [`WorkFolder::make`] makes it.
    pub fn of(cx: &Context<'_>, name: &str) -> Self {
        match cx.images.contains_key(root::ROOT) {
            true => Self { root: Some(cx.dir.join("root")), inside: Path::new("/").join(name) },
            false => Self { root: None, inside: cx.dir.join(name) },
        }
    }

    /// Creates it; in a guest, together with the root that contains it.
    ///
    /// # Errors
    /// As [`enter::make`]; or there is no room.
    pub fn make(&self, cx: &Context<'_>) -> Result<()> {
        if let Some(image) = cx.images.get(root::ROOT) {
            enter::make(image, &cx.dir)?;
        }
        let scratch = self.outside().join(SCRATCH);
        fs::create_dir_all(&scratch).with_context(|| format!("Cannot make {}", scratch.display()))
    }

    /// The folder that is the programs' `/`, if it is not this process's.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The folder as programs see it.
    pub fn inside(&self) -> &Path {
        &self.inside
    }

    /// The folder as this process sees it.
    pub fn outside(&self) -> PathBuf {
        self.seen_from_outside(&self.inside)
    }

    /// The path outside for `path` as programs see it.
    pub fn seen_from_outside(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// `/bin/sh -c LINE` in `dir`, a path as programs see it.
    ///
    /// # Errors
    /// One of them contains a zero byte.
    pub fn shell(&self, line: &str, dir: &Path) -> Result<Program> {
        let text = |s: String| CString::new(s).context("A zero byte in a command");
        let own = |name: &str| std::env::var(name).ok().filter(|_| self.root.is_none());
        let plain = enter::ENVIRONMENT[0].1.to_owned();
        let here = |path: &Path| path.display().to_string();
        let environment = [
            ("PATH", own("PATH").unwrap_or(plain)),
            ("HOME", here(&self.inside)),
            ("TMPDIR", here(&self.inside.join(SCRATCH))),
            ("LC_ALL", "C".to_owned()),
            ("TZ", "UTC0".to_owned()),
            ("SHELL", "/bin/sh".to_owned()),
            ("PWD", here(dir)),
        ];
        Ok(Program {
            path: text("/bin/sh".to_owned())?,
            argv: ["/bin/sh", "-c", line].map(|w| text(w.to_owned())).into_iter().collect::<Result<_>>()?,
            environment: environment.into_iter().map(|(n, v)| text(format!("{n}={v}"))).collect::<Result<_>>()?,
            dir: text(here(dir))?,
        })
    }
}

/// The folder for temporary files.
const SCRATCH: &str = "tmp";

/// The programs of `wanted` (name, package) that this machine lacks.
pub fn missing<'p>(wanted: impl IntoIterator<Item = (&'p str, &'p str)>) -> Vec<(&'p str, &'p str)> {
    wanted.into_iter().filter(|(program, _)| find_tool(program).is_none()).collect()
}

/// How to get these programs: ``  `ed` is not installed; `apt-get install ed` brings it ``.
pub fn bring(missing: &[(&str, &str)]) -> String {
    let names: Vec<String> = missing.iter().map(|(program, _)| format!("`{program}`")).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    let (is, it) = if names.len() == 1 { ("is", "it") } else { ("are", "them") };
    format!("{} {is} not installed; `apt-get install {}` brings {it}", names.join(", "), packages.join(" "))
}

/// Finds a program on this machine, for [`super::root::ProgramNeeds`].
///
/// # Errors
/// It is not in `PATH`.
pub fn find(program: &str) -> Result<PathBuf, String> {
    let path = Path::new(program);
    let found = if program.contains('/') { path.is_file().then(|| path.to_owned()) } else { find_tool(program) };
    found.ok_or_else(|| format!("there is no program `{program}` in PATH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_brings_it() {
        let wanted = [("sh", "dash"), ("no-such-a", "alpha"), ("no-such-b", "alpha"), ("no-such-c", "beta")];
        let missing = missing(wanted);
        assert_eq!(
            bring(&missing),
            "`no-such-a`, `no-such-b`, `no-such-c` are not installed; `apt-get install alpha beta` brings them"
        );
        assert_eq!(bring(&missing[..1]), "`no-such-a` is not installed; `apt-get install alpha` brings it");
        assert!(find("sh").is_ok() && find("/bin/sh").is_ok() && find("no-such-a").is_err());
    }
}
