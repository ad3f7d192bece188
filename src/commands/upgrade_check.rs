//! `bigiron upgrade-check`.

mod advice;

use std::path::Path;

use bigiron_archive::Store;
use bigiron_archive::spec::KernelSpec;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;
use bigiron_report::sentence;
use bigiron_report::table::wrap;
use clap::Parser as _;

use super::{compare, output};
use crate::cli::{Cli, Command, Compare, UpgradeCheck};
use crate::conduct::environment::refuse;
use crate::study::arguments;
use crate::upgrade::Upgrade;

pub(super) fn run(args: UpgradeCheck) -> anyhow::Result<u8> {
    let store = Store::open().map_err(refuse)?;
    check_words(&args, &store.names().map_err(refuse)?)?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let found =
        Upgrade::of_machine(&store, Path::new("/"), &release, args.to.as_deref(), &output::note).map_err(refuse)?;
    let Some(mut upgrade) = found else {
        return Err(Refusal::new(format!(
            "Cannot find the image of this machine's kernel {release}, nor a kernel of its distribution to compare in its place"
        ))
        .hint("Name both kernels: `bigiron compare OLD NEW`; see `bigiron doc kernels`")
        .into());
    };
    if !args.workloads.is_empty() {
        upgrade.workloads.clone_from(&args.workloads);
    }
    let Some(to) = upgrade.to.clone() else {
        output::data(&wrap(
            &format!(
                "This machine runs {release}, and the archive has no newer kernel. `--to KERNEL` compares any other kernel."
            ),
            "",
            "",
        ))?;
        return Ok(0);
    };
    if to == upgrade.from {
        return Err(Refusal::new(format!("--to: `{to}` is the kernel to compare with; name another one")).into());
    }
    let words = command(&upgrade, &to, &args);
    let text = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
    let found = introduction(&upgrade, &to, &args);
    if args.dry_run {
        // What an archive has is known only when it is fetched; a file is read now, as the comparison would.
        let spec = KernelSpec::parse(&to).map_err(refuse)?;
        if matches!(spec, KernelSpec::Deb(_) | KernelSpec::Image { .. } | KernelSpec::BuildTree(_)) {
            store.resolve(&spec, &output::note).map_err(refuse)?;
        }
        output::data(&format!("{found}\n\nWithout --dry-run, bigiron runs this command and adds advice:\n  {text}"))?;
        return Ok(0);
    }
    output::note(&found);
    let compare = parsed(&words)?;
    let study = compare::conduct(compare)?;
    output::data(&format!("\nAdvice\n{}", advice::advice(&study, &upgrade, &to)))?;
    Ok(0)
}

/// Refuses a word that is not a workload and a `--to` that is not a kernel, before the archive is read.
fn check_words(args: &UpgradeCheck, named: &[String]) -> Result<(), Refusal> {
    let (kernels, _) = arguments::sort(&args.workloads, named)?;
    if let Some(kernel) = kernels.first() {
        return Err(Refusal::new(format!("`{kernel}` is a kernel; upgrade-check takes only workloads")).hint(format!(
            "`--to {kernel}` names the kernel to upgrade to; `bigiron compare` compares any two kernels"
        )));
    }
    let to: Vec<String> = args.to.iter().cloned().collect();
    match arguments::sort(&to, named)? {
        (_, workloads) if !workloads.is_empty() => {
            Err(Refusal::new(format!("--to: `{}` is a workload, not a kernel", workloads[0])))
        }
        _ => Ok(()),
    }
}

/// The machine's kernel and servers, and the comparison.
fn introduction(upgrade: &Upgrade, to: &str, args: &UpgradeCheck) -> String {
    let mut lines = Vec::new();
    let runs = match upgrade.is_stand_in {
        false => format!("This machine runs {}.", upgrade.release),
        true => format!(
            "This machine runs {}, whose image is neither on the machine nor in the archive. bigiron compares `{}` in its place, the kernel of \
             the machine's release, so the answer is about that kernel.",
            upgrade.release, upgrade.from
        ),
    };
    lines.push(runs);
    lines.push(match args.to {
        Some(_) => format!("The kernel to upgrade to is `{to}`."),
        None => format!("The newest kernel available to it is `{to}`."),
    });
    if let Some(also) = &upgrade.also {
        lines.push(format!("Another release has a newer kernel: `--to {also}`."));
    }
    let servers: Vec<&str> = upgrade.servers.iter().map(|server| server.name).collect();
    let workloads = upgrade.workloads.iter().map(String::as_str).collect::<Vec<_>>();
    let workloads = sentence::join(&workloads);
    lines.push(match (args.workloads.is_empty(), servers.is_empty()) {
        (false, _) => format!("Workloads: {workloads}."),
        (true, true) => format!("No known server runs here. Workloads: {workloads}."),
        (true, false) => format!("Servers found: {}. Workloads: {workloads}.", sentence::join(&servers)),
    });
    lines.iter().map(|line| wrap(line, "", "  ")).collect::<String>().trim_end().to_owned()
}

/// The comparison as a command.
fn command(upgrade: &Upgrade, to: &str, args: &UpgradeCheck) -> Vec<String> {
    let mut words: Vec<String> = ["bigiron", "compare", &upgrade.from, to].map(str::to_owned).to_vec();
    words.extend(upgrade.workloads.iter().cloned());
    words.extend(args.quick.then(|| "--quick".to_owned()));
    words.extend(args.fresh.then(|| "--fresh".to_owned()));
    words.extend(args.seed.map(|seed| format!("--seed={seed}")));
    words.extend(args.qemu.map(|source| format!("--qemu={source}")));
    words.extend(args.out.as_ref().map(|out| format!("--out={}", out.display())));
    words
}

/// The comparison, parsed as `bigiron compare` parses it.
fn parsed(words: &[String]) -> anyhow::Result<Compare> {
    match Cli::try_parse_from(words)?.command {
        Command::Compare(compare) => Ok(compare),
        _ => unreachable!("the second word is `compare`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_model::qemu::QemuSource;

    fn upgrade() -> Upgrade {
        Upgrade {
            release: "6.1.0-53-amd64".to_owned(),
            from: "running".to_owned(),
            is_stand_in: false,
            to: Some("debian:6.12.117-1/amd64".to_owned()),
            also: Some("debian:7.2.9-1/amd64".to_owned()),
            servers: Vec::new(),
            workloads: vec!["micro".to_owned(), "dbsim".to_owned()],
        }
    }

    fn args() -> UpgradeCheck {
        UpgradeCheck {
            workloads: Vec::new(),
            to: None,
            dry_run: false,
            quick: true,
            seed: Some(7),
            qemu: Some(QemuSource::System),
            out: Some("-odd dir".into()),
            fresh: true,
        }
    }

    #[test]
    fn the_command_is_understood_by_compare() {
        let args = args();
        let compare = parsed(&command(&upgrade(), "debian:6.12.117-1/amd64", &args)).unwrap();
        assert_eq!(compare.words, ["running", "debian:6.12.117-1/amd64", "micro", "dbsim"]);
        assert!(compare.quick && compare.outcome.fresh);
        assert_eq!(compare.design.qemu, Some(QemuSource::System));
        assert_eq!((compare.design.seed, compare.outcome.out), (Some(7), Some("-odd dir".into())));
    }

    #[test]
    fn what_was_found_is_said() {
        let text = introduction(&upgrade(), "debian:6.12.117-1/amd64", &args());
        assert!(
            text.starts_with("This machine runs 6.1.0-53-amd64.\nThe newest kernel available to it is `debian:6.12")
        );
        assert!(text.contains("`--to debian:7.2.9-1/amd64`") && text.contains("No known server runs here"), "{text}");
        let named = Upgrade { is_stand_in: true, from: "debian:6.1".to_owned(), also: None, ..upgrade() };
        let args = UpgradeCheck { to: Some("debian:5.10".to_owned()), workloads: vec!["oltp".to_owned()], ..args() };
        let text = introduction(&named, "debian:5.10", &args);
        assert!(
            text.contains("answer is about that kernel") && text.contains("\nThe kernel to upgrade to is"),
            "{text}"
        );
        assert!(!text.contains("newe") && !text.contains("server"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
