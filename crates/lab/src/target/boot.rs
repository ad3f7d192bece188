//! Boots a kernel once.
//!
//! Invariant: the boot loader's default entry is never changed, and before a boot is asked for, the disk says which and from where.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bigiron_model::plan::{Arm, RUNNING};
use bigiron_sys::this_machine;
use serde::{Deserialize, Serialize};

use super::folder::{self, TargetFolder};
use super::messages::{BootMethod, BootRequest, BootState, TrialKey};
use super::{grub, kernels, restore, systemd_boot, watchdog};
use crate::lever;
use crate::lever::boot::BootedCommandLine;

/// Words of every test boot: a kernel that dies reboots by itself, to the default entry.
pub const WORDS: &str = "panic=30 oops=panic softlockup_panic=1";

/// The parameter that proves a boot.
pub const NONCE: &str = "bigiron.id";

const BOOT: &str = "boot.json";

/// How long a machine that was told to reboot may still be up: services have 90 s to end.
const SHUTDOWN: Duration = Duration::from_secs(120);

/// A boot that was asked for.
#[derive(Debug, Serialize, Deserialize)]
struct BootNote {
    nonce: String,
    /// The boot id of the kernel that was running then.
    from: String,
}

/// Whether this machine can boot a kernel by `method`.
///
/// # Errors
/// Why not.
pub(super) fn possible(method: BootMethod) -> Result<(), String> {
    match method {
        BootMethod::Kexec => kexec_possible(),
        BootMethod::Bootctl => systemd_boot::possible(),
        BootMethod::Grub => grub::possible(),
    }
}

fn kexec_possible() -> Result<(), String> {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    if program("kexec").is_none() {
        return Err("kexec is not installed; in Debian it is in the package kexec-tools".to_owned());
    }
    if program("systemctl").is_none() {
        return Err("there is no systemd to shut down the system before kexec starts the kernel".to_owned());
    }
    match read("/proc/sys/kernel/kexec_load_disabled") {
        Ok(text) if text == "0" => {}
        Ok(_) => return Err("kernel.kexec_load_disabled is 1".to_owned()),
        Err(_) => return Err("the running kernel does not support kexec".to_owned()),
    }
    match read("/sys/kernel/security/lockdown") {
        Ok(text) if !text.contains("[none]") => Err(format!("the kernel is locked down ({text})")),
        _ => Ok(()),
    }
}

/// A program of the system's folders.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Runs a program of the system; an error has the end of what it wrote.
pub(super) fn run(name: &str, args: &[&str]) -> anyhow::Result<String> {
    let path = program(name).with_context(|| format!("{name} is not installed"))?;
    let ran = Command::new(path).args(args).stdin(Stdio::null()).env("PATH", SYSTEM_PATH).output()?;
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    if !ran.status.success() {
        let wrote = format!("{out}{}", String::from_utf8_lossy(&ran.stderr));
        let last: Vec<&str> = wrote.trim().lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        bail!("`{name} {}` failed: {}", args.join(" "), last.join("; "));
    }
    Ok(out)
}

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The image and the initramfs of an installed kernel, where Debian keeps them.
pub(super) fn installed_files(release: &str) -> Option<(PathBuf, PathBuf)> {
    let files =
        (PathBuf::from(format!("/boot/vmlinuz-{release}")), PathBuf::from(format!("/boot/initrd.img-{release}")));
    (files.0.is_file() && files.1.is_file()).then_some(files)
}

/// The command line of a test boot.
pub fn command_line(original: &str, words: &str, nonce: &str) -> String {
    // What the boot loader added names its own files.
    let added = |word: &&str| !word.starts_with("BOOT_IMAGE=") && !word.starts_with("initrd=");
    let mut all: Vec<&str> = original.split_whitespace().filter(added).collect();
    all.extend(words.split_whitespace());
    all.extend(WORDS.split_whitespace());
    format!("{} {NONCE}={nonce}", all.join(" "))
}

/// Asks for a boot; the machine goes down some moments after this has returned.
pub(super) fn boot(folder: &TargetFolder, request: &BootRequest) -> anyhow::Result<()> {
    possible(request.method).map_err(anyhow::Error::msg)?;
    let origin =
        restore::origin(folder)?.context("The state of the machine was not recorded, so no kernel is booted")?;
    let (image, initrd) = if request.kernel.spec == RUNNING {
        let files = installed_files(&origin.release);
        files.with_context(|| format!("/boot has no image and initramfs of {}", origin.release))?
    } else {
        kernels::files(folder, &request.kernel)?
    };
    if let Some(watchdog) = watchdog::stop_left_over(folder)? {
        folder.audit(&request.key.study, &format!("stopped the watchdog {watchdog}"))?;
    }
    let line = command_line(&origin.cmdline, &request.words, &request.nonce);
    let dir = folder.trial(&request.key)?;
    folder::make_durable(&dir)?;
    let note = BootNote { nonce: request.nonce.clone(), from: this_machine::boot_id() };
    folder::write(&dir, BOOT, &note)?;
    let release = &request.kernel.release;
    folder.audit(
        &request.key.study,
        &format!("{} {release} by {} for trial {}: {line}", folder::BOOT, request.method.name(), request.key.name()),
    )?;
    let (armed, command) = match request.method {
        BootMethod::Kexec => (load(&image, &initrd, &line), "systemctl kexec"),
        BootMethod::Bootctl => (systemd_boot::arm(&image, &initrd, &line), "systemctl reboot"),
        BootMethod::Grub => (grub::arm(&image, &initrd, &line), "systemctl reboot"),
    };
    if let Err(e) = armed {
        // Nothing was asked for, so nobody waits for it.
        fs::remove_file(dir.join(BOOT))?;
        return Err(e);
    }
    // The file systems are whole even if the shutdown hangs and somebody cuts the power.
    rustix::fs::sync();
    later(command)
}

/// Notes that a dry boot by `method` has shown that its entry is booted once and not for ever.
pub(super) fn prove(folder: &TargetFolder, method: BootMethod) -> anyhow::Result<()> {
    match method {
        // The loaded kernel is gone with the memory that it was in.
        BootMethod::Kexec => Ok(()),
        BootMethod::Bootctl => systemd_boot::prove(folder),
        BootMethod::Grub => grub::prove(folder),
    }
}

/// The methods that need no dry boot, or no further one.
pub(super) fn proved(folder: Option<&TargetFolder>) -> Vec<BootMethod> {
    let is_proved = |method: &BootMethod| match method {
        BootMethod::Kexec => true,
        BootMethod::Bootctl => possible(*method).is_ok() && folder.is_some_and(systemd_boot::is_proved),
        BootMethod::Grub => folder.is_some_and(grub::is_proved),
    };
    BootMethod::ALL.into_iter().filter(is_proved).collect()
}

/// Checks after a boot that its boot loader has forgotten the entry.
pub(super) fn check_cleared() -> anyhow::Result<()> {
    if possible(BootMethod::Bootctl).is_ok() {
        systemd_boot::check_cleared()?;
    }
    if possible(BootMethod::Grub).is_ok() {
        grub::check_cleared()?;
    }
    Ok(())
}

/// Loads a kernel for kexec.
fn load(image: &Path, initrd: &Path, line: &str) -> anyhow::Result<()> {
    let initrd = format!("--initrd={}", initrd.display());
    run("kexec", &["-l", &image.display().to_string(), &initrd, &format!("--command-line={line}")])?;
    let loaded = fs::read_to_string("/sys/kernel/kexec_loaded").unwrap_or_default();
    ensure!(loaded.trim() == "1", "kexec did not load the kernel");
    Ok(())
}

/// Runs a command after this process, and so its answer, has ended.
pub(super) fn later(command: &str) -> anyhow::Result<()> {
    let script = format!("sleep 1; exec {command}");
    let mut child = Command::new("setsid");
    child.args(["--fork", "/bin/sh", "-c", &script]).env("PATH", SYSTEM_PATH);
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = child.status().context("Cannot start setsid")?;
    ensure!(status.success(), "`{command}` was not started");
    Ok(())
}

/// Checks that this is the boot `nonce`, and that the arm's words took effect.
pub(super) fn verify(arm: &Arm, nonce: &str) -> Result<(), String> {
    let cmdline = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if judge(nonce, "", &this_machine::boot_id(), &cmdline) != BootState::Up {
        return Err(format!(
            "The kernel of this trial is not running; the running kernel's command line is `{}`",
            cmdline.trim()
        ));
    }
    let of_init = |file: &str| -> Vec<String> {
        let bytes = fs::read(Path::new("/proc/1").join(file)).unwrap_or_default();
        let parts = bytes.split(|b| *b == 0).filter(|part| !part.is_empty());
        parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
    };
    let init_args: Vec<String> = of_init("cmdline").into_iter().skip(1).collect();
    let seen = BootedCommandLine {
        cmdline: &cmdline,
        log: &run("dmesg", &[]).map_err(|e| format!("{e:#}"))?,
        init_args: &init_args,
        init_environment: &of_init("environ"),
        read: &|path| fs::read_to_string(path).ok(),
    };
    lever::boot::verify(&lever::cmdline(&arm.settings), &seen).map_err(|why| format!("Lever {why}"))
}

/// How far the boot of a trial is.
pub(super) fn state(folder: &TargetFolder, key: &TrialKey) -> anyhow::Result<BootState> {
    let dir = folder.trial(key)?;
    let Some(note) = folder::read::<BootNote>(&dir, BOOT)? else { return Ok(BootState::Unknown) };
    Ok(match judge(&note.nonce, &note.from, &this_machine::boot_id(), &fs::read_to_string("/proc/cmdline")?) {
        BootState::Pending if is_recent(&dir) => BootState::GoingDown,
        state => state,
    })
}

/// Whether the boot of a trial was asked for moments ago.
fn is_recent(dir: &Path) -> bool {
    let asked = fs::metadata(dir.join(BOOT)).and_then(|meta| meta.modified()).ok();
    asked.and_then(|at| at.elapsed().ok()).is_some_and(|ago| ago < SHUTDOWN)
}

/// The boots that were asked for, with the folders of their trials.
fn notes(folder: &TargetFolder) -> impl Iterator<Item = (PathBuf, BootNote)> {
    let studies = fs::read_dir(folder.path().join("trials")).into_iter().flatten().flatten();
    let trials = studies.flat_map(|study| fs::read_dir(study.path()).into_iter().flatten().flatten());
    trials.filter_map(|trial| Some((trial.path(), folder::read::<BootNote>(&trial.path(), BOOT).ok()??)))
}

/// Whether the machine may be about to go down for a boot that was asked for.
pub(super) fn is_going_down(folder: &TargetFolder) -> bool {
    notes(folder).any(|(dir, note)| is_recent(&dir) && note.from == this_machine::boot_id())
}

/// The folders of the trials whose kernel is running, or may be about to be booted.
pub(super) fn under_way(folder: &TargetFolder) -> Vec<PathBuf> {
    let cmdline = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let is = |dir: &Path, note: &BootNote| match judge(&note.nonce, &note.from, &this_machine::boot_id(), &cmdline) {
        BootState::Up => true,
        BootState::Pending => is_recent(dir),
        BootState::Unknown | BootState::GoingDown | BootState::Other => false,
    };
    notes(folder).filter(|(dir, note)| is(dir, note)).map(|(dir, _)| dir).collect()
}

/// Forgets the boot that is running, before the machine is rebooted: its kernel has not failed, and its trial boots again.
pub(super) fn forget_running(folder: &TargetFolder) -> anyhow::Result<()> {
    let cmdline = fs::read_to_string("/proc/cmdline")?;
    for (dir, note) in notes(folder) {
        if judge(&note.nonce, &note.from, &this_machine::boot_id(), &cmdline) == BootState::Up {
            fs::remove_file(dir.join(BOOT)).with_context(|| format!("Cannot forget the boot of {}", dir.display()))?;
        }
    }
    Ok(())
}

fn judge(nonce: &str, from: &str, boot_id: &str, cmdline: &str) -> BootState {
    if from == boot_id {
        return BootState::Pending;
    }
    let word = format!("{NONCE}={nonce}");
    if cmdline.split_whitespace().any(|w| w == word) { BootState::Up } else { BootState::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_the_defaults_and_the_arms() {
        let line = command_line("BOOT_IMAGE=/boot/vmlinuz-6.1 root=UUID=1 ro quiet", "mitigations=off", "ab12");
        assert_eq!(line, "root=UUID=1 ro quiet mitigations=off panic=30 oops=panic softlockup_panic=1 bigiron.id=ab12");
    }

    #[test]
    fn a_boot_is_proved_by_its_nonce_and_another_boot_id() {
        assert_eq!(judge("ab", "1", "1", "ro bigiron.id=ab"), BootState::Pending);
        assert_eq!(judge("ab", "1", "2", "ro bigiron.id=ab\n"), BootState::Up);
        assert_eq!(judge("ab", "1", "2", "ro bigiron.id=abc"), BootState::Other);
        assert_eq!(judge("ab", "1", "2", "ro"), BootState::Other);
    }
}
