//! Three tiers in a guest: the driver, Tomcat and PostgreSQL.

use super::test;

const SMALL: [&str; 14] = [
    "app",
    "--memory",
    "1G",
    "--quick",
    "--set",
    "app.threads=2",
    "--set",
    "app.dealers=50",
    "--set",
    "app.warmup=100",
    "--set",
    "app.length=400",
    "--set",
    "app.session=1K",
];

#[test]
fn a_business_over_tomcat_and_postgres_runs_in_a_guest() {
    let record = super::first(&test(), "study", &SMALL);
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    assert_eq!(record["facts"]["app.requests-checked"], "400", "{record}");
    assert_eq!(record["facts"]["app.conditions-checked"], "19");
    let version = record["facts"]["app.server-version"].as_str().unwrap();
    assert!(version.starts_with("Apache Tomcat/10.1.") && version.contains("PostgreSQL 15"), "{version}");
    assert!(record["metrics"]["app"]["operations"].as_f64().unwrap() > 1.0, "{record}");
}
