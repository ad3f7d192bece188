//! Pages, help and the lines that users are told to type.

use bigiron::cli::{Cli, Command};
use bigiron::study::arguments;
use clap::{CommandFactory, Parser};

use crate::builder::{Test, executable};

#[test]
fn the_parser_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_page_is_listed_and_printed() {
    let test = Test::new();
    let list = test.run(&["doc"]).status(0).stdout;
    let names: Vec<&str> = list.lines().map(|l| l.split_whitespace().nth(1).unwrap()).collect();
    assert!(names.contains(&"micro") && names.contains(&"boot") && names.contains(&"study-file"), "{list}");
    for name in names {
        assert!(test.run(&["doc", name]).status(0).stdout.len() > 200, "{name}");
    }
    test.run(&["doc", "boot.mitigations"]).status(0).stdout_has("Lever `boot`");
    test.run(&["doc", "clcoks"]).refused("did you mean `clocks`?");
}

#[test]
fn a_page_is_markdown_in_a_file_and_laid_out_for_a_terminal() {
    let test = Test::new();
    let markdown = include_str!("../../docs/guide/comparison.md");
    assert_eq!(test.run(&["doc", "comparison"]).status(0).stdout, markdown);
    assert_eq!(test.run(&["doc", "comparison", "--color", "never"]).status(0).stdout, markdown);
    let shown = test.run(&["doc", "comparison", "--color", "always"]).status(0).stdout;
    assert!(shown.starts_with("\x1b[1mComparison with other tools\x1b[0m\n"), "{shown}");
    assert!(!shown.contains("|---|") && shown.contains("random balanced pairs"), "{shown}");
}

/// Every Markdown page below docs/.
fn pages() -> Vec<std::path::PathBuf> {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let entries =
        |dir: &std::path::Path| std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    let folders = entries(&docs).into_iter().filter(|p| p.is_dir());
    let mut pages: Vec<_> =
        folders.flat_map(|f| entries(&f)).filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    pages
}

#[test]
fn every_page_can_be_printed_under_its_name() {
    let test = Test::new();
    let list = test.run(&["doc"]).status(0).stdout;
    let mut names: Vec<&str> = list.lines().map(|l| l.split_whitespace().nth(1).unwrap()).collect();
    names.sort_unstable();
    let mut stems: Vec<String> = pages().iter().map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    stems.sort_unstable();
    assert_eq!(names, stems);
}

/// As GitHub makes it of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut links = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let (file, part) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            let headings = std::fs::read_to_string(&target).unwrap();
            let found = headings.lines().any(|l| l.starts_with('#') && anchor(l) == part);
            assert!(part.is_empty() || found, "{}: no heading for {link}", page.display());
            links += 1;
        }
    }
    assert!(links >= 4, "{links} links");
}

/// Command lines in code of the documentation.
fn documented() -> Vec<String> {
    let mut lines = Vec::new();
    let folders = ["guide", "levers", "reference", "concepts", "workloads", "measurements", "studies"];
    for page in folders.map(|f| format!("docs/{f}")).into_iter().chain(["README.md".to_owned()]) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let files = match std::fs::read_dir(&path) {
            Ok(entries) => entries.map(|e| e.unwrap().path()).collect(),
            Err(_) => vec![path],
        };
        for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "md")) {
            let Ok(text) = std::fs::read_to_string(file) else { continue };
            let text = text.replace("\\\n", " ").replace(" && ", "\n    ");
            let mut fenced = false;
            let code = text.lines().filter(|line| {
                fenced ^= line.starts_with("```");
                fenced || line.starts_with("    ")
            });
            let code = code.map(str::trim).filter(|l| l.starts_with("bigiron ") && !l.contains('…'));
            lines.extend(code.map(|l| l.split([';', '|', '#', '>']).next().unwrap().trim().to_owned()));
        }
    }
    lines
}

#[test]
fn every_documented_command_parses() {
    let issue = [
        "bigiron compare debian:6.1 debian:6.12",
        "bigiron compare debian:6.1 debian:6.12 micro dbsim --clock exact --pairs 8 --cpus 1 --memory 1G --seed 7 --out DIR",
        "bigiron compare mine debian:6.12,boot.mitigations=off micro",
        "bigiron kernel add mine --image bzImage --modules DIR",
        "bigiron run study.toml",
        "bigiron report DIR --format html",
        "bigiron show DIR",
        "bigiron show DIR 3",
        "bigiron kernel fetch debian:6.1",
        "bigiron kernel list",
        "bigiron doctor",
        "bigiron selftest --aa",
        "bigiron doc micro",
    ];
    let documented = documented();
    assert!(documented.len() >= 5, "{documented:?}");
    for line in issue.into_iter().map(str::to_owned).chain(documented) {
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|e| panic!("{line}: {e}"));
        if let Command::Compare(args) = cli.command {
            arguments::sort(&args.words, &["mine".to_owned()]).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(executable())
        .args(["doc", "micro"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_worker_that_is_told_to_exit_does() {
    assert_eq!(Test::new().run(&["worker", "exit"]).status(0).stdout, "");
}
