//! Tests of the pages' layout: a browser lays them out at the widths of a phone, a tablet and a desk, in light and in dark, and measures boxes.
//!
//! Invariant: positions and sizes are compared, never pixels, so fonts and versions of the browser may differ.

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use bigiron_stats::change_point::Search;

use super::{configs, every_study, print, study};
use crate::history::View;
use crate::site::{self, Entry};
use crate::{Extras, Report};
use bigiron_judge::fixture::{complain, dbsim, fail, micro, plan, records};
use bigiron_judge::history::series;
use bigiron_judge::history::series::fixture::stepped;
use bigiron_judge::judge;
use bigiron_model::metric::Unit;
use bigiron_model::plan::Plan;
use bigiron_model::record::{Failure, Record};

const WIDTHS: [u32; 3] = [400, 768, 1200];

/// Names under which distributions install it, the smallest first.
const BROWSERS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

const MEASURE: &str = include_str!("measure.js");

/// What the script measured.
#[derive(Debug, Deserialize)]
struct Measured {
    width: u32,
    dark: bool,
    /// Lines of text.
    lines: usize,
    wrong: Vec<String>,
}

/// Says that the test that runs now shows nothing on this machine; `scripts/test` repeats it at its end.
fn skipped(why: impl Display) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

fn browser() -> Option<&'static str> {
    let runs = |name: &&str| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let found = BROWSERS.into_iter().find(|name| runs(name));
    if found.is_none() {
        skipped("no Chromium; `scripts/setup test` installs it");
    }
    found
}

/// What `script`, at the end of the page, leaves in an element `measured`.
fn run(browser: &str, dir: &Path, page: &str, script: &str, width: u32, dark: bool) -> String {
    let path = dir.join("page.html");
    std::fs::write(&path, page.replacen("</body>", &format!("<script>{{{script}}}</script></body>"), 1)).unwrap();
    let run = Command::new(browser)
        // As root and in containers there is no sandbox; the page is ours.
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--window-size={width},1000"))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let document = String::from_utf8_lossy(&run.stdout);
    let found = document.rsplit_once("<pre id=\"measured\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.unwrap_or_else(|| panic!("no measurement: {}", String::from_utf8_lossy(&run.stderr)));
    found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn measure(browser: &str, dir: &Path, page: &str, width: u32, dark: bool) -> Measured {
    let measured: Measured = serde_json::from_str(&run(browser, dir, page, MEASURE, width, dark)).unwrap();
    assert_eq!((measured.width, measured.dark), (width, dark));
    measured
}

/// A study that is hard to lay out: long names, slight verdicts, failures, many metrics.
fn crowded() -> (Plan, Vec<Record>) {
    let arms = [
        "debian:6.1,boot.mitigations=off,mm.thp=always,sysctl.vm.dirty_background_ratio=5",
        "a-kernel-with-a-name-that-no-line-of-a-phone-can-hold_and_no_place_to_break:6.12",
    ];
    let mut workloads = vec![micro(), dbsim()];
    for workload in &mut workloads {
        let like = workload.metrics.last().unwrap().clone();
        for (number, name) in ["stage-foreground-writer-wake-mean", "switch-16p-64k", "append_8k_fdatasync_to_a_file"]
            .into_iter()
            .cycle()
            .take(30)
            .enumerate()
        {
            let mut metric = like.clone();
            metric.name = format!("{name}-{number}x");
            workload.metrics.push(metric);
        }
    }
    let mut plan = plan(&arms, 10, workloads);
    plan.question = Some("Does `mm.thp=always` help a server whose buffer pool is larger than its memory?".to_owned());
    let mut records = records(&plan, 0.02, |arm, workload, metric| match (arm, workload) {
        (1, "micro") => 1.02,
        (1, _) if metric.ends_with("1x") => 12.5,
        _ => 1.0,
    });
    fail(&mut records[1], Failure::Panic, &"BUG: unable to handle page fault for address ffffffffdeadbeef ".repeat(3));
    complain(&mut records[4], "hung-task", &"x".repeat(200));
    (plan, records)
}

/// The index of a site with studies that are hard to lay out.
pub(super) fn index() -> String {
    let entries: Vec<Entry> = every_study()
        .into_iter()
        .map(|(_, plan, records)| (plan, records))
        .chain([crowded()])
        .map(|(plan, records)| {
            let judgement = judge(&plan, &records);
            let report = Report::new(&plan, &records, &judgement, &Extras::default());
            Entry::of_study(&report, format!("studies/{}/report.html", site::study_name(&plan)))
        })
        .collect();
    site::index(&entries, &entries[..2], true)
}

/// The metrics of a history over kernels.
fn history() -> String {
    let mut history = stepped();
    // A long unit.
    for measured in history.entries.iter_mut().flat_map(|e| &mut e.rows).flat_map(|r| &mut r.metrics) {
        measured.metric.unit = Unit::JobsPerMinute;
    }
    let search = Search::default();
    let found = series::series(&history, "micro", "fork", &search, true).unwrap();
    crate::history::html(&View::new(None, vec![found], search))
}

#[test]
fn pages_fit_their_window_and_nothing_overlaps() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (plan, records) = crowded();
    let page = print(&plan, &records, &configs()).html;
    assert!(page.contains("slightly-worse") && page.contains("panicked"));
    let mut pages = vec![("crowded", page)];
    let studies = every_study().into_iter().filter(|(name, ..)| ["failed", "five arms", "unfinished"].contains(name));
    pages.extend(studies.map(|(name, plan, records)| (name, print(&plan, &records, &configs()).html)));
    pages.extend([("index of a site", index()), ("history", history())]);
    assert_eq!(pages.len(), 6);
    let mut wrong = Vec::new();
    for (name, page) in &pages {
        for width in WIDTHS {
            for dark in [false, true] {
                let measured = measure(browser, dir.path(), page, width, dark);
                assert!(measured.lines > 20, "{name}: {} lines of text", measured.lines);
                wrong.extend(measured.wrong.iter().map(|w| format!("{name}, {width} px, dark {dark}: {w}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_does_not_fit_is_found() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (plan, records) = study(1.05);
    let page = print(&plan, &records, &configs()).html;
    for (style, expected) in [
        ("main { width: 500px; }", "the page is"),
        (".study code { white-space: pre; } .study { overflow: hidden; }", "cut off"),
        (".chip { display: block; width: 30px; }", "needs"),
        (".answer li { margin-top: -60px; }", "overlaps"),
    ] {
        let broken = page.replacen("</style>", &format!("{style}</style>"), 1);
        let wrong = measure(browser, dir.path(), &broken, 400, false).wrong;
        assert!(wrong.iter().any(|w| w.contains(expected)), "{style}: {wrong:#?}");
    }
}

#[test]
fn the_index_shows_the_entries_with_all_words() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
        const count = (text) => {
          words.value = text;
          words.dispatchEvent(new Event("input"));
          return Array.from(document.querySelectorAll(".entries li")).filter((e) => e.getClientRects().length > 0).length;
        };
        const measured = document.createElement("pre");
        measured.id = "measured";
        const counts = ["", "a-KERNEL worse", "a-kernel nothing-has-this-word", "five"].map(count);
        measured.textContent = JSON.stringify([counts, document.querySelector("output").textContent]);
        document.body.append(measured);
    "#;
    let all = every_study().len() + 1 + 2;
    let found = run(browser, dir.path(), &index(), script, 1200, false);
    assert_eq!(found, format!("[[{all},1,0,0],\"0 of {all} shown\"]"));
}
