//! The plugin (crates/profile): it drives the exact clock where QEMU counts an instruction for each iteration of a repeated move of memory, and counts
//! the guest's instructions by address, in windows that the guest marks.
//!
//! Invariant: a guest executes the same instructions in the same virtual time whether they are counted or not.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use bigiron_profile::Weights;

use super::memory_file::MemoryFile;
use super::qemu::prefixed;

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/profile.so"));

/// What the plugin counts.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a> {
    /// The file that it writes.
    pub out: &'a Path,
    /// Bytes of the guest's memory, and its NUMA nodes, if caches and TLBs are modelled.
    pub modelled: Option<(u64, u32)>,
}

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

    /// QEMU's arguments that load it, have it drive the clock by these weights, and count into a file; none if it has nothing to do. It is read while
    /// this process and the plugin live.
    /// `parallel` prepares it for vCPUs that run in parallel virtual time.
    pub fn arguments(&self, weights: Option<&Weights>, parallel: bool, counts: Option<&Counts<'_>>) -> Vec<OsString> {
        let mut plugin = format!("file={}", self.file.path());
        if let Some(weights) = weights {
            plugin += &format!(",moves={}", weights.name);
        }
        if parallel {
            plugin += ",parallel=1";
        }
        if let Some((bytes, nodes)) = counts.and_then(|counts| counts.modelled) {
            plugin += &format!(",model={bytes},nodes={nodes}");
        }
        match counts {
            Some(counts) => vec!["-plugin".into(), prefixed(&format!("{plugin},out="), counts.out)],
            None if weights.is_some() => vec!["-plugin".into(), plugin.into()],
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_have_commas() {
        let plugin = Plugin::new().unwrap();
        let counts = Counts { out: Path::new("/a,b/profile"), modelled: None };
        let arguments = plugin.arguments(Some(&Weights::ROME), false, Some(&counts));
        assert_eq!(arguments[0], "-plugin");
        let modelled = plugin.arguments(None, false, Some(&Counts { modelled: Some((1 << 30, 2)), ..counts }));
        assert!(modelled[1].to_str().unwrap().ends_with(",model=1073741824,nodes=2,out=/a,,b/profile"), "{modelled:?}");
        assert!(arguments[1].to_str().unwrap().ends_with(",moves=rome-like,out=/a,,b/profile"), "{arguments:?}");
        let parallel = plugin.arguments(Some(&Weights::ROME), true, None);
        assert!(parallel[1].to_str().unwrap().ends_with(",moves=rome-like,parallel=1"), "{parallel:?}");
        assert_eq!(plugin.arguments(None, false, None), [""; 0]);
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
