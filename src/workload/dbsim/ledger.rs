//! The ledger: what the run acknowledged, kept apart from the database that verification is to hold it against.
//!
//! Invariant: it is written after the processes have gone, and read back only if it is whole.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Context as _, Result, ensure};

use super::instance::Instance;

const MAGIC: u64 = 0x3152_4547_444c_4244;

/// What was acknowledged for one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockEntry {
    /// Latest version whose commit was acknowledged.
    pub committed: u32,
    /// Latest version that the kernel said to be in the data file.
    pub written: u32,
}

/// The last commit that was acknowledged to one foreground.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitEntry {
    pub transaction: u64,
    /// LSN behind its commit record.
    pub lsn: u64,
}

/// What a run acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Everything before this LSN was said to be on disk.
    pub flushed: u64,
    /// By foreground.
    pub commits: Vec<CommitEntry>,
    /// By block, counted over all files.
    pub blocks: Vec<BlockEntry>,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("ledger")
}

impl Ledger {
    /// The ledger of a run whose processes have gone.
    pub fn of(instance: &Instance<'_>) -> Self {
        let commits = instance.counters[..instance.job.transactors()]
            .iter()
            .map(|c| CommitEntry { transaction: c.last_transaction.load(SeqCst), lsn: c.last_lsn.load(SeqCst) });
        let blocks = instance
            .committed
            .iter()
            .zip(instance.written)
            .map(|(c, w)| BlockEntry { committed: c.load(SeqCst), written: w.load(SeqCst) });
        Self { flushed: instance.log.flushed(), commits: commits.collect(), blocks: blocks.collect() }
    }

    /// Bytes that the ledger of a job takes on disk.
    pub fn bytes(processes: usize, blocks: u32) -> u64 {
        40 + 16 * processes as u64 + 8 * u64::from(blocks)
    }

    pub fn save(&self, dir: &Path) -> Result<()> {
        let mut out = Vec::new();
        for n in [MAGIC, self.flushed, self.commits.len() as u64, self.blocks.len() as u64] {
            out.extend(n.to_le_bytes());
        }
        for c in &self.commits {
            out.extend(c.transaction.to_le_bytes());
            out.extend(c.lsn.to_le_bytes());
        }
        for b in &self.blocks {
            out.extend(b.committed.to_le_bytes());
            out.extend(b.written.to_le_bytes());
        }
        out.extend(u64::from(crc32c::crc32c(&out)).to_le_bytes());
        std::fs::write(path(dir), out).context("Cannot write the ledger")
    }

    pub fn load(dir: &Path) -> Result<Self> {
        let bytes = std::fs::read(path(dir)).context("No ledger: a run has to end before it can be verified")?;
        let whole = bytes
            .split_last_chunk::<8>()
            .filter(|(body, sum)| u64::from_le_bytes(**sum) == u64::from(crc32c::crc32c(body)));
        let (body, _) = whole.context("The ledger itself is broken")?;
        let mut words = body.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w));
        let mut next = || words.next().context("The ledger is short");
        ensure!(next()? == MAGIC, "The ledger is of another version");
        let (flushed, commits, blocks) = (next()?, next()?, next()?);
        Ok(Self {
            flushed,
            commits: (0..commits)
                .map(|_| Ok(CommitEntry { transaction: next()?, lsn: next()? }))
                .collect::<Result<_>>()?,
            blocks: (0..blocks)
                .map(|_| next().map(|w| BlockEntry { committed: w as u32, written: (w >> 32) as u32 }))
                .collect::<Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded_and_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger {
            flushed: 77,
            commits: vec![CommitEntry { transaction: 5, lsn: 70 }; 2],
            blocks: vec![BlockEntry { committed: 3, written: 2 }, BlockEntry::default()],
        };
        ledger.save(dir.path()).unwrap();
        assert_eq!(Ledger::load(dir.path()).unwrap(), ledger);
        let mut bytes = std::fs::read(path(dir.path())).unwrap();
        assert_eq!(bytes.len() as u64, Ledger::bytes(2, 2));
        bytes[33] ^= 1;
        std::fs::write(path(dir.path()), bytes).unwrap();
        assert!(Ledger::load(dir.path()).is_err());
    }
}
