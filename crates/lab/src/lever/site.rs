//! A machine from the levers' view: which of them it has, and what its kernel offers.
//!
//! Invariant: nothing is changed here; every setting refused here would have been refused by the kernel, or had no effect.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::accepted_values::{self, AcceptedValues};
use super::disks::Disks;
use super::policy::{self, Policy};
use super::runtime::{self, Lever, LeverTarget, Named};
use super::swap::{self, Swap};
use super::{cgroup, net};
use crate::undo::chosen;
use bigiron_model::setting::Setting;
use bigiron_sys::kernel_file::{below, read};
use bigiron_sys::network::{Attribute, TrialLink};
use bigiron_sys::scheduling;

/// The machine below a root, and the disks that hold the study's data (or why there are none).
pub struct Site<'a> {
    pub root: &'a Path,
    pub disks: Result<Disks, String>,
    /// The devices between the study's clients and servers.
    pub link: &'a TrialLink,
}

/// A setting, resolved on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedSetting {
    /// The same text for each of these files.
    Write { paths: Vec<PathBuf>, text: String },
    /// A swap device.
    Swap(Swap),
    /// A cgroup limit of this many bytes.
    Limit(u64),
    /// The workload's CPUs.
    Pin(Vec<u32>),
    /// The same value at both ends of the link.
    Link { attribute: Attribute, text: String },
    /// The memory policy of the workload.
    Policy(Policy),
    /// The scheduling policy of the workload.
    Scheduling(scheduling::Policy),
    /// Its slice, nanoseconds.
    Slice(u64),
}

impl Site<'_> {
    /// Resolves `setting` on this machine.
    ///
    /// # Errors
    /// Why it is not available, and what the kernel offers.
    pub fn resolve(&self, setting: &Setting) -> Result<ResolvedSetting, String> {
        let (name, value) = setting;
        let named = runtime::find(name).ok_or_else(|| format!("there is no lever `{name}`"))?;
        let lever = named.lever;
        let text = lever.takes.written(value)?;
        match (lever.place, lever.takes) {
            (LeverTarget::FileSystem, _) => Err("it acts on the disk of a guest".to_owned()),
            (LeverTarget::Machine, _) => Err("it acts on the machine of a guest".to_owned()),
            (LeverTarget::Swap, _) => match swap::missing(self.root) {
                Some(why) => Err(why),
                None => self
                    .as_root("/dev/zram0, /proc/swaps")
                    .and_then(|()| Ok(ResolvedSetting::Swap(swap::parse(value)?))),
            },
            (LeverTarget::Link(attribute), _) => {
                net::available(self.link.get()?, lever, &text, attribute)?;
                Ok(ResolvedSetting::Link { attribute, text })
            }
            (LeverTarget::Workload, AcceptedValues::Cpus) => self.pinned(value).map(ResolvedSetting::Pin),
            (LeverTarget::Workload, AcceptedValues::Scheduling) => {
                accepted_values::scheduling(value).map(ResolvedSetting::Scheduling)
            }
            (LeverTarget::Workload, AcceptedValues::Slice) => accepted_values::slice(value).map(ResolvedSetting::Slice),
            (LeverTarget::Workload, AcceptedValues::Policy) => {
                policy::resolve(value, self.root).map(ResolvedSetting::Policy)
            }
            (LeverTarget::Workload, _) => match cgroup::missing(self.root) {
                Some(why) => Err(why),
                None => {
                    self.writable(Path::new("/sys/fs/cgroup/cgroup.subtree_control"))?;
                    Ok(ResolvedSetting::Limit(text.parse().map_err(|_| "it is not a number of bytes".to_owned())?))
                }
            },
            _ => {
                let paths = self.paths(&named)?;
                for path in &paths {
                    self.offered(lever, path, &text)?;
                    self.writable(path)?;
                }
                Ok(ResolvedSetting::Write { paths, text })
            }
        }
    }

    /// Whether all files of `setting` have its value already; false for levers that are not files.
    pub fn is_set(&self, setting: &Setting) -> bool {
        let Some(named) = runtime::find(&setting.0) else { return false };
        let Ok(ResolvedSetting::Write { paths, text }) = self.resolve(setting) else { return false };
        let has = |path: &PathBuf| {
            read(&below(self.root, path)).is_ok_and(|found| named.lever.takes.is_taken(&text, chosen(found.trim())))
        };
        paths.iter().all(has)
    }

    /// The files of a lever on this machine, at least one.
    ///
    /// # Errors
    /// If there is none; the message says what there is instead.
    pub fn paths(&self, named: &Named<'_>) -> Result<Vec<PathBuf>, String> {
        let lever = named.lever;
        let paths: Vec<PathBuf> = match lever.place {
            LeverTarget::File(pattern) => self.matching(pattern),
            LeverTarget::Named(path) => vec![path(named.rest)?.into()],
            LeverTarget::Disk(file) => {
                let file = file.replace("NAME", named.rest);
                let disks = self.disks.as_ref().map_err(Clone::clone)?;
                disks.disks.iter().map(|disk| format!("/sys/block/{disk}/queue/{file}").into()).collect()
            }
            LeverTarget::Device(file) => {
                let disks = self.disks.as_ref().map_err(Clone::clone)?;
                disks.devices.iter().map(|disk| format!("/sys/block/{disk}/queue/{file}").into()).collect()
            }
            LeverTarget::Workload
            | LeverTarget::Swap
            | LeverTarget::Link(_)
            | LeverTarget::FileSystem
            | LeverTarget::Machine => Vec::new(),
        };
        for path in &paths {
            if !below(self.root, path).exists() {
                return Err(self.absent(lever, path));
            }
        }
        match (paths.is_empty(), lever.place) {
            (true, LeverTarget::File(pattern)) => Err(format!("there is no `{pattern}`")),
            _ => Ok(paths),
        }
    }

    /// The files that match a path, one component of which may contain a `*`; the path itself without one.
    fn matching(&self, pattern: &str) -> Vec<PathBuf> {
        let Some((before, after)) = pattern.split_once('*') else { return vec![pattern.into()] };
        let (folder, prefix) = before.rsplit_once('/').unwrap_or(("", before));
        let entries = fs::read_dir(below(self.root, Path::new(folder))).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        let numbered = |name: &&String| {
            name.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        names.iter().filter(numbered).map(|name| format!("{folder}/{name}{after}").into()).collect()
    }

    /// Why a file does not exist.
    fn absent(&self, lever: &Lever, path: &Path) -> String {
        let shown = path.display();
        let text = path.to_string_lossy();
        let debugfs = Path::new("/sys/kernel/debug");
        if path.starts_with(debugfs)
            && fs::read_dir(below(self.root, debugfs)).map_or(true, |mut entries| entries.next().is_none())
        {
            return "debugfs is not mounted or not readable: `mount -t debugfs none /sys/kernel/debug` as root"
                .to_owned();
        }
        if text.contains("/queue/iosched/") {
            let queue = path.parent().and_then(Path::parent).unwrap_or(path);
            let scheduler = read(&below(self.root, &queue.join("scheduler"))).unwrap_or_default();
            let tunables = self.names(&queue.join("iosched"));
            return format!("the scheduler `{}` has {}", chosen(&scheduler), or_none(&tunables, "tunables"));
        }
        if text.contains("/mm/hugepages/") {
            let sizes = self.names(Path::new("/sys/kernel/mm/hugepages"));
            return format!("this machine has no huge pages of that size; it has {}", or_none(&sizes, "huge pages"));
        }
        match lever.since {
            Some(since) => format!("this kernel has no `{shown}`; Linux {since} is the first that can have it"),
            None => format!("this kernel has no `{shown}`"),
        }
    }

    /// Names in a folder, sorted.
    fn names(&self, folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(below(self.root, folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Refuses a word that the kernel does not list.
    fn offered(&self, lever: &Lever, path: &Path, text: &str) -> Result<(), String> {
        let list = match lever.takes {
            AcceptedValues::OfferedBeside(file, _) => path.with_file_name(file),
            _ => path.to_owned(),
        };
        let shown = read(&below(self.root, &list)).map_err(|e| format!("`{}` cannot be read: {e}", list.display()))?;
        let offered = match lever.takes {
            AcceptedValues::OfferedBeside(..) => shown.split_whitespace().map(str::to_owned).collect(),
            AcceptedValues::Offered(_) => words(&shown),
            _ => match brackets(&shown) {
                true => words(&shown),
                false => return self.silent(path, &shown),
            },
        };
        if offered.iter().any(|word| word == text) {
            return Ok(());
        }
        Err(format!("the kernel offers {} (`{}`)", or_none(&offered, "nothing"), list.display()))
    }

    /// Refuses files whose contents show that a change would have no effect.
    fn silent(&self, path: &Path, shown: &str) -> Result<(), String> {
        match shown.trim() {
            "notsupported" | "notimplemented" if path.ends_with("smt/control") => {
                Err(format!("`{}` says `{}`: no core has two threads", path.display(), shown.trim()))
            }
            text if text.lines().count() > 1 => {
                Err(format!("`{}` shows several lines, so a value cannot be read back", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn pinned(&self, list: &str) -> Result<Vec<u32>, String> {
        let cpus = bigiron_sys::cpu_list::parse(list).ok_or_else(|| format!("`{list}` is not a list of CPUs"))?;
        let path = Path::new("/sys/devices/system/cpu/online");
        let online = read(&below(self.root, path)).map_err(|e| format!("`{}`: {e}", path.display()))?;
        let has = bigiron_sys::cpu_list::parse(&online).unwrap_or_default();
        match cpus.iter().find(|cpu| !has.contains(cpu)) {
            Some(cpu) => {
                Err(format!("CPU {cpu} is not online; the kernel has {} (`{}`)", online.trim(), path.display()))
            }
            None => Ok(cpus),
        }
    }

    fn as_root(&self, what: &str) -> Result<(), String> {
        if self.root != Path::new("/") || rustix::process::geteuid().is_root() {
            return Ok(());
        }
        Err(format!("it changes {what}, which needs root; run bigiron as root for this lever"))
    }

    /// Refuses a file that this process may not write.
    fn writable(&self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        match access(below(self.root, path), Access::WRITE_OK).map_err(std::io::Error::from) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => {
                Err(format!("`{shown}` is on a file system that is mounted read-only, as in a container"))
            }
            Err(e) if e.kind() == ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() => {
                Err(format!("only root may write `{shown}`; run bigiron as root for this lever"))
            }
            Err(e) => Err(format!("`{shown}` is not writable: {e}")),
        }
    }
}

/// Whether a file lists its words with the chosen one in brackets.
fn brackets(shown: &str) -> bool {
    shown.lines().count() == 1 && chosen(shown) != shown.trim()
}

/// The words of a list with the chosen one in brackets.
fn words(shown: &str) -> Vec<String> {
    shown.split_whitespace().map(|w| w.trim_matches(['[', ']', '(', ')']).to_owned()).collect()
}

fn or_none(words: &[String], what: &str) -> String {
    if words.is_empty() { format!("no {what}").replace("no nothing", "nothing") } else { words.join(", ") }
}

#[cfg(test)]
pub(super) mod tests;
