//! The program `bigiron-datafusion`: generates Parquet files, and runs queries on them with one process for each stream.
//!
//! It is a separate program, so that guests of other workloads do not unpack a query engine.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::Pid;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::scale::Scale;
use bigiron_sql::database::SqlValue;
use bigiron_sys::child::die_with_parent;
use bigiron_sys::cpu_clock::cpu_time;

/// The program's file name, in an image and beside bigiron.
pub const PROGRAM: &str = "bigiron-datafusion";

/// The program beside `bigiron`, or in the directories of PATH.
///
/// # Errors
/// If it is not installed; the message tells how to build it.
pub fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("Cannot find this executable")?;
    let beside = own.parent().map(|dir| dir.join(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = beside.into_iter().chain(std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)));
    found.into_iter().find(|path| path.is_file()).with_context(|| {
        format!(
            "`dss.engine` `datafusion` needs the program `{PROGRAM}` beside `bigiron` or in PATH; \
             in bigiron's source tree, `make datafusion` builds it; \
             `--set dss.engine=postgres` and `--set dss.engine=sqlite` do not need it"
        )
    })
}

/// Generates the eight tables as Parquet files in the empty folder `dir`, with the same bytes on every machine.
///
/// # Errors
/// The program's message if it fails, for example for lack of space.
pub fn generate(program: &Path, scale: Scale, row_group: u64, dir: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["generate", "--scale", &scale.to_string(), "--row-group", &row_group.to_string()]).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    die_with_parent(&mut command);
    let output = command.output().with_context(|| format!("Cannot start {}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{PROGRAM} failed ({}): {}", output.status, said.trim());
    }
    Ok(())
}

/// Resources of a process.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory of all operators of a query together, in bytes.
    pub memory: u64,
    pub threads: u32,
    /// Folder of temporary files.
    pub temporary: PathBuf,
}

/// A running process. Dropping it kills it.
pub struct DataFusion {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// E.g. `DataFusion 55.2.0`.
    pub version: String,
    /// Bytes written to temporary files so far.
    pub spilled: u64,
}

/// One line of the program's output.
#[derive(Deserialize)]
struct Reply {
    ready: Option<Ready>,
    rows: Option<Vec<Vec<Value>>>,
    #[serde(default)]
    spilled_bytes: u64,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Ready {
    version: String,
}

impl DataFusion {
    /// Starts a process on the files in `data`, and waits until it has opened them.
    ///
    /// # Errors
    /// The program's message if it does not start.
    pub fn start(program: &Path, data: &Path, limits: &Limits) -> Result<Self> {
        std::fs::create_dir_all(&limits.temporary)
            .with_context(|| format!("Cannot create {}", limits.temporary.display()))?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--data").arg(data);
        command.args(["--memory", &limits.memory.to_string(), "--threads", &limits.threads.to_string()]);
        command.arg("--temporary").arg(&limits.temporary);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        die_with_parent(&mut command);
        let mut child = command.spawn().with_context(|| format!("Cannot start {}", program.display()))?;
        let requests = child.stdin.take().context("The child has no input pipe")?;
        let answers = BufReader::new(child.stdout.take().context("The child has no output pipe")?);
        let mut started = Self { child, requests, answers, version: String::new(), spilled: 0 };
        match started.reply()? {
            Reply { ready: Some(ready), .. } => started.version = ready.version,
            Reply { error: Some(error), .. } => bail!("{PROGRAM} did not start: {error}"),
            _ => bail!("{PROGRAM} did not report that it is ready; build it from the same source tree as bigiron"),
        }
        Ok(started)
    }

    fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).context("Cannot read from bigiron-datafusion")? == 0 {
            let status = self.child.wait().context("Cannot wait for bigiron-datafusion")?;
            bail!("{PROGRAM} ended ({status})");
        }
        serde_json::from_str(&line).with_context(|| format!("{PROGRAM} answered `{}`", line.trim_end()))
    }

    /// Runs a query.
    ///
    /// # Errors
    /// DataFusion's message if it refuses the query or cannot run it; if the process has ended.
    pub fn query(&mut self, sql: &str) -> Result<Answer> {
        let mut request = json!({ "sql": sql }).to_string();
        request.push('\n');
        self.requests.write_all(request.as_bytes()).with_context(|| format!("{PROGRAM} no longer reads requests"))?;
        let reply = self.reply()?;
        self.spilled += reply.spilled_bytes;
        match reply {
            Reply { rows: Some(rows), .. } => {
                let rows = rows.into_iter().map(|row| row.into_iter().map(value).collect()).collect();
                Ok(Answer { rows })
            }
            Reply { error: Some(error), .. } => bail!("DataFusion failed: {error}"),
            _ => bail!("{PROGRAM} sent neither rows nor an error"),
        }
    }

    /// CPU time of the process so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        let pid = Pid::from_child(&self.child);
        cpu_time(pid).map_or(0, |time| time.as_nanos() as u64)
    }
}

impl Drop for DataFusion {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn value(value: Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Number(n) if n.is_i64() => SqlValue::Integer(n.as_i64().unwrap_or_default()),
        Value::String(text) => SqlValue::Text(text),
        other => SqlValue::Text(other.to_string()),
    }
}
