//! The sources of a job: the name of a shipped one, a file, or a text embedded in a plan; and the values that override its keys.
//!
//! Invariant: the same options give the same job on the host and in a guest, which has no files of the host.

use std::iter;

use super::draft::{self, Draft};
use super::shipped::LIBRARY;
use super::{Job, OPTIONS, class};
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;
use bigiron_model::workload::Options;

/// The value of a shorthand that leaves the choice to the job.
pub const AS_JOB: &str = "job";

/// The job file called `called`: the name of a shipped job, a path, or the text itself (which has more than one line).
///
/// # Errors
/// If there is no such job, or its text is not a job.
pub fn draft(called: &str) -> Result<Draft, Refusal> {
    if called.contains('\n') {
        return Draft::parse("job", called);
    }
    if let Some(shipped) = LIBRARY.find(called) {
        return Draft::parse(shipped.name, shipped.text);
    }
    Draft::parse(called, &LIBRARY.read(called, iter::empty())?)
}

/// The value of a job in a plan: a file's text replaces its path; its name is added in the first line unless the text gives one.
///
/// # Errors
/// If the file cannot be read.
pub fn embed(called: &str) -> Result<String, Refusal> {
    if called.contains('\n') || LIBRARY.find(called).is_some() {
        return Ok(called.to_owned());
    }
    let text = LIBRARY.read(called, iter::empty())?;
    let named = Draft::parse(called, &text)?.name_or_stem()?;
    Ok(match named {
        Some(stem) => format!("name = \"{stem}\"\n{text}"),
        None => format!("{text}\n"),
    })
}

impl Job {
    /// The job described by the complete `options`; the error says what would be right.
    pub fn parse(options: &Options) -> Result<Self, String> {
        Self::from_options(options).map_err(|refusal| refusal.to_string())
    }

    fn from_options(options: &Options) -> Result<Self, Refusal> {
        let called = options.get("job").map_or(LIBRARY.shipped[0].name, String::as_str);
        let mut draft = draft(called)?;
        // Shorthands first: a full key name is more specific.
        for option in OPTIONS.iter().filter(|o| o.name != "job") {
            let value = options.get(option.name).map_or(AS_JOB, String::as_str);
            if value != AS_JOB {
                shorthand(&mut draft, option.name, value)?;
            }
        }
        for (key, value) in options.iter().filter(|(key, _)| key.contains('.')) {
            draft.set(key, value, &format!("dbsim.{key}"))?;
        }
        draft.job()
    }
}

/// Whether `name` is a key of a job rather than one of [`OPTIONS`]. The error says what would be right.
pub fn check_dotted(name: &str) -> Result<(), String> {
    if !name.contains('.')
        && let Some(near) = suggest::nearest(name, OPTIONS.iter().map(|o| o.name))
    {
        return Err(format!("did you mean `dbsim.{near}`?"));
    }
    draft::check_key(name).map_err(|right| {
        if name.contains('.') { right } else { format!("dbsim has {}", suggest::list(OPTIONS.iter().map(|o| o.name))) }
    })
}

/// Applies a shorthand to the job.
fn shorthand(draft: &mut Draft, name: &str, value: &str) -> Result<(), Refusal> {
    let said = format!("dbsim.{name}");
    let set = |draft: &mut Draft, key: &str| draft.set(key, value, &said);
    let processes = draft.processes();
    let of = |kinds: &[&str]| -> Vec<String> {
        processes.iter().filter(|(_, kind)| kinds.contains(&kind.as_str())).map(|(name, _)| name.clone()).collect()
    };
    match name {
        "io" => {
            for (process, kind) in processes.iter().filter(|(_, kind)| class::has_engine(kind)) {
                set(draft, &format!("process.{process}.io"))?;
                // Settings that the new engine lacks are removed with the old one.
                if value != "uring" {
                    for key in ["registered", "sqpoll", "iopoll"] {
                        draft.remove_process_key(process, key);
                    }
                }
                if value == "sync" && kind != "database-writer" {
                    draft.remove_process_key(process, "depth");
                    draft.remove_process_key(process, "submit");
                }
            }
            Ok(())
        }
        "direct" => {
            set(draft, "data.direct")?;
            set(draft, "journal.direct")?;
            of(&["scanner", "requests"]).iter().try_for_each(|p| set(draft, &format!("process.{p}.direct")))
        }
        "sync" => {
            set(draft, "data.sync")?;
            set(draft, "journal.sync")
        }
        "processes" => match &of(&["foreground", "client"])[..] {
            [one] => set(draft, &format!("process.{one}.count")),
            several => Err(Refusal::new(match several {
                [] => format!("`{said}` has nothing to act on: no process of this job executes transactions"),
                _ => format!(
                    "`{said}` could mean {}; write `dbsim.process.NAME.count`",
                    suggest::list(several.iter().map(|p| format!("process.{p}.count")))
                ),
            })),
        },
        "transactions" => set(draft, "run.transactions"),
        "data" | "cache" | "journal" => set(draft, &format!("{name}.size")),
        "write" => write(draft, value, &said),
        "scan" => {
            let scanners = of(&["scanner"]);
            if value == "off" {
                scanners.iter().for_each(|scanner| draft.remove_process(scanner));
            } else if scanners.is_empty() {
                draft.set("process.scanner.kind", "scanner", &said)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Changes every `dirty` step of every transaction to `value` per cent.
fn write(draft: &mut Draft, value: &str, said: &str) -> Result<(), Refusal> {
    let percent = value.parse().ok().filter(|p| (1..=100).contains(p));
    let Some(percent) = percent else {
        let message = format!("`{said}` cannot be `{value}`; it can be a number from 1 to 100");
        return Err(Refusal::new(message));
    };
    let percent: u32 = percent;
    let mut changed = false;
    for (name, steps) in draft.transactions() {
        let dirty = |step: &String| step.split_whitespace().next() == Some("dirty");
        if steps.iter().any(dirty) {
            let steps: Vec<String> =
                steps.iter().map(|s| if dirty(s) { format!("dirty {percent}%") } else { s.clone() }).collect();
            draft.set(&format!("transaction.{name}.steps"), &steps.join("; "), said)?;
            changed = true;
        }
    }
    if changed {
        return Ok(());
    }
    Err(Refusal::new(format!("`{said}` has nothing to act on: no transaction of this job has a step `dirty`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{ClassKind, Length, Method};
    use bigiron_model::clock::Clock;

    fn job(settings: &[(&str, &str)]) -> Result<Job, String> {
        let mut options: Options = OPTIONS.iter().map(|o| (o.name.to_owned(), o.default.to_owned())).collect();
        options.extend(settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Job::parse(&options)
    }

    #[test]
    fn the_default_job_is_whole() {
        let job = job(&[]).unwrap();
        assert_eq!(job.name, "orasim-2004");
        assert_eq!((job.blocks(), job.blocks_per_file(), job.buffers()), (15_360, 1_536, 4_096));
        assert_eq!((job.transactions(Clock::Exact), job.ramp(Clock::Exact)), (Some(3_000), Some(750)));
        assert_eq!(job.transactions(Clock::Wall), Some(60_000));
        let counts: Vec<_> = job.classes.iter().map(|c| (c.kind.word(), c.count)).collect();
        assert_eq!(counts, [("foreground", 8), ("log-writer", 1), ("database-writer", 1), ("scanner", 1)]);
    }

    #[test]
    fn every_shipped_job_is_a_job_and_says_what_it_is() {
        for shipped in LIBRARY.shipped {
            let draft = draft(shipped.name).unwrap();
            assert!(draft.about().is_some_and(|about| about.len() > 20), "{}", shipped.name);
            let job = draft.job().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(job.name, shipped.name);
            assert!(shipped.text.lines().count() <= 60, "{}", shipped.name);
        }
        let orasim = LIBRARY.find("orasim-2004").unwrap().text;
        assert!(orasim.lines().count() <= 30, "{} lines", orasim.lines().count());
    }

    #[test]
    fn shorthands_reach_every_class_they_mean() {
        let engines = |job: &Job| -> Vec<(Method, usize)> {
            let engine = |kind: &ClassKind| match kind {
                ClassKind::LogWriter { engine, .. }
                | ClassKind::DatabaseWriter { engine, .. }
                | ClassKind::Scanner { engine, .. } => Some((engine.method, engine.depth)),
                _ => None,
            };
            job.classes.iter().filter_map(|c| engine(&c.kind)).collect()
        };
        assert_eq!(
            engines(&job(&[("io", "sync")]).unwrap()),
            [(Method::Sync, 1), (Method::Sync, 32), (Method::Sync, 1)]
        );
        assert_eq!(engines(&job(&[("io", "uring")]).unwrap()).last(), Some(&(Method::Uring, 2)));
        let off = job(&[("direct", "off"), ("scan", "off"), ("processes", "3"), ("write", "100")]).unwrap();
        assert!(!off.data.direct && !off.journal.direct && off.journal.block == 512);
        assert_eq!((off.transactors(), off.classes.len()), (3, 3));
        assert_eq!(off.transactions[0].steps[1].to_string(), "dirty 100%");
    }

    #[test]
    fn direct_io_refuses_dontcache() {
        let both = job(&[("data.dontcache", "on")]).unwrap_err();
        assert!(both.contains("set `data.direct` to `off`, or omit `data.dontcache`"), "{both}");
        assert!(job(&[("direct", "off"), ("data.dontcache", "on")]).unwrap().data.dontcache);
    }

    #[test]
    fn a_key_in_full_wins_over_a_shorthand() {
        let job = job(&[("processes", "3"), ("process.foreground.count", "5"), ("run.time", "2s")]).unwrap();
        assert_eq!(job.transactors(), 5);
        assert_eq!(job.run.length, Length::Time(std::time::Duration::from_secs(2)));
    }

    #[test]
    fn no_processes_are_no_class() {
        let without = job(&[("process.scanner.count", "0")]).unwrap();
        assert!(without.classes.iter().all(|c| c.name != "scanner"));
    }

    #[test]
    fn a_text_is_a_job_and_keeps_its_lines() {
        let text = "dbsim = 1\n[process.a]\nkind = \"foregroud\"\n";
        assert_eq!(
            job(&[("job", text)]).unwrap_err(),
            "job:3: `kind` cannot be `foregroud`; did you mean `foreground`?"
        );
    }

    #[test]
    fn a_file_travels_as_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("My Job.toml");
        std::fs::write(&path, LIBRARY.find("oltp").unwrap().text).unwrap();
        let called = path.to_str().unwrap();
        let text = embed(called).unwrap();
        let (from_file, from_text) = (job(&[("job", called)]).unwrap(), job(&[("job", &text)]).unwrap());
        assert_eq!(from_file.name, "my-job");
        assert_eq!(from_file, from_text);
        assert_eq!(embed("oltp").unwrap(), "oltp");
    }

    #[test]
    fn refusals_say_what_would_be_right() {
        for (name, value, want) in [
            ("processes", "many", "`dbsim.processes` cannot be `many`; it can be a number from 0 to 20000"),
            (
                "transactions",
                "many",
                "`dbsim.transactions` cannot be `many`; it can be a number from 1 to 1000000000000, or `auto`",
            ),
            ("data", "100000", "`dbsim.data` cannot be `100000`; it can be a multiple of 10M from 10M to 1T"),
            ("cache", "640M", "make `cache.size` at most 120M"),
            ("journal", "1M", "make `journal.size` at least 2M"),
            ("write", "0", "`dbsim.write` cannot be `0`; it can be a number from 1 to 100"),
            ("job", "otlp", "`otlp` is not a job; did you mean `oltp`?"),
            ("job", "./nothing.toml", "Cannot read the job file `./nothing.toml`"),
            ("process.foregrond.count", "3", "There is no process `foregrond`; did you mean `foreground`?"),
            ("process.foreground.count", "x", "`dbsim.process.foreground.count` cannot be `x`"),
            ("process.foreground.cuont", "3", "did you mean `process.foreground.count`?"),
            ("transaction.update.steps", "read 8; commmit", "`commmit` is not a step; did you mean `commit`?"),
            ("cache.memory", "huge-3M", "`huge-2M`"),
            ("journal.sync", "linked", "`linked` requests exist in io_uring only"),
        ] {
            let error = job(&[(name, value)]).unwrap_err();
            assert!(error.contains(want), "{name}={value}: {error}");
        }
    }

    #[test]
    fn keys_are_checked_without_a_job() {
        for key in ["run.time", "process.x.count", "transaction.y.steps", "phase.z.pace", "cache.memory"] {
            check_dotted(key).unwrap();
        }
        for (key, want) in [
            ("cache.sise", "did you mean `cache.size`?"),
            ("proces.x.count", "did you mean `process`?"),
            ("procesess", "did you mean `dbsim.processes`?"),
            ("process.x", "write `process.NAME.KEY`"),
            ("cache.a.b", "write `cache.KEY`"),
            ("other.x", "keys of a job begin with `run`"),
        ] {
            let error = check_dotted(key).unwrap_err();
            assert!(error.contains(want), "{key}: {error}");
        }
    }
}
