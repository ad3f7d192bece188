//! `bigiron oltp`: what a user meets who asks for something that does not work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bigiron_archive::Store;
use bigiron_oltp::check;
use bigiron_service::server_folder::server_folder;
use bigiron_service::{postgres, root};
use bigiron_sql::database::Database;
use bigiron_sql::pg::url::Password;
use bigiron_sql::pg::{Connection, Url};
use bigiron_sql::server::Transport;
use bigiron_sql::server::{Cluster, Listen, OwnedFolder, Programs, RECIPE, Settings, Sizing, cluster};
use bigiron_workload::testing::SmallDisk;

use crate::builder::{PATIENCE, Ran, Test};

/// A test with the user's own cache: the server's programs are fetched once.
pub fn test() -> Test {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let caches = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = set("BIGIRON_CACHE").or_else(|| Some(caches()?.join("bigiron")));
    Test::new().cache(cache.expect("a home"))
}

/// A small run; what is in `more` is set besides, or instead.
fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let name = |set: &str| set.split_once('=').unwrap().0.to_owned();
    let mut words = vec!["oltp", "run", "--seed", "3"];
    let usual = ["warehouses=1", "connections=4", "ramp=20", "length=200"];
    let usual = usual.into_iter().filter(|set| !more.iter().any(|other| name(other) == name(set)));
    words.extend(usual.chain(more.iter().copied()).flat_map(|set| ["--set", set]));
    words
}

fn processes_in(dir: &Path) -> Vec<PathBuf> {
    let links = fs::read_dir("/proc").unwrap().filter_map(|e| fs::read_link(e.ok()?.path().join("cwd")).ok());
    links.filter(|cwd| cwd.starts_with(dir)).collect()
}

#[track_caller]
fn nothing_left(test: &Test) {
    let began = Instant::now();
    while !processes_in(test.dir()).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(300), "{:?}", processes_in(test.dir()));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(test.entries(".").is_empty(), "{:?}", test.entries("."));
}

/// A small run that fails: exit status 1, the reason in words, no figure and nothing left.
#[track_caller]
fn fails(more: &[&str], reason: &str) -> Ran {
    let test = test();
    let ran = test.run(&small(more)).status(1);
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(all.contains(reason), "no `{reason}` in {all}");
    assert!(!ran.stdout.contains("new-orders"), "{}", ran.stdout);
    nothing_left(&test);
    ran
}

/// A server of somebody else's.
struct Somebody {
    url: Url,
    _cluster: Cluster,
    place: OwnedFolder,
}

impl Somebody {
    fn start() -> Self {
        let root = root::ensure(&Store::open().unwrap(), &RECIPE, "15", &|_| {}).unwrap();
        let (server, place) = (Programs::of(&RECIPE, &root).unwrap(), server_folder(&std::env::temp_dir()).unwrap());
        postgres::init(&server, place.path(), false).unwrap();
        let sizing = Sizing { memory_bytes: 512 << 20, data_bytes: 64 << 20, connections: 8 };
        let settings = Settings::new(&sizing, &[("fsync".to_owned(), "off".to_owned())]).unwrap();
        let cluster = cluster::start(&server, place.path(), &settings, Listen::Tcp).unwrap();
        Self { url: cluster::url(&cluster, Transport::Tcp).unwrap(), _cluster: cluster, place }
    }

    /// The URL as it is typed.
    fn text(&self) -> String {
        self.with("postgres", "")
    }

    /// With a password file; `more` spoils the password.
    fn with(&self, database: &str, more: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let password = self.url.password.as_ref().map_or("", Password::reveal);
        let path = self.place.path().join(format!("passfile{more}"));
        fs::write(&path, format!("127.0.0.1:{}:*:postgres:{password}{more}\n", self.url.port)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        format!("postgresql://postgres@127.0.0.1:{}/{database}?passfile={}", self.url.port, path.display())
    }
}

#[test]
fn a_server_that_cannot_be_had_is_named() {
    let server = Somebody::start();
    let wrong = server.with("postgres", "no");
    let ran = fails(&[&format!("url={wrong}")], "does not let user `postgres` in");
    let password = server.url.password.as_ref().unwrap().reveal();
    assert!(!ran.stdout.contains(password) && !ran.stderr.contains(password), "{} {}", ran.stdout, ran.stderr);
    fails(&["url=postgresql://u@127.0.0.1:1/d"], "Cannot connect to 127.0.0.1");
    fails(&["url=postgresql://u@bigiron.invalid/d"], "Cannot connect to bigiron.invalid");
    test().run(&small(&["url=mysql://u@h/d"])).refused("postgresql://");
    fails(&[&format!("url={}", server.with("nothing", ""))], "does not exist");
}

#[test]
fn tables_of_somebody_else_stay_and_a_broken_condition_is_an_exit_status() {
    let server = Somebody::start();
    let url = server.text();
    let mut database = Connection::connect(&server.url).unwrap();
    database.execute("CREATE TABLE item (mine integer); INSERT INTO item VALUES (7)").unwrap();
    fails(&[&format!("url={url}")], "has a table `item` that bigiron did not load");
    assert_eq!(database.rows("SELECT mine FROM item").unwrap().len(), 1);
    database.execute("DROP TABLE item").unwrap();

    let test = test();
    test.run(&["oltp", "load", &url, "--warehouses", "1"]).status(0).stderr_has("Loaded 1 warehouses into");
    test.run(&["oltp", "check", &url, "--fresh"]).status(0).stdout_has("condition-12: ok");
    let acks = test.dir().join("acks");
    let told = format!("acks={}", acks.display());
    // Long enough for each kind of transaction, although busy threads may leave nearly all to a single terminal.
    let ran = test.run(&small(&["length=1000", &format!("url={url}"), &told]));
    ran.status(0).stdout_has("every consistency condition holds");
    let acks = acks.to_str().unwrap();
    test.run(&["oltp", "prove", &url, acks]).status(0).stdout_has("acknowledged-payments: ok");
    database.execute("DELETE FROM history WHERE h_date = (SELECT max(h_date) FROM history)").unwrap();
    test.run(&["oltp", "prove", &url, acks]).status(1).stdout_has("acknowledged-payments: FAILED, 1 times");
    database.execute("UPDATE warehouse SET w_ytd = w_ytd + 1").unwrap();
    test.run(&["oltp", "check", &url]).status(1).stdout_has("condition-1: FAILED, 1 times");
}

#[test]
fn what_the_server_refuses_is_told_in_its_words() {
    fails(&["postgres.no_such_setting=1"], "unrecognized configuration parameter \"no_such_setting\"");
    fails(&["postgres.work_mem=much"], "work_mem");
    fails(&["postgres.max_connections=3"], "max_connections");
    fails(&["postgres.max_connections=6", "connections=9"], "too many clients");
    test().run(&small(&["postgres.shared_bufers=1GB"])).refused("did you mean `oltp.postgres.shared_buffers`?");
}

#[test]
fn a_disk_that_runs_full_in_the_middle_of_a_run_is_named_and_its_data_are_checked() {
    for engine in ["postgres", "sqlite"] {
        let test = test();
        let Some(disk) = SmallDisk::mount(test.dir(), "900m") else { return };
        let engine = format!("engine={engine}");
        let mut child = test.start(&[&small(&["length=3600s", &engine])[..], &["--dir", "disk"]].concat());
        let began = Instant::now();
        let ready = || {
            let work = fs::read_dir(&disk.0).unwrap().flatten().next()?.path().join("oltp/work");
            let ballast = if engine.ends_with("sqlite") { "ballast" } else { "cluster/ballast" };
            work.join(ballast).exists().then_some(work)
        };
        while ready().is_none_or(|work| !comes_in(&work)) {
            assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "{engine}: the run never came");
            std::thread::sleep(Duration::from_millis(5));
        }
        disk.fill(0);
        let output = child.wait_with_output().unwrap();
        let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{all}");
        for words in
            ["its disk is full", "all acknowledged transactions are there", "every consistency condition holds"]
        {
            assert!(all.contains(words), "{engine}: no `{words}` in {all}");
        }
        let left: Vec<_> = fs::read_dir(&disk.0).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["filler"], "{engine}");
    }
}

/// Whether new orders come into the database of a run's folder.
fn comes_in(work: &Path) -> bool {
    let file = work.join("oltp.sqlite");
    if file.exists() {
        let wal = fs::metadata(work.join("oltp.sqlite-wal"));
        return wal.is_ok_and(|wal| wal.len() > 0);
    }
    let url = Url::unix("postgres", &work.join("cluster/run"), 5432, "postgres");
    let orders = || check::server_new_orders(&mut Connection::connect(&url).ok()?).ok();
    orders().is_some_and(|next| next > 30_010)
}

#[test]
fn a_full_disk_is_named_and_nothing_is_left_on_it() {
    let test = test();
    let Some(disk) = SmallDisk::mount(test.dir(), "96m") else { return };
    let ran = test.run(&[&small(&[])[..], &["--dir", "disk"]].concat()).status(1);
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(all.contains("No space left"), "{all}");
    let left: Vec<_> = fs::read_dir(&disk.0).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The cluster of the run that goes on in the test's folder, once it has one.
fn cluster(test: &Test) -> Option<PathBuf> {
    let work = test.entries(".").into_iter().next()?;
    Some(work.join("oltp/work/cluster")).filter(|cluster| cluster.join("data").exists())
}

fn server_is_up(test: &Test) -> bool {
    let text = |cluster: PathBuf| fs::read_to_string(cluster.join("data/postmaster.pid")).ok();
    cluster(test).and_then(text).is_some_and(|pid| pid.contains("ready"))
}

fn orders_come_in(test: &Test) -> bool {
    let orders = || {
        let url = Url::unix("postgres", &cluster(test)?.join("run"), 5432, "postgres");
        check::server_new_orders(&mut Connection::connect(&url).ok()?).ok()
    };
    // Ten districts whose next order is the 3001st after the load.
    orders().is_some_and(|next| next > 30_010)
}

#[test]
fn an_interrupted_run_leaves_no_process_socket_or_folder() {
    for (moment, come) in [
        ("initdb", (|test| cluster(test).is_some()) as fn(&Test) -> bool),
        ("load", server_is_up),
        ("run", orders_come_in),
    ] {
        let test = test();
        let mut child = test.start(&small(&["length=3600s"]));
        let began = Instant::now();
        while !come(&test) {
            assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "{moment} never came");
            std::thread::sleep(Duration::from_millis(5));
        }
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{moment}: {said}");
        assert!(said.contains("Interrupted; all processes are stopped and all files removed"), "{moment}: {said}");
        nothing_left(&test);
    }
}

#[test]
fn a_server_killed_in_the_middle_fails_the_run_with_its_data_checked() {
    let test = test();
    let mut child = test.start(&small(&["length=3600s"]));
    let began = Instant::now();
    while !orders_come_in(&test) {
        assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "no run begins");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = fs::read_to_string(cluster(&test).unwrap().join("data/postmaster.pid")).unwrap();
    Command::new("kill").args(["-KILL", pid.lines().next().unwrap()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    // The server's doing, and no loss of data: those are told apart.
    assert!(said.starts_with("FAILED: the workload failed its workload: oltp: The server was lost: "), "{said}");
    assert!(said.contains(" in doubt; after its recovery all acknowledged transactions are there ("), "{said}");
    nothing_left(&test);
}
