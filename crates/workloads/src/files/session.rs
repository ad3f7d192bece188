//! One client's session with a server of SMB: the requests of the protocol for each of the loadfile's.
//!
//! Invariant: each request of a loadfile is answered by the server; the client remembers nothing of its files but their handles.

use std::net::SocketAddrV4;

use anyhow::{Context as _, Result, anyhow, bail};

use super::samba::Samba;
use crate::fs_clients::{Expectation, Pattern, Refused, Writer, of_client};
use crate::loadfile::replay::{Server, Service};
use crate::loadfile::{CLIENT, DEFAULT, DIRECTORY, FileOperation, Request, Settings, Status};
use bigiron_service::samba::{SHARE, USER};
use bigiron_smb::{Account, Client, FileId, NtStatus, OpenKind, SmbError};

/// The time that is set as a file's, in 100 ns since 1601: the beginning of 2004.
const TIME: u64 = 127_173_888_000_000_000;
/// Dispositions of the protocol.
const OPEN: u32 = 1;
const CREATE: u32 = 2;
const OPEN_OR_CREATE: u32 = 3;

impl From<SmbError> for Refused {
    fn from(error: SmbError) -> Self {
        let SmbError::Status(status) = error else { return Self::Failed(error.into()) };
        match status {
            NtStatus::NAME_NOT_FOUND => Self::With(Status::NameNotFound),
            NtStatus::PATH_NOT_FOUND => Self::With(Status::PathNotFound),
            NtStatus::NO_SUCH_FILE => Self::With(Status::NoSuchFile),
            NtStatus::NAME_COLLISION => Self::With(Status::NameCollision),
            NtStatus::DIRECTORY_NOT_EMPTY => Self::With(Status::DirectoryNotEmpty),
            NtStatus::ACCESS_DENIED => Self::With(Status::AccessDenied),
            // As where the file system itself is full.
            NtStatus::DISK_FULL => Self::Failed(std::io::Error::from_raw_os_error(libc::ENOSPC).into()),
            _ => Self::Failed(SmbError::Status(status).into()),
        }
    }
}

/// Connects each client.
pub struct Sessions<'a> {
    pub settings: &'a Settings,
    pub samba: &'a Samba,
    pub address: SocketAddrV4,
    pub password: &'a str,
    pub pattern: &'a Pattern,
    /// Whether every byte that is read in the first pass is checked.
    pub checked: bool,
}

impl<'a> Service for Sessions<'a> {
    type Server = Session<'a>;

    fn open(&self, client: usize) -> Result<Session<'a>> {
        let account = Account { user: USER, password: self.password };
        let mut smb = Client::connect(self.address, self.samba.terms(), account, SHARE).map_err(|error| {
            let hint = match error {
                SmbError::NoMultichannel | SmbError::Channel { .. } => "; `files.channels` `1` needs no multichannel",
                _ => "",
            };
            anyhow!(error).context(format!("The server at {} refuses a session{hint}", self.address))
        })?;
        let root = smb.open("", OpenKind::Directory { disposition: OPEN }).context("The share cannot be opened")?.id;
        let file = &self.settings.file;
        let paths = file.paths.iter().map(|path| of_share(path, client)).collect::<Result<Vec<_>>>()?;
        let longest = smb.longest().min(u32::MAX as usize) as u32;
        if file.longest() > longest {
            bail!("A request of the loadfile has {} bytes; the server accepts at most {longest}", file.longest());
        }
        let checks = (self.settings.name == DEFAULT, self.checked);
        let expected = Expectation::new(file, self.pattern, client, checks);
        let (pattern, oplocks) = (self.pattern, self.samba.oplocks);
        let mut session = Session {
            smb,
            root,
            own: of_share(CLIENT, client)?,
            client,
            pattern,
            oplocks,
            paths,
            open: Vec::new(),
            pass: 0,
            expected,
        };
        session.reset()?;
        Ok(session)
    }
}

/// A path of the loadfile as the share has it.
fn of_share(path: &str, client: usize) -> Result<String> {
    Ok(of_client(path, client)?.into_string().context("A path is not text")?.replace('/', "\\"))
}

/// A client's session.
pub struct Session<'a> {
    smb: Client,
    /// The share's top.
    root: FileId,
    /// The client's own directory.
    own: String,
    client: usize,
    pattern: &'a Pattern,
    oplocks: bool,
    /// The loadfile's paths, in the share.
    paths: Vec<String>,
    open: Vec<OpenFile>,
    pass: u32,
    expected: Expectation<'a>,
}

struct OpenFile {
    handle: u32,
    id: FileId,
    phase: u64,
}

impl Session<'_> {
    fn opened(&self, handle: u32) -> Result<&OpenFile, Refused> {
        let open = self.open.iter().rev().find(|o| o.handle == handle);
        open.ok_or_else(|| Refused::Failed(anyhow!("Handle {handle} is not open")))
    }

    /// Opens a path, works with it, and closes it.
    fn with<T>(
        &mut self,
        path: &str,
        kind: OpenKind,
        work: impl FnOnce(&mut Client, FileId) -> Result<T, SmbError>,
    ) -> Result<T, Refused> {
        let open = self.smb.open(path, kind)?;
        let done = work(&mut self.smb, open.id);
        let closed = self.smb.close(open.id);
        let done = done?;
        closed?;
        Ok(done)
    }

    fn create(&mut self, (path, handle): (u32, u32), options: u32, disposition: u32) -> Result<(), Refused> {
        let name = &self.paths[path as usize];
        let kind = match (options & DIRECTORY != 0, disposition) {
            // A directory may exist already, as in `fs-clients`.
            (true, OPEN) => OpenKind::Directory { disposition: OPEN },
            (true, _) => OpenKind::Directory { disposition: OPEN_OR_CREATE },
            (false, disposition) => OpenKind::Data { disposition, oplock: self.oplocks },
        };
        let open = self.smb.open(name, kind)?;
        let phase = self.pattern.phase(Writer { client: self.client, pass: self.pass, path });
        self.open.push(OpenFile { handle, id: open.id, phase });
        Ok(())
    }

    /// The number of entries of a directory that match the last part of `path`.
    fn count(&mut self, path: u32) -> Result<u32, Refused> {
        let path = self.paths[path as usize].clone();
        let (parent, pattern) = path.rsplit_once('\\').unwrap_or(("", &path));
        let mut count = 0;
        self.with(parent, OpenKind::Directory { disposition: OPEN }, |smb, id| smb.list(id, pattern, |_| count += 1))
            .map_err(|refused| match refused {
            // The directory is a part of the path.
            Refused::With(Status::NameNotFound) => Refused::With(Status::PathNotFound),
            other => other,
        })?;
        if count > 0 { Ok(count) } else { Err(Refused::With(Status::NoSuchFile)) }
    }

    /// Removes a directory, or a file, with everything below it.
    fn remove_all(&mut self, path: &str) -> Result<(), Refused> {
        let mut entries = Vec::new();
        let kind = OpenKind::Directory { disposition: OPEN };
        match self.with(path, kind, |smb, id| smb.list(id, "*", |entry| entries.push(entry))) {
            Err(Refused::With(Status::NameNotFound | Status::PathNotFound)) => return Ok(()),
            other => other?,
        }
        for entry in entries.into_iter().filter(|entry| ![".", ".."].contains(&&*entry.name)) {
            let inside = format!("{path}\\{}", entry.name);
            if entry.is_directory {
                self.remove_all(&inside)?;
            } else {
                self.with(&inside, OpenKind::Unlink, |_, _| Ok(()))?;
            }
        }
        self.with(path, OpenKind::Remove, Client::remove)
    }

    fn close_all(&mut self) -> Result<(), SmbError> {
        let open = std::mem::take(&mut self.open);
        open.into_iter().try_for_each(|open| self.smb.close(open.id))
    }

    fn do_it(&mut self, request: &Request) -> Result<(), Refused> {
        let name = |path: u32| self.paths[path as usize].clone();
        match request.action {
            FileOperation::Create { path, options, disposition, handle } => {
                self.create((path, handle), options, disposition as u32)
            }
            FileOperation::Close { handle } => {
                let n = self.open.iter().rposition(|o| o.handle == handle).context("The handle is not open")?;
                let open = self.open.swap_remove(n);
                Ok(self.smb.close(open.id)?)
            }
            FileOperation::Read { handle, offset, size, found } => {
                let id = self.opened(handle)?.id;
                let read = self.smb.read(id, offset, size)?;
                self.expected.check_read(handle, offset, found, read)
            }
            FileOperation::Write { handle, offset, size } => {
                let open = self.opened(handle)?;
                let (id, piece) = (open.id, self.pattern.piece(open.phase, offset, size as usize));
                Ok(self.smb.write(id, offset, piece)?)
            }
            FileOperation::Flush { handle } => {
                let id = self.opened(handle)?.id;
                Ok(self.smb.flush(id)?)
            }
            FileOperation::Lock { handle, offset, size } => {
                let id = self.opened(handle)?.id;
                Ok(self.smb.lock(id, offset, size.into(), true)?)
            }
            FileOperation::Unlock { handle, offset, size } => {
                let id = self.opened(handle)?.id;
                Ok(self.smb.lock(id, offset, size.into(), false)?)
            }
            FileOperation::Unlink { path, .. } => self.with(&name(path), OpenKind::Unlink, |_, _| Ok(())),
            FileOperation::Rename { from, to } => {
                let (from, to) = (name(from), name(to));
                self.with(&from, OpenKind::Remove, |smb, id| smb.rename(id, &to))
            }
            FileOperation::Mkdir { path } => {
                // All clients create their common directory.
                let disposition = if request.status == Status::Ok { OPEN_OR_CREATE } else { CREATE };
                self.with(&name(path), OpenKind::Directory { disposition }, |_, _| Ok(()))
            }
            FileOperation::Rmdir { path } => self.with(&name(path), OpenKind::Remove, Client::remove),
            FileOperation::Deltree { path } => self.remove_all(&name(path)),
            FileOperation::QueryPath { path, .. } => self.with(&name(path), OpenKind::Look, Client::query),
            FileOperation::QueryFile { handle, .. } => {
                let id = self.opened(handle)?.id;
                Ok(self.smb.query(id)?)
            }
            FileOperation::QueryFs { .. } => Ok(self.smb.query_file_system(self.root)?),
            FileOperation::SetFile { handle, .. } => {
                let id = self.opened(handle)?.id;
                Ok(self.smb.set_time(id, TIME)?)
            }
            FileOperation::Find { path, found, .. } => {
                let count = self.count(path)?;
                self.expected.check_count(count, found)
            }
        }
    }
}

impl Server for Session<'_> {
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
        let own = self.own.clone();
        let create = OpenKind::Directory { disposition: OPEN_OR_CREATE };
        let made = self.remove_all(&own).and_then(|()| self.with(&own, create, |_, _| Ok(())));
        match made {
            Ok(()) => Ok(()),
            Err(Refused::With(status)) => bail!("Cannot renew a client's directory: {}", status.name()),
            Err(Refused::Failed(e)) => Err(e.context("Cannot renew a client's directory")),
        }
    }
}
