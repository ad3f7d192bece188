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
    /// A script: nothing boots.
    Sim,
}

impl HostKind {
    const ALL: [Self; 3] = [Self::Vm, Self::Local, Self::Sim];

    /// The name as typed and printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Local => "local",
            Self::Sim => "sim",
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_plans_have_it() {
        for kind in HostKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        let refused = "container".parse::<HostKind>().unwrap_err().to_string();
        assert!(refused.contains("`vm`, `local` or `sim`"), "{refused}");
    }
}
