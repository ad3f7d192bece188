//! Job files, in the workload's own language and in fio's.

use std::collections::BTreeSet;

use super::shipped::LIBRARY;
use super::{Draft, Job, fio, print};
use bigiron_model::clock::Clock;
use bigiron_model::fuzz_target;
use bigiron_workload::Configured;

const WORDS: &[&str] = &[
    "[run]",
    "[phase.a]",
    "[cache]",
    "[data]",
    "[journal]",
    "[transaction.t]",
    "[process.p]",
    "kind = \"requests\"",
    "kind = \"client\"",
    "kind = \"sorter\"",
    "kind = \"loader\"",
    "kind = \"idle\"",
    "kind = \"backup\"",
    "kind = \"archiver\"",
    "kind = \"checkpointer\"",
    "kind = \"scanner\"",
    "time = \"10s\"",
    "transactions = 1",
    "ramp = \"0s\"",
    "steps = \"read 8; dirty 50%; redo 1K; commit\"",
    "pace = \"poisson 100/s\"",
    "pace = \"think 5ms\"",
    "size = \"1T\"",
    "size = \"64G\"",
    "count = 20000",
    "files = 4096",
    "weight = 1000000",
    "depth = 4096",
    "io = \"uring\"",
    "read 65535",
    "1000000000000",
    "18446744073709551615%",
    "100%",
    "zipf 1.2",
    "hot 80/20",
    "huge-2M",
    "\"",
    "'''",
    "§",
    "[global]",
    "[a]",
    "rw=randrw",
    "ioengine=libaio",
    "bs=4k",
    "bssplit=4k/50:8k/50",
    "size=1g",
    "size=16e",
    "numjobs=4",
    "iodepth=64",
    "runtime=10",
    "time_based",
    "ramp_time=2s",
    "filename=f",
    "rwmixread=70",
    "random_distribution=zipf:1.1",
    "rate_iops=100",
    "fdatasync=1",
    "directory=/x",
    "loops=2",
    "thinktime=1ms",
    "io_size=1t",
    "number_ios=10",
];

const FIO: &str = "[global]\nioengine=libaio\ndirect=1\nbs=8k\nsize=64m\nfilename=f\nruntime=10\ntime_based\nramp_time=2s\n\
    group_reporting\n[random readers]\nrw=randread\nnorandommap\niodepth=16\niodepth_batch=8\nnumjobs=4\n";

#[test]
fn jobs() {
    let shipped = LIBRARY.shipped.iter().map(|job| job.text.as_bytes().to_vec());
    fuzz_target!(jobs, shipped.chain([FIO.as_bytes().to_vec()]).collect(), WORDS).run(|input| {
        let text = String::from_utf8_lossy(input);
        let own = text.contains("dbsim");
        let text = if own { text.into_owned() } else { fio::import("a.fio", &text).map_err(|e| e.to_string())? };
        let job = read(&text)?;
        // What is asked of a job before it runs.
        let needs = job.needs();
        let metrics = job.metrics();
        assert_eq!(metrics.iter().filter(|m| m.primary).count(), 1);
        let times = (job.silence(), job.transactions(Clock::Exact), job.ramp(Clock::Wall), job.raw_disks().is_some());
        let printed = print(&job);
        assert_eq!(read(&printed).as_ref(), Ok(&job), "{printed}");
        let kinds: BTreeSet<&str> = job.classes.iter().map(|class| class.kind.word()).collect();
        Ok(format!("{own} {kinds:?} {} {}", times.3, needs.modules.len()))
    });
}

fn read(text: &str) -> Result<Job, String> {
    Draft::parse("job", text).and_then(|draft| draft.job()).map_err(|e| e.to_string())
}
