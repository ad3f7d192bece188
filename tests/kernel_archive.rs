//! `debian:` kernels out of a small archive on disk, by the real apt: what is picked, what is refused, and what happens when the archive is gone.
//!
//! apt takes its configuration from the environment, so each case runs this executable again with an environment of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use bigiron_archive::{KernelSpec, Store};

/// Resolve the kernels named in the environment and print what became of each, and every note.
#[test]
#[ignore = "run by the other tests with an environment of its own"]
fn resolve_in_this_environment() {
    let store = Store::open().unwrap();
    for spec in std::env::var("KERNELS").unwrap().split_whitespace() {
        match store.resolve(&KernelSpec::parse(spec).unwrap(), &|note| println!("note: {note}")) {
            Ok(kernel) => println!("{spec} = {}", kernel.identity.package.unwrap()),
            Err(error) => println!("{spec} ! {error}"),
        }
    }
}

struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    /// An archive for which the machine has `bookworm` among its sources.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["repo", "parts", "cache"] {
            fs::create_dir(at(name)).unwrap();
        }
        let sources = format!("deb [trusted=yes] file:{} bookworm main\n", at("repo").display());
        fs::write(at("parts/debian.list"), sources).unwrap();
        // A hook must not run, and a source of somebody else's must not be asked.
        fs::write(at("parts/other.list"), "deb [trusted=yes] file:/nonexistent bookworm-pgdg main\n").unwrap();
        let conf = format!(
            "Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"{}\";\nAPT::Update::Pre-Invoke {{ \"touch {}\"; }};\n",
            at("parts").display(),
            at("hook-ran").display()
        );
        fs::write(at("apt.conf"), conf).unwrap();
        Self { dir }
    }

    /// Put a suite there, with kernels given as release and version.
    fn suite(&self, suite: &str, origin: &str, kernels: &[(&str, &str)]) -> &Self {
        let repo = self.dir.path().join("repo");
        let dists = repo.join("dists").join(suite);
        let index = dists.join("main/binary-amd64");
        fs::create_dir_all(&index).unwrap();
        fs::create_dir_all(repo.join("pool")).unwrap();
        let mut packages = String::new();
        for (release, version) in kernels {
            let name = format!("linux-image-{release}");
            let file = format!("pool/{name}_{version}.deb");
            build_deb(&repo.join(&file), &name, version, release);
            let size = fs::metadata(repo.join(&file)).unwrap().len();
            let sha256 = sha256(&repo.join(&file));
            packages.push_str(&format!(
                "Package: {name}\nVersion: {version}\nArchitecture: amd64\nInstalled-Size: 10\nFilename: {file}\nSize: {size}\nSHA256: {sha256}\n\n"
            ));
        }
        let path = index.join("Packages");
        fs::write(&path, &packages).unwrap();
        let release = format!(
            "Origin: {origin}\nSuite: {suite}\nCodename: {suite}\nComponents: main\nArchitectures: amd64\nDate: {}\nSHA256:\n {} {} main/binary-amd64/Packages\n",
            output(Command::new("date").args(["-u", "-R"]).env("LC_ALL", "C")).trim().replace("+0000", "UTC"),
            sha256(&path),
            packages.len()
        );
        fs::write(dists.join("Release"), release).unwrap();
        self
    }

    fn resolve(&self, kernels: &str) -> String {
        let at = |name: &str| self.dir.path().join(name);
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "resolve_in_this_environment", "--nocapture", "--test-threads=1"])
            .env("APT_CONFIG", at("apt.conf"))
            .env("BIGIRON_CACHE", at("cache"))
            .env("KERNELS", kernels)
            .output()
            .unwrap();
        assert!(!at("hook-ran").exists());
        text(done)
    }
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn output(command: &mut Command) -> String {
    text(command.output().unwrap())
}

fn sha256(path: &Path) -> String {
    output(Command::new("sha256sum").arg(path)).split_whitespace().next().unwrap().to_owned()
}

/// A package with a bzImage of `release` that is a header and nothing else.
fn build_deb(path: &Path, name: &str, version: &str, release: &str) {
    let mut image = vec![0; 0x440];
    for (at, bytes) in [
        (0x1f1, &[1][..]),
        (0x1f4, &[4]),
        (0x1fe, &[0x55, 0xaa]),
        (0x202, b"HdrS\x0f\x02"),
        (0x20e, &[0, 1]),
        (0x211, &[1]),
        (0x236, &[1]),
        (0x300, release.as_bytes()),
    ] {
        image[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let pack = |file: &str, bytes: &[u8]| {
        let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, file, bytes).unwrap();
        builder.into_inner().unwrap().finish().unwrap()
    };
    let control = format!("Package: {name}\nVersion: {version}\nArchitecture: amd64\n");
    let mut builder = ar::Builder::new(fs::File::create(path).unwrap());
    for (member, bytes) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", pack("./control", control.as_bytes())),
        ("data.tar.gz", pack(&format!("./boot/vmlinuz-{release}"), &image)),
    ] {
        builder.append(&ar::Header::new(member.into(), bytes.len() as u64), &bytes[..]).unwrap();
    }
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.contains(line), "no `{line}` in:\n{text}");
}

#[test]
fn newest_of_the_machines_own_suites_then_of_others() {
    let archive = Archive::new();
    archive
        .suite(
            "bookworm",
            "Debian",
            &[
                ("6.1.0-9-cloud-amd64", "6.1.90-1"),
                ("6.1.0-10-cloud-amd64", "6.1.100-1"),
                ("6.1.0-11-amd64", "6.1.110-1"),
            ],
        )
        .suite("sid", "Debian", &[("6.1.200+deb14-cloud-amd64", "6.1.200-1"), ("7.2.1+deb14-cloud-amd64", "7.2.1-1")])
        .suite("trixie-backports", "Debian Backports", &[("7.2.9+deb13-cloud-amd64", "7.2.9-1~bpo13+1")])
        .suite("trixie", "Somebody", &[("7.2.99-cloud-amd64", "7.2.99-1")]);
    let said = archive.resolve("debian:6.1 debian:6.1.90 debian:6.1/amd64 debian:7.2 debian:9.9");
    has(&said, "debian:6.1 = linux-image-6.1.0-10-cloud-amd64 6.1.100-1\n");
    has(&said, "debian:6.1.90 = linux-image-6.1.0-9-cloud-amd64 6.1.90-1\n");
    has(&said, "debian:6.1/amd64 = linux-image-6.1.0-11-amd64 6.1.110-1\n");
    has(&said, "debian:7.2 = linux-image-7.2.9+deb13-cloud-amd64 7.2.9-1~bpo13+1\n");
    has(&said, "note: Not in the archive, left out: ");
    has(&said, "debian:9.9 ! Debian has no kernel `9.9` of flavour `cloud-amd64` here; available series: 6.1, 7.2\n");
}

#[test]
fn nothing_that_was_planted_in_the_cache_runs_or_is_followed() {
    let archive = Archive::new();
    archive.suite("bookworm", "Debian", &[("6.1.0-9-cloud-amd64", "6.1.90-1")]);
    let at = |name: &str| archive.dir.path().join(name);
    fs::create_dir_all(at("cache/apt/empty")).unwrap();
    let hook = format!("APT::Update::Pre-Invoke {{ \"touch {}\"; }};\n", at("hook-ran").display());
    fs::write(at("cache/apt/empty/00x.conf"), &hook).unwrap();
    fs::write(at("cache/apt/apt.conf"), &hook).unwrap();
    fs::write(at("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(at("precious"), at("cache/apt/status")).unwrap();
    has(&archive.resolve("debian:6.1"), "debian:6.1 = linux-image-6.1.0-9-cloud-amd64 6.1.90-1\n");
    assert_eq!(fs::read(at("precious")).unwrap(), b"precious");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(at("cache/apt/apt.conf")).unwrap());
    assert_eq!(mode & 0o777, 0o600, "it may have a proxy's password");
}

#[test]
fn what_is_in_the_cache_serves_when_the_archive_is_gone() {
    let archive = Archive::new();
    archive.suite("bookworm", "Debian", &[("6.1.0-9-cloud-amd64", "6.1.90-1")]);
    has(&archive.resolve("debian:6.1"), "debian:6.1 = linux-image-6.1.0-9-cloud-amd64 6.1.90-1\n");
    fs::remove_dir_all(archive.dir.path().join("repo")).unwrap();
    // Fresh lists: nothing is asked. Lists gone: what is here is used, and that is said.
    let said = archive.resolve("debian:6.1 debian:6.1.90");
    assert!(!said.contains("note:"), "{said}");
    fs::remove_dir_all(archive.dir.path().join("cache/apt")).unwrap();
    let said = archive.resolve("debian:6.1 debian:6.12");
    has(
        &said,
        "note: Using 6.1.0-9-cloud-amd64 from the cache; there may be a newer one: Cannot read Debian's package lists",
    );
    has(&said, "debian:6.1 = linux-image-6.1.0-9-cloud-amd64 6.1.90-1\n");
    has(&said, "debian:6.12 ! Cannot read Debian's package lists");
}

#[test]
fn a_package_that_is_not_what_the_list_says_is_refused() {
    let archive = Archive::new();
    archive.suite("bookworm", "Debian", &[("6.1.0-9-cloud-amd64", "6.1.90-1")]);
    let path = archive.dir.path().join("repo/pool/linux-image-6.1.0-9-cloud-amd64_6.1.90-1.deb");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let said = archive.resolve("debian:6.1");
    has(&said, "debian:6.1 ! Cannot download `linux-image-6.1.0-9-cloud-amd64`");
    has(&said, "mismatch");
    assert_eq!(fs::read_dir(archive.dir.path().join("cache/tmp")).unwrap().count(), 0);
    assert!(!archive.dir.path().join("cache/kernels").exists());
}
