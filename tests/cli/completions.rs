//! Completion of command lines, by the protocol of the shells' scripts and in a real bash.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::builder::{Test, executable, skipped};

/// The candidates for the last of `words`, as the shell gets them.
fn complete_in(test: &Test, shell: &str, words: &[&str]) -> Vec<String> {
    let output = Command::new(executable())
        .arg("--")
        .args(words)
        .current_dir(test.dir())
        .env("COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("BIGIRON_CACHE", test.dir().join("cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn complete(test: &Test, words: &[&str]) -> Vec<String> {
    complete_in(test, "bash", words)
}

/// Whether the candidates for the last word of `line` include all of `wanted`, and each continues that word.
#[track_caller]
fn offers(test: &Test, line: &str, wanted: &[&str]) {
    let words: Vec<&str> = line.split(' ').collect();
    let found = complete(test, &words);
    for want in wanted {
        assert!(found.iter().any(|c| c == want), "{line}: no {want} in {found:?}");
    }
    assert!(found.iter().all(|c| c.starts_with(words[words.len() - 1])), "{line}: {found:?}");
}

/// A cache with the kernel `mine`, and Debian's lists as last read.
fn with_cache() -> Test {
    let entry = "spec = \"debian:6.1\"\nrelease = \"6.1.0-9-cloud-amd64\"\nfrom = \"bookworm\"\nadded = 1\nbytes = 1\nmodules = 0\n\
         image_sha256 = \"0\"\nsource_sha256 = \"0\"\n[debian]\nversion = \"6.1.27-1\"\nflavour = \"cloud-amd64\"\n";
    let package = r#"{"name":"linux-image-6.18.1-cloud-amd64","version":"6.18.1-1","size":1,"installed":1}"#;
    let listing = format!(r#"{{"checked":1,"origin":"Debian","codename":"sid","packages":[{package}]}}"#);
    Test::new()
        .file("cache/kernels/6.1.0-9-cloud-amd64-0/entry.toml", entry)
        .file("cache/names/mine", "6.1.0-9-cloud-amd64-0")
        .file("cache/apt/sid-0/packages-4.json", listing)
}

#[test]
fn kernels_workloads_levers_and_values_are_completed() {
    let test = with_cache();
    offers(&test, "bigiron compare ", &["mine", "debian:6.1", "running", "latest", "previous", "micro", "dbsim"]);
    offers(&test, "bigiron compare deb", &["debian:6.1", "debian:6.18", "debian:12", "debian:bookworm"]);
    offers(&test, "bigiron compare ubuntu:24", &["ubuntu:24.04"]);
    assert!(!complete(&test, &["bigiron", "compare", ""]).iter().any(|c| c.starts_with("ubuntu:")));
    offers(&test, "bigiron upgrade-check --to debian:b", &["debian:bookworm"]);
    offers(&test, "bigiron compare debian:6.1/", &["debian:6.1/amd64", "debian:6.1/cloud-amd64"]);
    offers(&test, "bigiron compare mine mine,", &["mine,boot.", "mine,block.", "mine,dbsim."]);
    offers(&test, "bigiron compare mine mine,block.s", &["mine,block.scheduler="]);
    offers(&test, "bigiron compare mine,boot.nosmt,mm.thp=", &["mine,boot.nosmt,mm.thp=never"]);
    offers(&test, "bigiron compare mine,boot.mit", &["mine,boot.mitigations="]);
    offers(&test, "bigiron compare mine,boot.mitigations=o", &["mine,boot.mitigations=off"]);
    offers(&test, "bigiron compare mine,fault.inject=p", &["mine,fault.inject=panic"]);
    offers(&test, "bigiron compare mine,dbsim.job=", &["mine,dbsim.job=oltp"]);
    offers(&test, "bigiron compare mine,oltp.mode=p", &["mine,oltp.mode=pipelined"]);
    offers(&test, "bigiron compare mine --set cpu.sched.", &["cpu.sched."]);
    offers(&test, "bigiron compare mine --set=mm.thp=n", &["--set=mm.thp=never"]);
    offers(&test, "bigiron compare --storage h", &["hdd", "hdd-15k", "host-file"]);
    offers(&test, "bigiron compare --filesystem ", &["ext4", "xfs"]);
    offers(&test, "bigiron compare --clock ", &["wall", "exact", "none"]);
    offers(&test, "bigiron compare --fail-on w", &["worse"]);
    offers(&test, "bigiron compare mine --qui", &["--quick", "--quiet"]);
    offers(&test, "bigiron kernel remove ", &["mine", "6.1.0-9-cloud-amd64"]);
    offers(&test, "bigiron lever check mm.thp=a", &["mm.thp=always"]);
    offers(&test, "bigiron bisect micro:fork-e", &["micro:fork-exit"]);
    offers(&test, "bigiron bisect --kernels mine,deb", &["mine,debian:6.1"]);
}

#[test]
fn jobs_studies_pages_and_folders_are_completed() {
    let test = with_cache().file("s.toml", "").file("bigiron-results/one/plan.toml", "").file("other/x/plan.toml", "");
    offers(&test, "bigiron doc clo", &["clocks"]);
    offers(&test, "bigiron doc block.sch", &["block.scheduler"]);
    offers(&test, "bigiron run io-", &["io-scheduler", "io-options"]);
    offers(&test, "bigiron run s", &["s.toml", "syscalls"]);
    offers(&test, "bigiron dbsim run ol", &["oltp", "oltp-cached"]);
    offers(&test, "bigiron dbsim run oltp --set cache.si", &["cache.size="]);
    offers(&test, "bigiron oltp run ", &["default", "cached"]);
    offers(&test, "bigiron oltp run --set postgres.shared", &["postgres.shared_buffers="]);
    offers(&test, "bigiron history micro.fo", &["micro.fork-exit"]);
    offers(&test, "bigiron report ", &["bigiron-results/one", "other/"]);
    offers(&test, "bigiron report other/", &["other/x"]);
    let studies = complete(&test, &["bigiron", "report", "s"]);
    assert_eq!(studies, Vec::<String>::new(), "a file is no study");
    // Before a dash is typed, options would hide the rest.
    assert!(complete(&test, &["bigiron", "compare", ""]).iter().all(|c| !c.starts_with('-')));
}

#[test]
fn zsh_and_fish_get_descriptions() {
    let test = with_cache();
    for shell in ["zsh", "fish"] {
        let found = complete_in(&test, shell, &["bigiron", "compare", "mi"]);
        assert!(found.iter().any(|c| c == "mine\tadded kernel 6.1.0-9-cloud-amd64"), "{shell}: {found:?}");
    }
}

#[test]
fn a_broken_cache_is_no_error_and_nothing_is_written() {
    let files = |dir: &Path| fs::read_dir(dir).map(Iterator::count).unwrap_or_default();
    let none = Test::new();
    offers(&none, "bigiron compare deb", &["debian:12"]);
    assert_eq!(files(none.dir()), 0, "a cache was made");
    let broken = Test::new()
        .file("cache/kernels/x/entry.toml", b"\xff\xfe = [")
        .file("cache/names/mine", "../..")
        .file("cache/apt/sid-0/packages-4.json", "{\"checked\":");
    offers(&broken, "bigiron compare ", &["debian:12", "micro"]);
    let no_folder = Test::new().file("cache", "a file");
    offers(&no_folder, "bigiron compare ", &["debian:12", "micro"]);
    assert_eq!(files(no_folder.dir()), 1);
}

/// What bash has on the line after a Tab behind `line`.
fn in_bash(test: &Test, line: &str) -> Vec<String> {
    // `complete -F` is called as readline would, which splits words at its break characters.
    let script = format!(
        r#"
source <(COMPLETE=bash bigiron)
COMP_LINE={line:?}
COMP_POINT=${{#COMP_LINE}}
COMP_WORDS=()
rest=$COMP_LINE
while [[ $rest =~ ^([[:space:]]*)([^:=[:space:]]+|[:=]+)(.*)$ ]]; do
    COMP_WORDS+=("${{BASH_REMATCH[2]}}")
    rest=${{BASH_REMATCH[3]}}
done
[[ $COMP_LINE == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
current=${{COMP_WORDS[COMP_CWORD]}}
[[ $current == [:=] ]] && current=
compopt() {{ echo "compopt $*"; }}
_bigiron bigiron "$current" ""
printf '%s\n' "${{COMPREPLY[@]}}"
"#
    );
    let path = format!("{}:{}", executable().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["--norc", "-c", &script])
        .current_dir(test.dir())
        .env("PATH", path)
        .env("BIGIRON_CACHE", test.dir().join("cache"))
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_words_that_readline_splits() {
    if Command::new("bash").arg("--version").stdout(Stdio::null()).status().is_err() {
        skipped("no bash");
        return;
    }
    let test = with_cache();
    assert_eq!(in_bash(&test, "bigiron compare debian:boo"), ["bookworm"]);
    assert_eq!(
        in_bash(&test, "bigiron compare debian:"),
        ["6.1", "6.18", "11", "bullseye", "12", "bookworm", "13", "trixie"]
    );
    assert_eq!(in_bash(&test, "bigiron compare mine,mm.thp=n"), ["never"]);
    assert_eq!(
        in_bash(&test, "bigiron compare mine debian:6.18,boot.mit"),
        ["compopt -o nospace", "6.18,boot.mitigations="]
    );
    assert_eq!(in_bash(&test, "bigiron run  kernel-u"), ["kernel-upgrade"]);
}
