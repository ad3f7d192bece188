//! The control file: the checkpoint from which recovery may start, as in every database.
//!
//! Invariant: it always holds a whole entry: entries are written alternately to two places, so a torn write never destroys the
//! last whole one.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const MAGIC: u64 = 0x4c_5254_4e43_4244;
/// Bytes between the two entries, and of a write: at least a sector of any disk.
const PLACE: usize = 4096;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlEntry {
    /// Number of the entry, from 1.
    pub sequence: u64,
    /// All changes before this LSN are in the data files.
    pub checkpoint: u64,
}

/// The control file, open for writing.
pub struct ControlFile {
    file: File,
    sequence: u64,
}

/// Path of the control file.
pub fn path(dir: &Path) -> PathBuf {
    dir.join("control")
}

impl ControlFile {
    /// A new control file in `dir`, whose first entry says that nothing is in the data files.
    pub fn create(dir: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).custom_flags(libc::O_DSYNC);
        let file = options.open(path(dir)).with_context(|| format!("Cannot create {}", path(dir).display()))?;
        file.write_all_at(&[0; 2 * PLACE], 0).context("Cannot write the control file")?;
        let mut made = Self { file, sequence: 0 };
        made.record(0)?;
        rustix::fs::fsync(File::open(dir)?).context("Cannot sync the directory")?;
        Ok(made)
    }

    /// Writes a new entry, durably.
    pub fn record(&mut self, checkpoint: u64) -> Result<()> {
        self.sequence += 1;
        let place = (self.sequence % 2) * PLACE as u64;
        let page = ControlEntry { sequence: self.sequence, checkpoint }.encode();
        self.file.write_all_at(&page, place).context("Cannot write the control file")
    }
}

impl ControlEntry {
    fn encode(self) -> [u8; PLACE] {
        let mut page = [0; PLACE];
        for (to, word) in page.as_chunks_mut::<8>().0.iter_mut().zip([MAGIC, self.sequence, self.checkpoint]) {
            *to = word.to_le_bytes();
        }
        let sum = crc32c::crc32c(&page[..24]);
        page[24..28].copy_from_slice(&sum.to_le_bytes());
        page
    }

    fn decode(page: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(page.get(at..at + 8)?.try_into().ok()?));
        let sum = u32::from_le_bytes(page.get(24..28)?.try_into().ok()?);
        let whole = word(0)? == MAGIC && sum == crc32c::crc32c(&page[..24]);
        whole.then_some(Self { sequence: word(8)?, checkpoint: word(16)? })
    }

    /// The last whole entry of the control file in `dir`; `None` if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read, or no entry is whole.
    pub fn last(dir: &Path) -> Result<Option<Self>> {
        let bytes = match std::fs::read(path(dir)) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.with_context(|| format!("Cannot read {}", path(dir).display()))?,
        };
        let entries = bytes.chunks(PLACE).filter_map(Self::decode);
        entries.max_by_key(|e| e.sequence).map(Some).context("No entry of the control file is whole")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_entry_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ControlEntry::last(dir.path()).unwrap(), None);
        let mut control = ControlFile::create(dir.path()).unwrap();
        let last = || ControlEntry::last(dir.path()).unwrap().unwrap();
        assert_eq!(last(), ControlEntry { sequence: 1, checkpoint: 0 });
        control.record(700).unwrap();
        control.record(900).unwrap();
        assert_eq!(last(), ControlEntry { sequence: 3, checkpoint: 900 });
        let mut bytes = std::fs::read(path(dir.path())).unwrap();
        assert_eq!(bytes.len(), 2 * PLACE);
        bytes[PLACE + 17] ^= 1;
        std::fs::write(path(dir.path()), &bytes).unwrap();
        assert_eq!(last(), ControlEntry { sequence: 2, checkpoint: 700 });
        bytes[17] ^= 1;
        std::fs::write(path(dir.path()), &bytes).unwrap();
        assert!(ControlEntry::last(dir.path()).is_err());
    }
}
