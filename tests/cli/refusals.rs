//! Everything that is wrong with a question is said before anything boots, with what would be right.

use crate::builder::{Ran, Test};
use crate::kernels::bzimage;
use bigiron_lab::vm::pinned::BUILD;

/// A machine with a QEMU that only knows its version and the pinned one's build, and a kernel called `mine`.
pub fn machine(qemu: &str) -> Test {
    let test = Test::new()
        .program(
            "bin/qemu-system-x86_64",
            &format!("#!/bin/sh\necho 'QEMU emulator version {qemu} (Debian {BUILD})'\n"),
        )
        .file("bzImage", bzimage("6.1.7-mine"));
    let path = format!("{}:/usr/bin:/bin", test.dir().join("bin").display());
    let test = test.path(&path);
    test.run(&["kernel", "add", "mine", "--image", "bzImage"]).status(0);
    test
}

fn compare(test: &Test, args: &[&str]) -> Ran {
    let all: Vec<&str> = ["compare"].iter().chain(args).copied().collect();
    let ran = test.run(&all);
    assert!(test.entries("bigiron-results").is_empty(), "a refused study leaves no folder");
    ran
}

#[test]
fn words_that_are_neither_kernel_nor_workload() {
    let test = machine("7.2.22");
    compare(&test, &["mine", "mine", "dbism"]).refused("did you mean `dbsim`?").stderr_has("hint: ");
    compare(&test, &["mine", "mnie", "micro"]).refused("did you mean `mine`?");
    compare(&test, &["mine", "redhat:6.12", "--clock", "exact"]).refused("`redhat:` is not a source of kernels");
    compare(&test, &["mine", "debian:six", "--clock", "exact"]).refused("`debian:six` is not a kernel; name a series");
    compare(&test, &["mine", "micro"]).refused("Only one arm, `mine`");
    compare(&test, &["mine", "mine", "micro", "micro"]).refused("named twice");
    compare(&test, &[]).refused("Nothing to compare");
}

#[test]
fn designs_that_can_decide_nothing() {
    let test = machine("7.2.22");
    let exact = |args: &[&str]| {
        let all: Vec<&str> = ["mine", "mine", "micro", "--clock", "exact"].iter().chain(args).copied().collect();
        compare(&test, &all)
    };
    exact(&["--pairs", "7"]).refused("7 pairs cannot be balanced");
    exact(&["--pairs", "6"]).refused("6 pairs are too few for any verdict; use 10 or more");
    exact(&["--cpus", "0"]).refused("from 1 to 255 CPUs, not 0");
    exact(&["--cpus", "256"]).refused("from 1 to 255 CPUs, not 256");
    exact(&["--memory", "900T"]).refused("does not fit into this machine");
    exact(&["--memory", "16M"]).refused("give at least");
    exact(&["--memory", "lots"]).refused("write one such as `1G`");
    exact(&["--seed", "9007199254740992"]).refused("the largest is 9007199254740991");
    exact(&["--storage", "floppy"]).refused("`nvme`, `ssd`, `hdd`, ");
    exact(&["--filesystem", "ntfs"]).refused("`ext4`, `xfs`, `ext2`");
    exact(&["--margin", "p99=0"]).refused("cannot be used");
    exact(&["--margin", "speed=2"]).refused("is not a kind of metric");
    exact(&["--jobs", "0"]).refused("1 or more");
    exact(&["--hang-limit", "1"]).refused("hang limit");
    compare(&test, &["mine", "mine", "--clock", "exact/1", "--cpus", "2"])
        .refused("QEMU 7.2 hangs in a kernel as old as 6.1.7-mine with 2 CPUs");
    compare(&test, &["mine", "mine", "--clock", "none", "--jobs", "2"]).refused("`--clock exact`");
    compare(&test, &["mine", "mine", "--clock", "sundial"]).refused("wall, exact, none");
}

#[test]
fn levers_that_cannot_be_set() {
    let test = machine("7.2.22");
    for (arm, want) in [
        ("mine,nosmt", "A parameter of the kernel's command line is `boot.nosmt`"),
        ("mine,bot.nosmt", "did you mean `boot.nosmt`?"),
        ("mine,boot.rdinit=/bin/sh", "bigiron sets `rdinit` itself"),
        ("mine,boot.console=tty0", "bigiron sets `console` itself"),
        ("mine,boot.nosmt,boot.nosmt", "is set twice"),
        ("mine,fault.inject=crash", "it can be `panic`, `hang`, `kill-agent` or `kill-init`"),
        ("mine,mm.thp=sometimes", "it must be `always`, `madvise` or `never`"),
        ("mine,block.scheduler=cqf", "it must be `none`, `mq-deadline`, `kyber` or `bfq`"),
        ("mine,micro.colour=red", "Unknown lever `micro.colour`"),
        (&format!("mine,boot.mitigations={}", "x".repeat(2048)), "of the command line, but only 1856 are available"),
    ] {
        compare(&test, &["mine", arm, "micro", "--clock", "exact"]).refused(want);
    }
    compare(&test, &["mine", "mine", "--set", "boot.root=/dev/sda"]).refused("--set: Lever `boot.root` cannot be set");
}

#[test]
fn servers_that_the_trials_cannot_reach_or_start() {
    let test = machine("7.2.22");
    for (workload, option, url) in [
        ("web", "web.url", "http://127.0.0.1:1/x"),
        ("oltp", "oltp.url", "postgresql://u@127.0.0.1:1/d"),
        ("dss", "dss.url", "postgresql://u@127.0.0.1:1/d"),
    ] {
        let server = if workload == "web" { "web.server=url" } else { &*format!("{workload}.engine=postgres") };
        let set = format!("{option}={url}");
        let arms = ["mine", "mine", workload, "--set", server, "--set", &set];
        compare(&test, &arms).refused(&format!("a guest has no network and cannot reach the server of `{option}`"));
    }
    let acks = ["mine", "mine", "oltp", "--set", "oltp.acks=acks"];
    compare(&test, &acks).refused("`oltp.acks` sends acknowledgements out of the machine");
    let local = ["--on", "local", "running", "running"];
    let nfs = [&local[..], &["files"]].concat();
    compare(&test, &nfs).refused("starts it only in guests; use `files.server=samba`");
    let web = [&local[..], &["web", "--set", "web.server=url", "--set", "web.url=http://127.0.0.1:1/x"]].concat();
    compare(&test, &web).refused("Cannot fetch http://127.0.0.1:1/x: No server at 127.0.0.1:1");
}

#[test]
fn machines_that_lack_something() {
    let test = machine("7.2.22");
    let ran =
        compare(&test, &["mine", "mine", "micro", "--clock", "wall"]).refused("needs a guest that runs under KVM");
    ran.stderr_has("`--clock exact`");
    compare(&machine("5.2.0"), &["mine", "mine", "micro", "--qemu", "system"]).refused("7.2 or newer is needed");
    let nowhere = Test::new().path("/nowhere");
    compare(&nowhere, &["debian:6.1", "debian:6.12", "--qemu", "system"]).refused("QEMU is not installed");
    let ran = compare(&nowhere, &["debian:6.1", "debian:6.12"]).refused("Debian 12's 1:7.2");
    ran.stderr_has("has no `apt-config`").stderr_has("`--qemu system`");
}

#[test]
fn folders_that_cannot_be_used() {
    let test = machine("7.2.22").file("full/notes.txt", "mine").file("file", "");
    let out = |dir: &str| compare(&test, &["mine", "mine", "micro", "--clock", "exact", "--out", dir]);
    out("/proc/bigiron").refused("is not writable");
    out("file/below").refused("`file` is not a folder");
    out("full").refused("is not empty and holds no study");
    assert_eq!(test.entries("full").len(), 1);
}

#[test]
fn caches_that_cannot_be_used() {
    let test = machine("7.2.22").file("file", "");
    for cache in [test.dir().join("file"), "/proc/bigiron".into()] {
        let test = Test::new().file("bzImage", bzimage("6.1.7-mine")).cache(cache);
        test.run(&["kernel", "add", "mine", "--image", "bzImage"]).refused("set BIGIRON_CACHE to a folder");
    }
}

#[test]
fn kernels_that_are_none() {
    let test =
        machine("7.2.22").file("broken.deb", "!<arch>\nrubbish").file("image", "\x7fELF").file("tree/README", "");
    let with = |kernel: &str| compare(&test, &["mine", kernel, "micro", "--clock", "exact"]);
    with("./broken.deb").refused("is not a usable Debian package");
    with("./image").refused("is not a usable kernel image");
    with("./tree").refused("is not a usable build tree");
    for missing in ["./nothing/here", "./none.deb"] {
        let ran = with(missing).refused(missing);
        assert_eq!(ran.stderr.matches("No such file").count(), 1, "said once: {}", ran.stderr);
    }
}

#[test]
fn study_files_are_refused_with_file_and_line() {
    let arms = "arms = [\"mine\", \"mine\"]\nworkloads = [\"micro\"]\n";
    for (text, want) in [
        ("[design]\nclock = \"exact\"\n\npars = 8\n", "error: study.toml:6: Unknown key `pars`; did you mean `pairs`?"),
        ("[design]\nclock = \"exact\"\npairs = 7\n", "error: study.toml:5: 7 pairs cannot be balanced"),
        ("[machine]\nmemory = \"900T\"\n", "error: study.toml:4: A guest of 900T does not fit"),
        ("[machine]\ncpus = 0\n", "error: study.toml:4: A guest has from 1 to 255 CPUs"),
        ("[set]\nboot.panic = 1\n", "error: study.toml:4: Lever `boot.panic` cannot be set"),
        ("[sim]\nnoise = 1\n", "error: study.toml: `[sim]` is for the host `sim` only"),
        ("[machine]\nhost = \"sim\"\n[sim]\nnose = 1\n", "error: study.toml:6: "),
        ("[design\n", "error: study.toml:3: "),
    ] {
        let test = machine("7.2.22").file("study.toml", format!("{arms}{text}"));
        test.run(&["run", "study.toml"]).refused(want);
        assert!(test.entries("bigiron-results").is_empty());
    }
    Test::new().run(&["run", "none.toml"]).refused("Cannot read the study file `none.toml`");
}

#[test]
fn a_password_in_a_url_is_refused_and_repeated_nowhere() {
    let test = Test::new();
    let url = "oltp.url=postgresql://me:SECRET@db.example/bench";
    for args in [
        &["compare", "running", "running", "oltp", "--on", "local", "--set", url][..],
        &["oltp", "run", "--set", url.strip_prefix("oltp.").unwrap()],
        &["oltp", "check", url.strip_prefix("oltp.url=").unwrap()],
    ] {
        let ran = test.run(args).refused("set PGPASSWORD");
        assert!(!ran.stdout.contains("SECRET") && !ran.stderr.contains("SECRET"), "{}", ran.stderr);
    }
    assert!(test.entries(".").iter().all(|path| !path.join("plan.toml").exists()), "nothing is kept");
}
