//! The mechanics of a spinning disk: how long the head takes to reach a block, and which request it serves next.
//!
//! ```text
//! time of a request = overhead + seek + rotation + transfer
//! seek(d)   = 0 on the same track, else track + (full - track) · √(d / (tracks - 1)),   d: distance in tracks
//! rotation  = the rest of the turn until the block's angle comes round; angle(b) = (b mod T) / T + skew · (b div T), T: bytes of a track
//! transfer  = bytes · revolution / T + seeks to the next track on the way (the skew hides them: no turn is lost)
//! ```
//! The square root in the seek time is that of an arm that accelerates for half the way and brakes for the other half (Ruemmler
//! and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994). The tracks of the small disk are stretched
//! over the whole platter, as if a database filled its disk. There is no write cache: a completed write is on the platter.
//!
//! Invariant: the caller supplies the time, so that the same requests at the same times always take equally long.

use bigiron_model::storage::Spindle;

/// A request older than 250 ms goes first, wherever it is.
const PATIENCE_NS: u64 = 250_000_000;
/// Bytes that the disk reads ahead after a read, as long as no other request arrives.
const READ_AHEAD: u64 = 2 << 20;

/// A request to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// In bytes.
    pub offset: u64,
    pub len: u64,
    pub write: bool,
}

/// A disk and the position of its head.
#[derive(Debug)]
pub struct Model {
    spindle: Spindle,
    tracks: u64,
    /// Where the last access ended, in bytes, and when, in ns.
    at: u64,
    since: u64,
    /// Whether the head reads ahead from there.
    reads_on: bool,
}

impl Model {
    /// A disk of `bytes`, its head above the first track.
    pub fn new(spindle: Spindle, bytes: u64) -> Self {
        let tracks = bytes.div_ceil(spindle.track_bytes).max(1);
        Self { spindle, tracks, at: 0, since: 0, reads_on: false }
    }

    fn track(&self, offset: u64) -> u64 {
        offset / self.spindle.track_bytes
    }

    /// ns from one track to another.
    fn seek_ns(&self, from: u64, to: u64) -> u64 {
        let distance = from.abs_diff(to);
        if distance == 0 {
            return 0;
        }
        let share = distance as f64 / (self.tracks - 1).max(1) as f64;
        let s = &self.spindle;
        s.seek_track_ns + ((s.seek_full_ns - s.seek_track_ns) as f64 * share.sqrt()) as u64
    }

    /// The angle of a block, in ns of the revolution.
    fn angle_ns(&self, offset: u64) -> u64 {
        let s = &self.spindle;
        let on_track =
            (u128::from(offset % s.track_bytes) * u128::from(s.revolution_ns) / u128::from(s.track_bytes)) as u64;
        let skew = u128::from(self.track(offset)) * u128::from(s.seek_track_ns) % u128::from(s.revolution_ns);
        (on_track + skew as u64) % s.revolution_ns
    }

    /// ns from `now` until the head is above the block: seek and rotation.
    pub fn positioning_ns(&self, now: u64, offset: u64) -> u64 {
        let seek = self.seek_ns(self.track(self.at), self.track(offset));
        let revolution = self.spindle.revolution_ns;
        let arrives = (now + seek) % revolution;
        seek + (self.angle_ns(offset) + revolution - arrives) % revolution
    }

    fn transfer_ns(&self, offset: u64, len: u64) -> u64 {
        let s = &self.spindle;
        let crossings = self.track(offset + len) - self.track(offset);
        (u128::from(len) * u128::from(s.revolution_ns) / u128::from(s.track_bytes)) as u64 + crossings * s.seek_track_ns
    }

    /// Serves a request from `now` on; returns when it ends.
    pub fn serve(&mut self, now: u64, access: Access) -> u64 {
        let Access { offset, len, write } = access;
        let end = match self.streamed(now, access) {
            Some(end) => end,
            None => {
                let begun = now + self.spindle.overhead_ns;
                begun + self.positioning_ns(begun, offset) + self.transfer_ns(offset, len)
            }
        };
        (self.at, self.since, self.reads_on) = (offset + len, end, !write);
        end
    }

    /// The end of a read that continues where the last one ended, if the head has read ahead: immediate for the bytes already
    /// read.
    fn streamed(&self, now: u64, access: Access) -> Option<u64> {
        if access.write || !self.reads_on || access.offset != self.at {
            return None;
        }
        let read = self.since + self.transfer_ns(access.offset, access.len);
        // With a full buffer it has stopped, and a read beyond the buffer costs a positioning.
        let stopped = self.since + self.transfer_ns(access.offset, READ_AHEAD);
        (read <= stopped || now <= stopped).then(|| read.max(now + self.spindle.overhead_ns))
    }

    /// The next of the waiting requests (arrival time and access, in the order of arrival): one that has waited too long, else
    /// the one that the head reaches first. `None` if nothing waits.
    pub fn next<'a>(&self, now: u64, waiting: impl IntoIterator<Item = (u64, &'a Access)>) -> Option<usize> {
        let begun = now + self.spindle.overhead_ns;
        let mut best: Option<(u64, usize)> = None;
        for (i, (came, access)) in waiting.into_iter().enumerate() {
            if now.saturating_sub(came) > PATIENCE_NS {
                return Some(i);
            }
            let cost = match self.streamed(now, *access) {
                Some(end) => end.saturating_sub(begun),
                None => self.positioning_ns(begun, access.offset),
            };
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, i));
            }
        }
        best.map(|(_, i)| i)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use bigiron_model::storage::{Medium, find};

    const DISK: u64 = 1 << 30;
    const BLOCK: u64 = 8192;

    fn spindle() -> Spindle {
        let Medium::Rotational(spindle) = find("hdd").unwrap().medium else { panic!("hdd does not spin") };
        spindle
    }

    fn model() -> Model {
        Model::new(spindle(), DISK)
    }

    fn read(offset: u64, len: u64) -> Access {
        Access { offset, len, write: false }
    }

    fn write(offset: u64, len: u64) -> Access {
        Access { offset, len, write: true }
    }

    /// Mean ns of reads, each issued when the previous one has ended.
    fn mean(offsets: impl ExactSizeIterator<Item = u64>, len: u64) -> u64 {
        let (mut model, mut now) = (model(), 0);
        let count = offsets.len() as u64;
        for offset in offsets {
            now = model.serve(now, read(offset, len));
        }
        now / count
    }

    fn scattered(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (DISK / BLOCK) * BLOCK
    }

    #[test]
    fn random_reads_take_a_third_of_the_stroke_and_half_a_turn() {
        let s = spindle();
        // The mean of √|x - y| for x, y uniform on [0, 1] is 8/15.
        let seek = s.seek_track_ns + (s.seek_full_ns - s.seek_track_ns) * 8 / 15;
        let expected = s.overhead_ns + seek + s.revolution_ns / 2;
        let mean = mean((0..4000u64).map(scattered).collect::<Vec<_>>().into_iter(), BLOCK);
        assert!(mean.abs_diff(expected) < expected / 20, "{mean} and not {expected}");
    }

    #[test]
    fn a_stream_of_reads_loses_no_turn() {
        let len = 1 << 20;
        let s = spindle();
        let per_track = s.revolution_ns + s.seek_track_ns;
        let expected = len * per_track / s.track_bytes;
        let mean = mean((0..500u64).map(|n| n * len).collect::<Vec<_>>().into_iter(), len);
        assert!(mean.abs_diff(expected) < expected / 50, "{mean} and not {expected}");
    }

    #[test]
    fn a_stream_of_small_synced_writes_loses_a_turn_each() {
        let (mut model, mut now) = (model(), 0);
        now = model.serve(now, write(0, 4096));
        let begun = now;
        for n in 1..=100 {
            // The commit takes a moment: the block has just passed.
            now = model.serve(now + 20_000, write(n * 4096, 4096));
        }
        let turns = (now - begun) as f64 / spindle().revolution_ns as f64;
        assert!((99.0..102.5).contains(&turns), "{turns}");
    }

    #[test]
    fn waiting_requests_are_served_from_near_to_far_and_the_old_first() {
        let (mut model, now) = (model(), 1_000_000);
        model.serve(0, read(0, BLOCK));
        let far = read(DISK - BLOCK, BLOCK);
        let near = read(4 * BLOCK, BLOCK);
        assert_eq!(model.next(now, [(0, &far), (0, &near)]), Some(1));
        let late = now + PATIENCE_NS + 1;
        assert_eq!(model.next(late, [(0, &far), (late, &near)]), Some(0));
        assert_eq!(model.next(now, []), None);
    }

    #[test]
    fn a_reader_that_comes_late_finds_what_was_read_on_and_no_more() {
        let mut model = model();
        let end = model.serve(0, read(0, BLOCK));
        let later = end + 1_000_000_000;
        let hit = model.serve(later, read(BLOCK, BLOCK));
        assert_eq!(hit, later + spindle().overhead_ns);
        // A write has moved the head.
        let end = model.serve(hit, write(DISK / 2, BLOCK));
        assert!(model.serve(end, read(2 * BLOCK, BLOCK)) > end + spindle().seek_track_ns);
    }

    proptest! {
        #[test]
        fn positioning_is_less_than_a_stroke_and_a_turn(offset in 0..DISK / 512, from in 0..DISK / 512, now in 0..u64::MAX / 4) {
            let mut model = model();
            model.serve(0, read(from * 512, 512));
            let s = spindle();
            prop_assert!(model.positioning_ns(now, offset * 512) < s.seek_full_ns + s.revolution_ns);
            // When the head arrives, the block is below it.
            let arrived = (now + model.positioning_ns(now, offset * 512)) % s.revolution_ns;
            prop_assert_eq!(arrived, model.angle_ns(offset * 512));
        }
    }
}
