//! `bigiron host`.

use std::fmt::Write as _;

use bigiron_lab::host::ssh::connection::Place;
use bigiron_lab::host::ssh::{Target, config, quarantine};
use bigiron_lab::target::allow::{self, Demands};
use bigiron_lab::target::messages::{AllowFile, Look};
use bigiron_model::size;

use super::output;
use crate::cli::HostAction;

/// Reboots of a full study, and some.
const REBOOTS: u32 = 40;

pub(super) fn run(action: &HostAction) -> anyhow::Result<u8> {
    let HostAction::Check { host } = action;
    let name = host.targets.first().map_or("", String::as_str);
    // It leaves nothing behind, not even the executable.
    let target = Target::open(name, Place::Temporary)?;
    let power = match (&target.config.power, config::path()) {
        (Some(power), _) => format!("`{power}`"),
        (None, Some(path)) => {
            format!("none in `{}`; without one a study that boots needs `--no-way-back`", path.display())
        }
        (None, None) => "none; a study that boots needs `--no-way-back`".to_owned(),
    };
    let (text, is_allowed) = describe(&target.look, &power, quarantine::reason(name));
    output::data(&text)?;
    Ok(if is_allowed { 0 } else { super::FAILED })
}

/// What a study would find and do, and whether any trial is allowed.
fn describe(look: &Look, power: &str, quarantine: Option<String>) -> (String, bool) {
    let mut out = format!(
        "{}: Linux {}, {} CPUs, {}\n",
        look.name,
        look.release,
        look.cpus,
        size::print_bytes(look.memory_bytes >> 20 << 20)
    );
    let mut line = |what: &str, text: &str| {
        let _ = writeln!(out, "  {what:<16} {text}");
    };
    let list = |words: &[String]| if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    match look.methods.iter().find(|report| report.refused.is_none()) {
        Some(report) => line("boot method", &format!("{}, for all arms", report.method.name())),
        None => line("boot method", "none"),
    }
    for report in &look.methods {
        if let Some(why) = &report.refused {
            line("", &format!("not {}: {why}", report.method.name()));
        }
    }
    line("file systems", &format!("/ is {}; {} is on {}", look.root_filesystem, look.folder, look.filesystem));
    let free = |bytes: u64| format!("{} MiB", bytes >> 20);
    line(
        "free space",
        &format!("{} in /boot, {} in bigiron's folder", free(look.boot_free_bytes), free(look.free_bytes)),
    );
    let listening: Vec<String> = look.listening.iter().map(|l| format!("{} ({})", l.process, l.port)).collect();
    line("listening", &list(&listening));
    line("logged in", &list(&look.users));
    line("network storage", &list(&look.network_mounts));
    line("watchdog", &list(&look.watchdogs));
    line("power command", power);
    match &look.allow {
        AllowFile::Missing => line("allow file", &format!("`{}` does not exist", allow::PATH)),
        AllowFile::Wrong(why) => line("allow file", why),
        AllowFile::Read(file) => line(
            "allow file",
            &format!("`{}` allows {}; {} reboots a day", allow::PATH, list(&file.operations), file.reboots_per_day),
        ),
    }
    line("reboots", &format!("{} in the last 24 hours", look.reboots_today));
    if let Some(why) = quarantine {
        line("quarantine", &why);
    }
    if let Some(release) = &look.to_return {
        line("to restore", &format!("its own kernel, {release}, must be booted again (`bigiron undo`)"));
    }
    if !look.left_over.is_empty() {
        line("to restore", &list(&look.left_over));
    }
    if !look.brought.is_empty() {
        line("bigiron's kernels", &list(&look.brought));
    }
    let studies = [
        ("trials", Demands::default()),
        ("settings", Demands { settings: true, boots: false }),
        ("other kernels", Demands { settings: true, boots: true }),
    ];
    let mut is_allowed = false;
    let mut wanted = None;
    for (what, demands) in studies {
        match allow::check(look, demands, u32::from(demands.boots)) {
            Ok(()) => {
                is_allowed = true;
                line(what, "allowed");
            }
            Err(refusal) => {
                line(what, &refusal.message);
                wanted = Some(demands);
            }
        }
    }
    line(
        "would change",
        &format!("{} and, for other kernels, /lib/modules/RELEASE, until the study ends", look.folder),
    );
    if let Some(demands) = wanted {
        let file = demands.smallest_file(look, REBOOTS);
        let reboots = if demands.boots { &format!(", with {REBOOTS} reboots") } else { "" };
        let _ = write!(out, "\nThe smallest `{}` for all of this{reboots}:\n\n{file}", allow::PATH);
    }
    (out, is_allowed)
}
