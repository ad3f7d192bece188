//! Does a guest really run under KVM here? `/dev/kvm` may exist and not work (nested, incomplete, forbidden): so one is booted.
//!
//! Invariant: KVM counts as usable only after this kernel-and-QEMU pair of the host has run the agent to its orderly end.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::initramfs::Archive;
use super::qemu::{Accelerator, Config, Process, Qemu};
use super::watch::Watch;
use crate::clock::Clock;
use crate::guest::protocol::{self, Event, Job, PROTOCOL};
use crate::lever::apply::Placement;
use crate::lever::vm::Shape;

/// A guest under KVM is up in 2 s; one that takes longer than this is of no use for measuring.
const LIMIT: Duration = Duration::from_secs(30);

/// What is known of KVM here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kvm {
    pub usable: bool,
    /// Why not, or what was seen to work.
    pub reason: String,
    /// What the answer holds for: host kernel, QEMU.
    host: String,
}

/// Whether guests run under KVM, by booting `kernel` once; remembered in `cache` until the host's kernel or QEMU changes.
///
/// # Errors
/// The probe itself cannot be made (disk full, this executable unreadable): says nothing about KVM.
pub fn kvm(cache: &Path, qemu: &Qemu, kernel: &Path) -> anyhow::Result<Kvm> {
    if let Some(known) = without_boot(cache, qemu) {
        return Ok(known);
    }
    let host = host(qemu);
    let no = |reason: String| Kvm { usable: false, reason, host: host.clone() };
    let kvm = match boot(qemu, kernel)? {
        Ok(took) => {
            Kvm { usable: true, reason: format!("a guest booted under it in {:.1} s", took.as_secs_f64()), host }
        }
        Err(why) => no(format!("/dev/kvm is there, but a guest does not boot under it: {why}")),
    };
    std::fs::create_dir_all(cache)?;
    std::fs::write(cache.join("kvm.toml"), toml::to_string(&kvm)?).context("Cannot remember what KVM can do")?;
    Ok(kvm)
}

/// What is known of KVM without booting anything: that it cannot work, or what an earlier probe found.
pub fn without_boot(cache: &Path, qemu: &Qemu) -> Option<Kvm> {
    let host = host(qemu);
    let no = |reason: String| Some(Kvm { usable: false, reason, host: host.clone() });
    if !Path::new("/dev/kvm").exists() {
        return no("there is no /dev/kvm".to_owned());
    }
    if let Err(e) = OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        return no(format!("/dev/kvm cannot be opened ({e})"));
    }
    remembered(cache, &host)
}

/// What an earlier probe on this host found, if it still holds.
fn remembered(cache: &Path, host: &str) -> Option<Kvm> {
    let known: Kvm = toml::from_str(&std::fs::read_to_string(cache.join("kvm.toml")).ok()?).ok()?;
    (known.host == host).then_some(known)
}

/// What an answer holds for.
fn host(qemu: &Qemu) -> String {
    let uname = rustix::system::uname();
    format!("{} {}, QEMU {}", uname.release().to_string_lossy(), uname.version().to_string_lossy(), qemu.version)
}

fn boot(qemu: &Qemu, kernel: &Path) -> anyhow::Result<Result<Duration, String>> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str| dir.path().join(name);
    let job = Job {
        protocol: PROTOCOL,
        clock: Clock::Wall,
        settle_seconds: 0,
        jitter: 0,
        seed: 0,
        modules: Vec::new(),
        cmdline: Vec::new(),
        fault: None,
        crash: None,
        levers: Vec::new(),
        lever_modules: Vec::new(),
        mount: String::new(),
        placement: Placement::default(),
        shape: Shape::default(),
        raw_disks: None,
        features: false,
        looked_into: crate::guest::protocol::NOT_LOOKED_INTO,
        sampled: false,
        shared: false,
        locks: false,
        samples: false,
        workloads: Vec::new(),
    };
    let mut archive = Archive::new();
    archive
        .directory("/dev", 0o755)
        .character_device("/dev/console", 0o600, 5, 1)
        .file("/init", 0o755, &std::fs::read("/proc/self/exe").context("Cannot read this executable")?)
        .file(protocol::JOB_PATH, 0o644, &serde_json::to_vec(&job)?);
    std::fs::write(file("initramfs"), archive.finish())?;
    let config = Config {
        clock: Clock::Wall,
        accelerator: Accelerator::Kvm,
        cpus: 1,
        memory_bytes: 512 << 20,
        nodes: 1,
        threads: 1,
        seed: 1,
        kernel,
        initramfs: &file("initramfs"),
        cmdline: &[],
        console: &file("console"),
        events: &file("events"),
        acks: None,
        disks: &[],
        pmems: &[],
        profile: None,
    };
    let begun = Instant::now();
    let mut process = Process::start(qemu, &config, None, &file("errors"))?;
    let mut watch = Watch::new(&file("events"), &file("console"), u32::MAX / 100);
    let mut done = false;
    loop {
        let ended = process.ended()?;
        done |= watch.read().is_ok_and(|events| events.contains(&Event::Done));
        if ended.is_some_and(|s| done && s.code() == Some(protocol::EXIT_DONE_STATUS)) {
            return Ok(Ok(begun.elapsed()));
        }
        let errors = process.errors();
        let first = errors.lines().find(|l| !l.trim().is_empty()).unwrap_or("QEMU said nothing").to_owned();
        if ended.is_some() || errors.contains("KVM internal error") {
            return Ok(Err(first));
        }
        if begun.elapsed() > LIMIT {
            return Ok(Err(format!("no sign of life within {} s ({first})", LIMIT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
