//! The host `ssh`: trials on another machine's running kernel, or on kernels that it boots once for each trial.
//!
//! Invariant: what runs on the target is asked for by a name under which it runs at most once, so a lost connection or a killed orchestrator loses
//! nothing and runs nothing twice. The machine is rebooted only with a way back, or with the user's word that there need be none.

pub mod config;
pub mod connection;
mod notes;
mod payload;
pub mod quarantine;
mod room;
mod trial;
pub mod way_back;

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use bigiron_archive::Kernel;
use bigiron_model::plan::{Arm, Plan};
use bigiron_model::purpose::Purpose;
use bigiron_model::refusal::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::vm::gate::Gate;
use super::{Host, HostError, Phase, Trial, TrialResult};
use crate::lever;
use crate::target::allow::{self, Demands};
use crate::target::look;
use crate::target::messages::{BootMethod, FoundationAnswer, FoundationRequest, Look};
use config::HostConfig;
use connection::{Connection, Place, TargetError};

/// How long a target may be unreachable while a trial runs there; the trial goes on, and the same command resumes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Interval between attempts to reach a target.
const RETRY: Duration = Duration::from_secs(2);

/// A target that answers.
pub struct Target {
    pub connection: Connection,
    pub config: HostConfig,
    pub look: Look,
}

impl Target {
    /// Connects to the target that OpenSSH calls `name`, and looks at it.
    ///
    /// # Errors
    /// It cannot be reached, or does not run this executable.
    pub fn open(name: &str, place: Place) -> anyhow::Result<Self> {
        Self::open_as(name, &config::read(name)?, place).map_err(TargetError::explained)
    }

    /// The same for a study: if an earlier command has told the machine to reboot, waits for it.
    ///
    /// # Errors
    /// As [`Target::open`].
    pub fn open_for_study(name: &str, note: &dyn Fn(&str)) -> anyhow::Result<Self> {
        match notes::BOOTED.of(name) {
            Some(_) => Self::open_patiently(name, Place::Kept, note),
            None => Self::open(name, Place::Kept),
        }
    }

    /// The same for a machine that may be rebooting: waits until it answers, at most as long as it may take to come back.
    ///
    /// # Errors
    /// It does not answer in this time, or for a reason that time does not change.
    pub fn open_patiently(name: &str, place: Place, note: &dyn Fn(&str)) -> anyhow::Result<Self> {
        let config = config::read(name)?;
        let since = Instant::now();
        let mut is_noted = false;
        loop {
            match Self::open_as(name, &config, place) {
                Err(e) if e.may_pass() && since.elapsed() < config.boot_limit => {
                    if !std::mem::replace(&mut is_noted, true) {
                        note(&format!("{e}; waiting up to {} s for it", config.boot_limit.as_secs()));
                    }
                    thread::sleep(RETRY);
                }
                opened => return opened.map_err(TargetError::explained),
            }
        }
    }

    fn open_as(name: &str, config: &HostConfig, place: Place) -> Result<Self, TargetError> {
        let connection = Connection::open(name, config.clone(), place)?;
        let mut look: Look = connection.ask("look", &())?;
        // As the user calls it.
        name.clone_into(&mut look.name);
        Ok(Self { connection, config: config.clone(), look })
    }

    /// Does something that may be repeated, again while the machine does not answer.
    ///
    /// # Errors
    /// It has not answered for as long as it may take to come back; or what was done has failed.
    pub fn patiently<T>(&self, mut act: impl FnMut(&Connection) -> Result<T, TargetError>) -> Result<T, TargetError> {
        let since = Instant::now();
        loop {
            match act(&self.connection) {
                Err(TargetError::Unreachable { .. }) if since.elapsed() < self.config.boot_limit => {
                    thread::sleep(RETRY);
                    // The next command says whether it worked.
                    let _ = self.connection.connect();
                }
                done => return done,
            }
        }
    }
}

/// Another machine.
pub struct SshHost<'a> {
    target: &'a Target,
    study: String,
    /// For each arm: its kernel's files, if it is not the running one.
    kernels: Vec<Option<Kernel>>,
    /// Where kernels are tried first; `None` if the user wants none.
    gate: Option<Gate>,
    demands: Demands,
    /// How kernels are booted; `None` if none is.
    method: Option<BootMethod>,
    /// Why no further trial is run.
    lost: Mutex<Option<String>>,
    /// Whether the boot method is known to boot an entry once and not for ever.
    proved: AtomicBool,
    note: Box<dyn Fn(&str) + Sync + 'a>,
}

/// What the arms of a plan do to a target.
pub fn demands(plan: &Plan) -> Demands {
    Demands { settings: plan.arms.iter().any(|arm| !lever::of_runtime(&arm.settings).is_empty()), boots: plan.boots() }
}

/// The name of a study on targets: no two studies have the same.
fn study_name(plan: &Plan) -> String {
    let text = format!("{} {} {:?}", plan.question_sha256, plan.design.seed, plan.begun);
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl<'a> SshHost<'a> {
    /// The host of `plan` with `left` trials to run; `kernels` are those of the arms, and boot here only after `gate`.
    ///
    /// # Errors
    /// The target's administrator does not allow it, the machine is in use, or it cannot boot these kernels.
    pub fn new(
        plan: &Plan,
        kernels: Vec<Option<Kernel>>,
        gate: Option<Gate>,
        left: u32,
        no_way_back: bool,
        target: &'a Target,
        note: Box<dyn Fn(&str) + Sync + 'a>,
    ) -> anyhow::Result<Self> {
        let (demands, study) = (demands(plan), study_name(plan));
        let name = target.connection.name();
        quarantine::check(name)?;
        let method = demands.boots.then(|| method(&target.look));
        let is_proved = |method: &Result<BootMethod, Refusal>| {
            method.as_ref().is_ok_and(|method| target.look.proved.contains(method))
        };
        let proved = method.as_ref().is_none_or(is_proved);
        allow::check(&target.look, demands, reboots(demands, left, proved))?;
        look::check_restored(&target.look).map_err(|refusal| connection::named(refusal, name))?;
        // An earlier command of this study may have asked for a boot, for which the machine goes down only now.
        let free = |connection: &Connection| connection.tell("free", &(&study, demands));
        target.patiently(free).map_err(TargetError::explained)?;
        let method = method.transpose()?;
        if demands.boots {
            check_power(target, no_way_back)?;
            kernels.iter().flatten().try_for_each(|kernel| check_kernel(&target.look, &kernel.identity.release))?;
            if left > 0 {
                room::check(&target.look, &missing(target, &kernels)?)?;
            }
        }
        Ok(Self {
            target,
            study,
            kernels,
            gate,
            demands,
            method,
            lost: Mutex::new(None),
            proved: AtomicBool::new(proved),
            note,
        })
    }

    /// Finds the foundation of each arm of `plan` on the target, at most until `cancel` is set. Missing parts are built there, which may take minutes.
    ///
    /// # Errors
    /// A part is unavailable or cannot be built there.
    pub fn foundations(&self, plan: &Plan, cancel: Option<&AtomicBool>) -> anyhow::Result<FoundationAnswer> {
        let request = FoundationRequest { study: self.study.clone(), plan: plan.clone(), demands: self.demands };
        let note = |text: &str| (self.note)(&format!("`{}`: {text}", self.target.look.name));
        let ask = |connection: &Connection| connection.ask_long("foundations", &request, cancel, &note);
        self.target.patiently(ask).map_err(TargetError::explained)
    }

    /// Asks until the target answers.
    ///
    /// # Errors
    /// It has not answered for [`PATIENCE`], or the trial was cancelled.
    fn ask<A: DeserializeOwned>(
        &self,
        verb: &str,
        message: &impl Serialize,
        trial: &Trial<'_>,
    ) -> Result<A, HostError> {
        let since = Instant::now();
        loop {
            match self.target.connection.ask(verb, message) {
                Ok(answer) => return Ok(answer),
                Err(TargetError::Unreachable { .. }) if since.elapsed() < PATIENCE => self.reconnect(trial)?,
                Err(e @ TargetError::Unreachable { .. }) => return Err(self.unreachable(&e)),
                Err(other) => return Err(fatal(other)),
            }
        }
    }

    /// A moment later, a new connection.
    fn reconnect(&self, trial: &Trial<'_>) -> Result<(), HostError> {
        if trial.cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(HostError::Cancelled);
        }
        thread::sleep(RETRY);
        // The next command says whether it worked.
        let _ = self.target.connection.connect();
        Ok(())
    }

    /// The end of a session whose machine no longer answers.
    fn unreachable(&self, error: &TargetError) -> HostError {
        HostError::Fatal(format!("{error}; {}", then(self.demands)))
    }

    fn lose(&self, why: &str) {
        self.lost.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert_with(|| why.to_owned());
    }
}

/// A refusal keeps its hint in the text.
fn fatal(error: TargetError) -> HostError {
    HostError::Fatal(match error {
        TargetError::Refused(Refusal { message, hint: Some(hint), .. }) => format!("{message}\n{hint}"),
        other => other.to_string(),
    })
}

/// What becomes of a study whose machine no longer answers. The way back of one that boots ends its trial, as soon as the machine answers.
fn then(demands: Demands) -> &'static str {
    match demands.boots {
        true => "once it answers, the same command continues the study",
        false => "a trial that was started there continues, and the same command finds its result",
    }
}

/// The reboots of a study with `left` trials: one for each, one to return, and the dry boot by a method that is not proved.
fn reboots(demands: Demands, left: u32, proved: bool) -> u32 {
    if demands.boots && left > 0 { left + 1 + u32::from(!proved) } else { 0 }
}

/// The first method that the target can boot by.
fn method(look: &Look) -> Result<BootMethod, Refusal> {
    if let Some(report) = look.methods.iter().find(|report| report.refused.is_none()) {
        return Ok(report.method);
    }
    let why: Vec<String> = look
        .methods
        .iter()
        .map(|report| format!("{}: {}", report.method.name(), report.refused.as_deref().unwrap_or_default()))
        .collect();
    Err(Refusal::new(format!("`{}` cannot boot another kernel once: {}", look.name, why.join("; "))))
}

fn check_power(target: &Target, no_way_back: bool) -> Result<(), Refusal> {
    if target.config.power.is_some() || no_way_back {
        return Ok(());
    }
    let name = target.connection.name();
    let path = config::path().map_or_else(|| "hosts.toml".to_owned(), |path| path.display().to_string());
    Err(Refusal::new(format!("If a kernel does not boot, bigiron cannot turn `{name}` off and on again")).hint(format!(
        "Write its power command to `{path}`, such as\n[{name:?}]\npower = \"ipmitool -H … chassis power cycle\"\nor add `--no-way-back`"
    )))
}

/// The kernels that must be brought to the target, each once.
fn missing<'k>(target: &Target, kernels: &'k [Option<Kernel>]) -> anyhow::Result<Vec<&'k Kernel>> {
    let mut missing: Vec<&Kernel> = Vec::new();
    for kernel in kernels.iter().flatten() {
        let is_known = missing.iter().any(|other| other.identity.image_sha256 == kernel.identity.image_sha256);
        if !is_known && !target.connection.ask::<bool>("has", &kernel.identity).map_err(TargetError::explained)? {
            missing.push(kernel);
        }
    }
    Ok(missing)
}

/// Refuses a kernel that was built without the drivers of the machine.
fn check_kernel(look: &Look, release: &str) -> Result<(), Refusal> {
    let is_cloud = |release: &str| release.ends_with("-cloud-amd64");
    if is_cloud(release) && !is_cloud(&look.release) {
        return Err(Refusal::new(format!(
            "{release} has drivers for virtual machines only, and `{}` runs {}",
            look.name, look.release
        ))
        .hint("Name a kernel for real hardware, such as `debian:6.12/amd64`"));
    }
    Ok(())
}

/// Words of an arm for the command line.
fn words(arm: &Arm) -> String {
    lever::cmdline(&arm.settings).join(" ")
}

impl Host for SshHost<'_> {
    fn parallel(&self) -> usize {
        1
    }

    fn supports(&self, purpose: Purpose) -> Result<(), String> {
        match purpose {
            Purpose::Judge => Ok(()),
            _ if self.target.look.uid == 0 => Ok(()),
            _ => Err("only root can profile or trace a target".to_owned()),
        }
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        if let Some(why) = &*self.lost.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            return Err(HostError::Fatal(why.clone()));
        }
        self.trial(trial, phase)
    }

    fn close(&self, recorded: bool) -> anyhow::Result<()> {
        way_back::close(self.target, &self.study, self.demands.boots, recorded, &*self.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::look::testing::look;
    use crate::target::messages::MethodReport;

    #[test]
    fn the_first_possible_method_is_used() {
        let mut look = look();
        let report = |method, refused: Option<&str>| MethodReport { method, refused: refused.map(str::to_owned) };
        look.methods = vec![report(BootMethod::Kexec, Some("locked down")), report(BootMethod::Grub, None)];
        assert_eq!(method(&look), Ok(BootMethod::Grub));
        look.methods.pop();
        let refused = method(&look).unwrap_err().to_string();
        assert_eq!(refused, "`db3` cannot boot another kernel once: kexec: locked down");
    }

    #[test]
    fn the_dry_boot_and_the_way_back_are_reboots_too() {
        let boots = Demands { settings: false, boots: true };
        assert_eq!([reboots(boots, 8, true), reboots(boots, 8, false), reboots(boots, 0, false)], [9, 10, 0]);
        assert_eq!(reboots(Demands { settings: true, boots: false }, 8, true), 0);
    }

    #[test]
    fn a_trial_goes_on_without_its_connection_unless_the_machine_is_rebooted() {
        assert!(then(Demands { settings: true, boots: false }).contains("a trial that was started there continues"));
        assert!(!then(Demands { settings: false, boots: true }).contains("a trial that was started there"));
    }

    #[test]
    fn a_kernel_for_virtual_machines_is_not_booted_on_hardware() {
        let mut look = look();
        assert!(check_kernel(&look, "6.12.1-cloud-amd64").unwrap_err().hint.unwrap().contains("debian:6.12/amd64"));
        check_kernel(&look, "6.12.1-amd64").unwrap();
        look.release = "6.1.0-cloud-amd64".to_owned();
        check_kernel(&look, "6.12.1-cloud-amd64").unwrap();
    }
}
