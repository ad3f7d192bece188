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
    /// The package that QEMU was built for, as QEMU prints it (`Debian 1:7.2+dfsg-7+deb12u18+b3`); empty if it names none. Absent from descriptions
    /// that were written before it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_build: Option<String>,
}

impl Provenance {
    /// The running executable, and the version and build of QEMU.
    ///
    /// # Errors
    /// The executable cannot be read.
    pub fn here(qemu: Option<String>, qemu_build: Option<String>) -> io::Result<Self> {
        // Not current_exe(): its file may have been replaced in the meantime.
        let digest = Sha256::digest(fs::read("/proc/self/exe")?);
        let executable = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { executable, qemu, qemu_build })
    }

    /// QEMU's version and, if known, its build; `None` without guests. Different QEMUs have different names.
    pub fn qemu_name(&self) -> Option<String> {
        let version = self.qemu.as_deref()?;
        Some(match self.qemu_build.as_deref() {
            None | Some("") => version.to_owned(),
            Some(build) => format!("{version} ({build})"),
        })
    }

    /// Whether the two are known to run guests in different QEMUs. One version has several builds, whose emulation may differ.
    fn is_other_qemu(&self, begun: &Self) -> bool {
        let differ = |then: &Option<String>, now: &Option<String>| then.is_some() && now.is_some() && then != now;
        differ(&begun.qemu, &self.qemu) || differ(&begun.qemu_build, &self.qemu_build)
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
        let Some(begun) = begun.filter(|begun| self.is_other_qemu(begun)) else { return Ok(()) };
        let name = |programs: &Self| programs.qemu_name().unwrap_or_default();
        let (then, now) = (name(begun), name(self));
        let message = format!("The {what} in `{dir}` was begun with QEMU {then}; QEMU {now} may measure differently");
        // Another `--qemu` would ask another question, and so never lead here.
        Err(Refusal::new(message).hint(format!(
            "Start a new one with `--out DIR`, or, if this one was begun with `--qemu system`, install QEMU {then} again"
        )))
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
            qemu_build: None,
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
        assert_eq!(Provenance::here(None, None).unwrap().executable.len(), 16);
    }

    #[test]
    fn another_build_of_the_same_qemu_is_another_program() {
        let of = |build: Option<&str>| Provenance {
            executable: "e1".to_owned(),
            qemu: Some("7.2.22".to_owned()),
            qemu_build: build.map(str::to_owned),
        };
        let (old, new) = (of(Some("Debian 1:7.2-b3")), of(Some("Debian 1:7.2-b4")));
        let check = |here: &Provenance, begun: &Provenance| here.check("study", Path::new("out"), Some(begun));
        assert_eq!(check(&old, &old), Ok(()));
        let refused = check(&new, &old).unwrap_err();
        assert!(refused.message.contains("begun with QEMU 7.2.22 (Debian 1:7.2-b3); QEMU 7.2.22 (Debian 1:7.2-b4)"));
        let hint = refused.hint.unwrap();
        assert!(
            hint.contains("`--out DIR`") && hint.ends_with("install QEMU 7.2.22 (Debian 1:7.2-b3) again"),
            "{hint}"
        );
        // One that was built without a package is another too.
        assert!(check(&new, &of(Some(""))).is_err() && check(&of(Some("")), &new).is_err());
        // Descriptions from before the build was stored.
        let stored: Provenance = toml::from_str("executable = \"e1\"\nqemu = \"7.2.22\"\n").unwrap();
        assert_eq!((&stored, check(&new, &stored)), (&of(None), Ok(())));
        assert_eq!(toml::from_str::<Provenance>(&toml::to_string(&new).unwrap()).unwrap(), new);
        assert_eq!(toml::to_string(&stored).unwrap(), "executable = \"e1\"\nqemu = \"7.2.22\"\n");
    }
}
