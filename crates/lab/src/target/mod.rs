//! What bigiron does on another machine, a target: `bigiron target VERB`, which the orchestrator starts over SSH.
//!
//! Invariant: each verb may be cut off and repeated. What it has done is on the target's disk, and is not done again.

pub mod allow;
pub mod boot;
mod folder;
mod foundations;
mod grub;
mod in_use;
mod kernels;
pub mod look;
pub mod messages;
mod restore;
mod systemd_boot;
mod trial;
mod watchdog;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use bigiron_model::folder_files;
use bigiron_model::identity::Identity;
use bigiron_model::refusal::Refusal;
use bigiron_sys::network::TrialLink;
use bigiron_workload::registry::Registry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lever::disks::Disks;
use crate::lever::site::Site;
use crate::undo;
use allow::Demands;
use folder::TargetFolder;
use messages::{
    BootMethod, BootRequest, BootState, Job, LeverAnswer, LeverQuery, Return, Status, TrialKey, TrialState,
};

/// The subcommand under which the orchestrator starts these verbs.
pub const SUBCOMMAND: &str = "target";

/// Exit status of a refusal, whose message and hint are on standard error as JSON.
pub const REFUSED: i32 = 2;

/// How hints call this machine, which does not know its name at the user's; the orchestrator puts it in.
pub const NAME: &str = "ssh:NAME";

/// Files of bigiron's folder that are there, and not empty, while there is something to restore.
pub const TO_RESTORE: [&str; 2] = [restore::ORIGIN, crate::undo::LEDGER];

/// Serves one verb; returns the exit status. `cancel` gives a flag that a signal sets.
pub fn serve(args: &[String], registry: Registry, cancel: impl FnOnce() -> anyhow::Result<Arc<AtomicBool>>) -> i32 {
    let done = match args {
        [verb, dir] if verb == "run" => cancel().and_then(|flag| trial::run(Path::new(dir), registry, &flag)),
        [verb, rest @ ..] => answer(verb, rest, registry),
        [] => Err(anyhow::anyhow!("`bigiron {SUBCOMMAND}` is for internal use")),
    };
    let Err(error) = done else { return 0 };
    match error.downcast_ref::<Refusal>() {
        Some(refusal) => {
            eprintln!("{}", serde_json::json!([refusal.message, refusal.hint]));
            REFUSED
        }
        None => {
            eprintln!("{error:#}");
            1
        }
    }
}

/// Whether trials may run on this machine now: its administrator allows them, no setting is left changed, and no other trial runs. `name` is what the
/// caller's OpenSSH calls it.
///
/// # Errors
/// All reasons why not, and what would be right.
pub fn allows_trials(name: &str) -> Result<(), String> {
    let look = look::look().map_err(|e| format!("{e:#}"))?;
    let checked = allow::check(&look, Demands::default(), 0).and_then(|()| look::check_restored(&look));
    checked.map_err(|refusal| {
        let text = [Some(refusal.message), refusal.hint].into_iter().flatten().collect::<Vec<_>>().join("\n");
        text.replace(&format!("`{NAME}`"), "this machine").replace(NAME, &format!("ssh:{name}"))
    })?;
    match look.trials.is_empty() {
        true => Ok(()),
        false => Err("a trial of another study runs on this machine; wait until it has ended".to_owned()),
    }
}

fn answer(verb: &str, rest: &[String], registry: Registry) -> anyhow::Result<()> {
    match verb {
        "look" => return say(&look::look()?),
        "lever" => return say(&lever(&hear()?)),
        _ => {}
    }
    let folder = TargetFolder::open()?;
    match verb {
        "status" => say(&status(&folder, &hear()?)?),
        "free" => {
            let (study, demands): (String, Demands) = hear()?;
            Ok(in_use::check(&folder, &study, demands.boots)?)
        }
        "foundations" => say(&foundations::lay(&folder, &hear()?, registry)?),
        "prepare" => {
            let _turn = in_use::turn_of(&folder, &hear::<String>()?)?;
            restore::note(&folder)
        }
        "has" => say(&kernels::is_ready(&folder, &hear::<Identity>()?)),
        "kernel" => {
            let [study, kernel] = rest else { bail!("`kernel` takes a study and a kernel") };
            ensure!(restore::origin(&folder)?.is_some(), "The state of the machine was not recorded");
            kernels::bring(&folder, study, &serde_json::from_str(kernel)?, io::stdin().lock())
        }
        "boot" => {
            let request: BootRequest = hear()?;
            let _turn = in_use::turn_of(&folder, &request.key.study)?;
            allow::check(&look::look()?, request.demands, 1)?;
            boot::boot(&folder, &request)
        }
        "prove" => {
            let (key, method): (TrialKey, BootMethod) = hear()?;
            ensure!(boot::state(&folder, &key)? == BootState::Up, "The kernel of the dry boot is not running");
            boot::prove(&folder, method)
        }
        "start" => say(&trial::start(&folder, &hear::<Job>()?)?),
        "wait" => trial::wait(&folder, &hear()?),
        "stop" => trial::stop(&folder, &hear()?),
        "artifact" => {
            let [key, name] = rest else { bail!("`artifact` takes a trial and a name") };
            let key: TrialKey = serde_json::from_str(key)?;
            folder_files::plain_name(name).map_err(anyhow::Error::msg)?;
            let dir = folder.trial(&key)?.join(trial::ARTIFACTS);
            let mut file = folder_files::open(&dir, name, folder_files::Access::Read, 0)?;
            io::copy(&mut file, &mut io::stdout().lock())?;
            Ok(())
        }
        "forget" => {
            let study: String = hear()?;
            folder_files::plain_name(&study).map_err(anyhow::Error::msg)?;
            Ok(folder_files::remove_all(folder.path(), Path::new("trials").join(study))?)
        }
        "stop-all" => {
            for change in undo::left_over() {
                // On a full disk the log cannot be written, and the settings are restored all the same.
                let _ = folder.audit("undo", &format!("restore {} ({})", change.what, change.undo));
            }
            say(&trial::stop_all(&folder)?)
        }
        "return" => {
            let request: Return = hear()?;
            let _turn = in_use::turn(&folder)?;
            if request.ends_others {
                trial::stop_all(&folder)?;
            } else {
                in_use::check(&folder, &request.study, true)?;
            }
            say(&restore::reboot(&folder, &request.study)?)
        }
        "clean" => {
            let study: String = hear()?;
            let _turn = in_use::turn_of(&folder, &study)?;
            say(&restore::clean(&folder, &study)?)
        }
        other => bail!("Unknown verb `{other}`"),
    }
}

fn hear<T: DeserializeOwned>() -> anyhow::Result<T> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    serde_json::from_slice(&bytes).context("Cannot read the message")
}

fn say(message: &impl Serialize) -> anyhow::Result<()> {
    let mut bytes = serde_json::to_vec(message)?;
    bytes.push(b'\n');
    Ok(io::stdout().lock().write_all(&bytes)?)
}

fn status(folder: &TargetFolder, key: &TrialKey) -> anyhow::Result<Status> {
    let uname = rustix::system::uname();
    let (boot, trial) = (boot::state(folder, key)?, trial::state(folder, key)?);
    let dir = folder.trial(key)?;
    // Nothing is added to its folder while the trial's boot or its work goes on.
    let begun = dir.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let crash = match trial {
        TrialState::Died { rebooted: false } => trial::log(&dir),
        TrialState::Died { rebooted: true } => last_words(&LAST_WORDS, begun),
        _ if boot == BootState::Other => last_words(&LAST_WORDS, begun),
        _ => None,
    };
    Ok(Status {
        release: uname.release().to_string_lossy().into_owned(),
        version: uname.version().to_string_lossy().into_owned(),
        cmdline: fs::read_to_string("/proc/cmdline")?.trim().to_owned(),
        boot,
        trial,
        crash,
    })
}

/// Where a dying kernel leaves its words: pstore, where systemd puts what was in it, and the folder of kdump.
const LAST_WORDS: [&str; 3] = ["/sys/fs/pstore", "/var/lib/systemd/pstore", "/var/crash"];

/// Lines of them that are kept.
const LAST_LINES: usize = 12;

/// What a file's time and the machine's may differ by.
const CLOCKS: Duration = Duration::from_secs(60);

/// The last lines of what a dying kernel has left since `since`: what an earlier one left says nothing of this one.
fn last_words(dirs: &[&str], since: SystemTime) -> Option<String> {
    let files =
        |dir: &Path| -> Vec<PathBuf> { fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect() };
    // systemd and kdump make a folder for each crash; kdump's has the memory too, which is no text.
    let entries = dirs.iter().flat_map(|dir| files(Path::new(dir)));
    let all = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    let is_log = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains("dmesg") && !name.ends_with(".z")
    };
    let newest = all
        .filter(is_log)
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .filter(|(written, _)| *written + CLOCKS >= since)
        .max()?;
    last_lines(&newest.1)
}

fn last_lines(file: &Path) -> Option<String> {
    let text = fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&text);
    let last: Vec<&str> = text.lines().rev().take(LAST_LINES).collect();
    Some(last.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

/// Whether a lever can be set here.
fn lever(query: &LeverQuery) -> LeverAnswer {
    let link = TrialLink::lazy();
    let folder = crate::undo::folder().unwrap_or_default();
    let at = folder.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    let site = Site { root: Path::new("/"), disks: Disks::below(at), link: &link };
    LeverAnswer { refused: site.resolve(&query.setting).err(), is_set: site.is_set(&query.setting) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_boot_left_are_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for folder in ["pstore", "crash/202611272100"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        let dirs = [path("pstore"), path("crash"), path("nowhere")].map(|dir| dir.to_string_lossy().into_owned());
        let words = |since: SystemTime| last_words(&dirs.each_ref().map(String::as_str), since);
        let now = SystemTime::now();
        fs::write(path("pstore/console-ramoops-0"), "all is well\n").unwrap();
        assert_eq!(words(now), None);
        fs::write(path("pstore/dmesg-ramoops-0"), "Panic#1\n").unwrap();
        assert_eq!(words(now).as_deref(), Some("Panic#1"));
        // kdump's is newer, and its image of the memory is no log.
        let log = path("crash/202611272100/dmesg.202611272100");
        fs::write(&log, (0..20).map(|n| format!("line {n}\n")).collect::<String>()).unwrap();
        fs::write(path("crash/202611272100/dump.202611272100"), [0; 64]).unwrap();
        fs::File::open(&log).unwrap().set_modified(now + Duration::from_secs(600)).unwrap();
        let last = words(now).unwrap();
        assert!(last.starts_with("line 8\n") && last.ends_with("line 19"), "{last}");
        // A crash of another day.
        assert_eq!(words(now + Duration::from_secs(3600)), None);
    }
}
