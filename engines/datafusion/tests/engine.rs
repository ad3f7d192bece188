//! The executable: generates tables, serves them, and refuses what it cannot use.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Memory that no query here needs.
const AMPLE: &str = "2000000000";

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bigiron-datafusion"))
}

fn generate(scale: &str, folder: &Path) -> Output {
    command().args(["generate", "--scale", scale, "--row-group", "20000"]).arg(folder).output().unwrap()
}

/// A folder with the tables in `data` and a folder `temporary`.
fn tables(scale: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let output = generate(scale, &folder.path().join("data"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::create_dir(folder.path().join("temporary")).unwrap();
    folder
}

struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(folder: &Path, memory: &str) -> Server {
        let mut child = command()
            .args(["serve", "--memory", memory, "--threads", "2", "--data"])
            .arg(folder.join("data"))
            .arg("--temporary")
            .arg(folder.join("temporary"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Server { child, input, output };
        let ready = server.line();
        assert_eq!(ready["ready"]["tables"], 8);
        assert!(ready["ready"]["version"].as_str().unwrap().starts_with("DataFusion 5"), "{ready}");
        server
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, request: &str) -> Value {
        writeln!(self.input.as_mut().unwrap(), "{request}").unwrap();
        self.line()
    }

    fn sql(&mut self, sql: &str) -> Value {
        self.ask(&json!({ "sql": sql }).to_string())
    }

    fn end(mut self) {
        self.input.take();
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn generated_tables_are_the_same_each_time() {
    let (one, two) = (tables("0.001"), tempfile::tempdir().unwrap());
    let output = generate("0.001", two.path());
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["rows"]["supplier"], 10);
    assert_eq!(line["rows"]["orders"], 1500);
    let mut bytes = 0;
    for entry in fs::read_dir(two.path()).unwrap() {
        let entry = entry.unwrap();
        let file = fs::read(entry.path()).unwrap();
        assert!(file == fs::read(one.path().join("data").join(entry.file_name())).unwrap(), "{:?}", entry.file_name());
        bytes += file.len();
    }
    assert_eq!(line["bytes"], bytes);
}

#[test]
fn unusable_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = |output: Output| {
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    fs::write(folder.path().join("file"), "").unwrap();
    let path = folder.path().display();
    let expected = format!("bigiron-datafusion: {path} is not empty; expected a new or empty folder\n");
    assert_eq!(text(generate("1", folder.path())), expected);
    let expected = format!("bigiron-datafusion: {path}/file is not a folder; expected a new or empty folder\n");
    assert_eq!(text(generate("1", &folder.path().join("file"))), expected);
    // 32,767 row groups of 20,000 rows are fewer rows than `lineitem` has.
    assert!(text(generate("1000", &folder.path().join("new"))).contains("at least 184943 rows for `--scale 1000`"));
    assert!(!folder.path().join("new").exists());
    let mut serve = command();
    serve.args(["serve", "--memory", "1", "--threads", "1", "--temporary", "/", "--data"]).arg(folder.path());
    let expected = format!(
        "bigiron-datafusion: `--data {path}`: region.parquet is missing; `bigiron-datafusion generate` writes it\n"
    );
    assert_eq!(text(serve.output().unwrap()), expected);
}

#[test]
fn queries_are_answered() {
    let folder = tables("0.01");
    let mut server = Server::start(folder.path(), AMPLE);
    let rows = [
        ("region", 5),
        ("nation", 25),
        ("supplier", 100),
        ("customer", 1500),
        ("part", 2000),
        ("partsupp", 8000),
        ("orders", 15000),
        ("lineitem", 60175),
    ];
    for (table, rows) in rows {
        assert_eq!(server.sql(&format!("SELECT count(*) FROM {table}"))["rows"], json!([[rows]]), "{table}");
    }
    // Query 6 of TPC-H, and its answer at this scale.
    let answer = server.sql(
        "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= date '1994-01-01' \
         AND l_shipdate < date '1994-01-01' + interval '1' year AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    );
    assert_eq!(answer["rows"], json!([["1193053.2253"]]));
    assert!(answer["scanned_bytes"].as_u64().unwrap() > 100_000, "{answer}");
    assert_eq!((&answer["spilled_bytes"], &answer["spill_files"]), (&json!(0), &json!(0)));
    // The functions that queries of TPC-H use.
    let answer = server.sql(
        "SELECT n_nationkey, n_name, substring(n_name from 1 for 2), NULL, date '1995-03-05', \
         extract(year from date '1995-03-05') FROM nation WHERE n_regionkey = 1 ORDER BY n_name DESC LIMIT 2",
    );
    let rows =
        json!([[24, "UNITED STATES", "UN", null, "1995-03-05", 1995], [17, "PERU", "PE", null, "1995-03-05", 1995]]);
    assert_eq!(answer["rows"], rows);
    server.end();
}

#[test]
fn failed_requests_are_answers() {
    let folder = tables("0.01");
    let mut server = Server::start(folder.path(), "1000000");
    let mut error = |request: &str| {
        let answer = server.ask(request);
        answer["error"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    assert!(error(r#"{"sql":"SELECT absent FROM nation"}"#).contains("absent"));
    assert!(error(r#"{"sql":"SELECT 1/0"}"#).contains("Divide by zero"));
    assert!(error("SELECT 1").contains(r#"expected {"sql":"SELECT ..."}"#));
    let big = r#"{"sql":"SELECT count(*) FROM lineitem a JOIN lineitem b ON a.l_comment = b.l_comment"}"#;
    // The engine's own text, once.
    assert_eq!(error(big).matches("Resources exhausted").count(), 1);
    assert!(error(r#"{"set":{"datafusion.execution.batch_size":"many"}}"#).contains("many"));
    assert!(error(r#"{"set":{"datafusion.runtime.memory_limit":"1G"}}"#).contains("--memory"));
    // Of two options, the first is good: neither is set.
    error(r#"{"set":{"datafusion.execution.batch_size":"17","datafusion.execution.zzz":"1"}}"#);
    let shown = r#"{"sql":"SHOW datafusion.execution.batch_size"}"#;
    assert_eq!(server.ask(shown)["rows"][0][1], "8192");
    assert_eq!(server.ask(r#"{"set":{"datafusion.execution.batch_size":"17"}}"#), json!({ "ok": true }));
    assert_eq!(server.ask(shown)["rows"][0][1], "17");
    server.end();
}

#[test]
fn a_query_spills_and_its_answer_stays_right() {
    let folder = tables("0.01");
    // Sorts all rows; what is left of the order is a sum.
    let sql = "SELECT count(*), sum(place * l_orderkey) FROM (SELECT l_orderkey, row_number() OVER \
               (ORDER BY l_extendedprice, l_orderkey, l_linenumber) AS place FROM lineitem)";
    let mut server = Server::start(folder.path(), AMPLE);
    let ample = server.sql(sql);
    assert_eq!((&ample["rows"][0][0], &ample["spilled_bytes"]), (&json!(60175), &json!(0)));
    server.end();

    let mut server = Server::start(folder.path(), "4000000");
    // Small pieces of work for little memory.
    server.ask(
        r#"{"set":{"datafusion.execution.sort_spill_reservation_bytes":"200000","datafusion.execution.batch_size":"1024"}}"#,
    );
    let small = server.sql(sql);
    assert_eq!(small["rows"], ample["rows"], "{small}");
    assert!(small["spilled_bytes"].as_u64() > Some(1_000_000), "{small}");
    assert!(small["spill_files"].as_u64() > Some(0), "{small}");
    // Spilled data is removed with its query, the folder with the process.
    let temporary = folder.path().join("temporary");
    let left = fs::read_dir(&temporary).unwrap().flat_map(|entry| fs::read_dir(entry.unwrap().path()).unwrap());
    assert_eq!(left.count(), 0);
    server.end();
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}
