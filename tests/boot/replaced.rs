//! Kernel files that change while a study of them is unfinished.

use std::fs;
use std::path::{Path, PathBuf};

use super::{cache, test, underway};
use rustix::process::{Pid, Signal, kill_process};

/// The image of the newest kernel of a series, in the shared cache.
fn image(series: &str) -> PathBuf {
    test().run(&["kernel", "fetch", &format!("debian:{series}")]).status(0);
    let kernels = fs::read_dir(cache().join("kernels")).unwrap().map(|e| e.unwrap().path());
    let of_series = |dir: &Path| dir.file_name().unwrap().to_string_lossy().starts_with(&format!("{series}."));
    kernels.filter(|dir| of_series(dir)).max().unwrap().join("image")
}

#[test]
fn a_kernel_that_was_replaced_is_named_and_its_study_is_not_continued() {
    let test = test();
    let (old, new) = (image("6.1"), image("6.12"));
    let kernel = test.dir().join("bz");
    fs::copy(old, &kernel).unwrap();
    let study = [
        "compare",
        "./bz",
        "./bz",
        "micro",
        "--set",
        "micro.only=null-call",
        "--clock",
        "none",
        "--pairs",
        "8",
        "--seed",
        "1",
        "--out",
        "s",
    ];
    let child = underway(&test, &study, 1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap();
    fs::copy(new, &kernel).unwrap();
    let refused =
        test.run(&study).refused("The inputs of the study in `s` have changed since it began: `./bz`: release 6.1.");
    assert!(
        refused.stderr.contains(" → 6.12.")
            && refused.stderr.contains("image ")
            && refused.stderr.contains("`--fresh`")
    );
}
