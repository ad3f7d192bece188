//! The run of a load as all threads of its driver see it: ramp, window, end.
//!
//! Invariant: the window opens once and closes once, for all threads at the same moment; an operation (a transaction, a request) counts if it ended
//! between the two, and a window of operations counts exactly the required number.

use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use bigiron_sys::mark;

use crate::units;

const NEVER: u64 = u64::MAX;
/// Interval of the samples in the window.
const SAMPLE: Duration = Duration::from_secs(1);

/// Work or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
    /// Operations of all threads together.
    Operations(u64),
    Time(Duration),
}

impl RunLength {
    /// Reads a number of operations, `30s`, or `auto`, which is `Some(None)`.
    pub fn parse(text: &str) -> Option<Option<Self>> {
        if text == "auto" {
            return Some(None);
        }
        if let Ok(n) = text.parse() {
            return (n <= 1_000_000_000_000).then_some(Some(Self::Operations(n)));
        }
        units::duration(text).map(|time| Some(Self::Time(time)))
    }
}

/// A message to the run's monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMoment {
    /// Some more connections are established.
    Connecting,
    Opened,
    /// A second of the window has passed.
    Sample,
    /// Half of the window is over.
    Halfway,
    Closed,
}

/// Shared by the threads of one run.
pub struct RunControl {
    ramp: RunLength,
    length: RunLength,
    /// The intended start of the first request.
    start: u64,
    /// When all clients have started.
    all_started: u64,
    ended: AtomicU64,
    counted: AtomicU64,
    opened: AtomicU64,
    halved: AtomicBool,
    closed: AtomicU64,
    moments: Sender<RunMoment>,
}

impl RunControl {
    /// Times are nanoseconds of the threads' clock.
    pub fn new(ramp: RunLength, length: RunLength, start: u64, all_started: u64, moments: Sender<RunMoment>) -> Self {
        let zero = || AtomicU64::new(0);
        let never = || AtomicU64::new(NEVER);
        Self {
            ramp,
            length,
            start,
            all_started,
            ended: zero(),
            counted: zero(),
            opened: never(),
            halved: AtomicBool::new(false),
            closed: never(),
            moments,
        }
    }

    /// Records the end of an operation at `now`; returns whether it belongs to the window.
    pub fn ended(&self, now: u64) -> bool {
        // The state is decided before this one counts towards the ramp: the operation that completes the ramp belongs to it.
        self.tick(now);
        let counts = self.opened.load(Acquire) <= now && now < self.closed.load(Acquire) && self.take_place(now);
        self.ended.fetch_add(1, AcqRel);
        self.tick(now);
        counts
    }

    /// Opens or closes the window if it is due.
    pub fn tick(&self, now: u64) {
        let mut opened = self.opened.load(Acquire);
        if opened == NEVER {
            let due = match self.ramp {
                RunLength::Time(time) => (self.start + time.as_nanos() as u64).max(self.all_started),
                RunLength::Operations(n) if self.ended.load(Acquire) >= n => now.max(self.all_started),
                RunLength::Operations(_) => return,
            };
            if now < due || self.closed.load(Acquire) != NEVER {
                return;
            }
            match self.opened.compare_exchange(NEVER, due, AcqRel, Acquire) {
                Ok(_) => {
                    mark::begin();
                    self.tell(RunMoment::Opened);
                    opened = due;
                }
                Err(by_another) => opened = by_another,
            }
        }
        if let RunLength::Time(time) = self.length {
            let time = time.as_nanos() as u64;
            if now >= opened + time / 2 {
                self.half();
            }
            if now >= opened + time {
                self.close(opened + time);
            }
        }
    }

    /// Whether an operation that ended in the open window is still within its number.
    fn take_place(&self, now: u64) -> bool {
        let RunLength::Operations(n) = self.length else { return true };
        let place = self.counted.fetch_add(1, AcqRel) + 1;
        if place == n.div_ceil(2) {
            self.half();
        }
        if place == n {
            self.close(now);
        }
        place <= n
    }

    fn half(&self) {
        if !self.halved.swap(true, AcqRel) {
            self.tell(RunMoment::Halfway);
        }
    }

    fn close(&self, at: u64) {
        if self.closed.compare_exchange(NEVER, at, AcqRel, Acquire).is_ok() {
            mark::end();
            self.tell(RunMoment::Closed);
        }
    }

    /// Ends the run at once, with the present contents of the window; nothing counts any more.
    pub fn give_up(&self, now: u64) {
        self.close(now);
    }

    fn tell(&self, moment: RunMoment) {
        // The monitor may have ended after an error of its own.
        let _ = self.moments.send(moment);
    }

    /// When the window next opens, halves or closes by the clock, if it does.
    pub fn deadline(&self) -> Option<u64> {
        match (self.opened.load(Acquire), self.ramp, self.length) {
            (NEVER, RunLength::Time(time), _) => Some((self.start + time.as_nanos() as u64).max(self.all_started)),
            (NEVER, RunLength::Operations(n), _) => (self.ended.load(Acquire) >= n).then_some(self.all_started),
            (opened, _, RunLength::Time(time)) => {
                let time = time.as_nanos() as u64;
                Some(opened + if self.halved.load(Acquire) { time } else { time / 2 })
            }
            (_, _, RunLength::Operations(_)) => None,
        }
    }

    /// Whether the window has opened.
    pub fn is_open(&self) -> bool {
        self.opened.load(Acquire) != NEVER
    }

    /// Whether nothing may begin any more.
    pub fn is_over(&self) -> bool {
        self.closed.load(Acquire) != NEVER
    }

    /// Nanoseconds of the window; `None` if it never opened.
    pub fn window(&self) -> Option<u64> {
        let (opened, closed) = (self.opened.load(Acquire), self.closed.load(Acquire));
        (opened != NEVER && closed != NEVER).then(|| closed.saturating_sub(opened))
    }
}

/// Forwards the window's moments until it has closed, with a sample every second in between.
pub fn look_on(hear: &Receiver<RunMoment>, watch: &mut dyn FnMut(RunMoment)) {
    let mut open = false;
    loop {
        let moment = match if open { hear.recv_timeout(SAMPLE) } else { hear.recv().map_err(RecvTimeoutError::from) } {
            Ok(moment) => moment,
            Err(RecvTimeoutError::Timeout) => RunMoment::Sample,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        open |= moment == RunMoment::Opened;
        watch(moment);
        if moment == RunMoment::Closed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn control(ramp: RunLength, length: RunLength, all_started: u64) -> (RunControl, Receiver<RunMoment>) {
        let (tell, hear) = channel();
        (RunControl::new(ramp, length, 1_000, all_started, tell), hear)
    }

    const fn ns(n: u64) -> RunLength {
        RunLength::Time(Duration::from_nanos(n))
    }

    #[test]
    fn lengths_are_work_or_time() {
        assert_eq!(RunLength::parse("auto"), Some(None));
        assert_eq!(RunLength::parse("2000"), Some(Some(RunLength::Operations(2000))));
        assert_eq!(RunLength::parse("1.5s"), Some(Some(RunLength::Time(Duration::from_millis(1500)))));
        assert_eq!(RunLength::parse("0"), Some(Some(RunLength::Operations(0))));
        for wrong in ["", "-1", "2000tx", "fast"] {
            assert_eq!(RunLength::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_window_of_operations_counts_exactly_these() {
        let (control, hear) = control(RunLength::Operations(3), RunLength::Operations(4), 1_000);
        let counted: Vec<_> = (0..10).map(|i| control.ended(2_000 + i)).collect();
        assert_eq!(counted, [false, false, false, true, true, true, true, false, false, false]);
        // From the end of the last operation of the ramp to the end of the last that counts.
        assert_eq!(control.window(), Some(4));
        assert_eq!(hear.try_iter().collect::<Vec<_>>(), [RunMoment::Opened, RunMoment::Halfway, RunMoment::Closed]);
        assert!(control.is_over());
    }

    #[test]
    fn a_window_without_ramp_begins_with_the_start() {
        let (control, _hear) = control(RunLength::Operations(0), RunLength::Operations(2), 1_000);
        control.tick(1_000);
        assert_eq!((control.ended(1_500), control.ended(1_700), control.window()), (true, true, Some(700)));
    }

    #[test]
    fn a_window_of_time_holds_what_ends_in_it() {
        let (control, _hear) = control(ns(100), ns(50), 1_000);
        assert_eq!(control.deadline(), Some(1_100));
        assert!(!control.ended(1_099));
        control.tick(1_103);
        // As planned, however late the thread noticed.
        assert_eq!(control.deadline(), Some(1_125));
        assert!(control.ended(1_110) && control.ended(1_149));
        assert_eq!(control.deadline(), Some(1_150));
        assert!(!control.ended(1_150));
        assert_eq!(control.window(), Some(50));
    }

    #[test]
    fn the_window_waits_until_all_clients_have_begun() {
        for ramp in [ns(100), RunLength::Operations(1)] {
            let (control, hear) = control(ramp, ns(50), 5_000);
            assert!(!control.ended(1_200) && !control.ended(4_999));
            assert_eq!(control.deadline(), Some(5_000));
            assert!(hear.try_recv().is_err());
            control.tick(5_000);
            assert!(control.is_open() && control.ended(5_001));
        }
    }

    #[test]
    fn a_run_that_is_given_up_before_its_window_has_none() {
        let (control, hear) = control(ns(100), ns(50), 1_000);
        control.give_up(1_010);
        assert!(!control.ended(1_200));
        assert_eq!((control.is_over(), control.window()), (true, None));
        assert_eq!(hear.try_iter().collect::<Vec<_>>(), [RunMoment::Closed]);
    }

    #[test]
    fn threads_agree_on_what_counts() {
        let (control, hear) = control(RunLength::Operations(100), RunLength::Operations(1_000), 1_000);
        let counted: usize = std::thread::scope(|s| {
            let work = || (0..1_000).filter(|i| control.ended(2_000 + i)).count();
            let threads: Vec<_> = (0..4).map(|_| s.spawn(work)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(counted, 1_000);
        assert_eq!(hear.try_iter().count(), 3);
    }
}
