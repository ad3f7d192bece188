//! Runs one class of plain requests, given as words on the command line, and prints what it did as one line of JSON.
//!
//! Usage: `requests DIR bytes-of-data KEY=VALUE...`; DIR holds `data.000` (a file of that size, or a link to a device).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bigiron::clock::Clock;
use bigiron::workload::dbsim::job::{
    CacheSpec, Choice, ClassSpec, DataSpec, DataSync, Engine, Job, JournalSpec, Kind, Length, LogSync, Memory, Method,
    Pace, Replacement, Requests, Run,
};
use bigiron::workload::dbsim::{JobContext, run};

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [dir, bytes, settings @ ..] = &args[..] else { bail!("Usage: requests DIR BYTES KEY=VALUE...") };
    let mut r = Requests {
        engine: Engine::default(),
        bytes: 4096,
        random: true,
        choice: Choice::Uniform,
        read_percent: 100,
        direct: true,
        dsync: false,
        fdatasync_every: 0,
        verify: false,
        count: None,
    };
    let (mut seconds, mut ramp, mut processes) = (2.0, 0.3, 1);
    for s in settings {
        let (key, value) = s.split_once('=').context("A setting is KEY=VALUE")?;
        let number = || value.parse::<f64>().with_context(|| format!("`{s}` is no number"));
        match key {
            "engine" => {
                r.engine.method = match value {
                    "null" => Method::Null,
                    "sync" => Method::Sync,
                    "vectored" => Method::Vectored,
                    "threads" => Method::Threads,
                    "libaio" => Method::Libaio,
                    "uring" => Method::Uring,
                    _ => bail!("No engine `{value}`"),
                }
            }
            "depth" => r.engine.depth = number()? as usize,
            "batch" => r.engine.batch = number()? as usize,
            "registered" => r.engine.registered = number()? > 0.0,
            "sqpoll" => r.engine.sqpoll = number()? > 0.0,
            "iopoll" => r.engine.iopoll = number()? > 0.0,
            "bytes" => r.bytes = number()? as usize,
            "random" => r.random = number()? > 0.0,
            "zipf" => r.choice = Choice::Zipf(number()?),
            "read" => r.read_percent = number()? as u32,
            "direct" => r.direct = number()? > 0.0,
            "dsync" => r.dsync = number()? > 0.0,
            "verify" => r.verify = number()? > 0.0,
            "fdatasync" => r.fdatasync_every = number()? as u32,
            "seconds" => seconds = number()?,
            "ramp" => ramp = number()?,
            "processes" => processes = number()? as usize,
            _ => bail!("No setting `{key}`"),
        }
    }
    let job = Job {
        name: "requests".to_owned(),
        run: Run {
            length: Length::Time(Duration::from_secs_f64(seconds)),
            ramp: Some(Length::Time(Duration::from_secs_f64(ramp))),
            phases: Vec::new(),
        },
        cache: CacheSpec { bytes: 1 << 20, memory: Memory::Mmap, replacement: Replacement::Clock, dirty_percent: 25 },
        data: DataSpec {
            files: 1,
            bytes: bytes.parse()?,
            direct: r.direct,
            sync: DataSync::Fdatasync,
            places: Vec::new(),
        },
        journal: JournalSpec {
            files: 2,
            bytes: 2 << 20,
            direct: r.direct,
            sync: LogSync::Fdatasync,
            block: 4096,
            place: None,
        },
        transactions: Vec::new(),
        classes: vec![ClassSpec {
            name: "requests".to_owned(),
            count: processes,
            threads: false,
            pace: Pace::Closed { think: Duration::ZERO },
            kind: Kind::Requests(r),
        }],
    };
    let cx = JobContext { dir: Path::new(dir), seed: 1, clock: Clock::Wall, progress: &|_| {}, live: None };
    let outcome = run(&job, &cx)?;
    let (n, latency) = outcome.requests();
    println!(
        "{{\"requests\":{n},\"iops\":{:.0},\"cpu_ns\":{:.1},\"p50_ns\":{},\"p99_ns\":{},\"recorded\":{}}}",
        n as f64 / outcome.elapsed.as_secs_f64(),
        outcome.cpu.as_nanos() as f64 / n as f64,
        latency.quantile(0.5).unwrap_or(0),
        latency.quantile(0.99).unwrap_or(0),
        latency.count(),
    );
    Ok(())
}
