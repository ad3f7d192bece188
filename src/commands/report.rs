//! `bigiron report`.

use super::conduct;
use super::output;
use crate::cli::Report;
use crate::store::Folder;

pub(super) fn run(args: &Report) -> anyhow::Result<u8> {
    let folder = Folder::open(&args.dir)?;
    let (records, judgement) = conduct::judged(&folder)?;
    let why = conduct::why(&folder, &records, &judgement);
    output::data(&conduct::render(folder.plan(), &records, &judgement, &why, args.format))?;
    Ok(conduct::status(&judgement, &args.fail_on))
}
