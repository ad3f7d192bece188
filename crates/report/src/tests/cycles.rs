//! Tests of the table of modelled cycles.

use super::super::{Extras, Report};
use super::{study, why};
use crate::why::Why;
use bigiron_judge::judge;

#[test]
fn modelled_cycles_are_told_where_no_line_differs() {
    let (plan, records) = study(1.0);
    let judgement = judge(&plan, &records);
    let why = Why { modelled: why().modelled, ..Why::default() };
    let report = Report::new(&plan, &records, &judgement, &Extras { why, ..Extras::default() });
    let (text, page) = (crate::text(&report), crate::html(&report));
    assert!(text.contains("\nModelled cycles\n") && text.contains("micro pipe-rtt   +0.1 %"), "{text}");
    assert!(!text.contains("\nWhy\n"), "{text}");
    assert!(page.contains("<h2>Modelled cycles</h2>") && page.contains("<td>micro pipe-rtt</td>"), "{page}");
}
