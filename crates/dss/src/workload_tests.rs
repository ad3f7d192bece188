use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::answers::Answers;
use crate::images::ANSWERS;
use bigiron_sql::database::Database as _;
use bigiron_sql::pg::Connection;
use bigiron_sql::server::{Listen, Transport, cluster, testing as server_testing};
use bigiron_workload::{WorkloadResult, WrongData, testing};

fn settings(options: &[(&str, &str)]) -> Result<Settings, String> {
    let options = testing::options(&Dss, options.iter().copied())?;
    Settings::parse(&options)
}

/// Runs a trial in a temporary folder, as a study on this machine does; `plan` may change the plan.
fn run(options: &[(&str, &str)], plan: impl Fn(&mut BTreeMap<String, String>)) -> Result<WorkloadResult> {
    run_in(tempfile::tempdir().unwrap().path(), options, plan, || {})
}

/// The same in a folder; `prepared` is called before the workload runs.
fn run_in(
    home: &Path,
    options: &[(&str, &str)],
    plan: impl Fn(&mut BTreeMap<String, String>),
    prepared: impl FnOnce(),
) -> Result<WorkloadResult> {
    let settings = settings(options).unwrap();
    let image_context = ImageContext { filesystem: None, foundation: &BTreeMap::new(), note: &|_| {} };
    let mut foundation = settings.images(&image_context)?.foundation;
    plan(&mut foundation);
    let cx = Context { foundation: &foundation, ..testing::context(home) };
    let mut running = settings.prepare(&cx)?;
    prepared();
    let outcome = running.run(&cx)?;
    running.verify(&cx)?;
    let declared = settings.metrics();
    assert_eq!(declared.len(), outcome.values.len(), "{:?}", outcome.values);
    assert!(declared.iter().all(|def| def.kind.takes(outcome.values[&def.name])), "{:?}", outcome.values);
    assert_eq!(declared.iter().filter(|def| def.primary).count(), 1);
    Ok(outcome)
}

const SQLITE: (&str, &str) = ("engine", "sqlite");
const POSTGRES: (&str, &str) = ("engine", "postgres");
const SMALL: (&str, &str) = ("scale", "0.001");

#[test]
fn every_run_gives_its_metrics_and_its_answers_are_checked() {
    for engine in [SQLITE, POSTGRES] {
        let power = run(&[engine, SMALL], |_| {}).unwrap();
        let mean: f64 =
            power.values.iter().filter(|(name, _)| name.len() == 3).map(|(_, ns)| ns.ln()).sum::<f64>() / 24.0;
        assert!((power.values["queries-per-hour"] * mean.exp() / 3.6e12 - 1.0).abs() < 1e-6);
        assert_eq!(power.windows.len(), 24);
        assert_eq!(power.facts["answers-checked"], "22");
    }
    let options = [SQLITE, SMALL, ("run", "throughput"), ("streams", "3"), ("queries", "1,4")];
    let several = run(&options, |_| {}).unwrap();
    assert_eq!(several.windows.len(), 1);
    assert_eq!(several.windows[0].operations, 6);
    assert!(run(&[SQLITE, SMALL, ("run", "scan")], |_| {}).unwrap().values["scan"] > 0.0);
    let spill = run(&[POSTGRES, ("scale", "0.01"), ("run", "spill"), ("memory", "128K")], |_| {}).unwrap();
    assert!(spill.values["temporary-bytes"] > 1e6, "{:?}", spill.values);
}

#[test]
fn a_wrong_answer_is_wrong_data() {
    let plant = |foundation: &mut BTreeMap<String, String>| {
        let answers = foundation[ANSWERS].clone();
        assert!(Answers::parse(&answers).is_some(), "{answers}");
        let right = answers.split_once(" 0.6=").unwrap().1.split(' ').next().unwrap();
        foundation.insert(ANSWERS.to_owned(), answers.replace(right, "0000000000000000"));
    };
    let wrong = run(&[SQLITE, SMALL, ("queries", "6"), ("refresh", "no")], plant).unwrap_err();
    assert!(wrong.is::<WrongData>(), "{wrong:#}");
    assert!(wrong.to_string().contains("Query 6 gives a different answer"), "{wrong:#}");
    let lines = |foundation: &mut BTreeMap<String, String>| {
        let answers = foundation[ANSWERS].clone();
        let (_, rest) = answers.split_once(' ').unwrap();
        foundation.insert(ANSWERS.to_owned(), format!("lineitem=1 {rest}"));
    };
    let wrong = run(&[SQLITE, SMALL, ("run", "scan")], lines).unwrap_err();
    assert!(wrong.is::<WrongData>(), "{wrong:#}");
    let none = |foundation: &mut BTreeMap<String, String>| _ = foundation.remove(ANSWERS);
    let unchecked = run(&[SQLITE, SMALL, ("run", "scan")], none).unwrap_err();
    assert!(unchecked.to_string().contains("no expected answers"), "{unchecked:#}");
}

#[test]
fn a_spill_that_fills_the_disk_says_so() {
    let home = tempfile::tempdir().unwrap();
    let Some(disk) = testing::SmallDisk::mount(home.path(), "600m") else { return };
    let options = [POSTGRES, ("scale", "0.01"), ("run", "spill"), ("memory", "128K")];
    let full = run_in(&disk.0, &options, |_| {}, || disk.fill(1 << 20)).unwrap_err();
    assert!(format!("{full:#}").contains("No space left on device"), "{full:#}");
    assert!(!full.is::<WrongData>(), "{full:#}");
}

#[test]
fn streams_with_their_own_parameters_have_their_own_answers() {
    let options = [SQLITE, SMALL, ("run", "throughput"), ("streams", "2"), ("parameters", "5"), ("queries", "1,6,14")];
    let outcome = run(&options, |foundation| {
        let answers = &foundation[ANSWERS];
        let of = |stream: &str| answers.split(stream).nth(1).unwrap().split(' ').next().unwrap().to_owned();
        assert_ne!(of(" 0.6="), of(" 1.6="));
    });
    assert_eq!(outcome.unwrap().facts["streams"], "2");
}

#[test]
fn an_existing_server_keeps_its_tables_and_other_peoples_are_refused() {
    let server = server_testing::start(Listen::Socket, &[]);
    let url = cluster::url(&server.cluster, Transport::Unix).unwrap();
    let text = url.to_string();
    let options = [POSTGRES, ("url", text.as_str()), SMALL, ("queries", "1,6")];
    let mut database = Connection::connect(&url).unwrap();
    let one = |database: &mut Connection, sql: &str| format!("{:?}", database.rows(sql).unwrap());
    run(&options, |_| {}).unwrap();
    let file = one(&mut database, "SELECT pg_relation_filenode('lineitem')");
    run(&options, |_| {}).unwrap();
    assert_eq!(one(&mut database, "SELECT pg_relation_filenode('lineitem')"), file, "loaded once");
    run(&[POSTGRES, ("url", text.as_str()), ("scale", "0.002"), ("run", "scan")], |_| {}).unwrap();
    assert_ne!(one(&mut database, "SELECT pg_relation_filenode('lineitem')"), file, "another scale factor");
    database.execute("COMMENT ON TABLE lineitem IS NULL").unwrap();
    let refused = run(&options, |_| {}).unwrap_err();
    assert!(refused.to_string().contains("that bigiron did not load"), "{refused:#}");
}

#[test]
fn invalid_options_are_refused_with_a_reason() {
    for (options, words) in [
        (&[("scale", "0")][..], "`dss.scale` cannot be `0`; it can be a scale factor from 0.001 to 1000"),
        (&[("queries", "1,23")], "numbers from 1 to 22"),
        (&[("queries", "1,1")], "each once"),
        (&[("run", "throughput"), ("streams", "42")], "1 to 41"),
        (&[("streams", "3")], "`dss.streams` has no effect with `dss.run` `power`; omit it"),
        (&[("memory", "1K")], "64K to 1T"),
        (&[("parameters", "x")], "`validation`, or a number"),
        (&[("refresh", "yes")], "`dss.refresh` cannot be `yes` with `dss.engine` `datafusion`"),
        (&[SQLITE, ("threads", "2")], "`dss.threads` has no effect with `dss.engine` `sqlite`"),
        (&[SQLITE, ("run", "spill")], "which sorts in memory"),
        (&[SQLITE, ("row-group", "2048")], "`dss.row-group` has no effect"),
        (&[POSTGRES, ("version", "8")], "PostgreSQL's major version"),
        (&[SQLITE, ("postgres.work_mem", "1MB")], "set the engine to `postgres`"),
        (&[POSTGRES, ("postgres.work_mem", "1MB")], "follows from `dss.memory`"),
        (&[POSTGRES, ("url", "http://x")], "`dss.url`"),
        (
            &[POSTGRES, ("url", "postgresql://a@b/c"), ("version", "17")],
            "no effect with `dss.url` `postgresql://a@b/c`",
        ),
        (&[POSTGRES, ("url", "postgresql://a@b/c"), ("postgres.work_mem", "1MB")], "whose server keeps its settings"),
        (&[SQLITE, ("url", "postgresql://a@b/c")], "`dss.url` has no effect with `dss.engine` `sqlite`"),
        (&[("run", "scan"), ("queries", "1")], "`dss.queries` has no effect with `dss.run` `scan`"),
    ] {
        let refused = settings(options).unwrap_err();
        assert!(refused.contains(words), "{options:?}: {refused}");
    }
    let refused = Dss.check_dotted("mariadb.innodb_doublewrite").unwrap_err();
    assert!(refused.contains("as `dss.postgres.NAME`") && !refused.contains("dss.mariadb"), "{refused}");
    assert_eq!(Dss.alone("q07"), Some(("queries", "7".to_owned())));
    assert_eq!(Dss.alone("query-cpu"), None);
}
