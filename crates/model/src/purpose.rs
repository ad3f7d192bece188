//! What a trial is run for.

use serde::{Deserialize, Serialize};

/// What a trial is run for. Only [`Purpose::Judge`] makes a record; a slot may be run again for evidence of the others, which is not judged.
///
/// A number in a guest's job, all of one digit and none 0, and read by the same instructions: a guest that is profiled must execute what a
/// judged one does until its workloads have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Purpose {
    /// Its values are judged.
    Judge = 1,
    /// What it executes, by function: counted under the exact clock, sampled on the wall clock.
    Profile = 2,
    /// What it waits for: locks of the kernel and of programs.
    Locks = 3,
}

impl From<Purpose> for u8 {
    fn from(purpose: Purpose) -> u8 {
        purpose as u8
    }
}

impl TryFrom<u8> for Purpose {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        // A table, not a comparison for each: see the type.
        const ALL: [Purpose; 3] = [Purpose::Judge, Purpose::Profile, Purpose::Locks];
        let purpose = ALL.get(usize::from(number).wrapping_sub(1)).copied();
        purpose.ok_or_else(|| format!("{number} is not a trial's purpose; there are 1 to {}", ALL.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_reads_back_and_has_one_digit() {
        for purpose in [Purpose::Judge, Purpose::Profile, Purpose::Locks] {
            let text = serde_json::to_string(&purpose).unwrap();
            assert_eq!(text.len(), 1);
            assert_eq!(serde_json::from_str::<Purpose>(&text).unwrap(), purpose);
        }
        for wrong in ["0", "4", "255"] {
            assert!(serde_json::from_str::<Purpose>(wrong).unwrap_err().to_string().contains("1 to 3"));
        }
    }
}
