//! Man pages, one for bigiron and one for each subcommand, from the parser and from the page `cli` of the documentation.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use bigiron::cli::Cli;
use bigiron::cli::help::{self, Part};
use bigiron::pages;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to
    dir: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir).with_context(|| format!("Cannot create `{}`", args.dir.display()))?;
    write(&args.dir).with_context(|| format!("Cannot write man pages to `{}`", args.dir.display()))
}

fn write(dir: &Path) -> anyhow::Result<()> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut above = Vec::new();
    write_tree(&root, &mut above, dir)
}

/// Writes the page of a command and those of its subcommands; `above` are the names of the pages above it.
fn write_tree(command: &Command, above: &mut Vec<String>, dir: &Path) -> anyhow::Result<()> {
    let man = Man::new(command.clone());
    fs::write(dir.join(man.get_filename()), page(command, &man, above)?)?;
    above.push(name(command).to_owned());
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_tree(sub, above, dir)?;
    }
    above.pop();
    Ok(())
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command, man: &Man, above: &[String]) -> anyhow::Result<Vec<u8>> {
    let mut out = title(command).into_bytes();
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::default();
    let (mut examples, mut notes) = (Vec::new(), Vec::new());
    for part in help::parts(&text) {
        match part {
            Part::Examples(lines) => examples.extend(lines),
            Part::Text(text) => notes.push(text),
            Part::ExitStatus => {}
        }
    }
    roff.control("SH", ["EXAMPLES"]);
    roff.control("nf", []);
    roff.control("RS", ["4"]);
    for line in examples {
        roff.text([roman(line)]);
    }
    roff.control("RE", []);
    roff.control("fi", []);
    let has_gate = command.get_arguments().any(|arg| arg.get_id() == "fail_on") || above.is_empty();
    let statuses = help::exit_statuses().into_iter().filter(|status| has_gate || !status.is_of_gate);
    terms(&mut roff, "EXIT STATUS", statuses.map(|status| (status.statuses, status.meaning)));
    if above.is_empty() {
        for (title, section) in [("Environment", "ENVIRONMENT"), ("Files", "FILES")] {
            let rows = pages::find("cli").map_or_else(Vec::new, |page| page.table(title));
            terms(
                &mut roff,
                section,
                rows.into_iter().filter_map(|row| <[String; 2]>::try_from(row).ok()).map(Into::into),
            );
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let others: Vec<String> = above.iter().map(|name| format!("{name}(1)")).collect();
    let others = Some(others.join(", ")).filter(|others| !others.is_empty());
    let pages = "`bigiron doc` lists the pages of the documentation, and prints them.".to_owned();
    for (i, text) in others.into_iter().chain(notes).chain([pages]).enumerate() {
        if i > 0 {
            roff.control("PP", []);
        }
        roff.text(inline(&text));
    }
    roff.to_writer(&mut out)?;
    Ok(out)
}

/// The title line. clap_mangen's omits an empty date, so that the next field takes its place.
fn title(command: &Command) -> String {
    format!(".TH {} 1 \"\" \"bigiron {}\" \"User Commands\"\n", name(command), env!("CARGO_PKG_VERSION"))
}

/// A section of terms and their meanings.
fn terms(roff: &mut Roff, title: &str, rows: impl Iterator<Item = (String, String)>) {
    roff.control("SH", [title]);
    for (term, meaning) in rows {
        roff.control("TP", []);
        roff.text([bold(term.replace('`', ""))]);
        roff.text(inline(&meaning));
    }
}

/// Text with the words between backticks in bold, as is usual in man pages.
fn inline(text: &str) -> Vec<Inline> {
    let text = text.replace('\n', " ");
    let part = |(i, part): (usize, &str)| if i % 2 == 1 { bold(part) } else { roman(part) };
    text.split('`').enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command as Process, Stdio};

    use super::*;

    #[test]
    fn every_page_has_its_sections_and_is_clean() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).unwrap();
        let pages: Vec<PathBuf> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(pages.len() > 30, "{pages:?}");
        for page in pages {
            let text = fs::read_to_string(&page).unwrap();
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
                assert!(
                    text.contains(&format!("\n.SH {section}\n")) || text.contains(&format!("\n.SH \"{section}\"\n")),
                    "{page:?}: {section}"
                );
            }
            // groff reports what it does not understand, and lines that it cannot fill.
            let groff = Process::new("groff")
                .args(["-ww", "-z", "-man", "-Tutf8", "-k"])
                .arg(&page)
                .stdout(Stdio::null())
                .output();
            let Ok(said) = groff else {
                eprintln!("SKIPPED man pages: no groff");
                return;
            };
            assert!(
                said.status.success() && said.stderr.is_empty(),
                "{page:?}: {}",
                String::from_utf8_lossy(&said.stderr)
            );
        }
        let text = fs::read_to_string(dir.path().join("bigiron-compare.1")).unwrap();
        assert!(text.contains("an arm is") && text.contains("130, 143"), "{text}");
        let text = fs::read_to_string(dir.path().join("bigiron-doctor.1")).unwrap();
        assert!(!text.contains("fail\\-on"), "{text}");
        let text = fs::read_to_string(dir.path().join("bigiron.1")).unwrap();
        assert!(text.contains("BIGIRON_CACHE") && text.contains("bigiron\\-results/"), "{text}");
    }
}
