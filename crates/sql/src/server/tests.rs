//! Clusters that really run, as root and as an ordinary user.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::settings::deviations;
use super::{Listen, Programs, RECIPE, Settings, Transport, cluster};
use crate::database::{Database, SqlValue};
use crate::pg::Connection;
use crate::server::testing::{Running, sizing, start, tree};
use bigiron_archive::Store;
use bigiron_service::server_folder::server_folder;
use bigiron_service::{postgres, root};

/// Set for a test that runs itself as another user, or to be killed.
const AGAIN: &str = "BIGIRON_TEST_AGAIN";
const NOBODY: u32 = 65_534;

fn one(connection: &mut Connection, sql: &str) -> SqlValue {
    connection.rows(sql).unwrap().remove(0).remove(0)
}

/// Processes whose working folder is in `place`: all processes of a server.
fn processes_in(place: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap();
    let inside = |pid: &String| {
        let maps = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let environment =
            fs::read_link(format!("/proc/{pid}/cwd")).map(|p| p.display().to_string()).unwrap_or_default();
        environment.contains(place) || maps.contains(place)
    };
    entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).filter(inside).collect()
}

fn alive(pids: &[u32]) -> Vec<u32> {
    let state = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(stat.rsplit_once(") ")?.1.chars().next()? != 'Z')
    };
    pids.iter().copied().filter(|p| state(*p) == Some(true)).collect()
}

/// The postmaster and its children.
fn family(postmaster: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let ours = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, r)| r.split(' ').nth(1)?.parse().ok()) == Some(postmaster)
    };
    let mut found: Vec<u32> = pids.filter(ours).collect();
    found.push(postmaster);
    found
}

fn whole_life() {
    let Running { cluster, place, server } = start(Listen::Tcp, &[("work_mem", "8MB")]);
    let postmaster = cluster.pid();
    let status = fs::read_to_string(format!("/proc/{postmaster}/status")).unwrap();
    let uids = status.lines().find(|l| l.starts_with("Uid:")).unwrap();
    assert!(!uids.split_whitespace().skip(1).any(|u| u == "0"), "{uids}");
    let mut unix = Connection::connect(&cluster::url(&cluster, Transport::Unix).unwrap()).unwrap();
    let mut tcp = Connection::connect(&cluster::url(&cluster, Transport::Tcp).unwrap()).unwrap();
    let mut wrong = cluster::url(&cluster, Transport::Tcp).unwrap();
    wrong.password = Some(crate::pg::url::Password::new("wrong"));
    assert!(Connection::connect(&wrong).is_err());
    assert_eq!(one(&mut unix, "SHOW server_encoding"), SqlValue::Text("UTF8".into()));
    let collation = "SELECT datcollate::text FROM pg_database WHERE datname = current_database()";
    assert_eq!(one(&mut unix, collation), SqlValue::Text("C".into()));
    tcp.execute("CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 1000)").unwrap();
    let found = deviations(&mut unix).unwrap();
    let value = |name: &str| found.iter().find(|d| d.name == name).map(|d| (d.value.as_str(), d.default.as_str()));
    assert_eq!(value("work_mem"), Some(("8MB", "4MB")));
    assert_eq!(value("max_wal_size"), Some(("8GB", "1GB")));
    assert_eq!((value("fsync"), value("synchronous_commit"), value("port")), (None, None, None));
    // A crash, and the recovery from it.
    let settings = Settings::new(&sizing(), &[]).unwrap();
    let pids = family(postmaster);
    assert!(pids.len() > 4, "{pids:?}");
    cluster.kill();
    assert_eq!(alive(&pids), [0; 0]);
    let cluster = cluster::start(&server, place.path(), &settings, Listen::Socket).unwrap();
    let mut unix = Connection::connect(&cluster::url(&cluster, Transport::Unix).unwrap()).unwrap();
    assert_eq!(one(&mut unix, "SELECT count(*) FROM t"), SqlValue::Integer(1000));
    assert!(cluster::url(&cluster, Transport::Tcp).is_none());
    let pids = family(cluster.pid());
    cluster.stop().unwrap();
    assert_eq!(alive(&pids), [0; 0]);
    // The server's refusal is reported with its own message.
    let bad = Settings::new(&sizing(), &[("no_such_setting".into(), "1".into())]).unwrap();
    let said = cluster::start(&server, place.path(), &bad, Listen::Socket).unwrap_err().to_string();
    assert!(said.contains("no_such_setting"), "{said}");
    // Dropped while it is running.
    let cluster = cluster::start(&server, place.path(), &settings, Listen::Socket).unwrap();
    let pids = family(cluster.pid());
    drop(cluster);
    assert_eq!(alive(&pids), [0; 0]);
    assert_eq!(fs::read_dir(place.path().join("run")).unwrap().count(), 0);
    let dir = place.path().to_owned();
    drop(place);
    assert!(!dir.exists());
    assert_eq!(processes_in(&dir.display().to_string()), [""; 0]);
}

#[test]
fn only_named_machines_reach_a_server_on_the_network() {
    let [address, other] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(10, 1, 2, 3)];
    let Running { cluster, place, server } = start(Listen::Network { address, clients: [other, other] }, &[]);
    // A connection to an address of the loopback comes from 127.0.0.1.
    let url = cluster::url(&cluster, Transport::Tcp).unwrap();
    let refused = Connection::connect(&url).err().unwrap().to_string();
    assert!(refused.contains("no pg_hba.conf entry for host \"127.0.0.1\""), "{refused}");
    assert!(TcpStream::connect(("127.0.0.1", url.port)).is_err(), "it listens on one address only");
    let access = fs::read_to_string(place.path().join("data/pg_hba.conf")).unwrap();
    assert!(access.contains("host all all 127.0.0.2/32 scram-sha-256\n"), "its own machine loads the data: {access}");
    cluster.stop().unwrap();
    let settings = Settings::new(&sizing(), &[]).unwrap();
    let listen = Listen::Network { address, clients: [other, Ipv4Addr::LOCALHOST] };
    let cluster = cluster::start(&server, place.path(), &settings, listen).unwrap();
    let mut url = cluster::url(&cluster, Transport::Tcp).unwrap();
    Connection::connect(&url).unwrap();
    url.password = None;
    assert!(Connection::connect(&url).is_err(), "without its password");
}

/// Runs a test of this file again in a separate process.
fn again(test: &str, how: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    command.args(["--exact", &name, "--nocapture"]).env(AGAIN, how).stdin(Stdio::null());
    command
}

#[test]
fn a_cluster_lives_and_leaves_nothing() {
    whole_life();
}

#[test]
fn an_ordinary_user_has_one_too() {
    if std::env::var_os(AGAIN).is_some() {
        return whole_life();
    }
    if !rustix::process::geteuid().is_root() {
        // Covered by the other test.
        return;
    }
    // A place that an ordinary user can reach, unlike root's own cache and target folder.
    let tree = tree();
    let dir = tempfile::tempdir().unwrap();
    let open = |p: &std::path::Path| {
        fs::set_permissions(p, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(p, Some(NOBODY), Some(NOBODY)).unwrap();
    };
    open(dir.path());
    let cache = dir.path().join("cache");
    let trees = cache.join("postgres/trees");
    fs::create_dir_all(&trees).unwrap();
    let from = tree.dir.parent().unwrap();
    let copied = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(&trees).status().unwrap();
    assert!(copied.success());
    fs::copy(from.parent().unwrap().with_file_name("15.json"), cache.join("postgres/15.json")).unwrap();
    let chowned = Command::new("chown").arg("-R").arg(NOBODY.to_string()).arg(&cache).status().unwrap();
    assert!(chowned.success());
    let exe = dir.path().join("tests");
    // By another process: a child that a test beside this one forks would hold a file open that this process writes, and it could not be run.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&exe).status().unwrap();
    assert!(copied.success());
    open(&exe);
    let tmp = dir.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    open(&tmp);
    let mut command = Command::new(&exe);
    let first = again("an_ordinary_user_has_one_too", "nobody");
    command.args(first.get_args()).env(AGAIN, "nobody").env("BIGIRON_CACHE", &cache).env("TMPDIR", &tmp);
    let output = command.current_dir("/").uid(NOBODY).gid(NOBODY).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{said}");
}

#[test]
fn a_killed_bigiron_leaves_no_server() {
    if let Some(told) = std::env::var_os(AGAIN) {
        // In a folder of this test's own: tests make folders for their servers in another, from which they remove those of killed owners.
        let server = Programs::of(&RECIPE, &tree()).unwrap();
        let place = server_folder(&std::env::temp_dir()).unwrap();
        postgres::init(&server, place.path(), false).unwrap();
        let settings = Settings::new(&sizing(), &[]).unwrap();
        let cluster = cluster::start(&server, place.path(), &settings, Listen::Socket).unwrap();
        let text = format!("{} {}", cluster.pid(), place.path().display());
        fs::write(&told, text).unwrap();
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    tree();
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    let mut child =
        again("a_killed_bigiron_leaves_no_server", told.to_str().unwrap()).env("TMPDIR", dir.path()).spawn().unwrap();
    let text = loop {
        if let Ok(text) = fs::read_to_string(&told)
            && text.contains('/')
        {
            break text;
        }
        assert!(child.try_wait().unwrap().is_none(), "the other process ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    };
    let (postmaster, place) = text.split_once(' ').unwrap();
    let pids = family(postmaster.parse().unwrap());
    assert!(pids.len() > 4);
    child.kill().unwrap();
    child.wait().unwrap();
    // The children detect it by themselves, one after the other.
    let started = Instant::now();
    while !alive(&pids).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(300), "{:?}", alive(&pids));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(fs::metadata(place).is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::geteuid().as_raw()));
}

#[test]
fn an_unknown_version_is_refused_with_those_that_there_are() {
    let said = root::ensure(&Store::open().unwrap(), &RECIPE, "3", &|_| {}).unwrap_err().to_string();
    assert!(said.contains("no PostgreSQL 3") && said.contains("15"), "{said}");
}

#[test]
fn a_tree_that_is_not_there_is_no_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Programs::in_tree(&RECIPE, dir.path(), "15");
    let place = server_folder(dir.path()).unwrap();
    assert!(server.version().is_err());
    assert!(postgres::init(&server, place.path(), false).is_err());
}
