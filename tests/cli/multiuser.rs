//! `multiuser` as a workload of studies: what is refused before anything boots, what a report shows.

use std::fs;

use crate::builder::Test;

const STUDY: &str = "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"multiuser\"]\n\n[design]\npairs = 8\nseed = 7\n\
                     clock = \"exact\"\n\n[set]\nmultiuser.mix = \"mine.workfile\"\nmultiuser.users = \"1,2,4,8,16,32\"\n\n\
                     [machine]\nhost = \"sim\"\n\n[sim]\nnoise = 0.002\n\
                     [sim.effects.\"debian:6.12\"]\n\"multiuser.*\" = 0.9\n";

const MIX: &str = "FILESIZE: 10K\n30 add_int\n10 disk_rd\n";

#[test]
fn a_study_has_a_curve() {
    let test = Test::new().file("s.toml", STUDY).file("mine.workfile", MIX);
    let ran = test.run(&["run", "s.toml", "--out", "out", "--full"]).status(0);
    ran.stdout_has("fewer jobs/min than debian:6.1").stdout_has("rate-32").stdout_has("usl-kappa");
    let page = fs::read_to_string(test.dir().join("out/report.html")).unwrap();
    assert!(page.contains("multiuser rate over 1, 2, 4, 8, 16, 32"));
    assert_eq!(page.matches("class=\"bar\"").count(), 6);
    // The mix travels with the plan: the folder answers without the file.
    fs::remove_file(test.dir().join("mine.workfile")).unwrap();
    test.run(&["report", "out"]).status(0).stdout_has("jobs/min");
}

#[test]
fn a_bad_workfile_or_config_file_is_refused_by_its_line() {
    let refused = |mix: &str, said: &str| {
        Test::new().file("s.toml", STUDY).file("mine.workfile", mix).run(&["run", "s.toml"]).refused(said);
    };
    refused("10 add_int\n10 disk_rdd\n", "mine.workfile:2: There is no test `disk_rdd`; did you mean `disk_rd`?");
    refused("10 add_int\nadd_long 10\n", "mine.workfile:2: `add_long 10` is neither a size nor a test");
    refused("0 add_int\n", "All weights are 0; one must be at least 1");
    let test = Test::new().file("reaim.config", "JOBS ten\n");
    test.run(&["compare", "debian:6.1", "debian:6.12", "multiuser", "--set", "multiuser.config=reaim.config"])
        .refused("reaim.config:1: `JOBS` cannot be `ten`; it can be a whole number from 1");
    let set = |setting: &str, said: &str| {
        let test = Test::new();
        test.run(&["compare", "debian:6.1", "debian:6.12", "multiuser", "--set", setting]).refused(said);
    };
    set("multiuser.users=5000000", "each is a process, and the kernel has at most 4194003");
    set("multiuser.mix=dbse", "did you mean `dbase`?");
    set("multiuser.userss=3", "did you mean `multiuser.users`?");
}
