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

/// A host as typed: its kind, and the machines' names for OpenSSH if it is another machine or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostName {
    /// Slurm, if it distributes the trials over its nodes.
    pub slurm: Option<Slurm>,
    pub kind: HostKind,
    pub targets: Vec<String>,
}

impl HostName {
    /// The host of a kind that needs no name.
    pub fn of(kind: HostKind) -> Self {
        Self { kind, targets: Vec::new(), slurm: None }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.slurm.is_some() {
            f.write_str("slurm")?;
            return self.slurm.iter().flat_map(|slurm| &slurm.partition).try_for_each(|name| write!(f, ":{name}"));
        }
        if self.targets.is_empty() {
            return self.kind.fmt(f);
        }
        let names: Vec<String> = self.targets.iter().map(|target| format!("{}:{target}", self.kind)).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for HostName {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Self, Refusal> {
        if word.split(':').next() == Some("slurm") {
            return Ok(Self { slurm: Some(word.parse()?), ..Self::of(HostKind::Vm) });
        }
        if word.contains(',') {
            return several(word);
        }
        let example = "as in `ssh:db-test-3` or `ssh:root@10.0.0.7`";
        let (kind, target) = word.split_once(':').map_or((word, None), |(kind, target)| (kind, Some(target)));
        let kind: HostKind = kind.parse()?;
        match (kind, target) {
            (HostKind::Ssh, None | Some("")) => {
                Err(Refusal::new(format!("`ssh` needs the name of a machine, {example}")))
            }
            (HostKind::Ssh, Some(target)) => {
                // OpenSSH would take a word that begins with `-` for an option.
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-@[]:%".contains(c);
                if target.starts_with('-') || !target.chars().all(plain) {
                    let message =
                        format!("`{target}` cannot be the name of a machine; name it as OpenSSH does, {example}");
                    return Err(Refusal::new(message));
                }
                Ok(Self { targets: vec![target.to_owned()], ..Self::of(kind) })
            }
            (kind, Some(_)) => Err(Refusal::new(format!("The host `{kind}` has no name after `:`; write `{kind}`"))),
            (kind, None) => Ok(Self::of(kind)),
        }
    }
}

/// `ssh:a,ssh:b`.
fn several(word: &str) -> Result<HostName, Refusal> {
    let mut all = HostName::of(HostKind::Ssh);
    for part in word.split(',') {
        let host: HostName = match part.contains(':') || part.parse::<HostKind>().is_ok() {
            true => part.parse()?,
            false => {
                return Err(Refusal::new(format!(
                    "`{part}` in `{word}` is no host; write each machine as in `ssh:a,ssh:b`"
                )));
            }
        };
        if host.kind != HostKind::Ssh || host.slurm.is_some() {
            return Err(Refusal::new(format!(
                "Only machines over SSH can be several, and `{part}` in `{word}` is none; write them as in `ssh:a,ssh:b`"
            )));
        }
        let Some(target) = host.targets.into_iter().next() else { continue };
        if all.targets.contains(&target) {
            return Err(Refusal::new(format!("The machine `{target}` is named twice; name each machine once")));
        }
        all.targets.push(target);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_as_openssh_names_it() {
        for name in ["vm", "local", "ssh:db-test-3", "ssh:root@10.0.0.7", "ssh:a,ssh:b,ssh:c", "slurm", "slurm:night"] {
            assert_eq!(name.parse::<HostName>().unwrap().to_string(), name);
        }
        for (name, want) in [
            ("ssh", "`ssh` needs the name of a machine, as in `ssh:db-test-3`"),
            ("ssh:", "`ssh` needs the name of a machine"),
            ("ssh:-oProxyCommand=x", "cannot be the name of a machine"),
            ("ssh:a b", "cannot be the name of a machine"),
            ("ssh:a,ssh:b,ssh:a", "The machine `a` is named twice"),
            ("ssh:a,b", "`b` in `ssh:a,b` is no host; write each machine as in `ssh:a,ssh:b`"),
            ("ssh:a,local", "Only machines over SSH can be several, and `local`"),
            ("vm,ssh:a", "Only machines over SSH can be several, and `vm`"),
            ("ssh:a,slurm:x", "Only machines over SSH can be several, and `slurm:x`"),
            ("ssh:a,ssh:", "`ssh` needs the name of a machine"),
            ("ssh:a,", "`` in `ssh:a,` is no host"),
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
