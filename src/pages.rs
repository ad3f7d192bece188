//! The pages of the documentation, which are part of the executable.

/// A page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// What it describes, such as `workload` or `guide`.
    pub kind: &'static str,
    /// The word after `bigiron doc`.
    pub name: &'static str,
    /// Markdown.
    pub text: &'static str,
}

macro_rules! pages {
    ($($kind:literal in $folder:literal: $($name:literal),+;)+) => {
        &[$($(Page {
            kind: $kind,
            name: $name,
            text: include_str!(concat!("../docs/", $folder, "/", $name, ".md")),
        }),+),+]
    };
}

const PAGES: &[Page] = pages! {
    "workload" in "workloads":
        "micro", "dbsim", "oltp", "sqlphases", "dss", "web", "app", "multiuser", "fs-clients", "net-clients", "files", "tio", "raw-io", "chat", "jvm",
        "scripts", "build", "command";
    "lever" in "levers": "boot", "fault", "sysctl", "file", "block", "mm", "memory", "cpu", "fs", "net", "vm";
    "concept" in "concepts":
        "clock-validation", "clocks", "counters", "kernels", "machines", "modelled-cycles", "rebuilds", "several-cpus",
        "statistics",
        "why", "words";
    "guide" in "guide":
        "bisect", "bisect-source", "ci", "comparison", "confirm", "examples", "faq", "first-steps", "fleets",
        "gate", "nightly", "site", "upgrade";
    "study" in "studies":
        "kernel-upgrade", "filesystems", "io-options", "io-scheduler", "network-offload", "memory-pressure", "numa",
        "many-disks", "jobs-over-users", "users", "read-under-streaming-write", "large-io", "threads", "large-pages",
        "preemption", "sql-phases", "syscalls", "dss-kernel", "oltp-mariadb", "full-page-writes", "dontcache",
        "dss-huge-pages", "dss-scan", "dss-scheduler", "web-static", "web-tls", "web99",
        "web-cgi-db", "web-c10k", "jvm-kernel", "jvm-gc", "jvm-huge-pages", "app-kernel", "samba", "samba-signing", "nfs-versions", "smt";
    "reference" in "reference":
        "cli", "study-file", "bisect-model", "samples", "locks", "storage", "dbsim-job", "dbsim-model",
        "dbsim-processes", "dbsim-verification", "multiuser-model", "oltp-engines", "oltp-runs", "report", "folder", "environment",
        "history", "local", "ssh-faults", "undo", "security", "sim", "architecture", "adding-a-server";
    "measurement" in "measurements":
        "bisect-measurements", "database-measurements", "dbsim-measurements", "judge-measurements", "multiuser-in-a-guest",
        "multiuser-measurements", "nightly-measurements", "oltp-measurements", "rebuild-measurements", "statistics-measurements",
        "why-measurements";
};

/// Every page, in the order of lists.
pub fn all() -> impl Iterator<Item = &'static Page> {
    PAGES.iter()
}

/// The page of that name.
pub fn find(name: &str) -> Option<&'static Page> {
    all().find(|page| page.name == name)
}

impl Page {
    /// The first table below the heading `## TITLE`: the cells of each row, without the head; empty if there is none.
    pub fn table(&self, title: &str) -> Vec<Vec<String>> {
        let heading = format!("## {title}");
        let below = self.text.lines().skip_while(|line| *line != heading).skip(1);
        let rows = below.take_while(|line| !line.starts_with("## ")).skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
        rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
    }

    /// Its first heading.
    pub fn title(&self) -> &'static str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("")
    }
}
