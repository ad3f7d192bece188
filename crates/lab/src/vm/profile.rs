//! The exact profile: a plugin (crates/profile) with which QEMU counts the guest's instructions by address, in windows that the
//! guest marks.
//!
//! Invariant: a guest executes the same instructions with the plugin as without it, in the same virtual time.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::memory_file::MemoryFile;
use super::qemu::prefixed;

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/profile.so"));

/// The plugin, as a file that only this process has.
pub struct Plugin {
    file: MemoryFile,
}

impl Plugin {
    /// # Errors
    /// No memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: MemoryFile::new("bigiron-profile", LIBRARY)? })
    }

    /// QEMU's arguments that load it and have it write to `out`. It is read while this process and the plugin live.
    pub fn arguments(&self, out: &Path) -> [OsString; 2] {
        ["-plugin".into(), prefixed(&format!("file={},out=", self.file.path()), out)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_have_commas() {
        let [option, value] = Plugin::new().unwrap().arguments(Path::new("/a,b/profile"));
        assert_eq!(option, "-plugin");
        assert!(value.to_str().unwrap().ends_with(",out=/a,,b/profile"), "{value:?}");
    }

    /// Every other function of QEMU's is in all versions of its interface.
    #[test]
    fn what_not_every_qemu_has_is_looked_for_when_it_is_loaded() {
        use object::read::elf::ElfFile64;
        use object::{Object as _, ObjectSymbol as _};
        let elf = ElfFile64::<object::Endianness>::parse(LIBRARY).unwrap();
        let needed: Vec<&str> =
            elf.dynamic_symbols().filter(|s| s.is_undefined()).filter_map(|s| s.name().ok()).collect();
        assert!(needed.contains(&"dlsym") && needed.contains(&"qemu_plugin_insn_data"), "{needed:?}");
        assert!(needed.iter().all(|name| !name.contains("inline") && !name.contains("scoreboard")), "{needed:?}");
        assert!(elf.section_by_name(".init_array").is_some_and(|s| object::ObjectSection::size(&s) == 8));
        assert!(elf.section_by_name(".gnu.version_r").is_none(), "versions of libc are needed");
    }
}
