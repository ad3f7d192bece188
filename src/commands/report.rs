//! `bigiron report`.

use super::bisect;
use super::conduct;
use super::nightly;
use super::output;
use crate::bisect::Bisection;
use crate::cli::{BisectFormat, Format, HistoryFormat, Report};
use crate::night::Night;
use crate::refusal::Refusal;
use crate::store::Folder;

pub(super) fn run(args: &Report) -> anyhow::Result<u8> {
    if let Some(night) = Night::open(&args.dir)? {
        let format = match args.format {
            Format::Text => HistoryFormat::Text,
            Format::Json => HistoryFormat::Json,
            Format::Html => HistoryFormat::Html,
            Format::Csv => {
                return Err(Refusal::new(
                    "A night has no CSV; each of its studies has: `bigiron report DIR/STUDY --format csv`",
                )
                .into());
            }
        };
        return nightly::again(&args.dir, &night, format, &args.fail_on);
    }
    if let Some(bisection) = Bisection::open(&args.dir)? {
        let format = match args.format {
            Format::Text => BisectFormat::Text,
            Format::Json => BisectFormat::Json,
            Format::Html | Format::Csv => {
                return Err(Refusal::new(
                    "A bisection is reported as text or JSON; each of its studies has all formats: `bigiron report DIR/STUDY`",
                )
                .into());
            }
        };
        return bisect::again(&args.dir, &bisection, format);
    }
    let folder = Folder::open(&args.dir)?;
    let (records, judgement) = conduct::judged(&folder)?;
    let why = conduct::why(&folder, &records, &judgement);
    output::data(&conduct::render(folder.plan(), &records, &judgement, &why, args.format))?;
    Ok(conduct::status(&judgement, &args.fail_on))
}
