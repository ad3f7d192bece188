//! The differences between two studies: plans and programs, kernels, and the environments of their trials.
//!
//! Invariant: nothing here compares measurements; two studies are never judged against each other.

use std::collections::{BTreeMap, BTreeSet};

use bigiron_model::environment::MODULE;
use bigiron_model::margins;
use bigiron_model::plan::{Arm, Plan};
use bigiron_model::record::Record;
use bigiron_model::setting;
use bigiron_model::size;
use serde::Serialize;

use super::environment::{NOT_NOTED, by_arm, change, differs, shown};
use super::scope;
use super::short;
use super::table::{Line, WIDTH, table, width, wrap};

/// Version of the JSON form.
const SCHEMA: u32 = 1;

/// One study of the two.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The folder, as typed.
    pub dir: &'a str,
    pub plan: &'a Plan,
    pub records: &'a [Record],
}

/// Something that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub what: String,
    pub a: String,
    pub b: String,
}

/// A study, named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Named {
    dir: String,
    begun: Option<String>,
    /// Number of facts noted of its trials' environments; 0 in studies of builds that noted none.
    facts: usize,
}

/// All differences between two studies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StudyDifferences {
    schema: u32,
    a: Named,
    b: Named,
    pub plan: Vec<Difference>,
    pub environment: Vec<Difference>,
    /// Number of module parameters that only one of the studies has.
    pub lone_parameters: usize,
}

/// What differs between two studies.
pub fn differences(a: Side<'_>, b: Side<'_>) -> StudyDifferences {
    let (facts_a, facts_b) = (by_arm(a.plan, a.records), by_arm(b.plan, b.records));
    let count =
        |facts: &[BTreeMap<&str, Vec<&str>>]| facts.iter().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>().len();
    let named = |side: Side<'_>, facts| Named { dir: side.dir.to_owned(), begun: side.plan.begun.clone(), facts };
    let (counted_a, counted_b) = (count(&facts_a), count(&facts_b));
    let pairs = arms(a.plan, b.plan);
    let mut environment = kernels(a, b, &pairs);
    let mut lone_parameters = 0;
    // A study without facts would differ in all.
    if counted_a > 0 && counted_b > 0 {
        let names: BTreeSet<&str> = facts_a.iter().chain(&facts_b).flat_map(|facts| facts.keys().copied()).collect();
        let (modules, others): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| name.starts_with(MODULE));
        for name in others.into_iter().chain(modules) {
            let values: Vec<_> = pairs.iter().map(|(i, j)| (facts_a[*i].get(name), facts_b[*j].get(name))).collect();
            // An arm that failed early has noted nothing.
            let is_silent = |at: usize| facts_a[pairs[at].0].is_empty() || facts_b[pairs[at].1].is_empty();
            let different: Vec<usize> =
                (0..values.len()).filter(|at| !is_silent(*at) && differs(values[*at].0, values[*at].1)).collect();
            if different.is_empty() {
                continue;
            }
            if name.starts_with(MODULE) && different.iter().all(|at| values[*at].0.is_none() || values[*at].1.is_none())
            {
                lone_parameters += 1;
                continue;
            }
            let told = different.iter().map(|at| (*at, shown(values[*at].0), shown(values[*at].1))).collect();
            environment.extend(by_pair(name, a.plan, &pairs, told));
        }
    }
    StudyDifferences {
        schema: SCHEMA,
        a: named(a, counted_a),
        b: named(b, counted_b),
        plan: plans(a.plan, b.plan),
        environment,
        lone_parameters,
    }
}

/// The arms that stand for each other: of one name, and the others in their order.
fn arms(a: &Plan, b: &Plan) -> Vec<(usize, usize)> {
    let same = |(i, arm): (usize, &Arm)| Some((i, b.arms.iter().position(|other| other.name == arm.name)?));
    let mut pairs: Vec<(usize, usize)> = a.arms.iter().enumerate().filter_map(same).collect();
    let rest_a = (0..a.arms.len()).filter(|i| !pairs.iter().any(|(taken, _)| taken == i));
    let rest_b = (0..b.arms.len()).filter(|j| !pairs.iter().any(|(_, taken)| taken == j));
    let rest: Vec<_> = rest_a.zip(rest_b).collect();
    pairs.extend(rest);
    pairs.sort_unstable();
    pairs
}

/// One difference if it is the same for all pairs of arms, else one for each.
fn by_pair(what: &str, a: &Plan, pairs: &[(usize, usize)], told: Vec<(usize, String, String)>) -> Vec<Difference> {
    let is_same = told.len() == pairs.len() && told.iter().all(|(_, x, y)| (x, y) == (&told[0].1, &told[0].2));
    let one = |name: String, x: &str, y: &str| Difference { what: name, a: x.to_owned(), b: y.to_owned() };
    match told.first() {
        Some((_, x, y)) if is_same => vec![one(what.to_owned(), x, y)],
        _ => told.iter().map(|(at, x, y)| one(format!("{what} ({})", a.arms[pairs[*at].0].name), x, y)).collect(),
    }
}

/// The words of the command line that all trials of an arm had.
fn words<'a>(side: Side<'a>, arm: usize) -> Option<BTreeSet<&'a str>> {
    scope::common_words(side.plan, &side.plan.arms[arm].name, side.records)
}

/// The kernels, and their command lines.
fn kernels(a: Side<'_>, b: Side<'_>, pairs: &[(usize, usize)]) -> Vec<Difference> {
    let (booted_a, booted_b) = (scope::booted(a.plan, a.records), scope::booted(b.plan, b.records));
    let mut all = Vec::new();
    type Part = (&'static str, fn(&scope::Booted) -> String);
    let parts: [Part; 4] = [
        ("kernel", |k| k.release.clone()),
        ("kernel version", |k| k.version.clone()),
        ("kernel image", |k| short(&k.image_sha256).to_owned()),
        ("kernel configuration", |k| {
            k.config_sha256.as_deref().map_or_else(String::new, |hash| short(hash).to_owned())
        }),
    ];
    for (name, of) in parts {
        let values = pairs.iter().enumerate().map(|(at, (i, j))| (at, of(&booted_a[*i]), of(&booted_b[*j])));
        let told: Vec<_> = values.filter(|(_, x, y)| x != y && !x.is_empty() && !y.is_empty()).collect();
        all.extend(by_pair(name, a.plan, pairs, told));
    }
    let told = pairs.iter().enumerate().filter_map(|(at, (i, j))| {
        let (x, y) = (words(a, *i)?, words(b, *j)?);
        let only =
            |own: &BTreeSet<&str>, other: &BTreeSet<&str>| match own.difference(other).copied().collect::<Vec<_>>() {
                none if none.is_empty() => "nothing more".to_owned(),
                words => words.join(" "),
            };
        (x != y).then(|| (at, only(&x, &y), only(&y, &x)))
    });
    all.extend(by_pair("command line", a.plan, pairs, told.collect()));
    all
}

/// What was decided, and the programs that ran it.
fn plans(a: &Plan, b: &Plan) -> Vec<Difference> {
    let (a, b) = (described(a), described(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let value =
        |of: &BTreeMap<String, String>, name: &String| of.get(name).cloned().unwrap_or_else(|| "none".to_owned());
    let all = names.into_iter().map(|name| Difference { what: name.clone(), a: value(&a, name), b: value(&b, name) });
    all.filter(|difference| difference.a != difference.b).collect()
}

/// A plan in words, without what is drawn or named anew in every study.
fn described(plan: &Plan) -> BTreeMap<String, String> {
    let machine = &plan.machine;
    let programs = plan.provenance.as_ref();
    let mut all: Vec<(String, String)> = [
        ("bigiron", plan.bigiron.clone()),
        ("bigiron, executable", programs.map_or_else(|| NOT_NOTED.to_owned(), |p| p.executable.clone())),
        ("QEMU", programs.and_then(|p| p.qemu_name()).unwrap_or_else(|| "none".to_owned())),
        ("clock", plan.clock.to_string()),
        ("rule", u32::from(plan.rule).to_string()),
        ("pairs", plan.design.pairs.to_string()),
        ("builds of each source", plan.design.rebuilds.map_or_else(|| "none".to_owned(), |n| n.to_string())),
        ("seed", plan.design.seed.to_string()),
        ("idle gap", format!("{} s", plan.design.idle_gap_seconds)),
        ("host", machine.host.to_string()),
        ("target", machine.target.clone().unwrap_or_else(|| "none".to_owned())),
        ("CPUs", machine.cpus.to_string()),
        ("memory", size::print_bytes(machine.memory_bytes)),
        ("storage", machine.storage.clone()),
        ("file system", machine.filesystem.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    for (i, arm) in plan.arms.iter().enumerate() {
        let settings: Vec<String> = arm.settings.iter().map(|(l, v)| format!("{l}={}", setting::brief(v))).collect();
        let set = if settings.is_empty() { String::new() } else { format!(", set {}", settings.join(" ")) };
        all.push((format!("arm {}", super::text::letter(i)), format!("{}{set}", arm.name)));
        all.extend(arm.foundation.iter().map(|(name, value)| (format!("{} in {}", name, arm.name), value.clone())));
    }
    for workload in &plan.workloads {
        all.push((format!("workload {}", workload.name), "measured".to_owned()));
        let option = |(name, value): (&String, &String)| {
            (format!("{}.{name}", workload.name), setting::brief(value).to_string())
        };
        all.extend(workload.options.iter().map(option));
    }
    for (name, kind, _) in margins::KINDS {
        all.extend(
            plan.margins.get(kind).map(|margin| (format!("margin of {name}"), format!("{:.3} %", margin * 100.0))),
        );
    }
    all.into_iter().collect()
}

/// As indented JSON.
pub fn json(differences: &StudyDifferences) -> String {
    serde_json::to_string_pretty(differences).expect("it has string keys only") + "\n"
}

/// As text.
pub fn text(differences: &StudyDifferences) -> String {
    let mut out = String::new();
    for (letter, study) in [('A', &differences.a), ('B', &differences.b)] {
        let begun = study.begun.as_deref().map_or_else(String::new, |begun| format!(", begun {begun}"));
        out.push_str(&wrap(&format!("{letter} = {}{begun}", study.dir), "", "  "));
    }
    section(&mut out, "Plans and programs", &differences.plan);
    section(&mut out, "Kernels and environments", &differences.environment);
    let mut told = Vec::new();
    if differences.lone_parameters > 0 {
        told.push(format!("{} module parameters exist in only one of the studies", differences.lone_parameters));
    }
    told.push(match (differences.a.facts, differences.b.facts) {
        (0, 0) => "Neither study has noted the environment of its trials".to_owned(),
        (0, _) => "A has not noted the environment of its trials, so nothing can be compared with it".to_owned(),
        (_, 0) => "B has not noted the environment of its trials, so nothing can be compared with it".to_owned(),
        (a, b) => format!("{a} facts of the environment are noted in A, {b} in B; those not named here are the same"),
    });
    told.iter().for_each(|line| out.push_str(&wrap(line, "  ", "  ")));
    out
}

/// A table of the short differences, and the long ones below it.
fn section(out: &mut String, title: &str, all: &[Difference]) {
    out.push_str(&format!("\n{title}\n"));
    if all.is_empty() {
        out.push_str("  no difference\n");
        return;
    }
    let is_short = |d: &&Difference| width(&d.what) <= 30 && width(&d.a).max(width(&d.b)) <= (WIDTH - 36) / 2;
    let (short, long): (Vec<_>, Vec<_>) = all.iter().partition(is_short);
    if !short.is_empty() {
        let head = Line::Cells(["  ", "A", "B"].map(str::to_owned).into());
        let row = |d: &&Difference| Line::Cells(vec![format!("  {}", d.what), d.a.clone(), d.b.clone()]);
        let lines: Vec<Line> = [head].into_iter().chain(short.iter().map(row)).collect();
        out.push_str(&table(&[false, false, false], &lines));
    }
    for difference in long {
        out.push_str(&wrap(
            &format!("{}: {}", difference.what, change(&difference.what, &difference.a, &difference.b)),
            "  ",
            "    ",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_judge::fixture;

    fn study(arms: &[&str]) -> (Plan, Vec<Record>) {
        let plan = fixture::plan(arms, 8, vec![fixture::micro()]);
        let mut records = fixture::records(&plan, 1e-3, |_, _, _| 1.0);
        for record in &mut records {
            record.environment = [("microcode", "0x1"), ("thp", "madvise")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        }
        (plan, records)
    }

    fn of(a: &(Plan, Vec<Record>), b: &(Plan, Vec<Record>)) -> StudyDifferences {
        let (a, b) = (Side { dir: "one", plan: &a.0, records: &a.1 }, Side { dir: "two", plan: &b.0, records: &b.1 });
        differences(a, b)
    }

    fn lines(differences: &[Difference]) -> Vec<String> {
        differences.iter().map(|d| format!("{}: {} | {}", d.what, d.a, d.b)).collect()
    }

    #[test]
    fn equal_studies_do_not_differ() {
        let one = study(&["debian:6.1", "debian:6.12"]);
        let found = of(&one, &one);
        assert_eq!((found.plan.len(), found.environment.len(), found.lone_parameters), (0, 0, 0));
        assert!(
            text(&found).ends_with(
                "  2 facts of the environment are noted in A, 2 in B; those not named here are\n  the same\n"
            ),
            "{}",
            text(&found)
        );
    }

    #[test]
    fn arms_of_one_name_are_compared() {
        let one = study(&["debian:6.1", "debian:6.12"]);
        let mut two = study(&["debian:6.12", "debian:6.18"]);
        two.0.machine.cpus = 4;
        two.0.workloads[0].options.insert("operations".to_owned(), "7".to_owned());
        for record in &mut two.1 {
            record.environment.insert("microcode".to_owned(), "0x2".to_owned());
            record.environment.insert("module.new.parameter".to_owned(), "1".to_owned());
            if record.arm == "debian:6.18" {
                record.environment.insert("thp".to_owned(), "always".to_owned());
            }
        }
        let found = of(&one, &two);
        assert_eq!(
            lines(&found.plan),
            [
                "CPUs: 1 | 4",
                "arm A: debian:6.1 | debian:6.12",
                "arm B: debian:6.12 | debian:6.18",
                "micro.operations: none | 7"
            ]
        );
        let environment = lines(&found.environment);
        assert!(environment[0].starts_with("kernel (debian:6.1): 6.1.99-cloud-amd64 | 6.18.99"), "{environment:?}");
        let facts = &environment[environment.len() - 2..];
        assert_eq!(facts, ["microcode: 0x1 | 0x2", "thp (debian:6.1): madvise | always"]);
        assert_eq!(found.lone_parameters, 1);
        let printed = text(&found);
        assert!(printed.contains("\nPlans and programs\n") && printed.contains("  microcode "), "{printed}");
        assert!(printed.lines().all(|line| width(line) <= WIDTH), "{printed}");
        let parsed: serde_json::Value = serde_json::from_str(&json(&found)).unwrap();
        assert_eq!(parsed["environment"].as_array().unwrap().len(), found.environment.len());
    }

    #[test]
    fn an_old_study_has_no_facts() {
        let (one, mut two) = (study(&["a", "b"]), study(&["a", "b"]));
        two.1.iter_mut().for_each(|record| record.environment.clear());
        let found = of(&one, &two);
        assert!(found.environment.is_empty());
        assert!(text(&found).contains("B has not noted the environment"), "{}", text(&found));
    }
}
