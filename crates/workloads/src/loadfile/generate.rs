//! Generates a loadfile: the requests of office programs to a file server, with the published frequencies and sizes of a NetBench
//! client.
//!
//! Invariant: the requests depend only on the size and its seed, and every expected status, byte count and entry count follows
//! from the requests before it.

use std::collections::HashMap;

use super::{CLIENT, DIRECTORY, Disposition, FileOperation, Loadfile, Request, RequestKind, Status};
use bigiron_sys::load::rng::SplitMix64;

/// The size of a generated loadfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Approximate number of requests of a pass.
    pub requests: u32,
    pub seed: u64,
}

impl Default for Size {
    fn default() -> Self {
        Self { requests: 4000, seed: 1 }
    }
}

/// Requests in a NetBench client's pass; the following counts add up to it.
const PASS: u64 = 458_344;
/// Number of sessions; a session runs from an open to its close.
const CREATED: u64 = 16_056;
const OPENED: u64 = 38_519;
const OPENED_DIRECTORIES: u64 = 3_613;
/// Requests within sessions.
const READS: u64 = 124_199;
const WRITES: u64 = 39_502;
const QUERY_FILES: u64 = 12_585;
const SET_FILES: u64 = 6_454;
const FLUSHES: u64 = 5_553;
const LOCKS: u64 = 258;
/// Requests between sessions.
const BETWEEN: [(Between, u64); 10] = [
    (Between::OpenAbsent, 21_030),
    (Between::Query(1004), 28_074),
    (Between::Query(1035), 19_355),
    (Between::QueryAbsent, 24_256),
    (Between::QueryLost, 129),
    (Between::Find, 13_437),
    (Between::FindAbsent, 14_328),
    (Between::Unlink, 16_000),
    (Between::QueryFs, 13_168),
    (Between::Rename, 3_355),
];
/// Sizes of reads, with their counts; the last ones stand for many sizes with few reads each.
const READ_SIZES: [(u32, u64); 16] = [
    (4096, 83_172),
    (61_440, 16_641),
    (8192, 4_644),
    (2048, 4_644),
    (16_384, 1_937),
    (512, 1_161),
    (543, 648),
    (1024, 645),
    (32_768, 387),
    (3072, 387),
    (2084, 387),
    (1536, 387),
    (184, 387),
    (24, 387),
    (16, 2_000),
    (256, 6_385),
];
/// Sizes of writes.
const WRITE_SIZES: [(u32, u64); 11] = [
    (65_536, 12_658),
    (4096, 9_942),
    (1, 7_424),
    (2048, 1_677),
    (8192, 1_164),
    (510, 387),
    (15_360, 258),
    (19_979, 1_500),
    (42_652, 1_500),
    (9_298, 1_500),
    (14_000, 1_492),
];
/// Working directories of the programs, and the number of file names in each.
const DIRECTORIES: [&str; 9] =
    ["books", "charts", "drawing", "fonts", "letters", "plans", "sheets", "slides", "tables"];
const NAMES: usize = 16;
/// Maximum number of large files that exist from the start, and their bytes.
const LARGE: u64 = 25;
const LARGE_BYTES: u64 = 1 << 20;
const BLOCK: u32 = 65_536;
/// Maximum size of a file.
const FILE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    OpenAbsent,
    Query(u32),
    QueryAbsent,
    /// A query in a directory that does not exist.
    QueryLost,
    Find,
    FindAbsent,
    Unlink,
    QueryFs,
    Rename,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Create,
    Open,
    Directory,
}

/// From an open to its close.
struct Session {
    opening: Opening,
    /// Sizes, and the number of consecutive reads of each.
    reads: Vec<(u32, u64)>,
    writes: Vec<(u32, u64)>,
    query_files: u64,
    set_files: u64,
    flushes: u64,
    locks: u64,
}

/// Generates a loadfile.
pub fn generate(size: Size) -> Loadfile {
    let share = |count: u64| (count * u64::from(size.requests) + PASS / 2) / PASS;
    let mut g = Generator::new(size.seed);
    let large = (share(WRITE_SIZES[0].1) / 2 / (LARGE_BYTES / u64::from(BLOCK))).clamp(1, LARGE);
    g.lay_out(large);
    let made = g.file.count(RequestKind::Create) as u64;
    let written = [g.file.count(RequestKind::Write) as u64, large * (LARGE_BYTES / u64::from(BLOCK)), large];
    let mut sessions: Vec<_> = [
        (Opening::Create, share(CREATED).saturating_sub(made)),
        (Opening::Open, share(OPENED)),
        (Opening::Directory, share(OPENED_DIRECTORIES)),
    ]
    .into_iter()
    .flat_map(|(opening, count)| (0..count.max(1)).map(move |_| Session::new(opening)))
    .collect();
    g.shuffle(&mut sessions);
    let mut sizes = apportion(&WRITE_SIZES, share(WRITES));
    for (size, less) in [(BLOCK, written[1]), (1, written[2])] {
        if let Some((_, left)) = sizes.iter_mut().find(|(s, _)| *s == size) {
            *left = left.saturating_sub(less);
        }
    }
    g.deal_runs(&mut sessions, sizes, 3, |s| matches!(s.opening, Opening::Create), |s| &mut s.writes);
    let reads = apportion(&READ_SIZES, share(READS));
    g.deal_runs(&mut sessions, reads, 6, |s| matches!(s.opening, Opening::Open), |s| &mut s.reads);
    let files = |s: &Session| s.opening != Opening::Directory;
    g.deal(&mut sessions, share(QUERY_FILES).saturating_sub(large), files, |s| &mut s.query_files);
    g.deal(&mut sessions, share(SET_FILES), files, |s| &mut s.set_files);
    g.deal(&mut sessions, share(FLUSHES), |s| s.opening == Opening::Create, |s| &mut s.flushes);
    g.deal(&mut sessions, share(LOCKS), |s| s.opening == Opening::Open, |s| &mut s.locks);
    let mut between: Vec<_> = apportion(&BETWEEN, share(BETWEEN.iter().map(|(_, n)| n).sum()))
        .into_iter()
        .flat_map(|(what, count)| (0..count).map(move |_| what))
        .collect();
    g.shuffle(&mut between);
    let (count, mut between) = (between.len(), between.into_iter());
    let mut dealt = 0;
    for (n, session) in sessions.iter().enumerate() {
        g.session(session);
        let until = count * (n + 1) / sessions.len();
        between.by_ref().take(until - dealt).for_each(|what| g.between(what));
        dealt = until;
    }
    let own = g.path(CLIENT);
    g.push(FileOperation::Deltree { path: own }, Status::Ok);
    g.file
}

/// Divides `total` by weight, exactly.
fn apportion<T: Copy>(weights: &[(T, u64)], total: u64) -> Vec<(T, u64)> {
    let sum: u64 = weights.iter().map(|(_, w)| w).sum();
    let (mut passed, mut given) = (0, 0);
    let each = |(what, weight): &(T, u64)| {
        passed += weight;
        let until = (passed * total + sum / 2) / sum;
        let count = until - given;
        given = until;
        (*what, count)
    };
    weights.iter().map(each).collect()
}

impl Session {
    fn new(opening: Opening) -> Self {
        Self { opening, reads: Vec::new(), writes: Vec::new(), query_files: 0, set_files: 0, flushes: 0, locks: 0 }
    }
}

/// A possible name of a file.
struct Name {
    path: u32,
    /// Its bytes, if the file exists.
    size: Option<u64>,
}

struct Generator {
    rng: SplitMix64,
    file: Loadfile,
    numbers: HashMap<String, u32>,
    /// Large files first, then those of each directory.
    names: Vec<Name>,
    large: usize,
    directories: Vec<u32>,
    handle: u32,
}

impl Generator {
    fn new(seed: u64) -> Self {
        Self {
            rng: SplitMix64::stream(seed, "loadfile"),
            file: Loadfile::default(),
            numbers: HashMap::new(),
            names: Vec::new(),
            large: 0,
            directories: Vec::new(),
            handle: 10_000,
        }
    }

    fn push(&mut self, action: FileOperation, status: Status) {
        let line = self.file.requests.len() as u32 + 1;
        self.file.requests.push(Request { action, status, line });
    }

    fn path(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.file.paths.len() as u32;
        self.file.paths.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for n in (1..items.len()).rev() {
            let other = self.below(n + 1);
            items.swap(n, other);
        }
    }

    /// Distributes `count` requests at random among the sessions that accept them.
    fn deal(
        &mut self,
        sessions: &mut [Session],
        count: u64,
        takes: impl Fn(&Session) -> bool,
        of: impl Fn(&mut Session) -> &mut u64,
    ) {
        let takers: Vec<_> = (0..sessions.len()).filter(|n| takes(&sessions[*n])).collect();
        for _ in 0..count {
            *of(&mut sessions[takers[self.below(takers.len())]]) += 1;
        }
    }

    /// Distributes transfers among the sessions that accept them, in runs of one size with a mean length of `mean`.
    fn deal_runs(
        &mut self,
        sessions: &mut [Session],
        mut sizes: Vec<(u32, u64)>,
        mean: u64,
        takes: impl Fn(&Session) -> bool,
        of: impl Fn(&mut Session) -> &mut Vec<(u32, u64)>,
    ) {
        let takers: Vec<_> = (0..sessions.len()).filter(|n| takes(&sessions[*n])).collect();
        loop {
            let left: u64 = sizes.iter().map(|(_, n)| n).sum();
            if left == 0 {
                return;
            }
            let mut drawn = self.rng.below(left);
            for (size, count) in &mut sizes {
                if drawn < *count {
                    let run = (1 + self.rng.below(2 * mean - 1)).min(*count);
                    *count -= run;
                    let taker = takers[self.rng.below(takers.len() as u64) as usize];
                    of(&mut sessions[taker]).push((*size, run));
                    break;
                }
                drawn -= *count;
            }
        }
    }

    /// Creates the directories and the large files.
    fn lay_out(&mut self, large: u64) {
        let own = self.path(CLIENT);
        let root = self.path("");
        self.push(FileOperation::Deltree { path: own }, Status::Ok);
        self.push(FileOperation::Mkdir { path: root }, Status::Ok);
        self.directory(own);
        let work = self.path(&format!("{CLIENT}/work"));
        self.directory(work);
        self.directories.push(work);
        for name in DIRECTORIES {
            let path = self.path(&format!("{CLIENT}/work/{name}"));
            self.directory(path);
            self.directories.push(path);
        }
        for n in 0..large {
            let path = self.path(&format!("{CLIENT}/large.{n:03}"));
            self.names.push(Name { path, size: Some(LARGE_BYTES) });
            let handle = self.create(path, 0x40, Disposition::Create);
            // Office programs extend the file first.
            self.push(FileOperation::Write { handle, offset: u64::from(BLOCK) - 2, size: 1 }, Status::Ok);
            self.push(FileOperation::QueryFile { handle, level: 258 }, Status::Ok);
            for offset in (0..LARGE_BYTES).step_by(BLOCK as usize) {
                self.push(FileOperation::Write { handle, offset, size: BLOCK }, Status::Ok);
            }
            self.push(FileOperation::Close { handle }, Status::Ok);
        }
        self.large = large as usize;
        for directory in DIRECTORIES {
            for n in 0..NAMES {
                let path = self.path(&format!("{CLIENT}/work/{directory}/file{n:02}.dat"));
                self.names.push(Name { path, size: None });
            }
        }
    }

    fn directory(&mut self, path: u32) {
        let handle = self.create(path, DIRECTORY, Disposition::Create);
        self.push(FileOperation::Close { handle }, Status::Ok);
    }

    fn create(&mut self, path: u32, options: u32, disposition: Disposition) -> u32 {
        self.handle += 1;
        self.push(FileOperation::Create { path, options, disposition, handle: self.handle }, Status::Ok);
        self.handle
    }

    /// A small file's name, existing or not; `None` if there is none.
    fn small(&mut self, there: bool) -> Option<usize> {
        let fit: Vec<_> = (self.large..self.names.len()).filter(|n| self.names[*n].size.is_some() == there).collect();
        (!fit.is_empty()).then(|| fit[self.below(fit.len())])
    }

    /// An existing file of at least this many bytes.
    fn of_bytes(&mut self, bytes: u64) -> usize {
        for _ in 0..4 {
            if let Some(n) = self.small(true)
                && self.names[n].size.is_some_and(|size| size >= bytes)
            {
                return n;
            }
        }
        self.below(self.large)
    }

    fn absent(&mut self) -> u32 {
        match self.small(false) {
            Some(n) => self.names[n].path,
            None => self.path(&format!("{CLIENT}/work/absent.dat")),
        }
    }

    fn session(&mut self, session: &Session) {
        let name = match session.opening {
            Opening::Directory => {
                let directory = self.below(self.directories.len());
                let path = self.directories[directory];
                let handle = self.create(path, 0, Disposition::Open);
                return self.push(FileOperation::Close { handle }, Status::Ok);
            }
            Opening::Create => match self.small(false) {
                Some(name) => name,
                None => {
                    self.between(Between::Unlink);
                    self.small(false).unwrap_or(self.large)
                }
            },
            Opening::Open => self.of_bytes(session.reads.iter().map(|(size, _)| u64::from(*size)).max().unwrap_or(0)),
        };
        let path = self.names[name].path;
        let create = session.opening == Opening::Create;
        let disposition = if create { Disposition::Create } else { Disposition::Open };
        let handle = self.create(path, 0x40, disposition);
        let mut bytes = self.names[name].size.unwrap_or(0);
        for _ in 0..session.query_files {
            self.push(FileOperation::QueryFile { handle, level: 258 }, Status::Ok);
        }
        for _ in 0..session.locks {
            let (offset, size) = (1 << 30, 1);
            self.push(FileOperation::Lock { handle, offset, size }, Status::Ok);
            self.push(FileOperation::Unlock { handle, offset, size }, Status::Ok);
        }
        let mut at = 0;
        for (size, count) in &session.writes {
            for _ in 0..*count {
                // A single byte extends the file for later writes.
                let offset = if *size == 1 { bytes + 4095 } else { at };
                let offset = if offset + u64::from(*size) > FILE_BYTES { 0 } else { offset };
                self.push(FileOperation::Write { handle, offset, size: *size }, Status::Ok);
                bytes = bytes.max(offset + u64::from(*size));
                if *size > 1 {
                    at = offset + u64::from(*size);
                }
            }
        }
        for (size, count) in &session.reads {
            let places = (bytes - u64::from(*size)) / 4096 + 1;
            let mut at = 4096 * self.rng.below(places);
            for _ in 0..*count {
                at = if at + u64::from(*size) > bytes { 0 } else { at };
                self.push(FileOperation::Read { handle, offset: at, size: *size, found: *size }, Status::Ok);
                at += u64::from(*size);
            }
        }
        for _ in 0..session.flushes {
            self.push(FileOperation::Flush { handle }, Status::Ok);
        }
        for _ in 0..session.set_files {
            self.push(FileOperation::SetFile { handle, level: 1004 }, Status::Ok);
        }
        self.push(FileOperation::Close { handle }, Status::Ok);
        self.names[name].size = Some(bytes);
    }

    fn between(&mut self, what: Between) {
        let find = |path, found| FileOperation::Find { path, level: 260, most: 1366, found };
        match what {
            Between::OpenAbsent => {
                let (path, disposition) = (self.absent(), Disposition::Open);
                self.push(FileOperation::Create { path, options: 0x40, disposition, handle: 0 }, Status::NameNotFound);
            }
            Between::Query(level) => {
                let name = self.of_bytes(0);
                let path = self.names[name].path;
                self.push(FileOperation::QueryPath { path, level }, Status::Ok);
            }
            Between::QueryAbsent => {
                let path = self.absent();
                self.push(FileOperation::QueryPath { path, level: 1004 }, Status::NameNotFound);
            }
            Between::QueryLost => {
                let path = self.path(&format!("{CLIENT}/work/gone/file00.dat"));
                self.push(FileOperation::QueryPath { path, level: 1004 }, Status::PathNotFound);
            }
            Between::Find => {
                // Nine in ten list the directory of directories.
                if self.below(10) > 0 {
                    let path = self.path(&format!("{CLIENT}/work/*"));
                    return self.push(find(path, DIRECTORIES.len() as u32 + 2), Status::Ok);
                }
                let directory = self.below(DIRECTORIES.len());
                let names = &self.names[self.large + directory * NAMES..][..NAMES];
                let there = names.iter().filter(|n| n.size.is_some()).count() as u32;
                let path = self.path(&format!("{CLIENT}/work/{}/*", DIRECTORIES[directory]));
                self.push(find(path, there + 2), Status::Ok);
            }
            Between::FindAbsent => {
                let path = self.absent();
                self.push(find(path, 0), Status::NoSuchFile);
            }
            Between::Unlink => {
                // Without files there is nothing to remove.
                if let Some(name) = self.small(true) {
                    self.names[name].size = None;
                    let path = self.names[name].path;
                    self.push(FileOperation::Unlink { path, attributes: 6 }, Status::Ok);
                }
            }
            Between::QueryFs => self.push(FileOperation::QueryFs { level: 259 }, Status::Ok),
            Between::Rename => {
                if let (Some(from), Some(to)) = (self.small(true), self.small(false)) {
                    self.names[to].size = self.names[from].size.take();
                    let (from, to) = (self.names[from].path, self.names[to].path);
                    self.push(FileOperation::Rename { from, to }, Status::Ok);
                }
            }
        }
    }
}
