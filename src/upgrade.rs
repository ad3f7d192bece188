//! The question "should I upgrade?" on this machine: its kernel, the newest one that it could get, and workloads in place of its servers.

use std::cmp::Ordering;
use std::path::Path;

use bigiron_archive::{Distribution, KernelError, PresentKernel, Store};
use bigiron_model::version;
use bigiron_probe::servers::{self, ServerKind};

/// The workloads of a machine on which no known server runs.
const USUAL: [&str; 2] = ["micro", "dbsim"];
/// The workload that explains what another found.
const EXPLAINS: &str = "micro";

/// The question, filled in.
#[derive(Debug)]
pub struct Upgrade {
    /// The machine's own kernel, as `uname -r` names it.
    pub release: String,
    /// The kernel to compare with: this machine's, or one that stands for it.
    pub from: String,
    /// Whether `from` only stands for the machine's kernel, which cannot be had.
    pub is_stand_in: bool,
    /// The kernel to upgrade to; `None` if nothing newer is to be had.
    pub to: Option<String>,
    /// A still newer kernel in the archive.
    pub also: Option<String>,
    pub servers: Vec<&'static ServerKind>,
    pub workloads: Vec<String>,
}

/// A kernel of the archive: the words that name it exactly, and its version.
type Offer = (String, String);

impl Upgrade {
    /// Fills in the question for the machine whose files are below `root`. `Ok(None)` if the machine's kernel cannot be booted in a guest and its
    /// release has none that could stand for it.
    ///
    /// # Errors
    /// If the archive cannot be asked for newer kernels.
    pub fn of_machine(
        store: &Store,
        root: &Path,
        release: &str,
        note: &dyn Fn(&str),
    ) -> Result<Option<Self>, KernelError> {
        let present = PresentKernel::below(root, release);
        let distribution = present.machine.map_or_else(|| store.distribution(), |(distribution, _)| distribution);
        let Some((from, base)) = baseline(&present) else { return Ok(None) };
        let flavour =
            present.flavour.filter(|f| distribution.flavours().contains(f)).unwrap_or(distribution.default_flavour());
        let [own, all] = store.newest_of(distribution, flavour, note)?;
        let (to, also) = choose(&base, own, all);
        let servers = servers::running(&root.join("proc"));
        let workloads = workloads(&servers);
        let is_stand_in = present.spec.is_none();
        Ok(Some(Self { release: release.to_owned(), from, is_stand_in, to, also, servers, workloads }))
    }
}

/// The words for the kernel to compare with, and its version.
pub fn baseline(present: &PresentKernel) -> Option<(String, String)> {
    match (&present.spec, present.machine) {
        (Some(spec), _) => {
            let upstream = || present.release.split('-').next().unwrap_or_default().to_owned();
            Some((spec.clone(), present.version.clone().unwrap_or_else(upstream)))
        }
        (None, Some((distribution, series))) => Some((in_series(distribution, series), series.to_owned())),
        (None, None) => None,
    }
}

fn in_series(distribution: Distribution, series: &str) -> String {
    format!("{}:{series}", distribution.name())
}

/// The kernel to upgrade to, given the newest of the machine's own suites and of the whole archive, and a still newer one.
fn choose(base: &str, own: Option<Offer>, all: Option<Offer>) -> (Option<String>, Option<String>) {
    let is_newer = |offer: &Offer| match version::series(base).as_deref() == Some(base) {
        // A series stands for all of its versions.
        true => !version::satisfies(&offer.1, base) && version::compare(&offer.1, base) == Ordering::Greater,
        false => version::compare(&offer.1, base) == Ordering::Greater,
    };
    let own = own.filter(is_newer).map(|(spec, _)| spec);
    let all = all.filter(is_newer).map(|(spec, _)| spec);
    match (own, all) {
        (Some(own), Some(all)) if own != all => (Some(own), Some(all)),
        (Some(own), _) => (Some(own), None),
        (None, all) => (all, None),
    }
}

/// The workloads in place of these servers, the one that explains last.
pub fn workloads(servers: &[&ServerKind]) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in servers.iter().flat_map(|server| server.workloads) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => names.extend(USUAL),
        false => names.push(EXPLAINS),
    }
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    fn offer(version: &str) -> Option<Offer> {
        Some((format!("debian:{version}"), version.to_owned()))
    }

    #[test]
    fn the_machines_own_suites_come_first() {
        let chosen = |base: &str, own: &str, all: &str| choose(base, offer(own), offer(all));
        let some = |spec: &str| Some(spec.to_owned());
        assert_eq!(
            chosen("6.1.170-1", "6.12.117-1~deb12u1", "7.2.9-1"),
            (some("debian:6.12.117-1~deb12u1"), some("debian:7.2.9-1"))
        );
        assert_eq!(chosen("6.12.117-1", "6.12.117-1", "7.2.9-1"), (some("debian:7.2.9-1"), None));
        assert_eq!(chosen("7.2.9-1", "6.12.117-1", "7.2.9-1"), (None, None));
        // A series is the newest of its versions.
        assert_eq!(chosen("6.1", "6.1.192-1", "6.1.192-1"), (None, None));
        assert_eq!(chosen("6.1", "6.12.1-1", "6.12.1-1"), (some("debian:6.12.1-1"), None));
    }

    #[test]
    fn every_server_has_workloads_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        let run = |pid: &str, name: &str| {
            std::fs::create_dir_all(dir.path().join(pid)).unwrap();
            std::fs::write(dir.path().join(pid).join("comm"), name).unwrap();
        };
        assert_eq!(workloads(&servers::running(dir.path())), ["micro", "dbsim"]);
        for (pid, name) in
            ["postgres", "mariadbd", "ora_pmon_X", "db2sysc", "mongod", "memcached", "nginx", "smbd"].iter().enumerate()
        {
            run(&pid.to_string(), name);
        }
        let names = workloads(&servers::running(dir.path()));
        assert_eq!(names, ["oltp", "dbsim", "net-clients", "fs-clients", "micro"]);
        assert!(names.iter().all(|name| registry::find(name).is_some()));
    }
}
