//! Plain requests, like those of an I/O generator: the valid combinations in a job, and the work of a process of such a class.
//!
//! Invariant: only the classes that verify blocks write to them.

mod board;
mod draws;
mod generator;
mod outcome;
mod page;
mod verify;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};

use bigiron_sys::async_io;
use bigiron_sys::async_io::{BUFFER_BYTES, Engine, EngineUser, Method};

use super::block::{self, Address, BLOCK};
use super::files;
use super::instance::{Instance, Milestone, Phase};
use super::job::{ClassKind, Job, RequestSpec};
use super::transaction::share;
use bigiron_workload::units::Pace;

use generator::Generator;

pub use board::{RequestAction, RequestBoard, saved_bytes};
pub use outcome::{RequestsOutcome, engines, outcome};
pub use page::PageError;
pub use verify::verify;

/// Errors of the job's request classes; the message says what would be right.
pub fn check(job: &Job) -> Result<(), String> {
    let mut verified = None;
    for class in &job.classes {
        let ClassKind::Requests(r) = &class.kind else { continue };
        let name = &class.name;
        let (min, max) = BUFFER_BYTES;
        if !(min..=max).contains(&r.bytes) || !r.bytes.is_multiple_of(min) {
            return Err(format!(
                "Requests of `{name}` cannot have {} bytes; use a multiple of {min} up to {max}",
                r.bytes
            ));
        }
        if let Some((_, last)) = r.files.filter(|(_, last)| *last >= job.data.files) {
            return Err(format!("`{name}` uses data file {last}; there are {}, numbered from 0", job.data.files));
        }
        if board::per_file(job, r.bytes) == 0 {
            return Err(format!("Requests of `{name}` are larger than a data file; use at most its size"));
        }
        if r.read_percent > 100 {
            return Err(format!("`{name}` cannot read {} per cent; use 0 to 100", r.read_percent));
        }
        if matches!(r.engine.method, Method::Sync | Method::Vectored) && r.engine.depth != 1 {
            return Err(format!("`{name}` has one blocking call in flight at a time; its depth can only be 1"));
        }
        if matches!(class.pace, Pace::Open { .. }) && r.engine.depth != 1 {
            return Err(format!(
                "`{name}` has a rate, so its depth can only be 1; use more processes for more in flight"
            ));
        }
        let writes = r.read_percent < 100;
        if writes && job.transactors() > 0 {
            return Err(format!("`{name}` would overwrite the database's blocks; with transactions it can only read"));
        }
        if r.verify && r.engine.method == Method::Null && r.read_percent > 0 {
            return Err(format!("`{name}` has nothing to verify: the null engine reads nothing"));
        }
        if r.verify {
            verified.get_or_insert((name, r.bytes));
        }
    }
    let Some((first, bytes)) = verified else { return Ok(()) };
    for class in &job.classes {
        let ClassKind::Requests(r) = &class.kind else { continue };
        if r.verify && r.bytes != bytes {
            return Err(format!(
                "`{}` and `{first}` verify blocks of different sizes; use {bytes} bytes for both",
                class.name
            ));
        }
        if !r.verify && r.read_percent < 100 {
            return Err(format!("`{}` would overwrite what `{first}` verifies; make it verify as well", class.name));
        }
    }
    Ok(())
}

/// Whether nothing checks the contents of the data files, so that a device need not be initialized (a file must be, so that its
/// blocks are allocated).
pub fn blind(job: &Job) -> bool {
    job.classes.iter().all(|c| matches!(&c.kind, ClassKind::Requests(r) if !r.verify))
}

/// Whether the window ends when all requests are done.
pub fn counted(job: &Job) -> bool {
    job.classes.iter().any(|c| matches!(&c.kind, ClassKind::Requests(r) if r.count.is_some()))
}

/// Whether the job consists only of plain requests: there is no database then.
pub fn alone(job: &Job) -> bool {
    job.transactors() == 0 && job.classes.iter().any(|c| matches!(c.kind, ClassKind::Requests(_)))
}

/// Runs process `process` of a request class: its share of the ramp, then of the window, or until the window closes.
pub fn run(instance: &Instance<'_>, process: usize, spec: &RequestSpec) -> Result<()> {
    let job = instance.job;
    let files = (0..job.data.files)
        .map(|f| files::open_unstamped(&files::data_path(instance.dir, f), spec.direct))
        .collect::<Result<Vec<_>>>()?;
    let files: Vec<_> = files.iter().map(File::as_fd).collect();
    let with = Process { instance, process, spec, files: &files };
    async_io::open_for(&spec.engine, spec.bytes, &files, with).context("Cannot open the engine")?
}

/// A process whose engine is open.
struct Process<'a> {
    instance: &'a Instance<'a>,
    process: usize,
    spec: &'a RequestSpec,
    files: &'a [BorrowedFd<'a>],
}

impl EngineUser for Process<'_> {
    type Output = Result<()>;

    fn with<E: Engine + 'static>(self, engine: E) -> Result<()> {
        let Self { instance, process, spec, files } = self;
        let mut g = Generator::new(instance, process, spec, files, engine)?;
        let class = instance.class(process);
        let share = |total| share(total, instance.roles[process].number, class.count);
        match spec.count {
            Some(count) => {
                let ramp = if instance.by_time() { 0 } else { count.div_ceil(4) };
                g.requests(share(ramp))?;
                instance.arrive(Milestone::Ready)?;
                instance.wait_for(Phase::Measure);
                g.measure();
                g.requests(share(count))?;
                instance.arrive(Milestone::Done)?;
            }
            None => {
                instance.arrive(Milestone::Ready)?;
                g.until_closed()?;
            }
        }
        instance.wait_for(Phase::Leave);
        Ok(())
    }
}

/// Checks a block that was read and has been written `version` times.
fn check_block(bytes: &[u8], address: Address, version: u32) -> Result<()> {
    match version {
        // The initial contents; blocks of another size than the database's have no checksum then.
        0 if bytes.len() == BLOCK => block::check(bytes, address)?,
        0 => {}
        version => {
            page::check(bytes, address, version)?;
        }
    }
    Ok(())
}
