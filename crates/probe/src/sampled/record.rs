//! The kernel's records of samples, in the format of a ring (linux/perf_event.h).
//!
//! Invariant: nothing is read beyond the size that a record states; bytes that are not a record end the reading and are reported as torn.

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Sample(Sample),
    /// A process has mapped part of a file as code.
    Mapped {
        pid: u32,
        mapping: Mapping,
    },
    /// A process was forked from another.
    Forked {
        pid: u32,
        parent: u32,
    },
    /// A process has changed its name: it executes another program, or was renamed.
    Named {
        pid: u32,
        name: String,
        executes: bool,
    },
    /// Number of records for which there was no room.
    Lost(u64),
    /// The kernel took fewer samples than requested, to limit the load.
    Throttled,
    /// Any other record.
    Other,
}

/// What a CPU executed at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    pub cpu: u32,
    pub stack: Stack,
    /// A tracepoint's fields, at the positions that its format gives; otherwise empty.
    pub raw: Vec<u8>,
}

/// Addresses of a call chain, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    pub kernel: Vec<u64>,
    pub user: Vec<u64>,
}

/// A part of a file that was mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The offset of `start` in the file.
    pub offset: u64,
    pub file: String,
}

/// Bytes that are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn;

const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;

const HEADER: usize = 8;

/// From this value on, an entry of a chain is not an address but gives the context of the following ones.
const CONTEXT: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

const PROT_EXEC: u32 = 4;

/// `PERF_RECORD_MISC_COMM_EXEC`.
const EXECUTES: u16 = 1 << 13;

/// Bytes from the time to the end of a record that is not a sample: it ends with process and thread, time, and CPU.
const TIME: usize = 16;

/// The records in `bytes`, in order, with their times in nanoseconds of `CLOCK_MONOTONIC`.
pub fn records(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u64, Record), Torn>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let size = bytes.get(6..8).map_or(0, |size| usize::from(u16::from_ne_bytes([size[0], size[1]])));
        if size < HEADER || size > bytes.len() {
            bytes = &[];
            return Some(Err(Torn));
        }
        let (record, rest) = bytes.split_at(size);
        bytes = rest;
        let parsed = parse(record).ok_or(Torn);
        if parsed.is_err() {
            bytes = &[];
        }
        Some(parsed)
    })
}

fn parse(record: &[u8]) -> Option<(u64, Record)> {
    let kind = u32::from_ne_bytes(*record.first_chunk()?);
    let misc = u16::from_ne_bytes(*record.get(4..)?.first_chunk()?);
    let mut words = Words(&record[HEADER..]);
    if kind == SAMPLE {
        return sample(&mut words).map(|(time, sample)| (time, Record::Sample(sample)));
    }
    let time = Words(record.get(record.len().checked_sub(TIME)?.max(HEADER)..)?).word()?;
    let record = match kind {
        FORK => {
            let (pid, parent) = words.halves()?;
            // A new thread belongs to the same process.
            if pid == parent { Record::Other } else { Record::Forked { pid, parent } }
        }
        MMAP | MMAP2 => {
            let (pid, _) = words.halves()?;
            let (start, len, offset) = (words.word()?, words.word()?, words.word()?);
            // The older form has no protection field; without `mmap_data` only executable mappings are reported.
            let executable = if kind == MMAP2 {
                words.skip(3)?;
                words.halves()?.0 & PROT_EXEC != 0
            } else {
                true
            };
            let mapping = Mapping { start, end: start.checked_add(len)?, offset, file: words.text() };
            if executable { Record::Mapped { pid, mapping } } else { Record::Other }
        }
        COMM => Record::Named { pid: words.halves()?.0, name: words.text(), executes: misc & EXECUTES != 0 },
        LOST => {
            words.skip(1)?;
            Record::Lost(words.word()?)
        }
        LOST_SAMPLES => Record::Lost(words.word()?),
        THROTTLE => Record::Throttled,
        _ => Record::Other,
    };
    Some((time, record))
}

/// Parses the fields in the order of `sample_type`'s bits: IP, TID, TIME, CPU, CALLCHAIN, and RAW if present.
fn sample(words: &mut Words<'_>) -> Option<(u64, Sample)> {
    let ip = words.word()?;
    let (pid, tid) = words.halves()?;
    let time = words.word()?;
    let (cpu, _) = words.halves()?;
    let length = words.word()?;
    let mut stack = Stack::default();
    let mut context = None;
    for _ in 0..length {
        match words.word()? {
            marker if marker >= CONTEXT => context = Some(marker),
            address => match context {
                Some(CONTEXT_KERNEL) => stack.kernel.push(address),
                Some(CONTEXT_USER) => stack.user.push(address),
                // Addresses of a guest or a hypervisor, not of this machine.
                _ => {}
            },
        }
    }
    // The stack of the interrupted process could not be walked.
    if stack.kernel.is_empty() && stack.user.is_empty() {
        let side = if (ip as i64) < 0 { &mut stack.kernel } else { &mut stack.user };
        side.push(ip);
    }
    let raw = if words.0.is_empty() { Vec::new() } else { words.raw()? };
    Some((time, Sample { pid, tid, cpu, stack, raw }))
}

/// The rest of a record.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    /// Two numbers of 32 bits, the one at the lower address first.
    fn halves(&mut self) -> Option<(u32, u32)> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        let (second, rest) = rest.split_first_chunk::<4>()?;
        self.0 = rest;
        Some((u32::from_ne_bytes(*first), u32::from_ne_bytes(*second)))
    }

    /// Bytes preceded by their number, of 32 bits.
    fn raw(&mut self) -> Option<Vec<u8>> {
        let (len, rest) = self.0.split_first_chunk::<4>()?;
        rest.get(..u32::from_ne_bytes(*len) as usize).map(<[u8]>::to_vec)
    }

    fn skip(&mut self, words: usize) -> Option<()> {
        self.0 = self.0.get(8 * words..)?;
        Some(())
    }

    /// The text up to a zero byte.
    fn text(&self) -> String {
        String::from_utf8_lossy(self.0.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record of `kind` with `words` after its header.
    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(2_u16.to_ne_bytes());
        bytes.extend((HEADER as u16 + 8 * words.len() as u16).to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    fn halves(first: u32, second: u32) -> u64 {
        let bytes: Vec<u8> = first.to_ne_bytes().into_iter().chain(second.to_ne_bytes()).collect();
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    fn text(text: &str) -> Vec<u64> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect()
    }

    fn sampled(chain: &[u64]) -> Vec<u8> {
        let mut words = vec![0xffff_ffff_8100_0010, halves(7, 8), 123_456, halves(1, 0), chain.len() as u64];
        words.extend(chain);
        record(SAMPLE, &words)
    }

    /// A record that is not a sample: it ends with process, time and CPU.
    fn told(kind: u32, words: &[u64]) -> Vec<u8> {
        record(kind, &[words, &[halves(1, 1), 77, halves(0, 0)]].concat())
    }

    fn all(bytes: &[u8]) -> Vec<Result<(u64, Record), Torn>> {
        records(bytes).collect()
    }

    #[test]
    fn a_chain_is_the_kernels_then_the_programs() {
        let kernel = [0xffff_ffff_8100_0010, 0xffff_ffff_8100_0200];
        let chain = [CONTEXT_KERNEL, kernel[0], kernel[1], CONTEXT_USER, 0x40_1000, 0x40_2000];
        let stack = Stack { kernel: kernel.to_vec(), user: vec![0x40_1000, 0x40_2000] };
        let sample = Sample { pid: 7, tid: 8, cpu: 1, stack, raw: Vec::new() };
        assert_eq!(all(&sampled(&chain)), [Ok((123_456, Record::Sample(sample.clone())))]);
        // A tracepoint's fields follow their length, with padding up to a whole word.
        let mut traced = sampled(&chain);
        traced.extend(12_u32.to_ne_bytes());
        traced.extend(*b"fields and 0");
        let size = traced.len() as u16;
        traced[6..8].copy_from_slice(&size.to_ne_bytes());
        let raw = b"fields and 0".to_vec();
        assert_eq!(all(&traced), [Ok((123_456, Record::Sample(Sample { raw, ..sample })))]);
        let at = traced.len() - 16;
        traced[at] = 13;
        assert_eq!(all(&traced), [Err(Torn)]);
    }

    #[test]
    fn a_guests_addresses_are_none_and_no_chain_is_where_the_cpu_was() {
        let guest = -2048_i64 as u64;
        let Ok((_, Record::Sample(sample))) = &all(&sampled(&[guest, 0x1000]))[0] else { panic!("a sample") };
        assert_eq!((sample.stack.kernel.as_slice(), sample.stack.user.len()), (&[0xffff_ffff_8100_0010][..], 0));
    }

    #[test]
    fn what_is_mapped_and_named_and_lost_is_told() {
        let mut mapped = vec![halves(9, 9), 0x7f00_0000, 0x2000, 0x1000, 0, 17, 0, halves(5, 2)];
        mapped.extend(text("/lib/x.so"));
        let mut data = mapped.clone();
        data[7] = halves(1, 2);
        let mut named = vec![halves(9, 9)];
        named.extend(text("worker"));
        let mut bytes = told(MMAP2, &mapped);
        bytes.extend(told(MMAP2, &data));
        bytes.extend(told(COMM, &named));
        let mut executes = told(COMM, &named);
        executes[4..6].copy_from_slice(&EXECUTES.to_ne_bytes());
        bytes.extend(executes);
        bytes.extend(told(FORK, &[halves(10, 9), halves(10, 9), 76]));
        bytes.extend(told(FORK, &[halves(9, 9), halves(11, 9), 76]));
        bytes.extend(told(LOST, &[1, 42]));
        bytes.extend(told(LOST_SAMPLES, &[3]));
        bytes.extend(told(THROTTLE, &[1, 2, 3]));
        let file = "/lib/x.so".to_owned();
        let mapping = Mapping { start: 0x7f00_0000, end: 0x7f00_2000, offset: 0x1000, file };
        assert_eq!(
            all(&bytes),
            [
                Record::Mapped { pid: 9, mapping },
                Record::Other,
                Record::Named { pid: 9, name: "worker".to_owned(), executes: false },
                Record::Named { pid: 9, name: "worker".to_owned(), executes: true },
                Record::Forked { pid: 10, parent: 9 },
                Record::Other,
                Record::Lost(42),
                Record::Lost(3),
                Record::Throttled,
            ]
            .map(|record| Ok((77, record)))
        );
    }

    #[test]
    fn torn_bytes_are_said_to_be_and_end_the_reading() {
        let whole = sampled(&[CONTEXT_USER, 0x40_1000]);
        for cut in 1..whole.len() {
            assert_eq!(all(&whole[..cut]), [Err(Torn)], "{cut}");
        }
        // A chain longer than its record, and a size of zero.
        let mut long = whole.clone();
        long[HEADER + 32..HEADER + 40].copy_from_slice(&1000_u64.to_ne_bytes());
        assert_eq!(all(&[long, whole.clone()].concat()), [Err(Torn)]);
        let mut endless = whole.clone();
        endless[6..8].copy_from_slice(&0_u16.to_ne_bytes());
        assert_eq!(all(&[whole, endless].concat()).len(), 2);
    }
}
