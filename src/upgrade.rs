//! The question "should I upgrade?" on this machine: its kernel, the newest kernel available to it, and the workloads that stand for its servers.

use std::cmp::Ordering;
use std::path::Path;

use bigiron_archive::{KernelError, PresentKernel, Store};
use bigiron_model::version;
use bigiron_probe::servers::{self, ServerKind};

/// The workloads of a machine on which no known server runs.
const DEFAULT: [&str; 2] = ["micro", "dbsim"];
/// The workload that explains the results of the others.
const EXPLAINS: &str = "micro";

/// The question, filled in.
#[derive(Debug)]
pub struct Upgrade {
    /// The machine's own kernel, as `uname -r` names it.
    pub release: String,
    /// The baseline: this machine's kernel or, if that is not available, a stand-in.
    pub from: String,
    /// Whether `from` is a stand-in.
    pub is_stand_in: bool,
    /// The kernel to upgrade to; `None` if no newer kernel is available.
    pub to: Option<String>,
    /// A still newer kernel in the archive.
    pub also: Option<String>,
    pub servers: Vec<&'static ServerKind>,
    pub workloads: Vec<String>,
}

/// A kernel of the archive: its exact specification and its version.
type Offer = (String, String);

impl Upgrade {
    /// Fills in the question for the machine whose files are below `root`. `to` is the kernel to upgrade to, if the user named one; the archive is
    /// read only without it. `Ok(None)` if a guest cannot boot the machine's kernel and there is no stand-in.
    ///
    /// # Errors
    /// If the archive cannot be read.
    pub fn of_machine(
        store: &Store,
        root: &Path,
        release: &str,
        to: Option<&str>,
        note: &dyn Fn(&str),
    ) -> Result<Option<Self>, KernelError> {
        let present = PresentKernel::below(root, release);
        let Some((from, base)) = baseline(&present) else { return Ok(None) };
        let (to, also) = match to {
            Some(to) => (Some(to.to_owned()), None),
            None => {
                let distribution = present.machine.map_or_else(|| store.distribution(), |(own, _)| own);
                let flavour = present.flavour.filter(|f| distribution.flavours().contains(f));
                let [own, all] =
                    store.newest_of(distribution, flavour.unwrap_or(distribution.default_flavour()), note)?;
                choose(&base, own, all)
            }
        };
        let servers = servers::running(&root.join("proc"));
        let workloads = workloads(&servers);
        let is_stand_in = present.spec.is_none();
        Ok(Some(Self { release: release.to_owned(), from, is_stand_in, to, also, servers, workloads }))
    }
}

/// The specification of the baseline, and its version.
pub fn baseline(present: &PresentKernel) -> Option<(String, String)> {
    match (&present.spec, present.machine) {
        (Some(spec), _) => {
            let upstream = || present.release.split('-').next().unwrap_or_default().to_owned();
            Some((spec.clone(), present.version.clone().unwrap_or_else(upstream)))
        }
        (None, Some((distribution, series))) => Some((format!("{}:{series}", distribution.name()), series.to_owned())),
        (None, None) => None,
    }
}

/// The kernel to upgrade to and, if there is one, a still newer kernel. `own` is the newest in the machine's own suites, `all` the newest in the
/// whole archive.
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

/// The workloads that stand for these servers, the one that explains last.
pub fn workloads(servers: &[&ServerKind]) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in servers.iter().flat_map(|server| server.workloads) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => names.extend(DEFAULT),
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
        assert_eq!(names, ["oltp", "dbsim", "net-clients", "web", "files", "fs-clients", "micro"]);
        assert!(names.iter().all(|name| registry::find(name).is_some()));
    }
}
