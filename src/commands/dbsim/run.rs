//! `bigiron dbsim run` and `verify`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{anyhow, bail};

use super::super::{FAILED, output};
use super::device::{self, Kind};
use super::live::Display;
use super::result::RunResult;
use super::run_directory::{self, RunDirectory};
use super::runner::{self, RunOrder, Runner, RunnerEvent};
use super::tables::Tables;
use crate::cli::{DbsimRun, RunFormat};
use crate::conduct::signals;
use crate::study::schedule;
use bigiron_dbsim as dbsim;
use bigiron_dbsim::job;
use bigiron_dbsim::job::Job;
use bigiron_dbsim::{AckSource, JobContext, metrics};
use bigiron_model::clock::Clock;
use bigiron_model::refusal::Refusal;
use bigiron_model::size;
use bigiron_sys::process::Exit;
use bigiron_workload::{Configured as _, Needs};

/// Interval at which a silent child is checked for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(100);

pub(super) fn run(args: &DbsimRun) -> anyhow::Result<u8> {
    let mut options = super::options(&args.job)?;
    if let Some(seconds) = args.seconds {
        options.insert("run.time".to_owned(), format!("{seconds}s"));
    }
    let mut job = Job::parse(&options).map_err(Refusal::new)?;
    let needs = job.needs();
    run_directory::check_memory(&needs)?;
    warn_of_left_over(&args.dir);
    let seed = args.seed.map_or_else(schedule::draw_seed, Ok)?;
    let cancel = signals::cancelled_by_signals()?;
    let place = RunDirectory::make(&args.dir, &needs)?;
    let others = elsewhere(&mut job)?;
    let text = job::print(&job);
    place.describe(&text, seed)?;
    let mut display = Display::stderr();
    let order = RunOrder { job: &job, seed, work: &place.work(), validate: args.validate, live: display.is_on() };
    let outcome = attend(&order, &cancel, &mut display);
    drop(display);
    // An error of the run takes precedence over an error of the cleanup.
    let tidied = if args.keep && outcome.is_ok() {
        let kept: Result<Vec<_>, _> = std::iter::once(place).chain(others).map(RunDirectory::keep).collect();
        kept.map(|kept| output::note(&format!("Kept: {}", kept[0].display())))
    } else {
        std::iter::once(place).chain(others).try_for_each(RunDirectory::remove)
    };
    let RunFindings { tables, valid, wrong } = outcome?;
    tidied?;
    let result = RunResult {
        bigiron: env!("CARGO_PKG_VERSION"),
        job: &job.name,
        seed,
        text: &text,
        tables: &tables,
        valid,
        wrong: wrong.as_deref(),
    };
    output::data(&match args.format {
        RunFormat::Text => result.text(&metrics(&job)),
        RunFormat::Json => result.json(),
    })?;
    Ok(if valid == Some(false) { FAILED } else { 0 })
}

fn warn_of_left_over(dir: &Path) {
    for (path, bytes) in run_directory::left_over(dir) {
        let (path, bytes) = (path.display(), size::print_bytes(bytes.next_multiple_of(1 << 20)));
        output::line(format_args!(
            "warning: `{path}` with {bytes} is left over from a killed run; remove it if you do not need it"
        ));
    }
}

/// Creates a directory for the job in each place that it names. Devices are used directly, if nothing else uses them.
fn elsewhere(job: &mut Job) -> anyhow::Result<Vec<RunDirectory>> {
    let mut made = Vec::new();
    let count = job.data.places.len();
    let file = job.data.bytes / job.data.files as u64;
    for place in &mut job.data.places {
        if device::look_at(place, file)? == Kind::Directory {
            let bytes = file * job.data.files.div_ceil(count) as u64;
            made.push(RunDirectory::make(place, &Needs { storage_bytes: Some(bytes), ..Needs::default() })?);
            *place = made[made.len() - 1].work();
        }
    }
    if let Some(place) = &mut job.journal.place {
        if device::look_at(place, job.journal.bytes)? == Kind::Device {
            return Err(Refusal::new(format!("`{}` is a device; journals are files", place.display())).into());
        }
        let bytes = job.journal.bytes * job.journal.files as u64;
        made.push(RunDirectory::make(place, &Needs { storage_bytes: Some(bytes), ..Needs::default() })?);
        *place = made[made.len() - 1].work();
    }
    Ok(made)
}

/// What a run found, and whether it was valid if that was checked.
struct RunFindings {
    tables: Tables,
    valid: Option<bool>,
    wrong: Option<String>,
}

/// Runs a child, shows its progress and receives its findings.
fn attend(order: &RunOrder<'_>, cancel: &Arc<AtomicBool>, display: &mut Display) -> anyhow::Result<RunFindings> {
    let (sender, receiver) = mpsc::channel();
    // The child is forked before a second thread exists.
    let runner = Runner::start(order, |from| {
        std::thread::spawn(move || {
            for event in runner::events(from) {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
    })?;
    let mut found = None;
    let (mut valid, mut wrong) = (None, None);
    loop {
        if cancel.load(Ordering::SeqCst) {
            bail!("Interrupted");
        }
        match receiver.recv_timeout(GLANCE) {
            Ok(event) => match event? {
                RunnerEvent::Step { step, done, of } => display.step(&step, done, of),
                RunnerEvent::Sample(sample) => display.sample(&sample),
                RunnerEvent::Result(tables) => found = Some(tables),
                RunnerEvent::Verified => valid = Some(true),
                RunnerEvent::Wrong(why) => (valid, wrong) = (Some(false), Some(why)),
                RunnerEvent::Failed(why) => bail!("{why}"),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let exit = runner.wait()?;
    match (found, exit) {
        (Some(tables), Exit::Status(0)) => Ok(RunFindings { tables: *tables, valid, wrong }),
        (_, Exit::Signal(n)) => Err(anyhow!("The process that ran the job was killed by signal {n}")),
        (_, Exit::Status(n)) => Err(anyhow!("The process that ran the job ended with status {n} before it was done")),
    }
}

pub(super) fn verify(dir: &Path, acks: Option<&Path>) -> anyhow::Result<u8> {
    let job = run_directory::job_of(dir)?;
    let work = run_directory::work(dir);
    // Neither seed nor clock affects what is on disk.
    let cx = JobContext { dir: &work, seed: 0, clock: Clock::Wall, network: None, progress: &|_| {}, live: None };
    match dbsim::examine(&job, &cx, acks.map_or(AckSource::Ledger, AckSource::Stream)) {
        Ok(verdict) if verdict.passed() => {
            let mut text = "Valid: all data and redo match the acknowledgements\n".to_owned();
            for (name, n) in verdict.facts {
                text.push_str(&format!("  {name} {n}\n"));
            }
            output::data(&text)?;
            Ok(0)
        }
        Ok(verdict) => {
            let found: u64 = verdict.counts.values().sum();
            let mut text = format!("INVALID: {found} finding{}\n", if found == 1 { "" } else { "s" });
            for finding in &verdict.findings {
                text.push_str(&format!("  {}: {finding}\n", finding.kind()));
            }
            if found > verdict.findings.len() as u64 {
                text.push_str("  and more; in all");
                for (kind, n) in verdict.counts {
                    text.push_str(&format!(" {kind} {n}"));
                }
                text.push('\n');
            }
            output::data(&text)?;
            Ok(FAILED)
        }
        Err(e) => {
            output::data(&format!("INVALID: {e:#}\n"))?;
            Ok(FAILED)
        }
    }
}
