//! What a process may wait for: a closed list.

macro_rules! events {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// The events that a process may wait for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum WaitEvent { $($(#[$meta])* $name,)* }

        impl WaitEvent {
            /// All events, in the order in which lists show them.
            pub const ALL: &[WaitEvent] = &[$(WaitEvent::$name,)*];

            /// The event's name, as it is printed.
            pub fn name(self) -> &'static str {
                match self { $(WaitEvent::$name => $text,)* }
            }
        }
    };
}

events! {
    /// A commit waits for its redo to be on disk.
    LogFileSync = "log file sync",
    /// Redo waits for room in the log buffer.
    LogBufferSpace = "log buffer space",
    /// Redo (or the log writer) waits for the checkpoint that frees the next journal.
    LogSwitchCheckpoint = "log switch (checkpoint incomplete)",
    /// Redo (or the log writer) waits for the archiver to copy the next journal.
    LogSwitchArchiving = "log switch (archiving needed)",
    /// Redo waits for a log switch in progress.
    LogSwitch = "log switch completion",
    /// A block needs a buffer that is neither pinned nor dirty.
    FreeBuffer = "free buffer",
    /// A buffer that another process is changing or filling from disk.
    BufferBusy = "buffer busy",
    /// A latch that another process holds.
    Latch = "latch",
    /// A block from a data file.
    DataFileRead = "data file read",
    /// Large reads past the cache: scan, backup.
    DataFileScan = "data file scan",
    /// Blocks to data files.
    DataFileWrite = "data file write",
    /// `fdatasync` of the data files.
    DataFileSync = "data file sync",
    /// Redo to a journal, until it is durable.
    LogFileParallelWrite = "log file parallel write",
    /// A full journal, for archiving.
    LogFileRead = "log file read",
    /// The copy of a journal.
    ArchiveWrite = "archive write",
    /// Sorted runs to a temporary file.
    TempFileWrite = "temp file write",
    /// Sorted runs from a temporary file.
    TempFileRead = "temp file read",
    /// The copy of a data file.
    BackupWrite = "backup write",
    /// Plain requests of an I/O class.
    Request = "request",
    /// A block waits for its redo to be on disk.
    WriteAhead = "write-ahead log",
    /// The reply of a server process.
    Server = "server",
    /// The next request of a client.
    Client = "client",
    /// Think time between or inside transactions.
    Think = "think time",
    /// The intended start of the next piece of work.
    Pace = "pace",
    /// Nothing to do.
    Idle = "idle",
}

impl WaitEvent {
    /// Whether the process waits because it has no work, rather than for something it needs.
    pub fn idle(self) -> bool {
        matches!(self, WaitEvent::Client | WaitEvent::Think | WaitEvent::Pace | WaitEvent::Idle)
    }

    /// The name as part of a metric's or a fact's: lower case and hyphens.
    pub fn slug(self) -> String {
        let words = self.name().split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
        words.collect::<Vec<_>>().join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unlike_each_other_and_slugs_plain() {
        let mut slugs: Vec<_> = WaitEvent::ALL.iter().map(|e| e.slug()).collect();
        assert_eq!(WaitEvent::LogSwitchCheckpoint.slug(), "log-switch-checkpoint-incomplete");
        slugs.sort();
        slugs.dedup();
        assert_eq!(slugs.len(), WaitEvent::ALL.len());
    }
}
