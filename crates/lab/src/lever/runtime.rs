//! Levers of a running kernel, as data: where each is set, which values it accepts, how it is read back.
//!
//! Invariant: this module maps a lever's value to text from the tables alone; only [`super::site`] queries the kernel.

use super::accepted_values::AcceptedValues;
use super::{LeverError, block, cpu, file, fs, memory, mm, net, sysctl, vm};
use bigiron_model::suggest;
use bigiron_sys::network::Attribute;

/// The target of a lever's setting.
#[derive(Clone, Copy, Debug)]
pub enum LeverTarget {
    /// A file; `*` in a component stands for every match, `NAME` for the last part of the lever's own name.
    File(&'static str),
    /// A file of `queue/` of every disk that holds the data.
    Disk(&'static str),
    /// A file of `queue/` of the device that holds the file system: the disk itself, or a device built from several.
    Device(&'static str),
    /// The path is in the lever's name.
    Named(fn(&str) -> Result<String, String>),
    /// The processes of the workload.
    Workload,
    /// A swap device.
    Swap,
    /// The devices between clients and servers.
    Link(Attribute),
    /// The guest's disk before it is mounted.
    FileSystem,
    /// The guest's machine before it boots.
    Machine,
}

/// Other settings that a change affects, and that are restored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideEffects {
    Nothing,
    /// These files.
    Files(&'static [&'static str]),
    /// The tunables of the queue and of its scheduler, which a change of scheduler resets to their defaults.
    Queue,
}

/// A lever.
#[derive(Clone, Copy, Debug)]
pub struct Lever {
    /// With the family; the part after the last `.` may be `NAME`, for any.
    pub name: &'static str,
    pub place: LeverTarget,
    pub takes: AcceptedValues,
    pub touches: SideEffects,
    /// The first kernel that has it, if worth mentioning.
    pub since: Option<&'static str>,
    /// Short description.
    pub summary: &'static str,
}

/// All levers of running kernels, by family.
pub const TABLES: &[(&str, &[Lever])] = &[
    ("sysctl", sysctl::LEVERS),
    ("file", file::LEVERS),
    ("block", block::LEVERS),
    ("mm", mm::LEVERS),
    ("memory", memory::LEVERS),
    ("cpu", cpu::LEVERS),
    ("net", net::LEVERS),
    ("fs", fs::LEVERS),
    ("vm", vm::LEVERS),
];

/// A lever by name: `cpu.sched.base_slice_ns` is `cpu.sched.NAME` with the rest `base_slice_ns`.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    pub lever: &'static Lever,
    /// The part that stands for `NAME`; empty if there is none.
    pub rest: &'a str,
}

/// Whether `family` is one of these families.
pub fn is_family(family: &str) -> bool {
    TABLES.iter().any(|(name, _)| *name == family)
}

/// The lever called `name`.
pub fn find(name: &str) -> Option<Named<'_>> {
    let family = name.split('.').next()?;
    let (_, levers) = TABLES.iter().find(|(f, _)| *f == family)?;
    let exact = levers.iter().find(|l| l.name == name && !l.is_open());
    exact.map(|lever| Named { lever, rest: "" }).or_else(|| {
        levers.iter().filter(|l| l.is_open()).find_map(|lever| {
            let rest = name.strip_prefix(lever.stem())?;
            (!rest.is_empty()).then_some(Named { lever, rest })
        })
    })
}

impl Lever {
    /// Whether its name ends in `NAME`.
    pub fn is_open(&self) -> bool {
        self.name.ends_with("NAME") || self.name.ends_with("PATH")
    }

    /// Its name before `NAME`.
    fn stem(&self) -> &'static str {
        &self.name[..self.name.len() - 4]
    }

    /// Whether a local study can use it; file systems and machine shapes belong to guests.
    pub fn is_local(&self) -> bool {
        !matches!(self.place, LeverTarget::FileSystem | LeverTarget::Machine)
    }

    /// Whether it always needs root.
    pub fn needs_root(&self) -> bool {
        self.is_local()
            && !matches!(
                self.takes,
                AcceptedValues::Cpus | AcceptedValues::Policy | AcceptedValues::Scheduling | AcceptedValues::Slice
            )
    }
}

/// Checks a setting as far as possible without a kernel.
pub(super) fn check(lever: &str, value: &str) -> Result<(), LeverError> {
    let family = lever.split('.').next().unwrap_or(lever);
    let Some(named) = find(lever) else {
        let levers = TABLES.iter().find(|(f, _)| *f == family).map_or(&[][..], |(_, levers)| levers);
        let names = || levers.iter().map(|l| l.name);
        let right = match suggest::nearest(lever, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("levers are {}", suggest::list(names())),
        };
        return Err(LeverError::Unknown { lever: lever.to_owned(), right });
    };
    let unknown = |right| LeverError::Unknown { lever: lever.to_owned(), right };
    let wrong = |right| LeverError::Value { lever: lever.to_owned(), value: value.to_owned(), right };
    if let LeverTarget::Named(path) = named.lever.place {
        path(named.rest).map_err(unknown)?;
    } else if !named.rest.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')) {
        return Err(unknown("a name consists of letters, digits, `_`, `-` and `.`".to_owned()));
    }
    if value.is_empty() {
        return Err(wrong(format!("write `{lever}=VALUE`")));
    }
    if value.chars().any(char::is_control) {
        return Err(wrong("a value must be one line of text".to_owned()));
    }
    named.lever.takes.written(value).map_err(wrong)?;
    match named.lever.place {
        LeverTarget::FileSystem => fs::check(lever, value).map_err(wrong),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_of_their_family() {
        let mut all: Vec<&str> = Vec::new();
        for (family, levers) in TABLES {
            assert!(!levers.is_empty(), "{family}");
            for lever in *levers {
                assert!(lever.name.starts_with(&format!("{family}.")), "{}", lever.name);
                assert!(!all.contains(&lever.name), "{} is there twice", lever.name);
                assert!(!lever.summary.is_empty() && !lever.summary.ends_with('.'), "{}", lever.name);
                all.push(lever.name);
            }
        }
    }

    #[test]
    fn a_lever_with_an_open_name_is_found_by_any() {
        assert_eq!(find("block.iosched.low_latency").unwrap().rest, "low_latency");
        assert_eq!(find("sysctl.vm.swappiness").unwrap().rest, "vm.swappiness");
        assert_eq!(find("file./sys/kernel/mm/ksm/run").unwrap().rest, "/sys/kernel/mm/ksm/run");
        assert!(find("block.iosched.").is_none());
        assert!(find("block.sheduler").is_none());
    }

    #[test]
    fn a_setting_is_checked_before_any_kernel_is_asked() {
        for (lever, value, want) in [
            ("block.sheduler", "bfq", "did you mean `block.scheduler`?"),
            ("mm.swappiness", "300", "0 to 200"),
            ("mm.swappiness", "many", "a whole number"),
            ("cpu.boost", "yes", "`on` or `off`"),
            ("block.read-ahead", "much", "not an amount"),
            ("block.read-ahead", "1000", "whole KiB"),
            ("sysctl.vm..swappiness", "1", "a sysctl"),
            ("file./etc/passwd", "x", "/sys/"),
            ("file./sys/../etc/passwd", "x", "not contain `..`"),
            ("cpu.pin", "0-x", "a list of CPUs"),
            ("cpu.policy", "normal", "it must be `other`, `batch`, `idle`, `fifo` or `rr`"),
            ("cpu.slice", "3", "a time from `100us` to `100ms`"),
            ("memory.limit", "0", "at least"),
            ("mm.swap", "disk", "zram:SIZE"),
            ("net.tso", "1", "`on` or `off`"),
            ("net.tos", "on", "did you mean `net.tso`?"),
            ("net.mtu", "100000", "576 to 65535"),
            ("fs.type", "ntfs", "ext4"),
            ("block.scheduler", "anticipatory", "it must be `none`, `mq-deadline`, `kyber` or `bfq`"),
            ("block.scheduler", "", "write `block.scheduler=VALUE`"),
            ("sysctl.vm.swappiness", "1\n2", "one line"),
        ] {
            let error = check(lever, value).unwrap_err().to_string();
            assert!(error.contains(want), "{lever}={value}: {error}");
        }
        for (lever, value) in [
            ("block.scheduler", "bfq"),
            ("sysctl.net.ipv4.tcp_rmem", "4096 131072 6291456"),
            ("file./sys/kernel/mm/ksm/run", "1"),
            ("cpu.pin", "0,2-3"),
            ("mm.swap", "zram:512M:zstd"),
            ("fs.mount", "noatime,data=writeback"),
            ("fs.mkfs", "-O ^has_journal"),
        ] {
            check(lever, value).unwrap();
        }
    }
}
