//! `bigiron doc`.

use crate::registry;
use std::fmt::Write as _;

use super::output;
use crate::cli::Doc;
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

/// Pages other than those of workloads: (kind, name, text).
const PAGES: &[(&str, &str, &str)] = &[
    ("lever", "boot", include_str!("../../docs/levers/boot.md")),
    ("lever", "fault", include_str!("../../docs/levers/fault.md")),
    ("lever", "sysctl", include_str!("../../docs/levers/sysctl.md")),
    ("lever", "file", include_str!("../../docs/levers/file.md")),
    ("lever", "block", include_str!("../../docs/levers/block.md")),
    ("lever", "mm", include_str!("../../docs/levers/mm.md")),
    ("lever", "memory", include_str!("../../docs/levers/memory.md")),
    ("lever", "cpu", include_str!("../../docs/levers/cpu.md")),
    ("lever", "fs", include_str!("../../docs/levers/fs.md")),
    ("lever", "net", include_str!("../../docs/levers/net.md")),
    ("lever", "vm", include_str!("../../docs/levers/vm.md")),
    ("concept", "clocks", include_str!("../../docs/concepts/clocks.md")),
    ("concept", "counters", include_str!("../../docs/concepts/counters.md")),
    ("concept", "kernels", include_str!("../../docs/concepts/kernels.md")),
    ("concept", "statistics", include_str!("../../docs/concepts/statistics.md")),
    ("concept", "why", include_str!("../../docs/concepts/why.md")),
    ("concept", "words", include_str!("../../docs/concepts/words.md")),
    ("guide", "bisect", include_str!("../../docs/guide/bisect.md")),
    ("guide", "bisect-source", include_str!("../../docs/guide/bisect-source.md")),
    ("guide", "ci", include_str!("../../docs/guide/ci.md")),
    ("guide", "comparison", include_str!("../../docs/guide/comparison.md")),
    ("guide", "examples", include_str!("../../docs/guide/examples.md")),
    ("guide", "faq", include_str!("../../docs/guide/faq.md")),
    ("guide", "first-steps", include_str!("../../docs/guide/first-steps.md")),
    ("guide", "gate", include_str!("../../docs/guide/gate.md")),
    ("guide", "upgrade", include_str!("../../docs/guide/upgrade.md")),
    ("guide", "nightly", include_str!("../../docs/guide/nightly.md")),
    ("guide", "site", include_str!("../../docs/guide/site.md")),
    ("study", "kernel-upgrade", include_str!("../../docs/studies/kernel-upgrade.md")),
    ("study", "filesystems", include_str!("../../docs/studies/filesystems.md")),
    ("study", "io-options", include_str!("../../docs/studies/io-options.md")),
    ("study", "io-scheduler", include_str!("../../docs/studies/io-scheduler.md")),
    ("study", "network-offload", include_str!("../../docs/studies/network-offload.md")),
    ("study", "memory-pressure", include_str!("../../docs/studies/memory-pressure.md")),
    ("study", "numa", include_str!("../../docs/studies/numa.md")),
    ("study", "many-disks", include_str!("../../docs/studies/many-disks.md")),
    ("study", "jobs-over-users", include_str!("../../docs/studies/jobs-over-users.md")),
    ("study", "users", include_str!("../../docs/studies/users.md")),
    ("study", "read-under-streaming-write", include_str!("../../docs/studies/read-under-streaming-write.md")),
    ("study", "large-io", include_str!("../../docs/studies/large-io.md")),
    ("study", "threads", include_str!("../../docs/studies/threads.md")),
    ("study", "large-pages", include_str!("../../docs/studies/large-pages.md")),
    ("study", "preemption", include_str!("../../docs/studies/preemption.md")),
    ("study", "syscalls", include_str!("../../docs/studies/syscalls.md")),
    ("reference", "cli", include_str!("../../docs/reference/cli.md")),
    ("reference", "study-file", include_str!("../../docs/reference/study-file.md")),
    ("reference", "bisect-model", include_str!("../../docs/reference/bisect-model.md")),
    ("reference", "samples", include_str!("../../docs/reference/samples.md")),
    ("reference", "locks", include_str!("../../docs/reference/locks.md")),
    ("reference", "storage", include_str!("../../docs/reference/storage.md")),
    ("reference", "dbsim-job", include_str!("../../docs/reference/dbsim-job.md")),
    ("reference", "dbsim-model", include_str!("../../docs/reference/dbsim-model.md")),
    ("reference", "dbsim-processes", include_str!("../../docs/reference/dbsim-processes.md")),
    ("reference", "dbsim-verification", include_str!("../../docs/reference/dbsim-verification.md")),
    ("reference", "multiuser-model", include_str!("../../docs/reference/multiuser-model.md")),
    ("reference", "oltp-engines", include_str!("../../docs/reference/oltp-engines.md")),
    ("reference", "oltp-runs", include_str!("../../docs/reference/oltp-runs.md")),
    ("reference", "report", include_str!("../../docs/reference/report.md")),
    ("reference", "folder", include_str!("../../docs/reference/folder.md")),
    ("reference", "history", include_str!("../../docs/reference/history.md")),
    ("reference", "local", include_str!("../../docs/reference/local.md")),
    ("reference", "undo", include_str!("../../docs/reference/undo.md")),
    ("reference", "security", include_str!("../../docs/reference/security.md")),
    ("reference", "sim", include_str!("../../docs/reference/sim.md")),
    ("reference", "architecture", include_str!("../../docs/reference/architecture.md")),
    ("reference", "adding-a-server", include_str!("../../docs/reference/adding-a-server.md")),
    ("measurement", "bisect-measurements", include_str!("../../docs/measurements/bisect-measurements.md")),
    ("measurement", "dbsim-measurements", include_str!("../../docs/measurements/dbsim-measurements.md")),
    ("measurement", "multiuser-in-a-guest", include_str!("../../docs/measurements/multiuser-in-a-guest.md")),
    ("measurement", "multiuser-measurements", include_str!("../../docs/measurements/multiuser-measurements.md")),
    ("measurement", "nightly-measurements", include_str!("../../docs/measurements/nightly-measurements.md")),
    ("measurement", "oltp-measurements", include_str!("../../docs/measurements/oltp-measurements.md")),
    ("measurement", "statistics-measurements", include_str!("../../docs/measurements/statistics-measurements.md")),
    ("measurement", "why-measurements", include_str!("../../docs/measurements/why-measurements.md")),
];

/// Every page: (kind, name, text).
fn pages() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    registry::all().iter().map(|w| ("workload", w.name(), w.doc())).chain(PAGES.iter().copied())
}

pub(super) fn run(args: &Doc) -> anyhow::Result<u8> {
    let Some(name) = &args.name else {
        output::data(&list())?;
        return Ok(0);
    };
    // A lever is documented on its family's page.
    let page = name.split('.').next().unwrap_or(name);
    let Some((.., text)) = pages().find(|(_, n, _)| *n == page) else {
        let names = pages().map(|(_, name, _)| name);
        let right = suggest::nearest(page, names)
            .map_or_else(|| "`bigiron doc` lists the pages".to_owned(), |near| format!("did you mean `{near}`?"));
        return Err(Refusal::new(format!("No page `{name}`; {right}")).into());
    };
    output::data(text)?;
    Ok(0)
}

fn list() -> String {
    let mut out = String::new();
    for (kind, name, text) in pages() {
        let title = text.lines().find_map(|l| l.strip_prefix("# ")).unwrap_or("");
        let _ = writeln!(out, "{kind:<11} {name:<26} {title}");
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
            let (.., text) = pages().find(|(kind, name, _)| *kind == "lever" && name == family).expect("a page");
            let names: Vec<&str> = levers.iter().map(|l| l.name).collect();
            assert_eq!(described(text), names, "{family}");
        }
    }
}
