//! Real kernels from Debian's archive, by this machine's apt, into an empty cache.
//!
//! Skipped, saying so, where apt has no source of Debian's archive or cannot reach it; `BIGIRON_TEST_KERNELS` names other kernels to try
//! than those of the plan's two series.

use std::io::Write as _;
use std::process::Command;

use bigiron_archive::{Kernel, KernelError, KernelSpec, Store, modules};

/// Modules that guests load; which of them are built in differs from kernel to kernel.
const WANTED: [&str; 8] = ["null_blk", "ext4", "xfs", "brd", "virtio_blk", "virtio_pci", "configfs", "crc32c"];

fn note(text: &str) {
    eprintln!("{text}");
}

fn fetch(store: &Store, spec: &str) -> Option<Kernel> {
    match store.resolve(&KernelSpec::parse(spec).unwrap(), &note) {
        Ok(kernel) => Some(kernel),
        Err(error @ (KernelError::NoApt(_) | KernelError::NoSource { .. } | KernelError::Update(_))) => {
            // Not by `eprintln!`, which the harness shows of failed tests alone.
            let _ = writeln!(std::io::stderr(), "SKIPPED kernels of Debian: {error}");
            None
        }
        Err(error) => panic!("{spec}: {error}"),
    }
}

#[test]
fn kernels_of_debian_are_fetched_unpacked_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path()).unwrap();
    let specs = std::env::var("BIGIRON_TEST_KERNELS").unwrap_or_else(|_| "debian:6.1 debian:6.12".to_owned());
    for spec in specs.split_whitespace() {
        let begun = std::time::Instant::now();
        let Some(kernel) = fetch(&store, spec) else { return };
        eprintln!("{spec}: {} in {:.1} s", kernel.identity.release, begun.elapsed().as_secs_f64());
        let series = spec.trim_start_matches("debian:").split('/').next().unwrap();
        assert!(kernel.identity.release.starts_with(&format!("{series}.")), "{spec}: {:?}", kernel.identity);
        assert!(kernel.identity.package.as_ref().unwrap().contains(&kernel.identity.release));
        assert!(kernel.config.as_ref().unwrap().is_file());
        assert_eq!(kernel.symbols, None, "Debian's System.map is a stub");

        let files = modules::load_order(&kernel, &WANTED).unwrap();
        let names: Vec<&str> = files.iter().map(|f| f.name.as_str()).collect();
        eprintln!(
            "{spec}: {}",
            files
                .iter()
                .map(|f| format!("{}{}", f.name, if f.optional { "?" } else { "" }))
                .collect::<Vec<_>>()
                .join(" ")
        );
        assert!(names.contains(&"null_blk") && names.contains(&"xfs"), "{names:?}");
        assert!(modules::resolve(kernel.modules.as_ref().unwrap(), "1.2.3", &["null_blk"]).is_err());
        let error = modules::load_order(&kernel, &["no_such_module"]).unwrap_err().to_string();
        assert!(error.contains("no_such_module") && error.contains(&kernel.identity.release), "{error}");

        // Without a network now: the same kernel, by content and by name.
        let again = store.get(&kernel.identity).unwrap();
        assert_eq!(again.image, kernel.image);
        let begun = std::time::Instant::now();
        assert_eq!(fetch(&store, spec).unwrap().identity, kernel.identity);
        eprintln!("{spec}: again in {:.3} s", begun.elapsed().as_secs_f64());
    }
    for entry in store.list().unwrap() {
        eprintln!(
            "{} {} {} MB, {} modules, from {}",
            entry.spec,
            entry.release,
            entry.bytes / 1_000_000,
            entry.modules,
            entry.from
        );
    }
    let size = Command::new("du").arg("-sm").arg(dir.path().join("apt")).output().unwrap();
    eprintln!("package lists, MB: {}", String::from_utf8_lossy(&size.stdout).trim());
}
