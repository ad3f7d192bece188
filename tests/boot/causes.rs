//! Why a metric differs: functions, modelled cycles and locks of a study of real kernels.

use serde_json::Value;

use super::{causes, evidence, interval, modelled, report, test};

#[test]
fn switching_the_mitigations_off_is_seen_and_helps_and_is_named() {
    let test = test();
    let arms = ["compare", "debian:6.12", "debian:6.12,boot.mitigations=off", "micro"];
    let few = [
        "--set",
        "micro.only=null-call",
        "--set",
        "micro.scale=0.2",
        "--clock",
        "exact",
        "--quick",
        "--seed",
        "3",
        "--locks",
        "1",
    ];
    let ran = test
        .run(&[&arms[..], &few[..], &["--out", "control"]].concat())
        .status(0)
        .stderr_has("Verdict: no workload regressed");
    let report = report(&test, "control");
    assert_eq!(report["verdict"], "better", "{}", ran.stdout);
    assert!(interval(&report, "null-call").1 < -5.0, "fewer instructions per system call: {}", ran.stdout);
    let first = causes(&report, "null-call")["causes"][0]["function"].as_str().unwrap().to_owned();
    assert!(first.starts_with("entry_SYSCALL") || first.contains("untrain") || first.contains("srso"), "{first}");
    // On a processor, too: the returns that the mitigations make it mispredict are gone.
    let cycles = &causes(&report, "null-call")["modelled"];
    assert_eq!(cycles["agreement"], "robust", "{cycles}");
    let parts = cycles["processors"][0]["components"].as_array().unwrap();
    let missed = parts.iter().find(|part| part["component"] == "mispredictions").expect("a part of the cycles");
    let [with, without] = ["baseline_cycles", "arm_cycles"].map(|arm| missed[arm].as_f64().unwrap());
    assert!(with > 100.0 && without < with / 4.0, "{missed}");
    // A call is one: what the model counts is what was executed.
    let profiled = evidence(&test, "control", 0);
    let window = &profiled["windows"][0];
    for (event, each) in [("syscall", 1.0), ("sysret", 1.0), ("swapgs", 2.0)] {
        let n = modelled(&profiled, event);
        let each_has = n as f64 / window["operations"].as_f64().unwrap();
        assert!((each_has - each).abs() < 0.01, "{event}: {each_has}");
    }
    // What was waited for was asked for: with one CPU it may be nothing, but the kernel has told of all of it.
    let traced = &report["locks"]["traced"];
    assert_eq!((&traced["trials"], &traced["lost"]), (&2.into(), &0.into()), "{traced}");
    assert!(
        traced["events"].as_u64().unwrap() > 0 && report["locks"]["untold"] == Value::Array(Vec::new()),
        "{traced}"
    );
    let lines = report["locks"]["lines"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["metric"] == "null-call"), "{}", report["locks"]);
}
