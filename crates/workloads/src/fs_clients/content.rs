//! The expected contents of a client's files, computed from the loadfile without reading the files.
//!
//! Invariant: every byte that a client writes depends on the seed, the client, its pass, the path that the file was opened by and
//! the byte's offset, so that stale, misplaced and foreign data are detected.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::loadfile::{DIRECTORY, FileOperation, Loadfile, Request, Status};
use bigiron_sys::load::rng::{SplitMix64, mix};

/// Period of the pattern: a prime, so that offsets a round number apart differ.
const PERIOD: u64 = 65_521;

/// The data of all writes; a write takes a slice without copying.
pub struct Pattern {
    seed: u64,
    bytes: Vec<u8>,
}

/// The writer, its pass, and the path of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    pub client: usize,
    pub pass: u32,
    pub path: u32,
}

impl Pattern {
    /// A pattern for slices of up to `longest` bytes.
    pub fn new(seed: u64, longest: u32) -> Self {
        let mut rng = SplitMix64::stream(seed, "content");
        let words = (PERIOD as usize).div_ceil(8);
        let mut period: Vec<u8> = (0..words).flat_map(|_| rng.next().to_le_bytes()).collect();
        period.truncate(PERIOD as usize);
        let length = PERIOD as usize + longest as usize;
        Self { seed, bytes: period.iter().copied().cycle().take(length).collect() }
    }

    /// The position in the pattern of a file's first byte.
    pub fn phase(&self, writer: Writer) -> u64 {
        let who = mix((writer.client as u64) << 32 | u64::from(writer.pass));
        mix(self.seed ^ who ^ mix(u64::from(writer.path) << 1 | 1)) % PERIOD
    }

    /// The expected bytes at `offset`.
    pub fn piece(&self, phase: u64, offset: u64, length: usize) -> &[u8] {
        &self.bytes[((offset + phase) % PERIOD) as usize..][..length]
    }
}

/// A part of a file written by one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    offset: u64,
    size: u32,
    phase: u64,
}

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub bytes: u64,
    /// Later extents cover earlier ones.
    extents: Vec<Extent>,
}

impl Content {
    fn write(&mut self, new: Extent) {
        let end = |e: &Extent| e.offset + u64::from(e.size);
        self.extents.retain(|old| old.offset < new.offset || end(old) > end(&new));
        self.bytes = self.bytes.max(end(&new));
        self.extents.push(new);
    }

    /// Writes the expected bytes at `offset` to a buffer; bytes that were never written are zero.
    pub fn paint(&self, pattern: &Pattern, offset: u64, to: &mut [u8]) {
        to.fill(0);
        let end = offset + to.len() as u64;
        for e in &self.extents {
            let (from, until) = (e.offset.max(offset), (e.offset + u64::from(e.size)).min(end));
            if from < until {
                let length = (until - from) as usize;
                to[(from - offset) as usize..][..length].copy_from_slice(pattern.piece(e.phase, from, length));
            }
        }
    }
}

/// The files of a client.
pub struct Tree<'a> {
    file: &'a Loadfile,
    pattern: &'a Pattern,
    client: usize,
    /// By their paths in lower case.
    names: BTreeMap<String, usize>,
    directories: BTreeSet<String>,
    contents: Vec<Content>,
    /// The file, and the path it was opened by.
    open: HashMap<u32, (Option<usize>, u32)>,
}

impl<'a> Tree<'a> {
    /// The tree before the first pass: empty.
    pub fn new(file: &'a Loadfile, pattern: &'a Pattern, client: usize) -> Self {
        let (names, directories, contents, open) = Default::default();
        Self { file, pattern, client, names, directories, contents, open }
    }

    /// All existing files.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Content)> {
        self.names.iter().map(|(name, n)| (name.as_str(), &self.contents[*n]))
    }

    /// The contents of the file open as `handle`; `None` for a directory.
    pub fn opened(&self, handle: u32) -> Option<&Content> {
        self.open.get(&handle).and_then(|(n, _)| Some(&self.contents[(*n)?]))
    }

    /// Starts a new pass, without open files.
    pub fn begin(&mut self) {
        self.open.clear();
    }

    fn name(&self, path: u32) -> String {
        self.file.paths[path as usize].to_lowercase()
    }

    /// Applies a request that was answered as expected.
    pub fn apply(&mut self, request: &Request, pass: u32) {
        if request.status != Status::Ok {
            return;
        }
        match request.action {
            FileOperation::Create { path, options, disposition, handle } => {
                let name = self.name(path);
                if options & DIRECTORY != 0 || self.directories.contains(&name) {
                    self.directories.insert(name);
                    self.open.insert(handle, (None, path));
                    return;
                }
                let n = *self.names.entry(name).or_insert_with(|| {
                    self.contents.push(Content::default());
                    self.contents.len() - 1
                });
                if disposition.truncates() {
                    self.contents[n] = Content::default();
                }
                self.open.insert(handle, (Some(n), path));
            }
            FileOperation::Close { handle } => drop(self.open.remove(&handle)),
            FileOperation::Write { handle, offset, size } => {
                if let Some((Some(n), path)) = self.open.get(&handle) {
                    let phase = self.pattern.phase(Writer { client: self.client, pass, path: *path });
                    self.contents[*n].write(Extent { offset, size, phase });
                }
            }
            FileOperation::Unlink { path, .. } => drop(self.names.remove(&self.name(path))),
            FileOperation::Mkdir { path } => drop(self.directories.insert(self.name(path))),
            FileOperation::Rename { from, to } => {
                let (from, to) = (self.name(from), self.name(to));
                if let Some(n) = self.names.remove(&from) {
                    self.names.insert(to, n);
                } else {
                    self.move_below(&from, &to);
                }
            }
            FileOperation::Rmdir { path } | FileOperation::Deltree { path } => {
                let name = self.name(path);
                let stays = |other: &str| other != name && !is_below(other, &name);
                self.names.retain(|n, _| stays(n));
                self.directories.retain(|n| stays(n));
            }
            _ => {}
        }
    }

    /// Renames a directory with everything below it.
    fn move_below(&mut self, from: &str, to: &str) {
        let moved = |name: &str| match name == from || is_below(name, from) {
            true => format!("{to}{}", &name[from.len()..]),
            false => name.to_owned(),
        };
        self.names = std::mem::take(&mut self.names).into_iter().map(|(name, n)| (moved(&name), n)).collect();
        self.directories = self.directories.iter().map(|name| moved(name)).collect();
    }
}

fn is_below(name: &str, directory: &str) -> bool {
    directory.is_empty() || name.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadfile::parse;

    const LOAD: &str = r#"NTCreateX "\clients\client1\Sub" 0x1 0x2 1 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX "\clients\client1\Sub\a" 0x40 0x2 2 NT_STATUS_OK
WriteX 2 10 1 1 NT_STATUS_OK
WriteX 2 100000 10 10 NT_STATUS_OK
WriteX 2 100005 2 2 NT_STATUS_OK
Close 2 NT_STATUS_OK
Rename "\clients\client1\sub" "\clients\client1\other" NT_STATUS_OK
Rename "\clients\client1\other\a" "\clients\client1\b" NT_STATUS_OK
NTCreateX "\clients\client1\x" 0x40 0x1 3 NT_STATUS_OBJECT_NAME_NOT_FOUND
"#;

    #[test]
    fn writes_lie_above_one_another_and_follow_renames() {
        let file = parse("load", LOAD).unwrap();
        let pattern = Pattern::new(7, 100);
        let mut tree = Tree::new(&file, &pattern, 3);
        file.requests.iter().for_each(|r| tree.apply(r, 5));
        let files: Vec<_> = tree.files().collect();
        assert_eq!(files.len(), 1);
        let (name, content) = files[0];
        assert_eq!((name, content.bytes), ("client1/b", 100_010));
        let phase = pattern.phase(Writer { client: 3, pass: 5, path: 1 });
        let mut painted = vec![9; 20];
        content.paint(&pattern, 0, &mut painted);
        assert_eq!(painted[10], pattern.piece(phase, 10, 1)[0]);
        assert!(painted[11..].iter().all(|b| *b == 0));
        content.paint(&pattern, 99_995, &mut painted[..15]);
        assert_eq!(painted[..5], [0; 5]);
        assert_eq!(painted[5..15], *pattern.piece(phase, 100_000, 10));
    }

    #[test]
    fn what_is_removed_is_gone_with_all_below() {
        let text = format!("{LOAD}Deltree \"\\clients\\client1\" NT_STATUS_OK\n");
        let file = parse("load", &text).unwrap();
        let pattern = Pattern::new(7, 100);
        let mut tree = Tree::new(&file, &pattern, 0);
        file.requests.iter().for_each(|r| tree.apply(r, 1));
        assert_eq!(tree.files().count(), 0);
    }

    #[test]
    fn clients_passes_and_paths_write_differently() {
        let pattern = Pattern::new(1, 64);
        let base = Writer { client: 1, pass: 1, path: 1 };
        let others = [Writer { client: 2, ..base }, Writer { pass: 2, ..base }, Writer { path: 2, ..base }];
        let piece = |w| pattern.piece(pattern.phase(w), 4096, 64).to_vec();
        assert!(others.iter().all(|w| piece(*w) != piece(base)));
        assert_ne!(pattern.piece(0, 0, 64), pattern.piece(0, 65_536, 64));
    }
}
