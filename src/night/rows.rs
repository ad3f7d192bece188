//! The rows of a night, and which of them share a boot.
//!
//! Invariant: rows that share a boot have one file system and different workloads, and fit into the guest's memory together.

use crate::registry;
use bigiron_model::setting::options_of;
use serde::{Deserialize, Serialize};

use crate::study::question::Question;
use bigiron_lab::lever;
use bigiron_lab::lever::Scope;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;
use bigiron_model::suggest;
use bigiron_workload as workload;
use bigiron_workload::{RunsOn, Workload};

/// How much time a night may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Budget {
    /// Four boots of each kernel, seconds for each workload: a screening.
    Quick,
    /// Enough pairs for a verdict on every row.
    Full,
}

/// One row of the grid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The workload's name, with a label if it has several rows.
    pub name: String,
    pub workload: String,
    pub filesystem: String,
    /// Options of the workload that differ from its defaults, as levers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
}

/// The rows of `budget`, for all workloads or for those in `only`.
///
/// # Errors
/// If a workload in `only` has no row.
pub fn rows(budget: Budget, only: &[String]) -> Result<Vec<Row>, Refusal> {
    let wanted = |w: &&&dyn Workload| only.is_empty() || only.iter().any(|name| name == w.name());
    if let Some(name) = only.iter().find(|name| registry::find(name).is_none_or(|w| w.nightly().is_empty())) {
        let names = registry::all().iter().filter(|w| !w.nightly().is_empty()).map(|w| w.name());
        return Err(Refusal::new(format!("`{name}` has no row in a night; {} have", suggest::list(names))));
    }
    Ok(registry::all().iter().filter(wanted).flat_map(|w| of(*w, budget)).collect())
}

/// A row that this machine cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    pub row: String,
    /// What it lacks.
    pub why: String,
}

/// Separates the rows that can run on this machine from those that lack something, such as a compiler. Errors of `base` itself
/// are not checked.
pub fn possible(rows: Vec<Row>, base: &Question) -> (Vec<Row>, Vec<LeftOut>) {
    let lacks = |row: &Row| {
        let workload = registry::find(&row.workload)?;
        let settings = beside(row, &base.settings);
        let (_, configured) =
            workload::configure(workload, options_of(&settings, &row.workload), RunsOn::Guest).ok()?;
        configured.check_arm(RunsOn::Guest).err()
    };
    let mut left_out = Vec::new();
    let run = rows.into_iter().filter(|row| match lacks(row) {
        None => true,
        Some(why) => {
            left_out.push(LeftOut { row: row.name.clone(), why });
            false
        }
    });
    (run.collect(), left_out)
}

fn of(workload: &dyn Workload, budget: Budget) -> Vec<Row> {
    let setting = |(option, value): &(&str, &str)| (format!("{}.{option}", workload.name()), (*value).to_owned());
    let row = |row: &workload::NightlyRow| {
        let always: Vec<Setting> = row.options.iter().map(setting).collect();
        let quick: Vec<Setting> = row.quick.iter().map(setting).collect();
        let name = match row.label {
            "" => workload.name().to_owned(),
            label => format!("{}.{label}", workload.name()),
        };
        Row {
            name,
            workload: workload.name().to_owned(),
            filesystem: row.filesystem.to_owned(),
            settings: if budget == Budget::Quick { lever::overlay(&always, &quick) } else { always },
        }
    };
    workload.nightly().iter().map(row).collect()
}

/// A row's settings and those that the user has `asked` for, which take precedence. A setting of the row that has no effect with them is left out.
fn beside(row: &Row, asked: &[Setting]) -> Vec<Setting> {
    let of_both = |own: &[Setting]| lever::overlay(own, asked);
    let fits = |own: &[Setting]| {
        let workload = registry::find(&row.workload);
        workload.is_none_or(|w| workload::configure(w, options_of(&of_both(own), &row.workload), RunsOn::Guest).is_ok())
    };
    if !fits(&row.settings) {
        let without = |lever: &str| row.settings.iter().filter(|(own, _)| own != lever).cloned().collect::<Vec<_>>();
        if let Some(less) = row.settings.iter().map(|(lever, _)| without(lever)).find(|less| fits(less)) {
            return of_both(&less);
        }
    }
    of_both(&row.settings)
}

/// The question of a study that runs `rows` in one boot: `base` is common to all studies of the night, and its settings take
/// precedence.
pub fn question(base: &Question, rows: &[&Row]) -> Question {
    let runs = |lever: &str| {
        let family = lever.split('.').next().unwrap_or(lever);
        lever::scope(lever) != Scope::Workload || rows.iter().any(|r| r.workload == family)
    };
    let asked: Vec<Setting> = base.settings.iter().filter(|(lever, _)| runs(lever)).cloned().collect();
    let own: Vec<Setting> = rows.iter().flat_map(|row| beside(row, &asked)).collect();
    Question {
        workloads: rows.iter().map(|r| r.workload.clone()).collect(),
        filesystem: rows.first().map(|r| r.filesystem.clone()),
        settings: lever::overlay(&own, &asked),
        ..base.clone()
    }
}

/// Refuses settings of workloads that no row runs.
pub fn check_reach(base: &Question, rows: &[Row]) -> Result<(), Refusal> {
    for (lever, _) in &base.settings {
        let family = lever.split('.').next().unwrap_or(lever);
        if lever::scope(lever) == Scope::Workload && !rows.iter().any(|r| r.workload == family) {
            let names = suggest::list(rows.iter().map(|r| r.workload.as_str()));
            return Err(Refusal::new(format!("Lever `{lever}` has nothing to act on: this night runs {names}")));
        }
    }
    Ok(())
}

/// Assigns rows to boots: each to the first boot with its file system, without its workload, and with room. `check` tests whether
/// a study can run.
///
/// # Errors
/// If a row cannot run even alone.
pub fn pack(rows: &[Row], check: impl Fn(&[&Row]) -> Result<(), Refusal>) -> Result<Vec<Vec<&Row>>, Refusal> {
    let mut boots: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        check(&[row]).map_err(|e| Refusal { message: format!("Row `{}`: {}", row.name, e.message), ..e })?;
        let goes = |boot: &Vec<&Row>| {
            let alike = boot.iter().all(|r| r.filesystem == row.filesystem && r.workload != row.workload);
            alike && check(&boot.iter().copied().chain([row]).collect::<Vec<_>>()).is_ok()
        };
        match boots.iter().position(goes) {
            Some(boot) => boots[boot].push(row),
            None => boots.push(vec![row]),
        }
    }
    Ok(boots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::setting;

    fn row(name: &str, filesystem: &str) -> Row {
        let workload = name.split('.').next().unwrap().to_owned();
        Row { name: name.into(), workload, filesystem: filesystem.into(), settings: Vec::new() }
    }

    #[test]
    fn every_workload_that_has_rows_has_ones_that_it_can_be_run_with() {
        for budget in [Budget::Quick, Budget::Full] {
            let rows = rows(budget, &[]).unwrap();
            let mut names: Vec<&str> = rows.iter().map(|r| r.name.as_str()).collect();
            assert!(["micro", "dbsim", "oltp.sqlite"].iter().all(|n| names.contains(n)) && !names.contains(&"command"));
            for row in &rows {
                let workload = registry::find(&row.workload).unwrap();
                let options = options_of(&row.settings, &row.workload);
                workload::configure(workload, options, RunsOn::Guest)
                    .map(drop)
                    .unwrap_or_else(|e| panic!("{}: {e}", row.name));
                setting::check("fs.type", &row.filesystem).unwrap();
            }
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), rows.len(), "two rows of one name");
        }
        assert!(rows(Budget::Full, &["command".into()]).unwrap_err().message.contains("no row"));
        assert_eq!(rows(Budget::Full, &["micro".into()]).unwrap().len(), 1);
    }

    #[test]
    fn a_rows_setting_without_effect_beside_the_users_is_left_out() {
        let rows = rows(Budget::Quick, &["files".to_owned()]).unwrap();
        let row = rows.iter().find(|row| row.settings.iter().any(|(lever, _)| lever == "files.requests")).unwrap();
        let loadfile = "# loadfile own.txt\nMkdir \"\\clients\\client1\" NT_STATUS_OK\nNTCreateX \"\\clients\\client1\\a\" 0x40 0x2 1 NT_STATUS_OK\n\
                        WriteX 1 0 5000 5000 NT_STATUS_OK\n";
        let asked = [("files.loadfile".to_owned(), loadfile.to_owned())];
        let settings = beside(row, &asked);
        assert!(!settings.iter().any(|(lever, _)| lever == "files.requests"), "{settings:?}");
        assert_eq!(settings.len(), row.settings.len());
        // An invalid setting of the user's removes none of the row's; its own error message follows.
        let wrong = [("files.clients".to_owned(), "none".to_owned())];
        assert!(beside(row, &wrong).iter().any(|(lever, _)| lever == "files.requests"));
    }

    #[test]
    fn rows_share_boots_as_far_as_they_can() {
        let rows =
            [row("a", "ext4"), row("b.ext4", "ext4"), row("b.xfs", "xfs"), row("b.twice", "ext4"), row("c", "ext4")];
        // Three do not fit together.
        let check = |rows: &[&Row]| if rows.len() > 2 { Err(Refusal::new("no room")) } else { Ok(()) };
        let boots = pack(&rows, check).unwrap();
        let names: Vec<Vec<&str>> = boots.iter().map(|b| b.iter().map(|r| r.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["a", "b.ext4"], vec!["b.xfs"], vec!["b.twice", "c"]]);
        let refused = pack(&rows, |_| Err(Refusal::new("no room"))).unwrap_err();
        assert_eq!(refused.message, "Row `a`: no room");
    }

    #[test]
    fn what_the_user_sets_wins_and_reaches_only_who_has_it() {
        let set = |l: &str, v: &str| (l.to_owned(), v.to_owned());
        let mut row = row("micro", "xfs");
        row.settings = vec![set("micro.scale", "0.1"), set("micro.only", "fork-exit")];
        let settings = vec![set("micro.scale", "2"), set("dbsim.readers", "3"), set("boot.nosmt", "")];
        let base = Question { settings, ..Question::default() };
        let q = question(&base, &[&row]);
        assert_eq!(q.filesystem.as_deref(), Some("xfs"));
        let has = |l: &str, v: &str| q.settings.contains(&set(l, v));
        assert!(
            has("micro.scale", "2") && has("micro.only", "fork-exit") && has("boot.nosmt", "") && q.settings.len() == 3
        );
        assert!(check_reach(&base, &[row]).unwrap_err().message.contains("`dbsim.readers` has nothing to act on"));
    }
}
