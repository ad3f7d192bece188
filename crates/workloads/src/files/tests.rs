use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::session::Sessions;
use super::trial::Running as RunningServer;
use super::*;
use crate::loadfile::replay::Service as _;
use bigiron_model::record::Failure;
use bigiron_service::instance::patiently;
use bigiron_service::samba;
use bigiron_smb::{Account, Client, NtStatus, Protection, SmbError};
use bigiron_workload::{Progress, WorkloadResult, shortage, testing};

const SMALL: [(&str, &str); 5] =
    [("server", "samba"), ("clients", "2"), ("requests", "400"), ("warmup", "1"), ("length", "1")];

fn settings(more: &[(&str, &str)]) -> Settings {
    // `requests` applies only to a generated loadfile.
    let is_own = more.iter().any(|(name, _)| *name == "loadfile");
    let small = SMALL.into_iter().filter(|(name, _)| !is_own || *name != "requests");
    let options = testing::options(&FileService, small.chain(more.iter().copied())).unwrap();
    Settings::parse(&options).unwrap().other
}

/// Prepares a trial of `settings` below `dir`.
fn trial<'a>(settings: &'a Settings, dir: &Path) -> Trial<'a> {
    let server = match &settings.server {
        Server::Samba(samba) => SambaServer::start(samba, &testing::context(dir)).unwrap(),
        Server::Nfs(_) => panic!("only in a guest"),
    };
    Trial { settings, share: server.share(), server: Some(RunningServer::Samba(server)) }
}

fn run(trial: &mut Trial<'_>, dir: &Path) -> Result<WorkloadResult> {
    trial.run(&testing::context(dir))
}

#[test]
fn samba_serves_with_every_protection_and_what_was_written_is_there() {
    for more in [
        &[][..],
        &[("protocol", "2.1"), ("signing", "on"), ("oplocks", "off"), ("aio", "off")],
        &[("protocol", "3.0.2"), ("signing", "on")],
        &[("signing", "on")],
        &[("encryption", "on"), ("clients", "1,2")],
        &[("channels", "2")],
        &[("channels", "2"), ("signing", "on")],
        &[("channels", "2"), ("encryption", "on")],
        &[("channels", "8"), ("protocol", "3.0.2"), ("signing", "on")],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(more);
        let mut trial = trial(&settings, dir.path());
        let outcome = run(&mut trial, dir.path()).unwrap();
        let declared = settings.metrics();
        for def in &declared {
            assert!(def.kind.takes(outcome.values[&def.name]), "{} {:?}", def.name, outcome.values);
        }
        assert_eq!(outcome.values.len(), declared.len());
        assert_eq!(outcome.windows.len(), settings.points.len());
        eprintln!("{:?}", outcome.facts);
        Box::new(trial).verify(&testing::context(dir.path())).unwrap();
    }
}

#[test]
fn every_request_is_served_and_an_oplock_is_given_back() {
    // The second open of a file takes the oplock of the first away.
    let again = r#"NTCreateX "\clients\client1\d\b" 0x40 0x1 3 NT_STATUS_OK
NTCreateX "\clients\client1\d\b" 0x40 0x1 4 NT_STATUS_OK
ReadX 4 0 100 20 NT_STATUS_OK
Close 4 NT_STATUS_OK
Close 3 NT_STATUS_OK
"#;
    let text = fs_clients::tests::every_request() + again;
    for more in [("signing", "on"), ("oplocks", "off"), ("channels", "3")] {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&[("loadfile", &text), more]);
        let mut trial = trial(&settings, dir.path());
        run(&mut trial, dir.path()).unwrap();
        assert_eq!(fs::read(trial.share.join("clients/client2/d/b")).unwrap().len(), 20);
        Box::new(trial).verify(&testing::context(dir.path())).unwrap();
    }
}

/// The processes that have the server's ends of connections to this port, and how many connections there are.
fn serving(port: u16) -> (BTreeSet<String>, usize) {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let sockets: Vec<_> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "01")
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let has_one = |process: &Path| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|to| sockets.iter().any(|s| to == Path::new(s)))
    };
    let holders = processes.filter(|process| has_one(process));
    (holders.map(|process| process.display().to_string()).collect(), sockets.len())
}

#[test]
fn one_process_of_the_server_has_all_channels_of_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[("channels", "3"), ("clients", "1")]);
    let trial = trial(&settings, dir.path());
    let Some(RunningServer::Samba(server)) = &trial.server else { panic!("a server runs") };
    let pattern = &fs_clients::Pattern::new(1, settings.last().file.longest());
    let (samba, address, password) = (&server.samba, server.address, &*server.password);
    let sessions = Sessions { settings: settings.last(), samba, address, password, pattern, checked: true };
    let sessions = [0, 1].map(|client| sessions.open(client).unwrap());
    // A process that has handed its connection over may take a moment to end.
    let has_one_each = || (serving(address.port()).0.len() == 2).then_some(());
    assert!((0..60).find_map(|_| patiently(has_one_each)).is_some(), "{:?}", serving(address.port()));
    assert_eq!(serving(address.port()).1, 2 * 3);
    drop(sessions);
}

#[test]
fn a_client_that_does_not_encrypt_is_refused() {
    for channels in ["1", "2"] {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&[("channels", channels), ("encryption", "on")]);
        let trial = trial(&settings, dir.path());
        let Some(RunningServer::Samba(server)) = &trial.server else { panic!("a server runs") };
        let terms = bigiron_smb::Terms { protection: Protection::None, ..server.samba.terms() };
        let account = Account { user: samba::USER, password: &server.password };
        let refused = Client::connect(server.address, terms, account, samba::SHARE).unwrap_err();
        assert!(matches!(refused, SmbError::Status(NtStatus::ACCESS_DENIED)), "{refused}");
    }
}

#[test]
fn the_loadfile_of_dbenchs_package_is_taken_and_replayed() {
    let Ok(whole) = fs::read_to_string("/usr/share/dbench/client.txt") else {
        return testing::skipped("dbench's loadfile", "the package dbench is not installed");
    };
    let requests = settings(&[("loadfile", &whole)]).last().file.requests.len();
    assert_eq!(requests, whole.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count());
    let text: String = whole.split_inclusive('\n').take(2000).collect();
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[("loadfile", &text)]);
    let mut trial = trial(&settings, dir.path());
    run(&mut trial, dir.path()).unwrap();
    Box::new(trial).verify(&testing::context(dir.path())).unwrap();
}

#[test]
fn an_answer_that_is_not_expected_fails_the_trial_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs_clients::tests::every_request() + "Rmdir \"\\clients\\client1\\none\" NT_STATUS_OK\n";
    let settings = settings(&[("loadfile", &text)]);
    let error = format!("{:#}", run(&mut trial(&settings, dir.path()), dir.path()).unwrap_err());
    assert!(
        error.contains("(Rmdir) of loadfile") && error.contains("OBJECT_NAME_NOT_FOUND instead of NT_STATUS_OK"),
        "{error}"
    );
}

#[test]
fn a_wrong_byte_and_a_missing_file_fail_the_trial() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[("clients", "1")]);
    let mut ran = trial(&settings, dir.path());
    run(&mut ran, dir.path()).unwrap();
    let path = ran.share.join("clients/client1/large.000");
    let verify = || fs_clients::verify(&ran.share, settings.last(), testing::context(dir.path()).seed);
    verify().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[70_000] ^= 4;
    fs::write(&path, &bytes).unwrap();
    assert!(format!("{:#}", verify().unwrap_err()).contains("Byte 70000 of"));
    fs::remove_file(&path).unwrap();
    assert!(format!("{:#}", verify().unwrap_err()).contains("`client1/large.000` is missing"));
}

#[test]
fn a_server_that_is_killed_fails_the_trial_with_its_end_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[("length", "1000000")]);
    let mut killed = trial(&settings, dir.path());
    let Some(RunningServer::Samba(server)) = &killed.server else { panic!("a server runs") };
    let (pid, address) = (server.pid(), server.address);
    let (tell, begun) = std::sync::mpsc::channel();
    let killer = std::thread::spawn(move || {
        // All clients have sessions then, and passes without end before them.
        if begun.recv().is_ok() {
            std::thread::sleep(Duration::from_millis(500));
            kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        }
    });
    let progress = move |now: Progress<'_>| {
        if now.step == "window" {
            tell.send(()).unwrap();
        }
    };
    // Its processes for the clients end with it: the group's guard kills them.
    let error = killed.run(&Context { progress: &progress, ..testing::context(dir.path()) }).unwrap_err();
    let error = format!("{error:#}");
    drop(progress);
    killer.join().unwrap();
    assert!(error.starts_with("Samba ended in the run (signal: 9 (SIGKILL)): Process "), "{error}");
    drop(killed);
    // They have been killed; the machine may let them end later.
    let began = Instant::now();
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(300), "something is left that listens");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_full_disk_fails_the_trial_with_its_cause() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = testing::SmallDisk::mount(dir.path(), "64m") else { return };
    let settings = settings(&[]);
    let mut full = trial(&settings, &disk.0);
    disk.fill(600 << 10);
    let error = run(&mut full, &disk.0).unwrap_err();
    // The server may be unable to give the reason: a page of a mapped file for which there is no room ends it with SIGBUS.
    let (failure, error) = shortage::failure(error, u64::MAX, &disk.0, None);
    drop(full);
    assert_eq!(failure, Failure::NoSpace, "{error:#}");
    assert!(format!("{error:#}").contains("No space left"), "{error:#}");
}

#[test]
fn options_that_cannot_be_are_refused() {
    for (settings, says) in [
        (&[("clients", "4,2")][..], "`files.clients` cannot be `4,2`; it can be a number from 1 to 10000, or up to 12"),
        (&[("clients", "1,x")], "`files.clients` cannot be `1,x`"),
        (&[("clients", "0")], "`files.clients` cannot be `0`; it can be 1 to 10000"),
        (&[("nfs-threads", "0")], "`files.nfs-threads` cannot be `0`; it can be 1 to 1024"),
        (&[("signing", "on")], "`files.signing` has no effect with `files.server` `nfs`; omit it"),
        (&[("server", "samba"), ("export", "async")], "`files.export` has no effect with `files.server` `samba`"),
        (&[("server", "samba"), ("encryption", "on"), ("protocol", "2.1")], "needs `files.protocol` `3.1.1`"),
        (&[("server", "samba"), ("encryption", "on"), ("signing", "on")], "omit `files.signing`"),
        (&[("channels", "2")], "`files.channels` has no effect with `files.server` `nfs`; omit it"),
        (&[("server", "samba"), ("channels", "0")], "`files.channels` cannot be `0`; it can be 1 to 8"),
        (&[("server", "samba"), ("channels", "9")], "`files.channels` cannot be `9`; it can be 1 to 8"),
        (&[("server", "samba"), ("channels", "two")], "`files.channels` cannot be `two`; it can be 1 to 8"),
        (
            &[("server", "samba"), ("channels", "2"), ("protocol", "2.1")],
            "`files.channels` `2` needs `files.protocol` `3.1.1` or `3.0.2`: SMB 2.1 has no multichannel",
        ),
        (&[("server", "samba"), ("version", "new")], "a series such as `4.22`, or `auto`"),
    ] {
        let said = testing::options(&FileService, settings.iter().copied()).unwrap_err();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn the_kernels_own_server_is_not_started_on_this_machine() {
    let options = testing::options(&FileService, [("server", "nfs")]).unwrap();
    let configured = FileService.parse(&options).unwrap();
    for on in [RunsOn::Here, RunsOn::Elsewhere] {
        let said = configured.check_arm(on).unwrap_err();
        assert!(said.contains("only in guests; use `files.server=samba`, or omit `--on`"), "{said}");
    }
    configured.check_arm(RunsOn::Guest).unwrap();
    let samba = testing::options(&FileService, [("server", "samba")]).unwrap();
    FileService.parse(&samba).unwrap().check_arm(RunsOn::Elsewhere).unwrap();
    assert_eq!(configured.needs().modules, ["nfsd", "nfsv4"]);
}
