//! Whole studies of real kernels under the exact clock.

use super::{report, test};

/// Metrics that differ between 6.1 and 6.12, and cost little to measure.
const FEW: &str = "micro.only=fork-exit,fault-private,pipe-rtt";

#[test]
fn a_kernel_against_itself_is_the_same() {
    let test = test();
    let args = ["compare", "debian:6.12", "debian:6.12", "micro", "--set", FEW, "--set", "micro.scale=0.25"];
    let ran = test.run(&[&args[..], &["--clock", "exact", "--quick", "--seed", "1", "--out", "aa"]].concat()).status(0);
    let report = report(&test, "aa");
    assert_eq!(report["verdict"], "same", "{}", ran.stdout);
    let records = test.records("aa");
    let fork = |slot: u64| records[&slot].iter().find(|(name, _)| name == "fork-exit").unwrap().1;
    assert!((1..8).any(|slot| fork(slot) != fork(0)), "boots differ, else the interval speaks of nothing");
}

#[test]
fn a_parameter_that_the_kernel_does_not_know_is_an_error_and_not_a_result() {
    let test = test();
    let args = ["compare", "debian:6.12", "debian:6.12,boot.nosuchthing=1", "micro", "--set", FEW, "--clock", "exact"];
    let ran = test.run(&[&args[..], &["--jobs", "1", "--out", "unknown"]].concat()).status(1);
    ran.stderr_has("Lever `nosuchthing=1` did not take");
}
