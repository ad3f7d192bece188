//! Kernels of a distribution's archive: finds the packages and their suite, and brings them into the cache.
//!
//! Invariant: the machine's own suites come first; others are asked only for kernels that those lack. Lists that cannot be refreshed are used in
//! their last known state.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::apt::{Apt, Lists, Suite};
use super::catalog::{self, Package};
use super::distribution::Distribution;
use super::entry::{CachedKernel, Origin};
use super::error::{KernelError, doing};
use super::sources::{self, Source};
use super::store::{NewKernel, Store, StoreLock};
use super::{deb, hash};
use bigiron_model::version;

/// Package lists up to this age are used without asking again.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Package lists up to this age are used even if they lack the requested kernel.
const RECENT: Duration = Duration::from_secs(600);

struct PackageQuery<'a> {
    store: &'a Store,
    distribution: Distribution,
    version: &'a str,
    flavour: &'a str,
    note: &'a dyn Fn(&str),
}

pub(super) fn resolve(
    store: &Store,
    distribution: Distribution,
    wanted: &str,
    flavour: Option<&str>,
    note: &dyn Fn(&str),
) -> Result<CachedKernel, KernelError> {
    let flavour = flavour.unwrap_or(distribution.default_flavour());
    let question = PackageQuery { store, distribution, version: wanted, flavour, note };
    // For an exact version in the cache, asking cannot find anything better.
    if version::series(wanted).as_deref() != Some(wanted)
        && let Some(entry) = question.cached()?
    {
        return Ok(entry);
    }
    let apt = match Apt::open(&store.dir().join("apt")) {
        Ok(apt) => apt,
        // A machine without apt or a cache that cannot be written does not prevent the use of a cached kernel.
        Err(error) => return question.fall_back(error),
    };
    if let Some(entry) = question.known(&apt)? {
        return Ok(entry);
    }
    let guard = store.lock(note)?;
    question.fetch(&apt, &guard)
}

/// The available versions of `flavour`, oldest first; of several builds of a kernel, only the newest.
pub(super) struct Offered {
    /// In the suites among the machine's sources.
    pub own: Vec<String>,
    /// In any suite of the archive, or in the cache.
    pub all: Vec<String>,
}

pub(super) fn offered(
    store: &Store,
    distribution: Distribution,
    flavour: &str,
    note: &dyn Fn(&str),
) -> Result<Offered, KernelError> {
    let question = PackageQuery { store, distribution, version: "", flavour, note };
    let cached = store.list()?.into_iter().filter_map(|e| e.origin);
    let cached = cached.filter(|o| o.distribution == distribution && o.flavour == flavour);
    let mut found: Vec<String> = cached.map(|o| o.version).collect();
    let mut of_own = Vec::new();
    match Apt::open(&store.dir().join("apt")).and_then(|apt| Ok((apt.own(distribution)?, apt))) {
        Ok((sources, apt)) => {
            let mut failure = None;
            let own = question.ask(&apt, &sources, DAY, "", &mut failure)?;
            let other = question.ask(&apt, &question.others(&own), DAY, "'s other releases", &mut failure)?;
            let packages = |lists| question.suites(lists).map(|s| &s.listing.packages[..]);
            of_own = catalog::versions(packages(&own), distribution, flavour);
            found.extend(catalog::versions(packages(&own).chain(packages(&other)), distribution, flavour));
            if let Some(reason) = failure {
                question.note(&format!("Using the package lists as last read: {reason}"));
            }
        }
        Err(error) if found.is_empty() => return Err(error),
        Err(error) => question.note(&format!("Only kernels in the cache are available: {error}")),
    }
    Ok(Offered { own: of_own, all: catalog::newest_builds(found, distribution) })
}

/// The distribution whose archive is among the machine's sources; Debian, if none or several are.
pub(super) fn distribution(store: &Store) -> Distribution {
    let apt = Apt::open(&store.dir().join("apt")).ok();
    let has = |distribution: &Distribution| apt.as_ref().is_some_and(|apt| apt.own(*distribution).is_ok());
    Distribution::ALL.into_iter().find(has).unwrap_or_default()
}

/// The newest kernel of the series that is `back` series before the newest.
pub(super) fn newest(store: &Store, back: usize, note: &dyn Fn(&str)) -> Result<CachedKernel, KernelError> {
    let distribution = distribution(store);
    let versions = offered(store, distribution, distribution.default_flavour(), note)?.all;
    let wanted = catalog::newest_of_series(&versions, back).ok_or_else(|| {
        KernelError::Spec("`previous` needs kernels of two series, and the archive has only one".to_owned())
    })?;
    resolve(store, distribution, wanted, None, note)
}

impl PackageQuery<'_> {
    fn note(&self, text: &str) {
        (self.note)(text);
    }

    /// The newest kernel in the cache that satisfies the request.
    fn cached(&self) -> Result<Option<CachedKernel>, KernelError> {
        let fits = |e: &CachedKernel| {
            e.origin.as_ref().is_some_and(|o| {
                o.distribution == self.distribution
                    && o.flavour == self.flavour
                    && version::satisfies(&o.version, self.version)
            })
        };
        let key = |e: &CachedKernel| e.origin.as_ref().map(|o| o.version.clone()).unwrap_or_default();
        Ok(self.store.list()?.into_iter().filter(fits).max_by(|a, b| version::compare(&key(a), &key(b))))
    }

    /// The entry for exactly this package.
    fn stored(&self, package: &Package) -> Result<Option<CachedKernel>, KernelError> {
        let name = describe(package);
        Ok(self.store.list()?.into_iter().find(|e| e.origin.is_some() && e.package.as_deref() == Some(&name)))
    }

    /// The cached kernel, if asking failed.
    fn fall_back(&self, error: KernelError) -> Result<CachedKernel, KernelError> {
        match self.cached()? {
            Some(entry) => {
                self.note(&format!("Using {} from the cache; there may be a newer one: {error}", entry.release));
                Ok(entry)
            }
            None => Err(error),
        }
    }

    /// The suites that the distribution has signed.
    fn suites<'l>(&self, lists: &'l Lists) -> impl Iterator<Item = &'l Suite> + use<'l> {
        lists.of(self.distribution)
    }

    /// Suites of the distribution's archive other than the machine's own.
    fn others(&self, own: &Lists) -> Vec<Source> {
        let origin: Vec<_> = self.suites(own).map(|s| s.source.clone()).collect();
        let have = own.suites.iter().flat_map(|s| [s.source.suite.clone(), s.listing.codename.clone()]).collect();
        sources::derive(&origin, &have)
    }

    fn pick<'a>(&self, lists: &'a Lists) -> Option<(&'a Suite, &'a Package)> {
        let best = self
            .suites(lists)
            .filter_map(|suite| Some((suite, catalog::best(&suite.listing.packages, self.version, self.flavour)?)));
        best.max_by(|a, b| version::compare(&a.1.version, &b.1.version))
    }

    fn fetch(&self, apt: &Apt, guard: &StoreLock) -> Result<CachedKernel, KernelError> {
        let mut age = DAY;
        loop {
            let (lists, failure) = match self.search(apt, age)? {
                QueryResult::Found(lists, failure) => (lists, failure),
                QueryResult::Nowhere(error) => return self.fall_back(error),
            };
            let (suite, package) = self.pick(&lists).expect("a search that found something");
            let asked = failure.is_none();
            if let Some(reason) = failure {
                self.note(&format!("Using the package lists as last read: {reason}"));
            }
            if let Some(entry) = self.stored(package)? {
                return Ok(entry);
            }
            match self.download(apt, guard, suite, package) {
                // The archive may have replaced the package since its list was read.
                Err(KernelError::Download { .. }) if asked && !age.is_zero() => age = Duration::ZERO,
                Err(error @ KernelError::Download { .. }) => return self.fall_back(error),
                other => return other,
            }
        }
    }

    /// The kernel, if the lists are fresh and it is in the cache: then nothing has to change and nobody has to wait.
    fn known(&self, apt: &Apt) -> Result<Option<CachedKernel>, KernelError> {
        let Some(own) = apt.fresh(&apt.own(self.distribution)?, DAY) else { return Ok(None) };
        let Some(lists) = (if self.pick(&own).is_some() { Some(own) } else { apt.fresh(&self.others(&own), DAY) })
        else {
            return Ok(None);
        };
        match self.pick(&lists) {
            Some((_, package)) => self.stored(package),
            None => Ok(None),
        }
    }

    /// Finds lists that have the kernel: the machine's own, then others; first in their known state, then refreshed.
    fn search(&self, apt: &Apt, max_age: Duration) -> Result<QueryResult, KernelError> {
        let mut failure = None;
        let mut available = String::new();
        let sources = apt.own(self.distribution)?;
        for age in [max_age, max_age.min(RECENT)] {
            let own = self.ask(apt, &sources, age, "", &mut failure)?;
            if self.pick(&own).is_some() {
                return Ok(QueryResult::Found(own, failure));
            }
            if self.suites(&own).next().is_none() {
                return Ok(QueryResult::Nowhere(match failure {
                    Some(reason) => KernelError::Update(reason),
                    None => KernelError::unsigned(self.distribution),
                }));
            }
            let other = self.ask(apt, &self.others(&own), age, "'s other releases", &mut failure)?;
            if self.pick(&other).is_some() {
                return Ok(QueryResult::Found(other, failure));
            }
            if let Some(reason) = failure {
                return Ok(QueryResult::Nowhere(KernelError::Update(reason)));
            }
            available = self.available(&own, &other);
        }
        Ok(QueryResult::Nowhere(KernelError::UnknownVersion {
            distribution: self.distribution,
            wanted: self.version.to_owned(),
            flavour: self.flavour.to_owned(),
            available,
        }))
    }

    /// The alternatives: the versions of the same series or, if it has none, all series; and the machine's own suites that were not asked.
    fn available(&self, own: &Lists, other: &Lists) -> String {
        let lists = || self.suites(own).chain(self.suites(other)).map(|s| &s.listing.packages[..]);
        let series = version::series(self.version);
        let mut versions = catalog::versions(lists(), self.distribution, self.flavour);
        versions.retain(|v| version::series(v) == series);
        let mut text = match series {
            Some(series) if !versions.is_empty() => format!("versions of {series}: {}", versions.join(", ")),
            _ => format!("series: {}", catalog::series(lists(), self.flavour).join(", ")),
        };
        if !own.absent.is_empty() {
            text.push_str(&format!("; of this machine's suites, the archive has no {}", own.absent.join(", ")));
        }
        text
    }

    fn ask(
        &self,
        apt: &Apt,
        sources: &[Source],
        max_age: Duration,
        what: &str,
        failure: &mut Option<String>,
    ) -> Result<Lists, KernelError> {
        if let Some(lists) = apt.fresh(sources, max_age) {
            return Ok(lists);
        }
        self.note(&format!("Reading the package lists of {}{what}", self.distribution));
        let mut lists = apt.lists(sources, max_age)?;
        if let Some(reason) = lists.failure.take() {
            *failure = Some(reason);
        }
        Ok(lists)
    }

    fn download(
        &self,
        apt: &Apt,
        guard: &StoreLock,
        suite: &Suite,
        package: &Package,
    ) -> Result<CachedKernel, KernelError> {
        let parts = catalog::KernelPackages::of(&suite.listing.packages, package);
        let size: u64 = parts.packages.iter().map(|p| p.size).sum();
        self.store.needs(size + parts.packages.iter().map(|p| p.installed).sum::<u64>())?;
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
        let origin = Origin {
            distribution: self.distribution,
            version: package.version.clone(),
            flavour: self.flavour.to_owned(),
        };
        let arrival = NewKernel {
            spec: format!("{}:{}/{}", self.distribution.name(), package.version, self.flavour),
            from: format!("{} {}", self.distribution, suite.source.suite),
            package: Some(describe(package)),
            origin: Some(origin),
            source_sha256: fingerprint(&files)?,
        };
        self.store.commit(guard, staged, arrival)
    }
}

enum QueryResult {
    /// Lists that have the kernel, and why they may be out of date.
    Found(Lists, Option<String>),
    Nowhere(KernelError),
}

fn describe(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

/// Unpacks all packages of one kernel into one folder and checks that it is complete.
pub(super) fn unpack(files: &[std::path::PathBuf], into: &Path) -> Result<Vec<deb::Unpacked>, KernelError> {
    let found = files.iter().map(|f| deb::unpack(f, into)).collect::<Result<Vec<_>, _>>()?;
    let have: Vec<&str> = found.iter().map(|f| f.control.package.as_str()).collect();
    // A kernel of several packages is complete with the dependencies of each; one in a single package is complete by itself.
    let split =
        |f: &&deb::Unpacked| catalog::is_shell(&f.control.depends) || !f.control.package.starts_with("linux-image-");
    let mut needed: BTreeSet<String> = found.iter().filter(split).flat_map(|f| f.control.depends.clone()).collect();
    for part in &have {
        if let Some(release) = part.strip_prefix("linux-binary-") {
            needed.insert(format!("linux-modules-{}", release.strip_prefix("unsigned-").unwrap_or(release)));
        } else if let Some(release) = part.strip_prefix("linux-modules-")
            && !found.iter().any(|f| f.image)
        {
            // Debian's split kernels have the image in `linux-binary-…`, Ubuntu's in `linux-image-…`.
            let is_ubuntu = Distribution::Ubuntu.flavours().iter().any(|f| release.ends_with(&format!("-{f}")));
            needed.insert(format!("linux-{}-{release}", if is_ubuntu { "image" } else { "binary" }));
        }
    }
    let given =
        |name: &str| have.contains(&name) || have.contains(&name.replace("binary-", "binary-unsigned-").as_str());
    let lacking: Vec<&str> = needed.iter().map(String::as_str).filter(|n| !given(n)).collect();
    let bad = |reason| Err(KernelError::Deb { path: files[0].clone(), reason });
    if !lacking.is_empty() {
        return bad(format!(
            "the kernel is split into several packages, and `{}` is missing; separate the files by `:`",
            lacking.join("`, `")
        ));
    }
    if !found.iter().any(|f| f.image) {
        return bad(format!(
            "it contains no kernel image (`{}`); the right package is named linux-image-…",
            have.join("`, `")
        ));
    }
    Ok(found)
}

/// Hash of packages, independent of their order.
pub(super) fn fingerprint(files: &[std::path::PathBuf]) -> Result<String, KernelError> {
    let mut hashes =
        files.iter().map(|f| hash::of_file(f).map_err(doing("Cannot read", f))).collect::<Result<Vec<_>, _>>()?;
    hashes.sort();
    Ok(hash::of_bytes(hashes.join(" ").as_bytes()))
}
