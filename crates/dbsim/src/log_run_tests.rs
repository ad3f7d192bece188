//! Whole runs that test the log: stages, groups, ways to sync, journals, archiver.

use super::*;

use bigiron_model::clock::Clock;
use bigiron_workload::testing;
use bigiron_workload::testing::skipped;

/// A job and a directory beside the test's executable, which is on a real file system, while `/tmp` might be in memory.
struct Run {
    dir: tempfile::TempDir,
    options: Options,
}

impl Run {
    /// A small job of this many foregrounds, with these lines under `[journal]` and these in the log writer's table, and other processes.
    fn new(foregrounds: usize, journal: &str, log_writer: &str, others: &str) -> Self {
        Self::with_steps("\"commit\"", foregrounds, journal, log_writer, others)
    }

    /// The same with 12,000 additional bytes of redo per transaction: a journal for every 170 of them, however they are grouped.
    fn with_much_redo(journal: &str, log_writer: &str, others: &str) -> Self {
        Self::with_steps("\"redo 12000\", \"commit\"", 4, journal, log_writer, others)
    }

    fn with_steps(steps: &str, foregrounds: usize, journal: &str, log_writer: &str, others: &str) -> Self {
        let text = format!(
            r#"dbsim = 1
[cache]
size = "8M"
[data]
files = 2
size = "16M"
[journal]
size = "2M"
{journal}
[transaction.update]
steps = ["read 4 zipf:0.9", "dirty 60%", {steps}]
[process]
foreground = {{ kind = "foreground", count = {foregrounds} }}
log-writer = {{ kind = "log-writer"{log_writer} }}
database-writer = {{ kind = "database-writer", io = "sync", batch = 16 }}
{others}
"#
        );
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let options = testing::options(&Dbsim, [("job", text.as_str()), ("transactions", "200")]).unwrap();
        Self { dir: tempfile::tempdir_in(beside).unwrap(), options }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.options.insert(name.to_owned(), value.to_owned());
        self
    }

    fn with<T>(&self, f: impl FnOnce(&Context<'_>) -> T) -> T {
        f(&Context { seed: 3, clock: Clock::Wall, cpus: 1, ..testing::context(self.dir.path()) })
    }

    /// Prepares, runs and verifies.
    fn go(&self) -> Result<WorkloadResult> {
        self.with(|cx| {
            let job = Job::parse(&self.options).unwrap();
            let mut running = job.prepare(cx)?;
            let outcome = running.run(cx)?;
            running.verify(cx)?;
            Ok(outcome)
        })
    }
}

fn fact(outcome: &WorkloadResult, name: &str) -> f64 {
    let text = outcome.facts.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", outcome.facts));
    text.parse().unwrap()
}

#[test]
fn the_stages_add_up_to_the_commit() {
    for (foregrounds, wake) in [(1, "post"), (6, "post"), (6, "poll")] {
        // So few that only commits cause redo writes: no checkpoint, no dirty buffer to replace.
        let run = Run::new(foregrounds, "", &format!(", wake = \"{wake}\""), "").set("transactions", "60");
        let outcome = run.go().unwrap();
        let sum: f64 = stages::STAGES.iter().map(|(name, _)| outcome.values[&format!("stage-{name}-mean")]).sum();
        let whole = fact(&outcome, "commit-mean-ns");
        assert!((sum / whole - 1.0).abs() < 0.01, "{sum} of {whole}");
        // A commit waits for the complete redo write that carries it.
        assert!(outcome.values["stage-flush-mean"] < whole);
        if foregrounds == 1 {
            // One stream: one flush for each commit, and its stage begins before the write and ends after it.
            assert_eq!(outcome.facts["commits-per-redo-write"], "1.0000");
            assert!(outcome.values["stage-flush-mean"] >= fact(&outcome, "redo-write-mean-ns"));
        }
    }
}

#[test]
fn commits_of_many_foregrounds_share_redo_writes() {
    let grouped = |foregrounds, wait: &str| {
        let run = Run::new(foregrounds, "", &format!(", group-wait = \"{wait}\""), "").set("transactions", "60");
        fact(&run.go().unwrap(), "commits-per-redo-write")
    };
    // Nobody comes meanwhile, however long it waits.
    assert_eq!(grouped(1, "10 ms"), 1.0);
    // The longest possible: a process that is late on a busy machine is not in the group, and the threshold is low. Four foregrounds
    // could never give more than four.
    let twenty = grouped(20, "1 s");
    assert!(twenty > 4.0, "{twenty}");
}

#[test]
fn every_way_to_sync_is_run_and_verified() {
    for (direct, sync) in
        [(true, "dsync"), (true, "rwf-dsync"), (false, "fdatasync"), (false, "fsync"), (true, "fdatasync")]
    {
        let run = Run::new(3, &format!("sync = \"{sync}\"\ndirect = {direct}"), "", "");
        let outcome = run.go().unwrap();
        assert!(outcome.facts["redo-durability"].to_lowercase().replace('_', "-").contains(sync), "{sync}");
        let honesty = &outcome.facts["sync-honesty"];
        assert!(["honest: ", "not known: "].iter().any(|p| honesty.starts_with(p)), "{honesty}");
    }
}

#[test]
fn a_sync_linked_to_the_write_is_run_and_verified() {
    let run = Run::new(3, "sync = \"linked\"", ", io = \"uring\"", "");
    match run.go() {
        Err(e) if format!("{e:#}").contains("io_uring") => skipped("a linked sync", format_args!("{e:#}")),
        outcome => assert!(outcome.unwrap().facts["redo-durability"].contains("linked")),
    }
}

#[test]
fn archives_are_whole_bounded_and_go_on_where_each_other_ends() {
    let archiver = "archiver = { kind = \"archiver\", request = \"64K\" }";
    let run = Run::with_much_redo("files = 3\ndirect = true", ", group = \"64K\"", archiver);
    let run = run.set("transactions", "2000");
    let outcome = run.go().unwrap();
    // More than are kept.
    assert!(fact(&outcome, "log-switches") > archiver::KEPT as f64, "{:?}", outcome.facts);
    let archived: Vec<u64> = (1..100).filter(|turn| archiver::path(run.dir.path(), *turn).exists()).collect();
    let last = *archived.last().expect("something was archived");
    let first = last.saturating_sub(archiver::KEPT - 1).max(1);
    assert_eq!(archived, (first..=last).collect::<Vec<_>>());
    let mut end = None;
    let mut sequence = None;
    for turn in archived {
        let bytes = std::fs::read(archiver::path(run.dir.path(), turn)).unwrap();
        let header = journal::JournalHeader::decode(&bytes).expect("a journal header");
        assert_eq!(header.sequence, turn);
        assert_eq!(end.unwrap_or(header.start), header.start);
        for chunk in journal::Chunks::new(&bytes, header) {
            end = Some(chunk.end);
            for record in chunk.records() {
                let record = record.unwrap();
                assert_eq!(sequence.unwrap_or(record.sequence - 1) + 1, record.sequence);
                sequence = Some(record.sequence);
            }
        }
    }
    let files = std::fs::read_dir(run.dir.path()).unwrap().flatten();
    let left = files.filter(|f| f.file_name().to_string_lossy().contains("unfinished")).count();
    assert_eq!(left, 0);
}

#[test]
fn a_slow_archiver_holds_up_the_log() {
    // Eight seconds for the first journal, which the foregrounds fill twice in much less: a journal for every 20 transactions, so that
    // few of them wait for a disk that other tests use. If syncs still take seconds, a second run has a slower archiver, which takes a
    // minute.
    let with_limit = |limit: &str| {
        let archiver = format!("archiver = {{ kind = \"archiver\", request = \"1M\", limit = \"{limit}\" }}");
        let steps = "\"redo 100000\", \"commit\"";
        let run = Run::with_steps(steps, 4, "files = 2", "", &archiver).set("transactions", "50");
        run.go().unwrap()
    };
    let mut outcome = with_limit("128K/s");
    if fact(&outcome, "log-switch-waits-for-archiving") == 0.0 {
        outcome = with_limit("16K/s");
    }
    assert!(fact(&outcome, "journals-archived") >= 1.0, "{:?}", outcome.facts);
    assert!(fact(&outcome, "log-switch-waits-for-archiving") >= 1.0, "{:?}", outcome.facts);
    assert!(fact(&outcome, "log-switch-wait-for-archiving-ns") > 0.0);
}

#[test]
fn archives_are_counted_in_what_the_job_needs() {
    let needs = |others| {
        let run = Run::new(2, "", "", others);
        Job::parse(&run.options).unwrap().needs().storage_bytes.unwrap()
    };
    let with = needs("archiver = { kind = \"archiver\", request = \"64K\" }");
    assert_eq!(with - needs(""), (archiver::KEPT + 1) * (2 << 20));
}
