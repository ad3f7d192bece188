//! Which QEMU runs a study's guests.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::suggest;

/// Where QEMU comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QemuSource {
    /// One build for every machine, from Debian's archive.
    #[default]
    Pinned,
    /// The QEMU installed on this machine.
    System,
}

impl QemuSource {
    pub const ALL: [Self; 2] = [Self::Pinned, Self::System];

    /// The name as typed and printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::System => "system",
        }
    }

    pub fn is_pinned(&self) -> bool {
        *self == Self::Pinned
    }
}

impl fmt::Display for QemuSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for QemuSource {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|source| source.name() == word).ok_or_else(|| {
            Refusal::new(format!("Unknown QEMU `{word}`; it can be {}", suggest::list(Self::ALL.map(Self::name))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back() {
        for source in QemuSource::ALL {
            assert_eq!(source.to_string().parse(), Ok(source));
        }
        let refused = "newest".parse::<QemuSource>().unwrap_err().to_string();
        assert!(refused.contains("`pinned` or `system`"), "{refused}");
    }
}
