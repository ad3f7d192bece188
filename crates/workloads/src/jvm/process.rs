//! The JVM of a trial, with its log of collections.
//!
//! Invariant: a point has the pauses and switches of its window alone.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::log::Pauses;
use super::options::{NAME, Settings};
use crate::java_program::JavaProgram;
use bigiron_probe::counters::span;
use bigiron_service::programs::Programs;
use bigiron_workload::{ARTIFACTS, Context};

const LOG: &str = "gc.log";

/// A running JVM. Dropping it kills it.
pub struct Jvm {
    pub program: JavaProgram,
}

/// A measured point.
pub struct Point {
    pub warehouses: u32,
    pub operations: u64,
    pub ns: u64,
    /// Bytes that the threads allocated in the window.
    pub allocated: u64,
    /// Bytes in use after a collection at the end.
    pub live: u64,
    pub pauses: Pauses,
    pub switches: u64,
    /// Over the results of all transactions.
    pub digest: String,
}

impl Jvm {
    /// Starts the program, which has no data yet.
    ///
    /// # Errors
    /// It does not start, or the JVM could not do as the settings say; includes what it said.
    pub fn start(settings: &Settings, programs: &Programs, cx: &Context<'_>) -> Result<Self> {
        let program = JavaProgram::start(NAME, programs, cx, |jar, folder| {
            let log = folder.join(LOG).display().to_string();
            settings.arguments(cx.cpus, cx.seed, &jar.display().to_string(), &log)
        })?;
        let jvm = Self { program };
        jvm.check(settings)?;
        Ok(jvm)
    }

    /// The JVM goes on without the huge pages that it cannot have.
    fn check(&self, settings: &Settings) -> Result<()> {
        let log = fs::read_to_string(self.program.folder().join(LOG)).unwrap_or_default();
        for (wanted, option, advice) in [
            (settings.thp, "thp", "`/sys/kernel/mm/transparent_hugepage/enabled` must be `madvise` or `always`"),
            (
                settings.large_pages,
                "large-pages",
                "reserve enough for heap and code with the lever `mm.hugepages-2m` (the sysctl `vm.nr_hugepages`)",
            ),
        ] {
            if wanted && !log.contains("Large Page Support: Enabled") {
                let said = self.program.tail();
                bail!("The JVM has no huge pages, which `jvm.{option}` asks for: {advice}. It said: {said}");
            }
        }
        Ok(())
    }

    /// Begins a point: data, a collection, and the threads' warm-up.
    ///
    /// # Errors
    /// The JVM ended; says why.
    pub fn load(&mut self) -> Result<()> {
        self.program.tell("load")?;
        self.program.answer("ready")
    }

    /// Measures it.
    ///
    /// # Errors
    /// The JVM ended; says why. Wrong data are a [`WrongData`](bigiron_workload::WrongData).
    pub fn measure(&mut self) -> Result<Point> {
        let (log, switches) = (self.log_length(), self.switches());
        span::open(Instant::now);
        let answered = self.program.tell("go").and_then(|()| self.program.answer("done"));
        span::close(Instant::now);
        span::cut();
        answered?;
        // While the threads are there.
        let switches = self.switches() - switches;
        let mut pauses = Pauses::default();
        pauses.read(&self.log_from(log)?);
        self.program.tell("end")?;
        let said = self.program.json()?;
        let number =
            |name: &str| said[name].as_u64().with_context(|| format!("The program reported no `{name}`: {said}"));
        Ok(Point {
            warehouses: number("warehouses")? as u32,
            operations: number("operations")?,
            ns: number("ns")?,
            allocated: number("allocated")?,
            live: number("live")?,
            pauses,
            switches,
            digest: said["digest"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// Keeps the log of collections with the trial.
    pub fn keep_log(&self, cx: &Context<'_>) -> Result<()> {
        let kept = cx.dir.join(ARTIFACTS);
        let copy =
            || fs::create_dir_all(&kept).and_then(|()| fs::copy(self.program.folder().join(LOG), kept.join(LOG)));
        copy().map(drop).with_context(|| format!("Cannot keep the JVM's log in `{}`", kept.display()))
    }

    fn log_length(&self) -> u64 {
        fs::metadata(self.program.folder().join(LOG)).map_or(0, |m| m.len())
    }

    fn log_from(&self, start: u64) -> Result<String> {
        let read = || {
            let mut file = File::open(self.program.folder().join(LOG))?;
            file.seek(SeekFrom::Start(start))?;
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| text)
        };
        read().context("Cannot read the JVM's log")
    }

    /// Context switches of all its threads so far.
    fn switches(&self) -> u64 {
        let usage = self.program.usage();
        usage.voluntary_switches + usage.involuntary_switches
    }
}
