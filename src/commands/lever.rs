//! `bigiron lever list`, `show` and `check`.

use crate::conduct::environment;
use crate::registry;
use crate::study::setting;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use super::output;
use crate::cli::LeverAction;
use crate::study::arm::ArmText;
use bigiron_lab::lever;
use bigiron_lab::lever::apply;
use bigiron_lab::lever::runtime;
use bigiron_lab::lever::runtime::{Lever, LeverTarget};
use bigiron_lab::lever::site::Site;
use bigiron_lab::lever::{Scope, boot, fault};
use bigiron_lab::undo::{Ledger, chosen};
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::{Setting, TypedSetting};
use bigiron_model::suggest;
use bigiron_sys::network::{Attribute, TrialLink};

pub(super) fn run(action: &LeverAction) -> anyhow::Result<u8> {
    match action {
        LeverAction::List { family } => output::data(&list(family.as_deref())?).map(|()| 0),
        LeverAction::Show { name } => output::data(&show(name)?).map(|()| 0),
        LeverAction::Check { settings, apply, dir } => check(settings, *apply, dir),
    }
}

/// (name, scope, root, short description)
type Row = (String, &'static str, &'static str, String);

fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = vec![("boot.NAME".to_owned(), "boot", "", boot::SUMMARY.to_owned())];
    rows.push((fault::INJECT.to_owned(), "guest", "", fault::SUMMARY.to_owned()));
    for lever in runtime::TABLES.iter().flat_map(|(_, levers)| *levers) {
        let scope = if lever.is_local() { "runtime" } else { "guest" };
        let root = if lever.needs_root() { "root" } else { "" };
        rows.push((lever.name.to_owned(), scope, root, lever.summary.to_owned()));
    }
    for workload in registry::all() {
        let text = format!("an option of the workload, see `bigiron doc {}`", workload.name());
        rows.push((format!("{}.OPTION", workload.name()), "workload", "", text));
    }
    rows
}

fn list(family: Option<&str>) -> anyhow::Result<String> {
    let mut rows = rows();
    if let Some(family) = family {
        rows.retain(|(name, ..)| name.split('.').next() == Some(family));
        if rows.is_empty() {
            let right = suggest::list(setting::families());
            return Err(Refusal::new(format!("No family of levers `{family}`; families are {right}")).into());
        }
    }
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, scope, root, text) in rows {
        let _ = writeln!(out, "{name:<width$}  {scope:<8}  {root:<4}  {text}");
    }
    Ok(out)
}

fn show(name: &str) -> anyhow::Result<String> {
    let family = name.split('.').next().unwrap_or(name);
    let Some(named) = runtime::find(name) else {
        if runtime::is_family(family) {
            // The lever tables report near misses.
            return Err(Refusal::from(setting::check(name, "").err().context("an unknown lever")?).into());
        }
        if let Some(text) = option(name) {
            return Ok(text);
        }
        if name.contains('.') && registry::find(family).is_some() {
            // Refuses an option that the workload does not have.
            setting::check(name, "any").map_err(Refusal::from)?;
        }
        let known = rows().into_iter().find(|(row, ..)| row.split('.').next() == Some(family));
        let Some((row, scope, _, text)) = known else {
            let right = suggest::list(setting::families());
            return Err(Refusal::new(format!("No lever `{name}`; families are {right}")).into());
        };
        return Ok(format!("{row}: {text}\nscope: {scope}\nmore: bigiron doc {family}\n"));
    };
    let lever = named.lever;
    let mut out = format!("{name}: {}\n", lever.summary);
    let _ = writeln!(out, "takes: {}", lever.takes.describe());
    let _ = writeln!(out, "where: {}", place(lever));
    let scope =
        if lever.is_local() { "a running kernel: of guests, and of this machine with `--on local`" } else { "guests" };
    let _ = writeln!(out, "acts on: {scope}");
    if lever.needs_root() {
        out.push_str("on this machine: needs root\n");
    }
    if let Some(since) = lever.since {
        let _ = writeln!(out, "since: Linux {since}, if built into the kernel");
    }
    let link = TrialLink::lazy();
    let site = environment::here(Path::new("."), &link);
    if let LeverTarget::Link(attribute) = lever.place {
        out.push_str(&between(&site, attribute));
        let _ = writeln!(out, "more: bigiron doc {family}");
        return Ok(out);
    }
    match site.paths(&named) {
        Err(why) => {
            let _ = writeln!(out, "here: not available: {why}");
        }
        Ok(paths) => {
            for path in paths {
                let text = std::fs::read_to_string(&path).unwrap_or_else(|e| format!("cannot be read: {e}"));
                let _ = writeln!(out, "here: {} says `{}`", path.display(), text.trim());
            }
        }
    }
    let _ = writeln!(out, "more: bigiron doc {family}");
    Ok(out)
}

/// The description of a workload's option or of a key of its jobs.
fn option(name: &str) -> Option<String> {
    let (family, key) = name.split_once('.')?;
    let mut out = String::new();
    for explanation in registry::find(family)?.explain(key) {
        let _ = writeln!(out, "{name}: {}", explanation.summary);
        for (what, text) in [("takes", explanation.values.as_str()), ("default", explanation.default)] {
            if !text.is_empty() {
                let _ = writeln!(out, "{what}: {text}");
            }
        }
    }
    (!out.is_empty()).then(|| format!("{out}scope: workload\nmore: bigiron doc {family}\n"))
}

/// The value that the devices of a trial on this machine have.
fn between(site: &Site<'_>, attribute: Attribute) -> String {
    let pair = match site.link.get() {
        Ok(pair) => pair,
        Err(why) => return format!("here: not available: {why}\n"),
    };
    let line = |(called, says): (String, Result<String, String>)| match says {
        Ok(value) => format!("here: {called} is `{value}`\n"),
        Err(why) => format!("here: {called} cannot be read: {why}\n"),
    };
    lever::net::shown(pair, attribute).into_iter().map(line).collect()
}

fn place(lever: &Lever) -> String {
    match lever.place {
        LeverTarget::File(path) => path.to_owned(),
        LeverTarget::Disk(file) => format!("/sys/block/DISK/queue/{file} of every disk that holds the data"),
        LeverTarget::Device(file) => {
            format!("/sys/block/DEVICE/queue/{file} of the device that holds the file system")
        }
        LeverTarget::Named(_) => "the file that its name gives".to_owned(),
        LeverTarget::Workload => "the processes of the workload".to_owned(),
        LeverTarget::Swap => "/dev/zramN".to_owned(),
        LeverTarget::Link(attribute) => attribute.place(),
        LeverTarget::Machine => "QEMU's arguments, before the guest boots".to_owned(),
        LeverTarget::FileSystem => "the workload's disk, before it is mounted".to_owned(),
    }
}

/// Parses words, each an arm or a setting, into settings.
fn parse(words: &[String]) -> anyhow::Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for word in words {
        if lever::has_family(word) {
            settings.push(setting::parse(word).map_err(Refusal::from)?);
        } else {
            settings.extend(ArmText::parse(word)?.settings);
        }
    }
    lever::check_duplicates(&settings).map_err(Refusal::from)?;
    Ok(settings)
}

fn check(words: &[String], apply: bool, dir: &Path) -> anyhow::Result<u8> {
    let settings = parse(words)?;
    if settings.is_empty() {
        return Err(Refusal::new(format!("{} sets nothing", suggest::list(words)))
            .hint("Name a setting or an arm with settings, such as `running,block.scheduler=bfq`")
            .into());
    }
    let here = lever::of_runtime(&settings);
    if apply {
        return applied(&here, dir);
    }
    let link = TrialLink::lazy();
    let site = environment::here(dir, &link);
    let scheduled = here.iter().any(|(name, _)| name == "block.scheduler");
    let (mut out, mut missing) = (String::new(), false);
    for setting in &settings {
        let said = match lever::scope(&setting.0) {
            Scope::Boot => "well formed; only a boot shows whether it takes effect".to_owned(),
            Scope::Workload => "well formed; an option of a workload".to_owned(),
            Scope::Runtime if !here.contains(setting) => "well formed; it acts on guests".to_owned(),
            Scope::Runtime if scheduled && setting.0.starts_with("block.iosched.") => {
                "well formed; only the chosen scheduler shows whether it has it".to_owned()
            }
            Scope::Runtime => match site.resolve(setting) {
                Ok(_) => "available here".to_owned(),
                Err(why) => {
                    missing = true;
                    format!("not available here: {why}")
                }
            },
        };
        let _ = writeln!(out, "{}: {said}", TypedSetting(setting));
    }
    output::data(&out)?;
    Ok(if missing { super::FAILED } else { 0 })
}

/// Applies all settings, prints what changed and restores the old values.
fn applied(settings: &[Setting], dir: &Path) -> anyhow::Result<u8> {
    let mut ledger = Ledger::open()?;
    let mark = ledger.mark();
    let link = TrialLink::lazy();
    let site = environment::here(dir, &link);
    let applied = apply::apply(settings, &site, &mut ledger);
    let troubles = ledger.undo_since(mark);
    let mut out = String::new();
    for change in applied.as_ref().map_or(&[][..], |applied| &applied.changes) {
        let _ = writeln!(out, "{}: {} → {}", change.path, change.before, chosen(&change.after));
    }
    output::data(&out)?;
    for trouble in &troubles {
        output::line(format_args!("error: not restored: {trouble}"));
    }
    applied.map_err(anyhow::Error::msg)?;
    if troubles.is_empty() {
        output::note("Everything is restored");
        return Ok(0);
    }
    Ok(super::FAILED)
}
