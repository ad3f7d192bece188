//! Ledgers of killed, failed and finished runs, and damaged ones.

use super::*;
use crate::Dbsim;
use bigiron_workload::testing;

fn job() -> Job {
    Job::parse(&testing::options(&Dbsim, [("data", "10M"), ("cache", "1M")]).unwrap()).unwrap()
}

fn whole(dir: &Path) -> Option<Ledger> {
    Ledger::load(dir).ok()
}

fn fill(live: &LiveLedger<'_>) {
    live.flushed(77);
    live.flushed(76);
    live.checkpoint(5);
    live.switching(3);
    live.switched(2);
    live.committed(0, 4);
    live.writing(1279, 9);
    live.written(1279, 8);
    live.acknowledged(7, CommitEntry { transaction: 5, lsn: 70 });
}

fn check(ledger: &Ledger) {
    let Ledger { flushed, checkpoint, sequence, switching, ref commits, ref blocks, .. } = *ledger;
    assert_eq!((flushed, checkpoint, sequence, switching), (77, 5, 2, 3));
    assert_eq!((commits[0], commits[7]), (CommitEntry::default(), CommitEntry { transaction: 5, lsn: 70 }));
    assert_eq!(blocks[0], BlockEntry { committed: 4, written: 0, writing: 0 });
    assert_eq!(blocks[1279], BlockEntry { committed: 0, written: 8, writing: 9 });
    assert_eq!(blocks.len(), 1280);
}

#[test]
fn a_killed_run_has_its_ledger_and_an_ended_one_keeps_it() {
    let (dir, job) = (tempfile::tempdir().unwrap(), job());
    let ledger_file = LedgerFile::open(&job, dir.path()).unwrap();
    let live = LiveLedger::new(ledger_file.segment(), &job);
    fill(&live);
    let killed = whole(dir.path()).unwrap();
    assert!(ledger_file.live.exists());
    assert_eq!(killed.stop, Stop::Killed);
    check(&killed);
    ledger_file.close(&live).unwrap();
    let ended = whole(dir.path()).unwrap();
    assert_eq!(ended.stop, Stop::Ended);
    check(&ended);
    assert_eq!(std::fs::metadata(path(dir.path())).unwrap().len(), Ledger::bytes(8, 1280));
    assert!(!ledger_file.live.exists() && !link(dir.path()).is_symlink());
}

#[test]
fn a_failed_run_leaves_its_ledger_but_nothing_in_memory() {
    let (dir, job) = (tempfile::tempdir().unwrap(), job());
    let ledger_file = LedgerFile::open(&job, dir.path()).unwrap();
    fill(&LiveLedger::new(ledger_file.segment(), &job));
    let live = ledger_file.live.clone();
    drop(ledger_file);
    let failed = whole(dir.path()).unwrap();
    assert_eq!(failed.stop, Stop::Killed);
    check(&failed);
    assert!(!live.exists() && !link(dir.path()).is_symlink());
}

#[test]
fn a_kill_between_the_words_of_an_acknowledgement_leaves_the_one_before() {
    let (dir, job) = (tempfile::tempdir().unwrap(), job());
    let ledger_file = LedgerFile::open(&job, dir.path()).unwrap();
    let live = LiveLedger::new(ledger_file.segment(), &job);
    let last = || whole(dir.path()).unwrap().commits[3];
    let mut before = CommitEntry::default();
    for n in 1..6 {
        live.set(live.older_entry(3), n);
        assert_eq!(last(), before);
        before = CommitEntry { transaction: n, lsn: 10 * n };
        live.acknowledged(3, before);
        assert_eq!(last(), before);
    }
}

#[test]
fn damage_to_any_word_is_noticed() {
    let (dir, job) = (tempfile::tempdir().unwrap(), job());
    let ledger_file = LedgerFile::open(&job, dir.path()).unwrap();
    let live = LiveLedger::new(ledger_file.segment(), &job);
    fill(&live);
    for index in (0..live.words.len()).step_by(7).chain([0, HEAD]) {
        let before = live.words[index].load(SeqCst);
        for damaged in [before ^ 1 << (index % 64), 0, live.words[(index + 40) % live.words.len()].load(SeqCst)] {
            live.words[index].store(damaged, SeqCst);
            assert!(whole(dir.path()).is_none(), "word {index}: {damaged:#x} instead of {before:#x}");
        }
        live.words[index].store(before, SeqCst);
    }
    check(&whole(dir.path()).unwrap());
    ledger_file.close(&live).unwrap();
    let bytes = std::fs::read(path(dir.path())).unwrap();
    std::fs::write(path(dir.path()), &bytes[..bytes.len() - 8]).unwrap();
    assert!(matches!(Ledger::find(dir.path()).unwrap(), LedgerLookup::Damaged(_)));
    std::fs::rename(path(dir.path()), unfinished(dir.path())).unwrap();
    assert!(matches!(Ledger::find(dir.path()).unwrap(), LedgerLookup::NotRenamed));
    clear(dir.path()).unwrap();
    assert!(Ledger::load(dir.path()).is_err());
}
