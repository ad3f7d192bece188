use std::sync::Mutex;

use bigiron_model::clock::Clock;
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_workload::{Needs, OptionDef, Running, Workload};

use super::*;
use crate::guest::trouble;

#[test]
fn a_line_of_the_workload_that_is_no_event_is_a_finding() {
    assert_eq!(event(b"{\"event\":\"done\"}").unwrap(), GuestEvent::Done);
    let error = event(b"\xffgarbage").unwrap_err().into();
    let GuestEvent::Failed { failure, message } = trouble(&error) else { panic!("unfit") };
    assert_eq!(failure, Failure::BadEvent);
    assert!(message.contains("garbage`, which is not an event"), "{message}");
}

/// A workload that records its stages.
struct Staged;

/// The stages, in order.
static STAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn stage(name: &str, number: &str) {
    STAGES.lock().unwrap().push(format!("{name} {number}"));
}

/// [`Staged`] with its option `number`; prepared, too.
struct Numbered(String);

impl Workload for Staged {
    fn name(&self) -> &'static str {
        "staged"
    }

    fn summary(&self) -> &'static str {
        "Records its stages"
    }

    fn options(&self) -> &'static [OptionDef] {
        &[OptionDef { name: "number", default: "0", allowed: &[], summary: "Distinguishes workloads" }]
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        let number = options["number"].clone();
        stage("parse", &number);
        Ok(Box::new(Numbered(number)))
    }
}

impl Configured for Numbered {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn metrics(&self) -> Vec<MetricDef> {
        Vec::new()
    }

    fn room_option(&self) -> Option<&'static str> {
        Some("number")
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn prepare(&self, _cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>> {
        stage("prepare", &self.0);
        Ok(Box::new(Open(self)))
    }
}

struct Open<'a>(&'a Numbered);

impl Running for Open<'_> {
    fn run(&mut self, _cx: &Context<'_>) -> anyhow::Result<WorkloadResult> {
        stage("run", &self.0.0);
        match self.0.0.as_str() {
            "2" => Err(anyhow!("There is no run 2")),
            "full" => Err(std::io::Error::from_raw_os_error(libc::ENOSPC).into()),
            _ => Ok(WorkloadResult::default()),
        }
    }

    fn verify(self: Box<Self>, _cx: &Context<'_>) -> anyhow::Result<()> {
        stage("verify", &self.0.0);
        match self.0.0.as_str() {
            "stuck" => Err(anyhow!("It hangs").context(EndedBadly)),
            "lost" => Err(anyhow!("A row is missing")),
            _ => Ok(()),
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        stage("end", &self.0.0);
    }
}

/// What is said when workloads with these numbers run, one after the other.
fn said(numbers: [&str; 2]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let planned = |number: &str| WorkloadJob {
        name: Staged.name().to_owned(),
        options: Options::from([("number".to_owned(), number.to_owned())]),
        storage: None,
        trees: Vec::new(),
        loaded: None,
        foundation: BTreeMap::new(),
    };
    let job = GuestJob { workloads: numbers.map(planned).into(), ..GuestJob::new(Clock::Wall, 1) };
    let machine = GuestIdentity {
        release: String::new(),
        version: String::new(),
        cmdline: String::new(),
        cpus: 1,
        memory_bytes: 1 << 30,
        clocksource: String::new(),
    };
    let mounts = numbers.map(|number| {
        let dir = dir.path().join(number);
        std::fs::create_dir(&dir).unwrap();
        Mounts { dir, ..Mounts::default() }
    });
    let said = dir.path().join("events");
    let (events, acks) = (File::create(&said).unwrap(), File::open("/dev/zero").unwrap());
    let workloads = workloads(Registry::new(&[&Staged]), &job).unwrap();
    serve(&workloads, &job, &machine, &mounts, Path::new("/nonexistent"), events, acks);
    std::fs::read_to_string(&said).unwrap()
}

#[test]
fn a_workload_without_room_says_which_option_gives_it_more() {
    let said = said(["full", "after"]);
    assert!(said.contains(r#""failure":"no-space""#) && said.contains("; `staged.number` gives it more: "), "{said}");
}

#[test]
fn options_are_parsed_once_and_a_workload_ends_before_the_next_one_is_prepared() {
    let said = said(["1", "2"]);
    let stages = "parse 1, parse 2, prepare 1, run 1, verify 1, end 1, prepare 2, run 2, end 2";
    let numbered: Vec<String> =
        STAGES.lock().unwrap().iter().filter(|stage| stage.ends_with(['1', '2'])).cloned().collect();
    assert_eq!(numbered.join(", "), stages);
    assert!(said.contains(r#""message":"staged: There is no run 2""#), "{said}");
}

#[test]
fn a_server_that_does_not_stop_after_its_data_were_found_right_has_lost_none() {
    let stuck = "staged: The data are correct, but the run did not end properly: It hangs";
    assert!(said(["stuck", "after"]).contains(&format!(r#""failure":"workload-error","message":"{stuck}""#)));
    assert!(said(["lost", "after"]).contains(r#""failure":"verify-failed","message":"staged: A row is missing""#));
}
