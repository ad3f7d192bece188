use super::super::fixture;
use super::*;

const RELEASE: &str = "6.1.0-9-amd64";

fn quiet(_: &str) {}

/// A cache and a complete package.
fn place() -> (tempfile::TempDir, Store, KernelSpec) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(&dir.path().join("cache")).unwrap();
    let path = fixture::write(dir.path(), "linux-image.deb", &fixture::kernel_deb(RELEASE, ".xz"));
    (dir, store, KernelSpec::Deb(vec![path]))
}

#[test]
fn a_package_is_stored_once_and_found_by_content() {
    let (dir, store, spec) = place();
    let kernel = store.resolve(&spec, &quiet).unwrap();
    assert_eq!(kernel.identity.release, RELEASE);
    assert_eq!(kernel.identity.package.as_deref(), Some("linux-image-6.1.0-9-amd64 1.0-1"));
    fs::remove_file(dir.path().join("linux-image.deb")).unwrap();
    assert_eq!(store.get(&kernel.identity).unwrap().image, kernel.image);
    assert_eq!(store.list().unwrap().len(), 1);
    assert!(folder(&dir.path().join("cache/tmp")).unwrap().is_empty());
    let other = Identity { image_sha256: "0".repeat(64), ..kernel.identity };
    assert!(matches!(store.get(&other), Err(KernelError::NotCached { .. })));
}

#[test]
fn changed_bytes_are_refused() {
    let (_dir, store, spec) = place();
    let kernel = store.resolve(&spec, &quiet).unwrap();
    for path in [kernel.image, kernel.config.unwrap()] {
        let old = fs::read(&path).unwrap();
        fs::write(&path, b"changed").unwrap();
        let said = store.get(&kernel.identity).unwrap_err().to_string();
        assert!(said.contains("no longer holds the bytes") && said.contains(RELEASE), "{said}");
        fs::write(&path, old).unwrap();
    }
    store.get(&kernel.identity).unwrap();
}

#[test]
fn names_come_and_go() {
    let (_dir, store, spec) = place();
    for bad in ["running", "a/b", "", ".hidden", "x.deb", "debian:6.1"] {
        assert!(store.add(bad, &spec, None, &quiet).is_err(), "{bad}");
    }
    store.add("one", &spec, None, &quiet).unwrap();
    store.add("two", &KernelSpec::Named("one".into()), None, &quiet).unwrap();
    assert_eq!(store.names().unwrap(), ["one", "two"]);
    assert_eq!(store.remove("one").unwrap(), []);
    assert_eq!(store.resolve(&KernelSpec::Named("two".into()), &quiet).unwrap().identity.release, RELEASE);
    let gone = store.remove("two").unwrap();
    assert_eq!((gone.len(), store.list().unwrap().len()), (1, 0));
    let said = store.remove("two").unwrap_err().to_string();
    assert!(said.contains("`bigiron kernel list`"), "{said}");
}

#[test]
fn a_cache_that_others_may_fill_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, store, spec) = place();
    store.resolve(&spec, &quiet).unwrap();
    let cache = dir.path().join("cache");
    Store::at(&cache).unwrap();
    for path in [cache.clone(), cache.join("kernels")] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        for said in [Store::at(&cache).err().unwrap(), store.lock(&quiet).err().unwrap()] {
            let said = said.to_string();
            assert!(said.contains("other users may write to it") && said.contains("chmod go-w"), "{said}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED a cache of another user: only root can make one");
        return;
    }
    std::os::unix::fs::chown(&cache, Some(65534), None).unwrap();
    let said = Store::at(&cache).unwrap_err().to_string();
    assert!(said.contains("belongs to user 65534"), "{said}");
}

#[test]
fn removal_by_release() {
    let (_dir, store, spec) = place();
    store.add("one", &spec, None, &quiet).unwrap();
    assert_eq!(store.remove(RELEASE).unwrap().len(), 1);
    assert_eq!((store.list().unwrap().len(), store.names().unwrap().len()), (0, 0));
}

#[test]
fn what_a_killed_process_left_is_cleared_and_never_seen() {
    let (dir, store, spec) = place();
    fixture::write(dir.path(), "cache/tmp/abc/image", b"half");
    fixture::write(dir.path(), "cache/kernels/6.1.0-9-amd64-0123/image", b"half");
    assert_eq!(store.list().unwrap(), []);
    store.resolve(&spec, &quiet).unwrap();
    assert!(!dir.path().join("cache/tmp/abc").exists());
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn many_at_once_store_one() {
    let (_dir, store, spec) = place();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let kernel = store.resolve(&spec, &quiet).unwrap();
                store.get(&kernel.identity).unwrap();
            });
        }
    });
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn no_room_is_said_before_anything_is_written() {
    let (_dir, store, _) = place();
    fs::create_dir_all(store.dir()).unwrap();
    let said = store.needs(u64::MAX).unwrap_err().to_string();
    assert!(said.contains("MB are needed") && said.contains("BIGIRON_CACHE"), "{said}");
    store.needs(1).unwrap();
}
