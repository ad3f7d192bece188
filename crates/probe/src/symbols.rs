//! The function to which a guest's instruction belongs, from the kernel's symbols and the files that programs were mapped from.
//!
//! Invariant: an address belongs to the last symbol that begins at or before it, as in the kernel's own `%pS`; an address in no known program is
//! reported as such.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use bigiron_model::workload::{METHOD, Program};

/// Where the kernel's half of the address space begins (x86-64, Documentation/arch/x86/x86_64/mm.rst).
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// User-space instructions of an unknown program.
pub const UNKNOWN_PROGRAM: &str = "user: program not known";

/// What a program has made executable itself: code that it compiled as it ran.
pub const COMPILED: &str = "compiled code";

/// The prefix of the functions of 64-bit system calls (since 4.17).
const SYSTEM_CALL: &str = "__x64_sys_";

/// Kernel instructions before the first symbol.
const UNKNOWN_FUNCTION: &str = "kernel: no symbol";

/// The executable mappings of processes, from the names of their programs and the texts of their `/proc/PID/maps` (proc(5)).
pub fn programs<'a>(processes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Program> {
    let of = |(name, maps): (&'a str, &'a str)| maps.lines().filter_map(move |line| program(name, line));
    let mut programs: Vec<Program> = processes.into_iter().flat_map(of).collect();
    programs.sort();
    programs.dedup();
    programs
}

/// Most processes looked at: those of a server have the same programs.
const PROCESSES: usize = 64;

/// The executable mappings of the running processes.
pub fn running() -> Vec<Program> {
    let numbers = |name: &OsStr| name.to_str().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().filter(|entry| numbers(&entry.file_name()));
    let read = |process: &Path| {
        // Kernel threads have no mappings.
        let maps = fs::read_to_string(process.join("maps")).ok().filter(|maps| !maps.is_empty())?;
        let exe = fs::read_link(process.join("exe")).unwrap_or_default();
        Some((file_name(&exe.to_string_lossy()).to_owned(), maps))
    };
    let read: Vec<_> = all.filter_map(|entry| read(&entry.path())).take(PROCESSES).collect();
    programs(read.iter().map(|(name, maps)| (name.as_str(), maps.as_str())))
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE FILE`; a library has its program's name besides.
fn program(name: &str, line: &str) -> Option<Program> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    words.next().filter(|permissions| permissions.contains('x'))?;
    let file = match words.nth(3) {
        Some(file) if file_name(file) == name => file.to_owned(),
        Some(file) => format!("{file} ({name})"),
        None => format!("{COMPILED} ({name})"),
    };
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(Program { start: address(start)?, end: address(end)?, file })
}

/// The lines of `/proc/kallsyms` that name code.
pub fn code_symbols(kallsyms: &str) -> impl Iterator<Item = &str> {
    kallsyms.lines().filter(|line| line.split(' ').nth(1).is_some_and(|kind| matches!(kind, "t" | "T" | "w" | "W")))
}

fn address_and_name(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((address, words.nth(1)?))
}

/// The padding before a function, which no kernel executes (since 6.2).
const PADDING: &str = "__pfx_";

/// What [`Symbols`] needs of `/proc/kallsyms`, in a third of the bytes, because a guest tells them one by one: of each symbol how much further its
/// address is than the one before, and its plain name.
pub fn compact(kallsyms: &str) -> Vec<String> {
    let mut last = 0_u64;
    let mut lines = Vec::new();
    for (address, name) in code_symbols(kallsyms).filter_map(address_and_name) {
        // Of several names of an address the first is used, and a system call's besides.
        let is_needed = address != last || name.starts_with(SYSTEM_CALL);
        if is_needed && !name.starts_with(PADDING) {
            lines.push(format!("{:x} {}", address.wrapping_sub(last), plain(name)));
            last = address;
        }
    }
    lines
}

/// A guest's symbols.
#[derive(Debug, Default)]
pub struct Symbols {
    /// By address; of several symbols at one address, the first in the file.
    functions: BTreeMap<u64, String>,
    /// The first addresses of system calls, and their names.
    calls: BTreeMap<u64, String>,
    programs: Vec<Program>,
    /// By address, their ends and names.
    methods: BTreeMap<u64, (u64, String)>,
}

impl Symbols {
    /// From the text of `/proc/kallsyms`, or from those of its lines that name code.
    ///
    /// # Errors
    /// It has no addresses: the kernel hides them from unprivileged users (`kernel.kptr_restrict`).
    pub fn new(kallsyms: &str, programs: Vec<Program>) -> Result<Self, String> {
        Self::of(code_symbols(kallsyms).filter_map(address_and_name), programs)
    }

    /// From lines made by [`compact`].
    ///
    /// # Errors
    /// As [`Symbols::new`].
    pub fn from_compact(lines: &str, programs: Vec<Program>) -> Result<Self, String> {
        let mut address = 0_u64;
        let symbols = lines.lines().filter_map(|line| {
            let (further, name) = line.split_once(' ')?;
            address = address.wrapping_add(u64::from_str_radix(further, 16).ok()?);
            Some((address, name))
        });
        Self::of(symbols, programs)
    }

    fn of<'a>(symbols: impl Iterator<Item = (u64, &'a str)>, programs: Vec<Program>) -> Result<Self, String> {
        let (mut functions, mut calls) = (BTreeMap::new(), BTreeMap::new());
        for (address, name) in symbols {
            if address >= KERNEL {
                functions.entry(address).or_insert_with(|| plain(name).to_owned());
                // System calls that a kernel lacks share one function under many names.
                if let Some(call) = name.strip_prefix(SYSTEM_CALL).filter(|call| *call != "ni_syscall") {
                    calls.entry(address).or_insert_with(|| call.to_owned());
                }
            }
        }
        if functions.is_empty() {
            return Err("/proc/kallsyms shows no addresses; set `sysctl.kernel.kptr_restrict=0`".to_owned());
        }
        let (methods, programs): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(|program| program.file.starts_with(METHOD));
        let name = |method: &Program| method.file[METHOD.len()..].to_owned();
        let methods = methods.iter().map(|method| (method.start, (method.end, name(method)))).collect();
        Ok(Self { functions, calls, programs, methods })
    }

    /// The system call whose function begins at `address`.
    pub fn system_call(&self, address: u64) -> Option<&str> {
        self.calls.get(&address).map(String::as_str)
    }

    /// The function at `address`; in user space the name of the file alone, or of a method that a program compiled.
    pub fn name(&self, address: u64) -> String {
        if address >= KERNEL {
            let before = self.functions.range(..=address).next_back();
            return before.map_or(UNKNOWN_FUNCTION, |(_, name)| name).to_owned();
        }
        if let Some((_, (end, name))) = self.methods.range(..=address).next_back()
            && address < *end
        {
            return format!("user: {name}");
        }
        let mut files: Vec<&str> =
            self.programs.iter().filter(|p| (p.start..p.end).contains(&address)).map(|p| file_name(&p.file)).collect();
        files.dedup();
        match files[..] {
            [] => UNKNOWN_PROGRAM.to_owned(),
            _ => format!("user: {}", files.join(" or ")),
        }
    }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// A function's name without the suffixes that the compiler and the build add from one kernel to the next: clones (`.constprop.0`, `.isra.0`,
/// `.part.0`, `.cold`) and the `_noprof` of memory allocation profiling (since 6.10).
pub fn plain(name: &str) -> &str {
    let name = name.split('.').next().filter(|first| !first.is_empty()).unwrap_or(name);
    name.strip_suffix("_noprof").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81000000 T startup_64\nffffffff81000100 t do_it.isra.0\n\
        ffffffff81000080 T __x64_sys_read\nffffffff81000180 D data\nffffffff81000200 W __kmalloc_noprof\nffffffffc0000000 t null_transfer\t[null_blk]\n";

    fn symbols() -> Symbols {
        let maps = [
            ("init", "7f00000-7f02000 r-xp 00000000 00:02 17 /init\n7f02000-7f03000 rw-p 00000000 00:02 17 /init"),
            ("init", "7f00000-7f02000 r-xp 00000000 00:02 17 /init\n7ffe000-7fff000 r-xp 00000000 00:00 0 [vdso]"),
            ("java", "7ffe800-7fff000 r-xp 00000000 00:00 0 /lib/x.so\n7f04000-7f05000 rwxp 00000000 00:00 0 "),
        ];
        let method = |start, file: &str| Program { start, end: start + 0x20, file: format!("{METHOD}{file}") };
        let methods = [method(0x7f0_4020, "a.B.<init> (java)"), method(0x7f0_4040, "a.B.c (java)")];
        Symbols::new(KALLSYMS, programs(maps).into_iter().chain(methods).collect()).unwrap()
    }

    #[test]
    fn an_address_is_its_functions_whatever_the_compiler_made_of_the_name() {
        let s = symbols();
        for (address, name) in [
            (0xffff_ffff_8100_0000, "_text"),
            (0xffff_ffff_8100_01ff, "do_it"),
            (0xffff_ffff_8100_0200, "__kmalloc"),
            (0xffff_ffff_c000_0010, "null_transfer"),
            (0xffff_ffff_80ff_ffff, UNKNOWN_FUNCTION),
            (0x7f0_1000, "user: init"),
            (0x7ff_e000, "user: [vdso] (init)"),
            (0x7ff_e900, "user: x.so (java) or [vdso] (init)"),
            (0x7f0_4010, "user: compiled code (java)"),
            (0x7f0_4020, "user: a.B.<init> (java)"),
            (0x7f0_405f, "user: a.B.c (java)"),
            (0x7f0_4060, "user: compiled code (java)"),
            (0x7f0_2000, UNKNOWN_PROGRAM),
        ] {
            let mut got = s.name(address);
            if got.contains(" or ") {
                // The order is that of the addresses where they begin.
                got = got.replace("[vdso] (init) or x.so (java)", "x.so (java) or [vdso] (init)");
            }
            assert_eq!(got, name, "{address:x}");
        }
    }

    #[test]
    fn a_system_call_is_its_functions_first_instruction() {
        let s = symbols();
        assert_eq!(s.system_call(0xffff_ffff_8100_0080), Some("read"));
        assert_eq!((s.system_call(0xffff_ffff_8100_0081), s.system_call(0xffff_ffff_8100_0100)), (None, None));
    }

    #[test]
    fn a_guest_tells_its_symbols_in_fewer_bytes() {
        let text = KALLSYMS.replace("ffffffff81000100 t", "ffffffff810000f0 t __pfx_do_it\nffffffff81000100 t");
        let lines = compact(&text);
        assert_eq!(lines[..3], ["ffffffff81000000 _text", "100 do_it", "ffffffffffffff80 __x64_sys_read"]);
        assert_eq!(lines.len(), 5);
        let (whole, told) = (Symbols::new(KALLSYMS, Vec::new()), Symbols::from_compact(&lines.join("\n"), Vec::new()));
        let (whole, told) = (whole.unwrap(), told.unwrap());
        assert_eq!((&told.functions, &told.calls), (&whole.functions, &whole.calls));
        // Names of one address.
        let calls = "ffffffff81000000 T f\nffffffff81000000 T g\nffffffff81000000 T __x64_sys_g\n";
        assert_eq!(compact(calls), ["ffffffff81000000 f", "0 __x64_sys_g"]);
        assert!(Symbols::from_compact(&compact("0000000000000000 T _text\n").join("\n"), Vec::new()).is_err());
        assert!(Symbols::from_compact("no symbols", Vec::new()).is_err());
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        let error = Symbols::new("0000000000000000 T _text\n", Vec::new()).unwrap_err();
        assert!(error.contains("kptr_restrict"), "{error}");
    }

    #[test]
    fn names_lose_what_differs_between_builds() {
        for (name, is) in [
            ("a.constprop.0.isra.0", "a"),
            ("b.cold", "b"),
            ("kmem_cache_alloc_noprof", "kmem_cache_alloc"),
            (".L", ".L"),
        ] {
            assert_eq!(plain(name), is);
        }
    }
}
