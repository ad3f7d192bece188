//! Fuzz targets: a reader of foreign bytes gets inputs changed at random, in a process of its own.
//!
//! Invariant: an input that makes the reader panic, overflow its stack, run without end or allocate without bound fails the test, and is written into
//! the target's corpus, which every later run reads first.

mod corpus;
mod mutator;
mod random;
mod watcher;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

/// What a reader made of an input: a few words about what it read, or its error. Inputs with a new outcome are kept and changed further.
pub type Outcome = Result<String, String>;

/// Seconds of a long run of each target; without it, a run is short and always the same.
const SECONDS: &str = "BIGIRON_FUZZ_SECONDS";

/// A reader under test.
pub struct Target {
    /// The path of the test that runs the target, as in its output (`store::fuzz::plans`).
    pub test: &'static str,
    /// The package of the test.
    pub package: &'static str,
    /// The folder of the inputs that were kept; it need not exist.
    pub corpus: PathBuf,
    /// Inputs that the program's own writers made.
    pub seeds: Vec<Vec<u8>>,
    /// Words of the format, which are put into inputs.
    pub words: &'static [&'static str],
}

/// The target of the test `fuzz::NAME` of this package, with its corpus in the package's `tests/corpus/NAME`.
#[macro_export]
macro_rules! fuzz_target {
    ($name:ident, $seeds:expr, $words:expr) => {
        $crate::fuzz::Target {
            // Without the name of the crate.
            test: concat!(module_path!(), "::", stringify!($name)).split_once("::").expect("a module's path").1,
            package: env!("CARGO_PKG_NAME"),
            corpus: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/", stringify!($name)).into(),
            seeds: $seeds,
            words: $words,
        }
    };
}

/// When a run ends, and what it may cost.
#[derive(Clone, Copy)]
struct Limits {
    changes: u64,
    time: Duration,
    /// Whether it is a long run, which draws other inputs than the last and keeps those with new outcomes.
    long: bool,
    /// CPU time of one input.
    cpu: Duration,
    /// Bytes of address space on top of those used at the start, and bytes of a file.
    bytes: u64,
}

impl Limits {
    fn of_environment() -> Self {
        let seconds = std::env::var(SECONDS).ok().map(|text| {
            text.parse().unwrap_or_else(|_| panic!("{SECONDS} cannot be `{text}`; it can be a number of seconds"))
        });
        let (changes, time) = match seconds {
            Some(seconds) => (u64::MAX, Duration::from_secs(seconds)),
            None => (2000, Duration::from_secs(1)),
        };
        Self { changes, time, long: seconds.is_some(), cpu: Duration::from_secs(5), bytes: 1 << 30 }
    }
}

impl Target {
    /// Gives `read` the seeds, the corpus, and inputs made by changing them.
    ///
    /// # Panics
    /// An input made `read` fail.
    pub fn run(&self, read: impl Fn(&[u8]) -> Outcome) {
        if let Err(why) = self.try_run(Limits::of_environment(), read) {
            panic!("{why}");
        }
    }

    fn try_run(&self, limits: Limits, read: impl Fn(&[u8]) -> Outcome) -> Result<(), String> {
        match watcher::state_of_worker() {
            Some(state) => worker::work(self, limits, &state, read),
            None => watcher::watch(self, limits),
        }
    }
}

#[cfg(test)]
mod tests;
