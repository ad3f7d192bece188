//! The shared libraries that programs need, from their `DT_NEEDED` entries, including libraries of libraries.
//!
//! Invariant: a file is either closed (all libraries that it needs, directly or not, are there) or reported as incomplete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use object::elf::{DT_NEEDED, DT_NULL, DT_STRSZ, DT_STRTAB, FileHeader64, PT_DYNAMIC, PT_LOAD};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadRef};

/// The names of the libraries that an ELF file (64 bit) needs; none for a static one.
///
/// # Errors
/// The bytes are not an ELF file, or a damaged one.
pub fn needed(bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(bytes).context("Not an ELF file")?;
    let endian = header.endian().context("Not an ELF file")?;
    let segments = header.program_headers(endian, bytes).context("No program headers")?;
    let Some(dynamic) = segments.iter().find(|s| s.p_type(endian) == PT_DYNAMIC) else { return Ok(Vec::new()) };
    let Some(entries) = dynamic.dynamic(endian, bytes).context("No dynamic section")? else { return Ok(Vec::new()) };
    let mut offsets = Vec::new();
    let (mut table, mut size) = (0u64, 0u64);
    for entry in entries {
        let value = entry.d_val(endian);
        match entry.tag(endian) {
            DT_NULL => break,
            DT_NEEDED => offsets.push(value),
            DT_STRTAB => table = value,
            DT_STRSZ => size = value,
            _ => {}
        }
    }
    if offsets.is_empty() {
        return Ok(Vec::new());
    }
    // The string table is given by its address, which a loaded segment maps to a position in the file.
    let segment = segments.iter().find(|s| {
        let start = s.p_vaddr(endian);
        s.p_type(endian) == PT_LOAD && start <= table && table - start < s.p_filesz(endian)
    });
    let segment = segment.context("No string table")?;
    let at = segment.p_offset(endian).saturating_add(table - segment.p_vaddr(endian));
    let strings = bytes.read_bytes_at(at, size).ok().context("The string table lies outside the file")?;
    offsets
        .into_iter()
        .map(|offset| {
            let rest = strings.get(usize::try_from(offset)?..).context("A name lies outside the string table")?;
            let name = rest.split(|b| *b == 0).next().unwrap_or_default();
            Ok(str::from_utf8(name).context("A name is not text")?.to_owned())
        })
        .collect()
}

/// The files of a tree by name, as the dynamic linker finds them, and the libraries that each needs.
#[derive(Debug, Default)]
pub struct Libraries {
    by_name: BTreeMap<String, PathBuf>,
    needs: BTreeMap<PathBuf, Vec<String>>,
}

impl Libraries {
    /// Adds the libraries directly in `dir`, including links.
    ///
    /// # Errors
    /// A file cannot be read. A file that is not an ELF file (a linker script) is ignored.
    pub fn add(&mut self, dir: &Path) -> anyhow::Result<()> {
        for entry in fs::read_dir(dir).with_context(|| format!("Cannot read {}", dir.display()))? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|n| n.to_str()).filter(|n| n.contains(".so")) else { continue };
            let Ok(bytes) = fs::read(&path) else { continue };
            if let Ok(needs) = needed(&bytes) {
                self.by_name.entry(name.to_owned()).or_insert_with(|| path.clone());
                self.needs.insert(path, needs);
            }
        }
        Ok(())
    }

    /// The libraries that the file at `path` needs, directly or not; or, as inner error, the name of the first missing one.
    ///
    /// # Errors
    /// Inner: the name that was not found. Outer: a file cannot be read as ELF.
    pub fn closure(&self, path: &Path) -> anyhow::Result<Result<BTreeSet<PathBuf>, String>> {
        let bytes = fs::read(path).with_context(|| format!("Cannot read {}", path.display()))?;
        let mut wanted = needed(&bytes).with_context(|| path.display().to_string())?;
        let mut found = BTreeSet::new();
        while let Some(name) = wanted.pop() {
            let Some(file) = self.by_name.get(&name) else { return Ok(Err(name)) };
            if found.insert(file.clone()) {
                wanted.extend(self.needs[file].iter().cloned());
            }
        }
        Ok(Ok(found))
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_machine_s_shell_is_closed() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let needs = needed(&fs::read(&shell).unwrap()).unwrap();
        let mut libraries = Libraries::default();
        let lacking = libraries.closure(&shell).unwrap();
        assert_eq!(lacking.is_err(), !needs.is_empty(), "{needs:?}");
        for dir in ["/lib64", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib"] {
            if Path::new(dir).is_dir() {
                libraries.add(Path::new(dir)).unwrap();
            }
        }
        let found = libraries.closure(&shell).unwrap().unwrap();
        assert!(found.len() >= needs.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), header: bool) {
            if header && bytes.len() > 64 {
                bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
            }
            let _ = needed(&bytes);
        }
    }
}
