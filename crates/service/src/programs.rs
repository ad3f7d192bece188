//! The programs of a server, started so that they see only their own files.
//!
//! Invariant: they never run as root.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bigiron_sys::sandbox::{Sandbox, enclose};

use super::error::ServerError;
use super::instance::DATA;
use super::recipe::Recipe;
use super::root::Root;
use super::tree::{FOLDER, UID};

/// A server's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    recipe: &'static Recipe,
    /// The series of its versions, such as `15`.
    pub series: String,
    home: Home,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Home {
    /// A root tree that they are confined to.
    Tree(PathBuf),
    /// Installed on this machine; the folder of the programs.
    Installed(PathBuf),
}

impl Programs {
    /// The server in a tree of bigiron's, or, where this machine does not allow entering one, the installed server of the same major version.
    ///
    /// # Errors
    /// Neither can be started; the message says what to enable.
    pub fn of(recipe: &'static Recipe, root: &Root) -> Result<Self, ServerError> {
        let series = root.about.series.as_str();
        let own = Self::in_tree(recipe, &root.dir, series);
        let Err(why) = own.answers() else { return Ok(own) };
        let bin = Path::new("/").join((recipe.programs)(series));
        let installed = Self::installed(recipe, &bin, series);
        if bin.join(recipe.required[0]).is_file() && installed.answers().is_ok() {
            return Ok(installed);
        }
        let (title, package) = (recipe.title, recipe.package.name(series));
        Err(ServerError::Failed(format!(
            "A private {title} cannot be started here: {why}. It needs user name spaces for ordinary users (`sysctl \
             user.max_user_namespaces` above 0; on Debian `kernel.unprivileged_userns_clone=1`, on Ubuntu \
             `kernel.apparmor_restrict_unprivileged_userns=0`), or bigiron run as root, or {title} {series} installed (`apt-get install \
             {package}`)"
        )))
    }

    /// The server in a tree at `dir`, such as the read-only file system of a guest.
    pub fn in_tree(recipe: &'static Recipe, dir: &Path, series: &str) -> Self {
        Self { recipe, series: series.to_owned(), home: Home::Tree(dir.to_owned()) }
    }

    /// A server installed on this machine, with its programs in `bin`.
    pub fn installed(recipe: &'static Recipe, bin: &Path, series: &str) -> Self {
        Self { recipe, series: series.to_owned(), home: Home::Installed(bin.to_owned()) }
    }

    /// The server's name and series, for a person.
    pub fn title(&self) -> String {
        format!("{} {}", self.recipe.title, self.series)
    }

    /// The version that the server reports, in its own words.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn version(&self) -> Result<String, ServerError> {
        self.answers().map_err(ServerError::Failed)
    }

    fn answers(&self) -> Result<String, String> {
        let nothing = tempfile::tempdir().map_err(|e| format!("Cannot create a temporary folder: {e}"))?;
        let output = self
            .command(self.recipe.required[0], nothing.path())
            .and_then(|mut c| c.arg(self.recipe.version_argument).output());
        let output = output.map_err(|e| format!("its programs cannot be entered ({e})"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("it does not run here ({}): {}", output.status, said.trim()));
        }
        // nginx reports it on standard error.
        let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
        Ok(String::from_utf8_lossy(&said).lines().next().unwrap_or_default().trim().to_owned())
    }

    /// The path of the server's folder as its programs see it.
    pub fn inside(&self, folder: &Path) -> PathBuf {
        match self.home {
            Home::Tree(_) => Path::new("/").join(FOLDER),
            Home::Installed(_) => folder.to_owned(),
        }
    }

    /// The user that a server in `folder` runs as: the owner of its data; if there are no data, [`UID`] or the installation's own user.
    pub fn user(&self, folder: &Path) -> io::Result<u32> {
        let owner = std::fs::metadata(folder.join(DATA)).map(|m| m.uid());
        match (owner, &self.home) {
            (Ok(uid), _) if uid != 0 && rustix::process::geteuid().is_root() => Ok(uid),
            (_, Home::Tree(_)) => Ok(UID),
            (_, Home::Installed(_)) => {
                let users = std::fs::read_to_string("/etc/passwd")?;
                let own = |line: &str| {
                    let (name, rest) = line.split_once(':')?;
                    (name == self.recipe.user).then(|| rest.split(':').nth(1)?.parse().ok()).flatten()
                };
                let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no user `{}`", self.recipe.user));
                users.lines().find_map(own).ok_or_else(missing)
            }
        }
    }

    /// A file of the server's packages, by its path from the root: `usr/share/…`.
    pub fn file(&self, path: &str) -> PathBuf {
        match &self.home {
            Home::Tree(dir) => dir.join(path),
            Home::Installed(_) => Path::new("/").join(path),
        }
    }

    /// A program of the server, which can access the server's `folder`. It dies with the thread that starts it.
    pub fn command(&self, program: &str, folder: &Path) -> io::Result<Command> {
        let bin = match &self.home {
            Home::Tree(_) => Path::new("/").join((self.recipe.programs)(&self.series)),
            Home::Installed(bin) => bin.clone(),
        };
        let mut command = Command::new(bin.join(program));
        command.env_clear().envs([("PATH", "/usr/bin:/bin"), ("TZ", "UTC"), ("LC_ALL", "C"), ("HOME", "/")]);
        command.stdin(Stdio::null());
        let root = match &self.home {
            Home::Tree(dir) => Some(dir.as_path()),
            Home::Installed(_) if !rustix::process::geteuid().is_root() => {
                bigiron_sys::child::die_with_parent(&mut command);
                return Ok(command);
            }
            Home::Installed(_) => None,
        };
        let user = self.user(folder)?;
        enclose(
            &mut command,
            &Sandbox { root, folder: (folder, FOLDER), user, sees_sys: self.recipe.sees_sys, mapped_only: false },
        )?;
        Ok(command)
    }
}
