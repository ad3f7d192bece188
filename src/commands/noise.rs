//! `bigiron doctor --on local`: how suitable this machine is for measurements.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::output;
use bigiron_probe::machine;
use bigiron_probe::machine::Grade;
use bigiron_probe::noise::MachineSample;

/// How long the machine is observed.
const WATCHED: Duration = Duration::from_secs(2);

pub(super) fn run() -> anyhow::Result<u8> {
    let before = MachineSample::now();
    std::thread::sleep(WATCHED);
    let noise = MachineSample::now().since(&before);
    let items = machine::card(Path::new("/sys"), Path::new("/proc"), &noise, Path::new("."));
    let mut text = String::new();
    for item in &items {
        let _ = writeln!(text, "{:<8} {:<12} {}", item.grade.word(), item.what, item.says);
    }
    output::data(&text)?;
    let count = |grade| items.iter().filter(|i| i.grade == grade).count();
    output::note(&match (count(Grade::Noisy), count(Grade::Unknown)) {
        (0, 0) => "Nothing found that would disturb measurements".to_owned(),
        (0, unknown) => format!("Nothing found that would disturb measurements; {unknown} things could not be checked"),
        (noisy, unknown) => format!(
            "{noisy} things make measurements noisy and {unknown} could not be checked. Trials in random pairs tolerate noise, but need more pairs: \
             `bigiron compare --on local running running -- PROGRAM` shows how many"
        ),
    });
    Ok(0)
}
