//! A server that runs in a folder of bigiron.
//!
//! ```text
//! FOLDER/data   the server's working folder
//! FOLDER/log    the server's output
//! ```
//! Invariant: no process of an [`Instance`] outlives the value or the thread that started it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::error::{ServerError, doing};
use super::group_guard::GroupGuard;
use super::processes::{self, CpuMeter, Usage};
use super::programs::Programs;

/// The server's working folder below its own.
pub const DATA: &str = "data";
/// The server's output, in its folder.
pub const LOG: &str = "log";
/// The C library's text for `ENOSPC`.
const NO_SPACE: &str = "No space left on device";
/// A server may take this long to start (recovery) or to stop (a checkpoint) on a slow disk or in a VM without KVM.
const LIMIT: Duration = Duration::from_secs(900);

/// How often a server that broke its connections is asked why, every 50 ms: on a busy machine it can take seconds to end.
const PATIENCE: u32 = 200;

/// How a server runs, in addition to its [`super::recipe::Recipe`].
pub trait Server {
    /// Writes the whole configuration; called before each start.
    ///
    /// # Errors
    /// It cannot be written, or `folder` is unsuitable for the server.
    fn configure(&self, programs: &Programs, folder: &Path) -> Result<(), ServerError>;
    /// The program and its arguments; `inside` is the server's folder as the server sees it.
    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>);
    /// Whether the process `pid`, started in `folder`, is ready for work.
    fn is_ready(&self, folder: &Path, pid: u32) -> bool;
    /// The signal that stops it in good order.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }
    /// Whether it has ended in good order after that signal.
    fn ends_well(&self, status: ExitStatus) -> bool {
        status.success()
    }
    /// Whether its other processes, which are in its process group, go on when the first one is killed.
    fn leaves_processes(&self) -> bool {
        false
    }
    /// Files that a killed server leaves behind and that would hinder the next one: sockets.
    fn leftovers(&self, _folder: &Path) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Words in log lines that explain why it ended; if none is found, the last lines are used.
    fn fatal_words(&self) -> &'static [&'static str];
    /// Words of lines that report only how busy it is, although they have a fatal word.
    fn harmless_words(&self) -> &'static [&'static str] {
        &[]
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Instance<S: Server> {
    server: S,
    folder: PathBuf,
    child: Child,
    cpu: Box<CpuMeter>,
    ended: bool,
    /// Of its process group, if that goes on without the first process.
    _guard: Option<GroupGuard>,
}

impl<S: Server> Instance<S> {
    /// Starts `server` in `folder` and waits until it is ready. It is killed when the thread that calls this ends.
    ///
    /// # Errors
    /// It does not start; includes its log.
    pub fn start(server: S, programs: &Programs, folder: &Path) -> Result<Self, ServerError> {
        server.configure(programs, folder)?;
        let path = folder.join(LOG);
        let log = File::options().create(true).append(true).open(&path).map_err(doing("Cannot write", &path))?;
        let before = log.metadata().map_or(0, |m| m.len());
        let (program, arguments) = server.start(&programs.inside(folder));
        let mut command = programs.command(program, folder).map_err(doing("Cannot start the server of", folder))?;
        command.args(arguments);
        command.stdout(log.try_clone().map_err(doing("Cannot write", &path))?).stderr(Stdio::from(log));
        let child = command.spawn().map_err(doing("Cannot start the server of", folder))?;
        // If the machine runs out of memory, the server is killed and no other work; its children inherit this. Not allowed everywhere.
        let _ = fs::write(format!("/proc/{}/oom_score_adj", child.id()), "1000");
        let mut instance =
            Self { server, folder: folder.to_owned(), child, cpu: Box::default(), ended: false, _guard: None };
        if instance.server.leaves_processes() {
            let guard = GroupGuard::start(instance.parent());
            instance._guard = Some(guard.map_err(doing("Cannot guard the server of", folder))?);
        }
        instance.wait_until_ready(before)?;
        Ok(instance)
    }

    fn wait_until_ready(&mut self, logged_before: u64) -> Result<(), ServerError> {
        let mut pause = Pause::new(5);
        loop {
            if let Some(status) = self.try_wait()? {
                return Err(self.refused("The server did not start", status, &self.log_from(logged_before)));
            }
            if self.server.is_ready(&self.folder, self.child.id()) {
                return Ok(());
            }
            // Some servers go on without the file or the line of their log that says that they are ready. What an earlier start logged says nothing: there may be room again.
            if pause.is_longest() && (!self.has_room(1) || self.log_from(logged_before).contains(NO_SPACE)) {
                return Err(ServerError::Space { dir: self.folder.clone() });
            }
            if !pause.once() {
                return Err(self.late("was not ready after", "; its log is `log` there"));
            }
        }
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        let status = self.child.try_wait().map_err(doing("Cannot wait for", &self.folder))?;
        if status.is_some() && !self.ended {
            self.ended = true;
            if self.server.leaves_processes() {
                // At once: as long as one of them lives, nothing else gets the group's number.
                let _ = kill_process_group(self.parent(), Signal::KILL);
                processes::await_ends(&processes::of_group(self.parent()));
            }
        }
        Ok(status)
    }

    fn late(&self, what: &str, then: &str) -> ServerError {
        let (folder, seconds) = (self.folder.display(), LIMIT.as_secs());
        ServerError::Failed(format!("The server in `{folder}` {what} {seconds} s{then}"))
    }

    pub fn server(&self) -> &S {
        &self.server
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server's log file.
    pub fn log(&self) -> PathBuf {
        self.folder.join(LOG)
    }

    /// The number of the process that was started, the parent of all others.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The resources that all its processes have used so far.
    pub fn usage(&self) -> Usage {
        let mut pids = processes::children(self.parent());
        pids.push(self.parent());
        processes::usage(&pids)
    }

    /// CPU time of all its processes so far, those that have ended included, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu.total_ns(self.parent())
    }

    /// How its first process ended, if it did.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn end(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        self.try_wait()
    }

    /// Why the server, named `title`, cannot go on: how it ended, or what its log says.
    pub fn complaint(&mut self, title: &str) -> Option<ServerError> {
        let mut status = self.end();
        let log = self.log_from(0);
        let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
        let (fatal, harmless) = (self.server.fatal_words(), self.server.harmless_words());
        let fatal = |line: &&str| has(line, fatal) && !has(line, harmless);
        let line = log.lines().rfind(fatal);
        if line.is_some() && matches!(status, Ok(None)) {
            // It may have said why it ends, and end only now.
            status = patiently(|| self.end().transpose()).transpose();
        }
        if let Ok(Some(status)) = status {
            let why = line.map_or_else(String::new, |line| format!(": {}", line.trim()));
            return Some(ServerError::Failed(format!("{title} ended in the run ({status}){why}")));
        }
        let line = line?;
        Some(ServerError::Failed(format!("{title} reported: {}", line.trim())))
    }

    /// Whether the server has run out of space, or there is no space for `bytes` more.
    pub fn is_full(&self, bytes: u64) -> bool {
        !self.has_room(bytes) || self.log_from(0).contains(NO_SPACE)
    }

    fn has_room(&self, bytes: u64) -> bool {
        rustix::fs::statvfs(&self.folder).is_ok_and(|s| s.f_blocks == 0 || s.f_bavail * s.f_frsize >= bytes)
    }

    /// What its log says from byte `start` on.
    fn log_from(&self, start: u64) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(log.get(start as usize..).unwrap_or_default()).into_owned()
    }

    /// Stops the server in good order and waits for it to end.
    ///
    /// # Errors
    /// It did not stop and was killed, or it did not end well.
    pub fn stop(mut self) -> Result<(), ServerError> {
        let children = processes::children(self.parent());
        let signalled = kill_process(self.parent(), self.server.stop_signal()).map_err(io::Error::from);
        signalled.map_err(doing("Cannot stop", &self.folder))?;
        let mut pause = Pause::new(2);
        loop {
            if let Some(status) = self.try_wait()? {
                processes::await_ends(&children);
                self.remove_leftovers();
                return match self.server.ends_well(status) {
                    true => Ok(()),
                    false => Err(self.refused("The server did not stop as it should", status, &self.log_from(0))),
                };
            }
            if !pause.once() {
                return Err(self.late("did not stop within", " and was killed"));
            }
        }
    }

    /// Kills all processes of the server at once, like a crash.
    pub fn kill(mut self) {
        self.kill_all();
    }

    fn parent(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn kill_all(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        // Stopped first, so that it starts no process while its children are counted. It is our unreaped child, so its number is still in use.
        let _ = kill_process(self.parent(), Signal::STOP);
        let mut children = processes::children(self.parent());
        // Processes that a dead parent left behind write to the data as long as they live.
        let inhabitants = processes::inhabitants(&self.folder.join(DATA));
        children.extend(inhabitants.into_iter().filter(|pid| *pid != self.parent()));
        for child in &children {
            let _ = kill_process(*child, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        processes::await_ends(&children);
        self.remove_leftovers();
    }

    fn remove_leftovers(&self) {
        for path in self.server.leftovers(&self.folder) {
            let _ = fs::remove_file(path);
        }
    }

    fn refused(&self, what: &str, status: ExitStatus, log: &str) -> ServerError {
        refused(what, status, log, &self.folder, self.server.fatal_words())
    }
}

impl<S: Server> Drop for Instance<S> {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Runs a program of the server once, such as the one that creates its data folder. `input` is a file for its standard input.
///
/// # Errors
/// It cannot be started, or it fails; includes its output.
pub fn run(
    programs: &Programs,
    folder: &Path,
    program: &str,
    arguments: &[OsString],
    input: Option<File>,
    fatal_words: &[&str],
) -> Result<(), ServerError> {
    let failed = |e| ServerError::Failed(format!("Cannot start `{program}` for `{}`: {e}", folder.display()));
    let mut command = programs.command(program, folder).map_err(failed)?;
    command.args(arguments).stdin(input.map_or_else(Stdio::null, Stdio::from));
    run_command(command, folder, program, fatal_words)
}

/// As [`run`], a command of the server's [`Programs`].
///
/// # Errors
/// As [`run`].
pub fn run_command(
    mut command: Command,
    folder: &Path,
    program: &str,
    fatal_words: &[&str],
) -> Result<(), ServerError> {
    let failed = |e| ServerError::Failed(format!("Cannot start `{program}` for `{}`: {e}", folder.display()));
    let Output { status, stdout, stderr } = command.output().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let said = [stdout, stderr].concat();
    Err(refused(&format!("`{program}` failed"), status, &String::from_utf8_lossy(&said), folder, fatal_words))
}

/// Makes a folder that only the server's user may enter.
///
/// # Errors
/// It cannot be made.
pub fn make_folder(path: &Path, user: u32) -> Result<(), ServerError> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
        .and_then(|()| give(path, user))
        .map_err(doing("Cannot make", path))
}

/// Writes a file that the server reads.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, content: impl AsRef<[u8]>, user: u32) -> Result<(), ServerError> {
    fs::write(path, content).and_then(|()| give(path, user)).map_err(doing("Cannot write", path))
}

/// Gives a file that root made to the server's user; an ordinary user's file is right already.
///
/// # Errors
/// Its owner cannot be changed.
pub fn give(path: &Path, user: u32) -> io::Result<()> {
    if rustix::process::geteuid().is_root() { chown(path, Some(user), Some(user)) } else { Ok(()) }
}

/// An error with the log lines that explain it.
fn refused(what: &str, status: ExitStatus, log: &str, folder: &Path, fatal_words: &[&str]) -> ServerError {
    if log.contains(NO_SPACE) {
        return ServerError::Space { dir: folder.to_owned() };
    }
    let is_fatal = |line: &&str| fatal_words.iter().any(|word| line.contains(word));
    let mut lines: Vec<&str> = log.lines().filter(is_fatal).collect();
    if lines.is_empty() {
        lines = log.lines().collect();
    }
    let last = lines[lines.len().saturating_sub(4)..].join("; ");
    ServerError::Failed(format!("{what} ({status}): {last}"))
}

/// Asks why a server's connections broke, again for a while: it may not have told yet.
pub fn patiently<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 1..PATIENCE {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    ask()
}

const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Growing pauses, until [`LIMIT`].
struct Pause {
    next: Duration,
    deadline: Instant,
}

impl Pause {
    fn new(first_ms: u64) -> Self {
        Self { next: Duration::from_millis(first_ms), deadline: Instant::now() + LIMIT }
    }

    /// Sleeps; `false` if the time is up.
    fn once(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        std::thread::sleep(self.next);
        self.next = (self.next * 3 / 2).min(LONGEST_PAUSE);
        true
    }

    fn is_longest(&self) -> bool {
        self.next == LONGEST_PAUSE
    }
}

#[cfg(test)]
#[path = "instance_tests.rs"]
mod tests;
