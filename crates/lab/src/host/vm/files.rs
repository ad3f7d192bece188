//! The files of a trial.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::host::HostError;
use crate::protocol;
use crate::protocol::GuestJob;
use crate::vm::initramfs::Archive;
use crate::vm::process::Process;
use crate::vm::watch::CONSOLE_LIMIT;
use bigiron_model::folder_files;

/// The size of a job in a guest is a multiple of this, in bytes.
const JOB_BYTES: usize = 16 << 10;

/// Minimum room for a running trial. QEMU does not report failed writes: a guest would seem to fall silent, or to hang at its
/// disk, which is not its kernel's fault.
const ROOM_BYTES: u64 = 1 << 20;

/// The files of a trial. Those that QEMU only reads are removed when it has ended.
pub(super) struct Files {
    dir: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) console: PathBuf,
    pub(super) events: PathBuf,
    pub(super) errors: PathBuf,
}

impl Files {
    pub(super) fn in_dir(dir: &Path) -> Self {
        // QEMU gets absolute paths: it is told nothing of our working directory.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        Self {
            initramfs: dir.join("initramfs"),
            console: dir.join("console.log"),
            events: dir.join("events.ndjson"),
            errors: dir.join("qemu.log"),
            dir,
        }
    }

    /// Whether a guest may name an artefact so: one file here, and none of the host's own.
    pub(super) fn check_artifact(&self, name: &str) -> Result<(), String> {
        folder_files::plain_name(name)?;
        // The temporary name is a little longer.
        if name.len() > 200 {
            return Err(format!("`{name:.40}…` is longer than 200 bytes"));
        }
        let path = self.dir.join(name);
        match [&self.initramfs, &self.console, &self.events, &self.errors].contains(&&path) {
            true => Err(format!("`{name}` is a file of the host's")),
            false => Ok(()),
        }
    }

    pub(super) fn disk(&self, serial: &str) -> PathBuf {
        self.dir.join(format!("{serial}.disk"))
    }

    pub(super) fn write_initramfs(&self, archive: &[u8], job: &GuestJob) -> std::io::Result<()> {
        let mut own = Archive::new();
        let mut text = serde_json::to_vec(job).expect("a job has string keys only");
        // Blanks up to a fixed size: jobs of different lengths, such as a trial's and its rerun's, take the same pages of the guest's memory, so that
        // its caches, which a model counts, see the same addresses.
        text.resize(text.len().next_multiple_of(JOB_BYTES), b' ');
        own.file(protocol::JOB_PATH, 0o644, &text);
        let mut file = File::create(&self.initramfs)?;
        file.write_all(archive)?;
        file.write_all(&own.finish())
    }

    /// Whether there is room for what QEMU writes.
    pub(super) fn check_room(&self) -> Result<(), HostError> {
        let Ok(fs) = rustix::fs::statvfs(&self.dir) else { return Ok(()) };
        if fs.f_blocks == 0 || fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM_BYTES {
            return Ok(());
        }
        Err(HostError::Fatal(format!(
            "No space left in `{}`; at least 1 MiB must stay free while a guest runs",
            self.dir.display()
        )))
    }

    /// Takes off what the guest wrote to its console beyond the limit, in the moment until it was ended.
    pub(super) fn cut_console(&self) {
        let Ok(file) = File::options().write(true).open(&self.console) else { return };
        if file.metadata().is_ok_and(|m| m.len() > CONSOLE_LIMIT) {
            let _ = file.set_len(CONSOLE_LIMIT);
        }
    }

    pub(super) fn remove_bulk(&self, process: &Process) {
        let _ = std::fs::remove_file(&self.initramfs);
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|e| e == "disk") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        if process.errors().is_empty() {
            let _ = std::fs::remove_file(&self.errors);
        }
    }
}
