//! The gate before a real machine: a kernel is booted there only after its image has come up in a VM here.
//!
//! Invariant: an image that has passed is remembered by its hash; a failure never is, since it may have been this machine's fault.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bigiron_archive::Kernel;
use bigiron_model::clock::Clock;
use bigiron_model::folder_files;
use bigiron_model::record::Failure;

use super::files::Files;
use super::{outcome, see_to_its_end};
use crate::host::HostError;
use crate::host::received_events::ReceivedEvents;
use crate::protocol::GuestJob;
use crate::vm::agent;
use crate::vm::initramfs::Archive;
use crate::vm::process::Process;
use crate::vm::qemu::{Accelerator, Config, Qemu};
use crate::vm::watch::Watch;

/// CPU seconds without progress that make a hang, as in a trial.
const HANG_CPU_S: u32 = 120;

/// Memory of the guest: enough for the largest kernel with everything built in.
const MEMORY: u64 = 512 << 20;

/// VMs in which kernels are tried before they boot on another machine.
pub struct Gate {
    qemu: Qemu,
    accelerator: Accelerator,
    /// Contains an empty file for each image that has passed, named by its hash.
    passed: PathBuf,
}

impl Gate {
    pub fn new(qemu: Qemu, accelerator: Accelerator, cache: &Path) -> Self {
        Self { qemu, accelerator, passed: cache.join("booted") }
    }

    /// Whether this image has passed before.
    pub fn has_passed(&self, kernel: &Kernel) -> bool {
        self.passed.join(&kernel.identity.image_sha256).is_file()
    }

    /// Boots the kernel with the agent as its only process; how it failed, if it did.
    ///
    /// # Errors
    /// QEMU's fault or this machine's.
    pub fn try_out(&self, kernel: &Kernel, cancel: &AtomicBool) -> Result<Option<(Failure, String)>, HostError> {
        let fatal = |what: &str, e: &dyn std::fmt::Display| HostError::Fatal(format!("{what}: {e}"));
        let dir = tempfile::tempdir().map_err(|e| fatal("No folder for a VM", &e))?;
        let failure = self.boot(&kernel.image, dir.path(), cancel)?;
        if failure.is_none() {
            let note = || {
                fs::create_dir_all(&self.passed)?;
                folder_files::write_whole(&self.passed, &kernel.identity.image_sha256, b"", 0o644)
            };
            note().map_err(|e| fatal("Cannot note in the cache that a kernel has booted", &e))?;
        }
        Ok(failure)
    }

    fn boot(&self, image: &Path, dir: &Path, cancel: &AtomicBool) -> Result<Option<(Failure, String)>, HostError> {
        let files = Files::in_dir(dir);
        let clock = if self.accelerator == Accelerator::Tcg { Clock::None } else { Clock::Wall };
        let agent = agent::executable().map_err(|e| HostError::Fatal(format!("The agent cannot be read: {e}")))?;
        let archive = Archive::with_agent(&agent);
        let full = |e: std::io::Error| HostError::Fatal(format!("A VM cannot be started in {}: {e}", dir.display()));
        files.write_initramfs(&archive.finish(), &GuestJob::new(clock, 0)).map_err(full)?;
        let config = Config {
            clock,
            accelerator: self.accelerator,
            cpus: 1,
            memory_bytes: MEMORY,
            nodes: 1,
            threads: 1,
            seed: 1,
            kernel: image,
            initramfs: &files.initramfs,
            cmdline: &[],
            console: &files.console,
            events: &files.events,
            acks: None,
            disks: &[],
            pmems: &[],
            plugin: None,
            counts: None,
        };
        let mut process = Process::start(&self.qemu, &config, None, &files.errors).map_err(full)?;
        let mut watch = Watch::new(&files.events, &files.console, HANG_CPU_S);
        let mut received = ReceivedEvents::default();
        let ended = see_to_its_end(cancel, &mut process, &mut watch, &files, &mut received, &|_| {}, &mut |_, _| {})?;
        let console = fs::read(&files.console).unwrap_or_default();
        outcome::verdict(&ended, &received, &String::from_utf8_lossy(&console), &process.errors())
    }
}
