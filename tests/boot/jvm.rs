//! Java in a guest: the workload `jvm`, and a program of this machine through `command`.

use std::path::Path;

use serde_json::Value;

use super::test;
use crate::builder::{Test, skipped};

const SMALL: [&str; 10] = [
    "jvm",
    "--memory",
    "512M",
    "--set",
    "jvm.warehouses=1",
    "--set",
    "jvm.operations=2000",
    "--set",
    "jvm.warmup=500",
    "--quick",
];

fn business(out: &str, test: &Test) -> Value {
    let record = super::first(test, out, &[&SMALL[..], &["--set", "jvm.data=1M"]].concat());
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    assert_eq!(record["facts"]["jvm.transactions"], "6000", "{record}");
    assert_eq!(record["facts"]["jvm.points-checked"], "2");
    assert!(record["facts"]["jvm.jvm"].as_str().unwrap().contains("OpenJDK 64-Bit Server VM 17."), "{record}");
    let metrics = record["metrics"]["jvm"].clone();
    assert!(metrics["operations"].as_f64().unwrap() > 100.0, "{metrics}");
    metrics
}

#[test]
fn a_business_in_a_jvm_runs_in_a_guest() {
    business("study", &test());
}

#[test]
#[ignore = "two boots of half a minute"]
fn a_business_in_a_jvm_takes_the_same_time_twice() {
    let test = test();
    assert_eq!(business("study", &test), business("again", &test));
}

#[test]
fn a_java_program_of_this_machine_runs_in_a_guest() {
    const JAVA: &str = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java";
    if !Path::new(JAVA).exists() {
        return skipped("`scripts/setup java` installs Java");
    }
    let jar = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/bigiron-java.jar");
    let test = test().file("src/input", "");
    std::fs::copy(jar, test.dir().join("src/program.jar")).unwrap();
    let command =
        ["java", "-Xmx64m", "-jar", "program.jar", "points=1", "warmup=9", "length=50", "items=90", "customers=9"];
    let record = super::first(&test, "study", &[&["--set", "command.dir=src", "--"], &command[..]].concat());
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    let kept = record["artifacts"].as_array().unwrap().iter().filter_map(|a| a.as_str());
    let stdout = kept.filter(|a| a.ends_with("command.run-1.stdout")).map(|a| test.dir().join("study").join(a));
    let stdout: String = stdout.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(stdout.contains("{\"warehouses\":1,\"operations\":50,"), "{stdout}");
}
