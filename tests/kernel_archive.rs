//! `debian:` and `ubuntu:` kernels out of a small archive on disk, by the real apt: what is picked, what is refused, and what happens when the archive is gone.

mod small_archive;

use std::fs;

use bigiron_archive::{KernelSpec, Store};
use small_archive::{Archive, has};

/// Resolve the kernels named in the environment and print what became of each, and every note.
#[test]
#[ignore = "run by the other tests with an environment of its own"]
fn resolve_in_this_environment() {
    let store = Store::open().unwrap();
    for spec in std::env::var("KERNELS").unwrap().split_whitespace() {
        let spec = KernelSpec::parse(spec).unwrap();
        match store.resolve(&spec, &|note| println!("note: {note}")) {
            Ok(kernel) => println!("{spec} = {}", kernel.identity.package.unwrap()),
            Err(error) => println!("{spec} ! {error}"),
        }
    }
}

/// What the test above says of these kernels in a process whose archive this is.
fn resolve(archive: &Archive, kernels: &str) -> String {
    let done = archive
        .in_this_environment(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "resolve_in_this_environment", "--nocapture", "--test-threads=1"])
        .env("KERNELS", kernels)
        .output()
        .unwrap();
    assert!(!archive.dir.path().join("hook-ran").exists());
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
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
    let said = resolve(&archive, "debian:6.1 debian:6.1.90 debian:6.1/amd64 debian:7.2 debian:9.9");
    has(&said, "debian:6.1 = linux-image-6.1.0-10-cloud-amd64 6.1.100-1\n");
    has(&said, "debian:6.1.90 = linux-image-6.1.0-9-cloud-amd64 6.1.90-1\n");
    has(&said, "debian:6.1/amd64 = linux-image-6.1.0-11-amd64 6.1.110-1\n");
    has(&said, "debian:7.2 = linux-image-7.2.9+deb13-cloud-amd64 7.2.9-1~bpo13+1\n");
    assert!(!said.contains("Not in the archive"), "{said}");
    has(
        &said,
        "debian:9.9 ! Debian's archive has no kernel `9.9` of flavour `cloud-amd64`; available series: 6.1, 7.2\n",
    );
    has(
        &resolve(&archive, "debian:6.1.2"),
        "debian:6.1.2 ! Debian's archive has no kernel `6.1.2` of flavour `cloud-amd64`; available versions of 6.1: 6.1.90-1, 6.1.100-1, 6.1.200-1\n",
    );
}

#[test]
fn kernels_of_ubuntu_are_an_image_and_its_modules() {
    let archive = Archive::with_sources(&["noble-updates", "noble-proposed"]);
    archive
        .suite(
            "noble-updates",
            "Ubuntu",
            &[
                ("6.8.0-49-generic", "6.8.0-49.49"),
                ("6.8.0-50-generic", "6.8.0-50.51"),
                ("6.11.0-9-generic", "6.11.0-9.9~24.04.1"),
                ("6.8.0-1021-aws", "6.8.0-1021.23"),
            ],
        )
        .suite("resolute", "Ubuntu", &[("7.0.0-14-generic", "7.0.0-14.14")])
        .suite("jammy", "Somebody", &[("5.15.0-100-generic", "5.15.0-100.110")]);
    let said = resolve(
        &archive,
        "ubuntu:24.04 ubuntu:6.8.0-49 ubuntu:6.11 ubuntu:noble/aws ubuntu:26.04 latest previous ubuntu:22.04 debian:12",
    );
    has(&said, "ubuntu:6.8 = linux-image-6.8.0-50-generic 6.8.0-50.51\n");
    has(&said, "ubuntu:6.8.0-49 = linux-image-6.8.0-49-generic 6.8.0-49.49\n");
    has(&said, "ubuntu:6.11 = linux-image-6.11.0-9-generic 6.11.0-9.9~24.04.1\n");
    has(&said, "ubuntu:6.8/aws = linux-image-6.8.0-1021-aws 6.8.0-1021.23\n");
    has(&said, "ubuntu:7.0 = linux-image-7.0.0-14-generic 7.0.0-14.14\n");
    has(&said, "latest = linux-image-7.0.0-14-generic 7.0.0-14.14\n");
    has(&said, "previous = linux-image-6.11.0-9-generic 6.11.0-9.9~24.04.1\n");
    has(
        &said,
        "ubuntu:5.15 ! Ubuntu's archive has no kernel `5.15` of flavour `generic`; available series: 6.8, 6.11, 7.0; of this machine's suites, the archive has no noble-proposed\n",
    );
    has(&said, "debian:6.1 ! `debian:` kernels need Debian's archive among this machine's apt sources");
    let entry = fs::read_dir(archive.dir.path().join("cache/kernels")).unwrap().next().unwrap().unwrap().path();
    assert!(entry.join("config").exists(), "the configuration comes with the modules");
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
    has(&resolve(&archive, "debian:6.1"), "debian:6.1 = linux-image-6.1.0-9-cloud-amd64 6.1.90-1\n");
    assert_eq!(fs::read(at("precious")).unwrap(), b"precious");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(at("cache/apt/apt.conf")).unwrap());
    assert_eq!(mode & 0o777, 0o600, "it may have a proxy's password");
}

#[test]
fn what_is_in_the_cache_serves_when_the_archive_is_gone() {
    let archive = Archive::new();
    archive.suite("bookworm", "Debian", &[("6.1.0-9-cloud-amd64", "6.1.90-1")]);
    has(&resolve(&archive, "debian:6.1"), "debian:6.1 = linux-image-6.1.0-9-cloud-amd64 6.1.90-1\n");
    fs::remove_dir_all(archive.dir.path().join("repo")).unwrap();
    // Fresh lists: nothing is asked. Lists gone: what is here is used, and that is said.
    let said = resolve(&archive, "debian:6.1 debian:6.1.90");
    assert!(!said.contains("note:"), "{said}");
    fs::remove_dir_all(archive.dir.path().join("cache/apt")).unwrap();
    let said = resolve(&archive, "debian:6.1 debian:6.12");
    has(
        &said,
        "note: Using 6.1.0-9-cloud-amd64 from the cache; there may be a newer one: Cannot read the archive's package lists",
    );
    has(&said, "debian:6.1 = linux-image-6.1.0-9-cloud-amd64 6.1.90-1\n");
    has(&said, "debian:6.12 ! Cannot read the archive's package lists");
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
    let said = resolve(&archive, "debian:6.1");
    has(&said, "debian:6.1 ! Cannot download `linux-image-6.1.0-9-cloud-amd64`");
    has(&said, "mismatch");
    assert_eq!(fs::read_dir(archive.dir.path().join("cache/tmp")).unwrap().count(), 0);
    assert!(!archive.dir.path().join("cache/kernels").exists());
}

#[test]
fn an_upgrade_is_looked_for_in_the_machines_own_suites() {
    let archive = Archive::new();
    let both = |release: &str, version: &str| {
        ["amd64", "cloud-amd64"].map(|flavour| (format!("{release}-{flavour}"), version.to_owned()))
    };
    let put = |suite: &str, kernels: Vec<(String, String)>| {
        let kernels: Vec<(&str, &str)> = kernels.iter().map(|(r, v)| (r.as_str(), v.as_str())).collect();
        archive.suite(suite, "Debian", &kernels);
    };
    put("bookworm", [both("98.1.5+deb12", "98.1.5-1~deb12u1"), both("98.1.4+deb12", "98.1.4-1")].concat());
    put("sid", both("99.2.1+deb14", "99.2.1-1").to_vec());
    let check = |words: &[&str]| {
        let mut command = archive.in_this_environment(env!("CARGO_BIN_EXE_bigiron"));
        let done = command.args(["upgrade-check", "--dry-run"]).args(words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let said = check(&["--seed", "7", "--quick"]);
    has(&said, "The newest kernel available to it is `debian:98.1.5-1~deb12u1");
    has(&said, "`--to debian:99.2.1-1");
    has(&said, "\n  bigiron compare ");
    has(&said, "--quick --seed=7");
    has(&check(&["--to", "debian:6.12", "oltp"]), " debian:6.12 oltp\n");
    assert!(!archive.dir.path().join("cache/kernels").exists(), "nothing is fetched");
}
