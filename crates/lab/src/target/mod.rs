//! What bigiron does on another machine, a target: `bigiron target VERB`, which the orchestrator starts over SSH.
//!
//! Invariant: each verb may be cut off and repeated. What it has done is on the target's disk, and is not done again.

pub mod allow;
pub mod boot;
mod folder;
mod grub;
mod kernels;
pub mod look;
pub mod messages;
mod restore;
mod systemd_boot;
mod trial;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
use folder::TargetFolder;
use messages::{BootMethod, BootRequest, BootState, Job, LeverAnswer, LeverQuery, Status, TrialKey, TrialState};

/// The subcommand under which the orchestrator starts these verbs.
pub const SUBCOMMAND: &str = "target";

/// Exit status of a refusal, whose message and hint are on standard error as JSON.
pub const REFUSED: i32 = 2;

pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The id of this boot.
fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// Serves one verb; returns the exit status. `cancel` gives a flag that a signal sets.
pub fn serve(args: &[String], registry: Registry, cancel: impl FnOnce() -> anyhow::Result<Arc<AtomicBool>>) -> i32 {
    let done = match args {
        [verb, dir] if verb == "run" => cancel().and_then(|flag| trial::run(Path::new(dir), registry, &flag)),
        [verb, rest @ ..] => answer(verb, rest),
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

fn answer(verb: &str, rest: &[String]) -> anyhow::Result<()> {
    match verb {
        "look" => return say(&look::look()?),
        "lever" => return say(&lever(&hear()?)),
        _ => {}
    }
    let folder = TargetFolder::open()?;
    match verb {
        "status" => say(&status(&folder, &hear()?)?),
        "prepare" => restore::note(&folder),
        "has" => say(&kernels::is_ready(&folder, &hear::<Identity>()?)),
        "kernel" => {
            let [study, kernel] = rest else { bail!("`kernel` takes a study and a kernel") };
            ensure!(restore::origin(&folder)?.is_some(), "The state of the machine was not recorded");
            kernels::bring(&folder, study, &serde_json::from_str(kernel)?, io::stdin().lock())
        }
        "boot" => {
            let request: BootRequest = hear()?;
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
        "stop-all" => say(&trial::stop_all(&folder)?),
        "return" => say(&restore::reboot(&folder, &hear::<String>()?)?),
        "clean" => say(&restore::clean(&folder, &hear::<String>()?)?),
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
    let lost = boot == BootState::Other || matches!(trial, TrialState::Died { rebooted: true });
    Ok(Status {
        release: uname.release().to_string_lossy().into_owned(),
        version: uname.version().to_string_lossy().into_owned(),
        cmdline: fs::read_to_string("/proc/cmdline")?.trim().to_owned(),
        boot,
        trial,
        crash: if lost { pstore() } else { None },
    })
}

/// The last lines of what a dying kernel left in pstore.
fn pstore() -> Option<String> {
    let mut files: Vec<_> = ["/sys/fs/pstore", "/var/lib/systemd/pstore"]
        .iter()
        .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let text = fs::read(files.last()?).ok()?;
    let text = String::from_utf8_lossy(&text);
    let last: Vec<&str> = text.lines().rev().take(12).collect();
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
