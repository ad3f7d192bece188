//! A Java program of bigiron's jar, which works step by step as this process tells it.
//!
//! Invariant: the JVM ends with its [`JavaProgram`], and with the thread that started it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
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
use bigiron_workload::{ARTIFACTS, Context, ImageContext, Images, WrongData};

/// The exit status of a program if its data are wrong.
const WRONG: i32 = 4;
/// Lines from the end of standard error in messages.
const TAIL: usize = 6;
/// Lines from the beginning of a crash's report in messages: the signal, the versions and the function.
const CRASH: usize = 6;
/// How long a program may take to end whose connections broke.
const GRACE: Duration = Duration::from_secs(2);
const ERRORS: &str = "stderr";
/// The JVM's crash report (`-XX:ErrorFile`), in its folder and kept with the trial.
const CRASH_LOG: &str = "crash.log";
/// A guest sends the last 64 KiB of a file, but the report's beginning says most.
const CRASH_BYTES: u64 = 64 << 10;

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
    /// The folder of files that are kept with the trial.
    kept: PathBuf,
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
        let inside = programs.inside(&folder);
        command.arg(format!("-XX:ErrorFile={}", inside.join(CRASH_LOG).display())).args(arguments(&jar, &inside));
        let errors = File::create(folder.join(ERRORS)).map_err(doing("Cannot write", &folder.join(ERRORS)))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().context("Cannot start Java")?;
        // If the machine runs out of memory, the JVM is killed and no other work. Not allowed everywhere.
        let _ = fs::write(format!("/proc/{}/oom_score_adj", child.id()), "1000");
        let (input, output) = child.stdin.take().zip(child.stdout.take()).context("Java has no pipes")?;
        let (output, kept) = (BufReader::new(output), cx.dir.join(ARTIFACTS));
        let mut program = Self { child, input, output, folder, kept, about: Value::Null };
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

    /// Its CPU time, in ticks, and its threads' context switches so far.
    pub fn usage(&self) -> ProgramUsage {
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
        let threads = fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten();
        let switches = threads.filter_map(|entry| {
            // `None` if the thread has just ended.
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            let switches = Switches {
                voluntary: field(&status, "voluntary_ctxt_switches:")?,
                involuntary: field(&status, "nonvoluntary_ctxt_switches:")?,
            };
            Some((entry.file_name().to_str()?.parse().ok()?, switches))
        });
        ProgramUsage { user_ns: ns(0), system_ns: ns(1), switches: switches.collect() }
    }

    /// The most resident memory that it has had, in bytes.
    pub fn max_rss(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        field(&status, "VmHWM:").unwrap_or(0) << 10
    }

    /// Its resident memory now, in bytes; a page that it maps several times counts once.
    ///
    /// # Errors
    /// The kernel does not show it.
    pub fn proportional_memory(&self) -> Result<u64> {
        let process = format!("/proc/{}", self.child.id());
        // The sum of all mappings since Linux 4.14.
        let text = fs::read_to_string(format!("{process}/smaps_rollup"))
            .or_else(|_| fs::read_to_string(format!("{process}/smaps")));
        let text = text.with_context(|| format!("Cannot read the JVM's memory in `{process}/smaps`"))?;
        proportional(&text).with_context(|| format!("`{process}/smaps` has no line `Pss:`"))
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

    /// Keeps a file of its folder with the trial.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn keep(&self, file: &str) -> Result<()> {
        let copy =
            || fs::create_dir_all(&self.kept).and_then(|()| fs::copy(self.folder.join(file), self.kept.join(file)));
        copy().map(drop).with_context(|| format!("Cannot keep the JVM's `{file}` in `{}`", self.kept.display()))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(n) if n > 0 && line.starts_with('#') => Err(self.crash()),
            Ok(n) if n > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(self.why()),
        }
    }

    /// The error for a JVM that crashed. Whatever its options, it writes a summary to standard output, in lines that begin with `#`.
    fn crash(&mut self) -> anyhow::Error {
        let mut report = String::new();
        let _ = self.output.read_to_string(&mut report);
        let lines = report.lines().map(|line| line.trim_start_matches('#').trim()).filter(|line| !line.is_empty());
        let said = lines.take(CRASH).collect::<Vec<_>>().join("; ");
        let ended = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        if self.keep(CRASH_LOG).is_ok()
            && let Ok(kept) = File::options().write(true).open(self.kept.join(CRASH_LOG))
            && kept.metadata().is_ok_and(|data| data.len() > CRASH_BYTES)
        {
            let _ = kept.set_len(CRASH_BYTES);
        }
        anyhow!("The JVM crashed ({ended}): {said}")
    }

    /// Why the JVM no longer answers.
    fn why(&mut self) -> anyhow::Error {
        // The step may have failed before its answer was read: a crash report may still be in the pipe.
        let mut line = String::new();
        while matches!(self.output.read_line(&mut line), Ok(n) if n > 0) {
            if line.starts_with('#') {
                return self.crash();
            }
            line.clear();
        }
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

/// Context switches of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    pub voluntary: u64,
    pub involuntary: u64,
}

/// What a program has used so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramUsage {
    /// CPU time of all threads, including those that have ended.
    pub user_ns: u64,
    pub system_ns: u64,
    /// Of each thread that exists.
    pub switches: BTreeMap<u32, Switches>,
}

impl ProgramUsage {
    /// The use since `before`. A thread that has started since then counts in full; one that has ended does not count, because its switches are no
    /// longer visible.
    pub fn since(&self, before: &Self) -> Usage {
        let mut usage = Usage {
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
            ..Usage::default()
        };
        for (thread, now) in &self.switches {
            let then = before.switches.get(thread).copied().unwrap_or_default();
            usage.voluntary_switches += now.voluntary.saturating_sub(then.voluntary);
            usage.involuntary_switches += now.involuntary.saturating_sub(then.involuntary);
        }
        usage
    }
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The sum in bytes of the lines `Pss:`, of which `smaps_rollup` has one and `smaps` one for each mapping; `None` without any.
fn proportional(text: &str) -> Option<u64> {
    let kib = text.lines().filter_map(|line| field(line, "Pss:"));
    kib.reduce(|sum, kib| sum + kib).map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_those_of_the_threads_that_are_left() {
        let usage = |user_ns, threads: &[(u32, u64, u64)]| ProgramUsage {
            user_ns,
            system_ns: 5,
            switches: threads
                .iter()
                .map(|&(thread, voluntary, involuntary)| (thread, Switches { voluntary, involuntary }))
                .collect(),
        };
        // 11 works, 12 ends with more switches than all others make, 13 starts, and 14 ends and leaves its number to another thread.
        let before = usage(100, &[(11, 40, 4), (12, 9000, 900), (14, 70, 7)]);
        let after = usage(170, &[(11, 42, 5), (13, 30, 3), (14, 1, 0)]);
        let used = after.since(&before);
        let wanted = Usage { user_ns: 70, voluntary_switches: 32, involuntary_switches: 4, ..Usage::default() };
        assert_eq!(used, wanted);
        assert_eq!(before.since(&after).user_ns, 0);
    }

    #[test]
    fn proportional_memory_is_summed_over_mappings() {
        let rollup =
            "7f00-7fff ---p 00000000 00:00 0    [rollup]\nRss:   349076 kB\nPss:   186605 kB\nPss_Dirty:  167430 kB\n";
        assert_eq!(proportional(rollup), Some(186_605 << 10));
        let smaps = "Rss:  8 kB\nPss:  4 kB\nPss_Dirty: 1 kB\n7f00-7fff rw-s 0 00:01 9 /memfd:java_heap\nRss:  6 kB\nPss:  2 kB\n";
        assert_eq!(proportional(smaps), Some(6 << 10));
        assert_eq!(proportional("Rss:  6 kB\n"), None);
    }
}
