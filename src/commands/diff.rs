//! `bigiron diff`.

use std::path::Path;

use super::output;
use crate::bisect::Bisection;
use crate::cli::{BisectFormat, Diff};
use crate::night::Night;
use bigiron_model::record::Record;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::Folder;
use bigiron_report::diff::{self, Side};

pub(super) fn run(args: &Diff) -> anyhow::Result<u8> {
    let ((a, records_a), (b, records_b)) = (study(&args.a)?, study(&args.b)?);
    let names = [&args.a, &args.b].map(|dir| dir.display().to_string());
    let differences = diff::differences(
        Side { dir: &names[0], plan: a.plan(), records: &records_a },
        Side { dir: &names[1], plan: b.plan(), records: &records_b },
    );
    output::data(&match args.format {
        BisectFormat::Text => diff::text(&differences),
        BisectFormat::Json => diff::json(&differences),
    })?;
    Ok(0)
}

/// A study and its records. A line that cannot be read is reported.
fn study(dir: &Path) -> anyhow::Result<(Folder, Vec<Record>)> {
    let of_many = match (Night::open(dir)?, Bisection::open(dir)?) {
        (Some(_), _) => Some("a night"),
        (_, Some(_)) => Some("a bisection"),
        _ => None,
    };
    if let Some(what) = of_many {
        let shown = dir.display();
        return Err(Refusal::new(format!("`{shown}` is the folder of {what}, which has many studies"))
            .hint(format!("Name the folder of one of them: `{shown}/STUDY`"))
            .into());
    }
    let folder = Folder::open(dir)?;
    let read = folder.records()?;
    for (number, why) in &read.unreadable {
        output::warn(&format!("{}, records.jsonl:{number}: {why}; the line is skipped", dir.display()));
    }
    Ok((folder, read.records))
}
