//! `bigiron doc`.

mod table;
mod terminal;
mod words;

use std::fmt::Write as _;

use clap::CommandFactory as _;

use super::output;
use crate::cli::{Cli, Doc};
use crate::pages;
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

/// Columns of a page on a wide terminal: longer lines are hard to read.
const WIDEST: usize = 80;

pub(super) fn run(args: &Doc) -> anyhow::Result<u8> {
    let Some(name) = &args.name else {
        output::paged(&list())?;
        return Ok(0);
    };
    // A lever is documented on its family's page.
    let page = name.split('.').next().unwrap_or(name);
    let Some(found) = pages::find(page) else {
        let right = suggest::nearest(page, pages::all().map(|page| page.name))
            .map_or_else(|| "`bigiron doc` lists the pages".to_owned(), |near| format!("did you mean `{near}`?"));
        let refusal = Refusal::new(format!("No page `{name}`; {right}"));
        return Err(match Cli::command().find_subcommand(page) {
            Some(_) => refusal.hint(format!("`bigiron {page} --help` describes the command")).into(),
            None => refusal.into(),
        });
    };
    match output::columns() {
        None => output::data(found.text)?,
        Some(columns) => {
            let mut text = String::new();
            for line in terminal::lines(found.text, columns.min(WIDEST), output::has_colours()) {
                text.push_str(&line.text);
                text.push('\n');
            }
            output::paged_styled(&text)?;
        }
    }
    Ok(0)
}

fn list() -> String {
    let mut out = String::new();
    for page in pages::all() {
        let _ = writeln!(out, "{:<11} {:<26} {}", page.kind, page.name, page.title());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_lab::lever::runtime;

    /// The names in code in the first column of a page's tables.
    fn described(text: &str) -> Vec<&str> {
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        rows.map(|(name, _)| name).collect()
    }

    #[test]
    fn every_lever_of_a_running_kernel_is_on_its_familys_page_and_no_other() {
        for (family, levers) in runtime::TABLES {
            let page = pages::find(family).expect("a page");
            let names: Vec<&str> = levers.iter().map(|l| l.name).collect();
            assert_eq!(described(page.text), names, "{family}");
        }
    }
}
