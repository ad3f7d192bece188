//! A worker of bigiron on another machine. It is started over SSH, reads questions from its standard input, and writes answers to its standard
//! output; each is a line of JSON.
//!
//! This executable is copied to a folder on the machine, and its file is removed once the worker runs ([`super::worker_place`]).
//!
//! Invariant: the worker ends when its [`OtherMachine`] is dropped, and when the owner is killed or not heard of for [`SILENCE`].

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bigiron_sys::child::die_with_parent;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ServerError;
use super::worker_place::{BASE, FOLDER, Meeting, WorkerFolder, WorkerPlace};

/// The longest wait for an answer: the worker may have to download packages before it starts a server.
const LIMIT: Duration = Duration::from_secs(1800);
/// The interval of reports that an answer is still awaited.
const REPORT: Duration = Duration::from_secs(5);
/// The interval at which a worker hears that it is still needed, and how long it waits to hear it.
const PING: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(60);
/// The number of last lines of standard error that a message quotes.
const LAST: usize = 3;
/// How long a worker may take to stop its server before the connection is closed.
const GRACE: Duration = Duration::from_secs(60);
/// The exit status of ssh for its own errors.
const SSH_FAILED: i32 = 255;
/// The exit status of a shell whose program is there and cannot be executed.
const NOT_EXECUTABLE: i32 = 126;
/// The prefix of bigiron's messages.
const PREFIX: &str = "bigiron: ";

/// A connection to a worker.
pub struct OtherMachine {
    name: String,
    child: Child,
    /// `None` after the worker has been told to end.
    input: Arc<Mutex<Option<ChildStdin>>>,
    answers: Receiver<String>,
    errors: Option<JoinHandle<VecDeque<String>>>,
    lost: Arc<AtomicBool>,
    /// Why it ended, once it has.
    ended: Option<String>,
    meeting: Meeting,
}

impl OtherMachine {
    /// Starts `bigiron target WORKER NAME` on the machine that OpenSSH knows as `name`. Calls `report_waiting` at intervals until the worker answers.
    ///
    /// # Errors
    /// The machine cannot be reached, or the worker does not start.
    pub fn start(name: &str, worker: &str, report_waiting: &dyn Fn()) -> Result<Self, ServerError> {
        let failed = |what: &str, e: &io::Error| ServerError::Failed(format!("Cannot {what}: {e}"));
        let bytes = fs::read("/proc/self/exe").map_err(|e| failed("read this executable's own file", &e))?;
        let mut ssh = Command::new("ssh");
        for option in [
            "BatchMode=yes",
            "AddressFamily=inet",
            "ConnectTimeout=20",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=4",
            "ForwardX11=no",
            // A shared connection would have its owner's settings, and could outlive this one.
            "ControlPath=none",
        ] {
            ssh.args(["-o", option]);
        }
        // The user's login shell may be any.
        ssh.args(["-T", "--", name, &format!("exec /bin/sh -c '{}'", script(bytes.len(), worker, name))]);
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = die_with_parent(&mut ssh).spawn().map_err(|e| failed("start ssh", &e))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = pipes else { unreachable!("they are pipes") };
        let (sender, answers) = mpsc::channel();
        let lost = Arc::new(AtomicBool::new(false));
        let at_end = Arc::clone(&lost);
        thread::spawn(move || {
            let _ = BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
            at_end.store(true, Ordering::Release);
        });
        let of = name.to_owned();
        let errors = Some(thread::spawn(move || last_lines(&of, errors)));
        // If ssh has ended, `answer` reports why.
        let _ = input.write_all(&bytes);
        let input = Arc::new(Mutex::new(Some(input)));
        let pinged = Arc::clone(&input);
        thread::spawn(move || {
            while write(&pinged, b"\n") {
                thread::sleep(PING);
            }
        });
        let meeting = Meeting { here: Ipv4Addr::UNSPECIFIED, client: Ipv4Addr::UNSPECIFIED, boot_id: String::new() };
        let mut machine = Self { name: name.to_owned(), child, input, answers, errors, lost, ended: None, meeting };
        machine.meeting = machine.answer(report_waiting)?;
        Ok(machine)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the two machines reach each other.
    pub fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    /// Becomes true when the connection is lost or the worker ends.
    pub fn lost(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.lost)
    }

    /// The PID of ssh; the worker ends with it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the worker a question and returns its answer. Calls `report_waiting` at intervals until the answer arrives.
    ///
    /// # Errors
    /// The worker reports a failure, does not answer in time, or has ended; or the connection is lost.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
        report_waiting: &dyn Fn(),
    ) -> Result<A, ServerError> {
        let mut line = serde_json::to_vec(question).map_err(|e| self.failed(&e.to_string()))?;
        line.push(b'\n');
        // If the worker has ended, the missing answer shows it.
        write(&self.input, &line);
        self.answer(report_waiting)
    }

    fn answer<A: DeserializeOwned>(&mut self, report_waiting: &dyn Fn()) -> Result<A, ServerError> {
        let since = Instant::now();
        let line = loop {
            match self.answers.recv_timeout(REPORT) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if since.elapsed() < LIMIT => report_waiting(),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failed(&format!("no answer for {} minutes", LIMIT.as_secs() / 60)));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let why = match self.ended.take() {
                        Some(why) => why,
                        None => self.why_it_ended(),
                    };
                    let error = self.failed(&why);
                    self.ended = Some(why);
                    return Err(error);
                }
            }
        };
        match serde_json::from_str::<Result<A, String>>(&line) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(self.failed(&why)),
            Err(_) => Err(self.failed(&format!("expected an answer from bigiron's worker, got `{line}`"))),
        }
    }

    fn failed(&self, why: &str) -> ServerError {
        ServerError::Failed(format!("On `{}`: {why}", self.name))
    }

    fn why_it_ended(&mut self) -> String {
        let status = self.end();
        let lines = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let lines = Vec::from(lines).join("; ");
        match status {
            Some(SSH_FAILED) | None if lines.is_empty() => "the connection was lost".to_owned(),
            Some(SSH_FAILED) | None => lines,
            Some(NOT_EXECUTABLE) => {
                format!("bigiron's worker cannot be executed ({lines}); `{BASE}` may be mounted with `noexec`")
            }
            Some(status) if lines.is_empty() => format!("bigiron's worker ended with status {status}"),
            Some(status) => format!("bigiron's worker ended with status {status}: {lines}"),
        }
    }

    /// Ends the worker. Returns the exit status of ssh, which is the worker's unless ssh itself failed.
    fn end(&mut self) -> Option<i32> {
        // The worker ends at the end of its input, and ssh ends with the worker.
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let since = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if since.elapsed() > GRACE {
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child.wait().ok()?.code()
    }
}

impl Drop for OtherMachine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes to a worker's input; `false` if the worker was told to end, or has ended.
fn write(input: &Mutex<Option<ChildStdin>>, bytes: &[u8]) -> bool {
    let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
    input.as_mut().is_some_and(|input| input.write_all(bytes).and_then(|()| input.flush()).is_ok())
}

/// A shell script that reads an executable of this many `bytes` from its input and runs the executable's worker. The script contains no
/// apostrophes, because the caller encloses it in apostrophes. The shell survives a lost connection, over which it reports a killed worker.
fn script(bytes: usize, worker: &str, name: &str) -> String {
    format!(
        "trap : PIPE; d=$(mktemp -d {BASE}/{FOLDER}XXXXXXXX) && head -c {bytes} >\"$d/bigiron\" && \
         [ $(wc -c <\"$d/bigiron\") = {bytes} ] && chmod 700 \"$d/bigiron\" && \
         \"$d/bigiron\" target {worker} \"{name}\"; s=$?; rm -rf \"$d\"; exit $s"
    )
}

/// Prints bigiron's messages with the machine's name as they arrive, and returns the last of the other lines.
fn last_lines(name: &str, errors: impl Read) -> VecDeque<String> {
    let mut last = VecDeque::new();
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if let Some(message) = line.strip_prefix(PREFIX) {
            eprintln!("{PREFIX}`{name}`: {message}");
        } else if !line.is_empty() {
            // ssh ends some lines with a full stop; the message quotes them in mid-sentence.
            last.push_back(line.strip_suffix('.').unwrap_or(&line).to_owned());
            last.drain(..last.len().saturating_sub(LAST));
        }
    }
    last
}

/// The worker's side: sends how the machines reach each other, unless `permit` forbids it, then answers questions until its input ends or falls
/// silent.
///
/// # Errors
/// There is no folder for the worker, or standard output cannot be written.
pub fn answer_all<Q: DeserializeOwned, A: Serialize>(
    permit: &dyn Fn() -> Result<(), String>,
    answer: &mut dyn FnMut(Q, &WorkerPlace) -> anyhow::Result<A>,
) -> anyhow::Result<()> {
    let folder = WorkerFolder::take()?;
    let meeting = permitted(permit, &folder).and_then(|()| Meeting::of_this_process());
    say(&meeting)?;
    let Ok(meeting) = meeting else { return Ok(()) };
    let place = WorkerPlace { meeting, folder };
    let (sender, questions) = mpsc::channel();
    // Ends with the process.
    thread::spawn(move || io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    while let Ok(line) = questions.recv_timeout(SILENCE) {
        if line.is_empty() {
            continue;
        }
        let question = serde_json::from_str(&line);
        let answered = question.map_err(anyhow::Error::from).and_then(|question| answer(question, &place));
        say(&answered.map_err(|e| format!("{e:#}")))?;
    }
    Ok(())
}

/// Asks `permit` again as long as the server of an earlier worker may be ending.
fn permitted(permit: &dyn Fn() -> Result<(), String>, folder: &WorkerFolder) -> Result<(), String> {
    let since = Instant::now();
    loop {
        match permit() {
            Ok(()) => return Ok(()),
            Err(why) if !folder.has_neighbour() => return Err(why),
            Err(_) if since.elapsed() > SILENCE + GRACE / 2 => {
                return Err(
                    "another trial's server runs on this machine; use the machine for one study at a time".to_owned()
                );
            }
            Err(_) => thread::sleep(Duration::from_secs(1)),
        }
    }
}

fn say<A: Serialize>(answer: &Result<A, String>) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let lines = last_lines("db1", &b"Warning: new key\nbigiron: Downloading\n\none\ntwo.\r\nthree"[..]);
        assert_eq!(lines, ["one", "two", "three"]);
    }

    /// What a shell makes of the script with this input.
    fn run(script: &str, input: &str) -> (Option<i32>, String) {
        let mut sh = Command::new("/bin/sh");
        sh.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = sh.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let said = child.wait_with_output().unwrap();
        (said.status.code(), String::from_utf8(said.stdout).unwrap())
    }

    #[test]
    fn the_script_runs_the_whole_executable_and_leaves_it_the_rest_of_its_input() {
        let worker = "#!/bin/sh\necho \"$@\"; cat; echo \"${0%/*}\"; exit 3\n";
        let script = script(worker.len(), "tier", "db[1]");
        assert!(!script.contains('\''), "{script}");
        let (status, said) = run(&script, &format!("{worker}a question\n"));
        let lines: Vec<&str> = said.lines().collect();
        let [command, question, folder] = lines[..] else { panic!("{said}") };
        assert_eq!((status, command, question), (Some(3), "target tier db[1]", "a question"));
        assert!(folder.starts_with("/var/tmp/bigiron-worker-") && !std::path::Path::new(folder).exists(), "{folder}");
        let (status, said) = run(&script, &worker[..worker.len() - 2]);
        assert_eq!((status, said.as_str()), (Some(1), ""), "a part of it");
    }
}
