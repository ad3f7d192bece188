//! The machine's apt sources that name a distribution's archive, and the other suites that can be derived from them.
//!
//! Invariant: addresses, keyrings and options come from the machine's own entries; only the names of suites are bigiron's.

use std::collections::BTreeSet;

use super::distribution::Distribution;

const POCKETS: [&str; 7] =
    ["-security", "-updates", "-backports", "-backports-sloppy", "-proposed-updates", "-proposed", "/updates"];

/// One suite of one archive, in terms of deb822.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// One or more addresses, separated by blanks.
    pub uris: String,
    pub suite: String,
    /// deb822 fields other than Types, URIs, Suites and Components, in the order of the machine's entry.
    pub options: Vec<(String, String)>,
}

impl Source {
    /// Whether this is a suite of the security archive, which has its own addresses.
    pub fn is_security(&self) -> bool {
        self.suite.ends_with("-security") || self.suite.ends_with("/updates")
    }

    /// Whether its packages are backports for an older release, or not yet meant for use.
    pub fn is_aside(&self) -> bool {
        ["-backports", "-backports-sloppy", "-proposed-updates", "-proposed"].iter().any(|p| self.suite.ends_with(p))
    }

    /// The distribution that has a suite of this name.
    pub fn distribution(&self) -> Option<Distribution> {
        Distribution::of_release(release_of(&self.suite)?)
    }

    /// A deb822 file with only this source.
    pub fn deb822(&self) -> String {
        let mut text = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nArchitectures: amd64\nPDiffs: no\n",
            self.uris, self.suite
        );
        for (key, value) in &self.options {
            text.push_str(&format!("{key}: {value}\n"));
        }
        text
    }
}

/// The entries of a `.list` file (one per line) that seem to be a distribution's archive.
pub fn read_list(text: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb").filter(|r| r.starts_with([' ', '\t'])) else { continue };
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let mut words = rest.split_whitespace();
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else { continue };
        let options = options
            .split_whitespace()
            .filter_map(|o| o.split_once('='))
            .map(|(key, value)| (key.trim_end_matches(['+', '-']).to_owned(), value.replace(',', " ")));
        found.extend(source(uri, suite, words, options.collect()));
    }
    found
}

/// The entries of a `.sources` file (deb822) that seem to be a distribution's archive.
pub fn read_deb822(text: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            found.extend(stanza(std::mem::take(&mut fields)));
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((key, value)) = line.split_once(':') {
            fields.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

fn stanza(fields: Vec<(String, String)>) -> Vec<Source> {
    let get = |name: &str| fields.iter().find(|(k, _)| k.eq_ignore_ascii_case(name)).map_or("", |(_, v)| v.as_str());
    let disabled =
        ["no", "false", "without", "off", "disable", "0"].contains(&get("Enabled").to_ascii_lowercase().as_str());
    if disabled || !get("Types").split_whitespace().any(|t| t == "deb") {
        return Vec::new();
    }
    let uris = get("URIs").split_whitespace().collect::<Vec<_>>().join(" ");
    let suites: Vec<&str> = get("Suites").split_whitespace().collect();
    let components = get("Components");
    suites.into_iter().filter_map(|suite| source(&uris, suite, components.split_whitespace(), fields.clone())).collect()
}

fn source<'a>(
    uris: &str,
    suite: &str,
    mut components: impl Iterator<Item = &'a str>,
    options: Vec<(String, String)>,
) -> Option<Source> {
    let uris: Vec<&str> = uris.split_whitespace().filter(|u| !u.starts_with("cdrom:")).collect();
    let known = release_of(suite).and_then(Distribution::of_release).is_some();
    if uris.is_empty() || !known || !components.any(|c| c == "main") {
        return None;
    }
    // bigiron decides what apt fetches; the machine decides from where, and whom to trust.
    const OURS: [&str; 16] = [
        "types",
        "uris",
        "suites",
        "components",
        "enabled",
        "architectures",
        "arch",
        "languages",
        "lang",
        "targets",
        "target",
        "pdiffs",
        "description",
        "x-repolib-name",
        "inrelease-path",
        "include",
    ];
    let options = options.into_iter().filter(|(k, _)| !OURS.contains(&k.to_ascii_lowercase().as_str())).collect();
    Some(Source { uris: uris.join(" "), suite: suite.to_owned(), options })
}

/// The release of a suite: `bookworm` of `bookworm-security`.
pub(super) fn release_of(suite: &str) -> Option<&str> {
    let suite = suite.trim_end_matches('/');
    Some(POCKETS.iter().find_map(|p| suite.strip_suffix(p)).unwrap_or(suite)).filter(|s| !s.is_empty())
}

/// Suites of other releases in the same archives, except those in `have` (suite names and code names already known).
///
/// Their `Release` files may have expired (an unsupported release is not signed again), so their date is not checked, but their signature is.
pub fn derive(own: &[Source], have: &BTreeSet<String>) -> Vec<Source> {
    let mut found: Vec<Source> = Vec::new();
    for (source, distribution) in own.iter().filter_map(|source| Some((source, source.distribution()?))) {
        for &release in distribution.searched() {
            let suites: Vec<String> = match (source.is_security(), release) {
                (true, "sid") => vec![],
                (true, _) => vec![format!("{release}-security")],
                (false, "sid") => vec![release.to_owned()],
                (false, _) => distribution.pockets().iter().map(|pocket| format!("{release}{pocket}")).collect(),
            };
            for suite in suites.into_iter().filter(|s| !have.contains(s)) {
                let mut options = source.options.clone();
                options.retain(|(k, _)| !k.eq_ignore_ascii_case("check-valid-until"));
                options.push(("Check-Valid-Until".to_owned(), "no".to_owned()));
                let derived = Source { uris: source.uris.clone(), suite, options };
                if !found.contains(&derived) {
                    found.push(derived);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn suites(sources: &[Source]) -> Vec<&str> {
        sources.iter().map(|s| s.suite.as_str()).collect()
    }

    #[test]
    fn reads_both_forms_and_ignores_others() {
        let list = "\
# deb http://mirror.test/debian trixie main
deb [arch=amd64 signed-by=/k.gpg,/l.gpg check-valid-until=no] http://mirror.test/debian bookworm main contrib # here
deb cdrom:[Debian GNU/Linux 12]/ bookworm main
deb-src http://mirror.test/debian bookworm main
deb http://other.test/linux/debian bookworm stable
deb http://other.test/pgdg bookworm-pgdg main
deb mirror+file:/etc/mirrors.list bookworm-security main";
        let found = read_list(list);
        assert_eq!(suites(&found), ["bookworm", "bookworm-security"]);
        assert_eq!(
            found[0].options,
            [("signed-by".into(), "/k.gpg /l.gpg".into()), ("check-valid-until".into(), "no".into())]
        );
        assert!(found[1].is_security());

        let deb822 = "\
Types: deb deb-src
# a comment
URIs: http://mirror.test/debian
Suites: stable stable-updates
Components: main non-free-firmware
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Enabled: no
Types: deb
URIs: http://mirror.test/debian
Suites: sid
Components: main

Types: deb
URIs: http://node.test/
Suites: nodistro
Components: main
";
        let found = read_deb822(deb822);
        assert_eq!(suites(&found), ["stable", "stable-updates"]);
        assert!(
            found[0].deb822().ends_with("Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"),
            "{}",
            found[0].deb822()
        );
        assert_eq!(read_deb822(&found[0].deb822())[0].options, found[0].options);
    }

    #[test]
    fn other_suites_keep_address_and_key() {
        let own = read_list(
            "deb [signed-by=/k.gpg] http://m.test/debian bookworm main\ndeb http://s.test/sec bookworm-security main",
        );
        let have = ["bookworm", "bookworm-security"].map(str::to_owned).into();
        let found = derive(&own, &have);
        let sid = found.iter().find(|s| s.suite == "sid").unwrap();
        assert_eq!(sid.uris, "http://m.test/debian");
        assert!(sid.deb822().contains("signed-by: /k.gpg\nCheck-Valid-Until: no\n"));
        let security: Vec<_> = found.iter().filter(|s| s.is_security()).collect();
        assert!(security.iter().all(|s| s.uris == "http://s.test/sec"));
        assert!(suites(&found).contains(&"bullseye-security") && suites(&found).contains(&"trixie-backports"));
        assert!(!suites(&found).contains(&"bookworm") && !suites(&found).contains(&"bookworm-security"));
    }

    #[test]
    fn each_distribution_has_its_own_suites() {
        let own = read_list(
            "deb http://m.test/debian bookworm main\ndeb http://u.test/ubuntu noble-updates main restricted\ndeb http://p.test/repo nodistro main",
        );
        let distributions: Vec<_> = own.iter().map(Source::distribution).collect();
        assert_eq!(distributions, [Some(Distribution::Debian), Some(Distribution::Ubuntu)]);
        let found = derive(&own, &BTreeSet::new());
        let of = |suite: &str| found.iter().find(|s| s.suite == suite).map(|s| s.uris.as_str());
        assert_eq!(of("trixie"), Some("http://m.test/debian"));
        assert_eq!(of("jammy-updates"), Some("http://u.test/ubuntu"));
        assert_eq!(of("jammy-backports"), None);
    }

    proptest! {
        #[test]
        fn never_panics(text in "(deb|Types|URIs|Suites|[a-z]{0,4})?[ \\[\\]:=#a-z/\n-]{0,120}") {
            read_list(&text);
            read_deb822(&text);
        }
    }
}
