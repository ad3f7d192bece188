//! `debian:` kernels: which package is meant, in which suite it is, and how it gets into the cache.
//!
//! Invariant: the machine's own suites come first; others are asked only for what those do not have. What cannot be refreshed is used as it is known.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::apt::{Apt, Lists, Suite};
use super::catalog::{self, Package};
use super::entry::{Entry, Origin};
use super::error::{KernelError, doing};
use super::spec::DEFAULT_FLAVOUR;
use super::store::{Arrival, Guard, Store};
use super::{deb, hash, sources, version};

/// Age up to which a package list is taken as it is.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Age up to which it is, even if it lacks what is asked for.
const RECENT: Duration = Duration::from_secs(600);

struct Question<'a> {
    store: &'a Store,
    version: &'a str,
    flavour: &'a str,
    note: &'a dyn Fn(&str),
}

pub(super) fn resolve(
    store: &Store,
    wanted: &str,
    flavour: Option<&str>,
    note: &dyn Fn(&str),
) -> Result<Entry, KernelError> {
    let question = Question { store, version: wanted, flavour: flavour.unwrap_or(DEFAULT_FLAVOUR), note };
    // An exact version that is here cannot be bettered by asking.
    if version::series(wanted).as_deref() != Some(wanted)
        && let Some(entry) = question.cached()?
    {
        return Ok(entry);
    }
    let apt = match Apt::open(&store.dir().join("apt")) {
        Ok(apt) => apt,
        Err(error @ (KernelError::NoApt(_) | KernelError::NoDebianSource(_) | KernelError::Update(_))) => {
            return question.fall_back(error);
        }
        Err(error) => return Err(error),
    };
    if let Some(lists) = apt.fresh(apt.own(), DAY)
        && let Some((_, package)) = question.pick(&lists)
        && let Some(entry) = question.stored(package)?
    {
        return Ok(entry);
    }
    let guard = store.lock(note)?;
    question.fetch(&apt, &guard)
}

impl Question<'_> {
    fn note(&self, text: &str) {
        (self.note)(text);
    }

    /// The newest kernel in the cache that satisfies the question.
    fn cached(&self) -> Result<Option<Entry>, KernelError> {
        let fits = |e: &Entry| {
            e.debian.as_ref().is_some_and(|o| o.flavour == self.flavour && version::satisfies(&o.version, self.version))
        };
        let key = |e: &Entry| e.debian.as_ref().map(|o| o.version.clone()).unwrap_or_default();
        Ok(self.store.list()?.into_iter().filter(fits).max_by(|a, b| version::compare(&key(a), &key(b))))
    }

    /// The entry of exactly this package.
    fn stored(&self, package: &Package) -> Result<Option<Entry>, KernelError> {
        let name = describe(package);
        Ok(self.store.list()?.into_iter().find(|e| e.debian.is_some() && e.package.as_deref() == Some(&name)))
    }

    /// What is in the cache, if asking failed.
    fn fall_back(&self, error: KernelError) -> Result<Entry, KernelError> {
        match self.cached()? {
            Some(entry) => {
                self.note(&format!("Using {} from the cache; there may be a newer one: {error}", entry.release));
                Ok(entry)
            }
            None => Err(error),
        }
    }

    fn pick<'a>(&self, lists: &'a Lists) -> Option<(&'a Suite, &'a Package)> {
        let best = lists
            .debian()
            .filter_map(|suite| Some((suite, catalog::best(&suite.listing.packages, self.version, self.flavour)?)));
        best.max_by(|a, b| version::compare(&a.1.version, &b.1.version))
    }

    fn fetch(&self, apt: &Apt, guard: &Guard) -> Result<Entry, KernelError> {
        let mut age = DAY;
        loop {
            let (lists, failure) = match self.search(apt, age)? {
                Search::Found(lists, failure) => (lists, failure),
                Search::Nowhere(error) => return self.fall_back(error),
            };
            let (suite, package) = self.pick(&lists).expect("a search that found something");
            if let Some(reason) = failure {
                self.note(&format!("Using the package lists as last read: {reason}"));
            }
            if let Some(entry) = self.stored(package)? {
                return Ok(entry);
            }
            match self.download(apt, guard, suite, package) {
                // The archive may have replaced the package since its list was read.
                Err(KernelError::Download { .. }) if !age.is_zero() => age = Duration::ZERO,
                Err(error @ KernelError::Download { .. }) => return self.fall_back(error),
                other => return other,
            }
        }
    }

    /// Find lists that have the kernel: the machine's own, then others; known ones, then asked anew.
    fn search(&self, apt: &Apt, max_age: Duration) -> Result<Search, KernelError> {
        let mut failure = None;
        let own = self.ask(apt, apt.own(), max_age, "Debian's package lists", &mut failure)?;
        if self.pick(&own).is_some() {
            return Ok(Search::Found(own, failure));
        }
        let origin: Vec<_> = own.debian().map(|s| s.source.clone()).collect();
        if origin.is_empty() {
            return Ok(Search::Nowhere(match failure {
                Some(reason) => KernelError::Update(reason),
                None => KernelError::NoDebianSource("none of its sources is signed as Debian's".to_owned()),
            }));
        }
        let have: BTreeSet<String> =
            own.suites.iter().flat_map(|s| [s.source.suite.clone(), s.listing.codename.clone()]).collect();
        let other = self.ask(
            apt,
            &sources::derive(&origin, &have),
            max_age,
            "the package lists of other Debian releases",
            &mut failure,
        )?;
        if self.pick(&other).is_some() {
            return Ok(Search::Found(other, failure));
        }
        let all = own.debian().chain(other.debian()).map(|s| &s.listing.packages[..]);
        let available = catalog::series(all, self.flavour);
        Ok(Search::Nowhere(match failure {
            Some(reason) => KernelError::Update(reason),
            None => KernelError::UnknownSeries {
                wanted: self.version.to_owned(),
                flavour: self.flavour.to_owned(),
                available: available.join(", "),
            },
        }))
    }

    fn ask(
        &self,
        apt: &Apt,
        sources: &[sources::Source],
        max_age: Duration,
        what: &str,
        failure: &mut Option<String>,
    ) -> Result<Lists, KernelError> {
        let mut lists = match apt.fresh(sources, max_age) {
            Some(lists) => lists,
            None => {
                self.note(&format!("Reading {what}"));
                apt.lists(sources, max_age)?
            }
        };
        if self.pick(&lists).is_none() && !lists.asked && apt.fresh(sources, RECENT).is_none() {
            self.note(&format!("Reading {what} anew"));
            lists = apt.lists(sources, RECENT)?;
        }
        if lists.asked && !lists.absent.is_empty() {
            self.note(&format!("Not in the archive, left out: {}", lists.absent.join(", ")));
        }
        if let Some(reason) = lists.failure.take() {
            *failure = Some(reason);
        }
        Ok(lists)
    }

    fn download(&self, apt: &Apt, guard: &Guard, suite: &Suite, package: &Package) -> Result<Entry, KernelError> {
        let parts = catalog::Parts::of(&suite.listing.packages, package);
        let size: u64 = parts.packages.iter().map(|p| p.size).sum();
        self.store.needs(size + parts.packages.iter().map(|p| p.installed).sum::<u64>())?;
        if parts.without_config {
            self.note(&format!("The archive no longer has the configuration of {}", package.name));
        }
        let megabytes = size.div_ceil(1_000_000);
        self.note(&format!(
            "Downloading {} {} ({megabytes} MB) from {}",
            package.name, package.version, suite.source.suite
        ));
        let packages = self.store.stage(guard)?;
        let files = apt.download(suite, &parts.packages, packages.path())?;
        self.note(&format!("Unpacking {}", package.name));
        let staged = self.store.stage(guard)?;
        unpack(&files, staged.path())?;
        let debian = Origin { version: package.version.clone(), flavour: self.flavour.to_owned() };
        let arrival = Arrival {
            spec: format!("debian:{}/{}", package.version, self.flavour),
            from: format!("Debian {}", suite.source.suite),
            package: Some(describe(package)),
            debian: Some(debian),
            source_sha256: fingerprint(&files)?,
        };
        self.store.commit(guard, staged, arrival)
    }
}

enum Search {
    /// Lists that have it, and why they may be out of date.
    Found(Lists, Option<String>),
    Nowhere(KernelError),
}

fn describe(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

/// Unpack all packages of one kernel into one folder and see that it is whole.
pub(super) fn unpack(files: &[std::path::PathBuf], into: &Path) -> Result<Vec<deb::Unpacked>, KernelError> {
    let found = files.iter().map(|f| deb::unpack(f, into)).collect::<Result<Vec<_>, _>>()?;
    if !found.iter().any(|f| f.image) {
        let have: Vec<&str> = found.iter().map(|f| f.control.package.as_str()).collect();
        let needed: BTreeSet<&str> = found.iter().flat_map(|f| &f.control.depends).map(String::as_str).collect();
        let lacking: Vec<&str> = needed.into_iter().filter(|n| !have.contains(n)).collect();
        let reason = if lacking.is_empty() {
            format!("it holds no kernel image (`{}`); the package wanted is named linux-image-…", have.join("`, `"))
        } else {
            format!("its kernel image is in packages of its own: give `{}` too, separated by `:`", lacking.join("`, `"))
        };
        return Err(KernelError::Deb { path: files[0].clone(), reason });
    }
    if !found.iter().any(|f| f.modules > 0) {
        // A kernel may really have none, but not one that names a package of them.
        let have: Vec<&str> = found.iter().map(|f| f.control.package.as_str()).collect();
        if let Some(name) = found
            .iter()
            .flat_map(|f| &f.control.depends)
            .find(|d| d.starts_with("linux-modules-") && !have.contains(&d.as_str()))
        {
            return Err(KernelError::Deb {
                path: files[0].clone(),
                reason: format!("its modules are in a package of their own: give `{name}` too, separated by `:`"),
            });
        }
    }
    Ok(found)
}

/// Hash of packages, whatever their order.
pub(super) fn fingerprint(files: &[std::path::PathBuf]) -> Result<String, KernelError> {
    let mut hashes =
        files.iter().map(|f| hash::of_file(f).map_err(doing("Cannot read", f))).collect::<Result<Vec<_>, _>>()?;
    hashes.sort();
    Ok(hash::of_bytes(hashes.join(" ").as_bytes()))
}
