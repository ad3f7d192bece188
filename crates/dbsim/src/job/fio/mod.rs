//! Converts a fio job file to a dbsim job, if possible.
//!
//! Invariant: the result is a job that does the same as fio with the file in terms of the distribution of offsets, request sizes,
//! depth, durability and length; anything that cannot be preserved is refused with its line.

mod ini;
mod section;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use section::Imported;

use super::{DataSpec, DataSync, Draft, Job, Length, RunSpec, draft, print};
use bigiron_model::refusal::Refusal;

/// The text of a dbsim job equivalent to the fio job file called `file`.
///
/// # Errors
/// If the file is not a fio job file, or has something that cannot be expressed; the message has the line.
pub fn import(file: &str, text: &str) -> Result<String, Refusal> {
    let sections = ini::parse(file, text)?;
    let mut imported: Vec<Imported> = Vec::new();
    for section in &sections {
        let name = name(&section.name, imported.iter().map(|i| i.class.name.as_str()).collect());
        imported.push(section::import(section, name)?);
    }
    let first = &imported[0];
    for (other, section) in imported.iter().zip(&sections).skip(1) {
        let unlike = |what: &str| {
            Refusal::new(format!("Job `{}`: {what} as in `{}`", section.name, sections[0].name))
                .at(Some(section.place.clone()))
        };
        if (other.time, other.ramp) != (first.time, first.ramp) {
            return Err(unlike("All processes of a dbsim job run for the same time; make `runtime` and `ramp_time`"));
        }
        if other.size != first.size || other.directory != first.directory {
            return Err(unlike("All processes of a dbsim job work on the same files; make `size` and `directory`"));
        }
        // Without file names each fio job has its own files, while classes of a dbsim job share theirs.
        if other.file.is_none() || other.file != first.file {
            return Err(unlike("Classes of a dbsim job share their files; make `filename`"));
        }
    }
    let files = if first.file.is_some() { 1 } else { first.class.count };
    let directory = first.directory.clone().or_else(|| {
        let parent = Path::new(first.file.as_deref()?).parent()?.to_str()?.to_owned();
        Some(parent).filter(|p| !p.is_empty())
    });
    let job = Job {
        name: name(Path::new(file).file_stem().and_then(|s| s.to_str()).unwrap_or("job"), Vec::new()),
        run: RunSpec {
            length: first.length(),
            ramp: Some(Length::Time(first.ramp)),
            phases: Vec::new(),
            acks: None,
            network: super::Wire::Loopback,
        },
        cache: draft::default_cache(false),
        data: DataSpec {
            files,
            bytes: first.size * files as u64,
            direct: true,
            dontcache: false,
            sync: DataSync::Dsync,
            places: directory.map(PathBuf::from).into_iter().collect(),
        },
        journal: draft::default_journal(true),
        transactions: Vec::new(),
        classes: imported.iter().map(|i| i.class.clone()).collect(),
    };
    let mut out = format!("# The fio job file {file} as a dbsim job.\n");
    for (section, imported) in sections.iter().zip(&imported) {
        for note in &imported.notes {
            let _ = writeln!(out, "# [{}] {note}.", section.name);
        }
    }
    out.push_str(&print(&job));
    // The job's own rules decide what a job as a whole must satisfy.
    Draft::parse(file, &out)
        .and_then(|draft| draft.job())
        .map_err(|refusal| Refusal::new(format!("`{file}` cannot be converted to a dbsim job: {}", refusal.message)))?;
    Ok(out)
}

/// `text` as a name that is not among the `taken` ones.
fn name(text: &str, taken: Vec<&str>) -> String {
    let word: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let mut base: String = word.trim_matches('-').chars().take(28).collect();
    if base.is_empty() {
        base.push_str("requests");
    }
    let numbered = |n: usize| if n == 1 { base.clone() } else { format!("{base}-{n}") };
    (1..).map(numbered).find(|name| !taken.contains(&name.as_str())).expect("the numbers are unbounded")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::{ClassKind, Method};
    use bigiron_workload::units::Pace;

    fn job(text: &str) -> Result<Job, String> {
        let out = import("x.fio", text).map_err(|e| e.to_string())?;
        Ok(Draft::parse("x.toml", &out).unwrap().job().unwrap())
    }

    #[test]
    fn a_plain_job_is_kept() {
        let job = job(
            "[global]\nioengine=libaio\ndirect=1\nbs=8k\nsize=64m\nfilename=f\nruntime=10\ntime_based\nramp_time=2s\ngroup_reporting\n\
             [random readers]\nrw=randread\nnorandommap\niodepth=16\niodepth_batch=8\nnumjobs=4\n",
        )
        .unwrap();
        let class = &job.classes[0];
        assert_eq!((class.name.as_str(), class.count), ("random-readers", 4));
        let ClassKind::Requests(r) = &class.kind else { panic!("{class:?}") };
        assert_eq!((r.engine.method, r.engine.depth, r.engine.batch), (Method::Libaio, 16, 8));
        assert_eq!((r.bytes, r.random, r.read_percent, r.direct, r.count), (8192, true, 100, true, None));
        assert_eq!((job.data.files, job.data.bytes), (1, 64 << 20));
        assert_eq!(job.run.length, Length::Time(Duration::from_secs(10)));
        assert_eq!(job.run.ramp, Some(Length::Time(Duration::from_secs(2))));
    }

    #[test]
    fn a_job_without_a_runtime_does_its_size() {
        let job = job("[w]\nrw=write\nbs=1m\nsize=16m\nloops=3\nthinktime=50\nfdatasync=4\n").unwrap();
        let four = self::job("[w]\nrw=read\nbs=1m\nsize=16m\nnumjobs=4\n").unwrap();
        assert_eq!((four.data.files, four.data.bytes), (4, 64 << 20));
        let ClassKind::Requests(r) = &job.classes[0].kind else { panic!() };
        assert_eq!((r.count, r.read_percent, r.fdatasync_every, r.direct), (Some(48), 0, 4, false));
        assert_eq!(job.classes[0].pace, Pace::Closed { think: Duration::from_micros(50) });
    }

    #[test]
    fn jobs_that_name_the_same_file_share_it() {
        let job = job("[global]\nfilename=/mnt/x/f\nsize=8m\n[a]\nrw=read\n[a]\nrw=write\n").unwrap();
        assert_eq!(job.classes.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["a", "a-2"]);
        assert_eq!((job.data.files, job.data.places), (1, vec![PathBuf::from("/mnt/x")]));
    }

    #[test]
    fn what_cannot_be_kept_is_refused_with_its_line() {
        for (text, want) in [
            ("[a]\nsize=1m\nbssplit=4k/50:8k/50\n", "x.fio:3: `bssplit`: Requests of a dbsim class have one size"),
            ("[a]\nsize=1m\nzonemode=zbd\n", "x.fio:3: `zonemode`: No dbsim job can express it"),
            ("[a]\nsize=1m\nidepth=4\n", "did you mean `iodepth`?"),
            ("[a]\nrw=read\n", "x.fio:1: Job `a`: dbsim creates the files itself"),
            ("[a]\nsize=1m\nnumjobs=2\nloops=2\n", "x.fio:3: Job `a`: Each of fio's `numjobs` uses its own file"),
            ("[a]\nsize=1m\nrw=randread\n", "x.fio:3: Job `a`: By default fio visits each place once"),
            ("[a]\nsize=1m\nruntime=5\n", "x.fio:3: Job `a`: With only one of `runtime` and `time_based`"),
            ("[a]\nsize=1m\nstonewall\n", "x.fio:3: `stonewall`: All processes of a dbsim job run at the same time"),
            ("[a]\nsize=1m\nioengine=sync\n", "use `psync`"),
            ("[a]\nsize=1m\nfsync=1\n", "write `fdatasync=N`"),
            ("[a]\nsize=1m\niodepth=4\n", "has no effect with a blocking engine"),
            ("[a]\nsize=1m\nfilename=/dev/sdb\n", "must allow the loss of its contents"),
            ("[a]\nsize=1m\n[b]\nsize=1m\n", "x.fio:3: Job `b`: Classes of a dbsim job share their files"),
            ("[a]\nsize=1m\nhipri\nioengine=io_uring\n", "Only direct I/O can be polled"),
            ("[a]\nsize=1m\nbs=100\n", "`request` cannot be `100`"),
        ] {
            let error = job(text).unwrap_err();
            assert!(error.contains(want), "{text:?}: {error}");
        }
    }
}
