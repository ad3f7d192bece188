//! A small archive on disk, for the real apt.
//!
//! apt takes its configuration from the environment, so each case runs a program with an environment of its own.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// An archive of Debian's or Ubuntu's form in a folder, the configuration of an apt that has it as its only source, and a cache.
pub struct Archive {
    pub dir: tempfile::TempDir,
}

impl Archive {
    /// An archive for which the machine has `bookworm` among its sources.
    pub fn new() -> Self {
        Self::with_sources(&["bookworm"])
    }

    /// An archive for which the machine has these suites among its sources.
    pub fn with_sources(suites: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["repo", "parts", "cache"] {
            fs::create_dir(at(name)).unwrap();
        }
        let repo = at("repo");
        let source = |suite: &&str| format!("deb [trusted=yes] file:{} {suite} main\n", repo.display());
        let sources: String = suites.iter().map(source).collect();
        fs::write(at("parts/machine.list"), sources).unwrap();
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

    /// Put a suite there, with kernels given as release and version. Ubuntu's are split into an image and its modules.
    pub fn suite(&self, suite: &str, origin: &str, kernels: &[(&str, &str)]) -> &Self {
        let repo = self.dir.path().join("repo");
        let dists = repo.join("dists").join(suite);
        let index = dists.join("main/binary-amd64");
        fs::create_dir_all(&index).unwrap();
        fs::create_dir_all(repo.join("pool")).unwrap();
        let mut packages = String::new();
        for (release, version) in kernels {
            let modules = format!("linux-modules-{release}");
            let is_split = origin == "Ubuntu";
            let depends = if is_split { format!("Depends: kmod, {modules}\n") } else { String::new() };
            let image = format!("boot/vmlinuz-{release}");
            let mut package = |name: &str, depends: &str, holds: &str, bytes: &[u8]| {
                let file = format!("pool/{name}_{version}.deb");
                let fields = format!("Package: {name}\nVersion: {version}\nArchitecture: amd64\n{depends}");
                build_deb(&repo.join(&file), &fields, holds, bytes);
                let size = fs::metadata(repo.join(&file)).unwrap().len();
                let sha256 = sha256(&repo.join(&file));
                packages.push_str(&format!(
                    "{fields}Installed-Size: 10\nFilename: {file}\nSize: {size}\nSHA256: {sha256}\n\n"
                ));
            };
            package(&format!("linux-image-{release}"), &depends, &image, &header(release));
            if is_split {
                package(&modules, "", &format!("boot/config-{release}"), b"CONFIG_X86_64=y\n");
            }
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

    /// A program for which this is the machine's archive.
    pub fn in_this_environment(&self, program: impl AsRef<OsStr>) -> Command {
        let at = |name: &str| self.dir.path().join(name);
        let mut command = Command::new(program);
        command.env("APT_CONFIG", at("apt.conf")).env("BIGIRON_CACHE", at("cache")).env("no_proxy", "127.0.0.1");
        command
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

/// A bzImage of `release` that is a header and nothing else.
fn header(release: &str) -> Vec<u8> {
    let mut image = vec![0; 0x440];
    // What no compression makes smaller.
    let mut word = 1u64;
    image.extend(
        std::iter::repeat_with(|| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (word >> 56) as u8
        })
        .take(200_000),
    );
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
    image
}

/// A package with these fields that holds one file.
fn build_deb(path: &Path, fields: &str, file: &str, bytes: &[u8]) {
    let pack = |file: &str, bytes: &[u8]| {
        let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, file, bytes).unwrap();
        builder.into_inner().unwrap().finish().unwrap()
    };
    let mut builder = ar::Builder::new(fs::File::create(path).unwrap());
    for (member, bytes) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", pack("./control", fields.as_bytes())),
        ("data.tar.gz", pack(&format!("./{file}"), bytes)),
    ] {
        builder.append(&ar::Header::new(member.into(), bytes.len() as u64), &bytes[..]).unwrap();
    }
}

#[track_caller]
pub fn has(text: &str, line: &str) {
    assert!(text.contains(line), "no `{line}` in:\n{text}");
}
