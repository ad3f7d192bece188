//! Tests of the HTML page: the markup is well formed and contains nothing foreign.

use super::super::Extras;
use super::example::TWO;
use super::{configs, every_study, print, study};

/// Every tag is closed by its counterpart, attributes are quoted, and `<` and `&` occur only as markup.
fn well_formed(page: &str) -> Result<(), String> {
    let page = page.strip_prefix("<!DOCTYPE html>").ok_or("no doctype")?;
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        text_is_clean(&rest[..start])?;
        let end = rest[start..].find('>').ok_or("a tag has no end")? + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some(top) if top == name => {}
                top => return Err(format!("</{name}> closes {top:?}")),
            }
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |t| (t, true));
        let (name, attributes) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        if attributes.matches('"').count() != 2 * attributes.matches("=\"").count() {
            return Err(format!("<{tag}> has an attribute without quotes"));
        }
        text_is_clean(attributes)?;
        if !closed {
            open.push(name);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("never closed: {open:?}")) }
}

fn text_is_clean(text: &str) -> Result<(), String> {
    if text.chars().any(|c| c.is_control() && c != '\n') {
        return Err(format!("control character in {text:?}"));
    }
    for (at, _) in text.match_indices('&') {
        let entity = &text[at..text.len().min(at + 8)];
        if !["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"].iter().any(|e| entity.starts_with(e)) {
            return Err(format!("bare & in {text:?}"));
        }
    }
    Ok(())
}

#[test]
fn pages_are_well_formed_and_self_contained() {
    for (name, plan, records) in every_study() {
        let page = print(&plan, &records, &configs()).html;
        well_formed(&page).unwrap_or_else(|e| panic!("{name}: {e}"));
        for banned in ["http://", "https://", "<script", "<link", "@import", "url(", " src="] {
            assert!(!page.contains(banned), "{name} has {banned}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf "), "{name}");
    }
    // The index of a site has a script, but loads none.
    let index = super::layout::index();
    well_formed(&index).unwrap();
    for banned in ["http://", "https://", "<link", "@import", "url(", " src="] {
        assert!(!index.contains(banned), "the index has {banned}");
    }
    assert!(well_formed("<!DOCTYPE html><p><b></p></b>").is_err());
    assert!(well_formed("<!DOCTYPE html><p>a & b</p>").is_err());
}

#[test]
fn a_site_tells_the_verdict_of_each_arm() {
    let (_, plan, records) = super::every_study().into_iter().find(|(name, ..)| *name == "five arms").unwrap();
    let judgement = bigiron_judge::judge(&plan, &records);
    let report = crate::Report::new(&plan, &records, &judgement, &Extras::default());
    let entry = crate::site::Entry::of_study(&report, "a".to_owned());
    assert_eq!(
        entry.answer,
        ["debian:6.1: worse; debian:6.12: worse; debian:6.18,boot.mitigations=off: worse; mine: worse"]
    );
}

#[test]
fn a_site_tells_how_far_an_unfinished_study_of_several_arms_is() {
    let (_, plan, mut records) = super::every_study().into_iter().find(|(name, ..)| *name == "five arms").unwrap();
    records.truncate(9);
    let judgement = bigiron_judge::judge(&plan, &records);
    let report = crate::Report::new(&plan, &records, &judgement, &Extras::default());
    let entry = crate::site::Entry::of_study(&report, "a".to_owned());
    assert!(entry.answer[0].contains("9 of 60 boots"), "{:?}", entry.answer);
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let evil = "x\"><script>alert('1')</script>";
    let (mut plan, mut records) = study(1.0);
    plan.arms[1].name = evil.to_owned();
    plan.repeat = evil.to_owned();
    plan.workloads[0].metrics[1].summary = evil.to_owned();
    for record in &mut records {
        if record.arm == TWO[1] {
            record.arm = evil.to_owned();
        }
        record.facts.insert(evil.to_owned(), evil.to_owned());
    }
    let printed = print(&plan, &records, &Extras::default());
    assert!(!printed.html.contains("<script"));
    well_formed(&printed.html).unwrap();
    assert!(printed.csv.contains("\"x\"\"><script>"));
}

#[test]
fn the_page_shows_what_differs_between_configurations() {
    let (plan, records) = study(1.0);
    let page = print(&plan, &records, &configs()).html;
    assert!(page.contains("4 options differ"));
    assert!(page.contains("<tr><th>HZ</th><td><code>250</code></td><td><code>1000</code></td></tr>"));
    assert!(page.contains("<tr><th>NEW</th><td class=\"off\">off</td><td><code>m</code></td></tr>"));
    assert!(!print(&plan, &records, &Extras::default()).html.contains("Kernel configuration"));
}
