//! `bigiron history`.

use bigiron_stats::change_point::Search;

use super::output;
use crate::cli::{self, HistoryFormat};
use bigiron_judge::history::{History, file, series};
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;
use bigiron_report::history as print;
use bigiron_report::history::View;

pub(super) fn run(args: &cli::History) -> anyhow::Result<u8> {
    let dir = match &args.history {
        Some(dir) => dir.clone(),
        None => file::default_folder()?,
    };
    if !(args.significance > 0.0 && args.significance <= 0.5) {
        return Err(Refusal::new(format!(
            "--significance: {} is out of range; it must be above 0 and at most 0.5",
            args.significance
        ))
        .into());
    }
    let history = History::read(&dir)?;
    for (line, why) in &history.unreadable {
        output::line(format_args!("warning: history.jsonl:{line}: {why}; the line is skipped"));
    }
    if history.entries.is_empty() {
        return Err(Refusal::new(format!("`{}` has no history yet", dir.display()))
            .hint("`bigiron nightly KERNEL KERNEL --quick` starts one; `--history DIR` names another folder")
            .into());
    }
    let search = Search { significance: args.significance, ..Search::default() };
    let names = series::names(&history);
    let chosen: Vec<_> = match &args.what {
        None => names.iter().collect(),
        Some(what) => {
            let exact =
                |(row, metric): &&(String, bigiron_model::metric::MetricDef)| *what == format!("{row}.{}", metric.name);
            let of_row = |(row, _): &&(String, bigiron_model::metric::MetricDef)| row == what;
            let one: Vec<_> = names.iter().filter(exact).collect();
            if one.is_empty() { names.iter().filter(of_row).collect() } else { one }
        }
    };
    if chosen.is_empty() {
        let what = args.what.as_deref().unwrap_or_default();
        let known: Vec<String> = names.iter().flat_map(|(row, m)| [row.clone(), format!("{row}.{}", m.name)]).collect();
        let right = match suggest::nearest(what, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`bigiron history` lists them".to_owned(),
        };
        return Err(Refusal::new(format!("The history has neither a row nor a metric `{what}`; {right}")).into());
    }
    let found =
        chosen.iter().filter_map(|(row, metric)| series::series(&history, row, &metric.name, &search, args.all));
    let view = View::new(args.what.clone(), found.collect(), search);
    output::data(&match args.format {
        HistoryFormat::Text => print::text(&view),
        HistoryFormat::Json => print::json(&view),
        HistoryFormat::Html => print::html(&view),
    })?;
    Ok(0)
}
