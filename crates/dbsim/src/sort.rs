//! An external merge sort of 64-bit keys, like a database's sort of more data than its sort memory: sorted runs are spilled to
//! temporary files, and merged.
//!
//! Invariant: the output is in order and equals the input: the number of keys and a sum over all of them are compared.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use anyhow::{Context as _, Result};
use thiserror::Error;

use bigiron_sys::async_io::{Blocking, Engine};

use super::temp::{Meter, TempFile};

const KEY: usize = size_of::<u64>();

/// A sort's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortSpec {
    /// Bytes to be sorted.
    pub bytes: u64,
    /// Bytes of private memory for it.
    pub memory: u64,
    /// Bytes of a read or write of a temporary file.
    pub request: usize,
    /// Whether temporary files bypass the page cache.
    pub direct: bool,
}

impl SortSpec {
    /// Bytes of a run: as many whole requests as fit the memory.
    fn run_bytes(&self) -> u64 {
        (self.memory / self.request as u64).max(1) * self.request as u64
    }

    /// Number of runs that can be merged at once: one buffer for each of them and one for the output.
    fn fan_in(&self) -> usize {
        ((self.memory / self.request as u64) as usize).saturating_sub(1).max(2)
    }

    /// Maximum bytes of temporary files: those of two passes if one merge is not enough.
    pub fn temp_bytes(&self) -> u64 {
        let runs = self.bytes.div_ceil(self.run_bytes());
        let padded = self.bytes + runs * self.request as u64;
        match runs {
            0 | 1 => 0,
            n if n <= self.fan_in() as u64 => padded,
            _ => 2 * padded,
        }
    }

    /// Maximum bytes of private memory: a run and a buffer, or the buffers of a merge.
    pub fn memory_bytes(&self) -> u64 {
        self.run_bytes().max(self.fan_in() as u64 * self.request as u64) + self.request as u64
    }
}

/// The output is not the sorted input.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SortFailed {
    #[error("Sort is out of order: {next:#x} follows {last:#x}")]
    Order { last: u64, next: u64 },
    #[error("Sort has lost or changed keys: {found} of {keys} keys came out, sum {sum:#x} instead of {wanted:#x}")]
    Sum { keys: u64, found: u64, sum: u64, wanted: u64 },
}

/// Number and sum of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KeySum {
    keys: u64,
    sum: u64,
}

impl KeySum {
    fn add(&mut self, key: u64) {
        self.keys += 1;
        // Scattered first, so that two keys cannot exchange bits undetected.
        let scattered = (key ^ (key >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sum = self.sum.wrapping_add(scattered ^ (scattered >> 29));
    }
}

/// Keys of the output, checked for order.
struct Checked {
    tally: KeySum,
    last: u64,
}

impl Checked {
    fn take(&mut self, key: u64) -> Result<(), SortFailed> {
        if key < self.last {
            return Err(SortFailed::Order { last: self.last, next: key });
        }
        self.last = key;
        self.tally.add(key);
        Ok(())
    }
}

/// A sorted run in a temporary file.
#[derive(Clone, Copy, Debug)]
struct Run {
    offset: u64,
    keys: u64,
}

/// A sort in progress. `stop` is called at every request to learn whether to give up.
pub struct Sort<'a> {
    spec: SortSpec,
    meter: &'a mut dyn Meter,
    stop: &'a dyn Fn() -> bool,
    /// The file of the runs, and the file of the next merge.
    from: TempFile,
    to: TempFile,
    /// Bytes of `to` in use.
    end: u64,
}

/// The position of the next key in an open run.
struct Reader {
    run: Run,
    slot: usize,
    /// Keys of it taken so far.
    taken: u64,
}

impl<'a> Sort<'a> {
    /// A sort whose temporary files briefly exist in `dir` under a name that begins with `name`.
    pub fn new(
        spec: SortSpec,
        dir: &Path,
        name: &str,
        meter: &'a mut dyn Meter,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Self> {
        let file = |n| TempFile::create(dir, &format!("{name}.{n}"), spec.direct);
        Ok(Self { spec, meter, stop, from: file(0)?, to: file(1)?, end: 0 })
    }

    /// Sorts this many `keys` as specified and returns their number; `None` if it was told to stop.
    pub fn run(&mut self, mut keys: impl FnMut() -> u64) -> Result<Option<u64>> {
        let total = self.spec.bytes / KEY as u64;
        let per_run = self.spec.run_bytes() / KEY as u64;
        let mut wanted = KeySum::default();
        let mut runs = Vec::new();
        let mut area = Vec::with_capacity(per_run.min(total) as usize);
        let mut io = Blocking::new(1, self.spec.request).context("Cannot allocate a buffer")?;
        while wanted.keys < total {
            area.clear();
            for _ in 0..per_run.min(total - wanted.keys) {
                let key = keys();
                wanted.add(key);
                area.push(key);
            }
            area.sort_unstable();
            if area.len() as u64 == total {
                let mut out = Checked { tally: KeySum::default(), last: 0 };
                area.iter().try_for_each(|key| out.take(*key))?;
                return finished(out.tally, wanted).map(Some);
            }
            let Some(run) = self.spill(&mut io, &area)? else { return Ok(None) };
            runs.push(run);
        }
        drop((area, io));
        self.merge(runs, wanted)
    }

    fn spill(&mut self, io: &mut Blocking, area: &[u64]) -> Result<Option<Run>> {
        let run = Run { offset: self.end, keys: area.len() as u64 };
        for keys in area.chunks(self.spec.request / KEY) {
            if (self.stop)() {
                return Ok(None);
            }
            for (to, key) in io.buffer(0).as_chunks_mut::<KEY>().0.iter_mut().zip(keys) {
                *to = key.to_le_bytes();
            }
            self.put(io, 0)?;
        }
        Ok(Some(run))
    }

    /// Appends the engine's buffer `slot`.
    fn put(&mut self, io: &mut Blocking, slot: usize) -> Result<()> {
        self.to.write(io, slot, self.end, self.spec.request, self.meter)?;
        self.end += self.spec.request as u64;
        Ok(())
    }

    /// Merges all runs into one stream, in as many passes as the memory requires; only the last pass does not write.
    fn merge(&mut self, mut runs: Vec<Run>, wanted: KeySum) -> Result<Option<u64>> {
        let fan_in = self.spec.fan_in().min(runs.len());
        let mut io = Blocking::new(fan_in + 1, self.spec.request).context("Cannot allocate buffers")?;
        loop {
            std::mem::swap(&mut self.from, &mut self.to);
            self.to.clear()?;
            self.end = 0;
            if runs.len() <= fan_in {
                let mut out = Checked { tally: KeySum::default(), last: 0 };
                let whole = self.merge_group(&mut io, &runs, |_, _, key| Ok(out.take(key)?))?;
                return if whole { finished(out.tally, wanted).map(Some) } else { Ok(None) };
            }
            let mut merged = Vec::new();
            for group in runs.chunks(fan_in) {
                let mut run = Run { offset: self.end, keys: 0 };
                let per_request = self.spec.request / KEY;
                let whole = self.merge_group(&mut io, group, |sort, io, key| {
                    let at = run.keys as usize % per_request;
                    io.buffer(fan_in)[at * KEY..][..KEY].copy_from_slice(&key.to_le_bytes());
                    run.keys += 1;
                    if at + 1 == per_request { sort.put(io, fan_in) } else { Ok(()) }
                })?;
                if !whole {
                    return Ok(None);
                }
                if !(run.keys as usize).is_multiple_of(per_request) {
                    self.put(&mut io, fan_in)?;
                }
                merged.push(run);
            }
            runs = merged;
        }
    }

    /// Passes the keys of all `runs` to `out` in order. Returns whether it finished.
    fn merge_group(
        &mut self,
        io: &mut Blocking,
        runs: &[Run],
        mut out: impl FnMut(&mut Self, &mut Blocking, u64) -> Result<()>,
    ) -> Result<bool> {
        let mut readers: Vec<_> =
            runs.iter().enumerate().map(|(slot, run)| Reader { run: *run, slot, taken: 0 }).collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for r in &mut readers {
            if let Some(key) = self.next(io, r)? {
                heads.push(Reverse((key, r.slot)));
            }
        }
        while let Some(Reverse((key, slot))) = heads.pop() {
            out(self, io, key)?;
            if let Some(next) = self.next(io, &mut readers[slot])? {
                heads.push(Reverse((next, slot)));
            } else if readers[slot].taken < readers[slot].run.keys {
                return Ok(false);
            }
        }
        Ok(readers.iter().all(|r| r.taken == r.run.keys))
    }

    /// The run's next key; `None` at its end, and if the sort was told to stop.
    fn next(&mut self, io: &mut Blocking, r: &mut Reader) -> Result<Option<u64>> {
        if r.taken == r.run.keys {
            return Ok(None);
        }
        let per_request = (self.spec.request / KEY) as u64;
        let at = (r.taken % per_request) as usize;
        if at == 0 {
            if (self.stop)() {
                return Ok(None);
            }
            let offset = r.run.offset + r.taken * KEY as u64;
            self.from.read(io, r.slot, offset, self.spec.request, self.meter)?;
        }
        r.taken += 1;
        Ok(Some(u64::from_le_bytes(io.buffer(r.slot).as_chunks::<KEY>().0[at])))
    }
}

fn finished(found: KeySum, wanted: KeySum) -> Result<u64> {
    if found == wanted {
        Ok(found.keys)
    } else {
        Err(SortFailed::Sum { keys: wanted.keys, found: found.keys, sum: found.sum, wanted: wanted.sum }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    #[derive(Default)]
    struct Sums {
        read: u64,
        written: u64,
    }

    impl Meter for Sums {
        fn io(&mut self, write: bool, bytes: usize) {
            *if write { &mut self.written } else { &mut self.read } += bytes as u64;
        }
    }

    fn sort(spec: SortSpec, seed: u64, stop: &dyn Fn() -> bool) -> (Result<Option<u64>>, Sums) {
        let dir = tempfile::tempdir().unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut sums = Sums::default();
        let result = Sort::new(spec, dir.path(), "temp.000", &mut sums, stop).unwrap().run(|| random.next_u64());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a temporary file has kept its name");
        (result, sums)
    }

    #[test]
    fn what_fits_memory_is_not_spilled() {
        let spec = SortSpec { bytes: 65_536, memory: 65_536, request: 4096, direct: false };
        let (result, sums) = sort(spec, 1, &|| false);
        assert_eq!((result.unwrap(), sums.read, sums.written), (Some(8_192), 0, 0));
        assert_eq!(spec.temp_bytes(), 0);
    }

    #[test]
    fn one_merge_reads_what_was_written() {
        let spec = SortSpec { bytes: 1 << 20, memory: 128 << 10, request: 8192, direct: false };
        let (result, sums) = sort(spec, 2, &|| false);
        assert_eq!((result.unwrap(), sums.read, sums.written), (Some(131_072), 1 << 20, 1 << 20));
    }

    #[test]
    fn little_memory_takes_more_passes() {
        // 64 runs of 4 requests, 3 merged at once: 64, 22, 8, 3, and the last pass writes nothing.
        let spec = SortSpec { bytes: 1 << 20, memory: 16 << 10, request: 4096, direct: false };
        let (result, sums) = sort(spec, 3, &|| false);
        assert_eq!((result.unwrap(), sums.read, sums.written), (Some(131_072), 4 << 20, 4 << 20));
    }

    #[test]
    fn a_sort_that_is_told_to_stop_stops() {
        let spec = SortSpec { bytes: 1 << 20, memory: 16 << 10, request: 4096, direct: false };
        for after in [0, 100, 700] {
            let asked = std::cell::Cell::new(0);
            let (result, _) = sort(spec, 4, &|| asked.replace(asked.get() + 1) >= after);
            assert_eq!(result.unwrap(), None, "after {after} requests");
        }
    }

    #[test]
    fn wrong_output_is_noticed() {
        let mut out = Checked { tally: KeySum::default(), last: 0 };
        out.take(5).unwrap();
        assert_eq!(out.take(4), Err(SortFailed::Order { last: 5, next: 4 }));
        let mut in_ = KeySum::default();
        [7, 9].into_iter().for_each(|k| in_.add(k));
        let mut swapped = KeySum::default();
        [8, 8].into_iter().for_each(|k| swapped.add(k));
        assert!(finished(swapped, in_).is_err());
        assert!(finished(KeySum { keys: 1, ..in_ }, in_).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_size_is_sorted_within_its_space(keys in 1u64..20_000, requests in 1u64..20, seed: u64) {
            let spec = SortSpec { bytes: keys * 8, memory: requests * 4096, request: 4096, direct: false };
            let (result, sums) = sort(spec, seed, &|| false);
            prop_assert_eq!(result.unwrap(), Some(keys));
            prop_assert_eq!(sums.read, sums.written);
            prop_assert_eq!(sums.written > 0, spec.temp_bytes() > 0);
        }
    }
}
