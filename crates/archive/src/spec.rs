//! The ways to name a kernel.

use std::fmt;
use std::path::{Path, PathBuf};

use bigiron_model::identity::Identity;

use super::distribution::Distribution;
use super::error::KernelError;

/// Words that name kernels by their role.
const WORDS: [(&str, KernelSpec); 3] =
    [("running", KernelSpec::Running), ("latest", KernelSpec::Latest), ("previous", KernelSpec::Previous)];

/// A kernel as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSpec {
    /// `debian:VERSION[/FLAVOUR]` or `ubuntu:…`; the version is a series (`6.12`), an upstream version (`6.12.113`) or a package's whole version.
    Archive { distribution: Distribution, version: String, flavour: Option<String> },
    /// One or more packages: `a.deb`, or `a.deb:b.deb` for kernels that are split over several.
    Deb(Vec<PathBuf>),
    /// A bzImage, with or without a folder of modules.
    Image { image: PathBuf, modules: Option<PathBuf> },
    /// The folder in which a kernel was built.
    BuildTree(PathBuf),
    /// A name given by `bigiron kernel add`.
    Named(String),
    /// The kernel of this machine.
    Running,
    /// The newest kernel that the archive of this machine's distribution offers.
    Latest,
    /// The newest kernel of the series before that of the newest.
    Previous,
}

impl KernelSpec {
    pub fn parse(text: &str) -> Result<Self, KernelError> {
        let bad = |message: String| Err(KernelError::Spec(message));
        if text.is_empty() {
            return bad("A kernel must be named: `debian:6.12`, a name, a path, or `running`".to_owned());
        }
        if let Some((_, spec)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(spec.clone());
        }
        let pieces: Vec<&str> = text.split(':').collect();
        if pieces.iter().all(|p| p.ends_with(".deb")) {
            return Ok(Self::Deb(pieces.into_iter().map(PathBuf::from).collect()));
        }
        let source = text.split_once(':');
        if let Some((distribution, rest)) = source.and_then(|(s, rest)| Some((Distribution::from_name(s)?, rest))) {
            return Self::archive(distribution, rest);
        }
        if is_path(text) {
            let path = PathBuf::from(text);
            return Ok(if path.is_dir() { Self::BuildTree(path) } else { Self::Image { image: path, modules: None } });
        }
        if let Some((source, _)) = text.split_once(':') {
            return bad(format!(
                "`{source}:` is not a source of kernels; the sources are `debian:` and `ubuntu:`, as in `debian:6.12`"
            ));
        }
        if !is_name(text) {
            return bad(format!(
                "`{text}` is not a kernel; a kernel is `debian:VERSION`, `ubuntu:VERSION`, a name (letters, digits, `.`, `_`, `-`), the path of a file or build tree, `running`, `latest` or `previous`"
            ));
        }
        Ok(Self::Named(text.to_owned()))
    }

    fn archive(distribution: Distribution, rest: &str) -> Result<Self, KernelError> {
        let (version, flavour) = match rest.split_once('/') {
            Some((version, flavour)) => (version, Some(flavour)),
            None => (rest, None),
        };
        let source = distribution.name();
        let release = distribution.releases().iter().find(|r| [r.number, r.codename].contains(&version));
        let version = release.map_or(version, |release| release.series);
        let mut parts = version.split('.');
        let number = |s: Option<&str>| s.is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit()));
        let plain = version.bytes().all(|b| b.is_ascii_alphanumeric() || b".+~-".contains(&b));
        if !(number(parts.next()) && number(parts.next()) && plain) {
            let releases: Vec<String> = distribution
                .releases()
                .iter()
                .map(|r| format!("`{source}:{}` or `{source}:{}` ({})", r.number, r.codename, r.series))
                .collect();
            let (series, version) = match distribution {
                Distribution::Debian => ("6.12", "6.12.113"),
                Distribution::Ubuntu => ("6.8", "6.8.0-50"),
            };
            return Err(KernelError::Spec(format!(
                "`{source}:{rest}` is not a kernel; name a series such as `{source}:{series}`, a version such as `{source}:{version}`, or a release: {}",
                releases.join(", ")
            )));
        }
        let flavours = || distribution.flavours().iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(", ");
        match flavour {
            Some("") => {
                Err(KernelError::Spec(format!("`{source}:{rest}` ends after `/`; flavours are {}", flavours())))
            }
            Some(flavour) if !distribution.flavours().contains(&flavour) => Err(KernelError::Spec(format!(
                "{distribution} has no flavour `{flavour}` for this architecture; flavours are {}",
                flavours()
            ))),
            _ => Ok(Self::Archive { distribution, version: version.to_owned(), flavour: flavour.map(str::to_owned) }),
        }
    }
}

impl fmt::Display for KernelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive { distribution, version, flavour } => {
                write!(f, "{}:{version}", distribution.name())?;
                flavour.iter().try_for_each(|flavour| write!(f, "/{flavour}"))
            }
            Self::Deb(paths) => {
                let paths: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
                f.write_str(&paths.join(":"))
            }
            Self::Image { image: path, .. } | Self::BuildTree(path) => path.display().fmt(f),
            Self::Named(name) => f.write_str(name),
            Self::Running => f.write_str("running"),
            Self::Latest => f.write_str("latest"),
            Self::Previous => f.write_str("previous"),
        }
    }
}

/// The specification of exactly this kernel of an archive.
pub fn of_archive(distribution: Distribution, version: String, flavour: &str) -> String {
    let flavour = Some(flavour.to_owned()).filter(|f| f != distribution.default_flavour());
    KernelSpec::Archive { distribution, version, flavour }.to_string()
}

/// The words that name kernels by their role.
pub fn words() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|(word, _)| *word)
}

/// Whether an argument names a kernel rather than, say, a workload: `source:version`, a name in `named`, a path, or a word such as `running`.
pub fn looks_like_kernel(text: &str, named: &[String]) -> bool {
    is_word(text) || named.iter().any(|n| n == text) || text.ends_with(".deb") || is_path(text) || is_source(text)
}

/// Whether `name` may be given to an added kernel.
pub fn is_name(name: &str) -> bool {
    !is_word(name)
        && Distribution::from_name(name).is_none()
        && name.len() <= 64
        && !name.ends_with(".deb")
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_word(text: &str) -> bool {
    WORDS.iter().any(|(word, _)| *word == text)
}

fn is_source(text: &str) -> bool {
    let Some((source, version)) = text.split_once(':') else { return false };
    !source.is_empty() && source.bytes().all(|b| b.is_ascii_lowercase()) && !version.is_empty()
}

/// A path contains `/`, or exists and could not be a mistyped name: an image file.
fn is_path(text: &str) -> bool {
    (text.contains('/') && !is_source(text))
        || text == "."
        || text == ".."
        || Path::new(text).is_file()
        || is_tree(Path::new(text))
}

fn is_tree(path: &Path) -> bool {
    path.join("arch/x86/boot").is_dir()
}

/// The specification that fetches exactly this kernel: a series may have moved on to a newer version.
pub fn exact(identity: &Identity) -> String {
    let version = identity.package.as_deref().and_then(|p| p.split_once(' ')).map(|(_, version)| version);
    match (KernelSpec::parse(&identity.spec), version) {
        (Ok(KernelSpec::Archive { distribution, flavour, .. }), Some(version)) => {
            KernelSpec::Archive { distribution, version: version.to_owned(), flavour }.to_string()
        }
        _ => identity.spec.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn forms_of_naming() {
        let archive = |distribution, version: &str, flavour: Option<&str>| KernelSpec::Archive {
            distribution,
            version: version.into(),
            flavour: flavour.map(str::to_owned),
        };
        let debian = |version, flavour| archive(Distribution::Debian, version, flavour);
        for (text, spec) in [
            ("debian:6.12", debian("6.12", None)),
            ("debian:6.1/rt-amd64", debian("6.1", Some("rt-amd64"))),
            ("debian:6.12.113-1~deb12u1", debian("6.12.113-1~deb12u1", None)),
            ("ubuntu:6.8.0-50/aws", archive(Distribution::Ubuntu, "6.8.0-50", Some("aws"))),
            ("running", KernelSpec::Running),
            ("latest", KernelSpec::Latest),
            ("previous", KernelSpec::Previous),
            ("mine", KernelSpec::Named("mine".into())),
            ("a.deb", KernelSpec::Deb(vec!["a.deb".into()])),
            ("d/a+b_1.deb:b.deb", KernelSpec::Deb(vec!["d/a+b_1.deb".into(), "b.deb".into()])),
            ("./bzImage", KernelSpec::Image { image: "./bzImage".into(), modules: None }),
            ("/", KernelSpec::BuildTree("/".into())),
        ] {
            assert_eq!(KernelSpec::parse(text).unwrap(), spec);
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn a_release_is_the_series_of_its_kernel() {
        for (release, series) in [
            ("debian:12", "debian:6.1"),
            ("debian:bookworm", "debian:6.1"),
            ("debian:13/amd64", "debian:6.12/amd64"),
            ("ubuntu:24.04", "ubuntu:6.8"),
            ("ubuntu:jammy/kvm", "ubuntu:5.15/kvm"),
        ] {
            assert_eq!(KernelSpec::parse(release).unwrap(), KernelSpec::parse(series).unwrap());
        }
    }

    #[test]
    fn refusals_say_what_would_be_right() {
        for (text, what) in [
            ("", "debian:6.12"),
            ("debian:", "name a series such as"),
            ("debian:sid", "or a release: `debian:11`"),
            ("debian:6.1/", "ends after `/`"),
            ("debian:6", "name a series such as"),
            ("debian:6.1/arm64", "`cloud-amd64`, `amd64`, `rt-amd64`"),
            ("fedora:6.1", "the sources are `debian:` and `ubuntu:`"),
            ("ubuntu:", "a version such as `ubuntu:6.8.0-50`"),
            ("ubuntu:lts", "`ubuntu:24.04` or `ubuntu:noble` (6.8)"),
            ("ubuntu:6.8/cloud-amd64", "Ubuntu has no flavour `cloud-amd64`"),
            ("no such thing", "is not a kernel"),
        ] {
            let said = KernelSpec::parse(text).unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        }
    }

    #[test]
    fn kernels_and_workloads_are_told_apart() {
        let named = ["mine".to_owned()];
        for text in ["debian:6.1", "debian:6.1/amd64", "running", "mine", "./mine", "a.deb", "/boot/vmlinuz", "other:1"]
        {
            assert!(looks_like_kernel(text, &named), "{text}");
        }
        for text in ["micro", "dbsim", "yours", "", "debian", "debian:"] {
            assert!(!looks_like_kernel(text, &named), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(debian:)?.{0,30}") {
            let _ = KernelSpec::parse(&text);
            looks_like_kernel(&text, &[]);
        }
    }
}
