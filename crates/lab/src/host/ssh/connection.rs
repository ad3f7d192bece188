//! The connection to a target: the user's OpenSSH client, with one connection that all commands share.
//!
//! Invariant: nothing is asked on a terminal, and a dead connection ends every command within half a minute.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::config::HostConfig;
use crate::target;
use crate::target::messages::PROGRESS;

/// The exit status of ssh for its own errors.
const SSH_FAILED: i32 = 255;

/// Interval at which a command that can be cancelled looks whether it is.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// The remote folder, for a shell.
const FOLDER: &str = "${XDG_STATE_HOME:-$HOME/.local/state}/bigiron";

/// Why a command on a target gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It may have run.
    #[error("`{name}` cannot be reached: {why}")]
    Unreachable { name: String, why: String },
    #[error("{0}")]
    Refused(Refusal),
    #[error("On `{name}`: {why}")]
    Failed { name: String, why: String },
}

/// What OpenSSH says when it, or the machine, refuses the connection: another attempt would end in the same way, and the machine may well be up.
const REFUSALS: [&str; 6] = [
    "Permission denied",
    "Host key verification failed",
    "bad configuration option",
    "Bad owner or permissions",
    "Can't open user config file",
    "cannot start ssh",
];

/// What it says of a wrong name. Also of one that the machine itself announces (mDNS), while it is down.
const UNKNOWN_NAME: &str = "Could not resolve";

impl TargetError {
    /// Whether the connection is refused, which says nothing of the machine.
    pub fn is_refusal(&self) -> bool {
        matches!(self, TargetError::Unreachable { why, .. } if REFUSALS.iter().any(|words| why.contains(words)))
    }

    /// Whether the target may answer later.
    pub fn may_pass(&self) -> bool {
        let is_away = matches!(self, TargetError::Unreachable { why, .. } if !why.contains(UNKNOWN_NAME));
        is_away && !self.is_refusal()
    }

    /// As an error of a command: a refusal keeps its hint.
    pub fn explained(self) -> anyhow::Error {
        match self {
            TargetError::Refused(refusal) => refusal.into(),
            other => anyhow::anyhow!("{other}"),
        }
    }
}

/// Where bigiron's executable is on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In its folder, for later commands, if the target's administrator allows anything, or something is to be restored.
    Kept,
    /// In a temporary folder that is removed with the connection.
    Temporary,
}

/// A connection.
pub struct Connection {
    name: String,
    config: HostConfig,
    /// Contains the socket of the shared connection.
    folder: TempDir,
    /// The remote executable, as a word of the remote shell.
    executable: String,
    place: Place,
}

impl Connection {
    /// Connects, and copies this executable unless it is there.
    pub fn open(name: &str, config: HostConfig, place: Place) -> Result<Self, TargetError> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_dir());
        let base = runtime.map_or_else(std::env::temp_dir, Into::into);
        // Only its owner can enter a temporary folder.
        let folder = tempfile::Builder::new().prefix("bigiron-ssh-").tempdir_in(base);
        let failed = |why: String| TargetError::Failed { name: name.to_owned(), why };
        let folder = folder.map_err(|e| failed(format!("cannot create a folder for the connection: {e}")))?;
        let mut connection = Connection { name: name.to_owned(), config, folder, executable: String::new(), place };
        connection.connect()?;
        connection.bring_executable().map_err(|e| match e.downcast::<TargetError>() {
            Ok(error) => error,
            Err(other) => failed(format!("{other:#}")),
        })?;
        Ok(connection)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn options(&self) -> Command {
        let mut ssh = Command::new("ssh");
        if let Some(config) = &self.config.ssh_config {
            ssh.arg("-F").arg(config);
        }
        ssh.arg("-S").arg(self.folder.path().join("socket"));
        for option in
            ["BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=5", "ServerAliveCountMax=4", "ForwardX11=no"]
        {
            ssh.args(["-o", option]);
        }
        ssh
    }

    /// Opens the shared connection, closing the one before.
    pub fn connect(&self) -> Result<(), TargetError> {
        self.disconnect();
        let log = self.folder.path().join("log");
        let status = File::create(&log).and_then(|file| {
            let mut ssh = self.options();
            ssh.args(["-M", "-N", "-f", "-o", "ControlPersist=60", "--", &self.name]);
            ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).status()
        });
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(self.unreachable(&fs::read_to_string(log).unwrap_or_default())),
            Err(e) => Err(self.unreachable(&format!("cannot start ssh: {e}"))),
        }
    }

    pub fn disconnect(&self) {
        let mut ssh = self.options();
        ssh.args(["-O", "exit", "--", &self.name]);
        let _ = ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = fs::remove_file(self.folder.path().join("socket"));
    }

    fn unreachable(&self, wrote: &str) -> TargetError {
        let why = wrote.trim().lines().last().unwrap_or("ssh gives no reason").trim().to_owned();
        TargetError::Unreachable { name: self.name.clone(), why }
    }

    /// Starts a script of the shell on the target.
    fn script(&self, script: &str) -> std::io::Result<Child> {
        let mut ssh = self.options();
        ssh.args(["-o", "ControlMaster=no", "-T", "--", &self.name]);
        // Whatever the user's login shell is.
        ssh.arg(format!("exec /bin/sh -c {}", quote_script(script)));
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }

    /// Runs a script with this input; its output.
    fn run(&self, script: &str, input: impl Read + Send) -> Result<Vec<u8>, TargetError> {
        self.run_until(script, input, None, &|_| {})
    }

    /// As [`Self::run`], but kills ssh when `cancel` is set; the script may continue on the target. `note` receives the progress lines.
    fn run_until(
        &self,
        script: &str,
        mut input: impl Read + Send,
        cancel: Option<&AtomicBool>,
        note: &(dyn Fn(&str) + Sync),
    ) -> Result<Vec<u8>, TargetError> {
        let mut child = self.script(script).map_err(|e| self.unreachable(&format!("cannot start ssh: {e}")))?;
        let (mut stdin, stderr) =
            (child.stdin.take().expect("it is a pipe"), child.stderr.take().expect("it is a pipe"));
        let ssh = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let over = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            scope.spawn(move || {
                // A command that has ended reads no more; its status says why.
                let _ = std::io::copy(&mut input, &mut stdin);
            });
            if let (Some(cancel), Ok(ssh)) = (cancel, ssh) {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        if cancel.load(Ordering::Relaxed) {
                            let _ = rustix::process::pidfd_send_signal(&ssh, Signal::KILL);
                            return;
                        }
                        thread::sleep(CANCEL_POLL);
                    }
                });
            }
            let errors = scope.spawn(move || errors(stderr, note));
            let ended = child.wait_with_output();
            over.store(true, Ordering::Relaxed);
            ended.map(|ended| (ended, errors.join().expect("no panic is caught")))
        });
        let (ended, errors) = ended.map_err(|e| self.unreachable(&e.to_string()))?;
        self.judge(ended.status.code(), &errors).map(|()| ended.stdout)
    }

    /// What a command's exit status says.
    fn judge(&self, status: Option<i32>, wrote: &str) -> Result<(), TargetError> {
        match status {
            Some(0) => Ok(()),
            Some(SSH_FAILED) | None => Err(self.unreachable(wrote)),
            Some(status) => Err(judge(&self.name, status, wrote)),
        }
    }

    fn bring_executable(&mut self) -> anyhow::Result<()> {
        if !self.run(&may_stay(), std::io::empty())?.starts_with(b"yes") {
            self.place = Place::Temporary;
        }
        // Not current_exe(): its file may have been replaced in the meantime.
        let bytes = fs::read("/proc/self/exe").context("Cannot read this executable's own file")?;
        let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        // Under a name of its own: the command of a killed bigiron may still be writing.
        let put = |at: &str| {
            let new = format!("{at}.new.$$");
            format!(
                "cat >{new} && echo \"{hash}  \"{new} | sha256sum -c --status && chmod 700 {new} && mv {new} {at} || {{ rm -f {new}; false; }}"
            )
        };
        match self.place {
            Place::Kept => {
                self.executable = format!("\"{FOLDER}/bin/bigiron-{}\"", &hash[..16]);
                let at = &self.executable;
                if self.run(&format!("[ -x {at} ] && echo yes || echo no"), std::io::empty())?.starts_with(b"yes") {
                    return Ok(());
                }
                let earlier = format!(
                    "for old in \"{FOLDER}\"/bin/bigiron-*; do case $old in *.new.*) ;; *) rm -f \"$old\" ;; esac; done"
                );
                let make = format!("umask 077; mkdir -p \"{FOLDER}/bin\" && {earlier}; {}", put(at));
                self.run(&make, &bytes[..]).context("Cannot copy the executable")?;
            }
            Place::Temporary => {
                let made = self.run("mktemp -d /tmp/bigiron.XXXXXXXX", std::io::empty())?;
                let dir = String::from_utf8_lossy(&made).trim().to_owned();
                self.executable = quote(&format!("{dir}/bigiron"));
                self.run(&put(&self.executable), &bytes[..]).context("Cannot copy the executable")?;
            }
        }
        Ok(())
    }

    fn command(&self, verb: &str, args: &[String]) -> String {
        let mut words = vec![self.executable.clone(), target::SUBCOMMAND.to_owned(), quote(verb)];
        words.extend(args.iter().map(|arg| quote(arg)));
        format!("exec {}", words.join(" "))
    }

    /// Runs a verb with a message and returns its answer.
    pub fn ask<A: DeserializeOwned>(&self, verb: &str, message: &impl Serialize) -> Result<A, TargetError> {
        let out = self.tell_bytes(verb, message)?;
        self.answer(verb, &out)
    }

    fn answer<A: DeserializeOwned>(&self, verb: &str, out: &[u8]) -> Result<A, TargetError> {
        serde_json::from_slice(out).map_err(|e| TargetError::Failed {
            name: self.name.clone(),
            why: format!("cannot read the answer to `{verb}`: {e}"),
        })
    }

    /// Runs a verb with a message; it answers nothing.
    pub fn tell(&self, verb: &str, message: &impl Serialize) -> Result<(), TargetError> {
        self.tell_bytes(verb, message).map(drop)
    }

    fn tell_bytes(&self, verb: &str, message: &impl Serialize) -> Result<Vec<u8>, TargetError> {
        let message = serde_json::to_vec(message).expect("messages are plain data");
        self.run(&self.command(verb, &[]), &message[..])
    }

    /// Runs a verb that may take minutes, at most until `cancel` is set; `note` receives its progress lines.
    pub fn ask_long<A: DeserializeOwned>(
        &self,
        verb: &str,
        message: &impl Serialize,
        cancel: Option<&AtomicBool>,
        note: &(dyn Fn(&str) + Sync),
    ) -> Result<A, TargetError> {
        let message = serde_json::to_vec(message).expect("messages are plain data");
        let out = self.run_until(&self.command(verb, &[]), &message[..], cancel, note);
        if cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Err(TargetError::Failed { name: self.name.clone(), why: format!("`{verb}` was interrupted") });
        }
        self.answer(verb, &out?)
    }

    /// Runs a verb with arguments and this input, at most until `cancel` is set; its output.
    pub fn stream(
        &self,
        verb: &str,
        args: &[String],
        input: impl Read + Send,
        cancel: Option<&AtomicBool>,
    ) -> Result<Vec<u8>, TargetError> {
        self.run_until(&self.command(verb, args), input, cancel, &|_| {})
    }

    /// Starts a verb whose output is read while it runs.
    pub fn follow(&self, verb: &str, message: &impl Serialize) -> Result<Child, TargetError> {
        let unreachable = |e: std::io::Error| self.unreachable(&e.to_string());
        let mut child = self.script(&self.command(verb, &[])).map_err(unreachable)?;
        let mut stdin = child.stdin.take().expect("it is a pipe");
        let bytes = serde_json::to_vec(message).expect("messages are plain data");
        let _ = stdin.write_all(&bytes);
        Ok(child)
    }

    /// Runs bigiron itself on the target with the caller's standard output and error; its exit status.
    pub fn bigiron(&self, args: &[&str]) -> Result<i32, TargetError> {
        let mut words = vec![self.executable.clone()];
        words.extend(args.iter().map(|arg| quote(arg)));
        let mut ssh = self.options();
        ssh.args(["-o", "ControlMaster=no", "-T", "--", &self.name]);
        ssh.arg(format!("exec /bin/sh -c {}", quote_script(&format!("exec {}", words.join(" ")))));
        let status = ssh.stdin(Stdio::null()).status().map_err(|e| self.unreachable(&e.to_string()))?;
        match status.code() {
            Some(SSH_FAILED) | None => Err(self.unreachable("the connection was lost")),
            Some(status) => Ok(status),
        }
    }
}

/// A script that says whether the executable may stay. Where nothing is allowed, nothing is left behind, unless something must be restored: the
/// executable must outlive the reboot to the machine's own kernel, also if the administrator no longer allows anything.
fn may_stay() -> String {
    let mut reasons = vec![format!("[ -e {} ]", quote(target::allow::PATH))];
    reasons.extend(target::TO_RESTORE.map(|file| format!("[ -s \"{FOLDER}/{file}\" ]")));
    format!("if {}; then echo yes; else echo no; fi", reasons.join(" || "))
}

/// A refusal that calls the target as the user does.
pub(super) fn named(mut refusal: Refusal, name: &str) -> Refusal {
    refusal.message = refusal.message.replace(&format!("`{}`", target::NAME), &format!("`{name}`"));
    refusal.hint = refusal.hint.map(|hint| hint.replace(target::NAME, &format!("ssh:{name}")));
    refusal
}

/// Always between quotes: [`quote`] leaves single words bare, and a script is one word.
fn quote_script(script: &str) -> String {
    format!("'{}'", script.replace('\'', r"'\''"))
}

/// Returns a command's standard error without its progress lines; `note` receives each of these at once.
fn errors(from: impl Read, note: &dyn Fn(&str)) -> String {
    let mut wrote = String::new();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix(PROGRESS) {
            Some(text) => note(text),
            None => wrote = wrote + &line + "\n",
        }
    }
    wrote
}

/// What a verb that failed has said.
fn judge(name: &str, status: i32, wrote: &str) -> TargetError {
    let refusal = serde_json::from_str::<(String, Option<String>)>(wrote.trim().lines().last().unwrap_or_default());
    match refusal {
        Ok((message, hint)) if status == target::REFUSED => {
            TargetError::Refused(named(Refusal { place: None, message, hint }, name))
        }
        _ => {
            let lines: Vec<&str> = wrote.trim().lines().rev().take(3).collect();
            let why: Vec<&str> = lines.into_iter().rev().collect();
            let why = if why.is_empty() { format!("a command ended with status {status}") } else { why.join("; ") };
            TargetError::Failed { name: name.to_owned(), why }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.place == Place::Temporary && !self.executable.is_empty() {
            let _ = self.run(&format!("rm -rf \"$(dirname {})\"", self.executable), std::io::empty());
        }
        self.disconnect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_hint_and_other_errors_their_last_lines() {
        let TargetError::Refused(refusal) = judge("db3", 2, "warning\n[\"No\",\"Do this:\\nallow = []\"]\n") else {
            panic!()
        };
        assert_eq!((refusal.message.as_str(), refusal.hint.as_deref()), ("No", Some("Do this:\nallow = []")));
        let hint = "[\"No\",\"`bigiron undo --on ssh:NAME` ends it\"]";
        let TargetError::Refused(refusal) = judge("db3", 2, hint) else { panic!() };
        assert_eq!(refusal.hint.as_deref(), Some("`bigiron undo --on ssh:db3` ends it"));
        assert_eq!(judge("db3", 1, "kexec is missing\n").to_string(), "On `db3`: kexec is missing");
        assert_eq!(judge("db3", 127, "").to_string(), "On `db3`: a command ended with status 127");
        // The message contains no progress lines.
        let noted = std::cell::RefCell::new(Vec::new());
        let wrote = errors(&b"bigiron: Downloading\nNo room\xff\nbigiron: Unpacking"[..], &|text| {
            noted.borrow_mut().push(text.to_owned());
        });
        assert_eq!(
            (wrote.as_str(), noted.into_inner()),
            ("No room\u{fffd}\n", vec!["Downloading".to_owned(), "Unpacking".to_owned()])
        );
    }

    #[test]
    fn a_machine_that_reboots_may_answer_later_and_a_wrong_name_never_does() {
        let of = |why: &str| {
            let error = TargetError::Unreachable { name: "db3".to_owned(), why: why.to_owned() };
            (error.may_pass(), error.is_refusal())
        };
        assert_eq!(of("ssh: connect to host db3 port 22: Connection refused"), (true, false));
        assert_eq!(of("kex_exchange_identification: Connection closed by remote host"), (true, false));
        // A name that the machine itself announces is unknown while it is down.
        assert_eq!(of("ssh: Could not resolve hostname db3: Name or service not known"), (false, false));
        for refused in [
            "root@db3: Permission denied (publickey).",
            "Host key verification failed.",
            "/root/.ssh/config: terminating, 1 bad configuration options",
        ] {
            assert_eq!(of(refused), (false, true), "{refused}");
        }
        assert!(!judge("db3", 1, "kexec is missing\n").may_pass());
    }

    #[test]
    fn the_executable_stays_where_something_is_to_be_restored() {
        let home = tempfile::tempdir().unwrap();
        let says = |file: Option<&str>| {
            let folder = home.path().join(".local/state/bigiron");
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            if let Some(file) = file {
                fs::write(folder.join(file), "x").unwrap();
            }
            let mut sh = Command::new("/bin/sh");
            sh.arg("-c").arg(may_stay()).env("HOME", home.path()).env_remove("XDG_STATE_HOME");
            String::from_utf8(sh.output().unwrap().stdout).unwrap()
        };
        if Path::new(target::allow::PATH).exists() {
            assert_eq!(says(None), "yes\n");
            return;
        }
        assert_eq!(says(None), "no\n");
        assert_eq!(says(Some("audit.jsonl")), "no\n");
        assert_eq!(says(Some("origin.json")), "yes\n");
        assert_eq!(says(Some("undo.jsonl")), "yes\n");
    }

    #[test]
    fn a_script_is_one_word() {
        assert_eq!(quote_script("echo 'a b' \"$HOME\""), r#"'echo '\''a b'\'' "$HOME"'"#);
    }
}
