//! The images of a study of rebuilt kernels: linked before its plan is made, and found again, or linked again, when it is resumed.
//!
//! Invariant: a study boots only images whose hashes are in its plan.

use std::sync::atomic::AtomicBool;

use sha2::{Digest as _, Sha256};

use bigiron_archive::spec::KernelSpec;
use bigiron_archive::{Kernel, Store};
use bigiron_model::build::Build;
use bigiron_model::host::HostKind;
use bigiron_model::identity::Identity;
use bigiron_model::plan::Plan;
use bigiron_model::refusal::Refusal;

use super::environment::Environment;
use super::{hosts, inputs};
use crate::rebuild::{self, Relinker};
use crate::study::resolved::ResolvedQuestion;
use crate::study::schedule;

/// Refuses trees that cannot be linked again, before anything is copied or linked.
pub(super) fn check(resolved: &ResolvedQuestion) -> Result<(), Refusal> {
    if resolved.rebuilds.is_none() || resolved.machine.host != HostKind::Vm {
        return Ok(());
    }
    for (i, arm) in resolved.arms.iter().enumerate() {
        if let Ok(KernelSpec::BuildTree(dir)) = KernelSpec::parse(&arm.kernel) {
            rebuild::check(&dir).map_err(|refusal| refusal.at(resolved.places.of(&format!("arms.{i}"))))?;
        }
    }
    Ok(())
}

/// Links the builds of a new plan's arms and puts them into it; `kernels` are the arms', unless they are simulated. Returns what its slots boot.
pub(super) fn link(
    resolved: &ResolvedQuestion,
    plan: &mut Plan,
    kernels: &[Kernel],
    environment: &Environment<'_>,
    cancel: &AtomicBool,
) -> anyhow::Result<Vec<Kernel>> {
    let layouts = schedule::layouts(plan.design.seed, plan.design.rebuilds.unwrap_or(0), plan.arms.len());
    if plan.machine.host != HostKind::Vm {
        let hash = |text: String| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (arm, layouts) in plan.arms.iter_mut().zip(layouts) {
            let of = |layout| Build { layout, image_sha256: hash(format!("{} {layout}", arm.kernel.spec)) };
            arm.builds = layouts.into_iter().map(of).collect();
        }
        return hosts::kept(resolved, &hosts::identities(plan), environment);
    }
    environment.observer().note(&format!("Layouts are drawn from seed {}", plan.design.seed));
    let store = Store::open()?;
    let mut all = Vec::new();
    for ((arm, kernel), layouts) in plan.arms.iter_mut().zip(kernels).zip(layouts) {
        let images = images(&store, kernel, &layouts, environment, cancel)?;
        let build =
            |(layout, image): (u64, &Kernel)| Build { layout, image_sha256: image.identity.image_sha256.clone() };
        arm.builds = layouts.into_iter().zip(&images).map(build).collect();
        all.extend(images);
    }
    Ok(all)
}

/// The kernels that the slots of a plan boot: of each arm its own, or all of its builds.
pub(super) fn kept(
    resolved: &ResolvedQuestion,
    plan: &Plan,
    environment: &Environment<'_>,
    cancel: &AtomicBool,
) -> anyhow::Result<Vec<Kernel>> {
    if plan.design.rebuilds.is_none() || plan.machine.host != HostKind::Vm {
        return hosts::kept(resolved, &hosts::identities(plan), environment);
    }
    let store = Store::open()?;
    let mut all = Vec::new();
    for arm in &plan.arms {
        let missing = arm.builds.iter().any(|build| store.get(&image_of(&arm.kernel, build)).is_err());
        if missing {
            let kernel = environment.kept_kernel(&arm.kernel)?;
            let layouts: Vec<u64> = arm.builds.iter().map(|build| build.layout).collect();
            for (build, image) in arm.builds.iter().zip(images(&store, &kernel, &layouts, environment, cancel)?) {
                inputs::check_build(&arm.kernel, build, &image.identity)?;
            }
        }
        for build in &arm.builds {
            all.push(environment.kept_kernel(&image_of(&arm.kernel, build))?);
        }
    }
    Ok(all)
}

/// The identity of an arm's build.
fn image_of(kernel: &Identity, build: &Build) -> Identity {
    Identity { image_sha256: build.image_sha256.clone(), ..kernel.clone() }
}

fn images(
    store: &Store,
    kernel: &Kernel,
    layouts: &[u64],
    environment: &Environment<'_>,
    cancel: &AtomicBool,
) -> anyhow::Result<Vec<Kernel>> {
    let KernelSpec::BuildTree(dir) = KernelSpec::parse(&kernel.identity.spec)? else {
        let message =
            format!("`{}` is no longer a build tree, so its kernel cannot be linked again", kernel.identity.spec);
        return Err(Refusal::new(message).into());
    };
    let note = |text: &str| environment.observer().note(text);
    Relinker { store, note: &note, cancel }.images(kernel, &dir, layouts)
}
