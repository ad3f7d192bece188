//! Sites of studies and nights on the scripted host.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::builder::Test;

const STUDY: &str = "question = \"Is <B> slower?\"\narms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"micro\"]\n\n[design]\npairs = 8\n\
    seed = 7\nclock = \"exact\"\n\n[machine]\nhost = \"sim\"\n\n[sim]\nnoise = 0.002\n[sim.effects.\"debian:6.12\"]\n\"*\" = 1.1\n";

/// All files below a folder, by their path in it.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The values of `href` in a page that lead to files.
fn links(page: &str) -> Vec<&str> {
    let all = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    all.filter(|link| !link.starts_with('#')).collect()
}

/// A test with a study in `results/one` and a night in `results/night`.
fn results() -> Test {
    let script = "noise = 0.002\n[effects.\"debian:6.12\"]\n\"micro.*\" = 1.05\n";
    let test = Test::new().file("s.toml", script).file("study.toml", STUDY);
    test.run(&["run", "study.toml", "--out", "results/one"]).status(0);
    let night = ["nightly", "debian:6.1", "debian:6.12", "micro", "--quick", "--sim", "s.toml", "--history", "h"];
    test.run(&[&night[..], &["--out", "results/night"]].concat()).status(0);
    test
}

#[test]
fn a_site_has_every_report_and_its_links_lead_somewhere() {
    let test = results();
    let ran = test.run(&["site", "results", "--out", "site"]).status(0).stdout_has("site/index.html");
    ran.stderr_has("1 study and 1 night");
    let site = test.dir().join("site");
    let written = files(&site);
    let mut followed = 0;
    for (name, bytes) in written.iter().filter(|(name, _)| name.ends_with(".html")) {
        let page = std::str::from_utf8(bytes).unwrap();
        for link in links(page) {
            let target = site.join(name).parent().unwrap().join(link);
            assert!(target.is_file(), "{name} links to {link}");
            followed += 1;
        }
        assert!(!page.contains("http://") && !page.contains("https://"), "{name}");
    }
    assert!(followed > 8, "{followed} links");
    let index = std::str::from_utf8(&written["index.html"]).unwrap();
    assert!(index.contains("Is &lt;B&gt; slower?") && index.contains("Night of 20"), "{index}");
    assert!(index.contains("history.html") && index.contains("chip worse"), "{index}");
    // The study's page is the one in its folder, but for its link to the index; its name comes from question and seed.
    let study = written.keys().find(|name| name.starts_with("studies/") && name.ends_with("report.html")).unwrap();
    assert!(
        study.starts_with("studies/debian-6.1-vs-debian-6.12-") && study.ends_with("-seed-7/report.html"),
        "{study}"
    );
    let own = fs::read_to_string(test.dir().join("results/one/report.html")).unwrap();
    let page = std::str::from_utf8(&written[study]).unwrap();
    assert_eq!(page.replacen("<a href=\"../../index.html\"><b>bigiron</b></a>", "<b>bigiron</b>", 1), own);
    let records = study.replace("report.html", "records.jsonl");
    assert_eq!(written[&records], fs::read(test.dir().join("results/one/records.jsonl")).unwrap());
}

#[test]
fn a_site_written_again_is_the_same_and_loses_what_was_not_named() {
    let test = results();
    test.run(&["site", "results/one", "results", "--out", "site"]).status(0);
    let site = test.dir().join("site");
    let first = files(&site);
    test.run(&["site", "results", "--out", "site"]).status(0);
    assert_eq!(files(&site), first);
    fs::write(site.join("CNAME"), "mine").unwrap();
    test.run(&["site", "results/night", "--out", "site"]).status(0);
    let left = files(&site);
    assert!(left.contains_key("CNAME") && !left.keys().any(|name| name.starts_with("studies/")), "{:?}", left.keys());
    assert!(!site.join("studies").exists());
    assert!(first.iter().all(|(name, bytes)| !name.starts_with("nights/") || left[name] == *bytes));
    // The same question asked again stands beside it.
    test.run(&["run", "study.toml", "--out", "results/two"]).status(0);
    test.run(&["site", "results", "--out", "site"]).status(0).stderr_has("with the same seed");
    let both = files(&site);
    let name = first.keys().find(|name| name.starts_with("studies/") && name.ends_with("report.html")).unwrap();
    assert_eq!(both[name], first[name]);
    assert!(both.contains_key(&name.replace("/report.html", "-2/report.html")), "{:?}", both.keys());
}

#[test]
fn a_site_is_not_written_over_other_things() {
    let test = Test::new().file("full/letter.txt", "dear").file("empty/.keep", "").file("study.toml", STUDY);
    test.run(&["run", "study.toml", "--out", "one"]).status(0);
    test.run(&["site", "one", "--out", "full"]).refused("`full` is not empty and is not a site");
    test.run(&["site", "one", "--out", "one"]).refused("`one` is not empty and is not a site");
    test.run(&["site", "empty", "--out", "site"]).refused("holds neither a study nor a night");
    test.run(&["site", "nowhere", "--out", "site"]).refused("Cannot read the folder `nowhere`");
    assert!(!test.dir().join("site").exists());
    test.run(&["site", "one", "--out", "empty"]).status(0);
}
