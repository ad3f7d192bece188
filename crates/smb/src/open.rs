//! What a client does with files and directories of its share (MS-SMB2 2.2.13 to 2.2.40, MS-FSCC). Paths are relative to the share, with `\`.

use crate::connection::Client;
use crate::error::SmbError;
use crate::frame::{Command, Fields, HEADER};
use crate::status::NtStatus;
use crate::unicode::utf16;

/// Access rights.
const READ_AND_WRITE: u32 = 0x0012_019f;
const LIST: u32 = 0x0012_0089;
const LOOK: u32 = 0x0010_0080;
const REMOVE: u32 = 0x0011_0080;
/// Others may read, write and delete meanwhile.
const SHARE_ALL: u32 = 7;
/// Options of a create.
const DIRECTORY: u32 = 1;
const NOT_DIRECTORY: u32 = 0x40;
const DELETE_ON_CLOSE: u32 = 0x1000;
/// Dispositions.
const OPEN: u32 = 1;
/// A batch oplock.
const BATCH: u8 = 9;
/// Classes of information.
const BASIC: u8 = 4;
const RENAME: u8 = 10;
const DISPOSITION: u8 = 13;
const ALL: u8 = 18;
const BOTH_DIRECTORY: u8 = 3;
const FS_SIZE: u8 = 3;
/// Kinds of information: a file's, and a file system's.
const OF_FILE: u8 = 1;
const OF_FILE_SYSTEM: u8 = 2;
/// Attribute of a directory.
const IS_DIRECTORY: u32 = 0x10;
/// Bytes of entries that are listed at once.
const ENTRIES: u32 = 64 << 10;

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId([u8; 16]);

/// What to open, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenKind {
    /// A file or directory, to read and write, as a number of the protocol says if it exists or does not: 0 supersede, 1 open, 2 create, 3 open or create,
    /// 4 overwrite, 5 overwrite or create.
    Data { disposition: u32, oplock: bool },
    /// A directory, likewise.
    Directory { disposition: u32 },
    /// Anything, for its attributes.
    Look,
    /// Anything, to rename or remove it.
    Remove,
    /// A file that is removed when it is closed.
    Unlink,
}

/// What was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub id: FileId,
    pub bytes: u64,
    pub is_directory: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub name: String,
    pub is_directory: bool,
}

impl Client {
    /// Opens a path, and creates it if the kind says so.
    ///
    /// # Errors
    /// The server refuses.
    pub fn open(&mut self, path: &str, kind: OpenKind) -> Result<Open, SmbError> {
        let (access, disposition, options, oplock) = match kind {
            OpenKind::Data { disposition, oplock } => (READ_AND_WRITE, disposition, 0, oplock),
            OpenKind::Directory { disposition } => (LIST, disposition, DIRECTORY, false),
            OpenKind::Look => (LOOK, OPEN, 0, false),
            OpenKind::Remove => (REMOVE, OPEN, 0, false),
            OpenKind::Unlink => (REMOVE, OPEN, NOT_DIRECTORY | DELETE_ON_CLOSE, false),
        };
        let name = utf16(path);
        let request = self.begin(Command::Create, 1);
        // Impersonation; no flags.
        request.u16(57).u8(0).u8(if oplock { BATCH } else { 0 }).u32(2).u64(0).u64(0);
        request.u32(access).u32(0).u32(SHARE_ALL).u32(disposition).u32(options);
        request.u16(HEADER as u16 + 56).u16(name.len() as u16).u64(0).bytes(&name);
        if name.is_empty() {
            // The structure ends with at least one byte.
            request.u8(0);
        }
        self.succeed()?;
        let body = self.response()?;
        Ok(Open {
            id: FileId(body.bytes(64, 16)?.try_into().expect("as many as asked for")),
            bytes: body.u64(48)?,
            is_directory: body.u32(56)? & IS_DIRECTORY != 0,
        })
    }

    /// # Errors
    /// The server refuses.
    pub fn close(&mut self, file: FileId) -> Result<(), SmbError> {
        self.begin(Command::Close, 1).u16(24).u16(0).u32(0).bytes(&file.0);
        self.succeed()
    }

    /// Returns when the data are on the server's disk.
    ///
    /// # Errors
    /// The server refuses.
    pub fn flush(&mut self, file: FileId) -> Result<(), SmbError> {
        self.begin(Command::Flush, 1).u16(24).u16(0).u32(0).bytes(&file.0);
        self.succeed()
    }

    /// Reads up to `size` bytes, at most [`Client::longest`]; fewer, or none, at the end of the file.
    ///
    /// # Errors
    /// The server refuses.
    pub fn read(&mut self, file: FileId, offset: u64, size: u32) -> Result<&[u8], SmbError> {
        // 80: where the data should begin in the response.
        let request = self.begin(Command::Read, size as usize);
        request.u16(49).u8(80).u8(0).u32(size).u64(offset).bytes(&file.0).u32(0).u32(0).u32(0).u32(0).u8(0);
        match self.exchange()? {
            NtStatus::OK => {}
            NtStatus::END_OF_FILE => return Ok(&[]),
            other => return Err(SmbError::Status(other)),
        }
        let body = self.response()?;
        let (at, length) = (body.u8(2)?.into(), body.u32(4)?);
        if length > size {
            return Err(SmbError::Response("it has more data than asked for"));
        }
        self.message().bytes(at, length as usize)
    }

    /// Writes `data`, at most [`Client::longest`] bytes.
    ///
    /// # Errors
    /// The server refuses, or takes a part only.
    pub fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), SmbError> {
        let request = self.begin(Command::Write, data.len());
        request.u16(49).u16(HEADER as u16 + 48).u32(data.len() as u32).u64(offset).bytes(&file.0);
        request.u32(0).u32(0).u32(0).u32(0).bytes(data);
        self.succeed()?;
        if self.response()?.u32(4)? as usize == data.len() {
            Ok(())
        } else {
            Err(SmbError::Response("the server has written a part only"))
        }
    }

    /// Locks a range for this client alone, or unlocks it; does not wait.
    ///
    /// # Errors
    /// The server refuses.
    pub fn lock(&mut self, file: FileId, offset: u64, length: u64, locks: bool) -> Result<(), SmbError> {
        // Exclusive and at once; unlock.
        let flags = if locks { 0x12 } else { 4 };
        let request = self.begin(Command::Lock, 1);
        request.u16(48).u16(1).u32(0).bytes(&file.0).u64(offset).u64(length).u32(flags).u32(0);
        self.succeed()
    }

    /// Everything that the server knows of a file.
    ///
    /// # Errors
    /// The server refuses.
    pub fn query(&mut self, file: FileId) -> Result<(), SmbError> {
        self.query_info(OF_FILE, ALL, file)
    }

    /// Size and free space of the share's file system.
    ///
    /// # Errors
    /// The server refuses.
    pub fn query_file_system(&mut self, file: FileId) -> Result<(), SmbError> {
        self.query_info(OF_FILE_SYSTEM, FS_SIZE, file)
    }

    fn query_info(&mut self, kind: u8, class: u8, file: FileId) -> Result<(), SmbError> {
        let request = self.begin(Command::QueryInfo, 1);
        request.u16(41).u8(kind).u8(class).u32(4096).u16(0).u16(0).u32(0).u32(0).u32(0).bytes(&file.0).u8(0);
        self.succeed()?;
        let body = self.response()?;
        let (at, length) = (body.u16(2)?, body.u32(4)?);
        let found = self.message().bytes(at.into(), length as usize)?;
        if found.is_empty() { Err(SmbError::Response("it has no information")) } else { Ok(()) }
    }

    fn set_info(&mut self, class: u8, file: FileId, data: &[u8]) -> Result<(), SmbError> {
        let request = self.begin(Command::SetInfo, 1);
        request.u16(33).u8(OF_FILE).u8(class).u32(data.len() as u32).u16(HEADER as u16 + 32).u16(0).u32(0);
        request.bytes(&file.0).bytes(data);
        self.succeed()
    }

    /// Sets the time of the last write, in 100 ns since 1601.
    ///
    /// # Errors
    /// The server refuses.
    pub fn set_time(&mut self, file: FileId, time: u64) -> Result<(), SmbError> {
        let mut data = [0; 40];
        data[16..24].copy_from_slice(&time.to_le_bytes());
        self.set_info(BASIC, file, &data)
    }

    /// Renames what was opened with [`OpenKind::Remove`], over a file that has the name.
    ///
    /// # Errors
    /// The server refuses.
    pub fn rename(&mut self, file: FileId, to: &str) -> Result<(), SmbError> {
        let name = utf16(to);
        let mut data = vec![0; 20];
        data[0] = 1;
        data[16..20].copy_from_slice(&(name.len() as u32).to_le_bytes());
        data.extend(name);
        self.set_info(RENAME, file, &data)
    }

    /// Has what was opened with [`OpenKind::Remove`] removed when it is closed.
    ///
    /// # Errors
    /// The server refuses: a directory is not empty.
    pub fn remove(&mut self, file: FileId) -> Result<(), SmbError> {
        self.set_info(DISPOSITION, file, &[1])
    }

    /// The entries of an open directory that match `pattern`, `.` and `..` among them; none if nothing matches.
    ///
    /// # Errors
    /// The server refuses.
    pub fn list(
        &mut self,
        directory: FileId,
        pattern: &str,
        mut see: impl FnMut(DirectoryEntry),
    ) -> Result<(), SmbError> {
        let pattern = utf16(pattern);
        // The first of the requests begins anew.
        let mut flags = 1;
        loop {
            let request = self.begin(Command::QueryDirectory, ENTRIES as usize);
            request.u16(33).u8(BOTH_DIRECTORY).u8(flags).u32(0).bytes(&directory.0);
            request.u16(HEADER as u16 + 32).u16(pattern.len() as u16).u32(ENTRIES).bytes(&pattern);
            match self.exchange()? {
                NtStatus::OK => {}
                NtStatus::NO_MORE_FILES | NtStatus::NO_SUCH_FILE => return Ok(()),
                other => return Err(SmbError::Status(other)),
            }
            flags = 0;
            let body = self.response()?;
            let (at, length) = (body.u16(2)?, body.u32(4)?);
            entries(Fields(self.message().bytes(at.into(), length as usize)?), &mut see)?;
        }
    }
}

/// The entries of a response (`FileBothDirectoryInformation`).
fn entries(list: Fields<'_>, see: &mut dyn FnMut(DirectoryEntry)) -> Result<(), SmbError> {
    let mut at = 0;
    loop {
        let entry = Fields(list.0.get(at..).ok_or(SmbError::Response("it is cut off"))?);
        let name = entry.bytes(94, entry.u32(60)? as usize)?;
        let units = name.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
        let name = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        see(DirectoryEntry { name, is_directory: entry.u32(56)? & IS_DIRECTORY != 0 });
        match entry.u32(0)? {
            0 => return Ok(()),
            next => at += next as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, next: u32, attributes: u32) -> Vec<u8> {
        let name = utf16(name);
        let mut bytes = vec![0; 94];
        bytes[..4].copy_from_slice(&next.to_le_bytes());
        bytes[56..60].copy_from_slice(&attributes.to_le_bytes());
        bytes[60..64].copy_from_slice(&(name.len() as u32).to_le_bytes());
        bytes.extend(name);
        bytes
    }

    #[test]
    fn entries_are_read_one_after_the_other() {
        let mut list = entry("a", 96, 0x10);
        list.extend(entry("bcd.txt", 0, 0x20));
        let mut seen = Vec::new();
        entries(Fields(&list), &mut |entry| seen.push((entry.name, entry.is_directory))).unwrap();
        assert_eq!(seen, [("a".to_owned(), true), ("bcd.txt".to_owned(), false)]);
        assert!(entries(Fields(&list[..150]), &mut |_| {}).is_err());
        assert!(entries(Fields(&entry("a", 4000, 0)), &mut |_| {}).is_err());
    }
}
