//! A second server, small enough to be read here. It shows how little another server needs.

use std::sync::atomic::{AtomicU32, Ordering};

use bigiron_archive::SeriesPackage;

use super::*;
use crate::recipe::Recipe;

/// A shell that counts up in a file until it is stopped. It ends its child as it stops: a child that stayed would be waited for.
struct Counter {
    /// Its exit status after the signal.
    status: u8,
    /// How long its start takes, in seconds.
    start_s: u32,
    configured: AtomicU32,
}

const RECIPE: Recipe = Recipe {
    name: "counter",
    title: "Counter",
    instead: "count by hand",
    package: SeriesPackage::InName("counter"),
    version_of: None,
    beside: &[],
    without: &[],
    programs: |_| "bin".to_owned(),
    plugins: &[],
    loaded: &[],
    required: &["sh"],
    version_argument: "--version",
    keeps: |_, _| false,
    own: None,
    finish: None,
    sees_sys: false,
    revision: 1,
    user: "nobody",
};

impl Server for Counter {
    fn configure(&self, _: &Programs, folder: &Path) -> Result<(), ServerError> {
        let number = self.configured.fetch_add(1, Ordering::Relaxed);
        write(&folder.join("counter.conf"), format!("start {number}"), rustix::process::geteuid().as_raw())
    }

    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>) {
        let script = format!(
            "cd '{0}/data'; trap 'kill $!; exit {1}' TERM; echo \"read $(cat ../counter.conf)\"; sleep {2}; sleep 600 & \
             touch ready; while :; do :; done",
            inside.display(),
            self.status,
            self.start_s
        );
        ("sh", vec!["-c".into(), script.into()])
    }

    fn is_ready(&self, folder: &Path, _: u32) -> bool {
        folder.join("data/ready").exists()
    }

    fn leftovers(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join("data/ready")]
    }

    fn fatal_words(&self) -> &'static [&'static str] {
        &["FATAL"]
    }
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(DATA)).unwrap();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    open(dir.path());
    open(&dir.path().join(DATA));
    dir
}

fn start(folder: &Path, status: u8) -> Instance<Counter> {
    let programs = Programs::installed(&RECIPE, Path::new("/bin"), "1");
    Instance::start(Counter { status, start_s: 0, configured: AtomicU32::new(7) }, &programs, folder).unwrap()
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn a_server_starts_is_counted_stops_and_starts_again() {
    let dir = folder();
    let counter = start(dir.path(), 0);
    assert_eq!(fs::read_to_string(counter.log()).unwrap(), "read start 7\n");
    let before = counter.usage();
    let (began, mut after) = (Instant::now(), before);
    // It computes without end, as soon as the machine lets it.
    while after.cpu_ns <= before.cpu_ns {
        assert!(began.elapsed() < Duration::from_secs(300), "it uses no CPU: {before:?} {after:?}");
        std::thread::sleep(Duration::from_millis(10));
        after = counter.usage();
    }
    assert!(after.memory_bytes > 10 << 10, "{before:?} {after:?}");
    let pid = counter.pid();
    counter.stop().unwrap();
    assert!(!is_alive(pid) && !dir.path().join("data/ready").exists());
    let again = start(dir.path(), 0);
    assert!(is_alive(again.pid()) && again.pid() != pid);
}

#[test]
fn a_slow_start_is_not_called_a_full_disk_because_an_earlier_start_logged_one() {
    let dir = folder();
    fs::write(dir.path().join(LOG), format!("{NO_SPACE}\n")).unwrap();
    let programs = Programs::installed(&RECIPE, Path::new("/bin"), "1");
    let slow = Counter { status: 0, start_s: 1, configured: AtomicU32::new(0) };
    let counter = Instance::start(slow, &programs, dir.path()).unwrap();
    assert!(counter.is_full(1), "its whole log still says so");
}

#[test]
fn a_killed_server_leaves_no_process_and_no_leftovers() {
    let dir = folder();
    let counter = start(dir.path(), 0);
    let all: Vec<u32> =
        processes::inhabitants(&dir.path().join(DATA)).iter().map(|p| p.as_raw_nonzero().get() as u32).collect();
    assert!(all.len() >= 2 && all.contains(&counter.pid()), "{all:?}");
    counter.kill();
    assert!(all.iter().all(|pid| !is_alive(*pid)));
    assert!(!dir.path().join("data/ready").exists());
    // Like a drop.
    let counter = start(dir.path(), 0);
    let pid = counter.pid();
    drop(counter);
    assert!(!is_alive(pid));
}

#[test]
fn a_server_that_does_not_start_or_stop_as_it_should_is_told_in_its_own_words() {
    let dir = folder();
    let said = start(dir.path(), 3).stop().unwrap_err().to_string();
    assert!(said.starts_with("The server did not stop as it should (exit status: 3): read start 7"), "{said}");
    let programs = Programs::installed(&RECIPE, Path::new("/bin"), "1");
    let arguments = ["-c", "echo some line; echo FATAL: no port left; exit 4"].map(OsString::from);
    let said = run(&programs, dir.path(), "sh", &arguments, None, &["FATAL"]).unwrap_err().to_string();
    assert_eq!(said, "`sh` failed (exit status: 4): FATAL: no port left");
    let arguments = ["-c", "echo No space left on device; exit 1"].map(OsString::from);
    assert!(matches!(run(&programs, dir.path(), "sh", &arguments, None, &[]), Err(ServerError::Space { .. })));
}
