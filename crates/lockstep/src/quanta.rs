//! Parallel virtual time of several vCPUs, which QEMU executes in turns on one thread.
//!
//! Each vCPU has a time of its own. A turn begins at its vCPU's time and ends at the latest when that is a quantum ahead of the earliest busy vCPU's, so
//! that busy vCPUs reach the same time after each has executed its own instructions. QEMU's clock, from which the guest reads the time and timers
//! are kept, is set to a vCPU's time when its turn begins, and between turns to the earliest busy vCPU's: no timer fires before all have reached it.
//! A vCPU that halts is not waited for; it goes on at the time of what woke it, or at its own if that is later.
//!
//! Invariant: all of this follows from what the guest executes. Nothing is read that depends on the host.

use core::ptr::NonNull;

use crate::layout::{BIAS, BUDGET, COUNTER, EXTRA, HALTED, ICOUNT, INTERRUPTS, JUMP, NEXT, RUNNING};

/// Most vCPUs of a guest.
const MOST: usize = 255;

/// The times of a guest's vCPUs, in nanoseconds.
pub(crate) struct Quanta {
    /// QEMU's list of vCPUs, and its clock.
    first: *const *mut u8,
    clock: *mut u8,
    quantum: i64,
    /// The vCPU whose turn it is, and its number.
    turn: Option<(NonNull<u8>, usize)>,
    vcpus: [Vcpu; MOST],
}

#[derive(Clone, Copy)]
struct Vcpu {
    time: i64,
    is_idle: bool,
    /// When an interrupt for it was first seen while it was idle.
    woken: Option<i64>,
}

/// A field of one of QEMU's structures.
fn field<T>(of: *mut u8, at: usize) -> *mut T {
    of.wrapping_add(at).cast()
}

impl Quanta {
    /// # Safety
    /// Both must be QEMU's, laid out as [`crate::layout`] says, for good.
    pub(crate) unsafe fn new(first: *const *mut u8, clock: *mut u8, quantum: i64) -> Self {
        Self { first, clock, quantum, turn: None, vcpus: [Vcpu { time: 0, is_idle: true, woken: None }; MOST] }
    }

    /// The vCPU thread is about to execute a vCPU, whose buffer for jumps out of it this is, and QEMU has given it a budget of time up to the next timer.
    ///
    /// # Safety
    /// The vCPU thread must be the caller, here and below.
    pub(crate) unsafe fn begin(&mut self, buffer: *mut u8) {
        let vcpu = buffer.wrapping_sub(JUMP);
        let mut found = None;
        // SAFETY: QEMU's list.
        unsafe { self.each(|n, other| found = if other == vcpu { Some(n) } else { found }) };
        // Other code jumps, too.
        let (Some(n), Some(known)) = (found, NonNull::new(vcpu)) else { return };
        // SAFETY: it is a vCPU of QEMU's, whose fields only this thread changes now.
        unsafe {
            if !*field::<bool>(vcpu, RUNNING) {
                return;
            }
            let now = self.now();
            let this = &mut self.vcpus[n];
            if this.is_idle {
                this.time = this.time.max(this.woken.unwrap_or(now));
                this.is_idle = false;
            }
            this.woken = None;
            let time = this.time;
            let timer = now + *field::<i64>(vcpu, BUDGET);
            let end = self.earliest(Some(n)).map_or(timer, |earliest| timer.min(earliest + self.quantum));
            let left = (end - time).max(0);
            self.set(time);
            *field(vcpu, BUDGET) = left;
            let low = left.min(u16::MAX.into());
            *field(vcpu, COUNTER) = low as u16;
            *field(vcpu, EXTRA) = left - low;
        }
        self.turn = Some((known, n));
    }

    /// The vCPU thread takes the big lock, as it does first after a turn.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn locks(&mut self) {
        let Some((vcpu, n)) = self.turn else { return };
        // SAFETY: as above.
        unsafe {
            if *field::<bool>(vcpu.as_ptr(), RUNNING) {
                return;
            }
            self.turn = None;
            self.vcpus[n].time = self.now();
            let vcpus = &raw mut self.vcpus;
            self.each(|n, other| (*vcpus)[n].is_idle |= *field::<u32>(other, HALTED) != 0);
            if let Some(earliest) = self.earliest(None) {
                self.set(earliest);
            }
        }
    }

    /// The vCPU thread is about to give the big lock back, as it does after each access to a device: the turn ends if that has woken another vCPU,
    /// which goes on from this time.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn unlocks(&mut self) {
        let Some((vcpu, _)) = self.turn else { return };
        let vcpu = vcpu.as_ptr();
        // SAFETY: as above.
        unsafe {
            if !*field::<bool>(vcpu, RUNNING) {
                return;
            }
            let (counter, extra) = (field::<u16>(vcpu, COUNTER), field::<i64>(vcpu, EXTRA));
            let left = i64::from(*counter) + *extra;
            let budget = field::<i64>(vcpu, BUDGET);
            let now = self.now() + *budget - left;
            let (mut wakes, vcpus) = (false, &raw mut self.vcpus);
            self.each(|n, other| {
                let woken = &mut (*vcpus)[n].woken;
                let is_asleep = *field::<u32>(other, HALTED) != 0;
                if is_asleep && *field::<u32>(other, INTERRUPTS) != 0 && woken.is_none() {
                    *woken = Some(now);
                    wakes = true;
                }
            });
            if wakes {
                // What is left is taken away, and no time passes.
                *budget -= left;
                *counter = 0;
                *extra = 0;
            }
        }
    }

    /// Calls `visit` with each vCPU and its number.
    ///
    /// # Safety
    /// As above.
    unsafe fn each(&self, mut visit: impl FnMut(usize, *mut u8)) {
        // SAFETY: QEMU's list, which ends with a null pointer.
        unsafe {
            let mut vcpu = *self.first;
            for n in 0..MOST {
                if vcpu.is_null() {
                    break;
                }
                visit(n, vcpu);
                vcpu = *field::<*mut u8>(vcpu, NEXT);
            }
        }
    }

    /// The time of the busy vCPU that is behind all others but this one.
    fn earliest(&self, but: Option<usize>) -> Option<i64> {
        let busy = self.vcpus.iter().enumerate().filter(|(n, vcpu)| Some(*n) != but && !vcpu.is_idle);
        busy.map(|(_, vcpu)| vcpu.time).min()
    }

    /// QEMU's clock, up to the last turn's end.
    unsafe fn now(&self) -> i64 {
        // SAFETY: QEMU's clock, which no other thread reads or writes while the vCPU thread runs.
        unsafe { *field::<i64>(self.clock, ICOUNT) + *field::<i64>(self.clock, BIAS) }
    }

    unsafe fn set(&self, time: i64) {
        // SAFETY: as above.
        unsafe { *field::<i64>(self.clock, ICOUNT) += time - self.now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 0x2000;

    /// A QEMU with vCPUs that are all halted until they are woken, and a timer.
    struct Qemu {
        vcpus: Vec<Box<[u64; SIZE / 8]>>,
        clock: Box<[u64; 16]>,
        first: Box<*mut u8>,
        quanta: Quanta,
        timer: i64,
    }

    impl Qemu {
        fn new(number: usize, quantum: i64) -> Self {
            let mut vcpus: Vec<_> = (0..number).map(|_| Box::new([0_u64; SIZE / 8])).collect();
            let at: Vec<*mut u8> = vcpus.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
            let (mut clock, first) = (Box::new([0_u64; 16]), Box::new(at[0]));
            for (n, vcpu) in at.iter().enumerate() {
                // SAFETY: this memory is theirs.
                unsafe {
                    *field(*vcpu, NEXT) = at.get(n + 1).copied().unwrap_or(core::ptr::null_mut());
                    *field(*vcpu, HALTED) = 1_u32;
                }
            }
            // SAFETY: both live as long as the result.
            let quanta = unsafe { Quanta::new(&raw const *first, clock.as_mut_ptr().cast(), quantum) };
            Self { vcpus, clock, first, quanta, timer: 1_000_000 }
        }

        fn at(&mut self, n: usize) -> *mut u8 {
            self.vcpus[n].as_mut_ptr().cast()
        }

        fn now(&self) -> i64 {
            assert!(!self.first.is_null() && self.clock.len() == 16);
            // SAFETY: the clock is there.
            unsafe { self.quanta.now() }
        }

        /// Gives the vCPU a turn, as QEMU's round-robin loop does. It executes at most `most` instructions and then halts if `halts`. Returns the number of
        /// instructions executed.
        fn turn(&mut self, n: usize, most: i64, halts: bool) -> i64 {
            let (vcpu, budget) = (self.at(n), self.timer - self.now());
            // SAFETY: this memory is theirs.
            unsafe {
                *field(vcpu, HALTED) = 0_u32;
                *field(vcpu, INTERRUPTS) = 0_u32;
                *field(vcpu, BUDGET) = budget;
                *field(vcpu, RUNNING) = true;
                self.quanta.begin(vcpu.wrapping_add(JUMP));
                let left = i64::from(*field::<u16>(vcpu, COUNTER)) + *field::<i64>(vcpu, EXTRA);
                let executed = left.min(most);
                *field(vcpu, EXTRA) = left - executed;
                *field(vcpu, COUNTER) = 0_u16;
                // Devices are used without effect.
                self.quanta.unlocks();
                *field(vcpu, HALTED) = u32::from(halts);
                *field(vcpu, RUNNING) = false;
                let passed = *field::<i64>(vcpu, BUDGET) - *field::<i64>(vcpu, EXTRA);
                *field::<i64>(self.quanta.clock, ICOUNT) += passed;
                self.quanta.locks();
                executed
            }
        }
    }

    #[test]
    fn busy_vcpus_share_the_same_time() {
        let mut qemu = Qemu::new(2, 50);
        // Alone, up to the timer.
        assert_eq!(qemu.turn(0, 1000, false), 1000);
        assert_eq!(qemu.turn(1, 10, false), 10, "it was woken at 1000");
        let executed: [i64; 2] =
            (0..100).fold([0, 10], |[a, b], _| [a + qemu.turn(0, 1 << 40, false), b + qemu.turn(1, 1 << 40, false)]);
        assert!(executed[0] + 60 > 10_000 && executed[0].abs_diff(executed[1]) <= 50, "{executed:?}");
        assert_eq!(qemu.now(), 1000 + executed[0].min(executed[1]), "time is that of one");
    }

    #[test]
    fn a_halted_vcpu_is_not_waited_for() {
        let mut qemu = Qemu::new(3, 50);
        qemu.turn(0, 100, false);
        qemu.turn(1, 20, true);
        assert_eq!((qemu.now(), qemu.turn(0, 5000, false)), (100, 5000));
        // Woken again, it is not in the past.
        qemu.turn(1, 1, false);
        assert_eq!(qemu.now(), 5100);
        assert_eq!(qemu.turn(0, 5000, false), 51);
    }

    #[test]
    fn no_timer_fires_before_all_have_reached_it() {
        let mut qemu = Qemu::new(2, 50);
        qemu.turn(0, 1000, false);
        qemu.turn(1, 1, false);
        qemu.timer = 1030;
        assert_eq!(qemu.turn(0, 1 << 40, false), 30, "up to the timer, not for the quantum");
        assert_eq!(qemu.now(), 1001, "the other one's time");
        assert_eq!(qemu.turn(0, 1 << 40, false), 0);
        assert_eq!(qemu.turn(1, 1 << 40, false), 29);
        assert_eq!(qemu.now(), 1030);
    }

    #[test]
    fn waking_ends_the_turn_and_the_woken_goes_on_from_there() {
        let mut qemu = Qemu::new(2, 50);
        let (vcpu, other) = (qemu.at(0), qemu.at(1));
        // SAFETY: this memory is theirs.
        unsafe {
            *field(vcpu, HALTED) = 0_u32;
            *field(vcpu, BUDGET) = 100_000_i64;
            *field(vcpu, RUNNING) = true;
            qemu.quanta.begin(vcpu.wrapping_add(JUMP));
            assert_eq!((*field::<u16>(vcpu, COUNTER), *field::<i64>(vcpu, EXTRA)), (65_535, 34_465));
            *field(vcpu, COUNTER) = 65_035_u16;
            *field(other, INTERRUPTS) = 2_u32;
            qemu.quanta.unlocks();
            assert_eq!((*field::<u16>(vcpu, COUNTER), *field::<i64>(vcpu, EXTRA)), (0, 0));
            assert_eq!(*field::<i64>(vcpu, BUDGET), 500, "what it has executed");
            *field(vcpu, RUNNING) = false;
            *field::<i64>(qemu.quanta.clock, ICOUNT) += 500;
            qemu.quanta.locks();
        }
        assert_eq!(qemu.turn(1, 1 << 40, false), 50);
        assert_eq!(qemu.now(), 500);
    }
}
