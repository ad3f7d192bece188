//! What this machine offers to a study: QEMU, KVM, CPUs, memory, the cache. Each is checked once, and only if it matters.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, anyhow};

use bigiron_archive::spec::KernelSpec;
use bigiron_archive::store::Store;
use bigiron_archive::{Kernel, KernelError};
use bigiron_lab::host::local;
use bigiron_lab::host::ssh::Target;
use bigiron_lab::host::vm::gate::Gate;
use bigiron_lab::lever;
use bigiron_lab::lever::Scope;
use bigiron_lab::lever::disks::Disks;
use bigiron_lab::lever::site::Site;
use bigiron_lab::target::messages::{LeverAnswer, LeverQuery};
use bigiron_lab::vm::probe;
use bigiron_lab::vm::probe::KvmStatus;
use bigiron_lab::vm::qemu::{Accelerator, Qemu, QemuError};
use bigiron_model::host::HostKind;
use bigiron_model::identity::Identity;
use bigiron_model::plan::Member;
use bigiron_model::provenance::Provenance;
use bigiron_model::qemu::QemuSource;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;
use bigiron_sys::network::TrialLink;
use bigiron_sys::this_machine;

use super::Observer;
use crate::study::resolved::Capabilities;

/// This machine.
pub struct Environment<'a> {
    pub store: Store,
    qemu_source: QemuSource,
    qemu: OnceCell<Result<Qemu, String>>,
    kvm: OnceCell<Result<KvmStatus, String>>,
    /// The study's kernels, as typed; the first is booted to test KVM. If there is none, the newest kernel in the cache is.
    kernels: Vec<String>,
    /// The existing folder closest to the study's future folder.
    place: PathBuf,
    /// Created when a lever needs it.
    link: TrialLink,
    observer: &'a dyn Observer,
    /// The machines on which trials run, if they are others.
    targets: Vec<Target>,
    no_way_back: bool,
    no_vm_gate: bool,
}

impl<'a> Environment<'a> {
    /// The first of `kernels` is booted, if necessary, to test whether KVM works.
    pub fn new(kernels: Vec<String>, observer: &'a dyn Observer) -> Result<Self, KernelError> {
        let place = PathBuf::from(".");
        let (store, link) = (Store::open()?, TrialLink::lazy());
        Ok(Environment {
            store,
            qemu_source: QemuSource::default(),
            qemu: OnceCell::new(),
            kvm: OnceCell::new(),
            kernels,
            place,
            link,
            observer,
            targets: Vec::new(),
            no_way_back: false,
            no_vm_gate: false,
        })
    }

    /// The same for a study with a given folder, whose guests run in this QEMU.
    pub fn at(mut self, out: Option<&Path>, qemu: Option<QemuSource>) -> Self {
        self.qemu_source = qemu.unwrap_or_default();
        let out = out.and_then(|out| std::path::absolute(out).ok());
        if let Some(place) = out.as_deref().and_then(|out| out.ancestors().find(|dir| dir.is_dir())) {
            self.place = place.to_owned();
        }
        self
    }

    /// The same for a study on the targets of these names.
    pub fn on(mut self, targets: &[String], no_way_back: bool, no_vm_gate: bool) -> anyhow::Result<Self> {
        (self.no_way_back, self.no_vm_gate) = (no_way_back, no_vm_gate);
        let observer = self.observer;
        let open = |name: &str| Target::open_for_study(name, &|text| observer.note(text));
        self.targets = thread::scope(|scope| {
            let opening: Vec<_> = targets.iter().map(|name| scope.spawn(|| open(name))).collect();
            opening.into_iter().map(|one| one.join().expect("no panic is caught")).collect::<anyhow::Result<_>>()
        })?;
        Ok(self)
    }

    /// The targets of a study on another machine or several.
    pub fn targets(&self) -> anyhow::Result<&[Target]> {
        anyhow::ensure!(!self.targets.is_empty(), "The study's machine has no name");
        Ok(&self.targets)
    }

    /// Whether the target may be lost.
    pub fn no_way_back(&self) -> bool {
        self.no_way_back
    }

    /// Where kernels are booted before they boot on the target; `None` if the user wants none.
    ///
    /// # Errors
    /// There is no QEMU.
    pub fn gate(&self) -> Result<Option<Gate>, Refusal> {
        if self.no_vm_gate {
            return Ok(None);
        }
        let qemu = self.qemu().map_err(|why| {
            Refusal::new(format!("Each kernel boots in a VM here before it boots on another machine: {}", why.message))
                .hint("Install QEMU (`bigiron doctor` checks it), or add `--no-vm-gate`")
        })?;
        // Known from earlier studies, or not worth its test: the emulated CPU boots a kernel in half a minute.
        let kvm = probe::without_boot(self.cache(), qemu).filter(|kvm| kvm.usable);
        let accelerator = kvm.map_or(Accelerator::Tcg, |kvm| kvm.accelerator());
        Ok(Some(Gate::new(qemu.clone(), accelerator, self.cache())))
    }

    pub fn observer(&self) -> &'a dyn Observer {
        self.observer
    }

    pub fn cache(&self) -> &Path {
        self.store.dir()
    }

    /// Which QEMU runs guests.
    pub fn qemu_source(&self) -> QemuSource {
        self.qemu_source
    }

    /// The QEMU that runs guests, fetched if necessary.
    pub fn qemu(&self) -> Result<&Qemu, Refusal> {
        let find = || Qemu::of(self.qemu_source, &self.store, &|text: &str| self.observer.note(text));
        let found = self.qemu.get_or_init(|| find().map_err(|e: QemuError| e.to_string()));
        found
            .as_ref()
            .map_err(|e| Refusal::new(e.clone()).hint("`bigiron doctor` checks everything that bigiron needs"))
    }

    /// The programs that run the trials of `host`.
    pub fn provenance(&self, host: HostKind) -> anyhow::Result<Provenance> {
        let qemu = if host == HostKind::Vm { Some(self.qemu()?) } else { None };
        let build = qemu.map(|qemu| qemu.build.clone().unwrap_or_default());
        Provenance::here(qemu.map(|qemu| qemu.version.to_string()), build)
            .context("Cannot read this executable's own file")
    }

    /// Whether KVM works, or why not.
    pub fn kvm_report(&self) -> &Result<KvmStatus, String> {
        self.kvm.get_or_init(|| {
            let qemu = self.qemu().map_err(|e| e.to_string())?;
            let kvm = self.probe(qemu).map_err(|e| format!("{e:#}"))?;
            if kvm.usable { Ok(kvm) } else { Err(kvm.reason) }
        })
    }

    /// Whether only a boot could tell whether KVM works, and there is no kernel to boot.
    pub fn kvm_needs_kernel(&self) -> bool {
        let unknown = self.qemu().is_ok_and(|qemu| probe::without_boot(self.cache(), qemu).is_none());
        unknown && self.kernels.is_empty() && self.store.list().is_ok_and(|kernels| kernels.is_empty())
    }

    fn probe(&self, qemu: &Qemu) -> anyhow::Result<KvmStatus> {
        // Most machines without KVM can be recognized without a boot; only the others need a kernel to boot.
        if let Some(known) = probe::without_boot(self.cache(), qemu) {
            return Ok(known);
        }
        let mut images = Vec::new();
        for name in &self.kernels {
            let spec = KernelSpec::parse(name)?;
            let kernel = self.store.resolve(&spec, &|text: &str| self.observer.note(text));
            // Every kernel is found before the slow test boot, so that a study with a missing kernel fails first. Why it is missing, is
            // reported where the study needs it.
            images.push(kernel.map_err(|_| anyhow!("the study's kernel `{name}` is not available"))?.image);
        }
        let image = match images.into_iter().next() {
            Some(image) => image,
            None => {
                let newest = self.store.list()?.pop();
                newest.context("/dev/kvm exists, but the cache has no kernel to test it with")?.dir.join("image")
            }
        };
        self.observer.note("Testing whether a guest boots under KVM; this may take up to half a minute");
        probe::kvm(self.cache(), qemu, &image)
    }

    /// The kernel that `text` names, fetched if necessary.
    pub fn kernel(&self, text: &str) -> anyhow::Result<Kernel> {
        KernelSpec::parse(text)
            .and_then(|spec| self.store.resolve(&spec, &|text: &str| self.observer.note(text)))
            .map_err(refuse)
    }

    /// Whether this machine has a lever's value already.
    pub fn is_set(&self, setting: &Setting) -> bool {
        if !self.targets.is_empty() {
            return self.targets.iter().all(|target| lever_on(target, setting).is_ok_and(|answer| answer.is_set));
        }
        here(&self.place, &self.link).is_set(setting)
    }

    /// The kernel of an existing plan.
    pub fn kept_kernel(&self, identity: &Identity) -> anyhow::Result<Kernel> {
        Ok(self.store.get(identity)?)
    }
}

/// What a target says of a lever.
fn lever_on(target: &Target, setting: &Setting) -> Result<LeverAnswer, String> {
    target.connection.ask("lever", &LeverQuery { setting: setting.clone() }).map_err(|e| e.to_string())
}

/// This machine as a site for levers, with the disks below `folder` and the devices of `link`.
pub fn here<'a>(folder: &Path, link: &'a TrialLink) -> Site<'a> {
    Site { root: Path::new("/"), disks: Disks::below(folder), link }
}

/// A wrongly named kernel, or a file that is not a kernel, is the question's fault; a kernel that is currently unavailable is
/// not.
pub fn refuse(error: KernelError) -> anyhow::Error {
    use KernelError::{
        BuildTree, Deb, Image, Io, Module, NoFile, NoSource, OtherRelease, Running, Spec, UnknownName, UnknownVersion,
    };
    if let Io { path, cause, .. } = &error
        && let Some(cache) = Store::open().ok().filter(|store| path.starts_with(store.dir()))
    {
        if matches!(
            cause.kind(),
            ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::NotADirectory
                | ErrorKind::NotFound
        ) {
            let hint = format!(
                "The cache is `{}`; set BIGIRON_CACHE to a folder that you may write to",
                cache.dir().display()
            );
            return Refusal::new(error.to_string()).hint(hint).into();
        }
        return error.into();
    }
    match error {
        Io { ref cause, .. }
            if matches!(
                cause.kind(),
                ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::IsADirectory | ErrorKind::NotADirectory
            ) =>
        {
            Refusal::new(error.to_string()).into()
        }
        Spec(_)
        | Running(_)
        | UnknownName { .. }
        | NoSource { .. }
        | UnknownVersion { .. }
        | Deb { .. }
        | Image { .. }
        | NoFile { .. }
        | BuildTree { .. }
        | Module { .. }
        | OtherRelease { .. } => Refusal::new(error.to_string()).into(),
        other => other.into(),
    }
}

impl Capabilities for Environment<'_> {
    fn qemu(&self) -> Result<(u32, u32), Refusal> {
        self.qemu().map(|q| (q.version.0, q.version.1))
    }

    fn kvm(&self) -> Result<(), String> {
        self.kvm_report().as_ref().map(drop).map_err(Clone::clone)
    }

    fn may_have_kvm(&self) -> Result<(), String> {
        probe::impossible().map_or(Ok(()), Err)
    }

    fn cpus(&self) -> u32 {
        if let Some(least) = self.targets.iter().map(|target| target.look.cpus).min() {
            return least;
        }
        this_machine::cpus()
    }

    fn members(&self) -> Vec<Member> {
        if self.targets.len() < 2 {
            return Vec::new();
        }
        let member = |target: &Target| Member {
            name: target.look.name.clone(),
            cpus: target.look.cpus,
            memory_bytes: target.look.memory_bytes >> 20 << 20,
            filesystem: target.look.filesystem.clone(),
        };
        self.targets.iter().map(member).collect()
    }

    fn filesystem(&self) -> String {
        if !self.targets.is_empty() {
            let all: BTreeSet<&str> = self.targets.iter().map(|target| target.look.filesystem.as_str()).collect();
            return all.into_iter().collect::<Vec<_>>().join(" and ");
        }
        local::filesystem(&self.place)
    }

    fn can_set(&self, setting: &Setting) -> Result<(), String> {
        if lever::scope(&setting.0) != Scope::Runtime {
            return Ok(());
        }
        if !self.targets.is_empty() {
            let can = |target: &Target| lever_on(target, setting)?.refused.map_or(Ok(()), Err);
            return self.targets.iter().try_for_each(|target| match self.targets.len() {
                1 => can(target),
                _ => can(target).map_err(|why| format!("`{}`: {why}", target.look.name)),
            });
        }
        here(&self.place, &self.link).resolve(setting).map(drop)
    }

    fn memory_bytes(&self) -> u64 {
        if let Some(least) = self.targets.iter().map(|target| target.look.memory_bytes).min() {
            return least;
        }
        this_machine::memory_bytes()
    }
}
