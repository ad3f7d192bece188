//! `--on slurm`: a study as an array job of Debian's Slurm, with a controller and four nodes on this machine (`make test-hosts`).

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::builder::Test;

const NODES: usize = 4;

/// Slurm on this machine, which ends with it.
struct Cluster {
    children: Vec<Child>,
    nodes: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        assert!(rustix::process::geteuid().is_root(), "run as root, as Slurm's controller and nodes do");
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let ports: Vec<u16> =
            (0..=NODES).map(|_| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()).collect();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let mut config = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nAuthType=auth/munge\nAuthInfo=socket={}\nSlurmUser=root\nSlurmdUser=root\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_Core\nJobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\nReturnToService=2\n\
             SlurmdTimeout=10\nInactiveLimit=0\nStateSaveLocation={}\nSlurmdSpoolDir={}/%n\nSlurmctldPidFile={}\nSlurmdPidFile={}/%n.pid\n\
             SlurmctldLogFile={}\nSlurmdLogFile={}/%n.log\n",
            ports[0],
            path("munge.socket"),
            path("state"),
            path("spool"),
            path("ctld.pid"),
            path("run"),
            path("ctld.log"),
            path("run"),
        );
        for (n, port) in (1..).zip(&ports[1..]) {
            config += &format!("NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1\n");
        }
        config += &format!("PartitionName=night Nodes=n[1-{NODES}] Default=YES State=UP\n");
        for folder in ["state", "spool", "run", "munge"] {
            fs::create_dir(path(folder)).unwrap();
        }
        fs::write(path("slurm.conf"), config).unwrap();
        let key = dir.path().join("munge/key");
        fs::write(&key, [7; 128]).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(key.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        for place in [key.as_path(), key.parent().unwrap()] {
            chown(place, Some(0), Some(0)).unwrap();
        }
        let mut cluster = Self { children: Vec::new(), nodes: Vec::new(), dir };
        let folder = key.parent().unwrap().display();
        cluster.children.push(start(Command::new("munged").args([
            "--foreground",
            "--force",
            &format!("--key-file={folder}/key"),
            &format!("--socket={}", cluster.path("munge.socket")),
            &format!("--pid-file={folder}/pid"),
            &format!("--log-file={folder}/log"),
            &format!("--seed-file={folder}/seed"),
        ])));
        wait("munged", || Path::new(&cluster.path("munge.socket")).exists());
        cluster.children.push(start(cluster.command("slurmctld").arg("-D")));
        for n in 1..=NODES {
            let node = start(cluster.command("slurmd").args(["-D", "-N", &format!("n{n}")]));
            cluster.nodes.push(node);
        }
        wait("all nodes", || {
            let said = cluster.command("sinfo").args(["--noheader", "--states=idle", "--format=%D"]).output().unwrap();
            String::from_utf8_lossy(&said.stdout).trim() == NODES.to_string()
        });
        cluster
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn command(&self, name: &str) -> Command {
        self.beside(Command::new(name))
    }

    /// The command finds this Slurm.
    fn beside(&self, mut command: Command) -> Command {
        command.env("SLURM_CONF", self.path("slurm.conf"));
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command("scancel").args(["--user=root"]).status();
        for child in self.nodes.iter_mut().chain(self.children.iter_mut().rev()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn wait(what: &str, ready: impl Fn() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} not ready");
        thread::sleep(Duration::from_millis(100));
    }
}

fn study(delay: &str) -> String {
    format!(
        "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"micro\"]\n\n[design]\npairs = 20\nseed = 7\nclock = \"exact\"\n\n\
         [machine]\nhost = \"sim\"\n\n[sim]\n{delay}noise = 0.002\n[sim.effects.\"debian:6.12\"]\n\"*\" = 1.1\n"
    )
}

#[test]
#[ignore = "needs Slurm: make test-hosts"]
fn an_array_job_over_four_nodes_gives_the_same_report_although_a_node_dies_and_a_slot_runs_twice() {
    let alone = Test::new().file("s.toml", study(""));
    let report = alone.run(&["run", "s.toml", "--out", "out"]).status(0);
    let mut cluster = Cluster::start();
    let test = Test::new().file("s.toml", study("delay-ms = 800\n"));
    let ask = ["run", "s.toml", "--out", "out", "--on", "slurm:night"];
    let mut running = cluster.beside(test.command(&ask)).spawn().unwrap();
    let delivered = || fs::read_dir(test.dir().join("out/slots")).into_iter().flatten().flatten().count();
    wait("some trials", || delivered() >= 8);
    let node = &mut cluster.nodes[1];
    node.kill().unwrap();
    node.wait().unwrap();
    // Beside the task of that slot, or after it.
    test.run(&["worker", "out", "--slot", "39", "--machine", "by-hand", "--script", "s.toml"]).status(0);
    assert!(running.wait().unwrap().success());
    assert_eq!(test.records("out").len(), 40);
    assert_eq!(test.run(&["run", "s.toml", "--out", "out"]).status(0).stdout, report.stdout);
}

#[test]
#[ignore = "needs Slurm: make test-hosts"]
fn an_interrupted_or_killed_study_goes_on_with_the_jobs_that_slurm_has() {
    let cluster = Cluster::start();
    let test = Test::new().file("s.toml", study("delay-ms = 300\n"));
    let ask = ["run", "s.toml", "--out", "out", "--on", "slurm"];
    let mut killed = cluster.beside(test.command(&ask)).spawn().unwrap();
    wait("some trials", || fs::read_dir(test.dir().join("out/slots")).into_iter().flatten().flatten().count() >= 4);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let resumed = cluster.beside(test.command(&ask)).output().unwrap();
    assert!(String::from_utf8_lossy(&resumed.stdout).contains(": worse\n"), "{resumed:?}");
    let jobs = fs::read_to_string(test.dir().join("out/slurm/jobs")).unwrap();
    assert_eq!(jobs.lines().count(), 1, "nothing was submitted twice: {jobs}");
}
