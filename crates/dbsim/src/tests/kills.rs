//! Runs killed at random points: on an honest stack everything acknowledged is there, and a lying stack is detected.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustix::process::{Pid, Signal};

use super::stack::{self, Lie, Mode, Remembered, StackFile};
use super::*;
use bigiron_sys::process::{Child, fork_child};
use bigiron_sys::shared_memory::SharedMemory;
use std::io::Write as _;
use std::sync::Arc;

/// A run in its own process group.
struct Running<'a> {
    bench: &'a Bench,
    child: Option<Child>,
    group: Pid,
}

impl<'a> Running<'a> {
    /// Starts it, after `before` in the child.
    fn start(bench: &'a Bench, before: impl FnOnce()) -> Self {
        bench.prepare();
        let child = fork_child(|| {
            rustix::process::setpgid(None, None).unwrap();
            before();
            let ended = bench.run();
            if let Err(e) = &ended {
                // `eprintln!` would write to libtest's capture buffer, which is lost with the child.
                let _ = writeln!(std::io::stderr(), "The run to be killed failed: {e:#}");
            }
            i32::from(ended.is_err())
        })
        .unwrap();
        let group = child.pid();
        Self { bench, child: Some(child), group }
    }

    /// Waits until the ledger satisfies `reached`; `false` if the run has ended before.
    fn until(&mut self, reached: impl Fn(&Ledger) -> bool) -> bool {
        loop {
            if let Ok(ledger) = Ledger::load(self.bench.path())
                && reached(&ledger)
            {
                return true;
            }
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                self.child = None;
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Kills all its processes and waits until they have ended.
    fn kill(mut self) {
        // Before the child has created its group there is only the child.
        let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        drop(self.child.take());
        assert!(self.bench.no_process_stays());
    }
}

fn commits(ledger: &Ledger) -> u64 {
    ledger.commits.iter().map(|c| c.transaction).sum()
}

/// The settings of the killed runs, in turn.
const WAYS: [&[(&str, &str)]; 6] = [
    &[("io", "sync"), ("direct", "on"), ("sync", "dsync")],
    &[("io", "libaio"), ("direct", "on"), ("sync", "fdatasync")],
    &[("io", "uring"), ("direct", "on"), ("sync", "dsync")],
    &[("io", "sync"), ("direct", "off"), ("sync", "fdatasync")],
    &[("io", "libaio"), ("direct", "off"), ("sync", "dsync")],
    &[("io", "uring"), ("direct", "off"), ("sync", "fdatasync")],
];
const LONG: [(&str, &str); 3] = [("transactions", "1000000"), ("write", "60"), ("processes", "6")];

fn bench(way: usize) -> Bench {
    Bench::new(&[WAYS[way % WAYS.len()], &LONG].concat())
}

/// Number of kills: the environment may request more than the default.
fn rounds() -> u64 {
    std::env::var("DBSIM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(24)
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill_and_no_alarm_is_false() {
    let mut random = ChaCha8Rng::seed_from_u64(12);
    let (mut killed, mut in_doubt, mut losers) = (0, 0, 0);
    for round in 0..rounds() {
        let bench = bench(round as usize);
        // Before the first commit, soon after it, or when the journals have been reused several times.
        let target = [0, 20, 400, 4000][round as usize % 4];
        let target = target + random.next_u64() % (target + 1);
        let mut run = Running::start(&bench, || {});
        let stopped = run.until(|l| commits(l) >= target);
        let pause = random.next_u64() % 2000;
        std::thread::sleep(Duration::from_micros(pause));
        run.kill();
        assert!(stopped, "round {round}: the run ended by itself");
        let ledger = bench.ledger();
        assert_eq!(ledger.stop, ledger::Stop::Killed);
        let verdict = bench.check(AckSource::Ledger);
        assert!(verdict.passed(), "round {round}, {target} commits: {:?} {:?}", verdict.counts, verdict.findings);
        killed += 1;
        in_doubt += verdict.facts["commits-in-doubt"];
        losers += verdict.facts["losers"];
        ledger::clear(bench.path()).unwrap();
    }
    eprintln!("{killed} kills; {in_doubt} commits were in doubt, {losers} transactions had not committed");
}

#[test]
fn a_stack_that_lies_about_a_write_is_found_out() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for round in 0..rounds() / 2 {
        // Every sixth round shifts the settings against the lies.
        let bench = bench((round + round / 6) as usize);
        let journals = round % 2 == 0;
        let lie = [Lie::Drop, Lie::Half, Lie::Elsewhere][round as usize / 2 % 3];
        let nth = random.next_u64() % 300;
        let memory = Arc::new(SharedMemory::new(4096).unwrap());
        let job = bench.job();
        let mut run = Running::start(&bench, || {
            stack::set(Mode::Lie { lie, journals, nth }, &job, bench.path(), memory.clone());
        });
        run.until(|l| match stack::told(&memory).checked_sub(1) {
            None => false,
            Some(lsn) if journals => l.flushed >= lsn,
            Some(told) => {
                let address = block::Address { file: (told >> 48) as u32, block: (told >> 32 & 0xffff) as u32 };
                let number = files::number(&job, address).unwrap();
                l.blocks[number as usize].written >= told as u32
            }
        });
        run.kill();
        let verdict = bench.check(AckSource::Ledger);
        assert!(!verdict.passed(), "round {round}: {lie:?} of {nth} (journals: {journals}) was not noticed");
        ledger::clear(bench.path()).unwrap();
    }
}

fn put(bench: &Bench, write: &Remembered, bytes: &[u8]) {
    let path = match write.place {
        StackFile::Journal(j) => files::journal_path(bench.path(), j),
        StackFile::Data(f) => files::data_path(bench.path(), f),
    };
    File::options().write(true).open(path).unwrap().write_all_at(bytes, write.offset).unwrap();
}

/// A power loss: writes in flight have arrived in part, by sectors. Then the disk turns out to have kept in a volatile cache the
/// data that it had reported durable.
#[test]
fn a_loss_of_power_is_survived_and_a_volatile_cache_is_found_out() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for round in 0..rounds() / 4 {
        let mut bench = bench(if round % 2 == 0 { 0 } else { 4 });
        let beside = tempfile::tempdir_in(bench.path().parent().unwrap()).unwrap();
        let (undo, acks) = (beside.path().join("undo"), beside.path().join("acks"));
        File::create(&undo).unwrap();
        bench.set("run.acks", acks.to_str().unwrap());
        let memory = Arc::new(SharedMemory::new(4096).unwrap());
        let job = bench.job();
        let target = 50 + random.next_u64() % 1500;
        let mut run = Running::start(&bench, || {
            stack::set(Mode::Remember(undo.clone()), &job, bench.path(), memory.clone());
        });
        assert!(run.until(|l| commits(l) >= target));
        let inodes = stack::inodes(&job, bench.path());
        run.kill();
        let writes = stack::remembered(&undo, &inodes);
        for write in writes.iter().filter(|w| !w.done) {
            let mut bytes = write.before.clone();
            for (to, from) in bytes.chunks_mut(512).zip(write.after.chunks(512)) {
                if random.next_u32() % 2 == 0 {
                    to.copy_from_slice(from);
                }
            }
            put(&bench, write, &bytes);
        }
        for by in [AckSource::Ledger, AckSource::Stream(&acks)] {
            let verdict = bench.check(by);
            assert!(verdict.passed(), "round {round}, {by:?}: {:?} {:?}", verdict.counts, verdict.findings);
        }
        // Acknowledged redo is lost with the cache; then blocks as well.
        let ledger = bench.ledger();
        let flushed = ledger.flushed;
        let redo = |w: &&Remembered| w.done && matches!(w.place, StackFile::Journal(_)) && w.offset > 0;
        let acknowledged =
            |w: &&Remembered| journal::ChunkHeader::read(&w.after).is_some_and(|c| c.lsn + u64::from(c.len) <= flushed);
        let last = writes.iter().rfind(|w| redo(w) && acknowledged(w)).unwrap();
        put(&bench, last, &last.before);
        for by in [AckSource::Ledger, AckSource::Stream(&acks)] {
            assert!(bench.check(by).counts.contains_key("lost-redo"), "round {round}, {by:?}");
        }
        put(&bench, last, &last.after);
        assert!(bench.check(AckSource::Ledger).passed());
        // The kill may have come after a write completed but before the ledger recorded it.
        let is_reported = |w: &&Remembered| match w.place {
            StackFile::Journal(_) => false,
            StackFile::Data(file) => {
                let address = block::Address { file: file as u32, block: (w.offset / block::BLOCK as u64) as u32 };
                let number = files::number(&job, address).unwrap();
                block::stamp(&w.after).version <= ledger.blocks[number as usize].written
            }
        };
        let block = writes.iter().rfind(|w| w.done && is_reported(w));
        if let Some(block) =
            block.filter(|b| !writes.iter().any(|w| !w.done && w.offset == b.offset && w.place == b.place))
        {
            put(&bench, block, &block.before);
            assert!(bench.check(AckSource::Ledger).counts.contains_key("lost-write"), "round {round}");
        }
        ledger::clear(bench.path()).unwrap();
    }
}
