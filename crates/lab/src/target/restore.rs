//! The way back: the original kernel, no kernels of bigiron's, and the proof that the machine is as before.
//!
//! Invariant: the machine's state is noted before the first kernel is brought, and only removed when it has been compared.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use bigiron_model::identity::Identity;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::boot::{self, NONCE};
use super::folder::{self, TargetFolder};
use super::grub;
use super::kernels;
use super::look::{self, hex};
use super::messages::{CleanedUp, Snapshot, WayBack};
use super::systemd_boot;
use super::trial;

pub(super) const ORIGIN: &str = "origin.json";
const SETTINGS: &str = "/proc/sys/";

/// Files below /etc and /boot that the running system itself rewrites.
const VOLATILE_FILES: [&str; 5] =
    ["/etc/resolv.conf", "/etc/adjtime", "/etc/mtab", "/etc/ld.so.cache", "/etc/.updated"];

/// A file on the boot partition that systemd-boot writes at each boot.
const SEED: &str = "/loader/random-seed";

/// Variables of UEFI that decide what is booted. The others tell how the last boot went.
const VARIABLES: [&str; 4] = ["Boot", "LoaderEntryDefault-", "LoaderEntryLastBooted-", "LoaderEntryOneShot-"];

/// Settings that the kernel itself changes, or draws or computes at boot.
const COMPUTED_SETTINGS: [&str; 24] = [
    "dev/cdrom/",
    "fs/aio-nr",
    "fs/binfmt_misc/",
    "fs/dentry-state",
    "fs/epoll/max_user_watches",
    "fs/file-max",
    "fs/file-nr",
    "fs/inode-",
    "fs/inotify/",
    "fs/nr_open",
    "fs/fanotify/",
    "fs/quota/",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    "kernel/random/",
    "kernel/sched_domain/",
    "kernel/threads-max",
    "kernel/tainted",
    "net/ipv4/conf/",
    "net/ipv4/neigh/",
    "net/ipv6/conf/",
    "net/ipv6/neigh/",
    "user/max_",
    "vm/",
];

/// Settings of `vm/` that only users change; the others depend on the memory that the firmware leaves.
const STABLE_VM_SETTINGS: [&str; 8] = [
    "vm/dirty_background_ratio",
    "vm/dirty_expire_centisecs",
    "vm/dirty_ratio",
    "vm/dirty_writeback_centisecs",
    "vm/overcommit_memory",
    "vm/swappiness",
    "vm/vfs_cache_pressure",
    "vm/zone_reclaim_mode",
];

/// What to return to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) release: String,
    pub(super) cmdline: String,
    /// As the original kernel shows them: the question depends on them, and another kernel may show others.
    pub(super) cpus: u32,
    pub(super) memory_bytes: u64,
    pub(super) running: Identity,
    pub(super) image: Option<Identity>,
    pub(super) grub_environment: Option<Vec<u8>>,
    pub(super) snapshot: Snapshot,
}

pub(super) fn origin(folder: &TargetFolder) -> anyhow::Result<Option<Origin>> {
    folder::read(folder.path(), ORIGIN)
}

/// Notes the machine's state, unless it is noted.
pub(super) fn note(folder: &TargetFolder) -> anyhow::Result<()> {
    if origin(folder)?.is_some() {
        return Ok(());
    }
    let cmdline = fs::read_to_string("/proc/cmdline")?.trim().to_owned();
    anyhow::ensure!(
        !is_test_boot(&cmdline),
        "The target runs a test kernel of bigiron, and its original kernel is not known; reboot it"
    );
    let look = look::look()?;
    // It would be noted, and so restored, as the machine's own.
    look::check_restored(&look)?;
    let origin = Origin {
        release: look.release,
        cmdline,
        cpus: look.cpus,
        memory_bytes: look.memory_bytes,
        running: look.running,
        image: look.image,
        grub_environment: grub::environment(),
        snapshot: snapshot(Path::new("/"))?,
    };
    folder::write(folder.path(), ORIGIN, &origin)
}

fn is_test_boot(cmdline: &str) -> bool {
    cmdline.split_whitespace().any(|word| word.starts_with(&format!("{NONCE}=")))
}

/// Whether a kernel of a test boot is running.
pub(super) fn runs_test_kernel() -> bool {
    fs::read_to_string("/proc/cmdline").is_ok_and(|cmdline| is_test_boot(&cmdline))
}

/// The original kernel's release, if another one is running.
pub(super) fn pending(folder: &TargetFolder) -> Option<String> {
    let origin = origin(folder).ok()??;
    runs_test_kernel().then_some(origin.release)
}

/// Reboots into the default entry if a kernel of a test boot is running.
pub(super) fn reboot(folder: &TargetFolder, study: &str) -> anyhow::Result<WayBack> {
    if boot::is_going_down(folder) {
        return Ok(WayBack::GoingDown);
    }
    let Some(release) = pending(folder) else { return Ok(WayBack::There) };
    // A trial that the reboot kills would be found as one whose kernel panicked.
    trial::stop_all(folder).context("The machine is not rebooted while a trial runs")?;
    folder.audit(study, &format!("{} to {release}, the boot loader's default", folder::REBOOT))?;
    boot::forget_running(folder)?;
    rustix::fs::sync();
    boot::later("systemctl reboot")?;
    Ok(WayBack::Rebooting(release))
}

/// Removes what bigiron brought, and compares the machine with its noted state.
pub(super) fn clean(folder: &TargetFolder, study: &str) -> anyhow::Result<CleanedUp> {
    // A kernel that was loaded and never started.
    if fs::read_to_string("/sys/kernel/kexec_loaded").is_ok_and(|text| text.trim() == "1") {
        boot::run("kexec", &["-u"])?;
    }
    let removed = kernels::remove_all(folder, study)?;
    let mut cleaned = CleanedUp { removed, ..CleanedUp::default() };
    let Some(origin) = origin(folder)? else { return Ok(cleaned) };
    grub::restore(origin.grub_environment.as_ref())?;
    systemd_boot::restore()?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if release == origin.release {
        reapply_settings(folder, study, &origin.snapshot)?;
    }
    let now = snapshot(Path::new("/"))?;
    cleaned.compared = origin.snapshot.len();
    let mut differences = differences(&origin.snapshot, &now);
    if release != origin.release {
        differences.insert(0, format!("the kernel is {release}, not {}", origin.release));
    }
    if differences.is_empty() {
        fs::remove_file(folder.path().join(ORIGIN)).context("Cannot remove the recorded state")?;
    } else {
        folder.audit(study, &format!("not as before: {}", differences.join("; ")))?;
        fs::rename(folder.path().join(ORIGIN), folder.path().join("origin.differed.json"))?;
    }
    cleaned.differences = Some(differences);
    Ok(cleaned)
}

/// Reapplies settings that had been changed since the machine's own boot and that a reboot lost.
fn reapply_settings(folder: &TargetFolder, study: &str, then: &Snapshot) -> anyhow::Result<()> {
    for (name, value) in then.iter().filter(|(name, _)| name.starts_with(SETTINGS)) {
        let now = fs::read_to_string(name).ok();
        if now.is_some_and(|now| now.trim() != value) {
            folder.audit(study, &format!("{name} = {value}"))?;
            // The comparison tells whether it worked.
            let _ = fs::write(name, value);
        }
    }
    Ok(())
}

/// Names with what is different.
fn differences(then: &Snapshot, now: &Snapshot) -> Vec<String> {
    let names = then.keys().chain(now.keys().filter(|name| !then.contains_key(*name)));
    let of = |name: &String| match (then.get(name), now.get(name)) {
        (Some(then), Some(now)) if then == now => None,
        (Some(then), Some(now)) => Some(format!("{name}: {then} → {now}")),
        (Some(_), None) => Some(format!("{name} is gone")),
        (None, _) => Some(format!("{name} is new")),
    };
    names.filter_map(of).collect()
}

/// The state of the machine below `root`.
pub(super) fn snapshot(root: &Path) -> anyhow::Result<Snapshot> {
    let mut found = Snapshot::new();
    for tree in ["etc", "boot", "efi"] {
        files(root, &root.join(tree), &mut found);
    }
    for one in ["var/lib/dpkg/status", "var/lib/dpkg/diversions", "proc/swaps"] {
        file(root, &root.join(one), &mut found);
    }
    for folder in ["lib/modules", "sys/firmware/efi/efivars"] {
        let boot_entries = folder.ends_with("efivars");
        for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !boot_entries || VARIABLES.iter().any(|prefix| name.starts_with(prefix)) {
                let hash = if boot_entries { hash(&entry.path()) } else { "folder".to_owned() };
                found.insert(format!("/{folder}/{name}"), hash);
            }
        }
    }
    settings(&root.join("proc/sys"), &root.join("proc/sys"), &mut found);
    Ok(found)
}

fn shown(root: &Path, path: &Path) -> String {
    format!("/{}", path.strip_prefix(root).unwrap_or(path).display())
}

fn hash(path: &Path) -> String {
    fs::read(path).map_or_else(|e| e.kind().to_string(), |bytes| hex(&Sha256::digest(bytes)[..8]))
}

fn file(root: &Path, path: &Path, found: &mut Snapshot) {
    let name = shown(root, path);
    if VOLATILE_FILES.contains(&name.as_str()) || name.ends_with(SEED) {
        return;
    }
    if let Ok(link) = fs::read_link(path) {
        found.insert(name, format!("→ {}", link.display()));
    } else if path.is_file() {
        found.insert(name, hash(path));
    }
}

fn files(root: &Path, dir: &Path, found: &mut Snapshot) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            files(root, &entry.path(), found);
        } else {
            file(root, &entry.path(), found);
        }
    }
}

/// Settings that may be written.
fn settings(root: &Path, dir: &Path, found: &mut Snapshot) {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            settings(root, &path, found);
            continue;
        }
        let computed = COMPUTED_SETTINGS.iter().any(|prefix| name.starts_with(prefix))
            && !STABLE_VM_SETTINGS.contains(&name.as_str());
        let readable = fs::metadata(&path).is_ok_and(|m| m.permissions().mode() & 0o600 == 0o600);
        if computed || !readable {
            continue;
        }
        if let Ok(text) = fs::read_to_string(&path) {
            found.insert(format!("{SETTINGS}{name}"), text.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_added_or_removed_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for folder in ["etc/default", "boot/grub", "proc/sys/vm", "lib/modules/6.1", "var/lib/dpkg"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("etc/default/grub"), "GRUB_DEFAULT=0\n").unwrap();
        fs::write(root.join("etc/adjtime"), "1\n").unwrap();
        fs::write(root.join("boot/grub/grubenv"), "#\n").unwrap();
        fs::write(root.join("proc/sys/vm/swappiness"), "60\n").unwrap();
        fs::write(root.join("proc/sys/vm/min_free_kbytes"), "1\n").unwrap();
        let then = snapshot(root).unwrap();
        assert_eq!(then.get("/proc/sys/vm/swappiness").map(String::as_str), Some("60"));
        assert_eq!(differences(&then, &snapshot(root).unwrap()), Vec::<String>::new());
        // These two change by themselves.
        fs::write(root.join("etc/adjtime"), "2\n").unwrap();
        fs::write(root.join("proc/sys/vm/min_free_kbytes"), "2\n").unwrap();
        assert_eq!(differences(&then, &snapshot(root).unwrap()), Vec::<String>::new());
        fs::write(root.join("proc/sys/vm/swappiness"), "10\n").unwrap();
        fs::remove_file(root.join("boot/grub/grubenv")).unwrap();
        fs::create_dir(root.join("lib/modules/6.12")).unwrap();
        assert_eq!(
            differences(&then, &snapshot(root).unwrap()),
            ["/boot/grub/grubenv is gone", "/proc/sys/vm/swappiness: 60 → 10", "/lib/modules/6.12 is new"]
        );
    }

    #[test]
    fn a_test_boot_is_known_by_its_word() {
        assert!(is_test_boot("ro bigiron.id=ab"));
        assert!(!is_test_boot("ro bigiron.identity=ab"));
    }
}
