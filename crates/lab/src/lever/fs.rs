//! `fs.*`: the file system on a guest's disk: its type, how it is made and mounted, and where its journal is.

use rustix::mount::MountFlags;

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};
use bigiron_image as image;
use bigiron_model::setting::Setting;
use bigiron_model::storage;
use bigiron_model::storage::StorageProfile;
use bigiron_model::suggest;

const fn lever(name: &'static str, summary: &'static str) -> Lever {
    Lever {
        name,
        place: LeverTarget::FileSystem,
        takes: AcceptedValues::Text,
        touches: SideEffects::Nothing,
        since: None,
        summary,
    }
}

/// The storage of the journal.
pub const JOURNAL: &str = "fs.journal";

/// Every storage that a guest can have.
const STORAGE: &[(&str, &str)] = &[
    ("nvme", "nvme"),
    ("ssd", "ssd"),
    ("hdd", "hdd"),
    ("hdd-15k", "hdd-15k"),
    ("ram", "ram"),
    ("host-file", "host-file"),
];

pub const LEVERS: &[Lever] = &[
    lever("fs.type", "the file system of an arm, instead of the study's"),
    lever("fs.mkfs", "options for the program that makes it, such as `-O ^has_journal`"),
    lever(
        "fs.mount",
        "mount options, such as `data=writeback`; `noatime` is the default unless an atime option is given",
    ),
    Lever {
        takes: AcceptedValues::Words(STORAGE),
        ..lever(JOURNAL, "storage of a separate disk for the journal of ext3, ext4 or xfs")
    },
];

/// Options of mount(8) that are flags of mount(2); all others belong to the file system.
const FLAGS: &[(&str, MountFlags)] = &[
    ("noatime", MountFlags::NOATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("lazytime", MountFlags::from_bits_retain(1 << 25)),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
    ("nodev", MountFlags::NODEV),
    ("nosuid", MountFlags::NOSUID),
    ("noexec", MountFlags::NOEXEC),
];

pub(super) fn check(lever: &str, value: &str) -> Result<(), String> {
    match lever {
        "fs.type" if image::tool(value).is_none() => Err(match image::UNAVAILABLE.iter().find(|(n, _)| *n == value) {
            Some((_, why)) => format!("{why}; it can be {}", suggest::list(image::filesystems())),
            None => format!("it can be {}", suggest::list(image::filesystems())),
        }),
        "fs.mkfs" if !value.starts_with('-') => Err("options must begin with `-`, as in `-O ^has_journal`".to_owned()),
        "fs.mount"
            if value.split(',').any(|option| option.is_empty() || matches!(option, "ro" | "remount" | "bind")) =>
        {
            Err("write options that leave the disk writable, with commas between them".to_owned())
        }
        "fs.mount" if value.contains(char::is_whitespace) => {
            Err("mount options must not contain white space".to_owned())
        }
        _ => Ok(()),
    }
}

fn of<'a>(settings: &'a [Setting], lever: &str) -> Option<&'a str> {
    settings.iter().find(|(name, _)| name == lever).map(|(_, value)| value.as_str())
}

/// The file system of an arm with `settings`, in a study with `default`.
pub fn kind<'a>(settings: &'a [Setting], default: &'a str) -> &'a str {
    of(settings, "fs.type").unwrap_or(default)
}

/// Options for the mkfs program, in addition to bigiron's own.
pub fn mkfs(settings: &[Setting]) -> &str {
    of(settings, "fs.mkfs").unwrap_or("")
}

/// Mount options as typed.
pub fn mount(settings: &[Setting]) -> &str {
    of(settings, "fs.mount").unwrap_or("")
}

/// The storage of the journal, if it is on a separate disk.
pub fn journal(settings: &[Setting]) -> Option<&'static StorageProfile> {
    of(settings, JOURNAL).and_then(storage::find)
}

/// Whether `settings` change the study's own file system.
pub fn is_set(settings: &[Setting]) -> bool {
    settings.iter().any(|(name, _)| name.starts_with("fs."))
}

/// mount(2)'s flags and data for `options` as typed.
pub fn split(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data = Vec::new();
    for option in options.split(',').filter(|o| !o.is_empty()) {
        match FLAGS.iter().find(|(name, _)| *name == option) {
            Some((_, flag)) => flags |= *flag,
            None => data.push(option),
        }
    }
    if !flags.intersects(MountFlags::RELATIME | MountFlags::STRICTATIME) {
        flags |= MountFlags::NOATIME;
    }
    (flags, data.join(","))
}

/// The line of the kernel's log that reports an ignored option.
pub fn ignored<'l>(options: &str, log: &'l str) -> Option<&'l str> {
    let names: Vec<&str> =
        options.split(',').map(|o| o.split('=').next().unwrap_or(o)).filter(|o| !o.is_empty()).collect();
    log.lines().find(|line| {
        let lower = line.to_ascii_lowercase();
        let about = ["ignor", "deprecated", "removed", "not supported", "unsupported", "no effect"];
        let named = |name: &&str| {
            line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).any(|w| w == *name)
        };
        about.iter().any(|a| lower.contains(a)) && names.iter().any(named)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_told_from_what_the_file_system_reads() {
        let (flags, data) = split("data=writeback,lazytime,nobarrier");
        assert_eq!(data, "data=writeback,nobarrier");
        assert!(flags.contains(MountFlags::NOATIME));
        assert_ne!(flags, MountFlags::NOATIME);
        let (flags, data) = split("strictatime");
        assert!(!flags.contains(MountFlags::NOATIME) && data.is_empty());
        assert_eq!(split(""), (MountFlags::NOATIME, String::new()));
    }

    #[test]
    fn an_option_that_is_passed_over_is_seen() {
        let log = "EXT4-fs (nullb0): Ignoring removed bh option\nEXT4-fs: mounted";
        assert!(ignored("data=writeback,bh", log).unwrap().contains("removed bh"));
        assert_eq!(ignored("data=writeback", log), None);
        assert!(ignored("norecovery", "").is_none());
    }

    #[test]
    fn what_cannot_be_had_says_why() {
        assert!(check("fs.type", "bcachefs").unwrap_err().contains("Debian"));
        assert!(check("fs.type", "ext5").unwrap_err().contains("`ext4`"));
        assert!(check("fs.mkfs", "/dev/sda").is_err());
        assert!(check("fs.mount", "ro").is_err());
    }

    #[test]
    fn a_journal_lies_on_any_storage_of_a_guest() {
        assert!(STORAGE.iter().map(|(name, _)| *name).eq(storage::names(bigiron_model::clock::Clock::Wall)));
        for none in ["flash", "folder", "off"] {
            let why = crate::lever::check(JOURNAL, none).unwrap_err().to_string();
            assert!(why.contains("it must be `nvme`, `ssd`, `hdd`, "), "{why}");
        }
    }
}
