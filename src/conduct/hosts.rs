//! Where a study's trials run: the arms' kernels, the host, and the number of parallel trials.

use anyhow::{Context as _, bail};
use sha2::{Digest, Sha256};

use bigiron_archive::Kernel;
use bigiron_lab::host::Host;
use bigiron_lab::host::local;
use bigiron_lab::host::local::LocalHost;
use bigiron_lab::host::machines::{MachinesHost, OneOfMachines};
use bigiron_lab::host::sim::{Script, SimHost};
use bigiron_lab::host::ssh::{SshHost, Target};
use bigiron_lab::host::vm::VmHost;
use bigiron_lab::host::vm::gate::Gate;
use bigiron_lab::vm::agent;
use bigiron_lab::vm::qemu::Accelerator;
use bigiron_lab::vm::{lockstep, moves};
use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::identity::Identity;
use bigiron_model::plan::{Plan, RUNNING};
use bigiron_model::refusal::Refusal;
use bigiron_model::size;
use bigiron_model::store::{Folder, SlotTally};

use super::environment::Environment;
use super::foundations;
use crate::registry::WORKLOADS;
use crate::study::resolved::{Capabilities as _, ResolvedQuestion};

/// Share of the machine's memory that all guests together may use, unless `--jobs` overrides it.
const MEMORY_SHARE: f64 = 0.8;

/// The number of trials that may run in parallel.
pub(super) fn jobs(resolved: &ResolvedQuestion, asked: Option<usize>, here: &Environment<'_>) -> anyhow::Result<usize> {
    let (memory, host) = (resolved.machine.memory_bytes, here.memory_bytes());
    let Some(jobs) = asked else {
        let fit = (host as f64 * MEMORY_SHARE / memory as f64) as usize;
        let each = resolved.clock.host_cpus(resolved.machine.cpus);
        return Ok(fit.min((here.cpus() / each) as usize).max(1));
    };
    if jobs == 0 {
        return Err(Refusal::new("`--jobs` must be 1 or more").into());
    }
    if jobs > 1 && !resolved.clock.is_exact() {
        return Err(Refusal::new(format!(
            "{jobs} parallel trials would disturb each other's times on the clock {}",
            resolved.clock
        ))
        .hint("Only `--clock exact` is independent of other load")
        .into());
    }
    if resolved.machine.host == HostKind::Vm && (jobs as u64).saturating_mul(memory) > host {
        let (each, most) = (size::print_bytes(memory), host / memory);
        return Err(Refusal::new(format!(
            "{jobs} guests of {each} do not fit into this machine's memory; at most {most} fit"
        ))
        .into());
    }
    Ok(jobs)
}

/// The kernels of a plan.
pub(super) fn identities(plan: &Plan) -> Vec<Identity> {
    plan.arms.iter().map(|arm| arm.kernel.clone()).collect()
}

/// Kernels that were chosen earlier, from the cache.
pub(super) fn kept(
    resolved: &ResolvedQuestion,
    identities: &[Identity],
    environment: &Environment<'_>,
) -> anyhow::Result<Vec<Kernel>> {
    match resolved.machine.host {
        HostKind::Vm => identities.iter().map(|identity| environment.kept_kernel(identity)).collect(),
        HostKind::Ssh => identities
            .iter()
            .filter(|identity| identity.spec != RUNNING)
            .map(|identity| environment.kept_kernel(identity))
            .collect(),
        HostKind::Local | HostKind::Sim => Ok(Vec::new()),
    }
}

/// The arms' kernels; simulated kernels have only a name.
pub fn kernels(
    resolved: &ResolvedQuestion,
    environment: &Environment<'_>,
) -> anyhow::Result<(Vec<Identity>, Vec<Kernel>)> {
    match resolved.machine.host {
        HostKind::Sim => return Ok((resolved.arms.iter().map(|arm| simulated(&arm.kernel)).collect(), Vec::new())),
        HostKind::Local => return Ok((resolved.arms.iter().map(|_| local::identity()).collect(), Vec::new())),
        HostKind::Ssh => return on_target(resolved, environment),
        HostKind::Vm => {}
    }
    let mut kernels: Vec<Kernel> = Vec::new();
    for (i, arm) in resolved.arms.iter().enumerate() {
        let same = resolved.arms[..i].iter().position(|other| other.kernel == arm.kernel);
        kernels.push(match same {
            Some(other) => kernels[other].clone(),
            None => environment.kernel(&arm.kernel).map_err(|e| match e.downcast::<Refusal>() {
                Ok(refusal) => refusal.at(resolved.places.of(&format!("arms.{i}"))).into(),
                Err(other) => other,
            })?,
        });
    }
    Ok((kernels.iter().map(|k| k.identity.clone()).collect(), kernels))
}

/// The arms' kernels on a target: its own, and those that are brought there.
fn on_target(
    resolved: &ResolvedQuestion,
    environment: &Environment<'_>,
) -> anyhow::Result<(Vec<Identity>, Vec<Kernel>)> {
    let targets = environment.targets()?;
    let (mut identities, mut kernels) = (Vec::new(), Vec::new());
    for (i, arm) in resolved.arms.iter().enumerate() {
        if arm.kernel == RUNNING {
            identities.push(own_kernel(resolved.boots(), targets)?);
            continue;
        }
        let kernel = environment.kernel(&arm.kernel).map_err(|e| match e.downcast::<Refusal>() {
            Ok(refusal) => refusal.at(resolved.places.of(&format!("arms.{i}"))).into(),
            Err(other) => other,
        })?;
        identities.push(kernel.identity.clone());
        kernels.push(kernel);
    }
    Ok((identities, kernels))
}

/// Refuses to boot a machine that has two names, and warns of one.
pub(super) fn check_distinct(resolved: &ResolvedQuestion, environment: &Environment<'_>) -> anyhow::Result<()> {
    let targets = environment.targets()?;
    for (i, target) in targets.iter().enumerate() {
        let Some(other) = targets[..i].iter().find(|other| other.look.boot_id == target.look.boot_id) else { continue };
        let same = format!("`{}` and `{}` are the same machine", other.look.name, target.look.name);
        if resolved.boots() {
            return Err(Refusal::new(same).hint("Name each machine once").into());
        }
        environment.observer().warn(&format!("{same}: their trials run at the same time and disturb each other"));
    }
    Ok(())
}

/// The targets' own kernel, which is the same on all; with its image, if it is to be booted.
///
/// # Errors
/// Two targets run different kernels, or one does not have its image.
pub(super) fn own_kernel(boots: bool, targets: &[Target]) -> anyhow::Result<Identity> {
    let first = targets.first().context("The study's machine has no name")?;
    let own = own_kernel_of(boots, first)?;
    for other in &targets[1..] {
        let kernel = own_kernel_of(boots, other)?;
        if kernel != own {
            return Err(Refusal::new(format!(
                "The arm `running` would be another kernel on each machine: `{}` runs {} {}, `{}` runs {} {}",
                first.look.name,
                first.look.release,
                first.look.version,
                other.look.name,
                other.look.release,
                other.look.version
            ))
            .hint("Name a kernel that all of them boot, such as `debian:6.12`, or machines that run the same one")
            .into());
        }
    }
    Ok(own)
}

fn own_kernel_of(boots: bool, target: &Target) -> anyhow::Result<Identity> {
    if !boots {
        return Ok(target.look.running.clone());
    }
    target.look.image.clone().ok_or_else(|| {
        Refusal::new(format!(
            "`{}` cannot boot its own kernel {} again: its image and initramfs are not in /boot, or not readable",
            target.look.name, target.look.release
        ))
        .into()
    })
}

fn simulated(text: &str) -> Identity {
    Identity {
        spec: text.to_owned(),
        release: format!("{}-simulated", text.rsplit(':').next().unwrap_or(text)),
        package: None,
        image_sha256: Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect(),
        config_sha256: None,
    }
}

/// The host on which the trials of a plan run.
pub(super) fn host<'e>(
    folder: &Folder,
    kernels: &[Kernel],
    environment: &'e Environment<'_>,
    script: Option<&Script>,
) -> anyhow::Result<Box<dyn Host + 'e>> {
    let plan = folder.plan();
    if plan.machine.host == HostKind::Sim {
        return Ok(Box::new(SimHost::new(script.cloned().unwrap_or_default())));
    }
    if plan.machine.host == HostKind::Local {
        return Ok(Box::new(LocalHost::new(WORKLOADS, plan)?));
    }
    if plan.machine.host == HostKind::Ssh {
        return on_targets(folder, kernels, environment);
    }
    let host = vm_host(plan, kernels, environment)?;
    if let Some(why) = host.out_of_step() {
        environment.observer().warn(&format!(
            "QEMU's threads cannot run in lockstep: {why}; repeated results may differ by a few nanoseconds"
        ));
    }
    Ok(Box::new(host))
}

/// The targets on which the trials of a plan run. Before the first trial each must be usable; later, one that is not only loses its own pairs.
fn on_targets<'e>(
    folder: &Folder,
    kernels: &[Kernel],
    environment: &'e Environment<'_>,
) -> anyhow::Result<Box<dyn Host + 'e>> {
    let plan = folder.plan();
    let records = folder.records()?.records;
    let missing = SlotTally::of(plan, &records).missing();
    let kernels = brought(plan, kernels);
    let targets = environment.targets()?;
    let open = |(machine, target): (u32, &'e Target)| -> anyhow::Result<Box<dyn Host + 'e>> {
        let left = missing.iter().filter(|(slot, _)| plan.slots[*slot as usize].machine == machine).count() as u32;
        let gate = if left > 0 && kernels.iter().any(Option::is_some) { environment.gate()? } else { None };
        let host = on_one(plan, &kernels, gate, left, environment, target)?;
        if left > 0 && !records.is_empty() {
            foundations::check(folder, &host)?;
        }
        Ok(Box::new(host))
    };
    if plan.machine.members.is_empty() {
        return open((0, &targets[0]));
    }
    let mut machines = Vec::new();
    for ((number, target), machine) in (0..).zip(targets).zip(plan.machine.each()) {
        let host = match open((number, target)) {
            Err(why) if records.is_empty() => return Err(why),
            other => other.map_err(|why| format!("{why:#}")),
        };
        let plan = Plan { machine, ..plan.clone() };
        machines.push(OneOfMachines { host, plan });
    }
    Ok(Box::new(MachinesHost { machines }))
}

/// The kernel of each arm; `None` if the arm runs the target's own kernel.
pub(super) fn brought(plan: &Plan, kernels: &[Kernel]) -> Vec<Option<Kernel>> {
    let mut kernels = kernels.iter().cloned();
    plan.arms.iter().map(|arm| if arm.kernel.spec == RUNNING { None } else { kernels.next() }).collect()
}

pub(super) fn on_one<'e>(
    plan: &Plan,
    kernels: &[Option<Kernel>],
    gate: Option<Gate>,
    left: u32,
    environment: &'e Environment<'_>,
    target: &'e Target,
) -> anyhow::Result<SshHost<'e>> {
    let observer = environment.observer();
    let note = Box::new(move |text: &str| observer.note(text));
    SshHost::new(plan, kernels.to_vec(), gate, left, environment.no_way_back(), target, note)
}

/// The host `vm` for a plan.
pub fn vm_host(plan: &Plan, kernels: &[Kernel], environment: &Environment<'_>) -> anyhow::Result<VmHost> {
    let qemu = environment.qemu()?.clone();
    let accelerator = match plan.clock {
        Clock::Wall => match environment.kvm_report() {
            Ok(kvm) => kvm.accelerator(),
            Err(why) => bail!("This study was started on the clock `wall`, and KVM no longer works here: {why}"),
        },
        Clock::Exact | Clock::ExactParallel | Clock::Exact1 => Accelerator::Tcg,
        // The CPU is emulated in this case.
        Clock::None if environment.kvm_report().is_ok() => Accelerator::Kvm,
        Clock::None => Accelerator::Tcg,
    };
    if plan.clock.charges_moves() {
        moves::try_out(&qemu).map_err(|why| anyhow::anyhow!(moves::refusal(&why)))?;
    }
    if plan.clock == Clock::ExactParallel {
        lockstep::try_parallel(&qemu).map_err(|why| anyhow::anyhow!(lockstep::refusal(&why)))?;
    }
    // All arms alike, so that they differ in nothing else.
    let mut encrypts = false;
    for arm in &plan.arms {
        encrypts |= WORKLOADS.of_arm(plan, arm).map_err(anyhow::Error::msg)?.iter().any(|w| w.encrypts());
    }
    let agent = if encrypts { agent::whole() } else { agent::executable() };
    let agent = agent.context("Cannot read the agent in this executable")?;
    VmHost::new(WORKLOADS, plan, kernels, environment.cache(), qemu, accelerator, &agent)
}
