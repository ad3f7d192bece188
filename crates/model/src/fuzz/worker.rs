//! The process that runs a reader: it writes down each input before the reader gets it, and ends with the first that fails.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getppid, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::mutator::Mutator;
use super::{Limits, Outcome, Target, corpus, watcher};

/// Seed of the short runs.
const SEED: u64 = 21;
/// Inputs kept in memory, and the bytes of each.
const POOL: usize = 2000;
const POOL_BYTES: usize = 16 << 10;
/// CPU time from which an input counts as slow, which is an outcome of its own.
const SLOW: Duration = Duration::from_millis(250);
/// Characters of an outcome that distinguish it.
const DISTINCT: usize = 48;

/// Runs the target and ends the process.
pub(super) fn work(target: &Target, limits: Limits, state: &Path, read: impl Fn(&[u8]) -> Outcome) -> ! {
    bound(limits);
    let state = File::options().write(true).open(state).expect("the watcher made it");
    let parent = getppid();
    let start = Instant::now();
    let seed = match limits.long {
        true => SystemTime::now().duration_since(UNIX_EPOCH).map_or(SEED, |since| since.as_nanos() as u64),
        false => SEED,
    };
    let mut run = Run { read, state, number: 0, seen: BTreeSet::new(), slowest: (Duration::ZERO, 0) };
    let mut pool = target.seeds.clone();
    pool.extend(corpus::load(&target.corpus).expect("the corpus can be read"));
    assert!(!pool.is_empty(), "`{}` has neither seeds nor a corpus", target.test);
    for input in &pool {
        run.read(input);
    }
    let mut mutator = Mutator::new(seed, target.words);
    let (mut changes, mut kept) = (0, 0);
    while changes < limits.changes && start.elapsed() < limits.time {
        // A killed watcher watches no more.
        if changes % 256 == 0 && getppid() != parent {
            break;
        }
        let input = mutator.change(&pool);
        if run.read(&input) {
            if limits.long && corpus::keep_if_small(&target.corpus, &input).expect("the corpus can be written") {
                kept += 1;
            }
            if input.len() < POOL_BYTES && pool.len() < POOL {
                pool.push(input);
            }
        }
        changes += 1;
    }
    if limits.long {
        let (slowest, bytes) = run.slowest;
        println!(
            "\n{}{}: {} inputs, {} outcomes, {kept} kept; the slowest took {slowest:.1?} for {bytes} bytes",
            watcher::SUMMARY,
            target.test,
            run.number,
            run.seen.len()
        );
    }
    watcher::write_state(&run.state, watcher::FINISHED, &[]).expect("the state can be written");
    std::process::exit(0)
}

/// An allocation beyond the limit aborts; a file beyond it, or CPU time long after the end, kills.
fn bound(limits: Limits) {
    let pages: u64 = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .expect("/proc/self/statm begins with the number of pages");
    let used = pages * rustix::param::page_size() as u64;
    // The reader may use several threads.
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let cpu = (threads * limits.time + 20 * limits.cpu).as_secs();
    for (resource, most) in [
        (Resource::As, used + limits.bytes),
        (Resource::Fsize, limits.bytes),
        (Resource::Core, 0),
        (Resource::Cpu, cpu),
    ] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).expect("limits can be lowered");
    }
}

struct Run<R> {
    read: R,
    state: File,
    number: u64,
    seen: BTreeSet<String>,
    /// CPU time and bytes.
    slowest: (Duration, usize),
}

impl<R: Fn(&[u8]) -> Outcome> Run<R> {
    /// Whether the outcome is a new one.
    fn read(&mut self, input: &[u8]) -> bool {
        self.number += 1;
        watcher::write_state(&self.state, self.number, input).expect("the state can be written");
        let before = cpu_time();
        let outcome = (self.read)(input);
        let used = cpu_time() - before;
        if used > self.slowest.0 {
            self.slowest = (used, input.len());
        }
        let slow = if used >= SLOW { "slow " } else { "" };
        let outcome = match outcome {
            Ok(what) => format!("{slow}ok {what}"),
            Err(why) => format!("{slow}{}", without_quotations(&why)),
        };
        self.seen.insert(outcome)
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An error without what it repeats of its input: lines, numbers, checksums, and everything from the first quotation to the last.
fn without_quotations(message: &str) -> String {
    let last = message.trim_end().lines().next_back().unwrap_or_default();
    let quote = |c: char| matches!(c, '`' | '"');
    let (before, after) = match last.find(quote).zip(last.rfind(quote)) {
        Some((first, end)) => (&last[..first], &last[end + 1..]),
        None => (last, ""),
    };
    let words = before.split_whitespace().chain(after.split_whitespace());
    let words = words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.flat_map(|word| word.chars().chain([' '])).take(DISTINCT).collect()
}
