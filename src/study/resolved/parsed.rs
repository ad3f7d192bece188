//! Arms and workloads parsed once: levers as the shape of the machine, options as workloads.
//!
//! Invariant: afterwards an option's text is only written, never parsed.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use bigiron_lab::lever::vm::MachineShape;
use bigiron_lab::lever::{self, Scope};
use bigiron_model::host::HostKind;
use bigiron_model::metric::MetricDef;
use bigiron_model::plan::PlannedWorkload;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::{Setting, options_of};
use bigiron_model::suggest;
use bigiron_model::workload::Options;
use bigiron_workload as workload;
use bigiron_workload::{Configured, Needs, RawNeeds, RunsOn, Workload};

use super::{QUICK, ResolvedArm};
use crate::registry;
use crate::study::arm;
use crate::study::question::Question;

/// The parsed settings of an arm.
#[derive(Clone, Default)]
pub struct ParsedSettings {
    pub shape: MachineShape,
    /// The study's workloads with the arm's options, in the study's order.
    pub workloads: Vec<Rc<dyn Configured>>,
}

impl fmt::Debug for ParsedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParsedSettings({:?}, {} workloads)", self.shape, self.workloads.len())
    }
}

impl ParsedSettings {
    /// What each workload needs, in the study's order.
    pub fn needs(&self) -> impl Iterator<Item = Needs> {
        self.workloads.iter().map(|workload| workload.needs())
    }

    /// The workloads' needs of raw disks, the maximum of all; `None` if none uses raw disks.
    pub fn raw_needs(&self) -> Option<RawNeeds> {
        let needs = self.workloads.iter().filter_map(|workload| workload.raw_disks());
        needs.reduce(|a, b| RawNeeds { count: a.count.max(b.count), bytes: a.bytes.max(b.bytes) })
    }

    /// The longest time for which a healthy workload shows no progress on `host`. On this machine itself time is not virtual, and a
    /// run may be as long as its options require.
    pub fn silence(&self, host: HostKind) -> Duration {
        let silences = self.workloads.iter().map(|workload| match host {
            HostKind::Local | HostKind::Ssh => workload.silence(),
            HostKind::Vm | HostKind::Sim => workload.guest_silence(),
        });
        silences.max().unwrap_or_default()
    }
}

/// Parses the workloads and the arms of a question.
///
/// # Errors
/// The first error, with its place.
pub(super) fn read(q: &Question) -> Result<(Vec<PlannedWorkload>, Vec<ResolvedArm>), Refusal> {
    let workloads = workloads(q)?;
    let mut arms = arms(q);
    let planned = workloads.iter().map(|w| planned(q, *w, &mut arms)).collect::<Result<Vec<_>, _>>()?;
    check_reach(q, &workloads)?;
    Ok((planned, arms))
}

fn workloads(q: &Question) -> Result<Vec<&'static dyn Workload>, Refusal> {
    let asked: Vec<&str> =
        if q.workloads.is_empty() { QUICK.to_vec() } else { q.workloads.iter().map(String::as_str).collect() };
    let mut found: Vec<&'static dyn Workload> = Vec::new();
    for (i, name) in asked.into_iter().enumerate() {
        let refuse = |message| q.places.refuse(&format!("workloads.{i}"), message);
        let Some(workload) = registry::find(name) else {
            let names = registry::all().iter().map(|w| w.name());
            let right = match suggest::nearest(name, names.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it can be {}", suggest::list(names)),
            };
            return Err(refuse(format!("`{name}` is not a workload; {right}")));
        };
        if found.iter().any(|w| w.name() == name) {
            return Err(refuse(format!("Workload `{name}` is named twice")));
        }
        found.push(workload);
    }
    Ok(found)
}

/// Arms with the settings of all arms, except options of workloads: those belong to the workloads.
fn arms(q: &Question) -> Vec<ResolvedArm> {
    let common: Vec<Setting> =
        q.settings.iter().filter(|(lever, _)| lever::scope(lever) != Scope::Workload).cloned().collect();
    arm::names(&q.arms)
        .into_iter()
        .zip(&q.arms)
        .map(|(name, arm)| ResolvedArm {
            name,
            kernel: arm.kernel.clone(),
            settings: lever::overlay(&common, &arm.settings),
            parsed: ParsedSettings::default(),
        })
        .map(|arm| ResolvedArm {
            parsed: ParsedSettings { shape: MachineShape::of(&arm.settings), ..ParsedSettings::default() },
            ..arm
        })
        .collect()
}

/// A workload with the options common to all arms; each arm gets its own parsed copy.
fn planned(
    q: &Question,
    workload: &'static dyn Workload,
    arms: &mut [ResolvedArm],
) -> Result<PlannedWorkload, Refusal> {
    let name = workload.name();
    let on = match q.host.unwrap_or_default() {
        HostKind::Vm => RunsOn::Guest,
        HostKind::Sim => RunsOn::Simulation,
        HostKind::Local => RunsOn::Here,
        HostKind::Ssh => RunsOn::Elsewhere,
    };
    let (options, common) =
        workload::configure(workload, options_of(&q.settings, name), on).map_err(|e| q.places.refuse("set", e))?;
    let (metrics, common) = (common.metrics(), Rc::from(common));
    for (i, arm) in arms.iter_mut().enumerate() {
        let own = embed(workload, arm, on).and_then(|()| of_arm(workload, &options, &common, arm, on));
        let own = own.map_err(|e| q.places.refuse(&format!("arms.{i}"), e))?;
        own.check_arm(on)
            .map_err(|e| q.places.refuse(&format!("arms.{i}"), format!("Arm `{}` cannot be run: {e}", arm.name)))?;
        if let Some(odd) = difference(&metrics, &own.metrics()) {
            let message = format!(
                "Arm `{}` cannot be compared: with its options `{name}` measures `{odd}` on one side only",
                arm.name
            );
            return Err(q.places.refuse(&format!("arms.{i}"), message));
        }
        arm.parsed.workloads.push(own);
    }
    Ok(PlannedWorkload { name: name.to_owned(), options, metrics })
}

/// Replaces the names of files in an arm's options by the files' texts: a plan holds everything that it needs.
fn embed(workload: &dyn Workload, arm: &mut ResolvedArm, on: RunsOn) -> Result<(), String> {
    for (lever, value) in &mut arm.settings {
        if let Some(name) = lever.strip_prefix(workload.name()).and_then(|rest| rest.strip_prefix('.')) {
            *value = workload.embed(name, value, on)?;
        }
    }
    Ok(())
}

/// `workload` with the options of `arm` over the `common` ones.
fn of_arm(
    workload: &dyn Workload,
    options: &Options,
    common: &Rc<dyn Configured>,
    arm: &ResolvedArm,
    on: RunsOn,
) -> Result<Rc<dyn Configured>, String> {
    let mut own = options_of(&arm.settings, workload.name()).peekable();
    if own.peek().is_none() {
        return Ok(Rc::clone(common));
    }
    let options = options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    workload::configure(workload, options.chain(own), on).map(|(_, configured)| Rc::from(configured))
}

/// A metric that only one of two lists has.
fn difference<'m>(a: &'m [MetricDef], b: &'m [MetricDef]) -> Option<&'m str> {
    let lacks = |list: &[MetricDef], def: &MetricDef| !list.contains(def);
    a.iter().find(|d| lacks(b, d)).or(b.iter().find(|d| lacks(a, d))).map(|d| d.name.as_str())
}

/// Refuses options of workloads that are not in the study.
fn check_reach(q: &Question, workloads: &[&'static dyn Workload]) -> Result<(), Refusal> {
    let of_arms = q.arms.iter().enumerate().flat_map(|(i, a)| a.settings.iter().map(move |s| (format!("arms.{i}"), s)));
    for (place, (lever, _)) in q.settings.iter().map(|s| ("set".to_owned(), s)).chain(of_arms) {
        let family = lever.split('.').next().unwrap_or(lever);
        if lever::scope(lever) == Scope::Workload && !workloads.iter().any(|w| w.name() == family) {
            let names = suggest::list(workloads.iter().map(|w| w.name()));
            return Err(q
                .places
                .refuse(&place, format!("Lever `{lever}` has nothing to act on: this study runs {names}")));
        }
    }
    Ok(())
}
