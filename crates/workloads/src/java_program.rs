//! A Java program of bigiron's jar, which works step by step as this process tells it.
//!
//! Invariant: the JVM ends with its [`JavaProgram`], and with the thread that started it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use bigiron_archive::Store;
use bigiron_model::workload::Program;
use bigiron_service::error::doing;
use bigiron_service::guest_tree::{self, TREE, programs_here};
use bigiron_service::instance::make_folder;
use bigiron_service::java::{self, MethodList, RECIPE, SERIES};
use bigiron_service::programs::Programs;
use bigiron_sys::launch::Usage;
use bigiron_workload::{Context, ImageContext, Images, WrongData};

/// The exit status of a program if its data are wrong.
const WRONG: i32 = 4;
/// Lines from the end of standard error in messages.
const TAIL: usize = 6;
/// How long a program may take to end whose connections broke.
const GRACE: Duration = Duration::from_secs(2);
const ERRORS: &str = "stderr";

/// Java for guests: the image with its tree.
///
/// # Errors
/// The packages cannot be had, or the image cannot be made.
pub fn images(cx: &ImageContext<'_>) -> Result<Images> {
    let (store, mut images) = (Store::open()?, Images::default());
    let root = guest_tree::find(&store, &RECIPE, SERIES, cx, &mut images)?;
    if cx.filesystem.is_some() {
        images.images.push(guest_tree::image(&store, &RECIPE, &root, cx)?);
    }
    Ok(images)
}

/// Java where the trial runs.
///
/// # Errors
/// The packages cannot be had.
pub fn programs(cx: &Context<'_>) -> Result<Programs> {
    match cx.images.get(TREE) {
        Some(tree) => Ok(Programs::in_tree(&RECIPE, tree, SERIES)),
        None => programs_here(cx, &RECIPE, SERIES),
    }
}

/// Options of every JVM: it takes its heap of `heap` bytes at the start, leaves standard output to the program, and ends if memory is short.
pub fn options(heap: u64, collector: &str, background_compilation: bool) -> Vec<String> {
    let heap = heap >> 10;
    let mut options = vec![format!("-Xms{heap}k"), format!("-Xmx{heap}k"), flag(true, &format!("Use{collector}GC"))];
    options.extend([
        flag(background_compilation, "BackgroundCompilation"),
        // Statistics for other programs, in a mapped file.
        flag(false, "UsePerfData"),
        flag(true, "ExitOnOutOfMemoryError"),
        flag(true, "DisplayVMOutputToStderr"),
    ]);
    options.extend(java::NAMED.map(str::to_owned));
    options.extend(["-Xlog:disable", "-Xlog:all=warning:stderr:none"].map(str::to_owned));
    options
}

/// A switch of the JVM.
pub fn flag(on: bool, name: &str) -> String {
    format!("-XX:{}{name}", if on { '+' } else { '-' })
}

/// A running program. Dropping it kills it.
pub struct JavaProgram {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
    /// What the program said about itself: `java`, `vm`, `cpus`.
    pub about: Value,
}

impl JavaProgram {
    /// Starts Java in the folder `name` of the trial's own. `arguments` gets the path of the jar and that of the folder, as the program sees them.
    ///
    /// # Errors
    /// It does not start; includes what it said.
    pub fn start(
        name: &str,
        programs: &Programs,
        cx: &Context<'_>,
        arguments: impl FnOnce(&Path, &Path) -> Vec<String>,
    ) -> Result<Self> {
        let folder = cx.dir.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot create `{}`", folder.display()))?;
        let user = programs.user(&folder).map_err(doing("Cannot find the user of", &folder))?;
        make_folder(&folder, user)?;
        let jar = java::place(programs, &folder, user)?;
        let mut command = programs.command("java", &folder).context("Cannot start Java")?;
        command.args(arguments(&jar, &programs.inside(&folder)));
        let errors = File::create(folder.join(ERRORS)).map_err(doing("Cannot write", &folder.join(ERRORS)))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().context("Cannot start Java")?;
        // If the machine runs out of memory, the JVM is killed and no other work. Not allowed everywhere.
        let _ = fs::write(format!("/proc/{}/oom_score_adj", child.id()), "1000");
        let (input, output) = child.stdin.take().zip(child.stdout.take()).context("Java has no pipes")?;
        let mut program = Self { child, input, output: BufReader::new(output), folder, about: Value::Null };
        program.about = program.json()?;
        Ok(program)
    }

    /// The name and version of its JVM.
    pub fn version(&self) -> String {
        let text = |name: &str| self.about[name].as_str().unwrap_or_default();
        format!("{} {}", text("vm"), text("java"))
    }

    /// Its folder, as this process sees it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    #[cfg(test)]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to take a step.
    ///
    /// # Errors
    /// As [`JavaProgram::answer`].
    pub fn tell(&mut self, word: &str) -> Result<()> {
        let told = writeln!(self.input, "{word}");
        told.map_err(|_| self.why())
    }

    /// Waits for a word.
    ///
    /// # Errors
    /// The program ended; says why. Wrong data are a [`WrongData`].
    pub fn answer(&mut self, wanted: &str) -> Result<()> {
        let line = self.line()?;
        if line == wanted { Ok(()) } else { bail!("The program said `{line}` instead of `{wanted}`") }
    }

    /// Waits for a line of JSON.
    ///
    /// # Errors
    /// As [`JavaProgram::answer`].
    pub fn json(&mut self) -> Result<Value> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("The program said `{line}` instead of JSON"))
    }

    /// Ends the program in good order. Returns the methods that its JVM had compiled.
    ///
    /// # Errors
    /// It does not end as it should.
    pub fn end(mut self) -> Result<Vec<Program>> {
        let methods = MethodList::of(self.child.id());
        self.tell("exit")?;
        let status = self.child.wait().context("Cannot wait for Java")?;
        if status.success() { Ok(methods.map(MethodList::read).unwrap_or_default()) } else { Err(self.why()) }
    }

    /// Why it ended, if it has ended or does so within [`GRACE`].
    pub fn failed(&mut self) -> Option<anyhow::Error> {
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Some(self.why());
            }
            thread::sleep(GRACE / 50);
        }
        None
    }

    /// CPU time and context switches so far of all its threads that still exist, and of the whole process the CPU time, in ticks.
    pub fn usage(&self) -> Usage {
        let process = format!("/proc/{}", self.child.id());
        let stat = fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
        // The name, in parentheses, may contain spaces; utime and stime are fields 14 and 15 of proc(5).
        let ticks: Vec<u64> = stat
            .rsplit(')')
            .next()
            .map(|rest| rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect())
            .unwrap_or_default();
        let ns = |n: usize| {
            ticks.get(n).copied().unwrap_or(0) * 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
        };
        let mut usage = Usage { user_ns: ns(0), system_ns: ns(1), ..Usage::default() };
        for entry in fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten() {
            let status = entry.path().join("status").display().to_string();
            usage.voluntary_switches += field(&status, "voluntary_ctxt_switches:");
            usage.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches:");
        }
        usage
    }

    /// The most resident memory that it has had, in bytes.
    pub fn max_rss(&self) -> u64 {
        field(&format!("/proc/{}/status", self.child.id()), "VmHWM:") << 10
    }

    /// The end of what it said on standard error.
    pub fn tail(&self) -> String {
        let text = fs::read(self.folder.join(ERRORS)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        match lines.len() {
            0 => "nothing on standard error".to_owned(),
            n => lines[n.saturating_sub(TAIL)..].join("; "),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(n) if n > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(self.why()),
        }
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
}

impl Drop for JavaProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number after `name` at the start of a line.
fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
