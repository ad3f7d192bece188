//! The notices of the libraries in a static executable, which their licences require.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// The parts that are not crates.
const OTHERS: &str = "The executable also contains musl (MIT, Copyright 2005-2020 Rich Felker and others) and the Rust standard library (MIT\n\
    OR Apache-2.0, The Rust Project Developers).\n";

#[derive(clap::Args)]
pub struct Args {
    /// File to write
    file: PathBuf,
    /// Manifest of the executable's package
    #[arg(long, default_value = "Cargo.toml")]
    manifest_path: PathBuf,
}

/// A part of the output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    root: String,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None` is a normal dependency.
    kind: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = notices(&metadata(&args.manifest_path)?)?;
    let folder = args.file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("Cannot create `{}`", folder.display()))?;
    fs::write(&args.file, text).with_context(|| format!("Cannot write `{}`", args.file.display()))
}

fn metadata(manifest: &Path) -> anyhow::Result<Metadata> {
    let args = ["metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-musl"];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output =
        Command::new(cargo).args(args).arg("--manifest-path").arg(manifest).output().context("Cannot run cargo")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The crates that are linked into the executable, apart from bigiron's own.
fn linked(metadata: &Metadata) -> Vec<&Package> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    // A procedural macro and its dependencies stay in the compiler.
    let is_macro = |p: &Package| p.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"));
    let mut open = vec![metadata.resolve.root.as_str()];
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        let (Some(package), Some(node)) = (packages.get(id), nodes.get(id)) else { continue };
        if is_macro(package) || !found.insert(id) {
            continue;
        }
        let normal = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        open.extend(normal.map(|dep| dep.pkg.as_str()));
    }
    let mut linked: Vec<&Package> =
        found.into_iter().map(|id| packages[id]).filter(|package| package.source.is_some()).collect();
    linked.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    linked
}

/// The texts of a crate's licence; of several alternatives, the MIT licence.
fn texts(package: &Package) -> anyhow::Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    let mut files: Vec<(String, PathBuf)> = fs::read_dir(folder)?
        .filter_map(|entry| Some((entry.as_ref().ok()?.file_name().to_str()?.to_ascii_uppercase(), entry.ok()?.path())))
        .filter(|(name, path)| {
            let starts = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
            path.is_file() && starts.iter().any(|start| name.starts_with(start))
        })
        .collect();
    files.sort();
    let has_choice =
        package.license.as_deref().is_some_and(|license| license.contains(" OR ") || license.contains('/'));
    if let Some(mit) = files.iter().find(|(name, _)| has_choice && name.contains("MIT")) {
        files = vec![mit.clone()];
    }
    let read = |(_, path): &(String, PathBuf)| Ok(String::from_utf8_lossy(&fs::read(path)?).trim_end().to_owned());
    files.iter().map(read).collect()
}

fn notices(metadata: &Metadata) -> anyhow::Result<String> {
    let linked = linked(metadata);
    let mut list = String::new();
    let mut by_text: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for package in &linked {
        let license = package.license.as_deref().unwrap_or("see its text");
        let _ = writeln!(list, "{} {}: {license}", package.name, package.version);
        for text in texts(package)? {
            by_text.entry(text).or_default().push(&package.name);
        }
    }
    let mut texts: Vec<(Vec<&str>, String)> = by_text.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    let root = metadata.packages.iter().find(|p| p.id == metadata.resolve.root);
    let title = format!("Libraries in {}", root.map_or("the executable", |p| p.name.as_str()));
    let sqlite = match linked.iter().any(|package| package.name == "libsqlite3-sys") {
        true => "It contains SQLite, which is in the public domain.\n",
        false => "",
    };
    let mut out = format!("{title}\n{}\n\n{OTHERS}{sqlite}\n{list}", "=".repeat(title.len()));
    for (names, text) in texts {
        let _ = write!(out, "\n{}\n{}\n\n{text}\n", "-".repeat(78), names.join(", "));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linked_crate_is_named_and_others_are_not() {
        let text = notices(&metadata(Path::new("../Cargo.toml")).unwrap()).unwrap();
        assert!(text.starts_with("Libraries in bigiron\n====================\n"), "{text}");
        assert!(text.contains("SQLite, which is in the public domain"));
        let named = |name: &str| text.lines().any(|line| line.starts_with(&format!("{name} ")));
        for name in ["clap_builder", "rustls", "ring", "rusqlite", "serde_json"] {
            assert!(named(name), "{name}");
        }
        for name in ["bigiron", "proptest", "syn", "clap_mangen", "serde_derive"] {
            assert!(!named(name), "{name}");
        }
        assert!(text.matches("THE SOFTWARE IS PROVIDED \"AS IS\"").count() > 20);
    }
}
