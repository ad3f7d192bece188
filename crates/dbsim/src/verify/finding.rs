//! The possible errors in the files of a run, each with its evidence.
//!
//! Invariant: a finding names one error; a state that a stop at that moment may legally leave is not a finding.

use thiserror::Error;

use crate::block::{Address, BlockError};

/// Data or redo that was acknowledged is lost or wrong.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum VerifyFailed {
    #[error("The ledger is damaged: {0}; without it nothing can be proven")]
    LedgerDamaged(&'static str),
    #[error("{0} was written and synced, but its rename is lost")]
    LostRename(&'static str),
    #[error("{0} is missing")]
    MissingFile(String),
    #[error("{file} ends after {found} bytes instead of {wanted}")]
    Truncated { file: String, found: u64, wanted: u64 },
    #[error("The archive of the journal's turn {turn} is missing; it was said to be durable")]
    LostArchive { turn: u64 },
    #[error("The archive of the journal's turn {turn} is damaged, or does not join the one before it at LSN {lsn}")]
    DamagedArchive { turn: u64, lsn: u64 },
    #[error("No entry of the control file is whole")]
    DamagedControlFile,
    #[error("The control file says checkpoint {found}; {recorded} was recorded")]
    LostCheckpoint { found: u64, recorded: u64 },
    #[error("Recovery starts at checkpoint {checkpoint}; the log begins at LSN {start} only")]
    RedoGone { checkpoint: u64, start: u64 },

    #[error("Journal {journal} has lost its header, of sequence {sequence}")]
    LostJournalHeader { journal: usize, sequence: u64 },
    #[error("Journal {journal} has the header of sequence {found} instead of {wanted}")]
    WrongJournal { journal: usize, wanted: u64, found: u64 },
    #[error("No journal has a valid header")]
    NoJournal,
    #[error("Redo from LSN {from} to {to} is lost; the log was acknowledged up to LSN {flushed}")]
    LostRedo { from: u64, to: u64, flushed: u64 },
    #[error("The run ended at LSN {wanted}, the log at {found}: redo that nobody waited for")]
    LogBeyondEnd { wanted: u64, found: u64 },
    #[error("Redo at LSN {lsn} is torn: its end was never written; it is whole up to LSN {whole}")]
    TornRedo { lsn: u64, whole: u64 },
    #[error("Redo at LSN {lsn} is corrupted; it is whole up to LSN {whole}")]
    CorruptedRedo { lsn: u64, whole: u64 },
    #[error(
        "At LSN {lsn} there is still redo of an earlier turn of the journal (sequence {found} instead of {wanted})"
    )]
    StaleRedo { lsn: u64, wanted: u64, found: u64 },
    #[error("Redo is duplicated: at LSN {lsn} there is that of LSN {found} again")]
    DuplicatedRedo { lsn: u64, found: u64 },
    #[error("Redo is misdirected: at LSN {lsn} there is that of LSN {found}")]
    MisdirectedRedo { lsn: u64, found: u64 },
    #[error("Redo record before LSN {lsn} has sequence {found} instead of {wanted}")]
    WrongSequence { lsn: u64, wanted: u64, found: u64 },
    #[error("A redo record was damaged before it was written: the chunk at LSN {0} is whole, its record is not")]
    DamagedRecord(u64),
    #[error("A redo record in the chunk at LSN {0} is whole but not understood")]
    MalformedRedo(u64),
    #[error("Load is lost: of {blocks} blocks that were loaded durably, the file ends before {address}")]
    LostLoad { address: Address, blocks: u64 },
    #[error("Redo at LSN {lsn} names {address}, which does not exist")]
    NoSuchBlock { lsn: u64, address: Address },
    #[error("Redo at LSN {lsn} for {address} is not what version {version} consists of")]
    WrongRedo { lsn: u64, address: Address, version: u32 },

    #[error(
        "Commit of transaction {transaction} of foreground {process} was acknowledged, but its record is not in the log"
    )]
    LostCommitRecord { process: usize, transaction: u64 },
    #[error("Foreground {process} went on from transaction {transaction} without an acknowledgement")]
    NotAwaited { process: usize, transaction: u64 },
    #[error("Transaction {transaction} of foreground {process} neither committed nor was it the last")]
    Unended { process: usize, transaction: u64 },

    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(
        "{address} is torn: its sectors from {cut} on (of 512 bytes) are of version {rest}, those before of {first}"
    )]
    Torn { address: Address, cut: usize, first: u32, rest: u32 },
    #[error("{address} is of version {version}, but its sectors {sectors:?} (of 512 bytes) are of {stale}")]
    StaleSectors { address: Address, sectors: Vec<usize>, stale: u32, version: u32 },
    #[error("{address} is corrupted: {bits} bits differ from version {version}, the first in byte {byte}")]
    Corrupted { address: Address, version: u32, byte: usize, bits: u32 },
    #[error("{found} was written to {wanted}: misdirected")]
    Misdirected { wanted: Address, found: Address },
    #[error("{found} is in its place and in that of {wanted} as well: duplicated")]
    Duplicated { wanted: Address, found: Address },
    #[error("Write of {address} is lost: version {written} was written, version {found} is on disk")]
    LostWrite { address: Address, written: u32, found: u32 },
    #[error("{address} is stale: version {found} is on disk, the log begins with version {next}")]
    Stale { address: Address, found: u32, next: u32 },
    #[error("Redo for {address} has a gap: version {found} is followed by version {next}")]
    Gap { address: Address, found: u32, next: u32 },
    #[error("{address} was written ahead of its redo: it is of LSN {lsn}, the log ends at LSN {end}")]
    AheadOfLog { address: Address, lsn: u64, end: u64 },
    #[error("Version {version} of {address} is of LSN {lsn}, but the log has no such change there")]
    NotInLog { address: Address, version: u32, lsn: u64 },
    #[error("Commit is lost: {address} was committed in version {committed}, recovery ends at version {found}")]
    LostCommit { address: Address, committed: u32, found: u32 },
    #[error("{address} is in version {found}, of which no commit was acknowledged (the last is {committed})")]
    NeverCommitted { address: Address, committed: u32, found: u32 },
}

impl VerifyFailed {
    /// The kind of the finding, as it is counted.
    pub fn kind(&self) -> &'static str {
        use BlockError as B;
        use VerifyFailed as V;
        match self {
            V::LedgerDamaged(_) => "ledger-damaged",
            V::LostRename(_) => "lost-rename",
            V::MissingFile(_) => "missing-file",
            V::Truncated { .. } => "truncated-file",
            V::LostArchive { .. } => "lost-archive",
            V::DamagedArchive { .. } => "damaged-archive",
            V::DamagedControlFile => "damaged-control-file",
            V::LostCheckpoint { .. } => "lost-checkpoint",
            V::RedoGone { .. } => "redo-gone",
            V::LostJournalHeader { .. } => "lost-journal-header",
            V::WrongJournal { .. } => "wrong-journal",
            V::NoJournal => "no-journal",
            V::LostRedo { .. } => "lost-redo",
            V::LogBeyondEnd { .. } => "log-beyond-end",
            V::TornRedo { .. } => "torn-redo",
            V::CorruptedRedo { .. } => "corrupted-redo",
            V::StaleRedo { .. } => "stale-redo",
            V::DuplicatedRedo { .. } => "duplicated-redo",
            V::MisdirectedRedo { .. } => "misdirected-redo",
            V::WrongSequence { .. } => "wrong-sequence",
            V::DamagedRecord(_) => "damaged-record",
            V::MalformedRedo(_) => "malformed-redo",
            V::NoSuchBlock { .. } => "no-such-block",
            V::LostLoad { .. } => "lost-load",
            V::WrongRedo { .. } => "wrong-redo",
            V::LostCommitRecord { .. } => "lost-commit-record",
            V::NotAwaited { .. } => "commit-not-awaited",
            V::Unended { .. } => "unended-transaction",
            V::Block(B::Checksum(_)) | V::Corrupted { .. } => "corrupted-block",
            V::Block(B::Misplaced { .. }) | V::Misdirected { .. } => "misdirected-block",
            V::Block(B::Foreign(_)) => "foreign-block",
            V::Block(B::Body(..)) => "wrong-body",
            V::Torn { .. } => "torn-block",
            V::StaleSectors { .. } => "stale-sectors",
            V::Duplicated { .. } => "duplicated-block",
            V::LostWrite { .. } => "lost-write",
            V::Stale { .. } => "stale-block",
            V::Gap { .. } => "redo-gap",
            V::AheadOfLog { .. } => "ahead-of-log",
            V::NotInLog { .. } => "not-in-log",
            V::LostCommit { .. } => "lost-commit",
            V::NeverCommitted { .. } => "never-committed",
        }
    }
}
