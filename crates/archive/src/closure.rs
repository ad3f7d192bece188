//! A package with its dependencies, as apt itself resolves them for a machine with nothing installed.
//!
//! Invariant: all parts come from one Debian release, its updates and its security archive, so they fit together.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::apt::{Apt, Failure, Lists, run};
use super::catalog::Package;
use super::distribution::Distribution;
use super::error::{KernelError, doing};
use super::hash;
use super::sources::{self, Source, release_of};
use bigiron_model::version;

/// Servers come from Debian's archive.
const DEBIAN: Distribution = Distribution::Debian;
/// Package lists up to this age are used without asking again.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// One package of a closure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosurePackage {
    pub name: String,
    pub version: String,
    /// Debian's section, such as `libs`.
    pub section: String,
    /// Names of the packages on which it depends, including alternatives.
    pub depends: Vec<String>,
    /// Bytes to download.
    pub size: u64,
    /// Bytes once unpacked.
    pub installed: u64,
}

/// The package of a series of a server's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesPackage {
    /// The series is in the package's name, after `-`: `postgresql` of `postgresql-15`.
    InName(&'static str),
    /// A release has one package, whose version begins with the series: `1:10.11.6-0+deb12u1` is of 10.11.
    InVersion(&'static str),
}

impl SeriesPackage {
    /// The name of the package of a series.
    pub fn name(self, series: &str) -> String {
        match self {
            Self::InName(prefix) => format!("{prefix}-{series}"),
            Self::InVersion(name) => name.to_owned(),
        }
    }

    /// Whether a package has such a name, of whatever series.
    pub fn is_name(self, name: &str) -> bool {
        match self {
            Self::InName(prefix) => series_in(name, prefix).is_some(),
            Self::InVersion(package) => name == package,
        }
    }

    /// The series of a package; `None` if it is another package.
    fn series_of(self, package: &Package) -> Option<&str> {
        match self {
            Self::InName(prefix) => series_in(&package.name, prefix),
            Self::InVersion(name) => (package.name == name).then(|| two_numbers(&package.version)),
        }
    }
}

/// What follows the prefix and `-` in a package's name, if it is a number.
fn series_in<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let series = name.strip_prefix(prefix)?.strip_prefix('-')?;
    (!series.is_empty() && series.bytes().all(|b| b.is_ascii_digit())).then_some(series)
}

/// The first two numbers of a version without its epoch: `10.11` of `1:10.11.6-0+deb12u1`.
fn two_numbers(version: &str) -> &str {
    let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
    let end = upstream.match_indices(|c: char| !c.is_ascii_digit()).nth(1).map_or(upstream.len(), |(at, _)| at);
    &upstream[..end]
}

/// The requested package and everything on which it depends.
pub struct Closure {
    apt: Apt,
    folder: PathBuf,
    /// The release it comes from, such as `bookworm`.
    pub release: String,
    pub parts: Vec<ClosurePackage>,
}

/// A release that has a package, and its newest version there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Release {
    name: String,
    version: String,
}

impl Closure {
    /// The package of a series and `others`, from the release with its newest version: the machine's own release first, others of Debian's
    /// archive if that lacks it. `state` is the folder of apt's private state; `note` gets lines about the progress. The inner `Err` holds the
    /// available series.
    pub fn find(
        state: &Path,
        package: SeriesPackage,
        series: &str,
        others: &[&str],
        note: &dyn Fn(&str),
    ) -> Result<Result<Self, Vec<String>>, KernelError> {
        let apt = Apt::open(state)?;
        note("Reading Debian's package lists");
        let mut lists = apt.lists(&apt.own(DEBIAN)?, DAY)?;
        if release_with(&lists, package, series).is_none() {
            let own: Vec<Source> = lists.of(DEBIAN).map(|s| s.source.clone()).collect();
            let have = lists.suites.iter().flat_map(|s| [s.source.suite.clone(), s.listing.codename.clone()]).collect();
            if own.is_empty() {
                return Err(match lists.failure {
                    Some(reason) => KernelError::Update(reason),
                    None => KernelError::unsigned(DEBIAN),
                });
            }
            note("Reading the package lists of other Debian releases");
            let more = apt.lists(&sources::derive(&own, &have), DAY)?;
            lists.suites.extend(more.suites);
            lists.failure = lists.failure.or(more.failure);
        }
        let Some(release) = release_with(&lists, package, series) else {
            return match lists.failure {
                Some(reason) => Err(KernelError::Update(reason)),
                None => Ok(Err(all_series(&lists, package))),
            };
        };
        let wanted = package.name(series);
        Ok(Ok(Self::resolve(apt, &lists, release.name, &[&[wanted.as_str()], others].concat(), note)?))
    }

    /// A package from the release with this name, whatever releases the machine's sources name. Tries `versions` in turn, and then any version
    /// of the release. `state` is the folder of apt's private state.
    ///
    /// # Errors
    /// There is no apt, no source of Debian's archive, no network, or no such release or package in the archive.
    pub fn of_release(
        state: &Path,
        release: &str,
        package: &str,
        versions: &[&str],
        note: &dyn Fn(&str),
    ) -> Result<Self, KernelError> {
        let apt = Apt::open(state)?;
        note("Reading Debian's package lists");
        let mut lists = apt.lists(&apt.own(DEBIAN)?, DAY)?;
        let is_of = |source: &Source| release_of(&source.suite) == Some(release) && !source.is_aside();
        if !lists.of(DEBIAN).any(|s| release_of(&s.listing.codename) == Some(release) && !s.source.is_aside()) {
            let own: Vec<Source> = lists.of(DEBIAN).map(|s| s.source.clone()).collect();
            let others: Vec<Source> = sources::derive(&own, &BTreeSet::new()).into_iter().filter(is_of).collect();
            let more = apt.lists(&others, DAY)?;
            lists.failure = lists.failure.or(more.failure);
            lists.suites = more.suites;
        }
        if lists.suites.is_empty() {
            return Err(match lists.failure {
                Some(reason) => KernelError::Update(reason),
                None => KernelError::Update(format!("it no longer has the release `{release}`")),
            });
        }
        let exact = versions.iter().map(|version| format!("{package}={version}"));
        let mut missing = None;
        for word in exact.chain([package.to_owned()]) {
            match Self::resolve(apt.clone(), &lists, release.to_owned(), &[&word], note) {
                Err(error @ KernelError::Download { .. }) => missing = Some(error),
                other => return other,
            }
        }
        Err(missing.expect("the package itself was tried"))
    }

    /// The dependencies of `wanted` in a release.
    fn resolve(
        apt: Apt,
        lists: &Lists,
        release: String,
        wanted: &[&str],
        note: &dyn Fn(&str),
    ) -> Result<Self, KernelError> {
        let of_release =
            |s: &&super::apt::Suite| release_of(&s.listing.codename) == Some(&release) && !s.source.is_aside();
        let texts: BTreeSet<String> = lists.of(DEBIAN).filter(of_release).map(|s| s.source.deb822()).collect();
        let text = texts.into_iter().collect::<Vec<_>>().join("\n");
        let folder = apt.dir.join(format!("{release}+{}", &hash::of_bytes(text.as_bytes())[..12]));
        let first = wanted[0];
        note(&format!("Resolving what {first} of {release} depends on"));
        apt.refresh(&folder, &text)?;
        let mut command = apt.apt_get(&folder);
        command.args(["install", "--print-uris", "-y", "--no-install-recommends"]).args(wanted);
        let uris = run(command).map_err(|f| said(f, first))?;
        let exact: Vec<String> = uris.lines().filter_map(package_of).map(|(n, v)| format!("{n}={v}")).collect();
        let stanzas = run(apt.apt_cache(&folder, &exact)).map_err(|f| said(f, first))?;
        let mut parts: Vec<ClosurePackage> = stanzas.split("\n\n").filter_map(part).collect();
        parts.sort_by(|a, b| a.name.cmp(&b.name));
        // A version in two suites is listed twice.
        parts.dedup_by(|a, b| a.name == b.name);
        Ok(Self { apt, folder, release, parts })
    }

    /// A package and its run-time dependencies: packages of shared libraries, and their dependencies in turn, except those whose names begin
    /// with one of `without`. Other dependencies (perl, debconf) are only for installation.
    pub fn libraries_of<'a>(&'a self, first: Vec<&'a ClosurePackage>, without: &[&str]) -> Vec<&'a ClosurePackage> {
        let mut found = first;
        let mut next = 0;
        while let Some(part) = found.get(next).copied() {
            for name in &part.depends {
                let Some(library) = self.part(name) else { continue };
                let section = library.section.rsplit('/').next();
                if section == Some("libs")
                    && !without.iter().any(|left| name.starts_with(left))
                    && !found.contains(&library)
                {
                    found.push(library);
                }
            }
            next += 1;
        }
        found
    }

    pub fn part(&self, name: &str) -> Option<&ClosurePackage> {
        self.parts.iter().find(|p| p.name == name)
    }

    /// Downloads some of the parts into `into`, an empty folder; apt checks them against the signed index.
    pub fn download(&self, parts: &[&ClosurePackage], into: &Path) -> Result<Vec<PathBuf>, KernelError> {
        std::fs::create_dir_all(into).map_err(doing("Cannot create", into))?;
        let exact: Vec<_> = parts.iter().map(|p| (p.name.as_str(), p.version.as_str())).collect();
        self.apt.fetch(&self.folder, &exact, into)
    }
}

fn said(failure: Failure, package: &str) -> KernelError {
    match failure {
        Failure::Missing(name) => KernelError::NoApt(name),
        Failure::Said(reason) => KernelError::Download { package: package.to_owned(), reason },
    }
}

/// The release with the newest version of a series.
fn release_with(lists: &Lists, wanted: SeriesPackage, series: &str) -> Option<Release> {
    let found = lists.of(DEBIAN).filter(|s| !s.source.is_aside()).filter_map(|suite| {
        let package = suite.listing.packages.iter().find(|p| wanted.series_of(p) == Some(series))?;
        let name = release_of(&suite.listing.codename)?.to_owned();
        Some(Release { name, version: package.version.clone() })
    });
    found.max_by(|a, b| version::compare(&a.version, &b.version))
}

/// The available series, oldest first.
fn all_series(lists: &Lists, package: SeriesPackage) -> Vec<String> {
    let packages = lists.of(DEBIAN).filter(|s| !s.source.is_aside()).flat_map(|s| &s.listing.packages);
    let mut all: Vec<String> = packages.filter_map(|p| package.series_of(p)).map(str::to_owned).collect();
    all.sort_by(|a, b| version::compare(a, b));
    all.dedup();
    all
}

/// Name and version in a line of `--print-uris`: `'ADDRESS' NAME_VERSION_ARCHITECTURE.deb SIZE HASH`.
fn package_of(line: &str) -> Option<(String, String)> {
    let file = line.strip_prefix('\'')?.split("' ").nth(1)?.split(' ').next()?;
    let mut fields = file.strip_suffix(".deb")?.splitn(3, '_');
    let (name, version) = (fields.next()?, fields.next()?);
    Some((name.to_owned(), version.replace("%3a", ":").replace("%3A", ":")))
}

fn part(stanza: &str) -> Option<ClosurePackage> {
    let field = |key: &str| stanza.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(": "));
    let depends = [field("Pre-Depends"), field("Depends")].into_iter().flatten();
    let depends = depends.flat_map(|d| d.split([',', '|'])).filter_map(|d| d.split_whitespace().next());
    Some(ClosurePackage {
        name: field("Package")?.to_owned(),
        version: field("Version")?.to_owned(),
        section: field("Section").unwrap_or_default().to_owned(),
        depends: depends.map(|d| d.split(':').next().unwrap_or(d).to_owned()).collect(),
        size: field("Size").and_then(|s| s.parse().ok()).unwrap_or(0),
        installed: field("Installed-Size").and_then(|s| s.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_series_is_in_the_name_or_in_the_version() {
        let package = |name: &str, version: &str| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            size: 0,
            installed: 0,
            depends: Vec::new(),
        };
        let named = SeriesPackage::InName("postgresql");
        assert_eq!(named.name("15"), "postgresql-15");
        assert_eq!(named.series_of(&package("postgresql-15", "15.18-0+deb12u1")), Some("15"));
        for other in ["postgresql", "postgresql-", "postgresql-15-postgis-3", "postgresql-common"] {
            assert!(!named.is_name(other) && named.series_of(&package(other, "1")).is_none(), "{other}");
        }
        let only = SeriesPackage::InVersion("mariadb-server-core");
        assert_eq!(only.name("10.11"), "mariadb-server-core");
        for (version, series) in
            [("1:10.11.19-0+deb12u1", "10.11"), ("1:11.8.3-1", "11.8"), ("2.4~rc1", "2.4"), ("3", "3"), ("", "")]
        {
            assert_eq!(only.series_of(&package("mariadb-server-core", version)), Some(series));
        }
        assert!(!only.is_name("mariadb-server"));
    }

    #[test]
    fn lines_and_stanzas_are_read() {
        let line = "'http://m.test/p/libcap2_2.66-4%2bb1_amd64.deb' libcap2_1%3a2.66-4+b1_amd64.deb 27708 SHA256:ab";
        assert_eq!(package_of(line), Some(("libcap2".to_owned(), "1:2.66-4+b1".to_owned())));
        assert_eq!(package_of("Reading package lists..."), None);
        let stanza = "Package: libx\nVersion: 1:2-3\nInstalled-Size: 7\nSection: libs\nPre-Depends: libc6 (>= 2)\nDepends: liba:any | libb, libd\nSize: 9\n";
        let part = part(stanza).unwrap();
        assert_eq!((part.name.as_str(), part.version.as_str(), part.section.as_str()), ("libx", "1:2-3", "libs"));
        assert_eq!(part.depends, ["libc6", "liba", "libb", "libd"]);
        assert_eq!((part.size, part.installed), (9, 7168));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "('[a-z]{0,3}' )?[a-z_%:=.\n ]{0,60}") {
            package_of(&text);
            part(&text);
        }
    }
}
