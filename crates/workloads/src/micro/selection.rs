//! Which tests run and how often: the options, understood.

use super::catalogue::{self, Test};
use bigiron_model::clock::Clock;
use bigiron_model::workload::Options;

/// Bounds of `micro.scale`: below, no window is long enough for anything but a test of the tool; above, hours.
const SCALE: std::ops::RangeInclusive<f64> = 0.0001..=100.0;

/// The tests chosen, in the catalogue's order, and the multiplier of their counts.
pub struct Selection {
    pub tests: Vec<&'static Test>,
    pub scale: f64,
}

impl Selection {
    /// Reads `only` and `scale`; the error says what would be right.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let option = |name: &str, default| options.get(name).map_or(default, String::as_str);
        Ok(Self { tests: tests(option("only", "all"))?, scale: scale(option("scale", "1"))? })
    }

    /// Operations of `test`. Without a clock nothing is timed, so the smaller counts do.
    pub fn ops(&self, test: &Test, clock: Clock) -> u64 {
        let count = match clock {
            Clock::Exact | Clock::ExactParallel | Clock::Exact1 | Clock::None => test.exact,
            Clock::Wall => test.wall,
        };
        ((count as f64 * self.scale).round() as u64).max(1)
    }
}

fn tests(only: &str) -> Result<Vec<&'static Test>, String> {
    let words: Vec<_> = only.split(',').map(str::trim).collect();
    let fits = |word: &str, test: &Test| word == "all" || word == test.group || word == test.name;
    if let Some(word) = words.iter().find(|w| !catalogue::all().iter().any(|t| fits(w, t))) {
        let names: Vec<_> = catalogue::all().iter().map(|t| t.name).collect();
        return Err(format!(
            "`micro.only` cannot hold `{word}`; it can hold `all`, a group ({}) or a metric ({}), several separated by commas",
            catalogue::groups().join(", "),
            names.join(", ")
        ));
    }
    Ok(catalogue::all().iter().filter(|t| words.iter().any(|w| fits(w, t))).collect())
}

fn scale(scale: &str) -> Result<f64, String> {
    match scale.parse() {
        Ok(n) if SCALE.contains(&n) => Ok(n),
        _ => Err(format!(
            "`micro.scale` cannot be `{scale}`; it can be a number from {} to {}",
            SCALE.start(),
            SCALE.end()
        )),
    }
}
