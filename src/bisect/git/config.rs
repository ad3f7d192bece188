//! The configuration that kernels are built with: the user's, plus the options that a bigiron guest needs built in.
//!
//! Invariant: needed options are looked up in the `.config` that the tree's own Kconfig wrote; requesting an option does not
//! prove that it is set.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::bisect::config::ConfigOptions;
use bigiron_archive::hash;
use bigiron_model::refusal::Refusal;
use bigiron_model::version::compare as compare_versions;

/// Options for booting a guest, for its communication, and for features that any workload may use.
const NEEDED: &[&str] = &[
    "64BIT",
    "SMP",
    "PCI",
    "ACPI",
    "PRINTK",
    "TTY",
    "SERIAL_8250",
    "SERIAL_8250_CONSOLE",
    // The agent is an ELF program in an initramfs, and talks to QEMU by port I/O.
    "BLK_DEV_INITRD",
    "BINFMT_ELF",
    "X86_IOPL_IOPERM",
    "PROC_FS",
    "PROC_SYSCTL",
    "SYSFS",
    "DEVTMPFS",
    "SHMEM",
    "TMPFS",
    "MULTIUSER",
    "BINFMT_SCRIPT",
    "FUTEX",
    "EPOLL",
    "EVENTFD",
    "TIMERFD",
    "SIGNALFD",
    "POSIX_TIMERS",
    "HIGH_RES_TIMERS",
    "FILE_LOCKING",
    "ADVISE_SYSCALLS",
    "SYSVIPC",
    "KALLSYMS",
    "NET",
    "UNIX",
    "INET",
    // The storage of the guests: memory, a model, a rotating model, a file of the host.
    "BLOCK",
    "BLK_DEV",
    "BLK_DEV_RAM",
    "CONFIGFS_FS",
    "BLK_DEV_NULL_BLK",
    "BLK_DEV_NBD",
    "MQ_IOSCHED_DEADLINE",
    "VIRTIO_PCI",
    "VIRTIO_BLK",
    "EXT4_FS",
    "OVERLAY_FS",
];

/// Options that are also set but may be missing: some workloads and levers, and the functions' names, need them.
const WANTED: &[&str] = &[
    "VIRTIO_MENU",
    "RANDOM_TRUST_CPU",
    "KALLSYMS_ALL",
    "MEMBARRIER",
    "RSEQ",
    "AIO",
    "IO_URING",
    "MEMFD_CREATE",
    "VM_EVENT_COUNTERS",
    "NAMESPACES",
    "NET_NS",
    "PID_NS",
    "NETDEVICES",
    "NET_CORE",
    "VETH",
];

/// Options that would change the bytes from commit to commit, break old sources on a new compiler, or require missing files.
const SETTLED: &[&str] = &[
    "# CONFIG_LOCALVERSION_AUTO is not set",
    "# CONFIG_WERROR is not set",
    "# CONFIG_DEBUG_INFO is not set",
    "CONFIG_DEBUG_INFO_NONE=y",
    "CONFIG_SYSTEM_TRUSTED_KEYS=\"\"",
    "CONFIG_SYSTEM_REVOCATION_KEYS=\"\"",
];

/// The origin of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    File {
        path: PathBuf,
        text: String,
    },
    /// A target of the tree's Makefile, such as `defconfig`.
    Target(String),
}

impl Base {
    /// The configuration given; else the tree's own `.config`, else this machine's configuration, else `defconfig`.
    ///
    /// # Errors
    /// If a file cannot be read, or is not a configuration.
    pub fn choose(given: Option<&str>, top: Option<&Path>, boot: &Path, running: &str) -> Result<Base, Refusal> {
        if let Some(text) = given {
            return Base::given("config", text);
        }
        let own = top.map(|top| top.join(".config")).filter(|path| path.is_file());
        let usual = || {
            let running = boot.join(format!("config-{running}"));
            if running.is_file() {
                return Some(running);
            }
            let names = fs::read_dir(boot).ok()?.filter_map(|e| e.ok()?.file_name().into_string().ok());
            let newest = names.filter(|n| n.starts_with("config-")).max_by(|a, b| compare_versions(a, b))?;
            Some(boot.join(newest))
        };
        own.or_else(usual).map_or_else(|| Ok(Base::Target("defconfig".to_owned())), |path| Base::read("config", &path))
    }

    /// The value of `option`: a file, or the name of a target.
    ///
    /// # Errors
    /// If a file cannot be read, or is not a configuration.
    pub fn given(option: &str, text: &str) -> Result<Base, Refusal> {
        let is_target = text.ends_with("config") && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        match is_target && !Path::new(text).exists() {
            true => Ok(Base::Target(text.to_owned())),
            false => Base::read(option, Path::new(text)),
        }
    }

    fn read(option: &str, path: &Path) -> Result<Base, Refusal> {
        let shown = path.display();
        let bad = |why: String| {
            Refusal::new(format!("--{option}: `{shown}` {why}"))
                .hint("A kernel's configuration is a file like /boot/config-6.12, or a make target of the tree such as `defconfig`")
        };
        let bytes = fs::read(path).map_err(|e| bad(format!("cannot be read: {e}")))?;
        let bytes = match bytes.starts_with(&[0x1f, 0x8b]) {
            true => {
                let mut text = Vec::new();
                let unpacked = flate2::read::MultiGzDecoder::new(&bytes[..]).take(1 << 24).read_to_end(&mut text);
                unpacked.map_err(|e| bad(format!("cannot be unpacked: {e}")))?;
                text
            }
            false => bytes,
        };
        let text = String::from_utf8(bytes).map_err(|_| bad("is not text".to_owned()))?;
        if !text.lines().any(|l| l.starts_with("CONFIG_")) {
            return Err(bad("is not a kernel's configuration: it sets no option".to_owned()));
        }
        if let Err((line, why)) = ConfigOptions::parse(&text) {
            let said = text.lines().nth(line - 1).unwrap_or_default().trim().chars().take(60).collect::<String>();
            return Err(bad(format!("is wrong in line {line}, `{said}`: {why}")));
        }
        Ok(Base::File { path: path.to_path_buf(), text })
    }

    /// The name shown to users.
    pub fn name(&self) -> String {
        match self {
            Base::File { path, .. } => path.display().to_string(),
            Base::Target(target) => format!("make {target}"),
        }
    }

    /// Hash of everything except the tree that decides the configuration.
    pub fn sha256(&self, more: &[String]) -> String {
        let base = match self {
            Base::File { text, .. } => text,
            Base::Target(target) => target,
        };
        hash::of_bytes(format!("{base}\n{}", added(more)).as_bytes())
    }
}

/// The lines appended to the base; `more` are options that a study needs in addition to the usual ones.
pub fn added(more: &[String]) -> String {
    let mut text = String::new();
    for line in SETTLED {
        let _ = writeln!(text, "{line}");
    }
    let more = more.iter().map(String::as_str);
    for option in WANTED.iter().chain(NEEDED).copied().chain(more) {
        let _ = writeln!(text, "CONFIG_{option}=y");
    }
    text
}

/// The needed options that `config` does not have built in.
pub fn missing<'a>(config: &str, more: &'a [String]) -> Vec<&'a str> {
    let is_set = |option: &str| {
        config.lines().any(|l| l.strip_prefix("CONFIG_").and_then(|l| l.strip_suffix("=y")) == Some(option))
    };
    let more = more.iter().map(String::as_str);
    NEEDED.iter().copied().chain(more).filter(|option| !is_set(option)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_what_was_given_or_what_is_nearest() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("boot")).unwrap();
        fs::create_dir_all(at("tree")).unwrap();
        let choose = |given: Option<&str>| Base::choose(given, Some(&at("tree")), &at("boot"), "6.9");
        assert_eq!(choose(None).unwrap(), Base::Target("defconfig".to_owned()));
        fs::write(at("boot/config-6.12.1"), "CONFIG_A=y\n").unwrap();
        fs::write(at("boot/config-6.9.3"), "CONFIG_B=y\n").unwrap();
        assert_eq!(choose(None).unwrap().name(), at("boot/config-6.12.1").display().to_string());
        fs::write(at("boot/config-6.9"), "CONFIG_C=y\n").unwrap();
        assert!(choose(None).unwrap().name().ends_with("config-6.9"));
        fs::write(at("tree/.config"), "CONFIG_D=y\n").unwrap();
        assert!(choose(None).unwrap().name().ends_with("tree/.config"));
        assert_eq!(choose(Some("tinyconfig")).unwrap(), Base::Target("tinyconfig".to_owned()));
        let why = |given: &Path| choose(Some(given.to_str().unwrap())).unwrap_err().message;
        assert!(why(&at("none")).contains("cannot be read"));
        fs::write(at("text"), "hello\n").unwrap();
        assert!(why(&at("text")).contains("sets no option"));
        fs::write(at("wrong"), "CONFIG_A=y\n# a comment\nCONFIG_B y\n").unwrap();
        assert!(why(&at("wrong")).contains("is wrong in line 3, `CONFIG_B y`"));
        let packed = bigiron_archive::fixture::pack(b"CONFIG_E=y\n", ".gz");
        fs::write(at("config.gz"), packed).unwrap();
        let base = choose(at("config.gz").to_str()).unwrap();
        assert!(matches!(&base, Base::File { text, .. } if text == "CONFIG_E=y\n"));
        assert_ne!(base.sha256(&[]), base.sha256(&["XFS_FS".to_owned()]));
    }

    #[test]
    fn what_is_added_is_what_is_looked_for() {
        let more = ["XFS_FS".to_owned()];
        let text = added(&more);
        assert!(missing(&text, &more).is_empty());
        let without = text.replace("CONFIG_DEVTMPFS=y", "# CONFIG_DEVTMPFS is not set").replace("XFS_FS=y", "XFS_FS=m");
        assert_eq!(missing(&without, &more), ["DEVTMPFS", "XFS_FS"]);
        assert!(!text.contains("is not set=y") && text.lines().all(|l| l.contains("CONFIG_")));
    }
}
