//! Which program's which function a user-space address is in: what processes had mapped when sampling began, and what they mapped meanwhile.
//!
//! Invariant: of mappings of one process the latest counts; a process that was never heard of (forked meanwhile, and gone again) has what another
//! process has mapped there, which is where it got it from.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::elf::Functions;
use super::record::Mapping;
use crate::probe::symbols::UNKNOWN_PROGRAM;

/// Processes and what they execute.
#[derive(Debug, Default)]
pub struct Programs {
    /// By process, the latest last.
    mappings: BTreeMap<u32, Vec<Mapping>>,
    names: BTreeMap<u32, String>,
}

impl Programs {
    /// Those that run now.
    pub fn running() -> Self {
        let mut all = Self::default();
        all.update();
        all
    }

    /// Adds what is not known yet of those that run now.
    pub fn update(&mut self) {
        let pid = |name: &OsStr| name.to_str()?.parse::<u32>().ok();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| pid(&entry.file_name()));
        for pid in pids {
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
            if !self.mappings.contains_key(&pid) {
                // Kernel threads have none.
                let maps = read("maps").unwrap_or_default();
                self.mappings.insert(pid, maps.lines().filter_map(mapping).collect());
            }
            if let (false, Ok(name)) = (self.names.contains_key(&pid), read("comm")) {
                self.names.insert(pid, name.trim_end().to_owned());
            }
        }
    }

    pub fn map(&mut self, pid: u32, mapping: Mapping) {
        self.mappings.entry(pid).or_default().push(mapping);
    }

    pub fn name(&mut self, pid: u32, name: String) {
        self.names.insert(pid, name);
    }

    /// Who a process is: the first file that it has mapped, which is its program's, or a kernel thread's name without its number; `None` if it was never
    /// heard of.
    pub fn who(&self, pid: u32) -> Option<String> {
        match self.mappings.get(&pid).and_then(|all| all.iter().rev().find(|m| m.file.starts_with('/'))) {
            // A program that another was replaced by was mapped later; its libraries have names that say so.
            Some(last) => {
                let of_last =
                    self.mappings[&pid].iter().rev().find(|m| m.file.starts_with('/') && !is_library(&m.file));
                Some(file_name(&of_last.unwrap_or(last).file).to_owned())
            }
            None => self.names.get(&pid).map(|name| thread_kind(name).to_owned()),
        }
    }

    /// The mapping that `address` of a process is in.
    fn find(&self, pid: u32, address: u64) -> Option<&Mapping> {
        let within = |m: &&Mapping| (m.start..m.end).contains(&address);
        let own = self.mappings.get(&pid).and_then(|all| all.iter().rev().find(within));
        own.or_else(|| self.mappings.values().find_map(|all| all.iter().rev().find(within)))
    }
}

/// A shared library, by its name.
fn is_library(file: &str) -> bool {
    let name = file_name(file);
    name.ends_with(".so") || name.contains(".so.") || name.starts_with("ld-")
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE FILE` of `/proc/PID/maps`, if it is code.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    words.next().filter(|permissions| permissions.contains('x'))?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let offset = number(words.next()?)?;
    let file = words.nth(2)?.to_owned();
    Some(Mapping { start: number(start)?, end: number(end)?, offset, file })
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// `kworker` of `kworker/0:1H-kblockd`, `jbd2` of `jbd2/vda1-8`, `ksoftirqd` of `ksoftirqd/1`: what does not change from one trial to the next.
fn thread_kind(name: &str) -> &str {
    name.split(['/', ':']).next().filter(|kind| !kind.is_empty()).unwrap_or(name)
}

/// Names of addresses, each looked up once.
pub struct Names<'a> {
    programs: &'a Programs,
    files: HashMap<PathBuf, Functions>,
    known: HashMap<(u32, u64), String>,
}

impl<'a> Names<'a> {
    pub fn new(programs: &'a Programs) -> Self {
        Self { programs, files: HashMap::new(), known: HashMap::new() }
    }

    /// The name of the file that an address is in.
    pub fn file(&self, pid: u32, address: u64) -> Option<String> {
        self.programs.find(pid, address).map(|mapping| file_name(&mapping.file).to_owned())
    }

    /// `user: FUNCTION (FILE)`, or the file alone, or that it is not known.
    pub fn name(&mut self, pid: u32, address: u64) -> &str {
        let (programs, files) = (self.programs, &mut self.files);
        self.known.entry((pid, address)).or_insert_with(|| {
            let Some(mapping) = programs.find(pid, address) else { return UNKNOWN_PROGRAM.to_owned() };
            let file = file_name(&mapping.file);
            let path = Path::new(&mapping.file);
            let functions = files.entry(path.to_owned()).or_insert_with(|| Functions::of_file(path));
            match functions.name(address - mapping.start + mapping.offset) {
                Some(function) => format!("user: {function} ({file})"),
                None => format!("user: {file}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping_of(start: u64, file: &str) -> Mapping {
        Mapping { start, end: start + 0x1000, offset: 0, file: file.to_owned() }
    }

    #[test]
    fn code_is_what_may_be_executed() {
        let line = "7f1200000000-7f1200002000 r-xp 00001000 08:01 17   /usr/lib/x.so";
        let is = Mapping {
            start: 0x7f12_0000_0000,
            end: 0x7f12_0000_2000,
            offset: 0x1000,
            file: "/usr/lib/x.so".to_owned(),
        };
        assert_eq!(mapping(line), Some(is));
        assert_eq!(mapping("7f1200000000-7f1200002000 rw-p 00001000 08:01 17   /usr/lib/x.so"), None);
        assert_eq!(mapping("7f1200000000-7f1200002000 r-xp 00000000 00:00 0"), None);
    }

    #[test]
    fn the_latest_mapping_counts_and_a_stranger_has_what_others_have() {
        let mut programs = Programs::default();
        programs.map(7, mapping_of(0x1000, "/bin/sh"));
        programs.map(7, mapping_of(0x8000, "/lib/libc.so.6"));
        assert_eq!(programs.who(7).as_deref(), Some("sh"));
        programs.map(7, mapping_of(0x1000, "/nonexistent/postgres"));
        programs.map(7, mapping_of(0x9000, "/lib/ld-linux-x86-64.so.2"));
        assert_eq!(programs.who(7).as_deref(), Some("postgres"));
        let mut names = Names::new(&programs);
        assert_eq!(names.name(7, 0x1800), "user: postgres");
        assert_eq!(names.name(8, 0x8800), "user: libc.so.6");
        assert_eq!(names.name(8, 0x7000), UNKNOWN_PROGRAM);
    }

    #[test]
    fn kernel_threads_are_called_by_their_kind() {
        let mut programs = Programs::default();
        for (pid, name) in [(1, "kworker/0:1H-kblockd"), (2, "ksoftirqd/1"), (3, "kswapd0"), (4, "jbd2/vda1-8")] {
            programs.name(pid, name.to_owned());
        }
        let kinds: Vec<_> = (1..=5).map(|pid| programs.who(pid)).collect();
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(kinds, [is("kworker"), is("ksoftirqd"), is("kswapd0"), is("jbd2"), None]);
    }

    #[test]
    fn this_process_is_among_those_that_run() {
        let programs = Programs::running();
        let me = std::process::id();
        let address = this_processs_own as fn() as usize as u64;
        let name = Names::new(&programs).name(me, address).to_owned();
        assert!(name.contains("this_processs_own") && name.contains(&programs.who(me).unwrap()), "{name}");
    }

    #[inline(never)]
    fn this_processs_own() {
        std::hint::black_box(());
    }
}
