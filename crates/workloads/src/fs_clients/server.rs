//! A file server's handling of one client's requests: the system calls and the meaning of their results.
//!
//! Invariant: names are looked up as such servers do, ignoring case: one `stat`, and if there is no file of exactly that name, a
//! search of its directory. The result of a request is compared with the status that the loadfile expects.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::answer::{Expectation, Refused};
use super::content::{Pattern, Writer};
use super::names::{matches, of_client};
use crate::loadfile::replay::Server;
use crate::loadfile::{DIRECTORY, Disposition, FileOperation, Loadfile, Request, Status};
use bigiron_sys::close::close;
use bigiron_sys::record_lock;

/// Bytes of directory entries read at once.
const ENTRIES: usize = 32 << 10;

/// What is synchronous in addition to the loadfile's flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syncing {
    /// Every write, with `O_SYNC`.
    pub writes: bool,
    /// Every change of a directory, with an `fsync` of it.
    pub directories: bool,
}

/// Serves one client from the file system.
pub struct FileServer<'a> {
    pattern: &'a Pattern,
    client: usize,
    syncing: Syncing,
    /// The loadfile's paths, relative to the working directory.
    paths: Vec<CString>,
    /// Their parent directories.
    parents: Vec<CString>,
    open: Vec<Open>,
    pass: u32,
    buffer: Vec<u8>,
    entries: Box<[MaybeUninit<u8>]>,
    expected: Expectation<'a>,
}

struct Open {
    handle: u32,
    fd: OwnedFd,
    path: u32,
    phase: u64,
}

/// The result of looking up a name.
enum NameLookup {
    /// The exact name exists.
    Here(Stat),
    /// The name exists in another spelling.
    Otherwise(CString),
    Nothing,
    /// The directory does not exist.
    Nowhere,
}

impl<'a> FileServer<'a> {
    /// A server for `client`, with `dir` as the working directory of this process.
    ///
    /// # Errors
    /// If the client's own directory cannot be created.
    pub fn new(
        dir: &Path,
        file: &'a Loadfile,
        pattern: &'a Pattern,
        client: usize,
        syncing: Syncing,
        checks: (bool, bool),
    ) -> Result<Self> {
        rustix::process::chdir(dir).with_context(|| format!("Cannot work in `{}`", dir.display()))?;
        let paths = file.paths.iter().map(|p| of_client(p, client)).collect::<Result<Vec<_>>>()?;
        let parents = paths.iter().map(|p| parent(p)).collect();
        let mut server = Self {
            pattern,
            client,
            syncing,
            paths,
            parents,
            open: Vec::new(),
            pass: 0,
            buffer: vec![0; file.longest() as usize],
            entries: vec![MaybeUninit::uninit(); ENTRIES].into_boxed_slice(),
            expected: Expectation::new(file, pattern, client, checks),
        };
        server.reset()?;
        Ok(server)
    }

    fn path(&self, path: u32) -> &CStr {
        &self.paths[path as usize]
    }

    fn find(&mut self, path: u32) -> Result<NameLookup, Refused> {
        let name = &self.paths[path as usize];
        match rustix::fs::stat(name.as_c_str()) {
            Ok(stat) => return Ok(NameLookup::Here(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(e) => return Err(e.into()),
        }
        let last = last_part(name);
        let mut found = None;
        let there = look_through(&self.parents[path as usize], &mut self.entries, |entry| {
            if found.is_none() && entry.eq_ignore_ascii_case(last) {
                found = Some(entry.to_vec());
            }
        })?;
        Ok(match (there, found) {
            (false, _) => NameLookup::Nowhere,
            (true, None) => NameLookup::Nothing,
            (true, Some(entry)) => {
                let mut other = name.as_bytes().to_vec();
                other.truncate(other.len() - last.len());
                other.extend(entry);
                NameLookup::Otherwise(CString::new(other).map_err(|e| anyhow!(e))?)
            }
        })
    }

    /// The name under which a file exists; if none does, the reply says what is missing.
    fn existing(&mut self, path: u32) -> Result<Option<CString>, Refused> {
        match self.find(path)? {
            NameLookup::Here(_) => Ok(None),
            NameLookup::Otherwise(name) => Ok(Some(name)),
            NameLookup::Nothing => Err(Refused::With(Status::NameNotFound)),
            NameLookup::Nowhere => Err(Refused::With(Status::PathNotFound)),
        }
    }

    fn opened(&self, handle: u32) -> Result<&Open, Refused> {
        let open = self.open.iter().rev().find(|o| o.handle == handle);
        open.ok_or_else(|| Refused::Failed(anyhow!("Handle {handle} is not open")))
    }

    fn create(&mut self, path: u32, options: u32, disposition: Disposition, handle: u32) -> Result<(), Refused> {
        let found = self.find(path)?;
        let directory = match &found {
            NameLookup::Nowhere => return Err(Refused::With(Status::PathNotFound)),
            NameLookup::Here(stat) => rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir(),
            _ => false,
        };
        let other = if let NameLookup::Otherwise(name) = &found { Some(name.as_c_str()) } else { None };
        let name = other.unwrap_or(&self.paths[path as usize]);
        let mut made = false;
        let flags = if options & DIRECTORY != 0 || directory {
            if disposition.creates() && options & DIRECTORY != 0 {
                match rustix::fs::mkdir(name, Mode::RWXU) {
                    Ok(()) => made = true,
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            OFlags::RDONLY | OFlags::DIRECTORY
        } else {
            let mut flags = OFlags::RDWR;
            flags.set(OFlags::CREATE, disposition.creates());
            flags.set(OFlags::TRUNC, disposition.truncates());
            flags.set(OFlags::SYNC, self.syncing.writes);
            made = disposition.creates() && matches!(found, NameLookup::Nothing);
            flags
        };
        let fd = match rustix::fs::open(name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
            Err(Errno::ISDIR) => {
                rustix::fs::open(name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            }
            other => other,
        }?;
        rustix::fs::fstat(&fd)?;
        let phase = self.pattern.phase(Writer { client: self.client, pass: self.pass, path });
        self.open.push(Open { handle, fd, path, phase });
        if made { self.changed(path) } else { Ok(()) }
    }

    /// The parent directory of `path` has changed.
    fn changed(&self, path: u32) -> Result<(), Refused> {
        if self.syncing.directories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::fsync(rustix::fs::open(self.parents[path as usize].as_c_str(), flags, Mode::empty())?)?;
        }
        Ok(())
    }

    fn read(&mut self, request: (u32, u64, u32, u32)) -> Result<(), Refused> {
        let (handle, offset, size, found) = request;
        let mut buffer = std::mem::take(&mut self.buffer);
        let read =
            self.opened(handle).and_then(|o| Ok(rustix::io::pread(&o.fd, &mut buffer[..size as usize], offset)?));
        self.buffer = buffer;
        self.expected.check_read(handle, offset, found, &self.buffer[..read?])
    }

    fn write(&mut self, handle: u32, offset: u64, size: u32) -> Result<(), Refused> {
        let open = self.opened(handle)?;
        let piece = self.pattern.piece(open.phase, offset, size as usize);
        let written = rustix::io::pwrite(&open.fd, piece, offset)?;
        if written == piece.len() { Ok(()) } else { Err(anyhow!("{written} of {size} bytes were written").into()) }
    }

    /// The number of entries that match a pattern.
    fn list(&mut self, path: u32) -> Result<u32, Refused> {
        match self.find(path)? {
            NameLookup::Here(_) | NameLookup::Otherwise(_) => return Ok(1),
            NameLookup::Nowhere => return Err(Refused::With(Status::PathNotFound)),
            NameLookup::Nothing => {}
        }
        let pattern = last_part(&self.paths[path as usize]);
        let mut count = 0;
        look_through(&self.parents[path as usize], &mut self.entries, |entry| {
            count += u32::from(matches(pattern, entry));
        })?;
        if count > 0 { Ok(count) } else { Err(Refused::With(Status::NoSuchFile)) }
    }

    /// Writes a file's own times back to it, with the precision of DOS.
    fn set_times(&self, handle: u32) -> Result<(), Refused> {
        let open = self.opened(handle)?;
        let stat = rustix::fs::fstat(&open.fd)?;
        let even = |seconds: i64| Timespec { tv_sec: seconds & !1, tv_nsec: 0 };
        let times =
            Timestamps { last_access: even(stat.st_mtime as i64), last_modification: even(stat.st_mtime as i64) };
        Ok(rustix::fs::utimensat(CWD, self.path(open.path), &times, AtFlags::empty())?)
    }

    fn close_all(&mut self) -> Result<()> {
        self.open.drain(..).try_for_each(|open| close(open.fd).context("Cannot close a file"))
    }

    fn do_it(&mut self, request: &Request) -> Result<(), Refused> {
        match request.action {
            FileOperation::Create { path, options, disposition, handle } => {
                self.create(path, options, disposition, handle)
            }
            FileOperation::Close { handle } => {
                let n = self.open.iter().rposition(|o| o.handle == handle).context("The handle is not open")?;
                // A network file system may tell only now that it could not write.
                Ok(close(self.open.swap_remove(n).fd)?)
            }
            FileOperation::Read { handle, offset, size, found } => self.read((handle, offset, size, found)),
            FileOperation::Write { handle, offset, size } => self.write(handle, offset, size),
            FileOperation::Flush { handle } => Ok(rustix::fs::fsync(&self.opened(handle)?.fd)?),
            FileOperation::Lock { handle, offset, size } => {
                Ok(record_lock::set(self.opened(handle)?.fd.as_fd(), offset, size.into(), true)?)
            }
            FileOperation::Unlock { handle, offset, size } => {
                Ok(record_lock::set(self.opened(handle)?.fd.as_fd(), offset, size.into(), false)?)
            }
            FileOperation::Unlink { path, .. } => {
                let other = self.existing(path)?;
                rustix::fs::unlink(other.as_deref().unwrap_or(self.path(path)))?;
                self.changed(path)
            }
            FileOperation::Rename { from, to } => {
                let (old, new) = (self.existing(from)?, self.find(to)?);
                let new = if let NameLookup::Otherwise(name) = &new { Some(name.as_c_str()) } else { None };
                rustix::fs::rename(old.as_deref().unwrap_or(self.path(from)), new.unwrap_or(self.path(to)))?;
                self.changed(to)
            }
            FileOperation::Mkdir { path } => match rustix::fs::mkdir(self.path(path), Mode::RWXU) {
                // All clients create their common directory.
                Err(Errno::EXIST) if request.status == Status::Ok => Ok(()),
                other => Ok(other?),
            },
            FileOperation::Rmdir { path } => Ok(rustix::fs::rmdir(self.path(path))?),
            FileOperation::Deltree { path } => remove_all(self.path(path)),
            FileOperation::QueryPath { path, .. } => self.existing(path).map(drop),
            FileOperation::QueryFile { handle, .. } => Ok(rustix::fs::fstat(&self.opened(handle)?.fd).map(drop)?),
            FileOperation::QueryFs { .. } => Ok(rustix::fs::statfs(c".").map(drop)?),
            FileOperation::SetFile { handle, .. } => self.set_times(handle),
            FileOperation::Find { path, found, .. } => {
                let count = self.list(path)?;
                self.expected.check_count(count, found)
            }
        }
    }
}

impl Server for FileServer<'_> {
    fn begin(&mut self, pass: u32) -> Result<()> {
        self.close_all()?;
        self.pass = pass;
        self.expected.begin(pass);
        Ok(())
    }

    fn measured(&mut self) {
        self.expected.measured();
    }

    fn serve(&mut self, request: &Request) -> Result<()> {
        let answer = self.do_it(request);
        self.expected.check(request, answer)
    }

    fn reset(&mut self) -> Result<()> {
        self.close_all()?;
        let own = of_client(crate::loadfile::CLIENT, self.client)?;
        match remove_all(&own) {
            Ok(()) => {}
            Err(Refused::With(status)) => bail!("Cannot remove a client's directory: {}", status.name()),
            Err(Refused::Failed(e)) => return Err(e.context("Cannot remove a client's directory")),
        }
        rustix::fs::mkdir(own.as_c_str(), Mode::RWXU).context("Cannot create a client's directory")
    }
}

/// Calls `see` for every entry of a directory; returns whether the directory exists.
fn look_through(directory: &CStr, buffer: &mut [MaybeUninit<u8>], mut see: impl FnMut(&[u8])) -> Result<bool, Refused> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(directory, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        other => other?,
    };
    let mut entries = RawDir::new(fd, buffer);
    while let Some(entry) = entries.next() {
        see(entry?.file_name().to_bytes());
    }
    Ok(true)
}

fn remove_all(path: &CStr) -> Result<(), Refused> {
    use std::os::unix::ffi::OsStrExt;
    match std::fs::remove_dir_all(std::ffi::OsStr::from_bytes(path.to_bytes())) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

/// The part after the last `/`.
fn last_part(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default()
}

fn parent(path: &CStr) -> CString {
    let bytes = path.to_bytes();
    let end = bytes.iter().rposition(|b| *b == b'/');
    CString::new(end.map_or(&b"."[..], |end| &bytes[..end])).unwrap_or_default()
}
