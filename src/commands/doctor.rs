//! `bigiron doctor`.

use std::fmt::Write as _;
use std::path::Path;

use super::{noise, output};
use crate::cli::Doctor;
use crate::commands::output::Terminal;
use crate::conduct::environment::Environment;
use crate::study::resolved::NO_CHOICE;
use bigiron_image as image;
use bigiron_lab::vm::{lockstep, moves};
use bigiron_model::host::HostKind;
use bigiron_model::qemu::QemuSource;
use bigiron_model::refusal::Refusal;
use bigiron_model::size;

/// Memory of the default comparison's guest, plus QEMU's own.
const MEMORY: u64 = (1 << 30) + (256 << 20);

/// Room for two kernels, their packages and apt's lists.
const CACHE_ROOM: u64 = 1 << 30;

/// Room for a study.
const STUDY_ROOM: u64 = 64 << 20;

/// The result of a check.
enum CheckResult {
    Ok(String),
    /// Absent or not working, with the remedy; `true` if the default comparison needs it.
    Missing(String, bool),
    Broken(String, bool),
    /// Cannot be checked yet.
    Unknown(String),
}

pub(super) fn run(args: &Doctor) -> anyhow::Result<u8> {
    match (args.on, args.qemu) {
        (HostKind::Local, Some(_)) => Err(Refusal::new(NO_CHOICE).into()),
        (HostKind::Local, None) => noise::run(),
        (_, source) => vm(source.unwrap_or_default()),
    }
}

fn vm(source: QemuSource) -> anyhow::Result<u8> {
    let environment = Environment::new(Vec::new(), &Terminal)?.at(None, Some(source));
    let checks = [
        ("QEMU", qemu(&environment, source)),
        ("lockstep", lockstep(&environment)),
        ("moves", moves(&environment)),
        ("KVM", kvm(&environment)),
        ("apt", tool("apt-get", "kernels from packages (`debian:…`); other kernels do not need it", true)),
        ("mke2fs", tool("mke2fs", "ext4 file systems; `apt-get install e2fsprogs` installs it", true)),
        ("mkfs.xfs", tool("mkfs.xfs", "`--filesystem xfs`; `apt-get install xfsprogs` installs it", false)),
        ("memory", memory()),
        (
            "cache",
            room(environment.cache(), CACHE_ROOM, "set BIGIRON_CACHE to a folder with room that you may write to"),
        ),
        ("results", room(Path::new("."), STUDY_ROOM, "work in another folder, or give `--out DIR`")),
    ];
    let mut text = String::new();
    let mut fit = true;
    for (what, found) in &checks {
        let (state, says) = match found {
            CheckResult::Ok(says) => ("ok", says),
            CheckResult::Missing(says, needed) => {
                fit &= !needed;
                ("missing", says)
            }
            CheckResult::Broken(says, needed) => {
                fit &= !needed;
                ("broken", says)
            }
            CheckResult::Unknown(says) => ("unknown", says),
        };
        let _ = writeln!(text, "{state:<8} {what:<9} {says}");
    }
    output::data(&text)?;
    let says = if fit { "The default comparison can run" } else { "The default comparison cannot run" };
    output::note(says);
    Ok(if fit { 0 } else { super::FAILED })
}

fn qemu(environment: &Environment<'_>, source: QemuSource) -> CheckResult {
    match environment.qemu() {
        Ok(qemu) => {
            let place = if qemu.is_installed() { "installed" } else { "bigiron's cache" };
            let build = qemu.build.as_ref().map_or_else(String::new, |build| format!(" ({build})"));
            let program = qemu.program.display();
            CheckResult::Ok(format!("{source}: {}{build}, {place}: {program}", qemu.version))
        }
        Err(refusal) if source.is_pinned() => CheckResult::Missing(refusal.message, true),
        Err(refusal) if image::find_tool(bigiron_lab::vm::qemu::PROGRAM).is_some() => {
            CheckResult::Broken(refusal.message, true)
        }
        Err(refusal) => CheckResult::Missing(refusal.message, true),
    }
}

/// Lockstep is not needed to compare, only for results that repeat to the last digit.
fn lockstep(environment: &Environment<'_>) -> CheckResult {
    let Ok(qemu) = environment.qemu() else {
        return CheckResult::Unknown("there is no QEMU to test".to_owned());
    };
    match lockstep::try_out(qemu) {
        Ok(()) => CheckResult::Ok("QEMU's threads take turns: the exact clock repeats to the last digit".to_owned()),
        Err(why) => CheckResult::Missing(
            format!("{why}; in rare cases the exact clock differs by a few nanoseconds between runs"),
            false,
        ),
    }
}

/// Without the charge for moves there is no exact clock, which the default comparison uses where KVM does not work.
fn moves(environment: &Environment<'_>) -> CheckResult {
    let Ok(qemu) = environment.qemu() else {
        return CheckResult::Unknown("there is no QEMU to test".to_owned());
    };
    match moves::try_out(qemu) {
        Ok(()) => CheckResult::Ok("the exact clock charges moves of memory by their bytes".to_owned()),
        Err(why) => CheckResult::Broken(moves::refusal(&why), environment.kvm_report().is_err()),
    }
}

/// KVM is never required: without it the default clock is `exact`.
fn kvm(environment: &Environment<'_>) -> CheckResult {
    if environment.kvm_needs_kernel() {
        return CheckResult::Unknown("/dev/kvm exists; the first comparison boots a guest to test it".to_owned());
    }
    match environment.kvm_report() {
        Ok(kvm) => CheckResult::Ok(format!("{}; the default clock is `wall`", kvm.reason)),
        Err(why) if Path::new("/dev/kvm").exists() => {
            CheckResult::Broken(format!("{why}; the default clock is `exact`"), false)
        }
        Err(why) => CheckResult::Missing(format!("{why}; the default clock is `exact`"), false),
    }
}

fn tool(name: &str, purpose: &str, needed: bool) -> CheckResult {
    match image::find_tool(name) {
        Some(path) => CheckResult::Ok(path.display().to_string()),
        None => CheckResult::Missing(format!("no `{name}` in PATH; needed for {purpose}"), needed),
    }
}

fn memory() -> CheckResult {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        info.lines().find_map(|l| l.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    match kib.map(|kib| kib << 10) {
        Some(bytes) if bytes < MEMORY => CheckResult::Missing(
            format!("{} MiB available; the default guest takes {}", bytes >> 20, size::print_bytes(MEMORY)),
            true,
        ),
        Some(bytes) => CheckResult::Ok(format!("{} MiB available", bytes >> 20)),
        None => CheckResult::Broken("/proc/meminfo has no MemAvailable".to_owned(), false),
    }
}

fn room(dir: &Path, least: u64, right: &str) -> CheckResult {
    let existing = dir.ancestors().find(|d| d.exists()).filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Err(e) = tempfile::tempfile_in(existing) {
        return CheckResult::Broken(format!("`{}` is not writable ({e}); {right}", existing.display()), true);
    }
    match rustix::fs::statvfs(existing) {
        Ok(fs) => {
            let free = fs.f_bavail.saturating_mul(fs.f_frsize);
            let says = format!("`{}`, {} MiB free", dir.display(), free >> 20);
            if free < least {
                CheckResult::Missing(format!("{says}, {} needed; {right}", size::print_bytes(least)), true)
            } else {
                CheckResult::Ok(says)
            }
        }
        Err(e) => CheckResult::Broken(format!("`{}`: {e}", dir.display()), true),
    }
}
