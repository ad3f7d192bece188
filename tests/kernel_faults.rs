//! `kernel fetch` from an archive that delivers half, changes bytes or stops, with an apt that is killed, and into a cache that is full or cannot
//! be written: the message names the cause, nothing half is kept, and the next run succeeds by itself.

mod small_archive;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use small_archive::{Archive, has};

/// What a server does to one file, every time that it is asked for.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Half of it, then the connection ends.
    Broken,
    /// Half of it, and nothing says that it is not all.
    Short,
    /// All of it, with one bit changed in the middle.
    Changed,
    /// Half of it, then nothing until the client is gone. The channel says when.
    Stalled,
}

/// An HTTP server of an archive's folder.
struct Server {
    url: String,
    fault: Arc<Mutex<Option<(&'static str, Fault)>>>,
    stalled: Receiver<()>,
}

impl Server {
    fn new(archive: &Archive) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        sources(archive, &[format!("{url} bookworm")]);
        let fault = Arc::new(Mutex::new(None));
        let (stall, stalled) = channel();
        let (of_thread, folder) = (Arc::clone(&fault), archive.dir.path().join("repo"));
        // It ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (fault, folder, stall) = (Arc::clone(&of_thread), folder.clone(), stall.clone());
                std::thread::spawn(move || serve(client.unwrap(), &folder, &fault, &stall));
            }
        });
        Self { url, fault, stalled }
    }

    fn fault(&self, fault: Option<(&'static str, Fault)>) {
        *self.fault.lock().unwrap() = fault;
    }
}

/// Answers one client's requests until it goes.
fn serve(mut client: TcpStream, folder: &Path, fault: &Mutex<Option<(&'static str, Fault)>>, stall: &Sender<()>) {
    let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
    loop {
        let Some(Ok(request)) = lines.next() else { return };
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
        let Ok(mut bytes) = fs::read(folder.join(&path)) else {
            let _ = client.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            continue;
        };
        let fault = fault.lock().unwrap().filter(|(name, _)| path.contains(name)).map(|(_, fault)| fault);
        let half = bytes.len() / 2;
        match fault {
            Some(Fault::Short) => bytes.truncate(half),
            Some(Fault::Changed) => bytes[half] ^= 1,
            _ => {}
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
        let sent = if matches!(fault, Some(Fault::Broken | Fault::Stalled)) { &bytes[..half] } else { &bytes };
        let _ = client.write_all(&[head.as_bytes(), sent].concat());
        match fault {
            Some(Fault::Broken) => return,
            Some(Fault::Stalled) => {
                let _ = stall.send(());
                // Until the client goes.
                let _ = lines.next();
                return;
            }
            _ => {}
        }
    }
}

/// An archive with one kernel, and its server.
fn served() -> (Archive, Server) {
    let archive = Archive::new();
    archive.suite("bookworm", "Debian", &[("6.1.0-9-cloud-amd64", "6.1.90-1")]);
    let server = Server::new(&archive);
    (archive, server)
}

/// The machine's apt knows only these, each an address and a suite.
fn sources(archive: &Archive, suites: &[String]) {
    let lines: Vec<String> = suites.iter().map(|suite| format!("deb [trusted=yes] {suite} main\n")).collect();
    fs::write(archive.dir.path().join("parts/machine.list"), lines.concat()).unwrap();
}

/// `bigiron kernel fetch` of the archive's series.
fn fetch(archive: &Archive) -> Command {
    let mut command = archive.in_this_environment(env!("CARGO_BIN_EXE_bigiron"));
    command.args(FETCH).current_dir(archive.dir.path());
    command
}

const FETCH: [&str; 3] = ["kernel", "fetch", "debian:6.1"];

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn succeeds(archive: &Archive) {
    let done = fetch(archive).output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
    has(&said(&done), "6.1.0-9-cloud-amd64");
    assert_eq!(fs::read_dir(archive.dir.path().join("cache/tmp")).unwrap().count(), 0);
}

#[test]
fn a_broken_download_is_named_and_the_next_run_succeeds() {
    for (file, message) in [
        ("linux-image", "Cannot download `linux-image-6.1.0-9-cloud-amd64`"),
        ("Packages", "Cannot read the archive's package lists"),
    ] {
        for fault in [Fault::Broken, Fault::Short, Fault::Changed] {
            let (archive, server) = served();
            server.fault(Some((file, fault)));
            let failed = fetch(&archive).output().unwrap();
            assert_eq!(failed.status.code(), Some(1), "{file} {fault:?}: {}", said(&failed));
            has(&said(&failed), message);
            has(&said(&failed), &server.url);
            assert!(!archive.dir.path().join("cache/kernels").exists());
            server.fault(None);
            succeeds(&archive);
        }
    }
}

/// Processes of `name` with this folder in their command lines.
fn processes(name: &str, folder: &Path) -> Vec<Pid> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let of = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.split('\0').next().is_some_and(|program| program.ends_with(name))
            && line.contains(folder.to_str().unwrap())
    };
    pids.filter(of).filter_map(Pid::from_raw).collect()
}

#[test]
fn a_killed_apt_is_named_and_the_next_run_succeeds() {
    for (file, message) in [("linux-image", "Cannot download"), ("Packages", "Cannot read the archive's package lists")]
    {
        let (archive, server) = served();
        server.fault(Some((file, Fault::Stalled)));
        let begin = || fetch(&archive).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stalled = |within| server.stalled.recv_timeout(Duration::from_secs(within)).is_ok();
        let mut child = begin();
        assert!(stalled(120), "nothing is asked for");
        // A download is tried twice.
        while child.try_wait().unwrap().is_none() {
            for apt in processes("apt-get", &archive.dir.path().join("cache")) {
                let _ = kill_process(apt, Signal::KILL);
            }
            stalled(1);
        }
        let failed = child.wait_with_output().unwrap();
        assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
        has(&said(&failed), message);
        has(&said(&failed), "apt-get was killed by signal 9");
        // bigiron itself, with what runs for it.
        let mut child = begin();
        assert!(stalled(120), "nothing is asked for");
        child.kill().unwrap();
        child.wait().unwrap();
        server.fault(None);
        succeeds(&archive);
    }
}

/// That another suite can be read does not make it one that the archive lacks.
#[test]
fn a_suite_that_could_not_be_read_is_asked_again() {
    let (archive, server) = served();
    archive.suite("bookworm-updates", "Debian", &[("6.1.0-10-cloud-amd64", "6.1.100-1")]);
    sources(&archive, &["bookworm", "bookworm-updates"].map(|suite| format!("{} {suite}", server.url)));
    for fault in [Fault::Changed, Fault::Short, Fault::Broken] {
        server.fault(Some(("bookworm-updates/main", fault)));
        let done = fetch(&archive).output().unwrap();
        // An older kernel is better than none, but that is said.
        has(&said(&done), "6.1.0-9-cloud-amd64");
        has(&said(&done), "Using the package lists as last read: Failed to fetch");
        server.fault(None);
        let done = fetch(&archive).output().unwrap();
        has(&said(&done), "6.1.0-10-cloud-amd64");
        fs::remove_dir_all(archive.dir.path().join("cache")).unwrap();
    }
}

/// Runs a script as root with mounts of its own; `None`, and said, where that cannot be.
fn with_own_mounts(archive: &Archive, script: &str) -> Option<String> {
    let mut command = archive.in_this_environment("unshare");
    let cache = archive.dir.path().join("cache");
    command.args(["--mount", "sh", "-c", script]).env("CACHE", &cache).env("B", env!("CARGO_BIN_EXE_bigiron"));
    let can = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "tmpfs"]).arg(&cache).output();
    if !can.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED a cache on a full disk: only root can mount one");
        return None;
    }
    let done = command.current_dir(archive.dir.path()).output().unwrap();
    Some(said(&done))
}

#[test]
fn a_cache_on_a_disk_of_any_size_is_full_in_words_and_serves_when_there_is_room() {
    let archive = Archive::new();
    archive.suite("bookworm", "Debian", &[("6.1.0-9-cloud-amd64", "6.1.90-1")]);
    let script = r#"
        for size in 16 64 224 256 288 320 384 1024; do
            mount -t tmpfs -o size=${size}k,mode=755 tmpfs "$CACHE" || exit
            echo "= $size KiB"
            "$B" kernel fetch debian:6.1 2>&1
            echo "status $?, $(ls "$CACHE/tmp" 2>/dev/null | wc -l) left"
            mount -o remount,size=64m "$CACHE"
            "$B" kernel fetch debian:6.1 2>&1
            echo "with room: status $?"
            umount "$CACHE"
        done"#;
    let Some(said) = with_own_mounts(&archive, script) else { return };
    let (mut full, mut fits) = (0, 0);
    for size in said.split("= ").skip(1) {
        has(size, "with room: status 0");
        has(size, ", 0 left");
        if size.contains("\nstatus 0,") {
            fits += 1;
        } else {
            has(size, "No space left in `");
            has(size, "\nstatus 1,");
            full += 1;
        }
    }
    assert!(full >= 4 && fits >= 1, "{said}");
}

#[test]
fn a_cache_that_cannot_be_written_serves_what_it_has() {
    let archive = Archive::new();
    archive.suite("bookworm", "Debian", &[("6.1.0-9-cloud-amd64", "6.1.90-1")]);
    let script = r#"
        mount -t tmpfs -o ro,mode=755 tmpfs "$CACHE"
        echo "= empty"
        "$B" kernel fetch debian:6.1 2>&1; echo "status $?"
        "$B" doctor 2>&1 | grep '^broken *cache'
        mount -o remount,rw "$CACHE"
        "$B" kernel fetch debian:6.1 >/dev/null 2>&1
        mount -o remount,ro "$CACHE"
        echo "= full"
        "$B" kernel fetch debian:6.1 2>&1; echo "status $?"
        "$B" kernel list 2>&1; echo "status $?"
        "$B" compare --on local running running --pairs 8 --idle-gap 0 --out study -- true >/dev/null 2>&1; echo "compare $?"
        echo "= self-test"
        "$B" selftest --on local running command --set command.run=true --pairs 8 --idle-gap 0 2>/dev/null; echo "status $?""#;
    let Some(said) = with_own_mounts(&archive, script) else { return };
    let (empty, full) = said.split_once("= full").unwrap();
    let (full, selftest) = full.split_once("= self-test").unwrap();
    has(empty, "Read-only file system");
    has(empty, "set BIGIRON_CACHE to a folder that you may write to");
    has(empty, "status 2");
    has(full, "6.1.0-9-cloud-amd64");
    assert_eq!(full.matches("status 0").count(), 2, "{full}");
    has(full, "compare 0");
    // The card is lost, its numbers are not.
    has(selftest, "against itself, 8 pairs");
    has(selftest, "status 1");
}
