//! The programs that run trials: this executable, and QEMU for guests.
//!
//! Invariant: the same programs run all trials of a study, a night or a bisection; otherwise the remaining trials are refused.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::refusal::Refusal;

/// The programs that run trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The first digits of the hash of bigiron's executable.
    pub executable: String,
    /// QEMU's version, if trials run in guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<String>,
}

impl Provenance {
    /// The running executable and the installed QEMU.
    ///
    /// # Errors
    /// The executable cannot be read.
    pub fn here(qemu: Option<String>) -> io::Result<Self> {
        // Not current_exe(): its file may have been replaced in the meantime.
        let digest = Sha256::digest(fs::read("/proc/self/exe")?);
        let executable = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { executable, qemu })
    }

    /// Refuses to continue here what other programs began; `what` is in `dir`. A description without provenance comes from a build that stored none.
    pub fn check(&self, what: &str, dir: &Path, begun: Option<&Provenance>) -> Result<(), Refusal> {
        let dir = dir.display();
        if begun.is_none_or(|begun| begun.executable != self.executable) {
            let message =
                format!("The {what} in `{dir}` was begun by another build of bigiron, whose workloads may differ");
            return Err(Refusal::new(message)
                .hint("Start a new one with `--out DIR`, or continue with the build that began it"));
        }
        match begun.and_then(|begun| begun.qemu.as_deref()).zip(self.qemu.as_deref()) {
            Some((then, now)) if then != now => {
                let message =
                    format!("The {what} in `{dir}` was begun with QEMU {then}; QEMU {now} would measure differently");
                Err(Refusal::new(message)
                    .hint(format!("Start a new one with `--out DIR`, or continue with QEMU {then} (`--qemu`)")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_programs_that_began_a_study_go_on_with_it() {
        let with = |executable: &str, qemu: Option<&str>| Provenance {
            executable: executable.to_owned(),
            qemu: qemu.map(str::to_owned),
        };
        let here = with("e1", Some("7.2.22"));
        let check = |begun: Option<&Provenance>| here.check("study", Path::new("out"), begun);
        let said = |begun: Option<&Provenance>| check(begun).unwrap_err().to_string();
        assert_eq!(check(Some(&here)), Ok(()));
        // A description from before QEMU's version was stored.
        assert_eq!(check(Some(&with("e1", None))), Ok(()));
        assert!(said(None).contains("in `out` was begun by another build"));
        assert!(said(Some(&with("e2", Some("7.2.22")))).contains("another build"));
        assert!(said(Some(&with("e1", Some("8.2.0")))).contains("begun with QEMU 8.2.0; QEMU 7.2.22"));
        assert_eq!(Provenance::here(None).unwrap().executable.len(), 16);
    }
}
