//! Advice on an upgrade, from a study's verdict: what to do next, and what the study cannot show.

use bigiron_judge::Judgement;
use bigiron_judge::suite::Reason;
use bigiron_model::shell::quote;
use bigiron_report::sentence;
use bigiron_report::table::wrap;
use bigiron_stats::Verdict;

use super::super::report::settle;
use crate::conduct::Conducted;
use crate::upgrade::Upgrade;

/// The advice as a list, at most 80 columns wide.
pub(super) fn advice(study: &Conducted, upgrade: &Upgrade, to: &str) -> String {
    let folder = quote(&study.folder.dir().display().to_string());
    let plan = study.folder.plan();
    let mut points = match plan.is_screening() {
        true => vec![
            "This was a screening: it finds large changes but is too short for a decision. For a decision, run `bigiron upgrade-check` without `--quick`."
                .to_owned(),
        ],
        false => Vec::new(),
    };
    points.extend(by_verdict(&study.judgement, to, &folder));
    points.extend(settle(plan, &study.judgement));
    points.push(format!(
        "A guest shows nothing about your disks, your network card, CPU caches, several sockets, or whether {to} boots on your hardware. Boot it on \
         one machine that may be down for an hour, and keep {} installed.",
        upgrade.release
    ));
    if upgrade.is_stand_in {
        points.push(format!(
            "`{}` was compared in place of this machine's own kernel. To compare that one, run `bigiron kernel add mine --image FILE --modules DIR`, \
             then `bigiron compare mine {to}`.",
            upgrade.from
        ));
    }
    points.iter().map(|point| wrap(point, "- ", "  ")).collect()
}

/// The verdict's consequence for the upgrade.
fn by_verdict(judgement: &Judgement, to: &str, folder: &str) -> Vec<String> {
    let Some(suite) = judgement.comparisons.first().and_then(|comparison| comparison.suite.as_ref()) else {
        return vec!["The study is unfinished; the same command resumes it.".to_owned()];
    };
    let first = match (&suite.verdict, &suite.reason) {
        (_, Reason::NeitherSurvived) => {
            format!("No boot of either kernel completed, so the study says nothing about the upgrade. `bigiron show {folder}` lists the boots.")
        }
        (_, Reason::Failed) => format!(
            "Do not upgrade yet: boots with {to} failed. `bigiron show {folder}` lists them, and `bigiron show {folder} TRIAL` shows the console of \
             one. Report the failure to the kernel's maintainers."
        ),
        (_, Reason::Complained { classes }) => format!(
            "Do not upgrade yet: {to} reported {}, and the present kernel did not. `bigiron show {folder}` lists the trials.",
            sentence::join(&classes.iter().map(String::as_str).collect::<Vec<_>>())
        ),
        (_, Reason::BaselineFailed) => {
            "Boots of the present kernel failed, and no boot of the new one did: the upgrade may fix a fault of the present kernel.".to_owned()
        }
        (_, Reason::SurvivesBetter) => {
            "The present kernel failed more boots than the new one: the upgrade may fix a fault of the present kernel.".to_owned()
        }
        (_, Reason::BothFailed) => format!(
            "Boots of both kernels failed, about as many of each: the fault is not new. `bigiron show {folder}` lists them; find the cause before you \
             trust either kernel."
        ),
        (Verdict::Worse | Verdict::SlightlyWorse, Reason::Primaries { workloads }) => format!(
            "{} slower with {to}. Before you upgrade, find the cause in the section Why of the report. If the cause is a setting, compare with and \
             without it: `bigiron compare {to} {to},LEVER=VALUE {}` (`bigiron lever list` lists the levers).",
            are(workloads),
            workloads.join(" ")
        ),
        (Verdict::Better | Verdict::SlightlyBetter | Verdict::Same, _) => {
            "Nothing in this comparison speaks against the upgrade.".to_owned()
        }
        (Verdict::Inconclusive | Verdict::Invalid, _) => {
            "The study does not settle the question: it gives no reason for or against the upgrade.".to_owned()
        }
        (Verdict::Worse | Verdict::SlightlyWorse, _) => format!("Read the report before you upgrade to {to}."),
    };
    vec![first]
}

fn are(workloads: &[String]) -> String {
    let names = sentence::join(&workloads.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>());
    format!("{names} {}", if workloads.len() == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use bigiron_judge::fixture;
    use bigiron_judge::suite::Suite;

    use super::*;

    #[test]
    fn each_verdict_has_its_advice() {
        let plan = fixture::plan(&["debian:6.1", "debian:6.12"], 8, vec![fixture::micro()]);
        let mut judgement = bigiron_judge::judge(&plan, &[]);
        assert!(by_verdict(&judgement, "debian:6.12", "d")[0].contains("unfinished"));
        let micro = || Reason::Primaries { workloads: vec!["micro".to_owned()] };
        for (verdict, reason, want) in [
            (Verdict::Worse, Reason::Failed, "Do not upgrade yet: boots with debian:6.12 failed"),
            (Verdict::Worse, Reason::Complained { classes: vec!["BUG".to_owned()] }, "reported BUG"),
            (Verdict::Worse, micro(), "`micro` is slower with debian:6.12"),
            (Verdict::Same, micro(), "Nothing in this comparison speaks against"),
            (Verdict::Inconclusive, micro(), "does not settle"),
            (Verdict::Inconclusive, Reason::BaselineFailed, "may fix a fault"),
            (Verdict::Inconclusive, Reason::SurvivesBetter, "failed more boots than the new one"),
            (Verdict::Inconclusive, Reason::BothFailed, "the fault is not new"),
            (Verdict::Inconclusive, Reason::NeitherSurvived, "says nothing"),
        ] {
            judgement.comparisons[0].suite = Some(Suite { verdict, reason });
            let said = &by_verdict(&judgement, "debian:6.12", "d")[0];
            assert!(said.contains(want), "{said}");
        }
    }
}
