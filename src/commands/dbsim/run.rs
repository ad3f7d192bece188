//! `bigiron dbsim run` and `verify`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};

use super::super::{conduct, output};
use super::place::{self, Place};
use super::result::RunResult;
use super::runner::{self, Event, Order, Runner};
use crate::cli::{DbsimFormat, DbsimRun};
use crate::refusal::Refusal;
use crate::size;
use crate::sys::process::Exit;
use crate::workload::Workload;
use crate::workload::dbsim::{Dbsim, job};

pub(super) fn run(args: &DbsimRun) -> anyhow::Result<u8> {
    let mut options = super::options(&args.job)?;
    if let Some(seconds) = args.seconds {
        options.insert("run.time".to_owned(), format!("{seconds}s"));
    }
    let job = job::Job::parse(&options).map_err(Refusal::new)?;
    let text = job::print(&job);
    let needs = Dbsim.needs(&options);
    place::check_memory(&needs)?;
    for (path, bytes) in place::left_over(&args.dir) {
        let (path, bytes) = (path.display(), size::print_bytes(bytes.next_multiple_of(1 << 20)));
        output::line(format_args!(
            "warning: `{path}` with {bytes} is left of a run that was killed; remove it if nobody needs it"
        ));
    }
    let seed = args.seed.map_or_else(conduct::draw_seed, Ok)?;
    let cancel = conduct::cancelled_by_signals()?;
    let place = Place::make(&args.dir, &needs)?;
    let order = Order { options: &options, seed, work: &place.work(), validate: args.validate };
    let outcome = attend(&order, &cancel);
    // What became of the run comes first, what became of its directory second.
    let left = if args.keep && outcome.is_ok() { keep(place, &text, seed) } else { place.remove() };
    let (values, facts, valid, wrong) = outcome?;
    left?;
    let result = RunResult {
        bigiron: env!("CARGO_PKG_VERSION"),
        job: job.name.clone(),
        seed,
        text,
        values,
        facts,
        valid,
        wrong,
    };
    output::data(&match args.format {
        DbsimFormat::Text => result.text(&Dbsim.metrics(&options)),
        DbsimFormat::Json => result.json(),
    })?;
    Ok(if result.valid == Some(false) { super::super::FAILED } else { 0 })
}

/// What a run found: values, facts, whether all was right, and what was wrong.
type Found = (BTreeMap<String, f64>, BTreeMap<String, String>, Option<bool>, Option<String>);

/// Runs a child, shows how far it is, and hears what it found.
fn attend(order: &Order<'_>, cancel: &Arc<AtomicBool>) -> anyhow::Result<Found> {
    let (sender, receiver) = mpsc::channel();
    let mut listener = None;
    let runner = Runner::start(order, |from| {
        listener = Some(std::thread::spawn(move || {
            for event in runner::events(from) {
                if sender.send(event).is_err() {
                    return;
                }
            }
        }));
    })?;
    let mut found = None;
    let (mut valid, mut wrong) = (None, None);
    loop {
        if cancel.load(Ordering::SeqCst) {
            bail!("Interrupted");
        }
        match receiver.recv_timeout(Duration::from_millis(100)) {
            Ok(event) => match event? {
                Event::Step { .. } => {}
                Event::Result { values, facts } => found = Some((values, facts)),
                Event::Verified => valid = Some(true),
                Event::Wrong(why) => (valid, wrong) = (Some(false), Some(why)),
                Event::Failed(why) => bail!("{why}"),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let exit = runner.wait()?;
    let (values, facts) = found.ok_or_else(|| match exit {
        Exit::Signal(n) => anyhow!("The process that ran the job was killed by signal {n}"),
        Exit::Status(n) => anyhow!("The process that ran the job ended with status {n}"),
    })?;
    Ok((values, facts, valid, wrong))
}

fn keep(place: Place, text: &str, seed: u64) -> anyhow::Result<()> {
    let path = place.path().join(place::JOB);
    fs::write(&path, format!("# seed {seed}\n{text}")).with_context(|| format!("Cannot write `{}`", path.display()))?;
    output::note(&format!("Kept: {}", place.keep().display()));
    Ok(())
}

pub(super) fn verify(dir: &Path) -> anyhow::Result<u8> {
    Err(Refusal::new(format!("`{}`", dir.display())).into())
}
