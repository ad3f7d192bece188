//! Where the trials of a study run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::suggest;

/// A kind of host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    /// A virtual machine for each trial.
    #[default]
    Vm,
    /// This machine's own kernel.
    Local,
    /// Another machine over SSH: its own kernel, or kernels that it boots.
    Ssh,
    /// A script: nothing boots.
    Sim,
}

impl HostKind {
    const ALL: [Self; 4] = [Self::Vm, Self::Local, Self::Ssh, Self::Sim];

    /// The name as typed and printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Local => "local",
            Self::Ssh => "ssh",
            Self::Sim => "sim",
        }
    }

    /// Whether trials are processes on a machine's own kernel, not guests.
    pub fn is_machine(self) -> bool {
        matches!(self, Self::Local | Self::Ssh)
    }
}

impl fmt::Display for HostKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for HostKind {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| {
            Refusal::new(format!("Unknown host `{word}`; it can be {}", suggest::list(Self::ALL.map(Self::name))))
        })
    }
}

/// Slurm, as typed: `slurm` or `slurm:PARTITION`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slurm {
    /// `None`: Slurm's own default.
    pub partition: Option<String>,
}

impl FromStr for Slurm {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Self, Refusal> {
        let partition = match word.split_once(':') {
            None if word == "slurm" => return Ok(Self::default()),
            Some(("slurm", partition)) => partition,
            _ => {
                return Err(Refusal::new(format!(
                    "Unknown engine `{word}`; it can be `slurm` or `slurm:PARTITION`. A study file names its host in `[machine]`"
                )));
            }
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-,".contains(c);
        if partition.is_empty() || partition.starts_with('-') || !partition.chars().all(plain) {
            return Err(Refusal::new(format!(
                "`{partition}` cannot be a partition; write `slurm` or `slurm:PARTITION`"
            )));
        }
        Ok(Self { partition: Some(partition.to_owned()) })
    }
}

/// A host as typed: its kind, and the machine's name for OpenSSH if it is another machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostName {
    /// Slurm, if it distributes the trials over its nodes.
    pub slurm: Option<Slurm>,
    pub kind: HostKind,
    pub target: Option<String>,
}

impl HostName {
    /// The host of a kind that needs no name.
    pub fn of(kind: HostKind) -> Self {
        Self { kind, target: None, slurm: None }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            None if self.slurm.is_some() => {
                f.write_str("slurm")?;
                self.slurm.iter().flat_map(|slurm| &slurm.partition).try_for_each(|name| write!(f, ":{name}"))
            }
            Some(target) => write!(f, "{}:{target}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl FromStr for HostName {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Self, Refusal> {
        if word.split(':').next() == Some("slurm") {
            return Ok(Self { slurm: Some(word.parse()?), ..Self::of(HostKind::Vm) });
        }
        let example = "as in `ssh:db-test-3` or `ssh:root@10.0.0.7`";
        let (kind, target) = word.split_once(':').map_or((word, None), |(kind, target)| (kind, Some(target)));
        let kind: HostKind = kind.parse()?;
        match (kind, target) {
            (HostKind::Ssh, None | Some("")) => {
                Err(Refusal::new(format!("`ssh` needs the name of a machine, {example}")))
            }
            (HostKind::Ssh, Some(target)) => {
                // OpenSSH would take a word that begins with `-` for an option; a comma is for several machines.
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-@[]:%".contains(c);
                if target.starts_with('-') || !target.chars().all(plain) {
                    let message = format!("`{target}` cannot be the name of a machine; name one machine, {example}");
                    return Err(Refusal::new(message));
                }
                Ok(Self { target: Some(target.to_owned()), ..Self::of(kind) })
            }
            (kind, Some(_)) => Err(Refusal::new(format!("The host `{kind}` has no name after `:`; write `{kind}`"))),
            (kind, None) => Ok(Self::of(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_as_openssh_names_it() {
        for name in ["vm", "local", "ssh:db-test-3", "ssh:root@10.0.0.7", "slurm", "slurm:night"] {
            assert_eq!(name.parse::<HostName>().unwrap().to_string(), name);
        }
        for (name, want) in [
            ("ssh", "`ssh` needs the name of a machine, as in `ssh:db-test-3`"),
            ("ssh:", "`ssh` needs the name of a machine"),
            ("ssh:-oProxyCommand=x", "cannot be the name of a machine"),
            ("ssh:a b", "cannot be the name of a machine"),
            ("ssh:a,ssh:b", "name one machine"),
            ("local:x", "The host `local` has no name after `:`"),
            ("sh:x", "Unknown host `sh`"),
            ("slurm:", "`` cannot be a partition"),
            ("slurm:-x", "`-x` cannot be a partition"),
        ] {
            let refused = name.parse::<HostName>().unwrap_err().to_string();
            assert!(refused.contains(want), "{refused}");
        }
    }

    #[test]
    fn a_name_reads_back_and_plans_have_it() {
        for kind in HostKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        let refused = "container".parse::<HostKind>().unwrap_err().to_string();
        assert!(refused.contains("`vm`, `local`, `ssh` or `sim`"), "{refused}");
    }
}
