//! `bigiron site`: reads studies and nights, and writes their reports, an index and the history as a static site.
//!
//! Invariant: the files are a function of the studies alone, so writing a site twice gives the same bytes.

mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use bigiron_stats::change_point::Search;

use self::folder::SiteFolder;
use super::{nightly, output};
use crate::cli;
use crate::commands::output::Terminal;
use crate::conduct::{self, Conducted};
use crate::night::Night;
use crate::night::report as night_report;
use bigiron_judge::history::{History, HistoryEntry, series};
use bigiron_model::folder_files;
use bigiron_model::printable::without_passwords;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::Folder;
use bigiron_report as report;
use bigiron_report::history::View;
use bigiron_report::html::linked;
use bigiron_report::site::{self, Entry, HISTORY};

const INDEX: &str = "index.html";

/// A study's or night's page, as in its own folder, so that a night's links to its studies hold.
const PAGE: &str = "report.html";

/// A study's files that its page links to.
const RAW: [&str; 2] = ["plan.toml", "records.jsonl"];

pub(super) fn run(args: &cli::Site) -> anyhow::Result<u8> {
    // Before hours of judging, say that the result cannot be written.
    let folder = SiteFolder::open(&args.out)?;
    let found = sources(&args.dirs)?;
    let mut site = Pages::default();
    for dir in &found.nights {
        site.night(dir).with_context(|| format!("Night in `{}`", dir.display()))?;
    }
    for dir in &found.studies {
        site.study(dir).with_context(|| format!("Study in `{}`", dir.display()))?;
    }
    let (studies, nights) = (site::count(site.studies.len(), "study"), site::count(site.nights.len(), "night"));
    folder.write(&site.finish())?;
    output::note(&format!("Site of {studies} and {nights} in `{}`", args.out.display()));
    output::data(&args.out.join(INDEX).display().to_string())?;
    Ok(0)
}

/// The folders to show.
#[derive(Default)]
struct Sources {
    studies: Vec<PathBuf>,
    nights: Vec<PathBuf>,
}

impl Sources {
    /// Adds `dir` if it holds a night or a study.
    fn add(&mut self, dir: &Path) -> bool {
        let list = if Night::is_in(dir) {
            &mut self.nights
        } else if dir.join(RAW[0]).exists() {
            &mut self.studies
        } else {
            return false;
        };
        list.push(dir.to_owned());
        true
    }
}

/// The studies and nights of the named folders, and of the folders directly below those that are neither.
fn sources(dirs: &[PathBuf]) -> anyhow::Result<Sources> {
    let mut found = Sources::default();
    for dir in dirs {
        if found.add(dir) {
            continue;
        }
        let entries =
            fs::read_dir(dir).map_err(|e| Refusal::new(format!("Cannot read the folder `{}`: {e}", dir.display())))?;
        let mut below: Vec<PathBuf> = entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
        below.sort();
        // All of them: `any` would stop at the first.
        let count = below.iter().filter(|dir| found.add(dir)).count();
        if count == 0 {
            let message =
                format!("`{}` holds neither a study nor a night, and none of its folders does", dir.display());
            return Err(Refusal::new(message)
                .hint("Name folders that `bigiron compare` or `bigiron nightly` wrote")
                .into());
        }
    }
    // Of two studies with one name, the older keeps it, whatever is added later.
    found.studies.sort_by_cached_key(|dir| (Folder::open(dir).ok().and_then(|f| f.plan().begun.clone()), dir.clone()));
    for list in [&mut found.studies, &mut found.nights] {
        let mut seen = BTreeSet::new();
        list.retain(|dir| seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())));
    }
    Ok(found)
}

/// The site's pages so far.
#[derive(Default)]
struct Pages {
    files: BTreeMap<String, Vec<u8>>,
    studies: Vec<Entry>,
    nights: Vec<Entry>,
    entries: Vec<HistoryEntry>,
}

impl Pages {
    /// A study on its own.
    fn study(&mut self, dir: &Path) -> anyhow::Result<()> {
        let study = judged(dir)?;
        let at = self.free(&format!("studies/{}", site::study_name(study.folder.plan())), dir);
        self.page(&study, &at, "../../")?;
        let entry = Entry::of_study(&study.report(false), format!("{at}/{PAGE}"));
        self.studies.push(entry);
        Ok(())
    }

    /// A night with its studies, which its page links to.
    fn night(&mut self, dir: &Path) -> anyhow::Result<()> {
        let night = Night::open(dir)?.with_context(|| format!("`{}` has no night any more", dir.display()))?;
        let at = self.free(&format!("nights/{}", night_name(&night)), dir);
        let report = nightly::report(dir, &night, &AtomicBool::new(false))?;
        let mut below: Vec<PathBuf> = fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
        below.sort();
        let mut machine = String::new();
        for study in below.iter().filter(|dir| dir.join(RAW[0]).exists()) {
            let name = study.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let study = judged(study)?;
            self.page(&study, &format!("{at}/{name}"), "../../../")?;
            if machine.is_empty() {
                machine = report::scope::machine(study.folder.plan(), &study.records);
            }
        }
        let page = without_passwords(&night_report::html(&report)).into_owned();
        self.files.insert(format!("{at}/{PAGE}"), linked(&page, &format!("../../{INDEX}")).into_bytes());
        let mut workloads: Vec<String> =
            night.groups.iter().flat_map(|g| &g.rows).map(|r| r.workload.clone()).collect();
        let mut seen = BTreeSet::new();
        workloads.retain(|w| seen.insert(w.clone()));
        self.nights.push(Entry {
            link: format!("{at}/{PAGE}"),
            title: report.title(),
            question: None,
            begun: Some(night.begun.clone()),
            verdict: report.grid.verdict(),
            answer: (1..night.arms.len()).map(|arm| report.sentence(arm - 1)).collect(),
            kernels: night.arms.iter().map(|a| a.kernel.release.clone()).collect(),
            workloads,
            machine,
        });
        // The night's folder also keeps what the history knew of its kernels.
        for entry in report.entries.into_iter().chain(History::read(dir)?.entries) {
            if !self.entries.iter().any(|known| known.night == entry.night && known.arm == entry.arm) {
                self.entries.push(entry);
            }
        }
        Ok(())
    }

    /// The report of a study and its raw files at `at`; `top` leads from there to the site.
    fn page(&mut self, study: &Conducted, at: &str, top: &str) -> anyhow::Result<()> {
        let page = report::html(&study.report(false));
        let page = linked(&without_passwords(&page), &format!("{top}{INDEX}"));
        self.files.insert(format!("{at}/{PAGE}"), page.into_bytes());
        let dir = study.folder.dir();
        for name in RAW {
            let bytes = match folder_files::read(dir, name) {
                // A study that has not begun has no records.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                read => read.with_context(|| format!("Cannot read `{}`", dir.join(name).display()))?,
            };
            // A site is for others' eyes, and a plan may name a server with its password.
            let bytes = match std::str::from_utf8(&bytes) {
                Ok(text) => without_passwords(text).into_owned().into_bytes(),
                Err(_) => bytes,
            };
            self.files.insert(format!("{at}/{name}"), bytes);
        }
        Ok(())
    }

    /// `name`, or `name-2` if another folder has that name: one question with one seed may have been asked twice.
    fn free(&self, name: &str, dir: &Path) -> String {
        let taken = |name: &str| self.files.contains_key(&format!("{name}/{PAGE}"));
        if !taken(name) {
            return name.to_owned();
        }
        output::warn(&format!("`{}` answers the same question as another folder, with the same seed", dir.display()));
        (2..).map(|n| format!("{name}-{n}")).find(|name| !taken(name)).expect("the numbers are unbounded")
    }

    /// All files, with the index and the history.
    fn finish(mut self) -> BTreeMap<String, Vec<u8>> {
        self.entries.sort_by(|a, b| a.begun.cmp(&b.begun));
        let history = History { entries: self.entries, unreadable: Vec::new() };
        let search = Search::default();
        let names = series::names(&history);
        let found: Vec<_> = names
            .iter()
            .filter_map(|(row, metric)| series::series(&history, row, &metric.name, &search, false))
            .collect();
        let has_history = !found.is_empty();
        if has_history {
            let page = report::history::html(&View::new(None, found, search));
            self.files.insert(HISTORY.to_owned(), linked(&without_passwords(&page), INDEX).into_bytes());
        }
        site::sort(&mut self.studies);
        site::sort(&mut self.nights);
        let index = site::index(&self.studies, &self.nights, has_history);
        self.files.insert(INDEX.to_owned(), without_passwords(&index).into_owned().into_bytes());
        self.files
    }
}

/// A study with its judgement, from its folder.
fn judged(dir: &Path) -> anyhow::Result<Conducted> {
    let never = AtomicBool::new(false);
    let folder = Folder::open(dir)?;
    let judged = conduct::judged(&folder, &never, &Terminal)?;
    Conducted::new(folder, judged, Vec::new(), &never)
}

/// The name of a night's folder: when it began and what it asked.
fn night_name(night: &Night) -> String {
    let begun: String = night.begun.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{begun}-{}", night.question_sha256.get(..8).unwrap_or_default())
}
