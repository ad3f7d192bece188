//! A study on this machine under limits that are too small, and one whose trial somebody kills: no kernel is blamed, nothing is half done, and
//! without the limit the same command goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::builder::{PATIENCE, Test, executable, processes_in, skipped};

/// A user of nobody's.
const USER: &str = "54321";

/// The kernel counts OOM kills for the whole machine, so the test that causes one must not run beside the test that kills a trial.
static KILLS: Mutex<()> = Mutex::new(());

/// The records of the folder `study`. A line without an end is still being written.
fn records(test: &Test) -> Vec<Value> {
    let text = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].clone()).collect()
}

fn wait_for(what: &str, seen: impl Fn() -> bool) {
    let began = Instant::now();
    while !seen() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets a study get as far as `count` records and interrupts it, long before its end.
fn interrupted(test: &Test, child: Child, count: usize) -> Vec<Value> {
    wait_for("no trial has ended", || records(test).len() >= count);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    records(test)
}

#[test]
fn a_limit_of_processes_is_named_and_no_kernel_is_blamed_for_it() {
    let test = Test::new();
    // Another user must reach everything.
    let executable = test.dir().join("bigiron");
    // By another process: a child that another test starts would hold the file open for writing, too, until it executes its program, and what
    // somebody writes to is not executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_bigiron")).arg(&executable).status().unwrap();
    assert!(copied.success());
    fs::set_permissions(test.dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let run = |limit: Option<&str>| {
        let mut words = vec!["prlimit".to_owned()];
        if rustix::process::geteuid().is_root() {
            let user = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "prlimit"];
            words = user.map(str::to_owned).into();
        }
        words.extend(limit.map(|limit| format!("--nproc={limit}")));
        words.push(executable.display().to_string());
        let study = "compare --on local running running --pairs 8 --idle-gap 0 --seed 5 --out study -- true";
        words.extend(study.split(' ').map(str::to_owned));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(test.dir()).env("HOME", test.dir());
        command.env("BIGIRON_CACHE", test.dir().join("cache")).env("XDG_STATE_HOME", test.dir().join("state"));
        command.stdin(Stdio::null()).output().unwrap()
    };
    // Too few for the trial's thread, for its process, and for the processes that it starts.
    for limit in ["1", "2", "3"] {
        let ended = run(Some(limit));
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{limit}: {said}");
        assert!(said.contains("fix this, and the same command resumes"), "{limit}: {said}");
        assert!(said.contains(&format!("`ulimit -u` is {limit}, and there are ")), "{limit}: {said}");
        assert_eq!(records(&test), [] as [Value; 0], "{limit}: {said}");
        wait_for("processes are left", || processes_in(&test.dir().join("study")) == 0);
    }
    let ended = run(None);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(records(&test).iter().all(|record| record["outcome"]["kind"] == "completed"));
    assert_eq!(records(&test).len(), 16);
}

/// dbsim with a cache of some size, whose memory is used from the beginning. More trials than are done before it is interrupted, however late that
/// is: those that fail take a moment each.
const CACHED: &str = "compare --on local running running dbsim --set dbsim.data.size=300M --set dbsim.cache.size=280M --set \
     dbsim.journal.size=2M --set dbsim.direct=off --set dbsim.io=sync --set dbsim.processes=2 --set dbsim.transactions=50 --pairs 500 --idle-gap 0 \
     --seed 5 --out study";

/// The first trial under a limit has failed for want of memory, and the next one without it succeeds.
fn memory_is_missing_and_then_there(test: &Test, limited: &[&str], limit: &str) {
    let words: Vec<&str> = CACHED.split_whitespace().collect();
    let mut command = Command::new(limited[0]);
    command.args(&limited[1..]).arg(executable()).args(&words).current_dir(test.dir());
    command.env("BIGIRON_CACHE", test.dir().join("cache")).env("XDG_STATE_HOME", test.dir().join("state"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let failed = interrupted(test, child, 1);
    for record in &failed {
        let outcome = &record["outcome"];
        assert_eq!(outcome["failure"], "out-of-memory", "{outcome}");
        let message = outcome["message"].as_str().unwrap();
        assert!(message.contains("Out of memory: ") && message.contains(limit), "{message}");
    }
    let resumed = interrupted(test, test.start(&words), failed.len() + 1);
    assert_eq!(resumed[..failed.len()], failed);
    assert_eq!(resumed[failed.len()]["outcome"]["kind"], "completed", "{resumed:?}");
}

#[test]
fn a_limit_of_memory_is_named_in_the_trials_failure() {
    let limit = "and a limit leaves 256 MiB of it to this process";
    memory_is_missing_and_then_there(&Test::new(), &["prlimit", "--as=268435456"], limit);
}

/// A cgroup that is removed when this is dropped.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        wait_for("the cgroup is in use", || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_memory_cgroup_that_is_too_small_is_named_in_the_trials_failure() {
    let _alone = KILLS.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("bigiron-test-memory-{}", std::process::id());
    let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    let made = places.iter().find_map(|(mount, file)| {
        let group = Path::new(mount).join(&name);
        fs::create_dir(&group).ok()?;
        let group = Group(group);
        fs::write(group.0.join(file), "134217728").ok().map(|()| group)
    });
    let Some(group) = made else {
        skipped("no memory cgroup can be made here");
        return;
    };
    // Without swap, where there is some.
    let _ = fs::write(group.0.join("memory.swap.max"), "0");
    let enter = format!("echo $$ >{}; exec \"$@\"", group.0.join("cgroup.procs").display());
    let limit = "and a limit leaves 128 MiB of it to this process";
    memory_is_missing_and_then_there(&Test::new(), &["sh", "-c", &enter, "sh"], limit);
}

#[test]
fn a_trial_that_somebody_kills_is_void_and_runs_again() {
    let _alone = KILLS.lock().unwrap_or_else(PoisonError::into_inner);
    let test = Test::new();
    let mut words = vec!["compare", "--on", "local", "running", "running", "--pairs", "8", "--idle-gap", "0"];
    // Trials last while there is this file: the one that is found is there when it is killed.
    let hold = test.dir().join("hold");
    fs::write(&hold, "").unwrap();
    let script = format!("while [ -e '{}' ]; do sleep 0.05; done", hold.display());
    words.extend(["--seed", "5", "--out", "study", "--", "sh", "-c", &script]);
    let mut child = test.start(&words);
    let trials = || {
        let threads = fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
        let of_threads = threads.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: String = of_threads.collect();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
    };
    wait_for("no trial has begun", || processes_in(&test.dir().join("study")) > 1 && !trials().is_empty());
    kill_process(Pid::from_raw(trials()[0]).unwrap(), Signal::KILL).unwrap();
    fs::remove_file(hold).unwrap();
    let status = child.wait().unwrap();
    let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert!(status.success(), "{said}");
    assert!(said.contains("void: The process that ran the workload was killed by signal 9 "), "{said}");
    assert_eq!(records(&test).iter().filter(|record| record["outcome"]["kind"] == "completed").count(), 16, "{said}");
    test.run(&["report", "study"]).status(0).stdout_has("because of the host, run again");
}
