//! Kernels and arms.

use clap_complete::engine::CompletionCandidate;

use super::{after, candidate, folders, levers};
use bigiron_archive::{Store, known, spec};
use bigiron_lab::lever;

/// Everything that may continue `typed` into a kernel.
pub(super) fn kernels(typed: &str) -> Vec<CompletionCandidate> {
    if typed.contains('/') && !typed.starts_with("debian:") || typed.starts_with(['.', '~']) {
        return folders::files(typed, |_| true);
    }
    if let Some((kernel, _)) = typed.split_once('/') {
        return after(&format!("{kernel}/"), spec::flavours().map(|flavour| candidate(flavour, "")).into());
    }
    let store = Store::open().ok();
    let mut found: Vec<CompletionCandidate> = Vec::new();
    let mut add = |value: String, about: String| {
        if !found.iter().any(|c| c.get_value() == value.as_str()) {
            found.push(candidate(value, about));
        }
    };
    let cached = store.iter().flat_map(known::cached);
    for entry in cached {
        for name in &entry.names {
            add(name.clone(), format!("kernel {}, added", entry.release));
        }
        if entry.debian.is_some() && entry.spec.starts_with("debian:") {
            add(entry.spec, format!("kernel {}, in the cache", entry.release));
        }
    }
    for series in store.iter().flat_map(known::series) {
        add(format!("debian:{series}"), format!("Debian's newest kernel {series}"));
    }
    for (release, series) in spec::releases() {
        add(release, format!("kernel {series}"));
    }
    for word in spec::words() {
        add(word.to_owned(), String::new());
    }
    found
}

/// The names by which a kernel of the cache can be removed.
pub(super) fn cached() -> Vec<CompletionCandidate> {
    let entries = Store::open().iter().flat_map(known::cached).collect::<Vec<_>>();
    let names =
        entries.iter().flat_map(|e| e.names.iter().map(|name| candidate(name, format!("kernel {}", e.release))));
    let releases = entries.iter().map(|e| candidate(&e.release, &e.spec));
    names.chain(releases).collect()
}

/// `KERNEL[,LEVER=VALUE]…`: the kernel, or what follows the last comma.
pub(super) fn arm(typed: &str) -> Vec<CompletionCandidate> {
    match typed.rsplit_once(',') {
        None => kernels(typed),
        Some((before, last)) => after(&format!("{before},"), levers::setting(last)),
    }
}

/// Arms separated by commas: what follows the last comma begins an arm, or another lever of the last one.
pub(super) fn arms(typed: &str) -> Vec<CompletionCandidate> {
    match typed.rsplit_once(',') {
        None => kernels(typed),
        Some((before, last)) if lever::has_family(last) => after(&format!("{before},"), levers::setting(last)),
        Some((before, last)) => after(&format!("{before},"), kernels(last)),
    }
}
