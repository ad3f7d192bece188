//! Studies whose trials workers run, as an engine for many machines starts them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::builder::{PATIENCE, Test};
use crate::studies::{SLOWER, study};

#[test]
fn workers_side_by_side_give_the_report_of_one_machine() {
    let alone = Test::new().file("s.toml", study(SLOWER));
    let report = alone.run(&["run", "s.toml", "--out", "out"]).status(0);

    let test = Test::new().file("s.toml", study(&format!("delay-ms = 30\n{SLOWER}")));
    let prepared = test.run(&["run", "s.toml", "--out", "out", "--prepare"]).status(0);
    prepared.stdout_has("Prepared 16 trials, slots 0 to 15").stderr_has("bigiron worker out --claim");
    assert!(test.records("out").is_empty());
    // Each slot as an array job runs it, one of them twice at once, and a worker that is killed.
    let slot = |n: &str, machine: &str| {
        test.start(&["worker", "out", "--slot", n, "--machine", machine, "--script", "s.toml"])
    };
    let mut workers = vec![slot("3", "n1"), slot("3", "n2"), slot("4", "n1")];
    let mut killed = test.start(&["worker", "out", "--claim", "--machine", "n3", "--script", "s.toml"]);
    thread::sleep(Duration::from_millis(200));
    killed.kill().unwrap();
    killed.wait().unwrap();
    for worker in &mut workers {
        assert!(worker.wait().unwrap().success());
    }
    // Its claim is younger than a minute.
    for n in 0..16 {
        let n = n.to_string();
        let ran = test.run(&["worker", "out", "--slot", &n, "--machine", "n2", "--script", "s.toml"]).status(0);
        ran.stderr_has("16 trials in 8 pairs");
    }
    test.run(&["worker", "out", "--claim", "--script", "s.toml"]).status(0).stderr_has("Nothing to run");
    let whole = test.run(&["run", "s.toml", "--out", "out"]).status(0);
    assert_eq!(test.records("out").len(), 16);
    let without_delay = |text: &str| text.replace("delay-ms = 30", "");
    assert_eq!(without_delay(&whole.stdout), report.stdout);
}

#[test]
fn two_workers_that_claim_share_the_trials() {
    let test = Test::new().file("s.toml", study(&format!("delay-ms = 20\n{SLOWER}")));
    test.run(&["run", "s.toml", "--out", "out", "--prepare"]).status(0);
    let worker = |machine: &str| test.start(&["worker", "out", "--claim", "--machine", machine, "--script", "s.toml"]);
    let mut both = [worker("n1"), worker("n2")];
    for worker in &mut both {
        assert!(worker.wait().unwrap().success());
    }
    let delivered = fs::read_dir(test.dir().join("out/slots")).unwrap().flatten();
    let names: Vec<_> = delivered.map(|e| e.file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), 16, "nothing but deliveries is left: {names:?}");
    test.run(&["run", "s.toml", "--out", "out"]).status(0).stdout_has(": worse\n");
}

/// A machine that is not exact, and its worker, which works on slot 0 and is stopped in the middle: whatever is delivered until it may go on comes
/// before its own result, on a slow machine, too.
struct Inexact(Child);

impl Inexact {
    /// Prepares the study `s.toml` in `out`, which is not there yet; `effects` are those that the machine has.
    fn start(test: &Test, effects: &str) -> Self {
        fs::write(test.dir().join("other.toml"), study(&format!("delay-ms = 3000\n{effects}"))).unwrap();
        for _ in 0..20 {
            let prepared = test.run(&["run", "s.toml", "--out", "out", "--prepare"]).status(0);
            prepared.stdout_has("Prepared 16 trials, slots 0 to 15");
            let slow = Self(test.start(&["worker", "out", "--slot", "0", "--machine", "n2", "--script", "other.toml"]));
            let begun = Instant::now();
            while !slow.is_at_work(test) && slow.state() != 'Z' {
                assert!(begun.elapsed() < PATIENCE, "no trial begins");
                thread::sleep(Duration::from_millis(5));
            }
            kill_process(Pid::from_child(&slow.0), Signal::STOP).unwrap();
            while !matches!(slow.state(), 'T' | 'Z') {
                thread::sleep(Duration::from_millis(1));
            }
            if slow.state() == 'T' && slow.is_at_work(test) {
                return slow;
            }
            // This thread was delayed until the trial had ended.
            drop(slow);
            fs::remove_dir_all(test.dir().join("out")).unwrap();
        }
        panic!("its trial has always ended before it is stopped");
    }

    /// Its trial's folder is there for as long as the trial lasts.
    fn is_at_work(&self, test: &Test) -> bool {
        test.dir().join(format!("out/slots/.0000-0.n2.{}/artifacts", self.0.id())).exists()
    }

    /// The state of its process, as proc(5) has it.
    fn state(&self) -> char {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().chars().next().unwrap()
    }

    /// Lets it go on; its exit status.
    fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::CONT).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Inexact {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_trial_that_differs_between_machines_spoils_the_study() {
    let test = Test::new().file("s.toml", study(SLOWER));
    // It works on the slot when the other one delivers it.
    let effects =
        "noise = 0.002\n[sim.effects.\"debian:6.12\"]\n\"*\" = 1.2\n[sim.effects.\"debian:6.1\"]\n\"*\" = 1.2\n";
    let slow = Inexact::start(&test, effects);
    test.run(&["worker", "out", "--slot", "0", "--machine", "n1", "--script", "s.toml"]).status(0);
    assert_eq!(slow.end(), Some(1));
    test.run(&["worker", "out", "--slot", "1", "--script", "s.toml"])
        .status(1)
        .stderr_has("Two machines ran trial 0000-0");
    test.run(&["run", "s.toml", "--out", "out"]).status(1).stderr_has("this study cannot be judged");
}

#[test]
fn what_a_worker_delivers_to_a_finished_study_is_compared() {
    let test = Test::new().file("s.toml", study(SLOWER));
    let slow = Inexact::start(&test, "[sim.effects.\"debian:6.1\"]\n\"*\" = 1.2\n");
    test.run(&["worker", "out", "--slot", "3", "--machine", "n1", "--script", "s.toml"]).status(0);
    test.run(&["show", "out"]).status(0).stdout_has("completed");
    test.run(&["report", "out"]).status(0).stderr_has("Workers have delivered 1 more trial");
    test.run(&["run", "s.toml", "--out", "out"]).status(0).stdout_has(": worse\n");
    assert_eq!(slow.end(), Some(1));
    for again in [&["run", "s.toml", "--out", "out"][..], &["report", "out"]] {
        test.run(again).status(1).stderr_has("Two machines ran trial 0000-0 with different results");
    }
}

#[test]
fn what_workers_cannot_do_is_refused() {
    let test = Test::new().file("s.toml", study("")).file("wall.toml", study("").replace("\"exact\"", "\"wall\""));
    test.run(&["run", "s.toml", "--out", "out", "--prepare"]).status(0);
    test.run(&["worker", "out"]).status(2).stderr_has("--slot");
    test.run(&["worker", "out", "--claim"]).refused("the plan does not have the script");
    test.run(&["run", "s.toml", "--out", "new", "--prepare", "--fail-on", "worse"]).status(2).stderr_has("--fail-on");
    test.run(&["worker", "out", "--slot", "16", "--script", "s.toml"]).refused("its slots are 0 to 15");
    test.run(&["worker", "out", "--slot", "1", "--machine", "a/b"]).refused("`a/b` cannot be the name of a machine");
    test.run(&["worker", "nowhere", "--claim"]).refused("There is no folder `nowhere`");
    test.run(&["compare", "--on", "local", "running", "running", "micro", "--prepare"]).refused("omit `--on`");
    let marked = "executable = \"";
    test.edit_plan("out", |plan| plan.replacen(marked, &format!("{marked}0"), 1));
    test.run(&["worker", "out", "--slot", "1", "--script", "s.toml"]).refused("begun by another build of bigiron");
}

#[test]
fn kubernetes_gets_a_job_with_an_index_for_each_slot() {
    let test = Test::new().file("s.toml", study(""));
    test.run(&["run", "s.toml", "--out", "out", "--prepare"]).status(0);
    let printed = test.run(&["fleet", "kubernetes", "out", "--image", "bigiron:1", "--claim", "data"]).status(0).stdout;
    let job: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&job["apiVersion"], &job["kind"]), (&"batch/v1".into(), &"Job".into()));
    let spec = &job["spec"];
    assert_eq!((&spec["completionMode"], &spec["completions"]), (&"Indexed".into(), &16.into()));
    // Exit status 2 is the study's refusal, which no other node would lift.
    assert_eq!(spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"], serde_json::json!([2]));
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!(container["command"][4], "$(JOB_COMPLETION_INDEX)");
    test.run(&["fleet", "kubernetes", "out", "--image", "x", "--claim", "a b"]).refused("`--claim` cannot be `a b`");
    test.run(&["fleet", "kubernetes", "out", "--image", "a b", "--claim", "x"]).refused("`--image` cannot be `a b`");
}

#[test]
#[ignore = "needs the schemas of Kubernetes from PyPI: make test-hosts"]
fn the_job_for_kubernetes_fits_the_published_schemas() {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes");
    let succeeds = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let validate = tools.join("bin/kubernetes-validate");
    if !validate.exists() {
        for (program, args) in [
            (Path::new("python3"), &["-m", "venv", tools.to_str().unwrap()][..]),
            (&tools.join("bin/pip"), &["-q", "install", "kubernetes-validate==1.37.0"]),
        ] {
            let (installed, said) = succeeds(program, args);
            assert!(installed, "{said}");
        }
    }
    let test = Test::new().file("s.toml", study(""));
    test.run(&["run", "s.toml", "--out", "out", "--prepare"]).status(0);
    let job = test.run(&["fleet", "kubernetes", "out", "--image", "bigiron:1", "--claim", "data"]).status(0).stdout;
    let fits = |job: &str, version: &str| {
        let file = test.dir().join("job.json");
        fs::write(&file, job).unwrap();
        succeeds(&validate, &["--strict", "-k", version, file.to_str().unwrap()])
    };
    // The page names the first as the oldest.
    for version in ["1.29", "1.33", "1.37"] {
        let (fits, said) = fits(&job, version);
        assert!(fits, "{version}: {said}");
    }
    let wrong_type = ("\"backoffLimitPerIndex\": 3", "\"backoffLimitPerIndex\": \"3\"");
    for (right, wrong) in [("\"completions\"", "\"completionz\""), wrong_type] {
        let changed = job.replacen(right, wrong, 1);
        assert!(changed != job && !fits(&changed, "1.33").0, "{wrong}");
    }
}
