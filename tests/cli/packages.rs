//! What a registry or a packager gets: each crate has the files that it includes, and says what it is.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folders of the crates that are published.
fn crates() -> Vec<PathBuf> {
    let mut crates: Vec<PathBuf> =
        fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    crates.push(root().to_owned());
    crates
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part.as_os_str() == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn a_crate_includes_only_files_of_its_own_folder() {
    let mut count = 0;
    for folder in crates() {
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            // Tests are not part of what a user of the package builds.
            let is_test = file.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
            let code = if is_test { "" } else { text.split("#[cfg(test)]\nmod ").next().unwrap() };
            for macro_name in ["include_str!(\"", "include_bytes!(\"", "shipped!(\""] {
                for included in code.split(macro_name).skip(1).map(|rest| rest.split('"').next().unwrap()) {
                    let path = plain(&file.parent().unwrap().join(included));
                    assert!(path.starts_with(&folder), "{} includes {included}", file.display());
                    count += 1;
                }
            }
        }
    }
    assert!(count > 10, "{count}");
}

#[test]
fn manifests_are_complete() {
    let read =
        |folder: &Path| -> toml::Table { fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap() };
    for folder in crates() {
        let manifest = read(&folder);
        let package = manifest["package"].as_table().unwrap();
        for key in ["name", "description", "version", "edition", "rust-version", "license", "keywords", "categories"] {
            assert!(package.contains_key(key), "{}: no {key}", folder.display());
        }
        assert!(!package.contains_key("publish"), "{}", folder.display());
    }
    // A dependency that has only a path cannot be found by who builds the package.
    let workspace = read(root());
    let version = workspace["workspace"]["package"]["version"].as_str().unwrap();
    let dependencies = workspace["workspace"]["dependencies"].as_table().unwrap();
    let own: Vec<_> = dependencies.iter().filter(|(_, dependency)| dependency.get("path").is_some()).collect();
    assert_eq!(own.len(), crates().len() - 1);
    for (name, dependency) in own {
        assert_eq!(dependency.get("version").and_then(toml::Value::as_str), Some(version), "{name}");
    }
}

#[test]
fn what_the_debian_package_contains_is_in_the_repository_or_made_by_the_makefile() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
    assert!(assets.len() > 5);
    for asset in assets {
        let path = asset[0].as_str().unwrap();
        assert!(path.starts_with("target/") || root().join(path).is_file(), "{path}");
    }
}
