//! The JVM of a trial, with its log of collections.
//!
//! Invariant: a point has the pauses, compilations and switches of its window alone.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Error, Result, bail};

use super::log::{Pauses, compilations};
use super::options::{Collector, NAME, Settings};
use crate::java_program::JavaProgram;
use bigiron_probe::counters::span;
use bigiron_service::java::heap_is_full;
use bigiron_service::programs::Programs;
use bigiron_workload::Context;

const LOG: &str = "gc.log";
/// Whether shared memory, in which `zgc` has its heap, gets transparent huge pages.
const SHARED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// The JVM's code cache with both compilers.
const CODE: u64 = 240 << 20;
const HUGE_PAGE: u64 = 2 << 20;

/// A running JVM. Dropping it kills it.
pub struct Jvm {
    pub program: JavaProgram,
    /// Whether its heap is mapped several times, so that its resident memory counts the heap's pages as often.
    maps_heap_again: bool,
}

/// The JVM's error, with the option that would help if its heap was full.
fn explained(error: Error) -> Error {
    match heap_is_full(&format!("{error:#}")) {
        true => error.context("The heap is too small; increase `jvm.heap`"),
        false => error,
    }
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
    /// Methods whose compilation began in the window.
    pub compiled: usize,
    pub switches: u64,
    /// Resident memory at the end, without counting a page twice; `None` if the resident memory does not either.
    pub memory: Option<u64>,
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
        let jvm = Self { program, maps_heap_again: settings.collector == Collector::Z };
        jvm.check(settings, cx.cpus)?;
        Ok(jvm)
    }

    fn check(&self, settings: &Settings, cpus: u32) -> Result<()> {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let log = read(&self.program.folder().join(LOG));
        match missing_pages(settings, cpus, &log, &read(Path::new(SHARED))) {
            Some(missing) => bail!("{missing}. It said: {}", self.program.tail()),
            None => Ok(()),
        }
    }

    /// Begins a point: data, a collection, and the threads' warm-up.
    ///
    /// # Errors
    /// The JVM ended; says why.
    pub fn load(&mut self) -> Result<()> {
        self.program.tell("load").and_then(|()| self.program.answer("ready")).map_err(explained)
    }

    /// Measures it.
    ///
    /// # Errors
    /// The JVM ended; says why. Wrong data are a [`WrongData`](bigiron_workload::WrongData).
    pub fn measure(&mut self) -> Result<Point> {
        let (log, before) = (self.log_length(), self.program.usage());
        span::open(Instant::now);
        let answered = self.program.tell("go").and_then(|()| self.program.answer("done"));
        span::close(Instant::now);
        span::cut();
        answered.map_err(explained)?;
        // While the threads are there.
        let used = self.program.usage().since(&before);
        let logged = self.log_from(log)?;
        let mut pauses = Pauses::default();
        pauses.read(&logged);
        let memory = self.maps_heap_again.then(|| self.program.proportional_memory()).transpose()?;
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
            compiled: compilations(&logged),
            switches: used.voluntary_switches + used.involuntary_switches,
            memory,
            digest: said["digest"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// Keeps the log of collections with the trial.
    pub fn keep_log(&self) -> Result<()> {
        self.program.keep(LOG)
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
}

/// Which huge pages, of those that the settings ask for, the JVM goes on without: according to its log, and for shared memory to the kernel's setting.
fn missing_pages(settings: &Settings, cpus: u32, log: &str, shared: &str) -> Option<String> {
    let (option, advice) = if settings.thp {
        let advice =
            "`/sys/kernel/mm/transparent_hugepage/enabled` must be `madvise` or `always`; the lever `mm.thp` sets it";
        ("thp", advice.to_owned())
    } else if settings.large_pages {
        let pages = (settings.heap(cpus) + CODE).div_ceil(HUGE_PAGE);
        let advice = format!(
            "reserve enough for heap and code, at least {pages} pages of 2 MiB, with the lever `mm.hugepages-2m` (the sysctl `vm.nr_hugepages`)"
        );
        ("large-pages", advice)
    } else {
        return None;
    };
    let missing = |advice: &str| Some(format!("The JVM has no huge pages, which `{NAME}.{option}` asks for: {advice}"));
    // The kernel may have some, but not enough for all that the JVM reserves.
    if !log.contains("Large Page Support: Enabled") || log.contains("Reserve regular memory without large pages") {
        return missing(&advice);
    }
    let setting = shared.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(word, _)| word);
    // The JVM only looks whether the kernel has the setting.
    if settings.thp
        && settings.collector == Collector::Z
        && !["advise", "within_size", "always", "force"].contains(&setting)
    {
        return missing(&format!(
            "the heap of `zgc` is shared memory, for which `{SHARED}` must be `advise`, `within_size`, `always` or `force`; the lever `mm.thp-shmem` sets it"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jvm::JavaBusiness;
    use bigiron_workload::testing;

    fn missing(settings: &[(&str, &str)], log: &str, shared: &str) -> Option<String> {
        let options = testing::options(&JavaBusiness, settings.iter().copied()).unwrap();
        missing_pages(&Settings::parse(&options).unwrap().other, 2, log, shared)
    }

    #[test]
    fn a_jvm_goes_on_without_huge_pages_in_three_ways() {
        let (off, on) = ("Large Page Support: Disabled\n", "Large Page Support: Enabled (Explicit)\n");
        let short = format!("Reserve regular memory without large pages\n{on}");
        let never = "always within_size advise [never] deny force\n";
        assert_eq!(missing(&[], off, never), None);
        let large = [("large-pages", "on"), ("heap", "64M")];
        assert_eq!(missing(&large, on, never), None);
        for log in [off, &short] {
            let said = missing(&large, log, never).unwrap();
            assert!(
                said.contains(
                    "`jvm.large-pages` asks for: reserve enough for heap and code, at least 152 pages of 2 MiB,"
                ),
                "{said}"
            );
        }
        assert_eq!(missing(&[("thp", "on")], on, never), None);
        assert!(missing(&[("thp", "on")], off, never).unwrap().contains("the lever `mm.thp` sets it"));
        let shared = [("thp", "on"), ("collector", "zgc")];
        for (kernel, right) in [
            (never, false),
            ("always within_size advise never [deny] force\n", false),
            ("", false),
            ("always within_size [advise] never deny force\n", true),
            ("[always] within_size advise never deny force\n", true),
        ] {
            let said = missing(&shared, on, kernel);
            assert_eq!(said.is_none(), right, "{kernel}: {said:?}");
            assert!(said.is_none_or(|said| said.contains("must be `advise`") && said.contains("`mm.thp-shmem`")));
        }
    }
}
