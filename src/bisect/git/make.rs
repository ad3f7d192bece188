//! make, and the tools that a kernel build needs.
//!
//! Invariant: no make is left running: make ends when bigiron is interrupted or dies.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use bigiron_model::refusal::Refusal;
use bigiron_sys::{self as sys, this_machine};

/// Interval at which a running make is polled.
const LOOK: Duration = Duration::from_millis(50);

/// How long an interrupted make may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Variables that only bigiron sets.
const OURS: [&str; 3] = ["O", "ARCH", "KBUILD_OUTPUT"];

/// Fixes everything that would make builds differ: time, place, user and number of the build.
pub(crate) const SAME: [&str; 5] = [
    "KBUILD_BUILD_TIMESTAMP=Mon Jan  1 00:00:00 UTC 2024",
    "KBUILD_BUILD_VERSION=1",
    "KBUILD_BUILD_USER=bigiron",
    "KBUILD_BUILD_HOST=bigiron",
    "LOCALVERSION=",
];

/// The user's arguments for make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments(Vec<String>);

/// A program or header that a build needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tool {
    Program(String),
    /// For programs that run during the kernel build.
    Header(&'static str),
}

impl Arguments {
    /// Checks the arguments.
    ///
    /// # Errors
    /// If one is neither an option nor a variable, or is a variable that bigiron sets itself.
    pub fn parse(given: &[String]) -> Result<Arguments, Refusal> {
        for word in given {
            let name = word.split('=').next().unwrap_or_default();
            if OURS.contains(&name) && word.contains('=') {
                return Err(Refusal::new(format!("--make-arg: bigiron sets `{name}` itself")));
            }
            let is_output = word.starts_with("-C") || word.starts_with("-f") || word == "-n";
            if is_output || !(word.starts_with('-') || word.contains('=')) {
                return Err(Refusal::new(format!("--make-arg: `{word}` is neither a variable nor a build option"))
                    .hint("Write for example `--make-arg=CC=gcc-12` or `--make-arg=-j8`"));
            }
        }
        Ok(Arguments(given.to_vec()))
    }

    /// The last value of a variable.
    fn variable(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// The arguments that may change the kernel's bytes, and not only the speed of the build.
    pub fn for_the_kernel(&self) -> impl Iterator<Item = &str> {
        let speed = |word: &&str| word.starts_with("-j") || word.starts_with("-l") || *word == "-s" || *word == "-k";
        self.0.iter().map(String::as_str).filter(move |word| !speed(word))
    }

    /// The compiler, and that of programs that run during the build.
    fn compilers(&self) -> (String, String) {
        let llvm = self.variable("LLVM").filter(|v| *v != "0").map(|_| "clang");
        let usual = llvm.unwrap_or("gcc");
        let of = |name: &str| self.variable(name).unwrap_or(usual).to_owned();
        (of("CC"), of("HOSTCC"))
    }

    /// The tools that a build needs on this machine.
    fn tools(&self) -> Vec<Tool> {
        let (cc, hostcc) = self.compilers();
        // A compiler may be called through a wrapper: `ccache gcc`.
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let programs =
            ["make", "flex", "bison", "bc"].map(str::to_owned).into_iter().chain(words(&cc)).chain(words(&hostcc));
        let mut tools: Vec<Tool> = Vec::new();
        for tool in programs.filter(|word| !word.starts_with('-')).map(Tool::Program) {
            if !tools.contains(&tool) {
                tools.push(tool);
            }
        }
        tools.extend(["gelf.h", "openssl/opensslv.h"].map(Tool::Header));
        tools
    }

    /// Checks that all tools exist.
    ///
    /// # Errors
    /// The missing tools, with the command that installs them.
    pub fn check(&self) -> Result<(), Refusal> {
        let (_, hostcc) = self.compilers();
        self.check_with(&|tool| match tool {
            Tool::Program(name) => bigiron_image::find_tool(name).is_some() || Path::new(name).is_file(),
            Tool::Header(name) => includes(&hostcc, name),
        })
    }

    fn check_with(&self, has: &dyn Fn(&Tool) -> bool) -> Result<(), Refusal> {
        let missing: Vec<Tool> = self.tools().into_iter().filter(|tool| !has(tool)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let name = |tool: &Tool| match tool {
            Tool::Program(name) => format!("`{name}`"),
            Tool::Header(name) => format!("<{name}>"),
        };
        let package = |tool: &Tool| match tool {
            Tool::Program(name) => name.clone(),
            Tool::Header("gelf.h") => "libelf-dev".to_owned(),
            Tool::Header(_) => "libssl-dev".to_owned(),
        };
        let list = |f: &dyn Fn(&Tool) -> String, between: &str| missing.iter().map(f).collect::<Vec<_>>().join(between);
        Err(Refusal::new(format!(
            "A kernel cannot be built here: {} missing",
            list(&name, ", ") + if missing.len() == 1 { " is" } else { " are" }
        ))
        .hint(format!("`apt-get install {}` installs what is missing", list(&package, " "))))
    }

    /// The compiler's own name and version: another compiler generates other bytes.
    pub fn compiler(&self) -> String {
        let (cc, _) = self.compilers();
        let mut words = cc.split_whitespace();
        let output =
            super::command(words.next().unwrap_or("gcc")).args(words).arg("--version").stdin(Stdio::null()).output();
        let said = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        said.lines().next().unwrap_or("").to_owned()
    }
}

/// Whether a C compiler finds a header.
fn includes(compiler: &str, header: &str) -> bool {
    let mut words = compiler.split_whitespace();
    let mut command = super::command(words.next().unwrap_or("gcc"));
    command.args(words).args(["-E", "-x", "c", "-"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else { return false };
    if let Some(mut stdin) = child.stdin.take() {
        // A compiler that does not read its input fails by itself.
        let _ = writeln!(stdin, "#include <{header}>");
    }
    child.wait().is_ok_and(|status| status.success())
}

/// How make ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeEnd {
    Done,
    /// make reported an error.
    Failed,
    /// make was interrupted.
    Interrupted,
}

/// A build of a tree in its own folder.
pub struct Make<'a> {
    pub tree: &'a Path,
    pub build: &'a Path,
    pub arguments: &'a Arguments,
    /// Held by make and every process it starts until they end.
    pub lock: &'a File,
    pub cancel: &'a AtomicBool,
}

impl Make<'_> {
    /// Builds `targets`; the output goes to `log`.
    pub fn run(&self, targets: &[&str], log: &File) -> io::Result<MakeEnd> {
        if self.cancel.load(Ordering::Relaxed) {
            return Ok(MakeEnd::Interrupted);
        }
        let mut command = super::command("make");
        let mut output = std::ffi::OsString::from("O=");
        output.push(self.build);
        let jobs = this_machine::cpus();
        command.arg("--no-print-directory").arg("-C").arg(self.tree).arg(output).arg("ARCH=x86_64").args(SAME);
        command.arg(format!("-j{jobs}")).args(&self.arguments.0).args(targets);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        run(&mut command, self.lock, self.cancel)
    }
}

/// Runs make, which holds `lock` together with every process it starts; ends it if `cancel` is set.
pub(crate) fn run(make: &mut Command, lock: &File, cancel: &AtomicBool) -> io::Result<MakeEnd> {
    sys::child::leave_open(make, lock.try_clone()?.into());
    let mut child = sys::child::end_with_parent(make).spawn()?;
    let pid = Pid::from_child(&child);
    let mut told: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            if told.is_some() {
                // A make that it had started may not have heard of the end.
                let _ = kill_process_group(pid, Signal::KILL);
            }
            // Only an interruption sends make a signal, so a signal is not a failure of the build.
            let interrupted = told.is_some() || status.signal().is_some();
            return Ok(match (interrupted, status.success()) {
                (true, _) => MakeEnd::Interrupted,
                (false, true) => MakeEnd::Done,
                (false, false) => MakeEnd::Failed,
            });
        }
        match told {
            None if cancel.load(Ordering::Relaxed) => {
                let _ = kill_process(pid, Signal::TERM);
                told = Some(Instant::now());
            }
            Some(since) if since.elapsed() > PATIENCE => {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            _ => {}
        }
        thread::sleep(LOOK);
    }
}

/// The path of the boot image below a build folder.
pub fn image(build: &Path) -> PathBuf {
    build.join("arch/x86/boot/bzImage")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Result<Arguments, Refusal> {
        Arguments::parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn missing_tools_are_named_with_what_brings_them() {
        let none = arguments(&[]).unwrap();
        let has_not = |lacking: &'static [&'static str]| {
            move |tool: &Tool| match tool {
                Tool::Program(name) => !lacking.contains(&name.as_str()),
                Tool::Header(name) => !lacking.contains(name),
            }
        };
        none.check_with(&has_not(&[])).unwrap();
        let refusal = none.check_with(&has_not(&["bison", "gelf.h", "openssl/opensslv.h"])).unwrap_err();
        assert!(refusal.message.contains("`bison`, <gelf.h>, <openssl/opensslv.h> are missing"), "{refusal}");
        assert_eq!(refusal.hint.unwrap(), "`apt-get install bison libelf-dev libssl-dev` installs what is missing");
        let refusal = arguments(&["CC=ccache gcc-12"]).unwrap().check_with(&has_not(&["gcc-12"])).unwrap_err();
        assert!(refusal.message.contains("`gcc-12` is missing"), "{refusal}");
        let llvm = arguments(&["LLVM=1"]).unwrap().tools();
        assert!(llvm.contains(&Tool::Program("clang".to_owned())) && !llvm.contains(&Tool::Program("gcc".to_owned())));
        assert!(!includes("no-such-compiler", "stdio.h"));
    }

    #[test]
    fn arguments_that_would_lead_elsewhere_are_refused() {
        for word in ["O=/x", "ARCH=arm64", "bzImage", "-C", "-n"] {
            assert!(arguments(&[word]).unwrap_err().message.contains(word.split('=').next().unwrap()), "{word}");
        }
        let some = arguments(&["-j3", "KCFLAGS=-O3", "CC=a", "CC=b"]).unwrap();
        assert_eq!(some.for_the_kernel().collect::<Vec<_>>(), ["KCFLAGS=-O3", "CC=a", "CC=b"]);
        assert_eq!(some.variable("CC"), Some("b"));
    }

    #[test]
    fn make_is_ended_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let makefile = "all:\n\ttrue\nbad:\n\tfalse\nlong:\n\ttrap 'echo > ended; exit 1' TERM; echo > started; while :; do sleep 0.1; done\n";
        std::fs::write(dir.path().join("Makefile"), makefile).unwrap();
        let (cancel, none) = (AtomicBool::new(false), arguments(&[]).unwrap());
        let make = Make { tree: dir.path(), build: dir.path(), arguments: &none, lock: &log, cancel: &cancel };
        assert_eq!(make.run(&["all"], &log).unwrap(), MakeEnd::Done);
        assert_eq!(make.run(&["bad"], &log).unwrap(), MakeEnd::Failed);
        let is_there = |name: &str| dir.path().join(name).exists();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_there("started") {
                    thread::sleep(Duration::from_millis(5));
                }
                cancel.store(true, Ordering::Relaxed);
            });
            assert_eq!(make.run(&["long"], &log).unwrap(), MakeEnd::Interrupted);
        });
        while !is_there("ended") {
            thread::sleep(Duration::from_millis(5));
        }
        // It might be done before it is looked at, if it ended by itself.
        assert_eq!(make.run(&["long"], &log).unwrap(), MakeEnd::Interrupted);
    }
}
