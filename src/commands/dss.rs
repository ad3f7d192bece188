//! `bigiron dss`: one run on this machine, the tables of any server, and the texts of the queries.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{once, output};
use crate::cli::{DssAction, DssRun};
use bigiron_dss::settings::Settings;
use bigiron_dss::workload::Dss;
use bigiron_dss::{Scale, existing, query};
use bigiron_model::refusal::Refusal;
use bigiron_model::workload::Options;
use bigiron_sql::pg::Url;
use bigiron_workload::{Configured as _, ImageContext};

pub(super) fn run(action: DssAction) -> anyhow::Result<u8> {
    match action {
        DssAction::Run(args) => run_once(&args),
        DssAction::Load { url, scale } => load(&url, scale),
        DssAction::Queries { query, set } => queries(query, &set),
    }
}

fn options(set: &[String]) -> Result<(Options, Settings), Refusal> {
    let options = super::jobs::complete(&Dss, &[], set, "OPTION=VALUE, such as `engine=postgres`", &[])?;
    let settings = Settings::parse(&options).map_err(Refusal::new)?;
    Ok((options, settings))
}

fn run_once(args: &DssRun) -> anyhow::Result<u8> {
    let (options, settings) = options(&args.set)?;
    if !args.dir.is_dir() {
        return Err(
            Refusal::new(format!("There is no folder {}; create it or name another", args.dir.display())).into()
        );
    }
    let cx = ImageContext { filesystem: None, foundation: &BTreeMap::new(), note: &output::note };
    let images = settings.images(&cx)?;
    let run = once::Run { workload: &Dss, options: &options, metrics: settings.metrics(), seed: None, dir: &args.dir };
    run.print(images.foundation, args.format, "every answer is right", &|facts, _| facts.clone())
}

fn load(text: &str, scale: Scale) -> anyhow::Result<u8> {
    let url = Url::parse(text).map_err(|e| Refusal::new(e.to_string()))?;
    match existing::load(&url, scale, &output::note)? {
        true => output::note(&format!("Loaded the tables at scale factor {scale} into {url}")),
        false => output::note(&format!("{url} has the tables at scale factor {scale} already")),
    }
    Ok(0)
}

fn queries(only: Option<u32>, set: &[String]) -> anyhow::Result<u8> {
    let (_, settings) = options(set)?;
    let mut out = String::new();
    let asked = |query: &u8| only.is_none_or(|only| only == u32::from(*query));
    for &query in settings.queries.iter().filter(|query| asked(query)) {
        let text = query::text(query, settings.engine.dialect(), &settings.parameters(0), settings.scale);
        let _ = writeln!(out, "-- Query {query}. {}\n{text};\n", query::description(query));
    }
    if out.is_empty() {
        return Err(Refusal::new("The query is not one of those in `--set queries=…`; omit one of the two").into());
    }
    output::data(&out)?;
    Ok(0)
}
