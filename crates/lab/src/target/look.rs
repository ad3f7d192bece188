//! A look at a target: what it is, who uses it, and how it could boot another kernel.
//!
//! Invariant: nothing is changed, and nothing but files below /proc, /sys, /boot and /etc is read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bigiron_model::identity::Identity;
use bigiron_model::plan::RUNNING;
use bigiron_model::refusal::Refusal;
use bigiron_sys::mount;
use bigiron_sys::this_machine;
use sha2::{Digest, Sha256};

use super::folder::TargetFolder;
use super::messages::{BootMethod, Listener, Look, MethodReport};
use super::{NAME, allow, boot, kernels, restore, trial, watchdog};
use crate::host::local;
use crate::undo::{self, UndoEntry};

/// Types of file systems whose storage is elsewhere.
const NETWORK: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "fuse.glusterfs", "9p"];

/// Looks at this machine.
pub fn look() -> anyhow::Result<Look> {
    let folder = undo::folder()?;
    let uname = rustix::system::uname();
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let at = existing(&folder);
    let root = rustix::process::geteuid().is_root();
    let release = uname.release().to_string_lossy().into_owned();
    let target = TargetFolder::open_existing();
    let mut look = Look {
        // Only its user knows what it is called.
        name: NAME.to_owned(),
        uid: rustix::process::geteuid().as_raw(),
        version: uname.version().to_string_lossy().into_owned(),
        cmdline: text("/proc/cmdline"),
        boot_id: this_machine::boot_id(),
        cpus: this_machine::cpus(),
        memory_bytes: this_machine::memory_bytes(),
        folder: folder.display().to_string(),
        filesystem: local::filesystem(&at),
        free_bytes: free(&at),
        root_filesystem: local::filesystem(Path::new("/")),
        boot_free_bytes: free(Path::new("/boot")),
        running: local::identity(),
        image: if root { image(&release) } else { None },
        methods: methods(root),
        allow: allow::read(Path::new(allow::PATH)),
        minute: (std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()) / 60
            % 1440) as u32,
        reboots_today: target.as_ref().map_or(0, TargetFolder::reboots_today),
        listening: listening(Path::new("/proc")),
        users: users(Path::new("/proc")),
        network_mounts: network_mounts(&text("/proc/self/mounts")),
        on_battery: on_battery(Path::new("/sys/class/power_supply")),
        watchdogs: watchdog::all(Path::new(watchdog::CLASS)).into_iter().map(|found| found.identity).collect(),
        left_over: undo::left_over().iter().map(change).collect(),
        trials: target.as_ref().map_or_else(Vec::new, |folder| {
            trial::running(folder).iter().map(|dir| dir.display().to_string()).collect()
        }),
        of_trials: undo::of_running().iter().map(change).collect(),
        brought: target.as_ref().map_or_else(Vec::new, kernels::brought),
        proved: if root { boot::proved(target.as_ref()) } else { Vec::new() },
        to_return: target.as_ref().and_then(restore::pending),
        release,
    };
    // What a study planned with does not depend on the kernel of one of its trials.
    if let Some(origin) = target.as_ref().and_then(|folder| restore::origin(folder).ok()?) {
        (look.cpus, look.memory_bytes) = (origin.cpus, origin.memory_bytes);
        (look.running, look.image) = (origin.running, origin.image);
    }
    Ok(look)
}

/// A change of a setting, with what takes it back.
fn change(entry: &UndoEntry) -> String {
    format!("{} ({})", entry.what, entry.undo)
}

/// Refuses a machine on which a setting of a killed bigiron is still changed: whatever is measured there would be measured with it.
pub fn check_restored(look: &Look) -> Result<(), Refusal> {
    let Some(change) = look.left_over.first() else { return Ok(()) };
    Err(Refusal::new(format!("An earlier bigiron was killed and left settings of `{}` changed: {change}", look.name))
        .hint(format!("`bigiron undo --on {NAME}` restores them")))
}

/// The nearest existing folder.
fn existing(folder: &Path) -> PathBuf {
    folder.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn free(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail * stat.f_frsize)
}

/// The running kernel with its image, if that is where Debian keeps it.
fn image(release: &str) -> Option<Identity> {
    let (image, _) = boot::installed_files(release)?;
    let bytes = fs::read(image).ok()?;
    Some(Identity {
        spec: RUNNING.to_owned(),
        release: release.to_owned(),
        package: None,
        image_sha256: hex(&Sha256::digest(bytes)),
        config_sha256: None,
    })
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Each boot method, in the order of preference.
fn methods(root: bool) -> Vec<MethodReport> {
    let report = |method: BootMethod| {
        let refused = if root {
            boot::possible(method).err()
        } else {
            Some("only root can boot another kernel; name the target as root@…".to_owned())
        };
        MethodReport { method, refused }
    };
    BootMethod::ALL.into_iter().map(report).collect()
}

/// The processes that listen on TCP ports.
fn listening(proc: &Path) -> Vec<Listener> {
    let mut ports: BTreeMap<String, u16> = BTreeMap::new();
    for table in ["net/tcp", "net/tcp6"] {
        let text = fs::read_to_string(proc.join(table)).unwrap_or_default();
        // `0: 0100007F:1538 00000000:0000 0A … inode`
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, "0A", ..] = words[..] else { continue };
            let port = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
            if let (Some(port), Some(inode)) = (port, words.get(9)) {
                ports.insert(format!("socket:[{inode}]"), port);
            }
        }
    }
    let mut found = Vec::new();
    for (pid, comm) in processes(proc) {
        let fds = fs::read_dir(proc.join(&pid).join("fd")).into_iter().flatten().flatten();
        for target in fds.filter_map(|fd| fs::read_link(fd.path()).ok()) {
            if let Some(port) = target.to_str().and_then(|target| ports.get(target)) {
                found.push(Listener { process: comm.clone(), port: *port });
            }
        }
    }
    // Of other users' processes an ordinary user sees no sockets.
    let seen: Vec<u16> = found.iter().map(|l| l.port).collect();
    for port in ports.into_values().filter(|port| !seen.contains(port)) {
        // The ssh connection comes through it.
        let process = if port == 22 { "sshd" } else { "unknown" };
        found.push(Listener { process: process.to_owned(), port });
    }
    found.sort();
    found.dedup();
    found
}

/// Process ids with the names of their programs.
fn processes(proc: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let pid = entry.file_name().into_string().ok().filter(|name| name.bytes().all(|b| b.is_ascii_digit()))?;
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some((pid, comm.trim().to_owned()))
    });
    named.collect()
}

/// The users with a process on a terminal, which is more than a login prompt.
fn users(proc: &Path) -> Vec<String> {
    let names = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = |uid: u32| {
        let of = |line: &&str| line.split(':').nth(2) == Some(uid.to_string().as_str());
        names.lines().find(of).and_then(|line| line.split(':').next()).map_or(uid.to_string(), str::to_owned)
    };
    let mut found: Vec<String> = processes(proc)
        .into_iter()
        .filter(|(_, comm)| !["agetty", "getty", "login"].contains(&comm.as_str()))
        .filter(|(pid, _)| {
            let stat = fs::read_to_string(proc.join(pid).join("stat")).unwrap_or_default();
            terminal(&stat).is_some_and(|tty| tty != 0)
        })
        .filter_map(|(pid, _)| Some(name(fs::metadata(proc.join(pid)).ok()?.uid())))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The number of the controlling terminal in /proc/PID/stat, the fifth field after the name; the name may contain anything.
fn terminal(stat: &str) -> Option<i64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(4)?.parse().ok()
}

fn network_mounts(mounts: &str) -> Vec<String> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.filter(|f| f.get(2).is_some_and(|kind| NETWORK.contains(kind))).map(|f| f[1].to_owned()).collect()
}

fn on_battery(supplies: &Path) -> bool {
    let entries = fs::read_dir(supplies).into_iter().flatten().flatten();
    entries.map(|e| e.path()).any(|dir| {
        let is = |file: &str, text: &str| fs::read_to_string(dir.join(file)).is_ok_and(|t| t.trim() == text);
        is("type", "Battery") && is("status", "Discharging")
    })
}

/// The device that holds `path`, if it is a plain partition with a file system that GRUB can write to.
pub(super) fn grub_can_write(path: &Path) -> Result<(), String> {
    let Some(mount) = mount::of(path) else {
        return Err(format!("the file system of {} is not known", path.display()));
    };
    if !["ext2", "ext3", "ext4", "xfs", "vfat"].contains(&mount.kind.as_str()) {
        return Err(format!(
            "GRUB cannot clear its `next_entry` on {}: every boot would start the same entry",
            mount.kind
        ));
    }
    let device = fs::canonicalize(&mount.source).unwrap_or_else(|_| PathBuf::from(&mount.source));
    let name = device.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.starts_with("dm-") || name.starts_with("md") || name.starts_with("bcache") {
        return Err(format!(
            "GRUB cannot clear its `next_entry` on {name} (LVM or RAID): every boot would start the same entry"
        ));
    }
    Ok(())
}

#[cfg(test)]
pub mod testing {
    use super::*;
    use crate::target::messages::AllowFile;

    /// A quiet machine that allows nothing.
    pub fn look() -> Look {
        Look {
            name: "db3".to_owned(),
            uid: 0,
            release: "6.1.0-50-amd64".to_owned(),
            version: "#1".to_owned(),
            cmdline: "root=/dev/vda1 ro".to_owned(),
            boot_id: "b".to_owned(),
            cpus: 8,
            memory_bytes: 1 << 34,
            folder: "/root/.local/state/bigiron".to_owned(),
            filesystem: "ext4".to_owned(),
            free_bytes: 1 << 36,
            root_filesystem: "ext4".to_owned(),
            boot_free_bytes: 1 << 30,
            running: local::identity(),
            image: None,
            methods: Vec::new(),
            allow: AllowFile::Missing,
            minute: 0,
            reboots_today: 0,
            listening: Vec::new(),
            users: Vec::new(),
            network_mounts: Vec::new(),
            on_battery: false,
            watchdogs: Vec::new(),
            left_over: Vec::new(),
            trials: Vec::new(),
            of_trials: Vec::new(),
            brought: Vec::new(),
            proved: Vec::new(),
            to_return: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_read_behind_any_name() {
        assert_eq!(terminal("812 (a) b (c) S 1 812 812 34816 812 4194560"), Some(34816));
        assert_eq!(terminal("1 (systemd) S 0 1 1 0 -1 4194560"), Some(0));
        assert_eq!(terminal(""), None);
    }

    #[test]
    fn storage_elsewhere_is_found() {
        let mounts = "/dev/vda1 / ext4 rw 0 0\nhost:/srv /srv nfs4 rw 0 0\nproc /proc proc rw 0 0\n";
        assert_eq!(network_mounts(mounts), ["/srv"]);
    }

    #[test]
    fn a_listening_process_is_found_with_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = listening(Path::new("/proc"));
        let mine = found.iter().find(|l| l.port == port).unwrap();
        assert_ne!(mine.process, "unknown");
        drop(listener);
        // A process that another test forks meanwhile has it too until it executes its program.
        let began = std::time::Instant::now();
        while listening(Path::new("/proc")).iter().any(|l| l.port == port) {
            assert!(began.elapsed() < std::time::Duration::from_secs(300), "port {port} is still listened on");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn a_machine_runs_on_its_battery_only_while_it_discharges() {
        let dir = tempfile::tempdir().unwrap();
        let supply = dir.path().join("BAT0");
        fs::create_dir(&supply).unwrap();
        fs::write(supply.join("type"), "Battery\n").unwrap();
        for (status, on) in [("Full", false), ("Discharging", true)] {
            fs::write(supply.join("status"), format!("{status}\n")).unwrap();
            assert_eq!(on_battery(dir.path()), on);
        }
    }
}
