//! The session's own checks of a trial's result before it becomes a record.

use bigiron_lab::host::TrialResult;
use bigiron_model::clock::Clock;
use bigiron_model::plan::{Plan, Slot};
use bigiron_model::record::Failure;

/// Turns a completed trial into a failed one if its metrics are not those that the plan declares, or cannot be compared.
pub(super) fn metrics(plan: &Plan, slot: &Slot, result: &mut TrialResult) {
    if result.failure.is_some() {
        result.metrics.clear();
        result.counters = None;
        return;
    }
    let planned = slot.order.iter().map(|index| &plan.workloads[*index]);
    if let Err(why) = result.metrics.check(planned.map(|w| (w.name.as_str(), w.metrics.as_slice()))) {
        result.failure = Some((Failure::WorkloadError, why));
        result.metrics.clear();
    }
}

/// Without a clock a guest's times are meaningless: removes them before anybody can read them.
pub(super) fn times(clock: Clock, result: &mut TrialResult) {
    if clock == Clock::None {
        result.metrics.clear();
        result.counters = None;
        result.facts.retain(|name, value| !is_time(name, value));
    }
}

/// Whether a fact is a time or a rate, by its unit.
fn is_time(name: &str, value: &str) -> bool {
    const UNITS: [&str; 11] = ["ns", "us", "µs", "ms", "s", "min", "h", "sec", "secs", "second", "seconds"];
    let named = name.rsplit(['.', '-', '_']).next().is_some_and(|last| UNITS.contains(&last));
    let after_number =
        |word: &str| word.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.,".contains(c)).to_owned();
    let mut number_before = false;
    let valued = value.split([' ', '(', ')', ';', '[', ']', '=']).any(|word| {
        let unit = after_number(word);
        let has_number = unit.len() < word.len();
        let time = (has_number || number_before) && (UNITS.contains(&unit.trim_end_matches([',', '.', ':'])));
        let rate = ["/s", "/sec", "/min"].iter().any(|r| word.ends_with(r));
        number_before = has_number && unit.is_empty();
        time || rate
    });
    named || valued
}

#[cfg(test)]
mod tests {
    use super::is_time;

    #[test]
    fn facts_that_are_times_are_known_by_their_unit() {
        for (name, value) in [
            ("dbsim.settle", "12.5 ms"),
            ("dbsim.settle", "12ms"),
            ("dbsim.ramp_s", "3"),
            ("micro.window-ns", "1000000"),
            ("dbsim.rate", "120 MB/s"),
            ("dbsim.commits", "300 in 5 s"),
            ("dbsim.window", "(5 seconds)"),
        ] {
            assert!(is_time(name, value), "{name} = {value}");
        }
        for (name, value) in [
            ("dbsim.engine", "io_uring"),
            ("dbsim.files", "12 files of 64 MiB"),
            ("dbsim.commits", "300"),
            ("dbsim.durability", "O_DSYNC, honoured"),
            ("dbsim.s", "on"),
            ("dbsim.block", "8192 B"),
            ("micro.path", "/dev/nullb0 h"),
        ] {
            // A name that ends in a bare unit counts as a time: better to lose a fact than to show a time.
            assert_eq!(is_time(name, value), name == "dbsim.s", "{name} = {value}");
        }
    }
}
