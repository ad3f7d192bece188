//! The studies that come with bigiron.

use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

use super::file;
use crate::registry;

/// A ready-made study.
#[derive(Clone, Copy, Debug)]
pub struct ReadyMade {
    pub name: &'static str,
    /// The study file.
    pub text: &'static str,
}

macro_rules! ready_made {
    ($($name:literal),* $(,)?) => {
        &[$(ReadyMade { name: $name, text: include_str!(concat!("../../studies/", $name, ".toml")) }),*]
    };
}

/// All of them, by the kind of question: kernels, settings of the kernel, storage, servers.
pub const ALL: &[ReadyMade] = ready_made![
    "kernel-upgrade",
    "kernels",
    "users",
    "jobs-over-users",
    "oltp-cached",
    "oltp-uncached",
    "oltp-users",
    "oltp-mariadb",
    "sql-phases",
    "dss-kernel",
    "web-static",
    "web99",
    "web-tls",
    "web-c10k",
    "web-cgi-db",
    "jvm-kernel",
    "jvm-gc",
    "app-kernel",
    "samba",
    "samba-signing",
    "nfs-versions",
    "mitigations",
    "preemption",
    "syscalls",
    "threads",
    "large-pages",
    "oltp-huge-pages",
    "dss-huge-pages",
    "jvm-huge-pages",
    "memory-pressure",
    "numa",
    "smt",
    "network-offload",
    "filesystems",
    "oltp-filesystems",
    "io-options",
    "dontcache",
    "oltp-io-options",
    "full-page-writes",
    "io-scheduler",
    "dss-scheduler",
    "dss-scan",
    "large-io",
    "many-disks",
    "read-under-streaming-write",
    "aa",
];

/// The study called `name`.
///
/// # Errors
/// There is none; the message suggests the nearest.
pub fn find(name: &str) -> Result<&'static ReadyMade, Refusal> {
    ALL.iter().find(|study| study.name == name).ok_or_else(|| {
        let near = suggest::nearest(name, ALL.iter().map(|study| study.name));
        let right = match near {
            Some(near) => format!("; did you mean `{near}`?"),
            None if registry::find(name).is_some() => format!("; `bigiron compare ARM ARM {name}` runs the workload"),
            None => String::new(),
        };
        Refusal::new(format!("There is no ready-made study `{name}`{right}")).hint("`bigiron studies` lists them")
    })
}

impl ReadyMade {
    /// The question in words.
    pub fn question(&self) -> String {
        file::parse(self.name, self.text).ok().and_then(|question| question.text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_in_the_folder_is_here_and_asks_a_question() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/studies");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut names: Vec<&str> = ALL.iter().map(|study| study.name).collect();
        files.sort();
        names.sort_unstable();
        assert_eq!(files, names);
        for study in ALL {
            assert!(study.question().ends_with('?'), "{}", study.name);
        }
    }
}
