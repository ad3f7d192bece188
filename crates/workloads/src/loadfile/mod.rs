//! Loadfiles: a client's requests to a file server, one per line, in the format of dbench 4.
//!
//! Invariant: anything not understood is refused with its line; nothing is ignored.

#[cfg(test)]
mod fuzz;
mod generate;
pub mod metrics;
mod options;
mod parse;
pub mod replay;
pub mod settings;
mod wire;

use std::fmt;

pub use generate::{Size, generate};
pub use options::{DEFAULT, embed, of};
pub use parse::parse;
pub use replay::Replayed;
pub use settings::Settings;
pub use wire::Packets;

/// A request. Paths are indexes into [`Loadfile::paths`], handles are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Opens a file or directory, and creates it if the disposition says so.
    Create {
        path: u32,
        options: u32,
        disposition: Disposition,
        handle: u32,
    },
    Close {
        handle: u32,
    },
    Read {
        handle: u32,
        offset: u64,
        size: u32,
        /// Bytes found.
        found: u32,
    },
    Write {
        handle: u32,
        offset: u64,
        size: u32,
    },
    Flush {
        handle: u32,
    },
    Lock {
        handle: u32,
        offset: u64,
        size: u32,
    },
    Unlock {
        handle: u32,
        offset: u64,
        size: u32,
    },
    Unlink {
        path: u32,
        attributes: u32,
    },
    Rename {
        from: u32,
        to: u32,
    },
    Mkdir {
        path: u32,
    },
    Rmdir {
        path: u32,
    },
    /// Removes a directory with everything below it.
    Deltree {
        path: u32,
    },
    QueryPath {
        path: u32,
        level: u32,
    },
    QueryFile {
        handle: u32,
        level: u32,
    },
    QueryFs {
        level: u32,
    },
    SetFile {
        handle: u32,
        level: u32,
    },
    Find {
        path: u32,
        level: u32,
        most: u32,
        /// Entries found.
        found: u32,
    },
}

/// How to treat a file that exists, or does not exist; numbers as in SMB's `NT_CREATE_ANDX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Supersede,
    Open,
    Create,
    OpenOrCreate,
    Overwrite,
    OverwriteOrCreate,
}

impl Disposition {
    const ALL: [Self; 6] =
        [Self::Supersede, Self::Open, Self::Create, Self::OpenOrCreate, Self::Overwrite, Self::OverwriteOrCreate];

    fn of(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Whether it may create a file.
    pub fn creates(self) -> bool {
        !matches!(self, Self::Open | Self::Overwrite)
    }

    /// Whether it truncates a file.
    pub fn truncates(self) -> bool {
        matches!(self, Self::Supersede | Self::Overwrite | Self::OverwriteOrCreate)
    }
}

/// Option of [`FileOperation::Create`]: the name is a directory.
pub const DIRECTORY: u32 = 1;

/// The status that the reply must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    NameNotFound,
    PathNotFound,
    NoSuchFile,
    NameCollision,
    DirectoryNotEmpty,
    AccessDenied,
}

impl Status {
    const ALL: [(&str, Self); 7] = [
        ("NT_STATUS_OK", Self::Ok),
        ("NT_STATUS_OBJECT_NAME_NOT_FOUND", Self::NameNotFound),
        ("NT_STATUS_OBJECT_PATH_NOT_FOUND", Self::PathNotFound),
        ("NT_STATUS_NO_SUCH_FILE", Self::NoSuchFile),
        ("NT_STATUS_OBJECT_NAME_COLLISION", Self::NameCollision),
        ("NT_STATUS_DIRECTORY_NOT_EMPTY", Self::DirectoryNotEmpty),
        ("NT_STATUS_ACCESS_DENIED", Self::AccessDenied),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, s)| *s == self).map_or("", |(name, _)| name)
    }
}

/// The kind of a request, by which counts and latencies are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    Create,
    Close,
    Read,
    Write,
    Flush,
    Lock,
    Unlock,
    Unlink,
    Rename,
    Mkdir,
    Rmdir,
    Deltree,
    QueryPath,
    QueryFile,
    QueryFs,
    SetFile,
    Find,
}

/// Number of kinds.
pub const KINDS: usize = RequestKind::ALL.len();

impl RequestKind {
    /// In the order of their numbers: the name in a loadfile, and the name in a metric.
    pub const ALL: [(Self, &str, &str); 17] = [
        (Self::Create, "NTCreateX", "create"),
        (Self::Close, "Close", "close"),
        (Self::Read, "ReadX", "read"),
        (Self::Write, "WriteX", "write"),
        (Self::Flush, "Flush", "flush"),
        (Self::Lock, "LockX", "lock"),
        (Self::Unlock, "UnlockX", "unlock"),
        (Self::Unlink, "Unlink", "unlink"),
        (Self::Rename, "Rename", "rename"),
        (Self::Mkdir, "Mkdir", "mkdir"),
        (Self::Rmdir, "Rmdir", "rmdir"),
        (Self::Deltree, "Deltree", "deltree"),
        (Self::QueryPath, "QUERY_PATH_INFORMATION", "query-path"),
        (Self::QueryFile, "QUERY_FILE_INFORMATION", "query-file"),
        (Self::QueryFs, "QUERY_FS_INFORMATION", "query-fs"),
        (Self::SetFile, "SET_FILE_INFORMATION", "set-file"),
        (Self::Find, "FIND_FIRST", "find"),
    ];

    /// Its name in a loadfile.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Its name in a metric.
    pub fn metric(self) -> &'static str {
        Self::ALL[self as usize].2
    }
}

impl FileOperation {
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::Create { .. } => RequestKind::Create,
            Self::Close { .. } => RequestKind::Close,
            Self::Read { .. } => RequestKind::Read,
            Self::Write { .. } => RequestKind::Write,
            Self::Flush { .. } => RequestKind::Flush,
            Self::Lock { .. } => RequestKind::Lock,
            Self::Unlock { .. } => RequestKind::Unlock,
            Self::Unlink { .. } => RequestKind::Unlink,
            Self::Rename { .. } => RequestKind::Rename,
            Self::Mkdir { .. } => RequestKind::Mkdir,
            Self::Rmdir { .. } => RequestKind::Rmdir,
            Self::Deltree { .. } => RequestKind::Deltree,
            Self::QueryPath { .. } => RequestKind::QueryPath,
            Self::QueryFile { .. } => RequestKind::QueryFile,
            Self::QueryFs { .. } => RequestKind::QueryFs,
            Self::SetFile { .. } => RequestKind::SetFile,
            Self::Find { .. } => RequestKind::Find,
        }
    }
}

/// A line of a loadfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub action: FileOperation,
    pub status: Status,
    /// From 1.
    pub line: u32,
}

impl Request {
    /// Its contribution to the throughput: bytes read or written, if it is expected to succeed.
    pub fn bytes(&self) -> u64 {
        match self.action {
            FileOperation::Read { found, .. } if self.status == Status::Ok => found.into(),
            FileOperation::Write { size, .. } if self.status == Status::Ok => size.into(),
            _ => 0,
        }
    }
}

/// One pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loadfile {
    /// Relative to the clients' common directory, with `/` between the parts; the first client's own directory is `client1`.
    pub paths: Vec<String>,
    pub requests: Vec<Request>,
}

/// The name in loadfiles of the parent of all clients' directories.
pub const ROOT: &str = "clients";
/// The name in loadfiles of a client's own directory.
pub const CLIENT: &str = "client1";

impl Loadfile {
    /// Number of requests of `kind`.
    pub fn count(&self, kind: RequestKind) -> usize {
        self.requests.iter().filter(|r| r.action.kind() == kind).count()
    }

    /// Bytes read and bytes written.
    pub fn bytes(&self) -> (u64, u64) {
        self.requests.iter().fold((0, 0), |(read, written), r| match r.action.kind() {
            RequestKind::Read => (read + r.bytes(), written),
            RequestKind::Write => (read, written + r.bytes()),
            _ => (read, written),
        })
    }

    /// The longest transfer.
    pub fn longest(&self) -> u32 {
        let size = |r: &Request| match r.action {
            FileOperation::Read { size, .. } | FileOperation::Write { size, .. } => size,
            _ => 0,
        };
        self.requests.iter().map(size).max().unwrap_or(0)
    }

    /// Number of requests before the final removal of everything created: the next pass would begin with that removal.
    pub fn without_farewell(&self) -> usize {
        let farewell = self.requests.iter().rev().take_while(|r| r.action.kind() == RequestKind::Deltree).count();
        self.requests.len() - farewell
    }

    /// Whether it begins by removing everything that an earlier pass left.
    pub fn starts_afresh(&self) -> bool {
        let root = |path: u32| matches!(self.paths[path as usize].as_str(), CLIENT | "");
        matches!(self.requests.first().map(|r| r.action), Some(FileOperation::Deltree { path }) if root(path))
    }
}

impl fmt::Display for Loadfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: u32| {
            let path = &self.paths[path as usize];
            let inner = path.replace('/', "\\");
            if inner.is_empty() { format!("\"\\{ROOT}\"") } else { format!("\"\\{ROOT}\\{inner}\"") }
        };
        for r in &self.requests {
            write!(f, "{} ", r.action.kind().word())?;
            match r.action {
                FileOperation::Create { path: p, options, disposition, handle } => {
                    write!(f, "{} {options:#x} {:#x} {handle}", path(p), disposition as u32)
                }
                FileOperation::Close { handle } | FileOperation::Flush { handle } => write!(f, "{handle}"),
                FileOperation::Read { handle, offset, size, found } => write!(f, "{handle} {offset} {size} {found}"),
                FileOperation::Write { handle, offset, size } => write!(f, "{handle} {offset} {size} {size}"),
                FileOperation::Lock { handle, offset, size } | FileOperation::Unlock { handle, offset, size } => {
                    write!(f, "{handle} {offset} {size}")
                }
                FileOperation::Unlink { path: p, attributes } => write!(f, "{} {attributes:#x}", path(p)),
                FileOperation::Rename { from, to } => write!(f, "{} {}", path(from), path(to)),
                FileOperation::Mkdir { path: p }
                | FileOperation::Rmdir { path: p }
                | FileOperation::Deltree { path: p } => {
                    write!(f, "{}", path(p))
                }
                FileOperation::QueryPath { path: p, level } => write!(f, "{} {level}", path(p)),
                FileOperation::QueryFile { handle, level } | FileOperation::SetFile { handle, level } => {
                    write!(f, "{handle} {level}")
                }
                FileOperation::QueryFs { level } => write!(f, "{level}"),
                FileOperation::Find { path: p, level, most, found } => write!(f, "{} {level} {most} {found}", path(p)),
            }?;
            writeln!(f, " {}", r.status.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
