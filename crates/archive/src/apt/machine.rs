//! The machine's own apt: its configuration and its sources, from which bigiron's are made.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::error::KernelError;
use super::super::sources::{self, Source};
use super::{Failure, run};

/// Our configuration: how the machine reaches and trusts its archives, and nothing else of it.
pub(super) fn configuration(machine: &[(String, String)], keys: &[String]) -> String {
    const OURS: [&str; 7] = [
        "Acquire::IndexTargets",
        "Acquire::Languages",
        "Acquire::Changelogs",
        "Acquire::CompressionTypes",
        "Acquire::GzipIndexes",
        "Acquire::PDiffs",
        "Acquire::cdrom",
    ];
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || b":_./-*".contains(&b));
    let mut text =
        String::from("// Written by bigiron from the machine's own configuration; rewritten whenever it is used.\n");
    for (key, value) in machine {
        let taken =
            (key.starts_with("Acquire::") && !OURS.iter().any(|o| key.starts_with(o))) || key.starts_with("APT::Key");
        // apt's files cannot quote a quotation mark.
        if taken && plain(key) && !value.is_empty() && !value.contains(['"', '\n']) {
            text.push_str(&format!("{key} \"{value}\";\n"));
        }
    }
    // apt's own word for none at all. A folder, however empty, could be filled.
    for key in [
        "Dir::Etc::main",
        "Dir::Etc::parts",
        "Dir::Etc::sourceparts",
        "Dir::Etc::preferences",
        "Dir::Etc::preferencesparts",
        "Dir::State::status",
        "Dir::Log",
    ] {
        text.push_str(&format!("{key} \"/dev/null\";\n"));
    }
    for key in ["Dir::Cache::pkgcache", "Dir::Cache::srcpkgcache"] {
        text.push_str(&format!("{key} \"\";\n"));
    }
    for (key, path) in KEYS.iter().zip(keys) {
        text.push_str(&format!("{key} \"{path}\";\n"));
    }
    // The sandbox user cannot reach a cache below a private home folder; apt would warn and continue as root.
    text.push_str(
        "APT::Architecture \"amd64\";\nAPT::Architectures \"amd64\";\nAPT::Sandbox::User \"root\";\nAPT::Update::Error-Mode \"any\";\n\
         Acquire::Languages \"none\";\nAcquire::PDiffs \"false\";\nAcquire::GzipIndexes \"true\";\n",
    );
    if !machine.iter().any(|(k, _)| k == "Acquire::Retries") {
        text.push_str("Acquire::Retries \"2\";\n");
    }
    text
}

const KEYS: [&str; 4] = ["Dir::Etc::netrc", "Dir::Etc::netrcparts", "Dir::Etc::trusted", "Dir::Etc::trustedparts"];

/// All settings of the machine's configuration; the keys of list items end in `::`.
pub(super) fn config_dump() -> Result<Vec<(String, String)>, KernelError> {
    let mut command = Command::new("apt-config");
    command.args(["dump", "--no-empty", "--format", "%f%N%v%n"]);
    let text = run(command).map_err(no_config)?;
    Ok(text.lines().filter_map(|l| l.split_once('\t')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

/// Absolute paths: sources list, sources folder, methods folder, then those of `KEYS`.
pub(super) fn config_paths() -> Result<[String; 7], KernelError> {
    let wanted = ["Dir::Etc::sourcelist/f", "Dir::Etc::sourceparts/d", "Dir::Bin::methods/f"].map(str::to_owned);
    let kinds = ["f", "d", "f", "d"];
    let keys = KEYS.iter().zip(kinds).map(|(k, kind)| format!("{k}/{kind}"));
    let mut command = Command::new("apt-config");
    command.arg("shell");
    for (i, key) in wanted.into_iter().chain(keys).enumerate() {
        command.arg(format!("V{i}")).arg(key);
    }
    let text = run(command).map_err(no_config)?;
    let value = |i: usize| {
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("V{i}=")));
        line.unwrap_or_default().trim_matches('\'').replace("'\"'\"'", "'")
    };
    Ok(std::array::from_fn(value))
}

fn no_config(failure: Failure) -> KernelError {
    match failure {
        Failure::Missing(name) => KernelError::NoApt(name),
        Failure::Said(text) => KernelError::Update(format!("apt-config: {text}")),
    }
}

pub(super) fn machine_sources(list: &Path, parts: &Path) -> Vec<Source> {
    let mut files = vec![list.to_path_buf()];
    if let Ok(entries) = fs::read_dir(parts) {
        let mut more: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        more.sort();
        files.extend(more);
    }
    let mut found: Vec<Source> = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let sources = match file.extension().and_then(|e| e.to_str()) {
            Some("list") => sources::read_list(&text),
            Some("sources") => sources::read_deb822(&text),
            _ => continue,
        };
        for source in sources {
            if !found.iter().any(|f| f.uris == source.uris && f.suite == source.suite) {
                found.push(source);
            }
        }
    }
    found
}
