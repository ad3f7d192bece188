//! Kernels and arms.

use clap_complete::engine::CompletionCandidate;

use super::{after, candidate, folders, levers};
use bigiron_archive::{Distribution, Store, known, spec};
use bigiron_lab::lever;

/// Kernels that begin with `typed`.
pub(super) fn kernels(typed: &str) -> Vec<CompletionCandidate> {
    let source = typed.split_once(':').and_then(|(name, _)| Distribution::from_name(name));
    if let (Some(distribution), Some((kernel, _))) = (source, typed.split_once('/')) {
        let flavours = distribution.flavours().iter().map(|flavour| candidate(*flavour, "")).collect();
        return after(&format!("{kernel}/"), flavours);
    }
    if typed.contains('/') || typed.starts_with(['.', '~']) {
        return folders::files(typed, |_| true);
    }
    let store = Store::open().ok();
    let mut found: Vec<CompletionCandidate> = Vec::new();
    let mut add = |value: String, about: String| {
        if !found.iter().any(|c| c.get_value() == value.as_str()) {
            found.push(candidate(value, about));
        }
    };
    for entry in store.iter().flat_map(known::cached) {
        for name in &entry.names {
            add(name.clone(), format!("added kernel {}", entry.release));
        }
        if entry.origin.is_some() {
            add(entry.spec, format!("kernel {}, in the cache", entry.release));
        }
    }
    for distribution in Distribution::ALL {
        let source = distribution.name();
        let series: Vec<String> = store.iter().flat_map(|store| known::series(store, distribution)).collect();
        // Few machines have sources of a distribution other than Debian.
        let is_meant = !typed.is_empty() && format!("{source}:").starts_with(typed) || typed.starts_with(source);
        let has_releases = distribution == Distribution::Debian || !series.is_empty() || is_meant;
        for series in series {
            add(format!("{source}:{series}"), format!("{distribution}'s newest kernel {series}"));
        }
        for release in distribution.releases().iter().filter(|_| has_releases) {
            for name in [release.number, release.codename] {
                add(format!("{source}:{name}"), format!("kernel {}", release.series));
            }
        }
    }
    for word in spec::words() {
        add(word.to_owned(), String::new());
    }
    found
}

/// The names that `bigiron kernel remove` accepts.
pub(super) fn cached() -> Vec<CompletionCandidate> {
    let entries = Store::open().iter().flat_map(known::cached).collect::<Vec<_>>();
    let names =
        entries.iter().flat_map(|e| e.names.iter().map(|name| candidate(name, format!("kernel {}", e.release))));
    let releases = entries.iter().map(|e| candidate(&e.release, &e.spec));
    names.chain(releases).collect()
}

/// `KERNEL[,LEVER=VALUE]…`: the kernel, or the text after the last comma.
pub(super) fn arm(typed: &str) -> Vec<CompletionCandidate> {
    match typed.rsplit_once(',') {
        None => kernels(typed),
        Some((before, last)) => after(&format!("{before},"), levers::setting(last)),
    }
}

/// Arms separated by commas: after the last comma begins an arm, or another lever of the last arm.
pub(super) fn arms(typed: &str) -> Vec<CompletionCandidate> {
    match typed.rsplit_once(',') {
        None => kernels(typed),
        Some((before, last)) if lever::has_family(last) => after(&format!("{before},"), levers::setting(last)),
        Some((before, last)) => after(&format!("{before},"), kernels(last)),
    }
}
