//! The layers of a file server: its clients on the file system alone, on the network alone, and on both with the server, as dbench, tbench and NetBench
//! measured them. Where a study has all three, the report divides the server's difference among them.
//!
//! Invariant: layers are added only if they did the same work: the same loadfile, replayed by as many clients.

use serde::Serialize;

use super::Report;
use super::quantity::Quantity;
use bigiron_judge::Comparison;
use bigiron_judge::line::Line;
use bigiron_model::metric::Unit;
use bigiron_model::plan::{Arm, Plan};

/// The workload with the server, and each layer's workload with its description.
const WHOLE: &str = "files";
const LAYERS: [(&str, &str); 2] = [("fs-clients", "the file system alone"), ("net-clients", "the network alone")];
/// The primary metric of all three, in bytes per second.
const THROUGHPUT: &str = "throughput";
/// Options that decide which work is done.
const WORK: [&str; 5] = ["loadfile", "loadfile-seed", "requests", CLIENTS, "work"];
const CLIENTS: &str = "clients";
/// The loadfile that is generated from the options below; any other loadfile has its own requests.
const LOADFILE: (&str, &str) = ("loadfile", "generated");
const OF_GENERATED: [&str; 2] = ["loadfile-seed", "requests"];
const MB: f64 = 1e6;

/// The layers of one comparison.
#[derive(Serialize)]
pub struct Layers<'a> {
    baseline: &'a str,
    arm: &'a str,
    /// The layers, then the whole; empty if they cannot be added.
    times: Vec<LayerTime>,
    /// Time that the server takes in addition to its layers; null if they cannot be added.
    rest: Option<LayerTime>,
    pub text: String,
}

/// Wall-clock time for each MB that the clients read or wrote.
#[derive(Serialize)]
struct LayerTime {
    /// Null for the rest.
    workload: Option<&'static str>,
    baseline: Quantity,
    arm: Quantity,
    /// Share of the whole difference; null if the whole shows no difference.
    share: Option<f64>,
}

/// The layers of each comparison of a study that has all three workloads.
pub fn layers<'a>(report: &'a Report<'_>) -> Vec<Layers<'a>> {
    if !report.has_numbers() {
        return Vec::new();
    }
    report.judgement.comparisons.iter().filter_map(|comparison| of_comparison(report.plan, comparison)).collect()
}

/// The first option in which the workloads' work differs in an arm.
fn difference(plan: &Plan, arms: [&Arm; 2]) -> Option<String> {
    let value = |arm: &Arm, workload: &str, option: &str| {
        let value = plan.options_in(arm, workload).remove(option)?;
        // A curve's metric is that of its last number of clients.
        Some(if option == CLIENTS { value.rsplit(',').next()?.trim().to_owned() } else { value })
    };
    let options = || LAYERS.iter().flat_map(|(layer, _)| WORK.map(|option| (layer, option)));
    let counts = |arm: &Arm, option: &str| {
        !OF_GENERATED.contains(&option) || value(arm, WHOLE, LOADFILE.0).is_none_or(|name| name == LOADFILE.1)
    };
    let all = arms.into_iter().flat_map(|arm| options().map(move |of| (arm, of)));
    all.filter(|(arm, (_, option))| counts(arm, option)).find_map(|(arm, (layer, option))| {
        // Without the values: a loadfile is its whole text.
        let differs = value(arm, WHOLE, option) != value(arm, layer, option);
        differs.then(|| format!("`{WHOLE}.{option}` and `{layer}.{option}` differ"))
    })
}

fn of_comparison<'a>(plan: &'a Plan, comparison: &Comparison) -> Option<Layers<'a>> {
    let line = |workload: &str| {
        let is_it = |l: &&Line| l.metric.primary && l.workload == workload && l.metric.name == THROUGHPUT;
        comparison.lines.iter().find(is_it)
    };
    let whole = line(WHOLE)?;
    let parts: Vec<&Line> = LAYERS.iter().map(|(layer, _)| line(layer)).collect::<Option<_>>()?;
    let (baseline, arm) = (plan.arms[0].name.as_str(), plan.arms[comparison.arm].name.as_str());
    if let Some(different) = difference(plan, [&plan.arms[0], &plan.arms[comparison.arm]]) {
        let text = format!(
            "The layers of `{WHOLE}` cannot be added, because they did not do the same work: {different}. Set the same value for all three"
        );
        return Some(Layers { baseline, arm, times: Vec::new(), rest: None, text });
    }
    let time = |line: &Line| Some([MB * 1e9 / line.a?, MB * 1e9 / line.b?]);
    let [whole_a, whole_b] = time(whole)?;
    let part_times: Vec<[f64; 2]> = parts.iter().map(|part| time(part)).collect::<Option<_>>()?;
    let rest = part_times.iter().fold([whole_a, whole_b], |[a, b], [part_a, part_b]| [a - part_a, b - part_b]);
    let share = |[a, b]: [f64; 2]| whole.verdict.claims().then(|| (b - a) / (whole_b - whole_a));
    let shown = |workload, [a, b]: [f64; 2]| {
        let (baseline, arm) = Quantity::couple(a, b, Unit::Ns, 0.0);
        LayerTime { workload, baseline, arm, share: share([a, b]) }
    };
    let mut text = format!("{arm} against {baseline}, time per MB:");
    let mut times = Vec::new();
    for (((name, what), line), part) in LAYERS.iter().zip(&parts).zip(&part_times) {
        let time = shown(Some(*name), *part);
        text += &sentence_part(name, what, &time, line);
        text.push(';');
        times.push(time);
    }
    let time = shown(Some(WHOLE), [whole_a, whole_b]);
    text += &sentence_part(WHOLE, "both, with the server", &time, whole);
    times.push(time);
    let rest = shown(None, rest);
    text += &match (rest.share, times.iter().filter_map(|t| t.share).collect::<Vec<_>>().as_slice()) {
        (Some(rest), [files, network, _]) => {
            let percent = |share: f64| Quantity::percent(100.0 * share, 0);
            format!(
                ". Of the difference of `{WHOLE}`: the file system {}, the network {}, the server (including interactions between the layers) {}",
                percent(*files),
                percent(*network),
                percent(rest)
            )
        }
        _ => format!(". `{WHOLE}` shows no difference to divide"),
    };
    Some(Layers { baseline, arm, times, rest: Some(rest), text })
}

fn sentence_part(name: &str, what: &str, time: &LayerTime, line: &Line) -> String {
    format!(" `{name}` ({what}) {} → {}, {}", time.baseline, time.arm, line.verdict)
}

#[cfg(test)]
mod tests {
    use bigiron_judge::fixture::{plan, records};
    use bigiron_judge::judge;
    use bigiron_model::metric::{Better, Kind, MetricDef};
    use bigiron_model::plan::PlannedWorkload;

    use super::*;
    use crate::Extras;

    fn workload(name: &str, clients: &str) -> PlannedWorkload {
        let metric = MetricDef {
            name: THROUGHPUT.to_owned(),
            unit: Unit::BytesPerSecond,
            better: Better::Higher,
            kind: Kind::Throughput,
            primary: true,
            summary: "bytes".to_owned(),
        };
        let options = [("clients", clients), ("requests", "1000")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        PlannedWorkload { name: name.to_owned(), options: options.into(), metrics: vec![metric] }
    }

    /// The layers of a study in which these layers' rates change by these factors.
    fn of(clients: &str, factors: [f64; 3]) -> (Vec<Option<f64>>, Option<f64>, String) {
        let all = vec![workload("files", "1,4"), workload("fs-clients", "4"), workload("net-clients", clients)];
        of_plan(&plan(&["debian:6.1", "debian:6.12"], 10, all), factors)
    }

    fn of_plan(plan: &Plan, [files, network, whole]: [f64; 3]) -> (Vec<Option<f64>>, Option<f64>, String) {
        let records = records(plan, 0.001, |_, workload, _| match workload {
            "fs-clients" => files,
            "net-clients" => network,
            _ => whole,
        });
        let judgement = judge(plan, &records);
        let report = Report::new(plan, &records, &judgement, &Extras::default());
        let [layers] = &layers(&report)[..] else { panic!("one comparison") };
        (
            layers.times.iter().map(|t| t.share).collect(),
            layers.rest.as_ref().and_then(|r| r.share),
            layers.text.clone(),
        )
    }

    #[test]
    fn a_difference_is_divided_among_the_layers() {
        // All three have one rate in A, so each layer takes the time of the whole, and the rest is minus that time.
        let (shares, rest, text) = of("4", [1.0, 1.0 / 1.1, 1.0 / 1.1]);
        assert!(shares[0].unwrap().abs() < 0.02 && (shares[1].unwrap() - 1.0).abs() < 0.02, "{shares:?}");
        assert!(rest.unwrap().abs() < 0.03 && (shares[2].unwrap() - 1.0).abs() < 1e-9, "{rest:?}");
        assert!(text.contains("the network 10") || text.contains("the network 9"), "{text}");
    }

    #[test]
    fn layers_are_not_added_without_a_difference_or_the_same_work() {
        let (shares, rest, text) = of("4", [1.2, 1.0, 1.0]);
        assert!(shares.iter().all(Option::is_none) && rest.is_none() && text.ends_with("no difference to divide"));
        let (shares, _, text) = of("8", [1.0, 1.0, 1.2]);
        assert!(shares.is_empty() && text.contains("`files.clients` and `net-clients.clients` differ"), "{text}");
        // An arm's own setting counts, too.
        let all = ["files", "fs-clients", "net-clients"].map(|name| workload(name, "4")).to_vec();
        let mut plan = plan(&["debian:6.1", "debian:6.12"], 10, all);
        plan.arms[1].settings.push(("files.requests".to_owned(), "4000".to_owned()));
        let (shares, _, text) = of_plan(&plan, [1.0, 1.0, 1.2]);
        assert!(shares.is_empty() && text.contains("`files.requests` and `fs-clients.requests` differ"), "{text}");
        // A user's loadfile has its own requests, whatever the defaults for a generated one.
        let named = |w: PlannedWorkload| {
            let options = w.options.into_iter().chain([("loadfile".to_owned(), "# loadfile own.txt".to_owned())]);
            PlannedWorkload { options: options.collect(), ..w }
        };
        plan.workloads = plan.workloads.into_iter().map(named).collect();
        let (shares, ..) = of_plan(&plan, [1.0, 1.0, 1.2]);
        assert_eq!(shares.len(), 3);
    }
}
