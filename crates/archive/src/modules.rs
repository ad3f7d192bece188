//! The module files that a guest must load, and their order.
//!
//! Debian's packages contain no modules.dep (depmod runs at installation), so the order comes from the modules' own `.modinfo`.
//! Invariant: every returned file was built for the requested release, and comes after all modules on which it depends.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::Kernel;
use super::error::{KernelError, doing};
use super::modinfo::{self, Compression, ModInfo};
use super::regular_file;

/// A module to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFile {
    /// In the kernel's spelling, with `_`.
    pub name: String,
    pub path: PathBuf,
    pub compression: Compression,
    /// Loading may fail without harm: a variant for CPU features that the machine may lack, or one requested only by `softdep`.
    pub optional: bool,
}

/// Modules of `kernel` that `wanted` needs, in load order, without built-in ones.
///
/// For a kernel without modules and without a configuration it is unknown what is built in; then nothing is loaded.
pub fn load_order(kernel: &Kernel, wanted: &[&str]) -> Result<Vec<ModuleFile>, KernelError> {
    let config = match &kernel.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    match &kernel.modules {
        Some(dir) => resolve_with(dir, &kernel.identity.release, wanted, &config),
        None if kernel.config.is_none() => Ok(Vec::new()),
        None => match wanted.iter().find(|name| !config.builds_in(&normal(name))) {
            Some(name) => {
                let dir = PathBuf::from("no modules were given");
                Err(KernelError::ModuleNotFound {
                    module: (*name).to_owned(),
                    release: kernel.identity.release.clone(),
                    dir,
                })
            }
            None => Ok(Vec::new()),
        },
    }
}

/// As [`load_order`], for a folder of modules alone; a configuration file `config` beside the folder is used if it exists.
pub fn resolve(dir: &Path, release: &str, wanted: &[&str]) -> Result<Vec<ModuleFile>, KernelError> {
    let config = dir.with_file_name("config");
    let config = if config.is_file() { Config::read(&config)? } else { Config::default() };
    resolve_with(dir, release, wanted, &config)
}

fn resolve_with(dir: &Path, release: &str, wanted: &[&str], config: &Config) -> Result<Vec<ModuleFile>, KernelError> {
    let mut resolver = Resolver {
        release,
        files: find(dir)?,
        built_in: BuiltIn::read(dir)?,
        config,
        done: HashMap::new(),
        order: Vec::new(),
    };
    let mut required = Vec::new();
    for name in wanted {
        match resolver.lookup(name)? {
            ModuleLookup::Files(files) => {
                for file in files {
                    resolver.visit(&file)?;
                    // Several modules may offer the same feature; those of arch/ need CPU features that the guest's CPU may lack.
                    if !resolver.files[&file].path.components().any(|c| c.as_os_str() == "arch") || file == normal(name)
                    {
                        required.push(file);
                    }
                }
            }
            ModuleLookup::BuiltIn => {}
            ModuleLookup::Nowhere => {
                return Err(KernelError::ModuleNotFound {
                    module: (*name).to_owned(),
                    release: release.to_owned(),
                    dir: dir.to_path_buf(),
                });
            }
        }
    }
    let mut needed = HashSet::new();
    while let Some(name) = required.pop() {
        if let Some(info) = resolver.done.get(&name)
            && needed.insert(name)
        {
            required.extend(info.depends.iter().cloned());
        }
    }
    let mut files = resolver.files;
    let take = |name: String| {
        let file = files.remove(&name).expect("only files that were found are put in order");
        ModuleFile { optional: !needed.contains(&name), name, path: file.path, compression: file.compression }
    };
    Ok(resolver.order.into_iter().map(take).collect())
}

/// A module's name in the kernel's spelling.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

struct Resolver<'a> {
    release: &'a str,
    files: BTreeMap<String, FoundFile>,
    built_in: BuiltIn,
    config: &'a Config,
    done: HashMap<String, ModInfo>,
    order: Vec<String>,
}

enum ModuleLookup {
    Files(Vec<String>),
    BuiltIn,
    Nowhere,
}

impl Resolver<'_> {
    /// Resolves a name: to a module's file, something built in, or an alias of either.
    fn lookup(&self, name: &str) -> Result<ModuleLookup, KernelError> {
        let module = normal(name);
        if self.files.contains_key(&module) {
            return Ok(ModuleLookup::Files(vec![module]));
        }
        if self.built_in.has(&module) || self.config.builds_in(&module) {
            return Ok(ModuleLookup::BuiltIn);
        }
        // Reading the aliases of all modules would require unpacking all of them. Those that matter belong to the crypto API, and show where to look.
        let stem = module.strip_prefix("crypto_").unwrap_or(&module);
        let beside = self.files.iter().filter(|(n, _)| n.starts_with(stem));
        let crypto = self
            .files
            .iter()
            .filter(|(n, f)| !n.starts_with(stem) && f.path.components().any(|c| c.as_os_str() == "crypto"));
        let mut matching = Vec::new();
        for candidates in [beside.collect::<Vec<_>>(), crypto.collect()] {
            for (name, file) in candidates {
                let info = modinfo::read(&file.path, file.compression)?;
                if info.aliases.iter().any(|a| same_alias(a, &module)) {
                    matching.push(name.clone());
                }
            }
            if !matching.is_empty() {
                // The generic module first: it makes the feature available; a faster one replaces it.
                matching.sort_by_key(|n| self.files[n].path.components().any(|c| c.as_os_str() == "arch"));
                return Ok(ModuleLookup::Files(matching));
            }
        }
        Ok(ModuleLookup::Nowhere)
    }

    fn visit(&mut self, name: &str) -> Result<(), KernelError> {
        if self.done.contains_key(name) {
            return Ok(());
        }
        let file = &self.files[name];
        let info = modinfo::read(&file.path, file.compression)?;
        if info.release != self.release {
            return Err(KernelError::OtherRelease {
                path: file.path.clone(),
                found: info.release,
                wanted: self.release.to_owned(),
            });
        }
        let path = file.path.clone();
        self.done.insert(name.to_owned(), info.clone());
        for soft in &info.soft {
            if let ModuleLookup::Files(files) = self.lookup(soft)? {
                for file in files {
                    self.visit(&file)?;
                }
            }
        }
        for needed in &info.depends {
            if self.files.contains_key(needed) {
                self.visit(needed)?;
            } else if !self.built_in.has(needed) && !self.config.builds_in(needed) {
                return Err(KernelError::Module {
                    path,
                    reason: format!("it needs `{needed}`, which is neither there nor built in"),
                });
            }
        }
        self.order.push(name.to_owned());
        Ok(())
    }
}

fn same_alias(alias: &str, module: &str) -> bool {
    let alias = normal(alias);
    alias == module || alias.strip_prefix("crypto_") == Some(module)
}

#[derive(Clone, Debug)]
struct FoundFile {
    path: PathBuf,
    compression: Compression,
}

/// All module files below `dir`. A module below `updates/` replaces one of the same name elsewhere, as in depmod.
fn find(dir: &Path) -> Result<BTreeMap<String, FoundFile>, KernelError> {
    let mut found: BTreeMap<String, FoundFile> = BTreeMap::new();
    for (name, path, compression) in files(dir)? {
        let update = |p: &Path| p.strip_prefix(dir).is_ok_and(|p| p.starts_with("updates"));
        if found.get(&name).is_none_or(|old| update(&path) && !update(&old.path)) {
            found.insert(name, FoundFile { path, compression });
        }
    }
    Ok(found)
}

/// All module files below `dir`, sorted by path. Links to other folders (`build`, `source`) are not followed.
pub(super) fn files(dir: &Path) -> Result<Vec<(String, PathBuf, Compression)>, KernelError> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).map_err(doing("Cannot read", &folder))? {
            let entry = entry.map_err(doing("Cannot read", &folder))?;
            let kind = entry.file_type().map_err(doing("Cannot read", &folder))?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if let Some((name, compression)) = entry.file_name().to_str().and_then(Compression::of_file_name)
                // A link may lead nowhere or to a folder: then it is no module.
                && let Some(meta) = entry.path().metadata().ok().filter(|meta| !meta.is_dir())
            {
                let path = entry.path();
                if !meta.is_file() {
                    return Err(KernelError::Module { path, reason: regular_file::NOT_REGULAR.to_owned() });
                }
                found.push((name, path, compression));
            }
        }
    }
    found.sort_by(|a, b| a.1.cmp(&b.1));
    Ok(found)
}

/// What is built into the kernel, from modules.builtin and modules.builtin.modinfo.
#[derive(Debug, Default)]
struct BuiltIn {
    names: HashSet<String>,
}

impl BuiltIn {
    fn read(dir: &Path) -> Result<Self, KernelError> {
        let mut names = HashSet::new();
        let list = dir.join("modules.builtin");
        if list.is_file() {
            let text = fs::read_to_string(&list).map_err(doing("Cannot read", &list))?;
            let stems = text.lines().filter_map(|l| l.rsplit('/').next()?.strip_suffix(".ko"));
            names.extend(stems.map(normal));
        }
        let info = dir.join("modules.builtin.modinfo");
        if info.is_file() {
            let bytes = fs::read(&info).map_err(doing("Cannot read", &info))?;
            let fields = bytes.split(|b| *b == 0).filter_map(|f| str::from_utf8(f).ok());
            names.extend(fields.filter_map(|f| f.split_once(".alias=")).map(|(_, alias)| normal(alias)));
        }
        Ok(Self { names })
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(name) || self.names.contains(&format!("crypto_{name}"))
    }
}

/// The kernel's configuration, for kernels without a list of what is built in.
#[derive(Debug, Default)]
struct Config {
    yes: HashSet<String>,
}

/// Modules whose option is not their name in capitals.
const OPTIONS: &[(&str, &str)] = &[
    ("brd", "BLK_DEV_RAM"),
    ("btrfs", "BTRFS_FS"),
    ("configfs", "CONFIGFS_FS"),
    ("crc32c", "CRYPTO_CRC32C"),
    ("crc32c_generic", "CRYPTO_CRC32C"),
    ("crc32c_intel", "CRYPTO_CRC32C_INTEL"),
    ("bfq", "IOSCHED_BFQ"),
    ("ext4", "EXT4_FS"),
    ("f2fs", "F2FS_FS"),
    ("jbd2", "JBD2"),
    ("kyber_iosched", "MQ_IOSCHED_KYBER"),
    ("libnvdimm", "LIBNVDIMM"),
    ("mbcache", "FS_MBCACHE"),
    ("mq_deadline", "MQ_IOSCHED_DEADLINE"),
    ("nbd", "BLK_DEV_NBD"),
    ("nd_btt", "BTT"),
    ("nd_pmem", "BLK_DEV_PMEM"),
    ("nfit", "ACPI_NFIT"),
    ("null_blk", "BLK_DEV_NULL_BLK"),
    ("nvme", "BLK_DEV_NVME"),
    ("nvme_core", "NVME_CORE"),
    ("overlay", "OVERLAY_FS"),
    ("pvpanic_mmio", "PVPANIC_MMIO"),
    ("sd_mod", "BLK_DEV_SD"),
    ("virtio_net", "VIRTIO_NET"),
    ("virtio_pci_legacy_dev", "VIRTIO_PCI_LIB_LEGACY"),
    ("virtio_pci_modern_dev", "VIRTIO_PCI_LIB"),
    ("virtio_ring", "VIRTIO"),
    ("xfs", "XFS_FS"),
];

/// The option, without `CONFIG_`, that builds a module in.
pub fn option(module: &str) -> String {
    let module = normal(module);
    let known = OPTIONS.iter().find(|(name, _)| *name == module).map(|(_, option)| (*option).to_owned());
    known.unwrap_or_else(|| module.to_ascii_uppercase())
}

impl Config {
    fn read(path: &Path) -> Result<Self, KernelError> {
        let bytes = fs::read(path).map_err(doing("Cannot read", path))?;
        let text = String::from_utf8_lossy(&bytes);
        let yes = text
            .lines()
            .filter_map(|l| l.trim().strip_prefix("CONFIG_")?.strip_suffix("=y"))
            .map(str::to_owned)
            .collect();
        Ok(Self { yes })
    }

    fn builds_in(&self, module: &str) -> bool {
        self.yes.contains(&option(module))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, ko, pack};
    use super::*;

    const MAGIC: &str = "vermagic=6.1.0 SMP preempt mod_unload";

    fn names(files: &[ModuleFile]) -> Vec<String> {
        files.iter().map(|f| format!("{}{}", f.name, if f.optional { "?" } else { "" })).collect()
    }

    /// Generic ext4 as Debian builds it: it requests its checksum by an alias that two modules have.
    fn ext4() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, fields: &[&str]| {
            let suffix = if name.ends_with(".xz") {
                ".xz"
            } else if name.ends_with(".zst") {
                ".zst"
            } else {
                ""
            };
            fixture::write(dir.path(), &format!("modules/{name}"), &pack(&ko(&[fields, &[MAGIC]].concat()), suffix));
        };
        write("kernel/fs/ext4/ext4.ko.xz", &["softdep=pre: crc32c", "depends=jbd2,mbcache,crc16", "alias=fs-ext4"]);
        write("kernel/fs/jbd2/jbd2.ko.zst", &["depends="]);
        write("kernel/fs/mbcache.ko", &["depends="]);
        write("kernel/crypto/crc32c_generic.ko", &["alias=crypto-crc32c", "alias=crc32c"]);
        write("kernel/arch/x86/crypto/crc32c-intel.ko", &["alias=crypto-crc32c", "alias=crc32c"]);
        write("kernel/crypto/xxhash_generic.ko", &["alias=xxhash64"]);
        write("kernel/fs/loop_a.ko", &["softdep=pre: loop_b"]);
        write("kernel/fs/loop_b.ko", &["softdep=pre: loop_a"]);
        write("kernel/fs/broken.ko", &["depends=missing_one"]);
        write("updates/mbcache.ko", &["depends="]);
        fixture::write(dir.path(), "modules/modules.builtin", b"kernel/lib/crc16.ko\nkernel/fs/configfs/configfs.ko\n");
        fixture::write(
            dir.path(),
            "modules/modules.builtin.modinfo",
            b"sha256_generic.alias=crypto-sha256\0x.license=GPL\0",
        );
        fixture::write(dir.path(), "config", b"CONFIG_XFS_FS=y\nCONFIG_VIRTIO_BLK=m\n# CONFIG_BRD is not set\n");
        dir
    }

    #[test]
    fn dependencies_first_and_built_in_ones_not_at_all() {
        let dir = ext4();
        let load = |wanted: &[&str]| resolve(&dir.path().join("modules"), "6.1.0", wanted).unwrap();
        assert_eq!(names(&load(&["ext4"])), ["crc32c_generic?", "crc32c_intel?", "jbd2", "mbcache", "ext4"]);
        assert_eq!(names(&load(&["configfs", "xfs", "sha256", "crypto-sha256"])), Vec::<String>::new());
        assert_eq!(names(&load(&["crc32c"])), ["crc32c_generic", "crc32c_intel?"]);
        assert_eq!(
            names(&load(&["ext4", "crc32c-intel"])),
            ["crc32c_generic?", "crc32c_intel", "jbd2", "mbcache", "ext4"]
        );
        assert_eq!(names(&load(&["xxhash64"])), ["xxhash_generic"]);
        assert_eq!(names(&load(&["loop-a"])), ["loop_b?", "loop_a"]);
        let files = load(&["mbcache"]);
        assert!(files[0].path.ends_with("updates/mbcache.ko"));
        assert_eq!(load(&["jbd2"])[0].compression, Compression::Zstd);
    }

    #[test]
    fn refusals_name_module_and_kernel() {
        let dir = ext4();
        let modules = dir.path().join("modules");
        let say = |release: &str, wanted: &str| resolve(&modules, release, &[wanted]).unwrap_err().to_string();
        let said = say("6.1.0", "virtio_blk");
        assert!(said.contains("`virtio_blk`") && said.contains("Kernel 6.1.0"), "{said}");
        let said = say("6.12.1", "jbd2");
        assert!(said.contains("built for kernel 6.1.0, not for 6.12.1"), "{said}");
        assert!(say("6.1.0", "broken").contains("missing_one"));
        fixture::write(&modules, "kernel/bad.ko.xz", b"\xfd7zXZ\0rubbish");
        assert!(say("6.1.0", "bad").contains("cannot be unpacked"));
    }

    #[test]
    fn without_modules_the_configuration_decides() {
        let dir = ext4();
        let identity = bigiron_model::identity::Identity {
            spec: "mine".into(),
            release: "6.1.0".into(),
            package: None,
            image_sha256: String::new(),
            config_sha256: None,
        };
        let config = Some(dir.path().join("config"));
        let mut kernel = Kernel { identity, image: PathBuf::new(), modules: None, config, symbols: None };
        assert_eq!(load_order(&kernel, &["xfs"]).unwrap(), []);
        assert!(load_order(&kernel, &["virtio_blk"]).unwrap_err().to_string().contains("virtio_blk"));
        kernel.config = None;
        assert_eq!(load_order(&kernel, &["virtio_blk"]).unwrap(), []);
    }
}
