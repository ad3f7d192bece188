//! The programs of a PostgreSQL server, and how they are started so that they see only what is theirs.
//!
//! Invariant: they never run as root.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bigiron_service::error::ServerError;
use bigiron_service::root::Root;
use bigiron_service::tree::{CLUSTER, UID};
use bigiron_sys::enclosure::{Enclosure, enclose};

/// A PostgreSQL server's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The major version, e.g. 15.
    pub major: u32,
    home: Home,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Home {
    /// A root tree that they are locked into.
    Tree(PathBuf),
    /// Installed on this machine; the folder of the programs.
    Installed(PathBuf),
}

impl Server {
    /// The server in a tree of ours, or where this machine lets nobody enter one the installed server of the same major version.
    ///
    /// # Errors
    /// Neither can be started; says what to enable.
    pub fn of(root: &Root) -> Result<Self, ServerError> {
        let major = root.about.major;
        let own = Self::in_tree(&root.dir, major);
        let Err(why) = own.answers() else { return Ok(own) };
        let bin = PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"));
        let installed = Self { major, home: Home::Installed(bin.clone()) };
        if bin.join("postgres").is_file() && installed.answers().is_ok() {
            return Ok(installed);
        }
        Err(ServerError::Cluster(format!(
            "A private PostgreSQL cannot be started here: {why}. It needs user name spaces for ordinary users (`sysctl \
             user.max_user_namespaces` above 0; on Debian `kernel.unprivileged_userns_clone=1`, on Ubuntu \
             `kernel.apparmor_restrict_unprivileged_userns=0`), or bigiron run as root, or PostgreSQL {major} installed (`apt-get install \
             postgresql-{major}`)"
        )))
    }

    /// The server in a tree at `dir`, such as the read-only file system of a guest.
    pub fn in_tree(dir: &Path, major: u32) -> Self {
        Self { major, home: Home::Tree(dir.to_owned()) }
    }

    /// What `postgres --version` says.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn version(&self) -> Result<String, ServerError> {
        self.answers().map_err(ServerError::Cluster)
    }

    fn answers(&self) -> Result<String, String> {
        let nothing = tempfile::tempdir().map_err(|e| format!("No folder for temporary files: {e}"))?;
        let output = self.command("postgres", nothing.path()).and_then(|mut c| c.arg("--version").output());
        let output = output.map_err(|e| format!("its programs cannot be entered ({e})"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("it does not run here ({}): {}", output.status, said.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Where the cluster's folder appears to the programs.
    pub(super) fn inside(&self, folder: &Path) -> PathBuf {
        match self.home {
            Home::Tree(_) => Path::new("/").join(CLUSTER),
            Home::Installed(_) => folder.to_owned(),
        }
    }

    /// The user that a cluster in `folder` runs as: whoever owns its data already; else [`UID`], or the installation's own user.
    pub(super) fn user(&self, folder: &Path) -> io::Result<u32> {
        let owner = std::fs::metadata(folder.join("data")).map(|m| m.uid());
        match (owner, &self.home) {
            (Ok(uid), _) if uid != 0 && rustix::process::geteuid().is_root() => Ok(uid),
            (_, Home::Tree(_)) => Ok(UID),
            (_, Home::Installed(_)) => {
                let users = std::fs::read_to_string("/etc/passwd")?;
                let line = users.lines().find_map(|l| l.strip_prefix("postgres:"));
                let uid = line.and_then(|l| l.split(':').nth(1)?.parse().ok());
                uid.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no user `postgres`"))
            }
        }
    }

    /// A program of the server, to be run with the cluster's `folder` at hand. It dies with the thread that starts it.
    pub(super) fn command(&self, program: &str, folder: &Path) -> io::Result<Command> {
        let bin = match &self.home {
            Home::Tree(_) => PathBuf::from(format!("/usr/lib/postgresql/{}/bin", self.major)),
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
        enclose(&mut command, &Enclosure { root, folder: (folder, CLUSTER), user, mapped_only: false })?;
        Ok(command)
    }
}
