//! A trial's kernel in the form that QEMU gets: packed, or unpacked by the host.
//!
//! Invariant: a kernel unpacked by the host that does not reach the agent is started again in its packed form, and that attempt
//! counts.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use super::arm::PreparedArm;
use crate::host::Trial;
use crate::vm::memory_file::MemoryFile;
use crate::vm::qemu;
use crate::vm::unpacked::Unpacked;
use bigiron_archive::Kernel;
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;

/// How the kernel came into memory, in a trial's facts.
const FACT: &str = "vm.kernel";

/// Memory that a kernel needs besides its own and its initramfs.
const SPARE_BYTES: u64 = 64 << 20;

/// How an arm's kernel can be started.
#[derive(Clone)]
pub(super) enum Form {
    /// As it is alone; why.
    Packed(String),
    Unpacked(Arc<Unpacked>),
}

/// An image that boots.
pub(super) struct BootImage {
    pub(super) path: PathBuf,
    /// `None` if it is found for each boot anew: all builds of a study would together take too much memory.
    pub(super) form: Option<Form>,
}

/// For each arm of `plan` the kernel whose modules it loads, and its images; see [`super::VmHost::new`] for the order of `kernels`.
///
/// # Errors
/// A kernel that cannot be read.
pub(super) fn images<'a>(kernels: &'a [Kernel], plan: &Plan) -> anyhow::Result<Vec<(&'a Kernel, Vec<BootImage>)>> {
    let Some(builds) = plan.design.rebuilds.filter(|n| *n > 0) else {
        let image = |(kernel, form): (&'a Kernel, Form)| {
            (kernel, vec![BootImage { path: kernel.image.clone(), form: Some(form) }])
        };
        return Ok(kernels.iter().zip(forms(kernels, plan.clock)?).map(image).collect());
    };
    let image = |kernel: &Kernel| BootImage { path: kernel.image.clone(), form: None };
    let of_arms = kernels.chunks(builds as usize);
    Ok(of_arms.map(|of_arm| (&of_arm[0], of_arm.iter().map(image).collect())).collect())
}

/// The forms of `kernels`; a kernel of several arms is in memory once.
///
/// # Errors
/// A kernel that cannot be read.
fn forms(kernels: &[Kernel], clock: Clock) -> anyhow::Result<Vec<Form>> {
    let mut known: HashMap<&Path, Form> = HashMap::new();
    kernels
        .iter()
        .map(|kernel| {
            if let Some(known) = known.get(kernel.image.as_path()) {
                return Ok(known.clone());
            }
            let form = form(&kernel.image, clock)?;
            known.insert(&kernel.image, form.clone());
            Ok(form)
        })
        .collect()
}

/// The form of one kernel.
fn form(kernel: &Path, clock: Clock) -> anyhow::Result<Form> {
    if !clock.is_exact() {
        return Ok(Form::Packed("unpacks itself".to_owned()));
    }
    let bytes = std::fs::read(kernel).with_context(|| format!("Cannot read the kernel {}", kernel.display()))?;
    Ok(match Unpacked::of(&bytes) {
        Ok(unpacked) => Form::Unpacked(Arc::new(unpacked)),
        Err(why) => Form::Packed(format!("unpacks itself: {why}")),
    })
}

/// A kernel to start.
pub(super) struct Start {
    pub(super) path: PathBuf,
    how: String,
    /// What the path leads to, if it is in memory.
    _file: Option<MemoryFile>,
}

impl Start {
    fn packed(image: &BootImage, how: &str) -> Self {
        Self { path: image.path.clone(), how: how.to_owned(), _file: None }
    }

    /// What a record says of it.
    pub(super) fn fact(&self) -> (String, String) {
        (FACT.to_owned(), self.how.clone())
    }
}

/// The starts that a trial tries, each if the previous one did not reach the agent.
///
/// # Errors
/// No memory.
pub(super) fn starts(arm: &PreparedArm, trial: &Trial<'_>) -> io::Result<Vec<Start>> {
    let image = arm.boot_image(trial.plan, trial.slot);
    let own;
    let form = match &image.form {
        Some(form) => form,
        None => {
            own = form(&image.path, trial.plan.clock).map_err(io::Error::other)?;
            &own
        }
    };
    let unpacked = match form {
        Form::Packed(how) => return Ok(vec![Start::packed(image, how)]),
        Form::Unpacked(unpacked) => unpacked,
    };
    let needed = unpacked.end() + arm.archive.len() as u64 + SPARE_BYTES;
    if trial.plan.machine.memory_bytes < needed {
        return Ok(vec![Start::packed(image, "unpacks itself: the guest has too little memory")]);
    }
    let cmdline = qemu::cmdline(trial.plan.clock, &arm.cmdline);
    let drawn = (!cmdline.split_whitespace().any(|word| word == "nokaslr")).then_some(trial.slot.boot_seed);
    let file = MemoryFile::new("bigiron-kernel", &unpacked.image(drawn))?;
    Ok(vec![
        Start { path: file.path().into(), how: "unpacked by the host".to_owned(), _file: Some(file) },
        Start::packed(image, "unpacks itself: unpacked by the host it did not start"),
    ])
}
