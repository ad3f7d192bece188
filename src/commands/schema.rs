//! `bigiron schema`.

use super::output;
use crate::cli::{Schema, SchemaOf};
use bigiron_report::export::jsonl;

pub(super) fn run(args: &Schema) -> anyhow::Result<u8> {
    match args.of {
        SchemaOf::Report => output::data(jsonl::REPORT_SCHEMA)?,
        SchemaOf::Lines => output::data(&jsonl::lines_schema())?,
    }
    Ok(0)
}
