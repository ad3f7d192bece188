//! The functions in a program's file that its symbol tables name.
//!
//! Invariant: an address belongs to the function whose extent contains it; an address outside all of them has no name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

/// Larger files are not read for names.
const LARGEST: u64 = 256 << 20;

/// The functions of a file.
#[derive(Debug, Default)]
pub struct Functions {
    /// Offset in the file, bytes, and address.
    segments: Vec<(u64, u64, u64)>,
    /// By address: bytes and name.
    functions: BTreeMap<u64, (u64, String)>,
}

impl Functions {
    /// The functions of the file at `path`; none if it cannot be read or is not an ELF file.
    pub fn of_file(path: &Path) -> Self {
        let read = || {
            let file = File::open(path).ok()?;
            let metadata = file.metadata().ok()?;
            // Not a device or a pipe: a mapped file may have any name.
            let fit = metadata.is_file() && metadata.len() <= LARGEST;
            let mut bytes = Vec::new();
            fit.then(|| file.take(LARGEST).read_to_end(&mut bytes)).and_then(Result::ok)?;
            Self::new(&bytes)
        };
        read().unwrap_or_default()
    }

    fn new(bytes: &[u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let segment = |s: object::Segment<'_, '_>| (s.file_range().0, s.file_range().1, s.address());
        let mut functions = BTreeMap::new();
        let symbols = file.symbols().chain(file.dynamic_symbols());
        for symbol in symbols.filter(|s| s.kind() == SymbolKind::Text && s.is_definition()) {
            let Ok(name) = symbol.name() else { continue };
            let size = symbol.size();
            // If a function has several names, the first in alphabetical order.
            let entry = functions.entry(symbol.address()).or_insert_with(|| (size, name.to_owned()));
            if name < entry.1.as_str() {
                entry.1 = name.to_owned();
            }
            entry.0 = entry.0.max(size);
        }
        for (_, name) in functions.values_mut() {
            *name = readable(name);
        }
        Some(Self { segments: file.segments().map(segment).collect(), functions })
    }

    /// The function that contains the byte at `offset` of the file.
    pub fn name(&self, offset: u64) -> Option<&str> {
        let (begin, _, address) =
            self.segments.iter().find(|(begin, len, _)| offset.checked_sub(*begin).is_some_and(|at| at < *len))?;
        let at = (offset - begin).checked_add(*address)?;
        let (start, (size, name)) = self.functions.range(..=at).next_back()?;
        // Assembly code may give no size: such a function extends to the next one.
        (*size == 0 || at - start < *size).then_some(name)
    }
}

/// A name as in the source, without the version of a dynamic symbol.
fn readable(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    /// Never inlined, so that it has a symbol.
    #[inline(never)]
    fn looked_for(n: u64) -> u64 {
        std::hint::black_box(n) + 1
    }

    #[test]
    fn this_programs_own_functions_have_their_names() {
        // The segments say where the file is mapped.
        let path = std::env::current_exe().unwrap();
        let functions = Functions::of_file(&path);
        assert_eq!(looked_for(1), 2);
        let name = "bigiron_probe::sampled::elf::tests::looked_for";
        let (address, _) = functions.functions.iter().find(|(_, (size, n))| *size > 0 && n.starts_with(name)).unwrap();
        let (begin, _, start) =
            functions.segments.iter().find(|(_, len, start)| (*start..start + len).contains(address)).unwrap();
        let offset = address - start + begin;
        assert!(functions.name(offset).unwrap().starts_with(name));
        assert!(functions.name(offset + 1).unwrap().starts_with(name));
        assert_eq!(functions.name(u64::MAX), None);
    }

    #[test]
    fn what_is_no_program_has_no_names() {
        assert_eq!(Functions::of_file(Path::new("/dev/zero")).name(0), None);
        assert_eq!(Functions::of_file(Path::new("/proc/self/status")).name(0), None);
    }

    #[test]
    fn names_are_as_they_were_written() {
        for (name, is) in [
            ("_ZN7bigiron3sys4spin10iterations17h0123456789abcdefE", "bigiron::sys::spin::iterations"),
            ("ExecProcNode", "ExecProcNode"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
        ] {
            assert_eq!(readable(name), is);
        }
    }
}
