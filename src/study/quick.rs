//! A quick comparison: a screening that shows large changes only.

use super::question::Question;
use super::resolved::{QUICK, SCREENING_PAIRS};
use crate::registry;
use bigiron_lab::lever;
use bigiron_model::setting::Setting;

/// Makes the question a screening: the fewest pairs, unless their number is given, and the short form of each workload. The question's own
/// settings take precedence.
pub fn shorten(q: &mut Question) {
    q.screening = true;
    q.pairs = q.pairs.or(Some(SCREENING_PAIRS));
    let names: Vec<&str> =
        if q.workloads.is_empty() { QUICK.to_vec() } else { q.workloads.iter().map(String::as_str).collect() };
    let short: Vec<Setting> = names
        .into_iter()
        .filter_map(registry::find)
        .filter_map(|workload| Some((workload.name(), workload.nightly().iter().find(|row| row.label.is_empty())?)))
        .flat_map(|(name, row)| {
            row.quick.iter().map(move |(option, value)| (format!("{name}.{option}"), (*value).to_owned()))
        })
        .collect();
    q.settings = lever::overlay(&short, &q.settings);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_stays() {
        let mut q = Question { settings: vec![("dbsim.processes".into(), "3".into())], ..Question::default() };
        shorten(&mut q);
        assert!(q.screening && q.pairs == Some(SCREENING_PAIRS));
        assert_eq!(q.settings.iter().filter(|(lever, _)| lever == "dbsim.processes").count(), 1);
        assert!(q.settings.contains(&("dbsim.processes".into(), "3".into())), "{:?}", q.settings);
        let mut again = q.clone();
        shorten(&mut again);
        assert_eq!(again, q, "the printed command is the same question");
    }
}
