//! Guests that panic, hang and lose their agent: each is its arm's outcome and decides the verdict.

use super::test;

#[test]
fn a_guest_that_fails_makes_its_arm_worse() {
    let test = test();
    let arms = [
        "debian:6.12",
        "debian:6.12,fault.inject=panic",
        "debian:6.12,fault.inject=hang",
        "debian:6.12,fault.inject=kill-agent",
        "debian:6.12,fault.inject=kill-init",
    ];
    let how = ["micro", "--set", "micro.only=null-call", "--clock", "none", "--hang-limit", "5", "--out", "survival"];
    let gate = ["--fail-on", "worse"];
    let ran = test.run(&[&["compare"], &arms[..], &how[..], &gate[..]].concat()).status(3);
    let json: serde_json::Value =
        serde_json::from_str(&test.run(&["report", "survival", "--format", "json"]).stdout).unwrap();
    for comparison in json["comparisons"].as_array().unwrap() {
        assert_eq!(comparison["verdict"], "worse", "{comparison}");
    }
    for what in ["panicked in 10 of 10 boots", "hung in 10 of 10 boots", "lost its agent in 10 of 10 boots"] {
        assert!(ran.stdout.contains(what), "no `{what}` in {}", ran.stdout);
    }
    // Without a clock nothing that is a time may be seen anywhere.
    assert!(test.records("survival").values().all(Vec::is_empty));
    for unit in [" ns", " µs", " ms", "tx/s"] {
        assert!(!ran.stdout.contains(unit), "`{unit}` in {}", ran.stdout);
    }
}
