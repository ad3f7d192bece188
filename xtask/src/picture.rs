//! The picture of the architecture: the crates in their layers, from their `Cargo.toml`s. Written to docs/architecture.svg.
//!
//! A crate stands one layer above the highest crate that it uses. Arrows point to what a crate uses, except what another arrow implies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

#[derive(clap::Args)]
pub struct Args {
    /// File to write
    #[arg(default_value = "docs/architecture.svg")]
    file: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = picture(&read(Path::new("."))?);
    fs::write(&args.file, text).with_context(|| format!("Cannot write `{}`", args.file.display()))
}

/// The part of a `Cargo.toml` that is drawn.
#[derive(Deserialize)]
struct Manifest {
    package: Package,
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
    #[serde(default, rename = "build-dependencies")]
    build: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    description: String,
}

/// A crate of the workspace.
struct Crate {
    /// Without `bigiron-`.
    name: String,
    description: String,
    uses: BTreeSet<String>,
}

/// The crates below `crates/` and the executable's own.
fn read(root: &Path) -> anyhow::Result<Vec<Crate>> {
    let folder = root.join("crates");
    let mut files = vec![root.join("Cargo.toml")];
    for entry in fs::read_dir(&folder).with_context(|| format!("Cannot read `{}`", folder.display()))? {
        files.push(entry?.path().join("Cargo.toml"));
    }
    files.sort();
    files.iter().map(|file| one(file).with_context(|| format!("Cannot use `{}`", file.display()))).collect()
}

fn one(file: &Path) -> anyhow::Result<Crate> {
    let manifest: Manifest = toml::from_str(&fs::read_to_string(file)?)?;
    let short = |name: &str| name.strip_prefix("bigiron-").map(str::to_owned);
    let uses = manifest.dependencies.keys().chain(manifest.build.keys()).filter_map(|name| short(name)).collect();
    let name = short(&manifest.package.name).unwrap_or(manifest.package.name);
    Ok(Crate { name, description: manifest.package.description, uses })
}

/// Everything that a crate uses, also by way of others.
fn reach<'a>(crates: &'a [Crate], name: &str, found: &mut BTreeSet<&'a str>) {
    for used in crates.iter().filter(|c| c.name == name).flat_map(|c| &c.uses) {
        if found.insert(used) {
            reach(crates, used, found);
        }
    }
}

fn layer(crates: &[Crate], name: &str) -> usize {
    let uses = crates.iter().filter(|c| c.name == name).flat_map(|c| &c.uses);
    uses.map(|used| 1 + layer(crates, used)).max().unwrap_or(0)
}

/// Size of a box, and the gaps between boxes, in pixels.
const BOX: (usize, usize) = (184, 104);
const GAP: (usize, usize) = (16, 44);
/// Letters in a line of a box.
const LETTERS: usize = 27;

fn picture(crates: &[Crate]) -> String {
    let layers: BTreeMap<&str, usize> = crates.iter().map(|c| (c.name.as_str(), layer(crates, &c.name))).collect();
    let height = layers.values().max().map_or(0, |top| top + 1);
    let mut rows: Vec<Vec<&Crate>> =
        (0..height).map(|row| crates.iter().filter(|c| layers[c.name.as_str()] == row).collect()).collect();
    let widest = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = widest * (BOX.0 + GAP.0) + GAP.0;
    let total = height * (BOX.1 + GAP.1);
    let mut at: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (row, members) in rows.iter_mut().enumerate() {
        // Each above the middle of what it uses, so that few arrows cross.
        let middle = |c: &Crate| {
            let below: Vec<usize> = c.uses.iter().filter_map(|used| at.get(used.as_str())).map(|(x, _)| *x).collect();
            below.iter().sum::<usize>() / below.len().max(1)
        };
        members.sort_by_key(|c| (middle(c), c.name.clone()));
        let left = (width - (members.len() * (BOX.0 + GAP.0) - GAP.0)) / 2;
        let y = total - (row + 1) * (BOX.1 + GAP.1) + GAP.1 / 2;
        let places: Vec<_> =
            members.iter().enumerate().map(|(i, c)| (c.name.as_str(), (left + i * (BOX.0 + GAP.0), y))).collect();
        at.extend(places);
    }
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{total}\" viewBox=\"0 0 {width} {total}\">\
         <style>svg text{{font:11px \"DejaVu Sans\",sans-serif;fill:#47515c}}text.name{{font-weight:bold;font-size:13px;fill:#16191d}}\
         rect.crate{{fill:#f6f8fa;stroke:#8b949e}}path{{stroke:#8b949e;fill:none}}path.head{{fill:#8b949e;stroke:none}}</style>\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n<rect width=\"{width}\" height=\"{total}\" fill=\"#fff\"/>\n"
    );
    for c in crates {
        for used in direct(crates, c) {
            let (from, to) = (at[c.name.as_str()], at[used]);
            let (x1, y1, x2, y2) = (from.0 + BOX.0 / 2, from.1 + BOX.1, to.0 + BOX.0 / 2, to.1);
            let bend = (y2 - y1) / 2;
            // It passes behind other boxes.
            let dash = if bend > BOX.1 / 2 { " stroke-dasharray=\"4 3\"" } else { "" };
            let _ = writeln!(
                out,
                "<path{dash} marker-end=\"url(#head)\" d=\"M{x1} {y1}C{x1} {} {x2} {} {x2} {y2}\"/>",
                y1 + bend,
                y2 - bend
            );
        }
    }
    for c in crates {
        let (x, y) = at[c.name.as_str()];
        let _ = writeln!(
            out,
            "<rect class=\"crate\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"4\"/><text class=\"name\" x=\"{}\" y=\"{}\">{}</text>",
            BOX.0,
            BOX.1,
            x + 8,
            y + 18,
            c.name
        );
        for (i, line) in wrapped(&c.description).iter().enumerate() {
            let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", x + 8, y + 34 + i * 14, escaped(line));
        }
    }
    out.push_str("</svg>\n");
    out
}

/// What a crate uses and no crate that it uses does.
fn direct<'a>(crates: &'a [Crate], of: &'a Crate) -> Vec<&'a str> {
    let mut implied = BTreeSet::new();
    for used in &of.uses {
        reach(crates, used, &mut implied);
    }
    of.uses.iter().map(String::as_str).filter(|used| !implied.contains(used)).collect()
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > LETTERS {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_in_the_docs_is_of_todays_crates() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let committed = fs::read_to_string(root.join("docs/architecture.svg")).unwrap();
        assert!(committed == picture(&read(&root).unwrap()), "run `cargo xtask picture`");
    }

    #[test]
    fn every_description_fits_its_box() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for c in read(&root).unwrap() {
            let lines = wrapped(&c.description);
            assert!(lines.len() <= 5 && lines.iter().all(|line| line.len() <= LETTERS), "{}: {lines:?}", c.name);
        }
    }
}
