//! The shared state of a load point's processes: the start, the users' progress, the first failure.
//!
//! Invariant: a user writes its own lane, and adds to the totals when it has ended; the first complaint stays, later ones are
//! dropped.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use anyhow::{Result, anyhow};

use bigiron_sys::broadcast::Broadcast;
use bigiron_sys::segment::{LatchedBytes, PAGE, Segment, shared_struct};
use bigiron_workload::WrongData;

/// Maximum bytes of a complaint.
const WORD: usize = 2048;

shared_struct! {
    /// State of all users together.
    pub struct Common {
        /// Nanoseconds of the monotonic clock: when all were released, and when the last one had been reaped.
        pub started: AtomicU64,
        pub ended: AtomicU64,
        /// CPU time of the users and of their reaped children.
        pub user_ns: AtomicU64,
        pub system_ns: AtomicU64,
        /// Memory of all users together just before the start, in bytes.
        pub memory: AtomicU64,
        open: AtomicU32,
        aborted: AtomicU32,
    }
}

shared_struct! {
    /// State of one user.
    pub struct Lane {
        /// When it completed its last test.
        pub ended: AtomicU64,
        /// Number of tests completed.
        pub calls: AtomicU64,
    }
}

shared_struct! {
    /// Totals of one test, all users together.
    pub struct Total {
        pub calls: AtomicU64,
        pub ns: AtomicU64,
        /// The longest call.
        pub longest_ns: AtomicU64,
    }
}

/// The kind of a complaint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ComplaintKind {
    /// A wrong result: takes precedence over all other kinds.
    WrongData = 1,
    /// No space left on a disk.
    Full = 2,
    /// Anything else.
    Failed = 3,
    /// Killed by a signal.
    Killed = 4,
    /// Memory was refused.
    NoMemory = 5,
}

/// The board of a load point.
pub struct LoadPointBoard<'s> {
    pub common: &'s Common,
    pub lanes: &'s [Lane],
    pub totals: &'s [Total],
    gate: &'s Broadcast,
    kind: &'s AtomicU32,
    word: LatchedBytes<'s>,
}

impl<'s> LoadPointBoard<'s> {
    /// Bytes of the segment for a board with this many users and tests.
    pub fn bytes(users: usize, tests: usize) -> usize {
        users * size_of::<Lane>() + tests * size_of::<Total>() + WORD + 2 * PAGE
    }

    pub fn new(segment: &'s Segment, users: usize, tests: usize) -> Self {
        Self {
            common: segment.one(),
            lanes: segment.many(users),
            totals: segment.many(tests),
            gate: segment.one(),
            kind: segment.one(),
            word: segment.latched(WORD),
        }
    }

    /// Opens the gate: all waiting users continue.
    pub fn open(&self) {
        self.common.open.store(1, Release);
        self.gate.call();
    }

    /// Waits until the gate is open.
    pub fn wait_open(&self) {
        self.gate.wait_until(|| self.common.open.load(Acquire) != 0);
    }

    /// Tells all users to stop after the current test.
    pub fn abort(&self) {
        self.common.aborted.store(1, Release);
    }

    pub fn is_aborted(&self) -> bool {
        self.common.aborted.load(Acquire) != 0
    }

    /// Records a complaint and tells all users to stop.
    pub fn complain(&self, trouble: ComplaintKind, text: &str) {
        let mut bytes = self.word.lock();
        if self.kind.load(Relaxed) == 0 {
            let length = text.len().min(WORD - 1);
            bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
            bytes[length] = 0;
            self.kind.store(trouble as u32, Relaxed);
        }
        drop(bytes);
        self.abort();
    }

    /// The same for an error of `who`.
    pub fn complain_of(&self, who: &str, error: &anyhow::Error) {
        self.complain(trouble(error), &format!("{who}: {error:#}"));
    }

    /// The first complaint.
    pub fn complaint(&self) -> Option<(ComplaintKind, String)> {
        let bytes = self.word.lock();
        let kinds = [
            ComplaintKind::WrongData,
            ComplaintKind::Full,
            ComplaintKind::Failed,
            ComplaintKind::Killed,
            ComplaintKind::NoMemory,
        ];
        let kind = kinds.into_iter().find(|k| *k as u32 == self.kind.load(Relaxed))?;
        let length = bytes.iter().position(|b| *b == 0).unwrap_or(WORD);
        Some((kind, String::from_utf8_lossy(&bytes[..length]).into_owned()))
    }

    /// Checks that each user has done `jobs` tests, and all together have done each test as often as `calls` requires.
    ///
    /// # Errors
    /// A [`WrongData`] with the wrong count.
    pub fn audit(&self, calls: &[u32]) -> Result<()> {
        let jobs: u64 = calls.iter().map(|n| u64::from(*n)).sum();
        let wrong = |text: String| Err(anyhow!(WrongData(text)));
        for (user, lane) in self.lanes.iter().enumerate() {
            let done = lane.calls.load(Acquire);
            if done != jobs {
                return wrong(format!("User {user} has counted {done} tests instead of {jobs}"));
            }
        }
        for (test, (total, calls)) in self.totals.iter().zip(calls).enumerate() {
            let (done, right) = (total.calls.load(Acquire), u64::from(*calls) * self.lanes.len() as u64);
            if done != right {
                return wrong(format!("All users together have done test {test} {done} times instead of {right}"));
            }
        }
        Ok(())
    }
}

/// The kind of an error.
pub fn trouble(error: &anyhow::Error) -> ComplaintKind {
    let errno = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        io.or_else(|| cause.downcast_ref::<rustix::io::Errno>().map(|e| e.raw_os_error()))
    };
    let is = |number: i32| error.chain().any(|cause| errno(cause) == Some(number));
    match () {
        () if error.chain().any(|cause| cause.is::<WrongData>()) => ComplaintKind::WrongData,
        () if is(libc::ENOSPC) => ComplaintKind::Full,
        () if is(libc::ENOMEM) => ComplaintKind::NoMemory,
        () => ComplaintKind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn what_does_not_add_up_is_wrong_data() {
        let segment = Segment::new(LoadPointBoard::bytes(2, 2)).unwrap();
        let board = LoadPointBoard::new(&segment, 2, 2);
        let set = |lanes: [u64; 2], totals: [u64; 2]| {
            board.lanes.iter().zip(lanes).for_each(|(lane, n)| lane.calls.store(n, Relaxed));
            board.totals.iter().zip(totals).for_each(|(total, n)| total.calls.store(n, Relaxed));
            board.audit(&[3, 1])
        };
        set([4, 4], [6, 2]).unwrap();
        let error = set([4, 3], [6, 2]).unwrap_err();
        assert!(error.is::<WrongData>());
        assert_eq!(error.to_string(), "User 1 has counted 3 tests instead of 4");
        assert!(
            set([4, 4], [5, 3]).unwrap_err().to_string().starts_with("All users together have done test 0 5 times")
        );
    }

    #[test]
    fn the_first_complaint_stays_and_is_known_for_what_it_is() {
        let segment = Segment::new(LoadPointBoard::bytes(1, 1)).unwrap();
        let board = LoadPointBoard::new(&segment, 1, 1);
        assert_eq!(board.complaint(), None);
        let full = anyhow!(std::io::Error::from_raw_os_error(libc::ENOSPC)).context("Cannot write");
        board.complain_of("User 3, `disk_wrt`", &full);
        board.complain(ComplaintKind::Killed, "later");
        let (kind, text) = board.complaint().unwrap();
        assert_eq!(kind, ComplaintKind::Full);
        assert!(text.starts_with("User 3, `disk_wrt`: Cannot write: No space left"), "{text}");
        assert!(board.is_aborted());
        let errno = Err::<(), _>(rustix::io::Errno::NOSPC).context("x").unwrap_err();
        assert_eq!(trouble(&errno), ComplaintKind::Full);
        assert_eq!(trouble(&anyhow!(WrongData("x".to_owned())).context("y")), ComplaintKind::WrongData);
        assert_eq!(trouble(&anyhow!(std::io::Error::from_raw_os_error(libc::ENOMEM))), ComplaintKind::NoMemory);
        assert_eq!(trouble(&anyhow!("x")), ComplaintKind::Failed);
    }

    #[test]
    fn a_long_complaint_is_cut() {
        let segment = Segment::new(LoadPointBoard::bytes(1, 1)).unwrap();
        let board = LoadPointBoard::new(&segment, 1, 1);
        board.complain(ComplaintKind::Failed, &"x".repeat(10_000));
        assert_eq!(board.complaint().unwrap().1.len(), WORD - 1);
    }
}
