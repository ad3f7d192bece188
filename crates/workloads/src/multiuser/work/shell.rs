//! Programs that users run: a shell with a script, or without a shell this executable instead.
//!
//! Invariant: a script's status is 0, or the call fails.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::UserContext;
use bigiron_sys::process::Program;

/// The shell, if this machine has one.
const SHELL: &str = "/bin/sh";
/// The name of the `bigiron worker` that replaces a shell and the commands it starts.
pub const SHELL_WORKER: &str = "user-shell";
pub const COMMAND_WORKER: &str = "user-command";

/// The script of a user's shell.
pub enum ShellScript {
    /// Lists a directory with all attributes of its files, to /dev/null.
    List,
    /// Runs another shell that does that.
    ListTwice,
    /// Compares two numbers and sleeps.
    Pause { milliseconds: u64 },
}

/// The interpreter of the scripts on this machine, for the record.
pub fn interpreter() -> &'static str {
    if Path::new(SHELL).exists() { SHELL } else { "bigiron itself, since there is no /bin/sh" }
}

/// Runs the script and waits for it.
pub(super) fn run(place: &mut UserContext<'_>, script: &ShellScript) -> anyhow::Result<()> {
    let list = place.disk().listed();
    let has_shell = *place.kept.has_shell.get_or_insert_with(|| Path::new(SHELL).exists());
    let program = if has_shell { by_shell(script, &list) } else { by_worker(place.executable(), script, &list) };
    let program = program.context("Cannot prepare the arguments of a shell")?;
    program
        .fork_exec()
        .and_then(|child| child.wait())
        .and_then(|end| end.success("A user's shell"))
        .context("Cannot run a shell")
}

fn by_shell(script: &ShellScript, list: &Path) -> io::Result<Program> {
    let listing = || format!("PATH=/bin:/usr/bin; ls -l '{}' >/dev/null 2>&1; exit $?", list.display());
    let text = match script {
        ShellScript::List => listing(),
        ShellScript::ListTwice => format!("exec {SHELL} -c \"{}\"", listing().replace('$', "\\$")),
        ShellScript::Pause { milliseconds } => {
            format!("PATH=/bin:/usr/bin; if [ $# -lt 10 ]; then sleep {}; fi; exit $?", *milliseconds as f64 / 1000.0)
        }
    };
    Program::new(Path::new(SHELL), &["-c", &text])
}

fn by_worker(executable: &Path, script: &ShellScript, list: &Path) -> io::Result<Program> {
    let list = list.to_str().ok_or_else(|| io::Error::other("The directory's name is not UTF-8"))?;
    match script {
        ShellScript::List => Program::new(executable, &["worker", SHELL_WORKER, "list", list]),
        ShellScript::ListTwice => Program::new(executable, &["worker", SHELL_WORKER, "shell", "list", list]),
        ShellScript::Pause { milliseconds } => {
            Program::new(executable, &["worker", SHELL_WORKER, "pause", &milliseconds.to_string()])
        }
    }
}

/// Entry of `bigiron worker user-shell COMMAND ARGUMENT`: starts the command in a separate process, like a shell. `shell COMMAND
/// ARGUMENT` first executes another such shell.
pub fn worker(args: &[String]) -> i32 {
    let start = || -> anyhow::Result<()> {
        let executable = std::env::current_exe()?;
        if let Some((first, rest)) = args.split_first()
            && first == "shell"
        {
            let error = Command::new(&executable).args(["worker", SHELL_WORKER]).args(rest).exec();
            return Err(error).context("Cannot become another shell");
        }
        let args: Vec<_> = ["worker", COMMAND_WORKER].into_iter().chain(args.iter().map(String::as_str)).collect();
        Ok(Program::new(&executable, &args)?.fork_exec()?.wait()?.success("The command")?)
    };
    status(start())
}

/// Entry of `bigiron worker user-command COMMAND ARGUMENT`: `list DIRECTORY` or `pause MILLISECONDS`.
pub fn command(args: &[String]) -> i32 {
    let act = || -> anyhow::Result<()> {
        match args {
            [command, directory] if command == "list" => {
                let nowhere = fs::OpenOptions::new().write(true).open("/dev/null").context("Cannot open /dev/null")?;
                list(Path::new(directory), io::BufWriter::new(nowhere))
            }
            [command, milliseconds] if command == "pause" => {
                std::thread::sleep(Duration::from_millis(milliseconds.parse()?));
                Ok(())
            }
            _ => bail!("A user's command must be `list DIRECTORY` or `pause MILLISECONDS`"),
        }
    };
    status(act())
}

fn status(result: anyhow::Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("{e:#}");
            1
        }
    }
}

/// Lists `directory` like `ls -l`, ordered by name: kind and permissions, links, owner, group, bytes, seconds of the last change.
fn list(directory: &Path, mut out: impl io::Write) -> anyhow::Result<()> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
    names.sort();
    for path in names {
        let of = fs::symlink_metadata(&path)?;
        let kind = if of.is_dir() {
            'd'
        } else if of.is_symlink() {
            'l'
        } else {
            '-'
        };
        write!(out, "{kind}")?;
        for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
            write!(out, "{}", if of.mode() >> bit & 1 == 1 { letter } else { '-' })?;
        }
        write!(out, " {} {} {} {} {} ", of.nlink(), of.uid(), of.gid(), of.len(), of.mtime())?;
        out.write_all(path.file_name().map_or(b"".as_slice(), OsStr::as_bytes))?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_directory_is_listed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("b", 0o640), ("a", 0o755)] {
            fs::write(dir.path().join(name), name.repeat(3)).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut out = Vec::new();
        list(dir.path(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("-rwxr-xr-x 1 ") && lines[0].ends_with(" a"), "{text}");
        assert!(lines[1].starts_with("-rw-r----- 1 ") && lines[1].contains(" 3 "), "{text}");
    }

    #[test]
    fn a_command_that_is_none_fails() {
        assert_eq!(command(&["list".to_owned(), "/nonexistent".to_owned()]), 1);
        assert_eq!(command(&["dance".to_owned()]), 1);
        assert_eq!(command(&["pause".to_owned(), "1".to_owned()]), 0);
    }
}
