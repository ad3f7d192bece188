//! Which processes belong to the trial, and which function of which program contains a user-space address.
//!
//! Processes that execute the same program share an image if one was forked from the other. A process that executes another program gets a new image.
//!
//! Invariant: every descendant of the trial's process belongs to the trial, even if its parents end; an earlier process does not.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::elf::Functions;
use super::record::Mapping;
use crate::symbols::{UNKNOWN_PROGRAM, file_name};

/// For whom a process works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A CPU's idle task; interrupts of an idle CPU count here too.
    Idle,
    /// A kernel thread.
    Kernel,
    /// A process of the trial.
    Trial,
    /// The process that takes the samples.
    Sampler,
    Other,
}

/// The mappings of processes.
#[derive(Debug)]
struct Image {
    role: Role,
    /// The name of a kernel thread.
    name: String,
    /// Latest mapping last.
    mappings: Vec<Mapping>,
}

/// Processes and what they execute.
#[derive(Debug)]
pub struct Programs {
    images: Vec<Image>,
    /// The image of each process.
    of: HashMap<u32, u32>,
}

/// Images that always exist: the idle task, and unknown processes.
const IDLE: u32 = 0;
const STRANGER: u32 = 1;

impl Default for Programs {
    fn default() -> Self {
        let image = |role, name: &str| Image { role, name: name.to_owned(), mappings: Vec::new() };
        Self {
            images: vec![image(Role::Idle, "idle task"), image(Role::Other, "unknown")],
            of: HashMap::from([(0, IDLE)]),
        }
    }
}

impl Programs {
    /// The running processes; `own` is the process that takes the samples, and everything that it forks belongs to the trial.
    pub fn running(own: u32) -> Self {
        let mut all = Self::default();
        let pid = |name: &OsStr| name.to_str()?.parse::<u32>().ok();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| pid(&entry.file_name()));
        for pid in pids {
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
            let (Ok(maps), Ok(name)) = (read("maps"), read("comm")) else { continue };
            // Kernel threads have no mappings.
            let role = match maps.is_empty() {
                _ if pid == own => Role::Sampler,
                true => Role::Kernel,
                false => Role::Other,
            };
            all.add(pid, role, name.trim_end(), maps.lines().filter_map(mapping).collect());
        }
        all
    }

    fn add(&mut self, pid: u32, role: Role, name: &str, mappings: Vec<Mapping>) {
        self.of.insert(pid, self.images.len() as u32);
        self.images.push(Image { role, name: thread_kind(name).to_owned(), mappings });
    }

    /// Adds a process that takes samples, for tests.
    #[cfg(test)]
    pub(crate) fn sampler(&mut self, pid: u32, program: Mapping) {
        self.add(pid, Role::Sampler, "", vec![program]);
    }

    /// The image of a process, by number.
    pub fn image(&self, pid: u32) -> u32 {
        self.of.get(&pid).copied().unwrap_or(STRANGER)
    }

    pub fn role(&self, image: u32) -> Role {
        self.images[image as usize].role
    }

    pub fn fork(&mut self, pid: u32, parent: u32) {
        let image = self.image(parent);
        match self.role(image) {
            Role::Sampler => {
                let mappings = self.images[image as usize].mappings.clone();
                self.add(pid, Role::Trial, "", mappings);
            }
            _ => drop(self.of.insert(pid, image)),
        }
    }

    /// A process has changed its name.
    pub fn name(&mut self, pid: u32, name: &str, executes: bool) {
        let role = self.role(self.image(pid));
        if executes || role == Role::Kernel {
            self.add(pid, role, name, Vec::new());
        }
    }

    pub fn map(&mut self, pid: u32, mapping: Mapping) {
        let image = self.image(pid);
        if image > STRANGER {
            self.images[image as usize].mappings.push(mapping);
        }
    }

    /// The name of an image: the program that it has mapped, or the kind of a kernel thread.
    pub fn who(&self, image: u32) -> &str {
        let image = &self.images[image as usize];
        // The kernel maps the program first; libraries follow.
        image.mappings.iter().find(|m| m.file.starts_with('/')).map_or(image.name.as_str(), |m| file_name(&m.file))
    }

    /// The mapping that contains `address` of an image.
    fn find(&self, image: u32, address: u64) -> Option<&Mapping> {
        self.images[image as usize].mappings.iter().rev().find(|m| (m.start..m.end).contains(&address))
    }
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

/// `kworker` of `kworker/0:1H-kblockd`, `jbd2` of `jbd2/vda1-8`, `ksoftirqd` of `ksoftirqd/1`: the part that does not vary between trials.
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

    /// `user: FUNCTION (FILE)`, or the file alone, or a text for an unknown program.
    pub fn name(&mut self, image: u32, address: u64) -> &str {
        let (programs, files) = (self.programs, &mut self.files);
        self.known.entry((image, address)).or_insert_with(|| {
            let Some(mapping) = programs.find(image, address) else { return UNKNOWN_PROGRAM.to_owned() };
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
    fn who_descends_from_the_trial_is_the_trials() {
        let mut programs = Programs::default();
        programs.sampler(7, mapping_of(0x1000, "/bin/bigiron"));
        programs.add(8, Role::Other, "sh", vec![mapping_of(0x1000, "/bin/sh")]);
        programs.fork(9, 7);
        programs.fork(10, 9);
        programs.fork(11, 8);
        programs.fork(12, 99);
        let roles = [0, 7, 8, 9, 10, 11, 12, 13].map(|pid| programs.role(programs.image(pid)));
        use Role::{Idle, Other, Sampler, Trial};
        assert_eq!(roles, [Idle, Sampler, Other, Trial, Trial, Other, Other, Other]);
        // The same program until the process executes another.
        assert_eq!((programs.image(9), programs.who(programs.image(10))), (programs.image(10), "bigiron"));
        programs.name(10, "thread", false);
        assert_eq!(programs.image(9), programs.image(10));
        programs.name(10, "postgres", true);
        programs.map(10, mapping_of(0x1000, "/nonexistent/postgres"));
        programs.map(10, mapping_of(0x8000, "/lib/libc.so.6"));
        assert_eq!((programs.who(programs.image(10)), programs.who(programs.image(9))), ("postgres", "bigiron"));
        assert_eq!(programs.role(programs.image(10)), Trial);
        let mut names = Names::new(&programs);
        assert_eq!(names.name(programs.image(10), 0x1800), "user: postgres");
        assert_eq!(names.name(programs.image(10), 0x8800), "user: libc.so.6");
        assert_eq!(names.name(programs.image(10), 0x7000), UNKNOWN_PROGRAM);
    }

    #[test]
    fn kernel_threads_are_called_by_their_kind() {
        let mut programs = Programs::default();
        for (pid, name) in [(1, "kworker/0:1H-kblockd"), (2, "ksoftirqd/1"), (3, "kswapd0"), (4, "jbd2/vda1-8")] {
            programs.add(pid, Role::Kernel, name, Vec::new());
        }
        programs.fork(5, 2);
        programs.name(5, "kworker/1:7", false);
        let kinds: Vec<_> = (1..=5).map(|pid| programs.who(programs.image(pid))).collect();
        assert_eq!(kinds, ["kworker", "ksoftirqd", "kswapd0", "jbd2", "kworker"]);
    }

    #[test]
    fn this_process_is_among_those_that_run() {
        let me = std::process::id();
        let programs = Programs::running(me);
        let address = this_processs_own as fn() as usize as u64;
        let image = programs.image(me);
        let name = Names::new(&programs).name(image, address).to_owned();
        assert!(name.contains("this_processs_own") && name.contains(programs.who(image)), "{name}");
        assert_eq!(programs.role(image), Role::Sampler);
    }

    #[inline(never)]
    fn this_processs_own() {
        std::hint::black_box(());
    }
}
