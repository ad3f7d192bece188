//! Probes: readings before and after the work, never inside a measured window.

pub mod counters;
pub mod dmesg;
pub mod environment;
pub mod filesystem;
pub mod locks;
pub mod machine;
pub mod noise;
pub mod recorder;
pub mod sampled;
pub mod servers;
pub mod symbols;

#[cfg(test)]
pub(crate) mod testing {
    use std::fs;

    /// A folder with these files, in place of a machine's root.
    pub(crate) fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }
}
