//! The JVM of a trial, which works step by step as this process tells it.
//!
//! Invariant: the JVM ends with its [`Jvm`], and with the thread that started it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use super::log::Pauses;
use super::options::Settings;
use bigiron_probe::counters::span;
use bigiron_service::error::doing;
use bigiron_service::instance::make_folder;
use bigiron_service::java;
use bigiron_service::programs::Programs;
use bigiron_workload::{ARTIFACTS, Context, WrongData};

/// The exit status of the program if its data are wrong.
const WRONG: i32 = 4;
/// Lines from the end of standard error in messages.
const TAIL: usize = 6;
const LOG: &str = "gc.log";
const ERRORS: &str = "stderr";

/// A running JVM. Dropping it kills it.
pub struct Jvm {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
    /// What the program said about itself: `java`, `vm`, `cpus`.
    pub about: Value,
}

/// A measured point.
pub struct Point {
    pub warehouses: u32,
    pub operations: u64,
    pub ns: u64,
    /// Bytes that the threads allocated in the window.
    pub allocated: u64,
    /// Bytes in use after a collection at the end.
    pub live: u64,
    pub pauses: Pauses,
    pub switches: u64,
    /// Over the results of all transactions.
    pub digest: String,
}

impl Jvm {
    /// Starts the program, which has no data yet.
    ///
    /// # Errors
    /// It does not start, or the JVM could not do as the settings say; includes what it said.
    pub fn start(settings: &Settings, programs: &Programs, cx: &Context<'_>) -> Result<Self> {
        let folder = cx.dir.join(NAME);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot create `{}`", folder.display()))?;
        let user = programs.user(&folder).map_err(doing("Cannot find the user of", &folder))?;
        make_folder(&folder, user)?;
        let inside = programs.inside(&folder);
        let jar = java::place(programs, &folder, user)?;
        let log = inside.join(LOG).display().to_string();
        let mut command = programs.command("java", &folder).context("Cannot start Java")?;
        command.args(settings.arguments(cx.cpus, cx.seed, &jar.display().to_string(), &log));
        let errors = File::create(folder.join(ERRORS)).map_err(doing("Cannot write", &folder.join(ERRORS)))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().context("Cannot start Java")?;
        // If the machine runs out of memory, the JVM is killed and no other work. Not allowed everywhere.
        let _ = fs::write(format!("/proc/{}/oom_score_adj", child.id()), "1000");
        let (input, output) = child.stdin.take().zip(child.stdout.take()).context("Java has no pipes")?;
        let output = BufReader::new(output);
        let mut jvm = Self { child, input, output, folder, about: Value::Null };
        jvm.about = jvm.json()?;
        jvm.check(settings)?;
        Ok(jvm)
    }

    /// The JVM goes on without the huge pages that it cannot have.
    fn check(&self, settings: &Settings) -> Result<()> {
        let log = fs::read_to_string(self.folder.join(LOG)).unwrap_or_default();
        for (wanted, option, advice) in [
            (settings.thp, "thp", "`/sys/kernel/mm/transparent_hugepage/enabled` must be `madvise` or `always`"),
            (
                settings.large_pages,
                "large-pages",
                "reserve enough for heap and code with the lever `mm.hugepages-2m` (the sysctl `vm.nr_hugepages`)",
            ),
        ] {
            if wanted && !log.contains("Large Page Support: Enabled") {
                bail!("The JVM has no huge pages, which `jvm.{option}` asks for: {advice}. It said: {}", self.tail());
            }
        }
        Ok(())
    }

    /// Begins a point: data, a collection, and the threads' warm-up.
    ///
    /// # Errors
    /// The JVM ended; says why.
    pub fn load(&mut self) -> Result<()> {
        self.tell("load")?;
        self.answer("ready")
    }

    /// Measures it.
    ///
    /// # Errors
    /// The JVM ended; says why. Wrong data are a [`WrongData`].
    pub fn measure(&mut self) -> Result<Point> {
        let (log, switches) = (self.log_length(), self.switches());
        span::open(Instant::now);
        let answered = self.tell("go").and_then(|()| self.answer("done"));
        span::close(Instant::now);
        span::cut();
        answered?;
        // While the threads are there.
        let switches = self.switches() - switches;
        let mut pauses = Pauses::default();
        pauses.read(&self.log_from(log)?);
        self.tell("end")?;
        let said = self.json()?;
        let number =
            |name: &str| said[name].as_u64().with_context(|| format!("The program reported no `{name}`: {said}"));
        Ok(Point {
            warehouses: number("warehouses")? as u32,
            operations: number("operations")?,
            ns: number("ns")?,
            allocated: number("allocated")?,
            live: number("live")?,
            pauses,
            switches,
            digest: said["digest"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// Ends the program in good order. Returns the most resident memory that it had, in bytes.
    ///
    /// # Errors
    /// It does not end as it should.
    pub fn end(mut self) -> Result<u64> {
        let most = field(&format!("/proc/{}/status", self.child.id()), "VmHWM:") << 10;
        self.tell("exit")?;
        let status = self.child.wait().context("Cannot wait for Java")?;
        if !status.success() {
            return Err(self.why());
        }
        Ok(most)
    }

    /// Keeps the log of collections with the trial.
    pub fn keep_log(&self, cx: &Context<'_>) -> Result<()> {
        let kept = cx.dir.join(ARTIFACTS);
        let copied = fs::create_dir_all(&kept).and_then(|()| fs::copy(self.folder.join(LOG), kept.join(LOG)));
        copied.map(drop).with_context(|| format!("Cannot keep the JVM's log in `{}`", kept.display()))
    }

    #[cfg(test)]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn tell(&mut self, word: &str) -> Result<()> {
        let told = writeln!(self.input, "{word}");
        told.map_err(|_| self.why())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(n) if n > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(self.why()),
        }
    }

    fn answer(&mut self, wanted: &str) -> Result<()> {
        let line = self.line()?;
        if line == wanted { Ok(()) } else { bail!("The program said `{line}` instead of `{wanted}`") }
    }

    fn json(&mut self) -> Result<Value> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("The program said `{line}` instead of JSON"))
    }

    /// Why the JVM no longer answers.
    fn why(&mut self) -> anyhow::Error {
        // It has closed its output, so that it has ended or is about to.
        let status = self.child.wait();
        let said = self.tail();
        match status {
            Ok(status) if status.code() == Some(WRONG) => WrongData(said).into(),
            Ok(status) => anyhow!("The JVM ended ({status}): {said}"),
            Err(error) => anyhow!("The JVM ended ({error}): {said}"),
        }
    }

    fn tail(&self) -> String {
        let text = fs::read(self.folder.join(ERRORS)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        match lines.len() {
            0 => "nothing on standard error".to_owned(),
            n => lines[n.saturating_sub(TAIL)..].join("; "),
        }
    }

    fn log_length(&self) -> u64 {
        fs::metadata(self.folder.join(LOG)).map_or(0, |m| m.len())
    }

    fn log_from(&self, start: u64) -> Result<String> {
        let read = || {
            let mut file = File::open(self.folder.join(LOG))?;
            file.seek(SeekFrom::Start(start))?;
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| text)
        };
        read().context("Cannot read the JVM's log")
    }

    /// Context switches of all its threads so far.
    fn switches(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let of_thread = |entry: fs::DirEntry| {
            let status = entry.path().join("status").display().to_string();
            field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:")
        };
        threads.map(of_thread).sum()
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The JVM's folder in a trial's own.
const NAME: &str = "jvm";

/// The number after `name` at the start of a line.
fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
